"""A piano recording under Itakura-Saito: its frames shuffled, and in the order in which they were played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.data_sets import load_piano
from benchmarks.peers.data.base import Samples, Source, split


@dataclass(frozen=True)
class Piano(Source):
    """586 frames of a power spectrogram; a fifth of them, at random, is held out."""

    name: str = "piano"
    divergences: tuple[str, ...] = ("is",)
    real: bool = True
    ordered: bool = False
    passes: int = 5

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        return Samples(*split(load_piano(), rng), 5, divergence, ordered=self.ordered)


SETS = (Piano(), Piano("piano_ordered", ordered=True, passes=1))
