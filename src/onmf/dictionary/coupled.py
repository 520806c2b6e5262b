"""The surrogate for the Mahalanobis distance, whose matrix couples the features.

The loss is quadratic in W, so that averages of h'h and h'x are all it takes (Mairal et al. 2010, with another metric):

    f(W) = trace(W' S W A) / 2 - trace(R' W A),    S = avg h'h (K x K),    R = avg h'x (K x F),    grad = (S W - R) A

Atom by atom, w_k moves down its gradient divided by S_kk d, where d_f = sum_g |A_fg| makes diag(d) - A positive
semidefinite: no such step raises f.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import require_whole
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence, Mahalanobis
from onmf.schedules import Averaging
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class CoupledSurrogate(DictionaryUpdate):
    """Settings of the step; ``divergence`` holds the matrix A."""

    divergence: Mahalanobis
    chunk: int = 30
    averaging: Averaging = field(default_factory=Averaging)
    sweeps: int = 5
    C: DictionarySet = field(default_factory=DictionarySet)
    skips_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk, sweeps=self.sweeps)

    def start(self, W: Array) -> State:
        """Empty statistics."""
        W = self.C.rescale_into(W)
        K, F = W.shape
        shapes = {"S": (K, K), "R": (K, F)}
        return State(W, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})

    def local(self, divergence: Divergence, X: Array, H: Array, W: Array) -> Statistics:
        """The samples and their coefficients are the statistics."""
        return Statistics({"X": X, "H": H}, len(X), float(divergence.value(X, H @ W).sum(dtype=np.float64)))

    def apply(self, state: State, statistics: Statistics) -> State:
        """Average, a few sweeps over the atoms, and back to [0, 1] by a change of units."""
        X, H = statistics.parts["X"], statistics.parts["H"]
        n = statistics.samples
        samples = state.samples + n
        rho = self.averaging(samples, n, self.chunk)
        S = (1 - rho) * state.memory["S"] + (rho / n) * (H.T @ H)
        R = (1 - rho) * state.memory["R"] + (rho / n) * (H.T @ X)
        A = self.divergence.A.astype(X.dtype, copy=False)
        d = np.abs(A).sum(axis=1)
        W = state.W.copy()
        for _ in range(self.sweeps):
            for k in range(len(W)):
                if S[k, k] > 0:
                    W[k] = np.maximum(W[k] - (S[k] @ W - R[k]) @ A / (S[k, k] * d), 0)
        s = np.maximum(W.max(axis=1), 1.0)
        memory = {"S": S * np.outer(s, s), "R": R * s[:, None]}
        return State(self.C.project(W / s[:, None]), samples=samples, steps=state.steps + 1, memory=memory)
