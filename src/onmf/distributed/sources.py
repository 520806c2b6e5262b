"""Files as partitions: each is a range of rows, or some files, which a worker opens and reads by itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.checks import require_whole
from onmf.data import Source, SourceError, Spec, open_source
from onmf.data.base import read_from, stacked
from onmf.data.opening import each_file
from onmf.distributed.partitions import Partitions, Raw, Reader

BYTES = 2**25  # of a partition at most, if nobody says how many rows it shall have
SHARE, FEWEST = 64, 1000  # of all rows, and at least so many: shards that could share the work need partitions to do so


@dataclass(frozen=True)
class Range:
    """So many rows of a source from the first one on; ``count`` None: all of them."""

    source: Source | str  # a text is opened on the worker
    first: int = 0
    count: int | None = None
    begins: int | None = None  # the number of the first row in all the data, for messages


class Files(Partitions):
    """Parts of a source whose files every worker can read, under the same names."""

    def __init__(self, parts: Sequence[Range], like: Source) -> None:
        self._parts = list(parts)
        self._named = len({part.source for part in parts if isinstance(part.source, str)}) > 1  # are files several?
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
        return partial(_rows, part, self.spec if isinstance(part.source, str) else None), ()


def partitioned(data: Source | str | Path, rows: int | None = None, like: Spec | None = None) -> Partitions:
    """Data in files for ``OnlineNMF.fit`` and ``transform`` with Dask: partitions that the workers read themselves.

    ``data`` is what ``onmf.data.open_source`` opens, or such a source, or a folder or pattern of such files. Where a
    source can be read from any row on (Parquet, Feather, Zarr, HDF5, .npy, .h5ad, pictures), a partition is a range of
    about ``rows`` of it, by default a 64th of all but no more than 32 MB; elsewhere it is a file. ``like`` is that of
    ``open_source``. All workers must see the files under the same names.
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
        return partitioned(data.opened, rows, data.spec)
    if str(data).rpartition(":")[2].partition("?")[0] == "-":
        raise SourceError("workers cannot share standard input; write it to files first, or leave Dask out.")
    texts = each_file(data)
    source = open_source(texts[0], like)
    if len(texts) == 1:
        return Files(_parts(source, texts[0], rows), source)
    if like is None and source.feature_names is not None and "ngrams" in source.chosen:
        raise SourceError(
            f"{texts[0]} and the other {len(texts) - 1} files of texts have no vocabulary in common; give "
            "hashed=65536, which does without one."
        )
    if source.seeks and source.n_samples is not None:  # by headers alone
        parts, begins = list[Range](), 0
        for text in texts:
            found = source if text is texts[0] else open_source(text, source.spec)
            parts += [replace(part, begins=begins + part.first) for part in _parts(found, text, rows)]
            begins += found.n_samples or 0
        return Files(parts, source)
    return Files([Range(text) for text in texts], source)


def _parts(source: Source, text: str, given: int | None) -> list[Range]:
    names, n = list(source.files or ()), source.n_samples
    most = given or max(1, BYTES // (8 * source.n_features))
    rows = given or min(most, max(FEWEST, -(-(n or 0) // SHARE)))
    if source.seeks and n is not None:
        ranges = pairwise([*starts(n, rows, most, source.edges), n])
        return [_range(source, text, first, last) for first, last in ranges]
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


def _range(source: Source, text: str, first: int, last: int) -> Range:
    part = source.around(first, last)
    return Range(text, first, last - first, first) if part is None else Range(*part, last - first, first)


def starts(n: int, rows: int, most: int, edges: Sequence[int] | None) -> list[int]:
    """Where ranges of about so many of n rows begin: at ``edges``, if they are given, but none is much longer than
    ``most``.
    """
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


def _rows(part: Range, like: Spec | None, skip: bool) -> Raw:
    """On the worker: all rows of the range."""
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
