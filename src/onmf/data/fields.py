"""Texts in a field of JSON lines: what they are, and which field it is where nobody has said so."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from onmf._support.unread import Unread
from onmf.data.base import SourceError, reading
from onmf.data.columns import shown
from onmf.data.encoding import not_utf8
from onmf.data.pipes import lines

USUAL = "text"
LOOKED_AT = 100  # objects
FEWEST_WORDS = 2  # on average: a word alone is a label, or a date
CLEARLY = 4  # times as many words as any other field


@dataclass(frozen=True)
class TextField:
    """The text in a field of each object; ``index`` is the field that names the rows."""

    where: str | Path
    field: str
    index: str | None = None

    def read(self, numbered: tuple[int, tuple[int, str]]) -> tuple[int | str, str]:
        """The row's number or name, and its text; of the row's number, and its line with the line's number."""
        row, (number, line) = numbered
        place = f"{self.where}: line {number}"
        if wrong := not_utf8(line):
            raise SourceError(f"{place} {wrong}.")
        found = _value(line)
        if isinstance(found, dict) and found and self.field not in found:
            raise SourceError(
                f"{place} has no field {self.field!r}; its fields are {shown(list(found))}: choose the text by field=."
            )
        text = found.get(self.field) if isinstance(found, dict) else None
        if not isinstance(text, str):
            raise SourceError(f"{place} is not a JSON object with a text in the field {self.field!r}.")
        if self.index is None:
            return row, text
        name = found.get(self.index)
        if name is None:
            fields = shown(list(found))
            raise SourceError(f"{place} has no field {self.index!r}, which names the rows; its fields are {fields}.")
        if not_utf8(str(name)):
            raise SourceError(f"{place} is named {name!a}, which no text can hold; rename it.")
        return str(name), text

    def read_or_gap(self, numbered: tuple[int, tuple[int, str]]) -> tuple[int | str, str]:
        """The same where rows have names: one that cannot be read is ``Unread``, without a text."""
        try:
            return self.read(numbered)
        except SourceError as error:
            row, (_, line) = numbered
            found = _value(line)
            name = found.get(self.index) if isinstance(found, dict) else None
            known = name is not None and not not_utf8(str(name))
            return Unread(str(name) if known else f"row {row}", error), ""


def text_field(path: Path) -> str:
    """The field ``text``, or the only one of texts that are clearly longer than all others; else an error names them.

    The first hundred objects are looked at. If none of them can be read it is ``text``, and the reader says so.
    """
    objects, numbers = _first_objects(path), set()
    words: dict[str, float] = defaultdict(float)  # per object, in each field that has a text in some of them
    for each in objects:
        for name, value in each.items():
            if isinstance(value, str):
                words[name] += len(value.split()) / len(objects)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers.add(name)
    if not any(objects) or any(USUAL in each for each in objects):
        return USUAL
    long, *others = sorted(words.items(), key=lambda field: -field[1]) or [("", 0.0)]
    if long[1] >= max([FEWEST_WORDS, *(CLEARLY * number for _, number in others)]):
        return long[0]
    named = shown(list(dict.fromkeys(name for each in objects for name in each)))
    if long[1] >= FEWEST_WORDS:
        raise SourceError(f"{path}: several of its fields may be the text; choose one of {named} by field=.")
    cure = "those of numbers by features=" if numbers else "the text by field="
    raise SourceError(f"{path}: none of its fields looks like a text; its fields are {named}: choose {cure}.")


def _first_objects(path: Path) -> list[dict[str, Any]]:
    found = []
    with reading(path, "as text"):
        for line in islice((line for line in lines(path) if line.strip()), LOOKED_AT):
            value = _value(line)
            if isinstance(value, dict):
                found.append(value)
    return found


def _value(line: str) -> Any:
    """What a line of JSON stands for; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
