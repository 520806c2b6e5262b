"""Guan, Tao, Luo and Yuan (2012), OR-NMF: squared l2 by robust stochastic approximation (Nemirovski et al. 2009).

A buffer holds the last samples with the coefficients they had. After each chunk, W makes projected gradient steps on
samples drawn from the buffer, of length theta D / (M sqrt k), and its new value is their average weighted by these
lengths. A reconstruction: the paper's text was not at hand (docs/decisions/0006-earlier-methods.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf.coefficients import CoefficientSolver, precise_solver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.methods.base import SpecialisedMethod, component_sizes
from onmf.model.sets import DictionarySet
from onmf.model.state import State


@dataclass(frozen=True, repr=False)
class Guan(SpecialisedMethod, name="guan"):
    """The method of Guan, Tao, Luo and Yuan, OR-NMF: averaged stochastic gradient steps under squared l2.

    It makes ``steps`` steps per tau samples, on samples drawn from a ``buffer`` of the last ones by ``seed`` and the
    step's number.
    """

    tau: int = 10
    theta: float = 0.1
    buffer: int = 20
    steps: int = 50
    seed: int = 0

    only: ClassVar[str] = "squared_l2"
    skips_empty: ClassVar[bool] = True
    frozen_constants: ClassVar[tuple[str, ...]] = ("buffer",)
    nonnegative: ClassVar[tuple[str, ...]] = ("X", "H")
    why_not_on_shards: ClassVar[str] = "it keeps samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(1, buffer=self.buffer, steps=self.steps)
        require_whole(0, seed=self.seed)
        require_at_least(0, theta=self.theta)
        if self.theta == 0:
            raise ValueError("theta must be greater than 0: steps of no length learn nothing.")

    def serves(self, divergence: Divergence) -> bool:
        return divergence.quadratic and divergence.metric is None

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return precise_solver(divergence)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return an empty buffer, and components of unit sum, but for the fixed ones."""
        W = C.project(W / component_sizes(W, C))
        K, F = W.shape
        return State(W, C, memory={"X": np.zeros((self.buffer, F), W.dtype), "H": np.zeros((self.buffer, K), W.dtype)})

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Let the oldest samples give way, make the steps, and average them."""
        from onmf.coefficients.kernels.dictionary import averaged_steps

        n = len(H)
        memory = {
            name: np.concatenate([state.memory[name], rows])[-self.buffer :]
            for name, rows in (("X", problem.X.matrix), ("H", H))
        }
        filled = min(int(state.samples + n), self.buffer)
        X, H = (memory[name][-filled:] for name in ("X", "H"))
        J = state.C.fixed
        if J:  # the components that are learnt fit what the fixed ones leave
            X, H = X - H[:, :J] @ state.W[:J], np.ascontiguousarray(H[:, J:])
        # ||grad|| = ||h|| ||hW - x|| <= ||h|| (||h||_1 + ||x||) on the simplex, whose diameter is sqrt(2 K).
        largest = np.sqrt(np.square(H).sum(axis=1)) * (H.sum(axis=1) + np.sqrt(np.square(X).sum(axis=1)))
        bound = float(np.sqrt(np.mean(np.square(largest, dtype=np.float64))))
        length = self.theta * np.sqrt(2.0 * (len(state.W) - J)) / max(bound, TINY)
        drawn = np.random.default_rng([self.seed, state.steps]).integers(filled, size=self.steps)
        W = np.concatenate([state.W[:J], averaged_steps(state.W[J:], X, H, drawn, length)])
        return state.after(n, state.C.project(W), memory)
