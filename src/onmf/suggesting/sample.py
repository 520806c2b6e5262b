"""The part of the data that is looked at: some rows and columns, dense, in units of their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, Mask, dense
from onmf.estimators.inputs import matrix_of
from onmf.streams import Batches, Rows, Source, SourceError
from onmf.streams.base import read_from, require_matrix
from onmf.streams.iterable import is_stream
from onmf.units import refuse_bad_entries

ROWS, COLUMNS = 500, 150  # more do not change the answer, but take longer
MOST_READ = 20 * ROWS  # rows, if most of them are empty
MOST_ENTRIES = 2 * 10**7  # of a batch, before columns are chosen


@dataclass(frozen=True, eq=False)
class Sample:
    """Entries X (n, F) without empty rows and columns, and which of them are known."""

    X: Array
    known: Mask
    rows_read: int
    zeros: float  # their share
    whole: bool  # are all numbers whole?

    @classmethod
    def of(cls, data: Any, rng: np.random.Generator) -> Sample:
        """Random rows, or the first ones of a source that is read in order.

        Of many columns, those are taken that are not zero in at least half of the rows, or most often not zero.
        """
        source = _source(data)
        size = int(np.clip(MOST_ENTRIES // source.n_features, 1, ROWS))
        parts: list[Array] = []
        columns: Any = None
        read = found = 0
        for rows, batch in read_from(source, size, rng if source.any_order else None, None, 0):
            refuse_bad_entries(batch, rows)
            read += len(rows)
            entries = np.diff(batch.indptr) if scipy.sparse.issparse(batch) else np.count_nonzero(batch, axis=1)
            filled = batch[entries > 0]
            if filled.shape[0] and columns is None:
                columns = _chosen(filled, rng)
            if filled.shape[0]:
                parts.append(dense(filled[:, columns][: ROWS - found]).astype(np.float64))
                found += len(parts[-1])
            if found >= ROWS or read >= MOST_READ:
                break
        if not read:
            raise SourceError("there are no samples to look at.")
        X = np.concatenate(parts) if parts else np.empty((0, 0))
        X = X[X.any(axis=1)] if X.size else X
        X = X[:, X.any(axis=0)] if X.size else X
        if not X.size:
            return cls(X, X > 0, read, 1.0, True)
        whole = bool((np.floor(X) == X).all())
        X = X / X.max()  # first: the mean of huge numbers may overflow
        return cls(X / X.mean(), np.ones(X.shape, dtype=bool), read, float((X == 0).mean()), whole)


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
