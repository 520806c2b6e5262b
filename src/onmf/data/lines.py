"""Samples of one line of text each: the reading of tables, JSON Lines and texts from files and pipes."""

import csv
import json
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.skipping import Unread
from onmf.data.base import Numbered, OnBad, Sequential, SourceError, reading, require_room, require_unchanged
from onmf.data.budget import PARSED, characters
from onmf.data.columns import shown
from onmf.data.pipes import LineCount, is_pipe, lines, name_of, not_utf8, some
from onmf.samples import Samples


class LineRows(Sequential):
    """Samples in lines; a bad line is left out alone, or is a row of NaN where rows are ``named``."""

    named = False

    def __init__(self, path: Path) -> None:
        self.path, self.where, self.rewinds = path, name_of(path), not is_pipe(path)
        self.pipe = None if self.rewinds else LineCount()
        self.bytes = path.stat().st_size if path.is_file() else None
        self.most = characters(self.memory)  # characters to parse at a time

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        samples, wanted = self._lines(), size
        while True:
            with reading(self.where, f"from row {first} onward"):
                block = some(samples, wanted, self.most, self._length)
            if not block:
                break
            for rows, found in self._readable(first, block, on_bad):
                wanted -= len(rows)
                yield rows, found
            first, wanted = first + len(block), wanted or size  # what is missing, as the next lines may take long
            del block  # before the next is read
        if self.bytes is not None:
            require_unchanged(self.path, self.bytes)

    def _readable(self, first: int, block: list[Any], on_bad: OnBad | None) -> Numbered:
        """Yield a block; if it has a bad line, yield its halves apart, and so on, until that line is alone."""
        try:
            self._require_short(first + len(block) - 1, block[-1])  # a longer one ends a block
            found = self._parsed(first, block)
        except (ValueError, csv.Error) as error:
            if len(block) > 1:
                half = len(block) // 2
                yield from self._readable(first, block[:half], on_bad)
                yield from self._readable(first + half, block[half:], on_bad)
                return
            fault = error if isinstance(error, SourceError) else self._fault(first, block[0])
            if on_bad is None or isinstance(fault.__cause__, MemoryError):  # which may befall all lines that follow
                raise fault from None
            if not self.named:
                on_bad(fault)
                return
            name = Unread(self._name(block[0]) or f"row {first}", fault)
            found = np.array([name], dtype=object), self._missing()
        yield found

    def _lines(self) -> Iterator[Any]:
        """Return the lines that hold samples."""
        found = lines(self.path, self.most)
        return filter(self._holds_sample, found) if self.pipe is None else self.pipe.counted(found, self._holds_sample)

    def _holds_sample(self, line: str) -> bool:
        return bool(line.strip())

    def _length(self, line: Any) -> int:
        return len(line)

    def _require_short(self, row: int, line: Any) -> None:
        """Raise an error if a line is too long to be parsed; no line can be cut."""
        length, what = self._length(line), f"{self.where}: row {row}"
        if length > self.most:
            require_room(f"{what}, of more than {self.most} characters,", None, self.memory)
        require_room(what, PARSED * length, self.memory)

    def _require_utf8(self, first: int, block: list[str]) -> None:
        if all(map(str.isascii, block)):  # which Python knows without looking
            return
        for row, line in enumerate(block, first):
            if wrong := not_utf8(line):
                raise SourceError(f"{self.where}: row {row} {wrong}.")

    @abstractmethod
    def _parsed(self, first: int, block: list[Any]) -> tuple[npt.NDArray[Any], Any]:
        """Return the numbers or names of the rows, and the rows; a line that cannot be read raises an error."""

    def _fault(self, row: int, line: str) -> SourceError:
        """Return what is wrong with a line, where ``_parsed`` has not said it."""
        return SourceError(f"{self.where}: row {row} cannot be read.")

    def _name(self, line: str) -> str | None:
        """Return the name of a row that cannot be read; None where its line does not tell it."""

    def _missing(self) -> Any:
        """Return the row that takes the place of one that cannot be read: all NaN, and of weight one."""
        X = np.full((1, self.n_features), np.nan)
        return Samples(X, sample_weight=np.ones(1)) if self.weighted else X


class JsonLines(LineRows):
    """Objects of JSON, one per line; the field ``index`` names the rows."""

    def __init__(self, path: Path, index: str | None) -> None:
        super().__init__(path)
        self.index_name, self.named = index, index is not None

    def _objects(self, first: int, block: list[str]) -> tuple[npt.NDArray[Any], tuple[dict[str, Any], ...]]:
        """Return the numbers or names of the rows, and the objects."""
        self._require_utf8(first, block)
        rows, objects = zip(*(self._object(row, line) for row, line in enumerate(block, first)), strict=True)
        return np.array(rows, dtype=object if self.named else np.int64), objects

    def _object(self, row: int, line: str) -> tuple[int | str, dict[str, Any]]:
        place, found = f"{self.where}: row {row} (counted from 0)", json_object(line)
        if found is None:
            raise SourceError(f"{place} is not a JSON object in a line of its own.")
        if self.index_name is None:
            return row, found
        name = found.get(self.index_name)
        if name is None:
            fields = f"its fields are {shown(list(found))}"
            raise SourceError(f"{place} has no field {self.index_name!r}, which names the rows; {fields}.")
        if not_utf8(str(name)):
            raise SourceError(f"{place} is named {name!a}, which is not valid Unicode; rename it.")
        return str(name), found

    def _name(self, line: str) -> str | None:
        name = (json_object(line) or {}).get(self.index_name or "")
        return None if name is None or not_utf8(str(name)) else str(name)


def json_object(line: str) -> dict[str, Any] | None:
    """Return the object that a line of JSON stands for; None if it stands for none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
