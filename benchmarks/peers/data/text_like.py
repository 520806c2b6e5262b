"""Sparse counts like those of words: a sparse planted dictionary, words of unequal frequency, few topics a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from benchmarks.peers.data.base import HELD_OUT, Samples, Source


@dataclass(frozen=True)
class TextLike(Source):
    """Poisson counts, about 91 % zeros."""

    name: str = "text_like"
    divergences: tuple[str, ...] = ("kl", "squared_l2")
    sparse: bool = True

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        """Each topic uses an eighth of the words; a text has some 130 of them."""
        F, K, n = (200, 5, 800) if small else (1000, 20, 4000)
        frequency = rng.permutation(1.0 / (10 + np.arange(F)) ** 0.7)
        W = frequency * rng.gamma(0.7, 1.0, (K, F)) * (rng.random((K, F)) < 0.125)
        W /= W.sum(axis=1, keepdims=True)
        topics = rng.dirichlet(np.full(K, 0.15), n + HELD_OUT)
        length = rng.lognormal(np.log(130), 0.5, (n + HELD_OUT, 1))
        X = scipy.sparse.csr_matrix(rng.poisson(length * (topics @ W)).astype(np.float64))
        return Samples(X[:n], X[n:], K, divergence)


SETS = (TextLike(),)
