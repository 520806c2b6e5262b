"""Which field of JSON lines is the text, where nobody has said so."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

from onmf.streams.base import SourceError, reading
from onmf.streams.columns import shown
from onmf.streams.pipes import lines

USUAL = "text"
LOOKED_AT = 100  # objects
FEWEST_WORDS = 2  # on average: a word alone is a label, or a date
CLEARLY = 4  # times as many words as any other field


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
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                found.append(value)
    return found
