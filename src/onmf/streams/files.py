"""Files of samples: .npy (memory-mapped), .npz (scipy sparse), .csv and .tsv (read in blocks)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from onmf.streams.base import Source, SourceError
from onmf.streams.rows import Rows

SUFFIXES = (".npy", ".npz", ".csv", ".tsv")


def open_file(path: str | Path) -> Source:
    """The source in a file, by its suffix."""
    path = Path(path)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        msg = f"{path} {what}; give a file that ends in {', '.join(SUFFIXES)}."
        raise SourceError(msg)
    if path.suffix == ".npy":
        return _npy(path)
    if path.suffix == ".npz":
        return _npz(path)
    if path.suffix in {".csv", ".tsv"}:
        return Table(path, "\t" if path.suffix == ".tsv" else ",")
    msg = f"{path}: cannot tell the format from {path.suffix!r}; known are {', '.join(SUFFIXES)}."
    raise SourceError(msg)


def _npy(path: Path) -> Source:
    """Memory-mapped: only the rows in use are read."""
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        msg = f"{path} is not a readable .npy array of numbers: {error}"
        raise SourceError(msg) from None
    _require_numbers(path, X)
    return Rows(X)


def _npz(path: Path) -> Source:
    """A scipy sparse matrix as ``scipy.sparse.save_npz`` writes it."""
    try:
        X = scipy.sparse.load_npz(path).tocsr()
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        msg = f"{path} is not a scipy sparse matrix (write one with scipy.sparse.save_npz): {error}"
        raise SourceError(msg) from None
    _require_numbers(path, X)
    return Rows(X)


def _require_numbers(path: Path, X: Any) -> None:
    if X.ndim != 2 or X.dtype.kind not in "buif" or 0 in X.shape:
        msg = f"{path} must hold a 2-D array of real numbers, samples as rows; it has shape {X.shape}, type {X.dtype}."
        raise SourceError(msg)


class Table(Source):
    """Numbers in lines, separated by commas or tabs; a first line that is not numbers names the features."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path, self.delimiter = path, delimiter
        try:
            with path.open(encoding="utf-8-sig") as lines:
                first = next((line for line in lines if line.strip()), "").rstrip("\r\n")
                others = sum(1 for line in lines if line.strip())
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{path} cannot be read as text: {error}"
            raise SourceError(msg) from None
        fields = [field.strip().strip('"') for field in first.split(delimiter)]
        if fields == [""]:
            msg = f"{path} is empty."
            raise SourceError(msg)
        self.n_features = len(fields)
        self.has_header = not all(map(_is_number, fields))
        self.feature_names = fields if self.has_header else None
        self.n_samples = others + (0 if self.has_header else 1)
        if not self.n_samples:
            msg = f"{path} has a line of names but no samples."
            raise SourceError(msg)

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Blocks of lines in the order of the file."""
        if rng is not None:
            msg = f"{self.path}: lines of a table cannot be shuffled without holding them all; use .npy for that."
            raise SourceError(msg)
        row = 0
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                lines = (line for line in file if line.strip())
                if self.has_header:
                    next(lines)
                while block := list(islice(lines, size)):
                    X = self._numbers(block, row)
                    yield np.arange(row, row + len(X)), X
                    row += len(X)
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{self.path} could not be read on after row {row}: {error}"
            raise SourceError(msg) from None

    def _numbers(self, block: list[str], row: int) -> npt.NDArray[Any]:
        try:
            X = np.loadtxt(block, delimiter=self.delimiter, ndmin=2, comments=None, quotechar='"')
        except ValueError as error:
            msg = f"{self.path}: rows {row} to {row + len(block) - 1} are not all numbers of equal count: {error}"
            raise SourceError(msg) from None
        if X.shape[1] != self.n_features:
            msg = f"{self.path}: row {row} has {X.shape[1]} values, the first has {self.n_features}."
            raise SourceError(msg)
        return X


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
