"""Any Python iterable of batches as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import is_array_like
from onmf.data.base import Numbered, OnBad, Sequential, SourceError, require_matrix
from onmf.data.native import native
from onmf.model.validation import DataError


class Batches(Sequential):
    """Batches of any sizes. A list, or a function that returns an iterator, can be read again; an iterator cannot."""

    where = "an iterator of batches"

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self.rewinds = callable(batches) or iter(batches) is not batches
        self._again: Callable[[], Iterable[Any]] = batches if callable(batches) else lambda: batches
        self._unread: Iterator[Any] | None = iter(self._again())
        first = next(self._unread, None)
        if first is None:
            raise SourceError("there are no batches in the iterable; if it is a generator, it may be used up.")
        self.n_features = int(_rows(first).shape[1])
        self._unread = chain([first], self._unread)

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        unread, self._unread = self._unread, None
        return self._readable(self._again() if unread is None else unread, on_bad)

    def _readable(self, batches: Iterable[Any], on_bad: OnBad | None) -> Numbered:
        """A bad batch is left out alone; the rows after it keep their numbers."""
        first = 0
        for batch in batches:
            try:
                rows = self._like_the_first(batch)
            except SourceError as error:
                if on_bad is None:
                    raise
                error.rows = count_rows(batch)
                on_bad(error)
                first += error.rows
            else:
                yield np.arange(first, first + rows.shape[0]), rows
                first += rows.shape[0]

    def _like_the_first(self, batch: Any) -> Any:
        rows = _rows(batch)
        if rows.shape[1] != self.n_features:
            raise SourceError(f"a batch has {rows.shape[1]} features, the first had {self.n_features}.")
        return rows


def is_stream(X: Any) -> bool:
    """An iterator, or an iterable that is neither a sequence nor an array, such as a data loader."""
    plain = hasattr(X, "__getitem__") or hasattr(X, "shape") or hasattr(X, "__array__")
    return hasattr(X, "__next__") or (hasattr(X, "__iter__") and not plain)


def count_rows(batch: Any) -> int:
    """Of a batch that cannot be read; none where it has no such shape."""
    if not (hasattr(batch, "shape") or is_array_like(batch)):
        return 0
    try:
        shape = np.shape(batch)
    except ValueError:  # lists of different lengths
        return len(batch)
    return int(shape[0]) if len(shape) == 2 else 0


def _rows(batch: Any) -> Any:
    if not is_array_like(batch):
        raise SourceError(f"a batch of type {type(batch).__name__} does not turn into an array; pass arrays.")
    try:
        rows = native(batch) if scipy.sparse.issparse(batch) else np.asarray(batch)  # tensors too
    except DataError as error:
        raise SourceError(f"a batch cannot be read: {error}") from None
    except (ValueError, TypeError, RuntimeError) as error:
        raise SourceError(f"a batch of type {type(batch).__name__} is not an array: {error}") from None
    require_matrix("a batch", rows, empty=True)
    return rows
