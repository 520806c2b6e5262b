"""Lefevre, Bach and Fevotte (2011): online Itakura-Saito NMF by accumulated auxiliary functions.

For fixed H the loss is majorised around the old W by sum_kf A_kf / W_kf + B_kf W_kf, whose minimiser is sqrt(A / B).
Online, both sums forget exponentially: what lies N samples back weighs r. What was taken from the paper and what had
to be chosen is in docs/decisions/0006-earlier-methods.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_whole
from onmf.coefficients.base import TINY
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class Lefevre(DictionaryUpdate):
    """Settings of the step: r in (0, 1], and N, which the state remembers."""

    chunk: int = 1000
    r: float = 0.7
    N: float | None = None
    C: DictionarySet = field(default_factory=DictionarySet)

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk)
        if not is_number(self.r) or not 0 < self.r <= 1:
            raise ValueError(f"r must lie in (0, 1], got {self.r!r}.")
        if self.N is not None and (not is_number(self.N) or not 1 <= self.N < np.inf):
            raise ValueError(f"N must be at least 1 and finite, got {self.N!r}.")

    def start(self, W: Array) -> State:
        """No past yet; atoms of unit sum."""
        W = self.C.project(W / np.maximum(W.sum(axis=1, keepdims=True), TINY))
        memory = {"A": np.zeros_like(W), "B": np.zeros_like(W), "N": np.array([self.N or 0.0], dtype=W.dtype)}
        return State(W, memory=memory)

    def local(self, divergence: Divergence, X: Array, H: Array, W: Array) -> Statistics:
        """The coefficients of the auxiliary function."""
        Y = np.maximum(H @ W, TINY)
        inverse = 1.0 / Y
        parts = {"A": (H.T @ (X * np.square(inverse))) * np.square(W), "B": H.T @ inverse}
        return Statistics(parts, samples=len(X), loss=float(divergence.value(X, Y).sum(dtype=np.float64)))

    def apply(self, state: State, statistics: Statistics) -> State:
        """Forget, add, minimise, and give all atoms unit sum."""
        memory, n = state.memory, statistics.samples
        N = float(memory["N"][0])
        if not N:
            raise ValueError(
                "lefevre needs N, the number of samples after which the past weighs r: "
                "give options={'N': ...}, since partial_fit and endless streams do not tell it."
            )
        rho = self.r ** (n / N)
        A, B = (rho * memory[name] + statistics.parts[name] for name in ("A", "B"))
        W = np.where(B > 0, np.sqrt(A / np.maximum(B, TINY)), state.W)
        s = np.maximum(W.sum(axis=1, keepdims=True), TINY)
        memory = memory | {"A": A / s, "B": B * s}
        return State(self.C.project(W / s), state.samples + n, state.steps + 1, memory)
