"""JSON lines, one object per sample: fields of numbers are features, or a field of text is counted by its words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.unread import Unread
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, each_readable, reading
from onmf.data.columns import WEIGHTS, bad_weights, shown
from onmf.data.encoding import not_utf8
from onmf.data.fields import USUAL, text_field
from onmf.data.pipes import is_pipe, lines, name_of
from onmf.data.registry import register
from onmf.data.spec import Spec
from onmf.data.text import SHAPES, documents
from onmf.samples import Samples


class Objects(Sequential):
    """The numbers in some fields of each object; ``index`` is the field that names the rows, ``weight`` weighs them.

    A null becomes NaN, which the learner takes for unknown or refuses.
    """

    def __init__(self, path: Path, features: list[str], index: str | None = None, weight: str | None = None) -> None:
        self.where, self.path, self.index_name = name_of(path), path, index
        self.weight, self.weighted = weight, weight is not None
        self.rewinds = not is_pipe(path)
        if len(set(features)) < len(features):
            raise SourceError(f"{self.where}: a feature is asked for twice in {', '.join(features)}.")
        if weight in features:
            raise SourceError(
                f"{self.where}: {weight!r} cannot be both a feature and the weight; leave out one of them."
            )
        self.feature_names, self.n_features = features, len(features)

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        """A bad line is left out alone, and the rows after it keep their numbers; where rows have names it is NaN."""
        if on_bad is None or self.index_name is None:
            samples = each_readable(self._sample, enumerate(self._lines()), on_bad)
        else:
            samples = map(self._sample_or_gap, enumerate(self._lines()))
        while block := list(islice(samples, size)):
            rows, numbers = zip(*block, strict=True)
            X = np.array(numbers)
            yield (
                _as_rows(rows),
                Samples(np.ascontiguousarray(X[:, :-1]), sample_weight=X[:, -1]) if self.weighted else X,
            )

    def _lines(self) -> Iterator[str]:
        with reading(self.where, "as text"):
            yield from (line for line in lines(self.path) if line.strip())

    def _sample(self, numbered: tuple[int, str]) -> tuple[int | str, list[float]]:
        row, line = numbered
        if wrong := not_utf8(line):
            raise SourceError(f"{self.where}: row {row} (counted from 0) {wrong}.")
        found = _object(line)
        if found is None:
            raise SourceError(f"{self.where}: row {row} (counted from 0) is not a JSON object in a line of its own.")
        if self.index_name is not None and found.get(self.index_name) is None:
            raise SourceError(
                f"{self.where}: row {row} (counted from 0) has no field {self.index_name!r}, which names the rows."
            )
        name = row if self.index_name is None else str(found[self.index_name])
        if isinstance(name, str) and not_utf8(name):
            raise SourceError(
                f"{self.where}: row {row} (counted from 0) is named {name!a}, which no text can hold; rename it."
            )
        numbers = [self._number(name, found, feature) for feature in self.feature_names or ()]
        return name, numbers if self.weight is None else [*numbers, self._weight(name, found, self.weight)]

    def _sample_or_gap(self, numbered: tuple[int, str]) -> tuple[str, list[float]]:
        try:
            name, numbers = self._sample(numbered)
            return str(name), numbers
        except SourceError as error:
            row, line = numbered
            told = (_object(line) or {}).get(self.index_name or "")
            known = told is not None and not not_utf8(str(told))
            return Unread(str(told) if known else f"row {row}", error), [np.nan] * self.n_features + [
                1.0
            ] * self.weighted

    def _number(self, row: int | str, found: dict[str, Any], feature: str) -> float:
        value = found.get(feature)
        if value is None and feature in found:
            return np.nan
        if not isinstance(value, (int, float)):
            if feature not in found:
                raise SourceError(
                    f"{self.where}: row {row} has no field {feature!r}; its fields are {shown(list(found))}: choose "
                    "among them by features=, or write null where a value is missing."
                )
            raise SourceError(
                f"{self.where}: {json.dumps(value)[:40]} is not a number at row {row}, field {feature!r}; choose "
                "fields of numbers by features=."
            )
        try:
            return float(value)
        except OverflowError:
            return np.inf  # which the learner refuses by row and column

    def _weight(self, row: int | str, found: dict[str, Any], weight: str) -> float:
        number = self._number(row, found, weight)
        if bad_weights(number):
            what = f"{json.dumps(found[weight])[:40]} is no weight"
            raise SourceError(f"{self.where}: {what} at row {row}, field {weight!r}; {WEIGHTS}.")
        return number


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _as_rows(rows: tuple[int | str, ...]) -> npt.NDArray[Any]:
    """Numbers as numbers, names as objects."""
    return np.array(rows, dtype=object if isinstance(rows[0], str) else np.int64)


@register("jsonl", [".jsonl", ".ndjson"], takes=["standard input"], shapes=["field", *SHAPES])
def json_lines(
    path: Path,
    features: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
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
    """The numbers in the fields ``features``, which may be those of a model, or the words of the text in ``field``.

    A field that is clearly the text need not be named. ``index`` is the field that names the rows.
    """
    given = {"field": field, "words": words, "hashed": hashed, "stop": stop, "min_df": min_df, "max_df": max_df}
    given |= {"ngrams": ngrams, "tfidf": tfidf}
    of_text: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if features is None and not of_text and like is not None and like.names is not None:
        features = None if "ngrams" in like.options else list(like.names)  # a model of texts has words, not fields
    if features is None:
        if weight is not None:
            raise SourceError(f"{name_of(path)}: weight= weighs rows of numbers; choose their fields by features=.")
        if field is None:
            of_text["field"] = USUAL if is_pipe(path) else text_field(path)
        return documents(path, **of_text, index=index, like=like)
    if of_text:
        raise SourceError(f"{name_of(path)}: features= are numbers and field= is a text; give one of them.")
    return Objects(path, features, index, weight)
