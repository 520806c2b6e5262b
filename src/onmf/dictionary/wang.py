"""Wang, Wang and Yeung (2013): online robust NMF with the Huber loss, for visual tracking.

The loss is reweighted least squares with weights min(1, delta / |r|). Their statistics, one K x K matrix and one
K-vector a feature, forget exponentially, and W makes one projected gradient step a chunk. The step suits samples of
unit length: the mean length of the first chunk's samples is taken for the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_at_least, require_whole
from onmf.coefficients.base import TINY
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class Wang(DictionaryUpdate):
    """Settings of the step: its length eta, and rho, what remains of the past after each sample."""

    chunk: int = 5
    eta: float = 0.2
    rho: float = 0.99
    C: DictionarySet = field(default_factory=DictionarySet)
    skips_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk)
        require_at_least(0, eta=self.eta)
        if not is_number(self.rho) or not 0 <= self.rho <= 1:
            raise ValueError(f"rho must lie in [0, 1], got {self.rho!r}.")

    def start(self, W: Array) -> State:
        """No past yet; atoms of at most unit length."""
        W = self.C.project(_in_the_ball(W))
        K, F = W.shape
        memory = {"A": np.zeros((K * (K + 1) // 2, F), W.dtype), "B": np.zeros_like(W), "unit": np.zeros(1, W.dtype)}
        return State(W, memory=memory)

    def local(self, divergence: Divergence, X: Array, H: Array, W: Array) -> Statistics:
        """The weights."""
        Y = H @ W
        _, weights = divergence.model(X, Y)
        loss = float(divergence.value(X, Y).sum(dtype=np.float64))
        return Statistics({"X": X, "H": H, "weights": weights}, samples=len(X), loss=loss)

    def apply(self, state: State, statistics: Statistics) -> State:
        """Forget, add, one step, and back into the set; an atom that would vanish stays as it was."""
        from onmf.kernels import pack, packed_product

        n, memory, parts = statistics.samples, state.memory, statistics.parts
        unit = memory["unit"]
        if not unit.any():
            unit = np.sqrt(np.square(parts["X"]).sum(axis=1)).mean(keepdims=True) + TINY
        X, H = parts["X"] / unit, parts["H"] / unit
        weights = parts["weights"] * (self.rho ** np.arange(n - 1, -1, -1, dtype=X.dtype))[:, None]
        past, Ht = self.rho**n, np.ascontiguousarray(H.T)
        A = past * memory["A"] + pack(Ht) @ weights
        B = past * memory["B"] + Ht @ (weights * X)
        W = _in_the_ball(np.maximum(state.W - self.eta * (packed_product(A, state.W) - B), 0.0))
        W = np.where(W.any(axis=1, keepdims=True), W, state.W)
        return State(self.C.project(W), state.samples + n, state.steps + 1, {"A": A, "B": B, "unit": unit})


def _in_the_ball(W: Array) -> Array:
    """Atoms longer than one are brought to unit length."""
    return W / np.maximum(np.sqrt(np.square(W).sum(axis=1, keepdims=True)), 1.0)
