"""The fast dictionary step: an averaged quadratic model of the loss per feature, minimised by coordinate descent.

At the fit y = hW every entry's divergence is replaced by its quadratic model with slope g and curvature c > 0. Summed
over samples, the model of feature f has the sufficient statistics

    A_f = avg c_f h h'   (K x K, packed)        b_f = avg (c_f y_f - g_f) h   (K)

averaged with weights rho that fall like a power of the samples seen. The K weights of the feature then minimise
w A_f w' / 2 - b_f w' over w >= low_f by a few sweeps. For squared l2, where c = 1, one A serves all features and this
is online dictionary learning as Mairal et al. (2010) do it. No convergence theorem is claimed for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf.arrays import Array
from onmf.checks import require_at_least, require_whole
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.schedules import Averaging
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class Floor:
    """low_f = share * (typical size of feature f) / (sum of the mean coefficients): what a weight may not fall below.

    It comes from the data, not from W: a fraction of W would shrink with it, and rare features would die. The typical
    size is the running mean and a little of the mean over all features, or the geometric mean where zeros are outside
    the domain.
    """

    share: float = 0.0
    geometric: bool = False

    def statistic(self, X: Any) -> Array:
        """Its sum over a chunk."""
        total: Array = np.log(X).sum(axis=0) if self.geometric else np.asarray(X.sum(axis=0)).ravel()
        return total

    def low(self, average: Array, mass: float) -> Array:
        """low_f from the running average of the statistic."""
        size = np.exp(average) if self.geometric else average + 0.01 * average.mean()
        bound: Array = self.share * size / max(mass, float(np.finfo(average.dtype).tiny))
        return bound


@dataclass(frozen=True)
class Surrogate(DictionaryUpdate):
    """Settings of the step; ``shared`` keeps one A for all features, exact where the curvature is one per sample."""

    chunk: int = 30
    averaging: Averaging = field(default_factory=Averaging)
    sweeps: int = 5
    floor: Floor = field(default_factory=Floor)
    least_share: float = 0.0  # of its old value that a weight keeps in one step
    shared: bool = False
    C: DictionarySet = field(default_factory=DictionarySet)

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk, sweeps=self.sweeps)
        require_at_least(0, floor=self.floor.share, least_share=self.least_share)

    def start(self, W: Array) -> State:
        """Empty statistics; the first chunk's weight is one."""
        W = self.C.rescale_into(W)
        K, F = W.shape
        shapes = {"A": (1 if self.shared else F, K * (K + 1) // 2), "b": (F, K), "size": (F,), "mass": (K,)}
        return State(W, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})

    def local(self, divergence: Divergence, X: Array, H: Array, W: Array) -> Statistics:
        """The sums over a chunk: two matrix products."""
        from onmf.kernels import pack

        Y = H @ W
        G, C = divergence.model(X, Y)
        HH = pack(H)
        A = C[:, :1].T @ HH if self.shared else C.T @ HH
        b = (C * Y - G).T @ H
        sums = {"A": A, "b": b, "size": self.floor.statistic(X), "mass": H.sum(axis=0)}
        return Statistics(sums, samples=len(X), loss=float(divergence.value(X, Y).sum(dtype=np.float64)))

    def apply(self, state: State, statistics: Statistics) -> State:
        """Average, sweep, and bring W back to [0, 1] by a change of units that the statistics follow exactly."""
        from onmf.kernels import pack, sweep

        n = statistics.samples
        samples = state.samples + n
        rho = self.averaging(samples, n, self.chunk)
        memory = {key: (1 - rho) * old + (rho / n) * statistics.sums[key] for key, old in state.memory.items()}
        Wt = np.ascontiguousarray(state.W.T)
        low = self.floor.low(memory["size"], float(memory["mass"].sum()))
        least = self.least_share * Wt
        sweep(memory["A"], memory["b"], Wt, low, self.sweeps)
        np.maximum(Wt, least, out=Wt)
        s = np.maximum(Wt.max(axis=0), 1.0)
        if (s > 1).any():
            Wt /= s
            memory["A"] *= pack(s[None])
            memory["b"] *= s
            memory["mass"] *= s
        return State(self.C.project(Wt.T.copy()), samples=samples, steps=state.steps + 1, memory=memory)
