"""What no weight of a feature may fall below, so that features that are rare or not seen yet do not die."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences import Divergence
from onmf.model.state import State, Sums
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


FLOOR = 0.01  # of a feature's mean that every component keeps
RARE = 0.3  # of a typical entry, shared by all samples so far, that a feature may have had unseen
ENOUGH_EVIDENCE = 20_000.0  # samples after which that floor falls
MEANS = ("size", "entries")  # statistics that are plain means over all samples


def evidence_with(state: State, X: Samples, new: int) -> dict[str, Array]:
    """What the floor is made of, with the chunk X, whose first ``new`` samples are seen for the first time.

    Two of these are plain means over all samples; ``evidence`` counts samples, and one seen again is no news.
    """
    memory, n, weights = state.memory, float(X.weight), X.sample_weight
    newly = float(new) if weights is None or not new else float(weights[:new].sum())
    products, dtype = X.counted_like(X.weighed(X.values)), memory["size"].dtype
    entries = products.data if X.sparse else products
    size = np.bincount(products.indices, entries, X.shape[1]).astype(dtype) if X.sparse else products.sum(axis=0)
    totals = {"size": size, "entries": np.array([entries.sum(), _nonzeros(X)], dtype)}
    share = n / (state.samples + n)
    means = {name: memory[name] + (total / n - memory[name]) * share for name, total in totals.items()}
    return means | {"evidence": memory["evidence"] + newly}


def _nonzeros(X: Samples) -> float:
    """How many entries are not zero, by their weights and those of their samples."""
    if not X.masked and X.sample_weight is None:
        return float(X.values.size if X.sparse else np.count_nonzero(X.values))
    counts = X.per_sample((X.values != 0).astype(X.dtype))
    return float(counts.sum() if X.sample_weight is None else X.sample_weight @ counts)


def floor(memory: dict[str, Array]) -> Array:
    """What no weight of a feature falls below: it keeps a little mass for features that are rare or not seen yet."""
    tiny = float(np.finfo(memory["size"].dtype).tiny)
    typical = float(memory["entries"][0] / max(memory["entries"][1], tiny))  # the mean of the non-zeros
    evidence = max(float(memory["evidence"][0]), 1.0)
    share = FLOOR * min(1.0, ENOUGH_EVIDENCE / evidence)
    if memory["D"].ndim == 1:
        return (share * memory["size"] + RARE * typical / evidence) / max(float(memory["D"].sum()), tiny)
    mass = memory["D"].sum(axis=1)
    # What is added for rarity is not divided by the sums of a feature of which little is known.
    return share * memory["size"] / np.maximum(mass, tiny) + RARE * typical / evidence / max(float(mass.max()), tiny)


def evidence_between(before: State, after: State) -> dict[str, Array]:
    """What the samples between two states have added."""
    arrays: dict[str, Array] = {
        name: after.samples * after.memory[name] - before.samples * before.memory[name] for name in MEANS
    }
    return arrays | {"evidence": after.memory["evidence"] - before.memory["evidence"]}


def evidence_merged(before: State, sums: Sums) -> dict[str, Array]:
    """The memory with what all shards have added."""
    memory, n = dict(before.memory), sums.samples
    for name in MEANS:
        memory[name] = (before.samples * memory[name] + sums.arrays[name]) / (before.samples + n)
    return memory | {"evidence": memory["evidence"] + sums.arrays["evidence"]}
