"""Arrays in memory, memory-mapped arrays and sparse matrices: rows can be read in any order."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from onmf.data.base import Numbered, OnBad, Source, SourceError, require_matrix, require_unchanged
from onmf.data.native import native
from onmf.data.permutation import Permutation


class Rows(Source):
    """The rows of a 2-D array or a sparse matrix."""

    any_order = seeks = True

    def __init__(self, X: Any) -> None:
        require_matrix("the argument of Rows", X, empty=True)
        self.X = native(X)
        self.n_samples, self.n_features = X.shape

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        n = len(self)
        order = None if rng is None else Permutation(n, rng)
        for start in range(first, n, size):
            stop = min(start + size, n)
            rows = np.arange(start, stop) if order is None else order.part(start, stop)
            yield rows, self._read(slice(start, start + size) if order is None else rows)

    def _read(self, rows: Any) -> Any:
        return self.X[rows]

    def __len__(self) -> int:
        return int(self.X.shape[0])


class MappedRows(Rows):
    """The rows of an array in a file.

    They are read from the file, not through the memory map: reading scattered rows through a map at times brings most
    of the file into memory. Only arrays stored by columns are read through it, and their pages are given back.
    """

    def __init__(self, path: Path, X: np.memmap[Any, Any]) -> None:
        super().__init__(X)
        self.path, self.size = path, path.stat().st_size

    def _read(self, rows: Any) -> Any:
        require_unchanged(self.path, self.size)
        if not self.X.flags.c_contiguous:
            return self._through_the_map(rows)
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows
        batch = np.empty((len(numbers), self.n_features), dtype=self.X.dtype)
        blocks = [(numbers[0], batch)] if isinstance(rows, slice) else zip(numbers, batch, strict=True)
        with self.path.open("rb", buffering=0) as file:
            for row, place in blocks:
                file.seek(self.X.offset + int(row) * batch.strides[0])
                if not _filled(place.reshape(-1).view(np.uint8), file):
                    raise SourceError(f"{self.path} ends within row {row}.")
        return batch

    def _through_the_map(self, rows: Any) -> Any:
        found = self.X[rows]
        batch = np.array(found) if isinstance(rows, slice) else np.asarray(found)  # a copy of its own
        pages = getattr(self.X, "_mmap", None)
        if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)
        return batch


def _filled(place: Any, file: Any) -> bool:
    """Read until the place is full: systems hand over 2 GiB at most at a time."""
    done = 0
    while done < len(place):
        read = file.readinto(place[done:].data)
        if not read:
            return False
        done += read
    return True
