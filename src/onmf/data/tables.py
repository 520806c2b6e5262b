"""Tables of numbers in text: .csv and .tsv, read in blocks of lines, also from a pipe."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.unread import Unread
from onmf._support.wording import counted
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, reading
from onmf.data.columns import WEIGHTS, bad_weights, choose
from onmf.data.encoding import are_utf8, not_utf8
from onmf.data.pipes import is_pipe, lines, name_of
from onmf.data.registry import register
from onmf.samples import Samples

log = logging.getLogger("onmf")

OPEN_QUOTE = "has a quoted text that goes on in the next line; write the table without line breaks in its texts"
UNNAMED = ("", "Unnamed: 0")  # how pandas writes an index without a name, and how it reads and writes it again


class Table(Sequential):
    """Lines of numbers between delimiters; a first line without any number names the columns.

    ``header``, yes or no, decides where names look like numbers, as years do. ``columns`` are the features, by name and
    in this order, or by number where there are no names; ``drop`` are columns that are none, and ``index`` is the one
    that names the rows, ``weight`` the one that says how often each counts. Where there are no names, but just as many
    columns as are asked for, they take those names. Gaps become NaN, which the learner takes for unknown or refuses.
    """

    def __init__(
        self,
        path: Path,
        delimiter: str,
        header: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        index: str | None = None,
        weight: str | None = None,
    ) -> None:
        self.where, self.path, self.delimiter = name_of(path), path, delimiter
        self.gap = re.compile(f"(^|{delimiter}) *(?={delimiter}|$)")
        if header not in (None, "yes", "no"):
            raise SourceError(f"{self.where}: header must be yes or no, got {header!r}.")
        self.rewinds = not is_pipe(path)
        with reading(self.where, "as text"):
            found = self._lines()
            first = next(found, "")
            fields = self._fields(first)
            others = sum(1 for _ in found) if self.rewinds else None
        if not fields:
            raise SourceError(f"{self.where} is empty.")
        if self._goes_on(first):
            raise SourceError(f"{self.where}: its first line {OPEN_QUOTE}.")
        # One number among gaps is a sample with gaps.
        self.has_header = not any(map(is_number, fields)) if header is None else header == "yes"
        if self.has_header and (wrong := not_utf8(first)):
            raise SourceError(f"{self.where}: the line that names the columns {wrong}.")
        self.names = fields if self.has_header else None
        self.n_fields = len(fields)
        self._choose(fields, columns, drop, index, weight)
        if others is None:
            self._unread = found if self.has_header else chain([first], found)
        else:
            self.n_samples = others + (0 if self.has_header else 1)
            if not self.n_samples:
                raise SourceError(f"{self.where} has a line of names but no samples.")

    def _choose(
        self,
        fields: list[str],
        columns: Sequence[str] | None,
        drop: Sequence[str] | None,
        index: str | None,
        weight: str | None,
    ) -> None:
        names = fields if self.has_header else [str(number) for number in range(self.n_fields)]
        unnamed = self.has_header and fields[0] in UNNAMED and all(fields[1:])
        if unnamed and fields[0] not in [*(columns or ()), *(drop or ()), index, weight]:
            what = "it names the rows and is no feature" if index is None else "it is left out"
            log.warning("%s: the first column has no name, as pandas writes row names; %s.", self.where, what)
            drop, index = [fields[0], *(drop or ())], fields[0] if index is None else index
        self.feature_names = None
        if columns is not None and not self.has_header and not set(columns) & set(names):
            self.places, self.index, self.weight = choose(self.where, names, None, drop, index, weight)
            if len(columns) == len(self.places):
                self.feature_names = list(columns)
        if self.feature_names is None:
            self.places, self.index, self.weight = choose(self.where, names, columns, drop, index, weight)
            self.feature_names = [fields[place] for place in self.places] if self.has_header else None
        if self.index is not None and self.has_header and fields[self.index] not in UNNAMED:
            self.index_name = fields[self.index]
        self.n_features, self.weighted = len(self.places), self.weight is not None
        if self.feature_names is None and self.n_features < self.n_fields:
            self.chosen = {"columns": [str(place) for place in self.places]}

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        """A bad line is left out alone, and the rows after it keep their numbers; where rows have names it is NaN."""
        first = 0
        for block in self._blocks(size):
            yield from self._read(first, block, on_bad)
            first += len(block)

    def _blocks(self, size: int) -> Iterator[list[str]]:
        samples = islice(self._lines(), int(self.has_header), None) if self.rewinds else self._unread
        row = 0
        while True:
            with reading(self.where, f"from row {row} onward"):
                block = list(islice(samples, size))
            if not block:
                break
            yield block
            row += len(block)
        if row < (self.n_samples or 0):
            had = counted(self.n_samples or 0, "sample")
            raise SourceError(f"{self.where} shrank: it had {had} and now ends after {row}.")

    def _read(self, first: int, block: list[str], on_bad: OnBad | None) -> Numbered:
        """Of a block with a bad line, the halves apart, and so on, until that line is alone."""
        try:
            found = (self._rows(first, block), self._numbers(block)) if are_utf8(block) else None
        except (ValueError, csv.Error):
            found = None
        if found is not None:
            yield found
            return
        if len(block) == 1:
            error = SourceError(f"{self.where}: {self._what_is_wrong(first, block[0])}.")
            if on_bad is None:
                raise error
            if self.index is None:
                on_bad(error)
                return
            name = Unread(self._name(block[0], self.index) or f"row {first}", error)
            gap = np.full((1, self.n_features), np.nan)
            yield np.array([name], dtype=object), Samples(gap, sample_weight=np.ones(1)) if self.weighted else gap
            return
        half = len(block) // 2
        yield from self._read(first, block[:half], on_bad)
        yield from self._read(first + half, block[half:], on_bad)

    def _numbers(self, block: list[str]) -> Any:
        try:
            X = self._loaded(block)
        except ValueError:
            X = self._loaded(list(map(self._without_gaps, block)))
        if self.weight is None:
            return X
        if bad_weights(X[:, -1]).any():
            raise ValueError(WEIGHTS)
        return Samples(np.ascontiguousarray(X[:, :-1]), sample_weight=X[:, -1])

    def _loaded(self, block: list[str]) -> npt.NDArray[Any]:
        """The features, and the weights after them."""
        wanted = self.places if self.weight is None else [*self.places, self.weight]
        every = wanted == list(range(self.n_fields))
        X = np.loadtxt(
            block,
            delimiter=self.delimiter,
            ndmin=2,
            comments=None,
            quotechar='"',
            usecols=None if every else wanted,
        )
        # Of columns that are not asked for, it does not say how many there are; quotes it leaves open.
        usual = None if every else self.n_fields - 1
        odd = (line for line in block if line.count('"') % 2 or usual not in (None, line.count(self.delimiter)))
        if X.shape != (len(block), len(wanted)) or not all(map(self._is_whole, odd)):
            raise ValueError("a line is shorter or longer than the others, or goes on in the next")
        return X

    def _without_gaps(self, line: str) -> str:
        """The line with the word nan wherever nothing stands between delimiters."""
        if '"' not in line:
            return self.gap.sub(r"\1nan", line.rstrip("\r\n"))
        if self._goes_on(line):
            raise ValueError("a quote is left open")
        fields = ['"' + field.replace('"', '""') + '"' if field else "nan" for field in self._fields(line)]
        return self.delimiter.join(fields)

    def _rows(self, first: int, block: list[str]) -> npt.NDArray[Any]:
        """Row numbers, or the names of the rows where a column holds them."""
        if self.index is None:
            return np.arange(first, first + len(block))
        place, names = self.index, np.empty(len(block), dtype=object)
        for row, line in enumerate(block):
            fields = self._fields(line)
            if len(fields) != self.n_fields:
                raise ValueError("a line is shorter or longer than the others")
            names[row] = fields[place]
        return names

    def _name(self, line: str, place: int) -> str | None:
        """Of a bad row; None where it cannot be told.

        With too few or too many values, a name that comes first is still known, unless it is where the line breaks off.
        """
        try:
            fields = self._fields(line)
        except csv.Error:
            return None
        known = len(fields) == self.n_fields or (place == 0 and len(fields) > 1)
        return fields[place] if known and not not_utf8(fields[place]) else None

    def _what_is_wrong(self, number: int, line: str) -> str:
        """With a line that is not ``n_fields`` values, those of the features numbers or gaps."""
        if wrong := not_utf8(line):
            return f"row {number} {wrong}"
        try:
            fields = self._fields(line)
        except csv.Error as error:
            return f"row {number} cannot be read: {error}"
        if self._goes_on(line):
            return f"row {number} {OPEN_QUOTE}"
        if len(fields) != self.n_fields:
            first = "the header" if self.has_header else "the first"
            return f"row {number} has {counted(len(fields), 'value')}, {first} has {self.n_fields}"
        row = f"row {number}" if self.index is None else f"row {fields[self.index]}"
        for column in [*self.places, *([] if self.weight is None else [self.weight])]:
            field = fields[column]
            name = f" ({self.names[column]})" if self.names else ""
            if field and not is_number(field):
                cure = f"keep only columns of numbers, separated by {self.delimiter!r}, or choose them by columns="
                if self.names:
                    own = self.names[column]
                    cure = f"?index={own} takes this column for the names of the rows, ?drop={own} leaves it out"
                return f"{field!r} is not a number at {row}, column {column}{name} (counted from 0); {cure}"
            if column == self.weight and (not field or bad_weights(float(field))):
                what = f"{field!r} is no weight" if field else "a weight is missing"
                return f"{what} at {row}, column {column}{name} (counted from 0); {WEIGHTS}"
        return f"{row} cannot be read as numbers"

    def _lines(self) -> Iterator[str]:
        """A line of nothing but tabs is a sample with gaps, not a blank line."""
        return (line for line in lines(self.path) if line.strip(" \r\n"))

    def _is_whole(self, line: str) -> bool:
        return len(self._fields(line)) == self.n_fields and not self._goes_on(line)

    def _goes_on(self, line: str) -> bool:
        """Is a quote open at its end? Then the reader asks for the next line, too."""
        reader = csv.reader([line.rstrip("\r\n"), ""], delimiter=self.delimiter)
        next(reader, None)
        return reader.line_num > 1

    def _fields(self, line: str) -> list[str]:
        return [field.strip() for field in next(csv.reader([line.rstrip("\r\n")], delimiter=self.delimiter), [])]


@register("csv", [".csv"], takes=["standard input"], shapes=["columns"])
def comma_separated(
    path: Path,
    header: str | None = None,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
) -> Source:
    """Numbers separated by commas."""
    return Table(path, ",", header, columns=columns, drop=drop, index=index, weight=weight)


@register("tsv", [".tsv"], takes=["standard input"], shapes=["columns"])
def tab_separated(
    path: Path,
    header: str | None = None,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
) -> Source:
    """Numbers separated by tabs."""
    return Table(path, "\t", header, columns=columns, drop=drop, index=index, weight=weight)


def is_number(text: str) -> bool:
    """As tables hold them."""
    try:
        float(text)
    except ValueError:
        return False
    return True
