"""What an entry in the benchmarks is: a contestant, its variants, and where it takes part."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.peers.data.base import STARTS
from reproduction.contest import Contestant, Task

BETA = {"squared_l2": 2.0, "kl": 1.0, "is": 0.0}  # the losses of scikit-learn
UNIT_FOR_IS = 1e6  # scikit-learn floors fits near 1e-7, which at unit mean makes its Itakura-Saito useless


@dataclass(frozen=True)
class Entry:
    """A contestant in the benchmarks; all variants run, and the one with the best final loss counts."""

    name: str
    contestant: type[Contestant]
    variants: Mapping[str, Any] = field(default_factory=lambda: {"": None})
    sparse: bool | None = None  # on sparse data only, on dense only, or on both
    package: str | None = None  # that has to be installed
    from_scratch: bool = False  # cannot be stopped on the way: one run per number of passes
    most_passes: int = 1_000_000
    starts: tuple[str, ...] = STARTS
    threaded: bool = True  # worth a second run on all cores
    only_on: tuple[str, ...] = ()  # data sets; empty: all
    first_seed_only: bool = False

    def missing(self) -> str | None:
        """Why the contestant cannot start on this machine; None if it can."""
        there = self.package is None or importlib.util.find_spec(self.package) is not None
        return None if there else "skipped: install onmf[bench]"

    def serves(self, divergence: str, sparse: bool) -> bool:
        """Whether it takes part on such data; Itakura-Saito admits no zeros, hence no sparse data."""
        suits = self.contestant.serves(divergence) and self.sparse in (None, sparse)
        return suits and not (sparse and divergence == "is")


def unit_for(task: Task) -> float:
    """The factor that brings the data to a unit in which scikit-learn can work."""
    X = task.source.X
    return UNIT_FOR_IS / (float(X.sum()) / (X.shape[0] * X.shape[1])) if task.divergence == "is" else 1.0


def custom_start(task: Task, n: int) -> dict[str, np.ndarray]:
    """What scikit-learn's ``init="custom"`` wants for n samples; it calls H what we call W, and reversely."""
    return {} if task.W0 is None else {"W": np.ones((n, task.K)), "H": task.W0.copy()}


def unit_norm(W0: np.ndarray) -> np.ndarray:
    """The components with Euclidean norm one, as methods for sparse coding want them."""
    return W0 / np.linalg.norm(W0, axis=1, keepdims=True)
