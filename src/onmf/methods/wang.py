"""Wang, Wang and Yeung (2013): online robust NMF with the Huber loss, for visual tracking.

The loss is reweighted least squares with weights min(1, delta / |r|). Their statistics, one K x K matrix and one
K-vector a feature, forget exponentially, and W makes one projected gradient step a chunk. The step suits samples of
unit length: the mean length of the first chunk's samples is taken for the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_at_least, require_whole
from onmf.coefficients import CoefficientSolver, Multiplicative
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.methods.base import SpecialisedMethod
from onmf.model.penalty import Penalties, Penalty
from onmf.model.sets import DictionarySet
from onmf.model.state import State


@dataclass(frozen=True, repr=False)
class Wang(SpecialisedMethod, name="wang"):
    """The method of Wang, Wang and Yeung: projected gradient steps on accumulated statistics of the Huber loss.

    It makes one step of length eta per tau samples; rho of the past remains after each sample. ``gamma`` weighs the l1
    norm of the coefficients, which are found by multiplicative steps until the loss falls by less than ``tol`` of
    itself, ``max_iter`` at most.
    """

    tau: int = 5
    eta: float = 0.2
    rho: float = 0.99
    gamma: float = 0.0
    tol: float = 1e-3
    max_iter: int = 1000

    only: ClassVar[str] = "huber"
    skips_empty: ClassVar[bool] = True
    nonnegative: ClassVar[tuple[str, ...]] = ("A", "B", "unit")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, eta=self.eta, gamma=self.gamma, tol=self.tol)
        require_whole(1, max_iter=self.max_iter)
        if not is_number(self.rho) or not 0 <= self.rho <= 1:
            raise ValueError(f"rho must lie in [0, 1], got {self.rho!r}.")

    def serves(self, divergence: Divergence) -> bool:
        return divergence.robust and divergence.lipschitz is not None

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return Multiplicative(self.tol, self.max_iter, every=10)

    def penalty(self, penalties: Penalties) -> Penalty:
        return replace(penalties.of_coefficients, lasso=self.gamma)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return components of at most unit length, but for the fixed ones, and no past yet."""
        W = C.project(np.concatenate([W[: C.fixed], _in_the_ball(W[C.fixed :])]))
        K, F = W.shape
        memory = {"A": np.zeros((K * (K + 1) // 2, F), W.dtype), "B": np.zeros_like(W), "unit": np.zeros(1, W.dtype)}
        return State(W, C, memory=memory)

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Forget, add, one step, and back into the set; a component that would vanish stays as it was."""
        from onmf.coefficients.kernels.dictionary import packed_product
        from onmf.coefficients.kernels.gram import pack

        n, memory, X = len(H), state.memory, problem.X.matrix
        _, weights = problem.divergence.model(np, X, Y)
        unit = memory["unit"]
        if not unit.any():
            unit = np.sqrt(np.square(X).sum(axis=1)).mean(keepdims=True) + TINY
        X, H = X / unit, H / unit
        weights = weights * (self.rho ** np.arange(n - 1, -1, -1, dtype=X.dtype))[:, None]
        past, Ht = self.rho**n, np.ascontiguousarray(H.T)
        A = past * memory["A"] + pack(Ht) @ weights
        B = past * memory["B"] + Ht @ (weights * X)
        W = _in_the_ball(np.maximum(state.W - self.eta * (packed_product(A, state.W) - B), 0.0))
        W = np.where(W.any(axis=1, keepdims=True), W, state.W)
        W[: state.C.fixed] = state.W[: state.C.fixed]
        return state.after(n, state.C.project(W), {"A": A, "B": B, "unit": unit})

    def shorter_step(self) -> str:
        return f"wang:eta={self.eta / 10:g}"


def _in_the_ball(W: Array) -> Array:
    """Return components, those longer than one at unit length."""
    return W / np.maximum(np.sqrt(np.square(W).sum(axis=1, keepdims=True)), 1.0)
