"""How much the samples have said of every feature, and the floor under its weights that follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, row_sums
from onmf._support.known import Known
from onmf.methods.base import State, Sums

FLOOR = 0.01  # of a feature's mean that every atom keeps
RARE = 0.3  # of a typical entry, shared by all samples so far, that a feature may have had unseen
ENOUGH_EVIDENCE = 20_000.0  # samples after which that floor falls
MEANS = ("size", "entries")  # statistics that are plain means over all samples


def evidence_with(state: State, X: Any, new: int, weights: Array | None = None) -> dict[str, Array]:
    """What the floor is made of, with the chunk X, of which so many samples are new.

    Two of these are plain means over all samples; ``evidence`` counts samples, and one seen again is no news.
    ``weights`` are those of the samples, if they differ.
    """
    memory, n, newly = state.memory, float(X.shape[0]), float(new)
    if weights is not None:
        n, newly = float(weights.sum()), (float(weights[:new].sum()) if new else 0.0)
    count = _nonzeros(X, weights)
    if isinstance(X, Known):
        X = X.products
    if weights is not None:
        X = scipy.sparse.diags_array(weights) @ X
    sparse, dtype = scipy.sparse.issparse(X), memory["size"].dtype
    entries = np.array([X.data.sum() if sparse else X.sum(), count], dtype)
    size = np.bincount(X.indices, X.data, X.shape[1]).astype(dtype) if sparse else X.sum(axis=0)
    totals, share = {"size": size, "entries": entries}, n / (state.samples + n)
    means = {name: memory[name] + (total / n - memory[name]) * share for name, total in totals.items()}
    return means | {"evidence": memory["evidence"] + newly}


def _nonzeros(X: Any, weights: Array | None) -> float:
    """How many entries are not zero, by their weights and those of their samples."""
    if isinstance(X, Known):
        X = X.like(X.weighted((X.values != 0).astype(X.dtype)))
    elif weights is None:
        return float(X.nnz if scipy.sparse.issparse(X) else np.count_nonzero(X))
    else:
        X = X.sign() if scipy.sparse.issparse(X) else np.sign(X)
    counts = row_sums(X)
    return float(counts.sum() if weights is None else weights @ counts)


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
