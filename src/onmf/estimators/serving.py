"""Coefficients of a stream: batches in, arrays out, and nothing of either is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.arrays import Array
from onmf._support.known import apart, as_dense, as_known
from onmf._support.skipping import SkippedLog
from onmf._support.wording import is_or_are
from onmf.data import Source, SourceError
from onmf.data.base import read_from
from onmf.data.columns import Features
from onmf.data.in_memory import count_rows, is_stream
from onmf.data.inputs import likeness, require_same_features
from onmf.distributed.partitions import Raw
from onmf.estimators.accelerated import Accelerated
from onmf.estimators.base import BLOCK
from onmf.estimators.distributing import Sent, is_distributed, mean_over, partitions_of
from onmf.estimators.isolate_bad_rows import OnBad, Solve, each_solved
from onmf.learner.update import as_floats
from onmf.model.units import refuse_bad_entries

log = logging.getLogger("onmf")

STREAMED = 100  # rows read from a pipe at a time: whoever reads the other end waits for them too


class Serving(Accelerated, auto_wrap_output_keys=None):  # type: ignore[call-arg] # scikit-learn carries no types
    """The base of the estimators, for streams too.

    ``auto_wrap_output_keys``: what the base's ``transform`` gives becomes a data frame on demand; an iterator does not.
    """

    on_error: str = "raise"  # which OnlineNMF leaves to the user

    def transform(self, X: Any, *, weights: Any = None) -> Any:
        """The coefficients H (n, K) of X in the dictionary, solved precisely.

        X is an array, sparse matrix, data frame or AnnData object. A ``Source``, or an iterator of batches, gives an
        iterator of arrays, one per batch, in memory that does not grow; under ``on_error="skip"`` their rows that
        cannot be read or transformed are logged and NaN, so that the others stay where they are.

        A dask array or data frame, or ``onmf.distributed.partitioned``, gives a dask array, computed when it is asked
        for.
        """
        if is_distributed(X):
            return self._mapped(X, weights, Sent(self).coefficients, self.n_components_, "transform")
        if isinstance(X, Source):
            found, cure = Features.of(X.n_features, X.feature_names), likeness(X, getattr(self, "source_", None))
            require_same_features(found, self._fitted.features, "the source", cure=cure)
            if self.on_error == "skip":
                return _counted(H for _, H in self.served(X, usual_size(X), SkippedLog()))
            return (H for _, H in self.served(X, usual_size(X)))
        if is_stream(X):
            check_is_fitted(self)  # now, not when the first batch is asked for
            return _counted(self._each_served(X)) if self.on_error == "skip" else map(self.transform, X)
        return super().transform(X, weights=weights)

    def fit_transform(self, X: Any, y: Any = None, *, weights: Any = None, **fit_params: Any) -> Any:
        """``fit``, and then ``transform`` of the same X with the same ``weights`` of its entries."""
        return self.fit(X, y, weights=weights, **fit_params).transform(X, weights=weights)

    def proportions(self, X: Any) -> Any:
        if is_distributed(X):
            return self._mapped(X, None, Sent(self).proportions, self.n_components_, "proportions")
        return super().proportions(X)

    def inverse_transform(self, X: Any) -> Any:
        if is_distributed(X):
            return self._mapped(X, None, Sent(self).fit, self.n_features_in_, "inverse", self.n_components_)
        return super().inverse_transform(X)

    def loss(self, X: Any, *, sample_weight: Any = None, weights: Any = None) -> float:
        if not is_distributed(X):
            return super().loss(X, sample_weight=sample_weight, weights=weights)
        check_is_fitted(self)
        partitions = partitions_of(X, sample_weight, weights, self.implicit)
        require_same_features(Features.of(partitions.n_features, partitions.feature_names), self._fitted.features)
        return mean_over(partitions, Sent(self).loss)

    def _mapped(
        self, X: Any, weights: Any, function: Callable[[Raw], Array], width: int, what: str, given: int = 0
    ) -> Any:
        """A dask array of what the function makes of the rows, which are samples or, if that is ``given``, so long."""
        from onmf.distributed.mapped import mapped  # Dask is there, but not for everybody

        check_is_fitted(self)
        partitions = partitions_of(X, None, weights, self.implicit)
        found = Features.of(partitions.n_features, partitions.feature_names)
        learnt = Features(given) if given else self._fitted.features
        require_same_features(found, learnt)
        dtype = self.components_.dtype if partitions.dtype is None else partitions.dtype
        return mapped(partitions, function, width, dtype, what, self.on_error == "skip")

    def served(self, source: Source, size: int, on_bad: OnBad | None = None) -> Iterator[tuple[Any, Array]]:
        """The coefficients of a source's batches of ``size`` rows, with the numbers or names of the rows.

        Rows that cannot be read or solved are an error, unless ``on_bad`` is there to be told of it: they are then NaN,
        so that rows stay where they are. Rows that the source leaves out are missing where the others have names, since
        these tell, and where it gives its rows in another order than that of their numbers.
        """
        return self._in_place(source, size, on_bad, self._solve, self.n_components_)

    def reconstructed(
        self, source: Source, size: int, on_bad: OnBad | None = None, coefficients: bool = False
    ) -> Iterator[tuple[Any, Array]]:
        """The fits H @ W, as ``served``; the rows of the source are samples or, if it says so, coefficients."""

        def fit(rows: Any, X: Any) -> Array:
            if coefficients:
                X = as_dense(X)
                refuse_bad_entries(X, rows)
            return self.inverse_transform(X if coefficients else self._solve(rows, X))

        return self._in_place(source, size, on_bad, fit, self.n_features_in_)

    def _in_place(
        self, source: Source, size: int, on_bad: OnBad | None, solve: Solve, width: int
    ) -> Iterator[tuple[Any, Array]]:
        """What ``solve`` makes of the rows of a source, each a row of that width."""
        expected = unread = filled = 0  # the next row; rows that could not be read, and those that are NaN for it
        in_order, like = True, self.components_.dtype  # have all rows come so, and of what type are the results?

        def fault(error: SourceError) -> None:
            nonlocal unread
            unread += error.rows
            if on_bad is not None:
                on_bad(error)

        def gap(stop: int) -> Iterator[tuple[Any, Array]]:
            for first in range(expected, stop, size):
                rows = np.arange(first, min(first + size, stop))
                yield rows, np.full((len(rows), width), np.nan, like)

        for rows, batch in read_from(source, size, None, None if on_bad is None else fault, 0):
            found = each_solved(rows, as_floats(apart(batch)[0]), on_bad, solve, width)
            like = found.dtype
            in_order = in_order and _follow(rows, expected, unread - filled)
            if in_order and on_bad is not None and len(rows):
                yield from gap(int(rows[0]))
                whole = np.full((int(rows[-1] - rows[0]) + 1, width), np.nan, like)
                whole[rows - rows[0]] = found
                filled += int(rows[-1]) + 1 - expected - len(rows)
                rows, found = np.arange(rows[0], rows[-1] + 1), whole
                expected = int(rows[-1]) + 1
            yield rows, found
        if in_order:
            yield from gap(expected + unread - filled)

    def _each_served(self, batches: Iterable[Any]) -> Iterator[Array]:
        """The coefficients of each batch, NaN where it or a row of it is refused."""
        tell, first = SkippedLog(), 0
        for batch in batches:
            try:
                X, _ = self._validated(batch, reset=False)
            except (ValueError, TypeError) as error:
                tell(error)
                H: Array = np.full((count_rows(batch), len(self.components_)), np.nan, self.components_.dtype)
            else:
                H = each_solved(np.arange(first, first + X.shape[0]), X, tell, self._solve, len(self.components_))
            first += len(H)
            yield H

    def _solve(self, rows: Any, X: Any) -> Array:
        """The coefficients, or an error that names the row."""
        known = as_known(X, self.missing, self.implicit)
        refuse_bad_entries(known, rows, self._fitted.features.names)
        return self._coefficients(known)


def _follow(rows: Any, expected: int, missing: int) -> bool:
    """Are these numbers of rows that go on from the expected one, with no more left out than are known to be missing?

    More than that are left out where the rows come in another order.
    """
    if not len(rows):
        return True
    if rows.dtype == object or rows[0] < expected or not (rows[1:] > rows[:-1]).all():
        return False
    return bool(rows[-1] + 1 - expected - len(rows) <= missing)


def _counted(parts: Iterable[Array]) -> Iterator[Array]:
    """The same, and at the end the log is told how many rows are NaN."""
    rows = gaps = 0
    for H in parts:
        rows, gaps = rows + len(H), gaps + int(np.isnan(H[:, 0]).sum())
        yield H
    if gaps:
        log.warning("%d of the %d rows %s NaN.", gaps, rows, is_or_are(gaps))


def usual_size(source: Source) -> int:
    """Rows to read at a time: many of a file, few of a stream."""
    return BLOCK if source.rewinds else STREAMED
