"""Files of samples: .npy (memory-mapped), .npz (scipy sparse), .csv and .tsv (read in blocks)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

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
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _npy(path)
    if suffix == ".npz":
        return _npz(path)
    if suffix in {".csv", ".tsv"}:
        return Table(path, "\t" if suffix == ".tsv" else ",")
    msg = f"{path}: cannot tell the format from {path.suffix!r}; known are {', '.join(SUFFIXES)}."
    raise SourceError(msg)


def _npy(path: Path) -> Source:
    """Memory-mapped: only the rows in use are read."""
    try:
        X = np.lib.format.open_memmap(path, mode="r")
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # whatever NumPy's reader trips over, the file is at fault
        msg = f"{path} is not a readable .npy array of numbers: {error}"
        raise SourceError(msg) from None
    _require_numbers(path, X)
    return Rows(X)


def _npz(path: Path) -> Source:
    """A scipy sparse matrix as ``scipy.sparse.save_npz`` writes it."""
    try:
        with path.open("rb") as file:  # our own handle: NumPy leaves its own open when the file is broken
            X = scipy.sparse.load_npz(file)
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)  # indices outside the shape would be read from foreign memory
        X = X.tocsr()
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # whatever the readers trip over, the file is at fault
        msg = f"{path} is not a sparse matrix as scipy.sparse.save_npz writes it; save a dense array as .npy."
        raise SourceError(msg) from error
    _require_numbers(path, X)
    return Rows(X)


def _require_numbers(path: Path, X: Any) -> None:
    if X.ndim == 2 and 0 in X.shape:
        msg = f"{path} has no samples or no features: its shape is {X.shape}."
        raise SourceError(msg)
    if X.ndim != 2 or X.dtype.kind not in "buif":
        msg = f"{path} must hold a 2-D array of real numbers, samples as rows; it has shape {X.shape}, type {X.dtype}."
        raise SourceError(msg)


class Table(Source):
    """Numbers in lines, separated by commas or tabs; a first line that is not numbers names the features."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path, self.delimiter = path, delimiter
        try:
            with path.open(encoding="utf-8-sig") as lines:
                first = next(filter(_has_content, lines), "")
                others = sum(1 for _ in filter(_has_content, lines))
            fields = self._fields(first)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            msg = f"{path} cannot be read as text; save it as UTF-8 ({error})."
            raise SourceError(msg) from None
        if not fields:
            msg = f"{path} is empty."
            raise SourceError(msg)
        self.n_features = len(fields)
        self.has_header = not any(map(_is_number, fields))  # one number among gaps is a sample with gaps
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
                lines = filter(_has_content, file)
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
        except ValueError:
            X = None
        if X is None or X.shape[1] != self.n_features:
            self._refuse_bad_line(block, row)
        return np.asarray(X)

    def _refuse_bad_line(self, block: list[str], row: int) -> NoReturn:
        """Name the first line that is not ``n_features`` numbers."""
        for number, line in enumerate(block, row):
            fields = self._fields(line)
            if len(fields) != self.n_features:
                msg = f"{self.path}: row {number} has {len(fields)} values, the first has {self.n_features}."
                raise SourceError(msg)
            for column, field in enumerate(fields):
                if not _is_number(field):
                    what = f"{field!r} is not a number" if field else "a value is missing"
                    name = f" ({self.feature_names[column]})" if self.feature_names else ""
                    cure = f"keep only columns of numbers, separated by {self.delimiter!r}"
                    cure = cure if field else "fill or drop missing values first"
                    msg = f"{self.path}: {what} at row {number}, column {column}{name} (counted from 0); {cure}."
                    raise SourceError(msg)
        msg = f"{self.path}: rows {row} to {row + len(block) - 1} cannot be read as numbers."
        raise SourceError(msg)

    def _fields(self, line: str) -> list[str]:
        return [field.strip() for field in next(csv.reader([line.rstrip("\r\n")], delimiter=self.delimiter), [])]


def _has_content(line: str) -> bool:
    """A line of nothing but tabs is a sample with gaps, not a blank line."""
    return bool(line.strip(" \r\n"))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
