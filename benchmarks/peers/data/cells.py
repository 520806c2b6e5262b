"""Simulated cells: counts of genes, 4 % of them above zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.data.base import HELD_OUT, Samples, Source
from onmf.data import examples


@dataclass(frozen=True)
class Cells(Source):
    """As many components as there are programmes."""

    name: str = "cells"
    divergences: tuple[str, ...] = ("kl",)
    sparse: bool = True
    starts: tuple[str, ...] = ("uniform", "own")

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        n, genes, K, depth = (800, 300, 4, 100.0) if small else (3000, 15_000, 8, 700.0)
        X = examples.cells(n + HELD_OUT, genes, K, depth, rng).counts
        return Samples(X[:n], X[n:], K, divergence)


SETS = (Cells(),)
