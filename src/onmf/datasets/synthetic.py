"""The paper's synthetic data: noisy V = HW of a planted dictionary, its noise suited to each divergence (Table 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array

OFFSET, SIGMA = 1.0, 5.0  # the shifted half-normal distribution of W and H
GAMMA_SHAPE = 1000.0
GAUSSIAN_SIGMA = 30.0
OUTLIER_SHARE, OUTLIER_MAGNITUDE = 0.3, 2000.0
CLIP = (0.0, 4000.0)
NOISES = ("gamma", "poisson", "gaussian", "outliers")
NOISE_OF = {
    "is": "gamma",
    "kl": "poisson",
    "squared_l2": "gaussian",
    "huber": "outliers",
    "l1": "outliers",
    "l2": "outliers",
}


@dataclass(frozen=True)
class Batch:
    """Noisy samples V (n, F) and what lies beneath them."""

    V: Array
    clean: Array


@dataclass(frozen=True)
class Planted:
    """A planted dictionary and an endless supply of noisy samples of it."""

    W: Array
    noise: str

    @classmethod
    def draw(cls, n_features: int, n_components: int, noise: str, rng: np.random.Generator) -> Planted:
        """W with entries from the shifted half-normal distribution."""
        if noise not in NOISES:
            raise ValueError(f"unknown noise {noise!r}; choose one of {', '.join(NOISES)}.")
        return cls(_half_normal(rng, (n_components, n_features)), noise)

    def sample(self, n: int, rng: np.random.Generator) -> Batch:
        """The next n samples, clipped to the paper's compact set [0, 4000]."""
        clean = _half_normal(rng, (n, len(self.W))) @ self.W
        if self.noise == "outliers":
            V = with_outliers(clean, OUTLIER_MAGNITUDE, rng)
        elif self.noise == "gamma":
            V = rng.gamma(GAMMA_SHAPE, clean / GAMMA_SHAPE)
        elif self.noise == "poisson":
            V = rng.poisson(clean).astype(np.float64)
        else:
            V = rng.normal(clean, GAUSSIAN_SIGMA)
        return Batch(np.clip(V, *CLIP), clean)

    def stream(self, n: int, batch_size: int, rng: np.random.Generator) -> Iterator[Array]:
        """N samples in batches, never more than one batch in memory."""
        for first in range(0, n, batch_size):
            yield self.sample(min(batch_size, n - first), rng).V


def with_outliers(clean: Array, magnitude: float, rng: np.random.Generator) -> Array:
    """Uniform noise from [-magnitude, magnitude] added to 30 % of the entries of every sample."""
    n, F = clean.shape
    hit = rng.permuted(np.tile(np.arange(F) < round(OUTLIER_SHARE * F), (n, 1)), axis=1)
    return clean + hit * rng.uniform(-magnitude, magnitude, clean.shape)


def _half_normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return OFFSET + np.abs(rng.normal(0.0, SIGMA, shape))
