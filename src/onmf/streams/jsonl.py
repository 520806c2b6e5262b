"""JSON lines, one object per sample: fields of numbers are features, or a field of text is counted by its words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Numbered, OnBad, Sequential, Source, SourceError, each_readable, reading
from onmf.streams.columns import shown
from onmf.streams.pipes import is_pipe, lines, name_of
from onmf.streams.registry import register
from onmf.streams.spec import Spec
from onmf.streams.text import SHAPES, documents


class Objects(Sequential):
    """The numbers in some fields of each object; ``index`` is the field that names the rows."""

    def __init__(self, path: Path, features: list[str], index: str | None = None) -> None:
        self.where, self.path, self.index_name = name_of(path), path, index
        self.rewinds = not is_pipe(path)
        if len(set(features)) < len(features):
            raise SourceError(f"{self.where}: a feature is asked for twice in {', '.join(features)}.")
        self.feature_names, self.n_features = features, len(features)

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        """A bad line is left out alone; the rows after it keep their numbers."""
        samples = each_readable(self._sample, enumerate(self._lines()), on_bad)
        while block := list(islice(samples, size)):
            rows, numbers = zip(*block, strict=True)
            yield _as_rows(rows), np.array(numbers)

    def _lines(self) -> Iterator[str]:
        with reading(self.where, "as text", "give it as UTF-8"):
            yield from (line for line in lines(self.path) if line.strip())

    def _sample(self, numbered: tuple[int, str]) -> tuple[int | str, list[float]]:
        row, line = numbered
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SourceError(f"{self.where}: row {row} (counted from 0) is not a JSON object in a line of its own.")
        if self.index_name is not None and found.get(self.index_name) is None:
            raise SourceError(
                f"{self.where}: row {row} (counted from 0) has no field {self.index_name!r}, which names the rows."
            )
        name = row if self.index_name is None else str(found[self.index_name])
        return name, [self._number(name, found, feature) for feature in self.feature_names or ()]

    def _number(self, row: int | str, found: dict[str, Any], feature: str) -> float:
        value = found.get(feature)
        if not isinstance(value, (int, float)):
            if feature not in found:
                raise SourceError(
                    f"{self.where}: row {row} has no field {feature!r}; its fields are {shown(list(found))}: choose "
                    "among them by features=, or fill in what is missing."
                )
            raise SourceError(
                f"{self.where}: {json.dumps(value)[:40]} is not a number at row {row}, field {feature!r}; choose "
                "fields of numbers by features=."
            )
        try:
            return float(value)
        except OverflowError:
            return np.inf  # which the learner refuses by row and column


def _as_rows(rows: tuple[int | str, ...]) -> npt.NDArray[Any]:
    """Numbers as numbers, names as objects."""
    return np.array(rows, dtype=object if isinstance(rows[0], str) else np.int64)


@register("jsonl", [".jsonl", ".ndjson"], takes=["standard input"], shapes=["field", *SHAPES])
def json_lines(
    path: Path,
    features: list[str] | None = None,
    index: str | None = None,
    field: str | None = None,
    words: int | None = None,
    hashed: int | None = None,
    stop: str | None = None,
    min_df: int | float | None = None,
    max_df: int | float | None = None,
    ngrams: int | None = None,
    tfidf: bool | None = None,
    *,
    like: Spec | None = None,
) -> Source:
    """The numbers in the fields ``features``, which may be those of a model, or the words of the text in ``field``."""
    given = {"field": field, "words": words, "hashed": hashed, "stop": stop, "min_df": min_df, "max_df": max_df}
    given |= {"ngrams": ngrams, "tfidf": tfidf}
    of_text: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if features is None and not of_text and like is not None and like.names is not None:
        features = None if "ngrams" in like.options else list(like.names)  # a model of texts has words, not fields
    if features is None:
        if index is not None:
            raise SourceError(f"{name_of(path)}: index= names rows of numbers; choose their fields by features=.")
        return documents(path, **{"field": "text", **of_text}, like=like)
    if of_text:
        raise SourceError(f"{name_of(path)}: features= are numbers and field= is a text; give one of them.")
    return Objects(path, features, index)
