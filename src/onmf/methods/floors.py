"""What no weight of a feature may fall below under an averaged quadratic model, so that rare features do not die."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences import Divergence
from onmf.samples import Samples


@dataclass(frozen=True)
class Floor:
    """low_f = share * (typical size of feature f) / (sum of the mean coefficients): what a weight may not fall below.

    It comes from the data, not from W: a fraction of W would shrink with it, and rare features would die. The typical
    size is the running mean and a little of the mean over all features, or the geometric mean where zeros are outside
    the domain.
    """

    share: float = 0.0
    geometric: bool = False

    def statistic(self, X: Samples) -> Array:
        """What is averaged, summed over a chunk by the weights of the samples."""
        if X.sparse:
            matrix = X.counted_like(X.values)  # its own sum is slower
            return np.bincount(matrix.indices, matrix.data, X.shape[1]).astype(X.dtype, copy=False)
        sizes = np.log(X.matrix) if self.geometric else X.matrix
        return sizes.sum(axis=0) if X.sample_weight is None else X.sample_weight @ sizes

    def of_masked(self, X: Samples, before: Array) -> Array:
        """The mean of each feature's entries, or its size before where all are missing."""
        X = X.with_sample_weights_in_entries()
        sizes = X.with_values(np.log(X.values)) if self.geometric else X
        weight = X.weight_sums(axis=0)
        return np.divide(sizes.sum(axis=0), weight, out=before.copy(), where=weight > 0)

    def low(self, average: Array, mass: float) -> Array:
        """low_f from the running average of the statistic."""
        if not self.share:
            return np.zeros_like(average)
        size = np.exp(average) if self.geometric else average + 0.01 * average.mean()
        return self.share * size / max(mass, float(np.finfo(average.dtype).tiny))


def floor_of(divergence: Divergence, masked: bool) -> Floor:
    """None where a fit of zero is admitted; geometric where zeros in the data are not.

    Masked samples always have one: a component with next to nothing at the entries of a sample could be given any
    coefficient for a little gain there, and would fill the rest with it.
    """
    if not divergence.domain.x.closed:
        return Floor(1e-4, geometric=True)
    return Floor(0.0 if divergence.domain.y.closed and not masked else 1e-3)
