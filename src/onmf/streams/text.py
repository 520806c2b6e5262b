"""Texts as counts of words, by scikit-learn's vectorisers: a document a line, a field of JSON Lines, or a file each.

Hashing needs no first pass and no memory, and has no words to show; a vocabulary is learnt in a first pass.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from onmf.streams.base import Source, SourceError, matching, numbered, require_unchanged

Bad = Callable[[SourceError], None]
HASHED = 2**14  # features, where no vocabulary is learnt


class Documents(Source):
    """Counts of words, sparse; ``documents`` gives the texts afresh, or once if it cannot rewind.

    It is told what to do about a document that cannot be read.
    """

    def __init__(
        self,
        where: str,
        documents: Callable[[Bad], Iterator[str]],
        words: int | None,
        hashed: int,
        vocabulary: list[str] | None,
        rewinds: bool,
    ) -> None:
        self.where, self.documents, self.rewinds = where, documents, rewinds
        self._begun = False
        if min(hashed, 1 if words is None else words) < 1:
            raise SourceError(f"{where}: words and hashed must be at least 1.")
        if vocabulary is not None:
            self.vectoriser: Any = self._counter(vocabulary)
            return
        if words is None:
            from sklearn.feature_extraction.text import HashingVectorizer

            self.vectoriser = HashingVectorizer(n_features=hashed, alternate_sign=False, norm=None, dtype=np.float64)
            self.n_features = hashed
            return
        if not rewinds:
            raise SourceError(f"{where} can be read only once, so no vocabulary can be learnt first; leave out words=.")
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
        for text in self.documents(lambda _: None):  # what cannot be read is told when it is learnt from
            counts.update(analyse(text))
            self.n_samples += 1
        if not counts:
            raise SourceError(f"{self.where} has no words to count.")
        return sorted(word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words])

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Documents in their order."""
        if self._begun and not self.rewinds:
            raise SourceError(f"{self.where} can be read only once: take one pass, or write it to a file first.")
        self._begun = True
        return numbered(self._counted(size))

    def _counted(self, size: int) -> Iterator[Any]:
        texts = self.documents(self.bad)
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
        return Documents("standard input", _standard_input, words, hashed, vocabulary, rewinds=False)
    path = Path(where).expanduser()
    if not path.is_file():
        files = matching(where, {".txt"}, "texts")
        return Documents(str(where), lambda bad: _files(files, bad), words, hashed, vocabulary, rewinds=True)
    json_lines = path.suffix.lower() in {".jsonl", ".ndjson"}

    def read(bad: Bad) -> Iterator[str]:
        return _json_lines(path, field, bad) if json_lines else _lines(_file_lines(path))

    return Documents(str(path), read, words, hashed, vocabulary, rewinds=True)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line.strip())


def _standard_input(bad: Bad) -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")  # whatever the locale
    try:
        yield from _lines(sys.stdin)
    except UnicodeDecodeError as error:
        raise SourceError(f"standard input cannot be read as text; give it as UTF-8 ({error}).") from None


def _files(paths: list[Path], bad: Bad) -> Iterator[str]:
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            bad(_unreadable(path, error))
        else:
            yield text


def _file_lines(path: Path) -> Iterator[str]:
    try:
        size = path.stat().st_size
        with path.open(encoding="utf-8") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
    require_unchanged(path, size)


def _json_lines(path: Path, field: str, bad: Bad) -> Iterator[str]:
    for number, line in enumerate(_file_lines(path), start=1):
        if not line.strip():
            continue
        try:
            text = _field(path, number, line, field)
        except SourceError as error:
            bad(error)
        else:
            yield text


def _unreadable(path: Path, error: Exception) -> SourceError:
    return SourceError(f"{path} cannot be read as text; save it as UTF-8 ({error}).")


def _field(path: Path, number: int, line: str, field: str) -> str:
    try:
        text = json.loads(line)[field]
    except (ValueError, LookupError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise SourceError(f"{path}: line {number} is no JSON object with a text in the field {field!r}.")
    return text
