"""The updates that suit the samples: dense, sparse or known in part, under a divergence with a short cut or without."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, dense
from onmf._support.known import Known, Weighted, without_holes
from onmf.divergences import Divergence
from onmf.methods.batch.known import KnownUpdates, SparseKnownUpdates
from onmf.methods.batch.sparse import SparseUpdates
from onmf.methods.batch.updates import DenseUpdates, GramUpdates, Updates
from onmf.model.units import Units

FIRST = 2000  # samples of which the start is made where all of them would have to be densified


def updates_of(
    X: Any, samples: Array | None, units: Units, divergence: Divergence, inside: Divergence
) -> tuple[Updates, Any, int]:
    """The samples as the updates take them, those that the start looks at, and how many entries were raised.

    Sparse data under a divergence that needs all entries are densified block by block, in every iteration again.
    """
    if isinstance(X, Known):
        return _known_updates(X, samples, units, divergence, inside)
    order, gram = inside.alpha_order, inside.quadratic and inside.metric is None
    if scipy.sparse.issparse(X) and order is None and not gram:
        some = _some_rows(X)
        first, _ = units.inside(dense(X[some]), divergence)
        blocks = DenseUpdates(
            inside, lambda rows: units.inside(dense(X[rows]), divergence)[0], X.shape, samples=samples
        )
        raised = sum(units.inside(dense(X[rows]), divergence)[1] for rows in blocks.blocks)
        return blocks, _with_weights(first, samples, some), raised
    internal, raised = units.inside(X, divergence)
    first = _with_weights(internal, samples)
    if gram:
        return GramUpdates(internal, samples), first, raised
    if scipy.sparse.issparse(internal) and order is not None:
        return SparseUpdates(inside, internal, order, samples), first, raised
    return DenseUpdates(inside, lambda rows: internal[rows], internal.shape, samples=samples), first, raised


def _known_updates(
    X: Known, samples: Array | None, units: Units, divergence: Divergence, inside: Divergence
) -> tuple[Updates, Any, int]:
    """The same of samples that are known in part; the start looks at some of them, completed."""
    internal, raised = units.inside(X, divergence)
    if not X.sparse:
        first = _with_weights(without_holes(internal, samples), samples)
        return KnownUpdates(inside, lambda rows: internal[rows], X.shape, samples), first, raised
    some = _some_rows(X.X)
    counts = None if samples is None else samples[some]
    first = _with_weights(without_holes(internal[some], counts), samples, some)
    if inside.separable:
        return SparseKnownUpdates(inside, internal, samples), first, raised
    return KnownUpdates(inside, lambda rows: internal[rows].densified(), X.shape, samples), first, raised


def _some_rows(X: Any) -> Any:
    """Rows of a sparse matrix that have entries: evenly spaced, as many as the start may densify."""
    filled = np.flatnonzero(np.diff(X.indptr))
    return filled[:: -(-len(filled) // FIRST)]


def _with_weights(X: Any, samples: Array | None, rows: Any = slice(None)) -> Any:
    return X if samples is None else Weighted(X, samples[rows])
