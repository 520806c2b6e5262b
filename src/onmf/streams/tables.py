"""Tables of numbers in text: .csv and .tsv, read in blocks of lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Source, SourceError


class Table(Source):
    """Numbers in lines, separated by commas or tabs; a first line that is not numbers names the features.

    ``header``, yes or no, says so where names look like numbers, as years do.
    """

    def __init__(self, path: Path, delimiter: str, header: str | None = None) -> None:
        if header not in (None, "yes", "no"):
            raise SourceError(f"{path}: header must be yes or no, got {header!r}.")
        self.path, self.delimiter = path, delimiter
        try:
            with path.open(encoding="utf-8-sig") as lines:
                first = next(filter(_has_content, lines), "")
                others = sum(1 for _ in filter(_has_content, lines))
            fields = self._fields(first)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{path} cannot be read as text; save it as UTF-8 ({error}).") from None
        if not fields:
            raise SourceError(f"{path} is empty.")
        self.n_features = len(fields)
        # One number among gaps is a sample with gaps.
        self.has_header = not any(map(_is_number, fields)) if header is None else header == "yes"
        self.feature_names = fields if self.has_header else None
        self.n_samples = others + (0 if self.has_header else 1)
        if not self.n_samples:
            raise SourceError(f"{path} has a line of names but no samples.")

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Blocks of lines in the order of the file."""
        if rng is not None:
            raise SourceError(
                f"{self.path}: lines of a table cannot be shuffled without holding them all; use .npy for that."
            )
        row = 0
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                lines = filter(_has_content, file)
                if self.has_header:
                    next(lines, None)
                while block := list(islice(lines, size)):
                    try:
                        yield np.arange(row, row + len(block)), self._numbers(block, row)
                    except SourceError as error:
                        self.bad(error)
                    row += len(block)
            if row < (self.n_samples or 0):
                raise SourceError(f"{self.path} has shrunk: it had {self.n_samples} samples and now ends after {row}.")
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{self.path} could not be read on after row {row}: {error}") from None

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
                raise SourceError(
                    f"{self.path}: row {number} has {len(fields)} values, the first has {self.n_features}."
                )
            for column, field in enumerate(fields):
                if not _is_number(field):
                    what = f"{field!r} is not a number" if field else "a value is missing"
                    name = f" ({self.feature_names[column]})" if self.feature_names else ""
                    cure = f"keep only columns of numbers, separated by {self.delimiter!r}"
                    cure = cure if field else "fill or drop missing values first"
                    raise SourceError(
                        f"{self.path}: {what} at row {number}, column {column}{name} (counted from 0); {cure}."
                    )
        raise SourceError(f"{self.path}: rows {row} to {row + len(block) - 1} cannot be read as numbers.")

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
