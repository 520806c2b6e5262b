"""What no weight of a feature may fall below under an averaged quadratic model, so that rare features do not die."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array
from onmf._support.known import Known
from onmf.divergences import Divergence


@dataclass(frozen=True)
class Floor:
    """low_f = share * (typical size of feature f) / (sum of the mean coefficients): what a weight may not fall below.

    It comes from the data, not from W: a fraction of W would shrink with it, and rare features would die. The typical
    size is the running mean and a little of the mean over all features, or the geometric mean where zeros are outside
    the domain.
    """

    share: float = 0.0
    geometric: bool = False

    def statistic(self, X: Any, weights: Array | None = None) -> Array:
        """What is averaged, summed over a chunk; sparse X have the weights of their samples in them."""
        if scipy.sparse.issparse(X):  # faster than its own sum
            return np.bincount(X.indices, X.data, X.shape[1]).astype(X.dtype, copy=False)
        sizes = np.log(X) if self.geometric else X
        return sizes.sum(axis=0) if weights is None else weights @ sizes

    def known(self, X: Known, before: Array) -> Array:
        """The mean of what is known of each feature, or its size before where nothing is."""
        sizes = Known(X.like(np.log(X.values)), X.weights) if self.geometric else X
        weight = X.weight(axis=0)
        return np.divide(sizes.sum(axis=0), weight, out=before.copy(), where=weight > 0)

    def low(self, average: Array, mass: float) -> Array:
        """low_f from the running average of the statistic."""
        if not self.share:
            return np.zeros_like(average)
        size = np.exp(average) if self.geometric else average + 0.01 * average.mean()
        return self.share * size / max(mass, float(np.finfo(average.dtype).tiny))


def floor_of(divergence: Divergence) -> Floor:
    """None where a fit of zero is admitted; geometric where zeros in the data are not.

    Of samples that are known in part, one for all: an atom with next to nothing where a sample is known could be given
    any coefficient for a little gain there, and would fill the rest with it.
    """
    if not divergence.domain.x.closed:
        return Floor(1e-4, geometric=True)
    return Floor(0.0 if divergence.domain.y.closed and not divergence.partial else 1e-3)
