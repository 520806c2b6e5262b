"""Tables of numbers in text: .csv and .tsv, read in blocks of lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Numbered, OnBad, Sequential, Source, SourceError, each_readable, reading
from onmf.streams.registry import register


class Table(Sequential):
    """Lines of numbers between delimiters; a first line without any number names the features.

    ``header``, yes or no, decides where names look like numbers, as years do.
    """

    def __init__(self, path: Path, delimiter: str, header: str | None) -> None:
        if header not in (None, "yes", "no"):
            raise SourceError(f"{path}: header must be yes or no, got {header!r}.")
        self.where, self.path, self.delimiter = str(path), path, delimiter
        with reading(path, "as text", "save it as UTF-8"):
            lines = self._lines()
            fields = self._fields(next(lines, ""))
            others = sum(1 for _ in lines)
        if not fields:
            raise SourceError(f"{path} is empty.")
        self.n_features = len(fields)
        # One number among gaps is a sample with gaps.
        self.has_header = not any(map(_is_number, fields)) if header is None else header == "yes"
        self.feature_names = fields if self.has_header else None
        self.n_samples = others + (0 if self.has_header else 1)
        if not self.n_samples:
            raise SourceError(f"{path} has a line of names but no samples.")

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        """A block with a bad line is left out whole; the rows after it keep their numbers."""
        return each_readable(self._numbers, zip(count(0, size), self._blocks(size, on_bad), strict=False), on_bad)

    def _blocks(self, size: int, on_bad: OnBad | None) -> Iterator[list[str]]:
        lines, row = islice(self._lines(), int(self.has_header), None), 0
        while True:
            with reading(self.where, f"from row {row} onward"):
                block = list(islice(lines, size))
            if not block:
                break
            yield block
            row += len(block)
        if row < (self.n_samples or 0):
            raise SourceError(f"{self.where} shrank: it had {self.n_samples} samples and now ends after {row}.")

    def _numbers(self, numbered: tuple[int, list[str]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        row, block = numbered
        try:
            X = np.loadtxt(block, delimiter=self.delimiter, ndmin=2, comments=None, quotechar='"')
        except ValueError:
            X = np.empty((0, 0))
        if X.shape[1] != self.n_features:
            raise SourceError(f"{self.where}: {self._what_is_wrong(row, block)}.")
        return np.arange(row, row + len(block)), X

    def _what_is_wrong(self, row: int, block: list[str]) -> str:
        """With the first line that is not ``n_features`` numbers."""
        for number, line in enumerate(block, row):
            with reading(self.where, f"from row {number} onward"):
                fields = self._fields(line)
            if len(fields) != self.n_features:
                return f"row {number} has {len(fields)} values, the first has {self.n_features}"
            for column, field in enumerate(fields):
                if not _is_number(field):
                    what = f"{field!r} is not a number" if field else "a value is missing"
                    name = f" ({self.feature_names[column]})" if self.feature_names else ""
                    cure = f"keep only columns of numbers, separated by {self.delimiter!r}"
                    cure = cure if field else "fill in or drop missing values first"
                    return f"{what} at row {number}, column {column}{name} (counted from 0); {cure}"
        return f"rows {row} to {row + len(block) - 1} cannot be read as numbers"

    def _lines(self) -> Iterator[str]:
        """A line of nothing but tabs is a sample with gaps, not a blank line."""
        with self.path.open(encoding="utf-8-sig") as lines:
            yield from (line for line in lines if line.strip(" \r\n"))

    def _fields(self, line: str) -> list[str]:
        return [field.strip() for field in next(csv.reader([line.rstrip("\r\n")], delimiter=self.delimiter), [])]


@register("csv", [".csv"])
def comma_separated(path: Path, header: str | None = None) -> Source:
    """Numbers separated by commas."""
    return Table(path, ",", header)


@register("tsv", [".tsv"])
def tab_separated(path: Path, header: str | None = None) -> Source:
    """Numbers separated by tabs."""
    return Table(path, "\t", header)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
