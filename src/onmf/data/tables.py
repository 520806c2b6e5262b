"""Tables of numbers in text, .csv and .tsv: read in blocks of lines, also from a pipe, and written line by line."""

import csv
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from onmf._support.arrays import Array
from onmf._support.wording import counted
from onmf.data.base import Source, SourceError, reading
from onmf.data.columns import WEIGHTS, TableOptions, bad_weights, parses_as_number, weighed_by_last
from onmf.data.lines import LineRows
from onmf.data.outputs import Heading, Lines
from onmf.data.pipes import not_utf8
from onmf.data.ratings import SHAPING, RatingOptions, rows_or_ratings
from onmf.data.registry import register

log = logging.getLogger("onmf")
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")  # a cell that begins so is computed by spreadsheets

OPEN_QUOTE = "has a quoted text that continues in the next line; write the table without line breaks in its texts"
LENGTHS_DIFFER = "a line is shorter or longer than the others, or continues in the next"
UNNAMED = ("", "Unnamed: 0")  # how pandas writes an index without a name, and how it reads and writes it again
SEVERAL_WORDS, LONGEST_SHOWN = 3, 40  # words that make a field a text, and its characters in a message
MISSING = ("", "na", "n/a", "#n/a", "null", "none", "-", "?", ".")  # how a missing number may be written, besides nan


class Table(LineRows):
    """Lines of numbers between delimiters; a first line without any number names the columns.

    So does one that begins with a text and continues with numbers, as in a pivot table, unless it looks like the next:
    then the first column names the rows. ``header``, yes or no, decides where names look like numbers, as years do.
    Columns are chosen by name, or by number where there are no names; if there are just as many as are asked for by
    name, they take those names. Missing values become NaN, which the learner takes for missing or raises an error
    about.
    """

    def __init__(self, path: Path, delimiter: str, header: str | None, options: TableOptions) -> None:
        super().__init__(path)
        self.delimiter = delimiter
        self.nothing = re.compile(f"(^|{delimiter}) *(?={delimiter}|$)")
        if header not in (None, "yes", "no"):
            raise SourceError(f"{self.where}: header must be yes or no, got {header!r}.")
        with reading(self.where, "as text"):
            found = super()._lines()
            first = next(found, "")
            self._require_short(0, first)
            fields = self._fields(first)
            # One number among missing values is a sample.
            self.has_header = not any(map(parses_as_number, fields)) if header is None else header == "yes"
            if header is None and fields and not self.has_header and not parses_as_number(fields[0]):
                second = next(found, "")
                found = chain([second] if second else (), found)
                below = self._fields(second) if len(second) <= self.most else []
                self.has_header = _are_names(fields, below, {options.index, options.weight, *(options.drop or ())})
            others = sum(1 for _ in found) if self.rewinds else None
        if not fields:
            raise SourceError(f"{self.where} is empty.")
        if self._leaves_quote_open(first):
            raise SourceError(f"{self.where}: its first line {OPEN_QUOTE}.")
        if self.has_header and (wrong := not_utf8(first)):
            raise SourceError(f"{self.where}: the line that names the columns {wrong}.")
        self.names = fields if self.has_header else None
        self.n_fields = len(fields)
        self._choose(fields, options)
        if others is None:
            if self.pipe is not None and self.has_header:
                self.pipe.leave_out_first()
            self._unread = found if self.has_header else chain([first], found)
        else:
            self.n_samples = others + (0 if self.has_header else 1)
            if not self.n_samples:
                raise SourceError(f"{self.where} has a line of names but no samples.")

    def _choose(self, fields: list[str], options: TableOptions) -> None:
        names = fields if self.has_header else [str(number) for number in range(self.n_fields)]
        unnamed = self.has_header and fields[0] in UNNAMED and all(fields[1:])
        pivot = self.has_header and options.index is None and all(map(parses_as_number, fields[1:]))
        pivot = pivot and not parses_as_number(fields[0]) and len(fields) > 1
        if (unnamed or pivot) and fields[0] not in options.named:
            beside = f"{fields[0]}, stands beside columns that are named by numbers, as in a pivot table"
            why = "has no name, as pandas writes row names" if unnamed else beside
            what = "it names the rows and is no feature" if options.index is None else "it is left out"
            log.warning("%s: the first column %s; %s.", self.where, why, what)
            index = fields[0] if options.index is None else options.index
            options = replace(options, drop=[fields[0], *(options.drop or ())], index=index)
        chosen, given = None, options.columns
        if given is not None and not self.has_header and not set(given) & set(names):
            chosen = replace(options, columns=None).places(self.where, names)
            chosen = chosen if len(given) == len(chosen[0]) else None
            self.feature_names = None if chosen is None else list(given)
        self.places, self.index, self.weight = chosen or options.places(self.where, names)
        if self.has_header:
            self.feature_names = [fields[place] for place in self.places]
            if self.index is not None and fields[self.index] not in UNNAMED:
                self.index_name = fields[self.index]
        self.n_features, self.weighted, self.named = len(self.places), self.weight is not None, self.index is not None
        self.row_bytes = 16 * self.n_features
        self.wanted = self.places if self.weight is None else [*self.places, self.weight]
        if self.feature_names is None and self.n_features < self.n_fields:
            self.chosen = {"columns": [str(place) for place in self.places]}

    def _lines(self) -> Iterator[str]:
        return islice(super()._lines(), int(self.has_header), None) if self.rewinds else self._unread

    def _holds_sample(self, line: str) -> bool:
        return bool(line.strip(" \r\n"))  # nothing but tabs is a sample of missing values

    def _parsed(self, first: int, block: list[str]) -> tuple[npt.NDArray[Any], Any]:
        self._require_utf8(first, block)
        return self._rows(first, block), self._numbers(block)

    def _numbers(self, block: list[str]) -> Any:
        try:
            X = self._loaded(block)
        except ValueError:
            X = self._loaded(list(map(self._with_nan, block)))
        if not self.weighted:
            return X
        if bad_weights(X[:, -1]).any():
            raise ValueError(WEIGHTS)
        return weighed_by_last(X)

    def _loaded(self, block: list[str]) -> npt.NDArray[Any]:
        """Return the features, and the weights after them."""
        every = self.wanted == list(range(self.n_fields))
        columns = None if every else self.wanted
        X = np.loadtxt(block, delimiter=self.delimiter, ndmin=2, comments=None, quotechar='"', usecols=columns)
        # NumPy does not count columns that are not asked for, and leaves quotes open.
        usual = None if every else self.n_fields - 1
        odd = (line for line in block if line.count('"') % 2 or usual not in (None, line.count(self.delimiter)))
        whole = (len(self._fields(line)) == self.n_fields and not self._leaves_quote_open(line) for line in odd)
        if X.shape != (len(block), len(self.wanted)) or not all(whole):
            raise ValueError(LENGTHS_DIFFER)
        return X

    def _with_nan(self, line: str) -> str:
        """Return the line with the word nan wherever nothing stands between delimiters."""
        if '"' not in line:
            return self.nothing.sub(r"\1nan", line.rstrip("\r\n"))
        if self._leaves_quote_open(line):
            raise ValueError(LENGTHS_DIFFER)
        fields = ['"' + field.replace('"', '""') + '"' if field else "nan" for field in self._fields(line)]
        return self.delimiter.join(fields)

    def _rows(self, first: int, block: list[str]) -> npt.NDArray[Any]:
        """Return row numbers, or the names of the rows where a column holds them."""
        if self.index is None:
            return np.arange(first, first + len(block))
        rows = list(csv.reader(block, delimiter=self.delimiter))
        if len(rows) != len(block) or any(len(fields) != self.n_fields for fields in rows):
            raise ValueError(LENGTHS_DIFFER)
        return np.array([fields[self.index].strip() for fields in rows], dtype=object)

    def _name(self, line: str) -> str | None:
        """Return the name of a bad row; None where its line does not tell it.

        With too few or too many values, a name that comes first is still known, unless it is where the line breaks off.
        """
        place = self.index or 0
        try:
            fields = self._fields(line)
        except csv.Error:
            return None
        sure = len(fields) == self.n_fields or (place == 0 and len(fields) > 1)
        return fields[place] if sure and not not_utf8(fields[place]) else None

    def _fault(self, row: int, line: str) -> SourceError:
        return SourceError(f"{self.where}: {self._what_is_wrong(row, line)}.")

    def _what_is_wrong(self, number: int, line: str) -> str:
        """Return what keeps a line from being ``n_fields`` values, those of the features numbers or missing."""
        try:
            fields = self._fields(line)
        except csv.Error as error:
            return f"row {number} cannot be read: {error}"
        if self._leaves_quote_open(line):
            return f"row {number} {OPEN_QUOTE}"
        if len(fields) != self.n_fields:
            first = "the header" if self.has_header else "the first"
            return f"row {number} has {counted(len(fields), 'value')}, {first} has {self.n_fields}"
        row = f"row {number if self.index is None else fields[self.index]}"
        for column in self.wanted:
            field, name = fields[column], self.names[column] if self.names else None
            at = f"at {row}, column {column}{f' ({name})' if name else ''} (counted from 0)"
            if field and not parses_as_number(field):
                cure = f"keep only columns of numbers, separated by {self.delimiter!r}, or choose them by columns="
                if number == 0 and not self.has_header:
                    cure += ", or write ?header=yes if this line names the columns"
                if len(field.split()) >= SEVERAL_WORDS:
                    cure = "this looks like a column of texts, which onmf reads from .jsonl or .txt"
                    field = field if len(field) <= LONGEST_SHOWN else f"{field[:LONGEST_SHOWN]}..."
                elif name is not None:
                    cure = f"?index={name} takes this column for the names of the rows, ?drop={name} leaves it out"
                return f"{field!r} is not a number {at}; {cure}"
            if column == self.weight and (not field or bad_weights(float(field))):
                return f"{f'{field!r} is not a valid weight' if field else 'a weight is missing'} {at}; {WEIGHTS}"
        return f"{row} cannot be read as numbers"

    def _leaves_quote_open(self, line: str) -> bool:
        """Return whether a quote is open at its end, so that the reader asks for the next line, too."""
        reader = csv.reader([line.rstrip("\r\n"), ""], delimiter=self.delimiter)
        next(reader, None)
        return reader.line_num > 1

    def _fields(self, line: str) -> list[str]:
        return [field.strip() for field in next(csv.reader([line.rstrip("\r\n")], delimiter=self.delimiter), [])]


def _are_names(first: list[str], second: list[str], asked: set[str | None]) -> bool:
    """Return whether a line that begins with a text, or a gap, and has numbers names columns, given the next line.

    A text above a number is a name. Over texts, numbers are names if they ascend, as in a pivot table, and those of the
    next line do not, unless columns are ``asked`` for by their places.
    """
    if first[0] == "" and first[1:] == [str(place) for place in range(len(first) - 1)]:  # a frame without any names
        return True
    if any(
        parses_as_number(below) and field.lower() not in MISSING and not parses_as_number(field)
        for field, below in zip(first, second, strict=False)
    ):
        return True
    if not second or parses_as_number(second[0]):
        return False
    return asked - {None} <= set(first) and (first[0] == "" or (_ascend(first) and not _ascend(second)))


def _ascend(fields: list[str]) -> bool:
    """Return whether a line has several numbers, all in ascending order, and no gaps."""
    numbers = [float(field) for field in fields if parses_as_number(field)]
    return len(numbers) > 1 and "" not in fields and all(low < high for low, high in pairwise(numbers))


@register("csv", [".csv", ".csv.gz"], takes=["standard input"], feature_options=SHAPING)
def comma_separated(path: Path, header: str | None = None, *, table: TableOptions, rating: RatingOptions) -> Source:
    """Open a table of numbers separated by commas, or the ratings in it."""
    return rows_or_ratings(partial(Table, path, ",", header), table, rating)


@register("tsv", [".tsv", ".tsv.gz"], takes=["standard input"], feature_options=SHAPING)
def tab_separated(path: Path, header: str | None = None, *, table: TableOptions, rating: RatingOptions) -> Source:
    """Open a table of numbers separated by tabs, or the ratings in it."""
    return rows_or_ratings(partial(Table, path, "\t", header), table, rating)


class Csv(Lines, suffixes=[".csv"]):
    """Numbers between commas, under a line of names; rows that could not be solved are ``nan``."""

    delimiter = ","

    def __init__(self, place: Path | TextIO, heading: Heading) -> None:
        super().__init__(place, heading)
        self.template = self.delimiter.join([self.number] * len(heading.columns)) + "\n"
        index = () if heading.index is None else (heading.index,)
        self.file.write(self.delimiter.join(map(self._quoted, (*index, *heading.columns))) + "\n")

    def _lines(self, H: Array, names: Sequence[str] | None) -> Iterable[str]:
        lines = (self.template % tuple(row) for row in H.tolist())
        if names is None:
            return lines
        return (self._quoted(name) + self.delimiter + line for name, line in zip(names, lines, strict=True))

    def _quoted(self, text: str) -> str:
        text = str(text)
        text = not_computed(text) if self.heading.safe else text
        return '"' + text.replace('"', '""') + '"' if set(text) & {self.delimiter, '"', "\n", "\r"} else text


def not_computed(text: str) -> str:
    """Return a text that spreadsheets take for a text, whatever it begins with."""
    return "'" + text if text.startswith(FORMULAS) else text


class Tsv(Csv, suffixes=[".tsv"]):
    """Numbers between tabs, otherwise as in CSV."""

    delimiter = "\t"
