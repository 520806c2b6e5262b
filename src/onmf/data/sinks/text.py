"""Lines of text: .csv, .tsv, and JSON Lines."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from onmf._support.arrays import Array
from onmf.data.sinks.base import Heading, Output


class Lines(Output):
    """One line per row, to a file or to a stream that stays open."""

    def __init__(self, place: Path | TextIO, heading: Heading) -> None:
        self.heading, self.lasting = heading, not isinstance(place, Path)
        self.number = f"%.{heading.digits}g"
        self.file = place.open("w", encoding="utf-8", newline="\n") if isinstance(place, Path) else place

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        self.file.writelines(self._lines(H, names))
        self.file.flush()

    def close(self) -> None:
        if not self.lasting:
            self.file.close()

    @abstractmethod
    def _lines(self, H: Array, names: Sequence[str] | None) -> Iterable[str]:
        """The rows as lines, names of rows first."""


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
        return '"' + text.replace('"', '""') + '"' if set(text) & {self.delimiter, '"', "\n", "\r"} else text


class Tsv(Csv, suffixes=[".tsv"]):
    """The same between tabs."""

    delimiter = "\t"


class Jsonl(Lines, suffixes=[".jsonl"]):
    """One JSON object per row; rows that could not be solved are ``null``."""

    def __init__(self, place: Path | TextIO, heading: Heading) -> None:
        super().__init__(place, heading)
        keys = [json.dumps(column).replace("%", "%%") for column in heading.columns]
        self.template = ", ".join(f"{key}: {self.number}" for key in keys) + "}\n"
        self.gap = ", ".join(f"{json.dumps(column)}: null" for column in heading.columns) + "}\n"

    def _lines(self, H: Array, names: Sequence[str] | None) -> Iterable[str]:
        rows = H.tolist()
        lines = (self.gap if any(map(math.isnan, row)) else self.template % tuple(row) for row in rows)
        if names is None:
            return ("{" + line for line in lines)
        key = json.dumps(self.heading.index)
        return ("{" + f"{key}: {json.dumps(str(name))}, {line}" for name, line in zip(names, lines, strict=True))
