"""Coefficients of a stream: batches in, arrays out, and nothing of either is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.arrays import Array
from onmf.estimators.base import BLOCK, NMF
from onmf.estimators.inputs import require_same_features
from onmf.learner import Features
from onmf.learner.step import as_floats
from onmf.streams import Source, SourceError
from onmf.streams.base import read_from
from onmf.streams.iterable import is_stream
from onmf.units import DataError, refuse_bad_entries

STREAMED = 100  # rows read from a pipe at a time: whoever reads the other end waits for them too

OnBad = Callable[[ValueError], None]


class Serving(NMF, auto_wrap_output_keys=None):  # type: ignore[call-arg] # scikit-learn carries no types
    """The base of the estimators, for streams too.

    ``auto_wrap_output_keys``: what NMF's ``transform`` gives becomes a data frame on demand; an iterator does not.
    """

    def transform(self, X: Any) -> Any:
        """The coefficients H (n, K) of X in the dictionary, solved precisely.

        X is an array, sparse matrix, data frame or AnnData object. A ``Source``, or an iterator of batches, gives an
        iterator of arrays, one per batch, in memory that does not grow.
        """
        if isinstance(X, Source):
            require_same_features(Features.of(X.n_features, X.feature_names), self._fitted.features, "the source")
            return (H for _, H in self.served(X, usual_size(X)))
        if is_stream(X):
            check_is_fitted(self)  # now, not when the first batch is asked for
            return map(self.transform, X)
        return super().transform(X)

    def served(self, source: Source, size: int, on_bad: OnBad | None = None) -> Iterator[tuple[Any, Array]]:
        """The coefficients of a source's batches of ``size`` rows, with the numbers or names of the rows.

        Rows that cannot be read or solved are an error, unless ``on_bad`` is there to be told of it: they are then NaN,
        so that rows stay where they are. Rows that cannot be read are left out where they have names, since these tell,
        and where the source gives its rows in another order than that of their numbers.
        """
        expected = unread = filled = 0  # the next row; rows that could not be read, and those that are NaN for it
        in_order, like = True, None  # have all rows come so, and of what type are the coefficients?

        def fault(error: SourceError) -> None:
            nonlocal unread
            unread += error.rows
            if on_bad is not None:
                on_bad(error)

        def gap(stop: int) -> Iterator[tuple[Any, Array]]:
            for first in range(expected, stop, size):
                rows = np.arange(first, min(first + size, stop))
                yield rows, np.full((len(rows), self.n_components_), np.nan, like)

        for rows, batch in read_from(source, size, None, None if on_bad is None else fault, 0):
            H = self._each_solved(rows, as_floats(batch), on_bad)
            like = H.dtype
            in_order = in_order and _follow(rows, expected, unread - filled)
            if in_order and on_bad is not None and len(rows):
                yield from gap(int(rows[0]))
                whole = np.full((int(rows[-1] - rows[0]) + 1, H.shape[1]), np.nan, like)
                whole[rows - rows[0]] = H
                filled += int(rows[-1]) + 1 - expected - len(rows)
                rows, H = np.arange(rows[0], rows[-1] + 1), whole
                expected = int(rows[-1]) + 1
            yield rows, H
        if in_order and like is not None:
            yield from gap(expected + unread - filled)

    def _each_solved(self, rows: Any, X: Any, on_bad: OnBad | None) -> Array:
        """The coefficients; of rows that are refused NaN, found by halving the batch until they are alone."""
        try:
            refuse_bad_entries(X, rows)
            return self._coefficients(X)
        except DataError as error:
            if on_bad is None:
                raise
            if len(rows) == 1:
                on_bad(error)
                return np.full((1, self.n_components_), np.nan, X.dtype)
        half = len(rows) // 2
        parts = [self._each_solved(rows[part], X[part], on_bad) for part in (slice(None, half), slice(half, None))]
        return np.concatenate(parts)


def _follow(rows: Any, expected: int, missing: int) -> bool:
    """Are these numbers of rows that go on from the expected one, with no more left out than are known to be missing?

    More than that are left out where the rows come in another order.
    """
    if not len(rows):
        return True
    if rows.dtype == object or rows[0] < expected or not (rows[1:] > rows[:-1]).all():
        return False
    return bool(rows[-1] + 1 - expected - len(rows) <= missing)


def usual_size(source: Source) -> int:
    """Rows to read at a time: many of a file, few of a stream."""
    return BLOCK if source.rewinds else STREAMED
