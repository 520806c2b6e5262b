"""Texts as counts of words, by scikit-learn's vectorisers: a document a line, a field of JSON Lines, or a file each.

Hashing needs no first pass and no memory, and has no words to show; a vocabulary is learnt in a first pass.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from onmf.streams.base import Source, SourceError, numbered

HASHED = 2**14  # features, where no vocabulary is learnt


class Documents(Source):
    """Counts of words, sparse; ``documents`` gives the texts afresh, or once if it cannot rewind."""

    def __init__(
        self,
        where: str,
        documents: Callable[[], Iterator[str]],
        words: int | None,
        hashed: int,
        vocabulary: list[str] | None,
        rewinds: bool,
    ) -> None:
        self.where, self.documents, self.rewinds = where, documents, rewinds
        self._begun = False
        if min(hashed, 1 if words is None else words) < 1:
            msg = f"{where}: words and hashed must be at least 1."
            raise SourceError(msg)
        if vocabulary is not None:
            self.vectoriser: Any = self._counter(vocabulary)
            return
        if words is None:
            from sklearn.feature_extraction.text import HashingVectorizer

            self.vectoriser = HashingVectorizer(n_features=hashed, alternate_sign=False, norm=None, dtype=np.float64)
            self.n_features = hashed
            return
        if not rewinds:
            msg = f"{where} can be read only once, so no vocabulary can be learnt first; leave out words=."
            raise SourceError(msg)
        self.vectoriser = self._counter(self._vocabulary(words))

    def _counter(self, vocabulary: list[str]) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        self.feature_names, self.n_features = vocabulary, len(vocabulary)
        return CountVectorizer(vocabulary=vocabulary, dtype=np.float64)

    def _vocabulary(self, words: int) -> list[str]:
        """The most frequent words, in the order of the alphabet; memory grows with the number of words alone."""
        from sklearn.feature_extraction.text import CountVectorizer

        analyse = CountVectorizer().build_analyzer()
        counts: Counter[str] = Counter()
        self.n_samples = 0
        for text in self.documents():
            counts.update(analyse(text))
            self.n_samples += 1
        if not counts:
            msg = f"{self.where} has no words to count."
            raise SourceError(msg)
        return sorted(word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words])

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Documents in their order."""
        del rng
        if self._begun and not self.rewinds:
            msg = f"{self.where} can be read only once: take one pass, or write it to a file first."
            raise SourceError(msg)
        self._begun = True
        return numbered(self._counted(size))

    def _counted(self, size: int) -> Iterator[Any]:
        texts = self.documents()
        while block := list(islice(texts, size)):
            yield scipy.sparse.csr_matrix(self.vectoriser.transform(block))


def texts(
    where: str | Path,
    field: str = "text",
    words: int | None = None,
    hashed: int = HASHED,
    vocabulary: list[str] | None = None,
) -> Source:
    """Lines of a .txt file, a field of .jsonl, the files of a folder or pattern, or ``-``, lines of standard input.

    A ``vocabulary`` that is known, that of a model for example, is taken as it is.
    """
    if str(where) == "-":
        return Documents("standard input", lambda: _lines(sys.stdin), words, hashed, vocabulary, rewinds=False)
    path = Path(where).expanduser()
    if path.is_dir() or "*" in path.name:
        files = sorted(path.glob("*.txt")) if path.is_dir() else sorted(path.parent.glob(path.name))
        if not files:
            msg = f"{where}: no texts there; give a folder of .txt files, or a pattern such as 'mail/*.txt'."
            raise SourceError(msg)
        return Documents(str(where), lambda: map(_file, files), words, hashed, vocabulary, rewinds=True)
    if not path.is_file():
        msg = f"{path} does not exist."
        raise SourceError(msg)
    read = (
        (lambda: _json_lines(path, field))
        if path.suffix.lower() in {".jsonl", ".ndjson"}
        else (lambda: _file_lines(path))
    )
    return Documents(str(path), read, words, hashed, vocabulary, rewinds=True)


def _lines(file: Any) -> Iterator[str]:
    return (line for line in file if line.strip())


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read as text; save it as UTF-8 ({error})."
        raise SourceError(msg) from None


def _file_lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from _lines(file)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read as text; save it as UTF-8 ({error})."
        raise SourceError(msg) from None


def _json_lines(path: Path, field: str) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _field(path, number, line, field)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read as text; save it as UTF-8 ({error})."
        raise SourceError(msg) from None


def _field(path: Path, number: int, line: str, field: str) -> str:
    try:
        text = json.loads(line)[field]
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        msg = f"{path}: line {number} is no JSON object with a text in the field {field!r}."
        raise SourceError(msg)
    return text
