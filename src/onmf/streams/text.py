"""Texts as counts of words, by scikit-learn's vectorisers: one document per line, JSON object or file.

Hashing needs no first pass and no memory, but has no words to show; a vocabulary is learnt in a first pass.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from onmf.streams.base import (
    OnBad,
    Sequential,
    Source,
    SourceError,
    each_readable,
    matching,
    reading,
    require_unchanged,
)
from onmf.streams.pipes import is_pipe, lines, name_of
from onmf.streams.registry import register

Texts = Callable[[OnBad | None], Iterator[str]]  # gives them afresh with every call, or once if they do not rewind
HASHED = 2**14  # features, where no vocabulary is learnt
CURE = "save it as UTF-8"


class Documents(Sequential):
    """Sparse counts of words: of those in ``vocabulary``, or of all, hashed to ``hashed`` features."""

    def __init__(
        self, where: str | Path, texts: Texts, rewinds: bool, vocabulary: list[str] | None, hashed: int
    ) -> None:
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

        self.where, self.texts, self.rewinds = where, texts, rewinds
        self.feature_names, self.n_features = vocabulary, hashed if vocabulary is None else len(vocabulary)
        self.vectoriser: Any = (
            HashingVectorizer(n_features=hashed, alternate_sign=False, norm=None, dtype=np.float64)
            if vocabulary is None
            else CountVectorizer(vocabulary=vocabulary, dtype=np.float64)
        )

    def _blocks(self, size: int, on_bad: OnBad | None) -> Iterator[Any]:
        texts = self.texts(on_bad)
        while block := list(islice(texts, size)):
            yield scipy.sparse.csr_matrix(self.vectoriser.transform(block))


@register("text", [".txt"], takes=["folders", "patterns", "standard input"])
def documents(
    path: Path,
    field: str | None = None,
    words: int | None = None,
    hashed: int = HASHED,
    vocabulary: list[str] | None = None,
) -> Source:
    """The lines of a file or of standard input, the files of a folder or pattern, or the ``field`` of JSON lines.

    ``words`` is the number of words to learn a vocabulary of; one that is known already is taken as it is.
    """
    where, texts, rewinds = _texts(path, field)
    if min(hashed, 1 if words is None else words) < 1:
        raise SourceError(f"{where}: words and hashed must be at least 1.")
    n_samples = None
    if words is not None and vocabulary is None:
        if not rewinds:
            raise SourceError(f"{where} can be read only once, so no vocabulary can be learnt first; leave out words=.")
        vocabulary, n_samples = _vocabulary(where, texts, words)
    source = Documents(where, texts, rewinds, vocabulary, hashed)
    source.n_samples = n_samples
    return source


def _vocabulary(where: str | Path, texts: Texts, words: int) -> tuple[list[str], int]:
    """The most frequent words, in alphabetical order, and the number of texts; memory grows with the words alone."""
    from sklearn.feature_extraction.text import CountVectorizer

    analyse = CountVectorizer().build_analyzer()
    counts: Counter[str] = Counter()
    n_samples = 0
    for text in texts(lambda _: None):  # bad ones are reported when they are learnt from
        counts.update(analyse(text))
        n_samples += 1
    if not counts:
        raise SourceError(f"{where} has no words to count.")
    return sorted(word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words]), n_samples


def _texts(path: Path, field: str | None) -> tuple[str | Path, Texts, bool]:
    """How they are called, the texts, and whether they can be read again; those of JSON lines if they have a field."""
    where, rewinds = name_of(path), not is_pipe(path)
    if rewinds and not path.is_file():
        return path, partial(each_readable, _whole, matching(path, [".txt"])), True
    if field is None and path.suffix.lower() not in {".jsonl", ".ndjson"}:
        return where, lambda on_bad: filter(str.strip, _lines(path)), rewinds
    name = "text" if field is None else field

    def fields(on_bad: OnBad | None) -> Iterator[str]:
        numbered = ((number, line) for number, line in enumerate(_lines(path), start=1) if line.strip())
        return each_readable(partial(_field, where, name), numbered, on_bad)

    return where, fields, rewinds


def _whole(path: Path) -> str:
    with reading(path, "as text", CURE):
        return path.read_text(encoding="utf-8")


def _lines(path: Path) -> Iterator[str]:
    if is_pipe(path):
        with reading(name_of(path), "as text", "give it as UTF-8"):
            yield from lines(path)
        return
    with reading(path, "as text", CURE):
        size = path.stat().st_size
        yield from lines(path)
    require_unchanged(path, size)


def _field(where: str | Path, field: str, numbered: tuple[int, str]) -> str:
    number, line = numbered
    try:
        text = json.loads(line)[field]
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise SourceError(f"{where}: line {number} is not a JSON object with a text in the field {field!r}.")
    return text
