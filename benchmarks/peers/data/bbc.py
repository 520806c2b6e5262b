"""BBC News: TF-IDF of the thousand leading words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.data.base import Samples, Source, split


@dataclass(frozen=True)
class BBC(Source):
    """Five topics, as there are five classes."""

    name: str = "bbc"
    divergences: tuple[str, ...] = ("kl",)
    real: bool = True
    sparse: bool = True

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        from reproduction.datasets import texts

        weights = texts.tfidf(texts.load_bbc().counts)
        weights = weights[:, texts.leading_words(weights, 200 if small else 1000)]
        return Samples(*split(weights, rng, 800 if small else None), 5, divergence)


SETS = (BBC(),)
