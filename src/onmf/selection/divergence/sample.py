"""The part of the data that is looked at: some rows and columns, dense, in units of their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, Mask, dense
from onmf._support.known import Known, apart, as_known
from onmf.data import Batches, Rows, Source, SourceError
from onmf.data.base import read_from, require_matrix
from onmf.data.in_memory import is_stream
from onmf.data.inputs import matrix_of
from onmf.model.units import refuse_bad_entries

ROWS, COLUMNS = 500, 150  # more do not change the answer, but take longer
MOST_READ = 20 * ROWS  # rows, if most of them are empty
MOST_ENTRIES = 2 * 10**7  # of a batch, before columns are chosen


@dataclass(frozen=True, eq=False)
class Sample:
    """Entries X (n, F) without empty rows and columns, and which of them are known: X is zero at the others."""

    X: Array
    known: Mask
    rows_read: int
    zeros: float  # their share of what is known
    whole: bool  # are all numbers whole?

    @classmethod
    def of(cls, data: Any, rng: np.random.Generator, missing: str | None, implicit: str) -> Sample:
        """Random rows, or the first ones of a source that is read in order.

        Of many columns, those are taken that are not zero in at least half of the rows, or most often not zero. How
        often a row counts is no matter: its noise is the same.
        """
        source = _source(data)
        size = int(np.clip(MOST_ENTRIES // source.n_features, 1, ROWS))
        parts: list[Array] = []
        masks: list[Mask] = []
        columns: Any = None
        read = found = 0
        for rows, batch in read_from(source, size, rng if source.any_order else None, None, 0):
            values, known = _entries(as_known(apart(batch)[0], missing, implicit))
            refuse_bad_entries(values, rows, source.feature_names)
            read += len(rows)
            entries = np.diff(values.indptr) if scipy.sparse.issparse(values) else np.count_nonzero(values, axis=1)
            filled = np.flatnonzero(entries)[: ROWS - found]
            if len(filled) and columns is None:
                columns = _chosen(values[entries > 0], rng)
            if len(filled):
                parts.append(dense(values[filled][:, columns]).astype(np.float64))
                masks.append(np.ones(parts[-1].shape, bool) if known is None else dense(known[filled][:, columns]) > 0)
                found += len(filled)
            if found >= ROWS or read >= MOST_READ:
                break
        if not read:
            raise SourceError("there are no samples to look at.")
        X = np.concatenate(parts) if parts else np.empty((0, 0))
        there = np.concatenate(masks) if masks else X > 0
        there, X = (there[X.any(axis=1)], X[X.any(axis=1)]) if X.size else (there, X)
        there, X = (there[:, X.any(axis=0)], X[:, X.any(axis=0)]) if X.size else (there, X)
        if not X.size:
            return cls(X, X > 0, read, 1.0, True)
        whole = bool((np.floor(X) == X).all())
        X = X / X.max()  # first: the mean of huge numbers may overflow
        return cls(X / X[there].mean(), there, read, float((X[there] == 0).mean()), whole)


def _entries(batch: Any) -> tuple[Any, Any]:
    """The entries, zero where they are unknown, and the matrix of those that are known; None: all are."""
    return (batch.products, batch.present) if isinstance(batch, Known) else (batch, None)


def _source(data: Any) -> Source:
    if isinstance(data, Source):
        return data
    if is_stream(data):
        return Batches(data)
    X, _ = matrix_of(data)
    X = X if scipy.sparse.issparse(X) else np.asarray(X)
    require_matrix("X", X)
    return Rows(X)


def _chosen(batch: Any, rng: np.random.Generator) -> Any:
    """The numbers of the columns to look at, in order."""
    if batch.shape[1] <= COLUMNS:
        return np.arange(batch.shape[1])
    sparse = scipy.sparse.issparse(batch)
    filled = np.bincount(batch.indices, minlength=batch.shape[1]) if sparse else np.count_nonzero(batch, axis=0)
    often = np.minimum(filled, batch.shape[0] / 2)
    return np.sort(np.lexsort((rng.random(len(often)), -often))[:COLUMNS])
