"""Texts as counts of words, by scikit-learn's vectorisers: one document per line, JSON object or file.

A vocabulary is learnt in a first pass. Hashing does without, as a stream that cannot be read twice must, but has no
words to show.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from onmf._support.skipping import Unread
from onmf.data.base import (
    Numbered,
    OnBad,
    Sequential,
    Source,
    SourceError,
    each_readable,
    matching,
    named,
    reading,
    require_unchanged,
)
from onmf.data.columns import shown
from onmf.data.pipes import is_pipe, lines, name_of, not_utf8
from onmf.data.registry import Spec, register
from onmf.data.vocabulary import HASHED, MOST_COUNTED, TextOptions, WordCounts, Words

log = logging.getLogger("onmf")

USUAL = 10_000  # words of a vocabulary
SHAPES = tuple(option.name for option in fields(TextOptions))


class Corpus:
    """Texts: the lines of a file or pipe, a field of JSON lines, or the files of a folder or pattern.

    ``index`` is the field that names the rows.
    """

    def __init__(self, path: Path, field: str | None, index: str | None) -> None:
        self.path, self.where, self.rewinds = path, name_of(path), not is_pipe(path)
        self.field, self.index = field, index
        self.files: list[Path] | None = None
        if field is None and index is not None:
            raise SourceError(f"{self.where}: index= is a field of JSON lines; texts without fields keep their order.")
        if self.rewinds and not path.is_file():
            if field is not None:
                raise SourceError(
                    f"{path}: field= is for JSON lines, in a file or from -; the files of a folder are texts."
                )
            self.files = matching(path, [".txt"])

    def texts(self, on_bad: OnBad | None) -> Iterator[tuple[int | str, str]]:
        """Yield numbers or names of rows, and texts: afresh with every call, or once if they do not rewind."""
        if self.files is not None:
            return each_readable(_whole_file, enumerate(self.files), on_bad)
        found = enumerate(self._lines())
        if self.field is None:
            return each_readable(self._line, found, on_bad)
        objects = ((number, line) for number, line in found if line.strip())  # a blank line is no JSON, and no row
        return each_readable(self._object, enumerate(objects), on_bad, None if self.index is None else self._unread)

    def _lines(self) -> Iterator[str]:
        if not self.rewinds:
            yield from lines(self.path)
            return
        with reading(self.path, "as text"):
            size = self.path.stat().st_size
            yield from lines(self.path)
        require_unchanged(self.path, size)

    def _line(self, numbered: tuple[int, str]) -> tuple[int | str, str]:
        row, line = numbered
        if wrong := not_utf8(line):
            raise SourceError(f"{self.where}: row {row} (counted from 0) {wrong}.")
        return row, line

    def _object(self, numbered: tuple[int, tuple[int, str]]) -> tuple[int | str, str]:
        row, (number, line) = numbered
        place = f"{self.where}: line {number + 1}"
        if wrong := not_utf8(line):
            raise SourceError(f"{place} {wrong}.")
        found = json_object(line) or {}
        if found and self.field not in found:
            raise SourceError(
                f"{place} has no field {self.field!r}; its fields are {shown(list(found))}: choose the text by field=."
            )
        text = found.get(self.field or "")
        if not isinstance(text, str):
            raise SourceError(f"{place} is not a JSON object with a text in the field {self.field!r}.")
        return row if self.index is None else name_in(found, self.index, place), text

    def _unread(self, numbered: tuple[int, tuple[int, str]], error: SourceError) -> tuple[int | str, str]:
        row, (_, line) = numbered
        return unread(line, self.index, row, error), ""


def _whole_file(numbered: tuple[int, Path]) -> tuple[int | str, str]:
    row, path = numbered
    with reading(path, "as text", "save it as UTF-8"):
        return row, path.read_text(encoding="utf-8")


def json_object(line: str) -> dict[str, Any] | None:
    """Return the object that a line of JSON stands for; None if it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def name_in(found: dict[str, Any], index: str, place: str) -> str:
    """Return the name of a row from the field ``index`` of its object."""
    name = found.get(index)
    if name is None:
        fields = shown(list(found))
        raise SourceError(f"{place} has no field {index!r}, which names the rows; its fields are {fields}.")
    if not_utf8(str(name)):
        raise SourceError(f"{place} is named {name!a}, which no text can hold; rename it.")
    return str(name)


def unread(line: str, index: str | None, row: int, error: SourceError) -> Unread:
    """Return the name of a row that cannot be read, as far as its line tells it."""
    name = (json_object(line) or {}).get(index or "")
    known = name is not None and not not_utf8(str(name))
    return Unread(str(name) if known else f"row {row}", error)


class Documents(Sequential):
    """Sparse counts of words, one row per text; a text without any, such as a blank line, is a row of zeros."""

    def __init__(self, corpus: Corpus, words: Words) -> None:
        self.where, self.corpus, self.rewinds, self.index_name = corpus.where, corpus, corpus.rewinds, corpus.index
        self.feature_names = words.vocabulary
        self.n_features = words.hashed if words.vocabulary is None else len(words.vocabulary)
        self.vectoriser = words.vectoriser()
        if corpus.files is not None:
            self.files, self.n_samples = named(corpus.path, corpus.files), len(corpus.files)

    def of_files(self, names: Sequence[str]) -> Source:
        some = copy(self)
        some.files = {name: (self.files or {})[name] for name in names}
        some.corpus = copy(self.corpus)
        some.corpus.files = list(some.files.values())
        some.n_samples = len(names)
        return some

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        """Leave out texts that cannot be read, so that the others keep their numbers; where rows have names, NaN."""
        texts = self.corpus.texts(on_bad)
        while block := list(islice(texts, size)):
            rows, found = zip(*block, strict=True)
            X = scipy.sparse.csr_matrix(self.vectoriser.transform(found))
            if bad := [place for place, row in enumerate(rows) if isinstance(row, Unread)]:
                missing = np.full(len(bad), np.nan), (bad, np.zeros(len(bad), dtype=np.intp))
                X = scipy.sparse.csr_matrix(X + scipy.sparse.csr_matrix(missing, shape=X.shape))
            yield np.array(rows, dtype=np.int64 if self.index_name is None else object), X


@register("text", [".txt"], takes=["folders", "patterns", "standard input"], shapes=SHAPES)
def documents(
    path: Path, field: str | None = None, *, options: TextOptions, index: str | None = None, like: Spec | None = None
) -> Source:
    """The lines of a .txt file or of standard input, a field of JSON lines, or the files of a folder or pattern.

    The vocabulary of a model, with its weights, is taken as it is. Without ``words`` it has ten thousand, of a hundred
    texts or more those in at least two; ``hashed`` and what can be read only once have no vocabulary. ``index`` is the
    field of JSON lines that names the rows.
    """
    corpus = Corpus(path, field, index)
    where, rewinds = corpus.where, corpus.rewinds
    options.require_valid(where)
    words, min_df, max_df = options.words, options.min_df, options.max_df
    ngrams, tfidf = options.ngrams or 1, bool(options.tfidf)
    counted, n_samples = Words(options.hashed or HASHED, options.stop, ngrams), None
    if like is not None and like.scheme not in (None, "text", "jsonl"):
        raise SourceError(
            f"{where}: the model was learnt from {like.scheme}, not from texts; give it data of that kind."
        )
    if like is not None and like.names is not None:
        counted = replace(counted, vocabulary=list(like.names), idf=_weights(where, like, tfidf))
    elif words is not None or (options.hashed is None and rewinds and like is None):
        counts, n_samples = _counted(corpus, counted, max(MOST_COUNTED, 4 * (words or USUAL)))
        if words is None and min_df is None:
            min_df = counts.usual_min_df
        words = words or USUAL
        vocabulary = counts.chosen(where, words, min_df, max_df)
        counted = replace(counted, vocabulary=vocabulary, idf=counts.idf(vocabulary) if tfidf else None)
    elif tfidf or not (min_df is None and max_df is None):
        cure = "leave out hashed=" if rewinds else "learn one from a file first"
        raise SourceError(f"{where}: min_df, max_df and tfidf need a vocabulary; {cure}.")
    elif like is None:
        _say_hashed(rewinds)
    source = Documents(corpus, counted)
    source.n_samples = source.n_samples or n_samples
    hashed = counted.hashed if counted.vocabulary is None else None
    known = {"field": field, "words": words, "min_df": min_df, "hashed": hashed, "idf": counted.idf}
    known |= {"ngrams": ngrams, "tfidf": tfidf}
    source.chosen = {name: value for name, value in known.items() if value is not None}
    return source


def _counted(corpus: Corpus, counted: Words, most: int) -> tuple[WordCounts, int]:
    """Return the words of all texts that can be read, and the number of all texts."""
    if not corpus.rewinds:
        raise SourceError(
            f"{corpus.where} can be read only once, so no vocabulary can be learnt first; leave out words=."
        )
    words_of, counts = counted.analyser(), WordCounts(most)
    bad: list[ValueError] = []  # the first of them
    number = 0

    def count(error: ValueError) -> None:
        """Bad texts are reported when they are learnt from, if anything is."""
        nonlocal number
        number += 1
        bad[:] = bad or [error]

    for row, text in corpus.texts(count):
        if isinstance(row, Unread):
            count(row.reason)
        else:
            counts.add(words_of(text))
    if bad and not counts.total:
        raise bad[0]
    return counts, counts.texts + number


def _weights(where: str | Path, like: Spec, tfidf: bool) -> list[float] | None:
    """Return the model's idf, if its words are weighted."""
    names, idf = like.names or (), like.options.get("idf")
    if len(set(names)) < len(names):
        raise SourceError(f"{where}: the model's features have names that occur twice, so they are no vocabulary.")
    if not tfidf:
        return None
    if not isinstance(idf, list) or [float] * len(names) != list(map(type, idf)) or min(idf) < 0:
        raise SourceError(f"{where}: the model does not have the weights of its words; leave out tfidf=.")
    return idf


@cache
def _say_hashed(rewinds: bool) -> None:
    cure = "without hashed= they are kept"
    if not rewinds:
        cure = "to know them, learn a model from some of the texts in a file, and continue from it"
    log.warning("Words are hashed, so that the model will not know which words its features stand for; %s.", cure)
