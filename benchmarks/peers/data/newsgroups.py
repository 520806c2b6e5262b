"""20 Newsgroups: counts of ten thousand words, and TF-IDF of one and of ten thousand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.data.base import Samples, Source, split


@dataclass(frozen=True)
class Newsgroups(Source):
    """The 11269 documents of the training part, from which the held-out ones are drawn too."""

    name: str
    divergences: tuple[str, ...]
    words: int
    K: int
    weighted: bool
    real: bool = True
    sparse: bool = True
    starts: tuple[str, ...] = ("uniform", "own")
    rivals: tuple[str, ...] = ()

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        from reproduction.datasets import texts

        counts = texts.load_newsgroups()[0].counts
        values = texts.tfidf(counts) if self.weighted else counts
        values = values[:, texts.leading_words(values, 300 if small else self.words)]
        return Samples(*split(values, rng, 800 if small else None), 8 if small else self.K, divergence)


OURS = ("onmf", "onmf-batch", "onmf-multiplicative")
RIVALS = (*OURS, "sklearn-partial_fit", "sklearn-fit", "sklearn-batch")  # dense matrices would take gigabytes
SETS = (
    Newsgroups("news_counts", ("kl", "hellinger"), 10_000, 20, weighted=False, rivals=RIVALS),
    Newsgroups("news_tfidf", ("kl",), 1000, 20, weighted=True, rivals=RIVALS),
    Newsgroups("news_tfidf_10k", ("kl",), 10_000, 50, weighted=True, rivals=OURS),
)
