"""Power spectra like those of music: harmonic components above a little noise, and multiplicative exponential noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.data.base import HELD_OUT, Samples, Source


@dataclass(frozen=True)
class SpectrogramLike(Source):
    """The model whose likelihood is the Itakura-Saito divergence."""

    name: str = "spectrogram_like"
    divergences: tuple[str, ...] = ("is",)

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        """Each note is a comb of decaying harmonics, 40 dB above its noise; few notes sound at a time."""
        F, K, n = (65, 4, 800) if small else (257, 10, 3000)
        bins, harmonics = np.arange(F), np.arange(1, 40)
        pitch = rng.uniform(F / 40, F / 10, (K, 1, 1))
        decay = rng.uniform(0.6, 0.9, (K, 1, 1))
        peaks = np.exp(-0.5 * np.square(bins - pitch * harmonics[:, None]))
        W = (decay ** harmonics[:, None] * peaks).sum(axis=1) + 1e-4 * rng.gamma(2.0, 1.0, (K, F))
        H = rng.gamma(0.4, 1.0, (n + HELD_OUT, K)) + 1e-4
        X = (H @ W) * rng.exponential(1.0, (n + HELD_OUT, F))
        return Samples(X[:n], X[n:], K, divergence)


SETS = (SpectrogramLike(),)
