"""Choose the words of texts that become features: all of them, hashed, or those of a vocabulary.

A vocabulary is chosen after one pass that counts words in bounded memory.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf.data.base import SourceError

log = logging.getLogger("onmf")

HASHED = 2**14
ENOUGH_TEXTS = 100  # for a word in one of them to be left out
MOST_COUNTED = 1_000_000  # different words at a time, some 200 MB
MOST_FEATURES = 2**31 - 1  # of scikit-learn's vectorisers


@dataclass(frozen=True)
class TextOptions:
    """The options that texts take.

    ``words`` is how many words to learn a vocabulary of, among those that ``min_df`` and ``max_df`` leave; ``hashed``
    does without a vocabulary. ``ngrams=2`` also counts pairs of words, ``stop=english`` leaves the commonest English
    words out, ``tfidf=yes`` weights words by their rarity and texts by their length.
    """

    words: int | None = None
    hashed: int | None = None
    stop: str | None = None
    min_df: int | float | None = None
    max_df: int | float | None = None
    ngrams: int | None = None
    tfidf: bool | None = None

    def require_valid(self, where: object) -> None:
        """Raise an error if an option is out of range, or two contradict each other."""
        for name in ("words", "hashed", "ngrams"):
            number = getattr(self, name)
            if number is not None and not 1 <= number <= MOST_FEATURES:
                raise SourceError(f"{where}: {name} must be at least 1 and at most {MOST_FEATURES}, got {number}.")
        for name in ("min_df", "max_df"):
            df = getattr(self, name)
            if df is not None and not (df >= 1 if isinstance(df, int) else 0 <= df <= 1):
                raise SourceError(
                    f"{where}: {name} is a number of texts, as in {name}=5, or a share of them, as in {name}=0.5; "
                    f"got {df}."
                )
        if self.words is not None and self.hashed is not None:
            raise SourceError(f"{where}: words= learns a vocabulary and hashed= does without one; give one of them.")
        if self.stop not in (None, "english"):
            raise SourceError(
                f"{where}: stop must be english, the only list of stop words there is; got {self.stop!r}."
            )


@dataclass(frozen=True)
class Words:
    """The words that are counted in a text: those of a vocabulary, perhaps weighted, or all, hashed."""

    hashed: int = HASHED  # features, where there is no vocabulary
    stop: str | None = None
    ngrams: int = 1
    vocabulary: list[str] | None = None
    idf: list[float] | None = None

    def vectoriser(self) -> Any:
        """Return scikit-learn's object that turns texts into rows."""
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

        read = {**self._read, "dtype": np.float64}
        if self.vocabulary is None:
            return HashingVectorizer(n_features=self.hashed, alternate_sign=False, norm=None, **read)
        if self.idf is None:
            return CountVectorizer(vocabulary=self.vocabulary, **read)
        weighted = TfidfVectorizer(vocabulary=self.vocabulary, **read)
        weighted.idf_ = np.asarray(self.idf)
        return weighted

    def analyser(self) -> Callable[[str], list[str]]:
        """Return scikit-learn's function that gives the words of a text, repetitions included."""
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(**self._read).build_analyzer()

    @property
    def _read(self) -> dict[str, Any]:
        return {"stop_words": self.stop, "ngram_range": (1, self.ngrams)}


@dataclass
class WordCounts:
    """How often each word occurs, and in how many texts.

    Beyond ``most`` different words the rarer half or more are forgotten, and counted anew if they come again: none of
    them had occurred more than ``forgotten`` times since the last time.
    """

    most: int = MOST_COUNTED
    texts: int = 0
    total: Counter[str] = field(default_factory=Counter)
    in_texts: Counter[str] = field(default_factory=Counter)
    forgotten: int = 0

    def add(self, words: Collection[str]) -> None:
        """Count the words of one more text."""
        self.total.update(words)
        self.in_texts.update(set(words))
        self.texts += 1
        if len(self.total) > self.most:
            self._forget_rare()

    def _forget_rare(self) -> None:
        if not self.forgotten:
            log.warning(
                "There are more than %d different words: rare ones are forgotten while they are counted, so that "
                "min_df and the choice among rare words are approximate.",
                self.most,
            )
        rare = sorted(self.total.values(), reverse=True)[self.most // 2]  # at most half of them occur more often
        self.forgotten = max(rare, self.forgotten)
        self.total = Counter({word: n for word, n in self.total.items() if n > rare})
        self.in_texts = Counter({word: self.in_texts[word] for word in self.total})

    def chosen(self, where: object, words: int, min_df: float | None, max_df: float | None) -> list[str]:
        """Return the ``words`` most frequent in at least min_df and at most max_df texts, in alphabetical order.

        As in scikit-learn a whole number is a number of texts, a fraction a share of them.
        """
        if not self.total:
            raise SourceError(f"{where} has no words to count.")
        low, high = self._limit(min_df, 1), self._limit(max_df, self.texts)
        kept = [(-self.total[word], word) for word, n in self.in_texts.items() if low <= n <= high]
        if not kept:
            raise SourceError(
                f"{where}: of {len(self.in_texts)} words in {self.texts} texts none is in at least {low:g} and at most "
                f"{high:g} of them; give another min_df or max_df."
            )
        return sorted(word for _, word in sorted(kept)[:words])

    @property
    def usual_min_df(self) -> int:
        """Two where texts are many and share words, else one: a word in one text alone says nothing of others."""
        return 2 if self.texts >= ENOUGH_TEXTS and max(self.in_texts.values(), default=0) > 1 else 1

    def idf(self, vocabulary: list[str]) -> list[float]:
        """Return log((1 + n) / (1 + texts with the word)) + 1, as in scikit-learn: the rarer, the heavier."""
        return [math.log((1 + self.texts) / (1 + self.in_texts[word])) + 1.0 for word in vocabulary]

    def _limit(self, df: float | None, usual: int) -> float:
        return usual if df is None else df if isinstance(df, int) else df * self.texts
