"""JSON Lines, one object per sample: fields of numbers are features, or a field of text is counted by its words."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from onmf._support.arrays import Array
from onmf.data.base import Source, SourceError, reading
from onmf.data.budget import allowed, characters
from onmf.data.columns import WEIGHTS, bad_weights, shown, weighed_by_last
from onmf.data.lines import JsonLines, json_object
from onmf.data.outputs import Heading, Lines
from onmf.data.pipes import is_pipe, lines, name_of, some
from onmf.data.registry import Spec, register
from onmf.data.text import TEXT_OPTIONS, TextOptions, documents

USUAL_FIELD = "text"
LOOKED_AT = 100  # objects
FEWEST_WORDS = 2  # on average: a word alone is a label, or a date
CLEARLY = 4  # times as many words as any other field


class Objects(JsonLines):
    """The numbers in some fields of each object; the field ``index`` names the rows, ``weight`` weighs them.

    A null becomes NaN, which the learner takes for missing or raises an error about.
    """

    def __init__(self, path: Path, features: list[str], index: str | None = None, weight: str | None = None) -> None:
        super().__init__(path, index)
        self.weight, self.weighted = weight, weight is not None
        if len(set(features)) < len(features):
            raise SourceError(f"{self.where}: a feature is asked for twice in {', '.join(features)}.")
        if weight in features:
            raise SourceError(
                f"{self.where}: {weight!r} cannot be both a feature and the weight; leave out one of them."
            )
        self.feature_names, self.n_features, self.row_bytes = features, len(features), 16 * len(features)

    def _parsed(self, first: int, block: list[str]) -> tuple[npt.NDArray[Any], Any]:
        rows, objects = self._objects(first, block)
        X = np.array([self._sample(row, found) for row, found in zip(rows, objects, strict=True)])
        return rows, weighed_by_last(X) if self.weighted else X

    def _sample(self, row: int | str, found: dict[str, Any]) -> list[float]:
        numbers = [self._number(row, found, feature) for feature in self.feature_names or ()]
        if self.weight is None:
            return numbers
        weight = self._number(row, found, self.weight)
        if bad_weights(weight):
            what = f"{json.dumps(found[self.weight])[:40]} is not a valid weight"
            raise SourceError(f"{self.where}: {what} at row {row}, field {self.weight!r}; {WEIGHTS}.")
        return [*numbers, weight]

    def _number(self, row: int | str, found: dict[str, Any], feature: str) -> float:
        if feature not in found:
            raise SourceError(
                f"{self.where}: row {row} has no field {feature!r}; its fields are {shown(list(found))}: choose "
                "among them by features=, or write null where a value is missing."
            )
        value = found[feature]
        if value is None:
            return np.nan
        if not isinstance(value, (int, float)):
            raise SourceError(
                f"{self.where}: {json.dumps(value)[:40]} is not a number at row {row}, field {feature!r}; choose "
                "fields of numbers by features=."
            )
        try:
            return float(value)
        except OverflowError:
            return np.inf  # about which the learner raises an error, by row and column


@register("jsonl", [".jsonl", ".ndjson"], takes=["standard input"], feature_options=["field", *TEXT_OPTIONS])
def json_lines(
    path: Path,
    features: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
    field: str | None = None,
    *,
    options: TextOptions,
    like: Spec | None = None,
) -> Source:
    """Open the numbers in the fields ``features``, perhaps those of a model, or the words of the text in ``field``.

    A field that is clearly the text need not be named. ``index`` is the field that names the rows.
    """
    of_text = field is not None or options != TextOptions()
    if features is None and not of_text and like is not None and like.names is not None:
        features = None if "ngrams" in like.options else list(like.names)  # a model of texts has words, not fields
    if features is None:
        if weight is not None:
            raise SourceError(f"{name_of(path)}: weight= weighs rows of numbers; choose their fields by features=.")
        if field is None:
            field = USUAL_FIELD if is_pipe(path) else _text_field(path)
        return documents(path, field, options=options, index=index, like=like)
    if of_text:
        raise SourceError(f"{name_of(path)}: features= are numbers and field= is a text; give one of them.")
    return Objects(path, features, index, weight)


def _text_field(path: Path) -> str:
    """Return ``text``, or the only field of texts that are clearly longer than all others; else an error names them.

    The first hundred objects are looked at. If none of them can be read it is ``text``, and the reader says so.
    """
    with reading(path, "as text"):
        most = characters(allowed())
        filled = (line for line in lines(path, most) if line.strip())
        looked_at = [line for line in some(filled, LOOKED_AT, most, len) if len(line) <= most]
        objects = [found for line in looked_at if (found := json_object(line)) is not None]
    numbers = False
    words: dict[str, float] = defaultdict(float)  # per object, in each field that has a text in some of them
    for each in objects:
        for name, value in each.items():
            if isinstance(value, str):
                words[name] += len(value.split()) / len(objects)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers = True
    if not any(objects) or any(USUAL_FIELD in each for each in objects):
        return USUAL_FIELD
    long, *others = sorted(words.items(), key=lambda field: -field[1]) or [("", 0.0)]
    if long[1] >= max([FEWEST_WORDS, *(CLEARLY * number for _, number in others)]):
        return long[0]
    named = shown(list(dict.fromkeys(name for each in objects for name in each)))
    if long[1] >= FEWEST_WORDS:
        raise SourceError(
            f"{path}: several of its fields may be the text; choose one of {named}, as in '{path}?field={long[0]}'."
        )
    cure = "those of numbers by features=" if numbers else "the text by field="
    raise SourceError(f"{path}: none of its fields looks like a text; its fields are {named}: choose {cure}.")


class Jsonl(Lines, suffixes=[".jsonl"]):
    """One JSON object per row; rows that could not be solved are ``null``."""

    def __init__(self, place: Path | TextIO, heading: Heading) -> None:
        super().__init__(place, heading)
        keys = [json.dumps(column).replace("%", "%%") for column in heading.columns]
        self.template = ", ".join(f"{key}: {self.number}" for key in keys) + "}\n"
        self.missing = ", ".join(f"{json.dumps(column)}: null" for column in heading.columns) + "}\n"

    def _lines(self, H: Array, names: Sequence[str] | None) -> Iterable[str]:
        rows = H.tolist()
        lines = (self.missing if any(map(math.isnan, row)) else self.template % tuple(row) for row in rows)
        if names is None:
            return ("{" + line for line in lines)
        key = json.dumps(self.heading.index)
        return ("{" + f"{key}: {json.dumps(str(name))}, {line}" for name, line in zip(names, lines, strict=True))
