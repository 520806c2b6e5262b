"""Sources made of Python objects: arrays, sparse matrices, and iterables of batches."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Counts, Data, is_array_like
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, native, require_matrix
from onmf.model.validation import DataError

MANY = 2**17  # rows from which on it pays to shuffle them in buckets
BUCKETS = 256


class Rows(Source):
    """The rows of a 2-D array or a sparse matrix.

    Parameters
    ----------
    X : array or sparse matrix (n, F)
        The samples.

    Examples
    --------
    >>> onmf.data.Rows(X).n_samples
    60
    """

    any_order = seeks = checked = True

    def __init__(self, X: Data) -> None:
        require_matrix("the argument of Rows", X, empty=True)
        self.X = native(X)
        self.n_samples, self.n_features = X.shape

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        n, size = len(self), self.fitting(size)
        order = None if rng is None else Permutation(n, rng)
        for start in range(first, n, size):
            stop = min(start + size, n)
            rows = np.arange(start, stop) if order is None else order.part(start, stop)
            yield rows, self._read(slice(start, start + size) if order is None else rows)

    def _read(self, rows: Any) -> Any:
        return self.X[rows]

    def __len__(self) -> int:
        return int(self.X.shape[0])


class Permutation:
    """The numbers below n in a random order, all orders being equally likely, drawn as far as they are needed.

    The first batch need not wait for the last row: each of many rows goes to one of 256 buckets, drawn at random, and a
    bucket is shuffled when its turn comes. This sorts by random numbers whose last digits are drawn later.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._rng, self._shuffled, self._bucket = rng, 0, 0
        if n < MANY:
            self._order, self._shuffled = rng.permutation(n), n
        else:
            buckets = rng.integers(0, BUCKETS, n, dtype=np.uint8)
            self._order = np.argsort(buckets, kind="stable")
            self._ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS))

    def part(self, start: int, stop: int) -> Counts:
        """Return the numbers from ``start`` to ``stop`` in this order."""
        while self._shuffled < stop:
            end = int(self._ends[self._bucket])
            self._rng.shuffle(self._order[self._shuffled : end])
            self._shuffled, self._bucket = end, self._bucket + 1
        return self._order[start:stop]


class Batches(Sequential):
    """Batches of any sizes. A list, or a function that returns an iterator, can be read again; an iterator cannot.

    Parameters
    ----------
    batches : iterable of arrays or sparse matrices, or a function that returns one
        The batches.

    Examples
    --------
    >>> source = onmf.data.Batches(lambda: np.array_split(X, 6))
    >>> OnlineNMF(3, shuffle=False, max_passes=2).fit(source).n_iter_
    2
    """

    where = "an iterator of batches"

    def __init__(self, batches: Iterable[Data] | Callable[[], Iterable[Data]]) -> None:
        self.rewinds = callable(batches) or iter(batches) is not batches
        self._again: Callable[[], Iterable[Data]] = batches if callable(batches) else lambda: batches
        self._unread: Iterator[Any] | None = iter(self._again())
        first = next(self._unread, None)
        if first is None:
            raise SourceError("there are no batches in the iterable; if it is a generator, it may be used up.")
        self.n_features = int(_rows(first).shape[1])
        self._unread = chain([first], self._unread)

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        """Leave out a bad batch alone; the rows after it keep their numbers."""
        unread, self._unread = self._unread, None
        for batch in self._again() if unread is None else unread:
            try:
                rows = _rows(batch)
                if rows.shape[1] != self.n_features:
                    raise SourceError(f"a batch has {rows.shape[1]} features, the first had {self.n_features}.")
            except SourceError as error:
                if on_bad is None:
                    raise
                error.rows = count_rows(batch)
                on_bad(error)
                first += error.rows
            else:
                yield np.arange(first, first + rows.shape[0]), rows
                first += rows.shape[0]


def is_stream(X: Data) -> bool:
    """Return whether it is an iterator, or an iterable such as a data loader, neither a sequence nor an array."""
    plain = hasattr(X, "__getitem__") or hasattr(X, "shape") or hasattr(X, "__array__")
    return hasattr(X, "__next__") or (hasattr(X, "__iter__") and not plain)


def are_texts(X: Data) -> bool:
    """Return whether X is a list of texts, or a column of a table that holds some."""
    one_by_one = isinstance(X, (list, tuple)) or getattr(X, "ndim", 0) == 1
    return one_by_one and isinstance(next(iter(X), None), str)


def as_stream(X: Data) -> Source | None:
    """Return a source as it is, and an iterator of batches as one; None for data in memory."""
    if isinstance(X, Source):
        return X
    return Batches(X) if is_stream(X) else None


def count_rows(batch: Any) -> int:
    """Return the number of rows of a batch that cannot be read, or 0 if it has none."""
    if not (hasattr(batch, "shape") or is_array_like(batch)):
        return 0
    try:
        shape = np.shape(batch)
    except ValueError:  # lists of different lengths
        return len(batch)
    return int(shape[0]) if len(shape) == 2 else 0


def _rows(batch: Any) -> Any:
    if not is_array_like(batch):
        raise SourceError(f"a batch of type {type(batch).__name__} cannot be converted to an array; pass arrays.")
    try:
        rows = native(batch)
        rows = rows if scipy.sparse.issparse(rows) else np.asarray(rows)  # tensors too
    except DataError as error:
        raise SourceError(f"a batch cannot be read: {error}") from None
    except (ValueError, TypeError, RuntimeError) as error:
        raise SourceError(f"a batch of type {type(batch).__name__} is not an array: {error}") from None
    require_matrix("a batch", rows, empty=True)
    return rows
