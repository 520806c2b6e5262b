"""Samson, a hyperspectral image: mixtures of three materials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.data_sets import load_samson
from benchmarks.peers.data.base import Samples, Source, split


@dataclass(frozen=True)
class Samson(Source):
    """9025 pixels of 156 bands."""

    name: str = "samson"
    divergences: tuple[str, ...] = ("squared_l2", "kl")
    real: bool = True

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        return Samples(*split(load_samson().pixels, rng, 800 if small else None), 3, divergence)


SETS = (Samson(),)
