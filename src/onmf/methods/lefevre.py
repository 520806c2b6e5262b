"""Lefevre, Bach and Fevotte (2011): online Itakura-Saito NMF by accumulated auxiliary functions.

For fixed H the loss is majorised around the old W by sum_kf A_kf / W_kf + B_kf W_kf, whose minimiser is sqrt(A / B).
Online, both sums forget exponentially: what lies N samples back weighs r. What was taken from the paper and what had
to be chosen is in docs/decisions/0006-earlier-methods.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_whole
from onmf.coefficients import CoefficientSolver, Multiplicative
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.methods.base import Method, SpecialisedMethod, component_sizes
from onmf.model.sets import DictionarySet
from onmf.model.state import State
from onmf.samples import Samples


@dataclass(frozen=True, repr=False)
class Lefevre(SpecialisedMethod, name="lefevre"):
    """The method of Lefevre, Bach and Fevotte: accumulated auxiliary functions of Itakura-Saito.

    A mini-batch has tau samples (or those of the batch, if it is smaller), whose coefficients are found by ``max_iter``
    multiplicative steps. The past weighs r after N samples; None takes N from the length of the data that ``fit`` is
    given.
    """

    tau: int = 1000
    r: float = 0.7
    N: float | None = None
    max_iter: int = 100

    only: ClassVar[str] = "is"
    nonnegative: ClassVar[tuple[str, ...]] = ("A", "B")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(1, max_iter=self.max_iter)
        if not is_number(self.r) or not 0 < self.r <= 1:
            raise ValueError(f"r must lie in (0, 1], got {self.r!r}.")
        if self.N is not None and (not is_number(self.N) or not 1 <= self.N < np.inf):
            raise ValueError(f"N must be at least 1 and finite, got {self.N!r}.")

    def serves(self, divergence: Divergence) -> bool:
        return divergence.sees_ratios

    def chosen(
        self, divergence: Divergence, K: int, batch: Samples, n_samples: int | None, on_device: bool = False
    ) -> Method:
        if self.N is None and n_samples is None:
            raise ValueError(
                "lefevre needs N, the number of samples after which the past weighs r, since partial_fit and streams "
                "of unknown length do not tell it; write method='lefevre:N=...'."
            )
        return replace(self, N=n_samples) if self.N is None else self

    def continued(self, before: Method) -> Method:
        same = super().continued(before)
        return replace(self, N=before.N) if isinstance(before, Lefevre) and self.N is None else same

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return Multiplicative(max_iter=self.max_iter)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return components of unit sum, but for the fixed ones, and no past yet."""
        W = C.project(W / component_sizes(W, C))
        return State(W, C, memory={"A": np.zeros_like(W), "B": np.zeros_like(W)})

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Forget, add the auxiliary function, minimise, and give all components that are learnt unit sum."""
        inverse = 1.0 / np.maximum(Y, TINY)
        rho, memory = self.r ** (len(H) / (self.N or np.inf)), state.memory
        A = rho * memory["A"] + (H.T @ (problem.X.matrix * np.square(inverse))) * np.square(problem.W)
        B = rho * memory["B"] + H.T @ inverse
        W = np.where(B > 0, np.sqrt(A / np.maximum(B, TINY)), state.W)
        W[: state.C.fixed] = state.W[: state.C.fixed]
        s = component_sizes(W, state.C)
        return state.after(len(H), state.C.project(W / s), {"A": A / s, "B": B * s})
