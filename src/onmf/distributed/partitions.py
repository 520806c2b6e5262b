"""Data in partitions of Dask or of files, each of which is read where it is learnt from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.arrays import is_dask
from onmf._support.checks import require_whole
from onmf.data import Source, SourceError, Spec, open_source
from onmf.data.base import read_from
from onmf.data.registry import each_file
from onmf.samples import stacked, weighted

BYTES = 2**25  # of a partition of a file at most, by default
SHARE, FEWEST = 64, 1000  # a file is cut into 64 partitions of 1000 rows or more: shards share them


@dataclass(frozen=True)
class Raw:
    """The rows of a partition as they were read, with their numbers or names."""

    rows: npt.NDArray[Any]
    batch: Any
    begins: int = 0  # the number that the first row of the partition has, or would have if it could be read
    faults: list[ValueError] = field(default_factory=list)  # rows that could not be read


# Reads a partition on a worker, from the values of the tasks that it needs; ``skip`` leaves out unreadable rows.
Reader = Callable[..., Raw]


class Partitions(ABC):
    """Samples in pieces that lie, or are to be read, wherever Dask likes; nothing is read before it is needed.

    Examples
    --------
    >>> np.save("x.npy", X)
    >>> data = onmf.distributed.partitioned("x.npy", rows=20)
    >>> len(data), data.n_samples
    (3, 60)
    """

    n_features: int
    feature_names: list[str] | None = None
    lengths: Sequence[int | None]  # the rows of each partition, where they are known
    dtype: np.dtype[Any] | None = None  # of the coefficients; None: that of the dictionary
    rewinds = True  # can they be read again?
    spec: Spec | None = None  # how the features are made, if the data were opened by their name
    index_name: str | None = None  # the heading of the names of rows, where they have some

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_samples(self) -> int | None:
        """Return the number of rows of all partitions, if it is known."""
        return None if None in self.lengths else sum(length or 0 for length in self.lengths)

    def label(self, number: int) -> str:
        """Return the name of a partition in messages: its number, and its file if it is one."""
        return str(number)

    @abstractmethod
    def read(self, number: int) -> tuple[Reader, tuple[Any, ...]]:
        """Return a function that reads a partition on a worker, and the tasks whose values are its arguments."""


class DaskData(Partitions):
    """The blocks of rows of a dask array, dense or of scipy.sparse matrices, or of a dask data frame.

    Weights come as dask arrays or series in the same partitions, or as arrays of whole numbers of rows.
    """

    def __init__(self, X: Any, sample_weight: Any = None, weights: Any = None, implicit: str = "zero") -> None:
        if not is_dask(X) or X.ndim != 2:
            what = f"a dask {type(X).__name__.lower()} of {getattr(X, 'ndim', 0)} dimensions" if is_dask(X) else type(X)
            raise ValueError(f"X must have two dimensions, one row per sample; got {what}.")
        self.implicit = implicit
        self.lengths: tuple[int | None, ...]
        if hasattr(X, "npartitions") and hasattr(X, "columns"):
            for name, dtype in X.dtypes.items():
                if dtype.kind not in "buif":
                    raise ValueError(
                        f"the column {str(name)!r} of the data frame is of type {dtype}, not of numbers; leave it out: "
                        f"X.drop(columns=[{str(name)!r}])."
                    )
            self.n_features, self.feature_names = len(X.columns), [str(name) for name in X.columns]
            self.dtype, self.lengths = _float_type(X), (None,) * X.npartitions
            self._parts = X.to_delayed()
        else:
            if X.dtype.kind not in "buif":
                raise ValueError(f"X must hold real numbers; got {X.dtype}.")
            if not isinstance(X.shape[1], int) or not X.shape[1]:
                raise ValueError(f"X must have a known number of features, and at least one; got {X.shape[1]}.")
            X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
            self.n_features, self.dtype = X.shape[1], np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
            self.lengths = tuple(None if math.isnan(length) else int(length) for length in X.chunks[0])
            self._parts = X.to_delayed()[:, 0].tolist()
        self._samples = self._pieces("sample_weight", sample_weight)
        self._entries = self._pieces("weights", weights)

    def _pieces(self, name: str, given: Any) -> Sequence[Any]:
        """Return one piece of the weights per partition."""
        if given is None:
            return [None] * len(self)
        n, length = self.n_samples, math.nan
        if not is_dask(given):
            if n is None:
                raise ValueError(
                    f"{name} is an array, but how many rows each partition of X has is not known; pass it as a dask "
                    "array in the same partitions."
                )
            given = np.asarray(given)
        if isinstance(given, np.ndarray) or hasattr(given, "chunks"):  # not a series
            length = given.shape[0] if given.ndim else 0
        if not math.isnan(length):
            if n not in (None, length):
                raise ValueError(f"{name} must have one entry per sample, {n} in all; got {given.shape}.")
            if isinstance(given, np.ndarray):
                return np.split(given, np.cumsum([length or 0 for length in self.lengths])[:-1])
            rows = {0: self.lengths} if n is not None else {}
            given = given.rechunk(rows | ({1: -1} if given.ndim == 2 else {}))
        parts: list[Any] = np.asarray(given.to_delayed(), dtype=object).reshape(-1).tolist()
        if len(parts) != len(self):
            raise ValueError(f"{name} has {len(parts)} partitions and X has {len(self)}; give both the same ones.")
        return parts

    def read(self, number: int) -> tuple[Reader, tuple[Any, ...]]:
        first = 0 if None in self.lengths else sum(length or 0 for length in self.lengths[:number])
        inputs = self._parts[number], self._samples[number], self._entries[number]
        return partial(_block_rows, first=first, implicit=self.implicit), inputs


def _block_rows(X: Any, samples: Any, entries: Any, *, first: int, implicit: str, skip: bool) -> Raw:
    """Return a block as an array, with its weights."""
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        X = X.to_numpy(dtype=_float_type(X), na_value=np.nan)
    X = X if hasattr(X, "format") else np.asarray(X)
    rows = np.arange(first, first + X.shape[0])
    if samples is not None:
        samples = np.asarray(samples)
        if samples.shape == rows.shape and not samples.any():
            return Raw(rows[:0], X[:0], first)
        rows = rows[np.flatnonzero(samples)]
    return Raw(rows, weighted(X, samples, None if entries is None else np.asarray(entries), implicit), first)


def _float_type(frame: Any) -> np.dtype[Any]:
    """Return the type of float that holds all columns of a data frame."""
    kinds = [getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype)) for dtype in frame.dtypes]
    return np.dtype(np.float32 if np.result_type(*kinds) == np.float32 else np.float64)


# Files


@dataclass(frozen=True)
class Range:
    """A range of the rows of a source, from the first one on; ``count`` None: all of them."""

    source: Source | str  # a text is opened on the worker
    first: int = 0
    count: int | None = None
    begins: int | None = None  # the number of the first row in all the data, for messages


class Files(Partitions):
    """Parts of a source whose files every worker can read, under the same names."""

    def __init__(self, parts: Sequence[Range], like: Source) -> None:
        self._parts = list(parts)
        # Are there several files?
        self._named = len({part.source for part in parts if isinstance(part.source, str)}) > 1
        self.lengths = tuple(part.count for part in parts)
        self.n_features, self.feature_names = like.n_features, like.feature_names
        self.spec, self.index_name = like.spec, like.index_name

    def label(self, number: int) -> str:
        text = self._parts[number].source
        if not self._named or not isinstance(text, str):
            return str(number)
        return f"{number} ({Path(text.partition(':')[2].partition('?')[0]).name})"

    def read(self, number: int) -> tuple[Reader, tuple[Any, ...]]:
        part = self._parts[number]
        return partial(_range_rows, part, self.spec if isinstance(part.source, str) else None), ()


def partitioned(data: Source | str | Path, rows: int | None = None, like: Spec | None = None) -> Partitions:
    """Return data in files as partitions that Dask's workers read themselves, for ``OnlineNMF.fit`` and ``transform``.

    Where a source can be read from any row on (Parquet, Feather, Zarr, HDF5, .npy, .h5ad, pictures), a partition is a
    range of rows; elsewhere it is a file. All workers must see the files under the same names.

    Parameters
    ----------
    data : str, Path or Source
        A text or path for ``onmf.data.open_source``, such a source, or a folder or pattern of such files.
    rows : int or None
        Rows of a partition, about; None: a 64th of all, but no more than 32 MB.
    like : Spec or None
        The ``source_`` of a model, as in ``open_source``.

    Returns
    -------
    Partitions
        What ``fit`` and ``transform`` take.

    Examples
    --------
    >>> np.save("x.npy", X)
    >>> len(onmf.distributed.partitioned("x.npy", rows=20))
    3
    """
    if rows is not None:
        require_whole(1, rows=rows)
    if not isinstance(data, (Source, str, Path)):
        raise TypeError(
            f"partitioned opens files, and got {type(data).__name__}; of an array in memory, take "
            "dask.array.from_array(X, chunks=(rows, -1))."
        )
    if isinstance(data, Source):
        if data.opened is None:
            raise SourceError(
                "only data that lie in files can be read by workers; give the text that onmf.data.open_source "
                "takes or, of an array in memory, dask.array.from_array(X, chunks=(rows, -1))."
            )
        like, data = data.spec, data.opened
    if str(data).rpartition(":")[2].partition("?")[0] == "-":
        raise SourceError("workers cannot share standard input; write it to files first, or leave Dask out.")
    texts = each_file(data)
    source = open_source(texts[0], like)
    if len(texts) == 1:
        return Files(_ranges(source, texts[0], rows), source)
    if like is None and source.feature_names is not None and "ngrams" in source.chosen:
        raise SourceError(
            f"{texts[0]} and the other {len(texts) - 1} files of texts have no vocabulary in common; give "
            "hashed=65536, which does without one."
        )
    if not source.seeks or source.n_samples is None:
        return Files([Range(text) for text in texts], source)
    parts, begins = list[Range](), 0
    for text in texts:  # only their headers are read
        found = source if text is texts[0] else open_source(text, source.spec)
        parts += [replace(part, begins=begins + part.first) for part in _ranges(found, text, rows)]
        begins += found.n_samples or 0
    return Files(parts, source)


def _ranges(source: Source, text: str, given: int | None) -> list[Range]:
    names, n = list(source.files or ()), source.n_samples
    most = given or max(1, BYTES // (8 * source.n_features))
    rows = given or min(most, max(FEWEST, -(-(n or 0) // SHARE)))
    if source.seeks and n is not None:
        found = []
        for first, last in pairwise([*starts(n, rows, most, source.edges), n]):
            part, begins = source.around(first, last) or (text, first)
            found.append(Range(part, begins, last - first, first))
        return found
    if len(names) > 1 and n == len(names):  # a text each
        groups = (names[first : first + rows] for first in range(0, n, rows))
        return [Range(source.of_files(group), 0, len(group)) for group in groups]
    if len(names) > 1:
        return [Range(source.of_files([name])) for name in names]
    why = "only once" if not source.rewinds else "only from front to back"
    raise SourceError(
        f"{text} can be read {why}, so that workers cannot share it; write it as Parquet, Zarr or .npy, or as several "
        "files, first."
    )


def starts(n: int, rows: int, most: int, edges: Sequence[int] | None) -> list[int]:
    """Return where ranges of about ``rows`` of n rows begin: at ``edges``, if there are some near enough."""
    if edges is None:
        return list(range(0, n, rows))
    found = [0]
    while n - found[-1] > rows:
        begins, after = found[-1], bisect_right(edges, found[-1] + rows)
        end = edges[after - 1] if after else 0
        if end <= begins:  # no edge is near enough
            end = min(edges[after], n) if after < len(edges) else n
        pieces = max(1, round((end - begins) / most))
        found += [begins + (end - begins) * piece // pieces for piece in range(1, pieces + 1)]
    return [each for each in found if each < n]


def _range_rows(part: Range, like: Spec | None, skip: bool) -> Raw:
    """Read all rows of a range."""
    source = open_source(part.source, like) if isinstance(part.source, str) else part.source
    size = part.count or max(1, BYTES // (8 * source.n_features))
    faults: list[ValueError] = []
    left, rows, batches = part.count, [], []
    for numbers, batch in read_from(source, size, None, faults.append if skip else None, part.first):
        rows.append(numbers[:left])
        batches.append(batch[:left])
        left = None if left is None else left - len(numbers)
        if left is not None and left <= 0:
            break
    if left and not skip:
        raise SourceError(f"it ends {left} rows before it should: the data have changed.")
    begins = part.first if part.begins is None else part.begins
    if not batches:
        return Raw(np.arange(0), np.zeros((0, source.n_features)), begins, faults)
    numbers = np.concatenate(rows)
    return Raw(numbers if numbers.dtype == object else numbers + begins - part.first, stacked(batches), begins, faults)
