"""Topics measured on data: how much of them each atom carries, and whether leading features occur together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, row_sums
from onmf._support.known import apart
from onmf.data import Source, SourceError
from onmf.data.base import read_from
from onmf.estimators.serving import Serving, usual_size
from onmf.insight.topics import Coherence
from onmf.learner import Usage
from onmf.learner.update import as_floats


@dataclass(frozen=True)
class Measured:
    """What a pass over data has shown."""

    samples: int
    usage: Array  # (K,), shares that sum to one
    coherence: Array | None  # (K,); None if the data are not counts, of which a zero says that a feature is not there


def measured(
    model: Serving, source: Source, topics: Sequence[Sequence[int]], show: Callable[[int], Any] = lambda samples: None
) -> Measured:
    """Measure on one pass over a source; ``topics`` are the features of each atom to look for, ``show`` is progress."""
    found, sums, samples = Coherence(topics), np.zeros(model.n_components_), 0
    counts = model.implicit == "zero"
    for rows, batch in read_from(source, usual_size(source), None, None, 0):
        X, weights = apart(as_floats(batch))
        counts = counts and _are_counts(X)
        if counts:
            found.add(X)
        full = (row_sums(X) != 0).astype(np.float64)  # of a blank text nothing is fitted, but for the least h there is
        H = model._solve(rows, X)
        sums += Usage.of(H, model.components_, full if weights is None else full * weights).sums
        samples += len(rows)
        show(samples)
    if not samples:
        raise SourceError("there is no sample to measure the topics on.")
    return Measured(samples, Usage(sums).shares, found.values() if counts else None)


def _are_counts(X: Any) -> bool:
    """Sparse, or whole numbers."""
    return bool(scipy.sparse.issparse(X) or (np.floor(X) == X).all())
