"""The paper's method (Algorithms 1 to 3): stochastic projected subgradient descent, the one with the theorem."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onmf import coefficients
from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf.coefficients import Armijo, CoefficientSolver, ConstantStep, Polyak
from onmf.divergences import Divergence
from onmf.methods.base import Method, State, Statistics
from onmf.methods.schedules import StepSize, step_size
from onmf.problem import Problem
from onmf.sets import DictionarySet


@dataclass(frozen=True, repr=False)
class Paper(Method, name="paper"):
    """W <- P_C(W - eta G), G = sum over the mini-batch of the subgradients h' (d/dy) d(x || hW), eta = a/(s + b)^power.

    The gradient is *summed* over the tau samples of a mini-batch, not averaged, and s counts samples, so mini-batches
    must stay small (docs/decisions/0002-reading-of-the-paper.md). A power outside (1/2, 1] breaks the Robbins-Monro
    conditions and is refused unless ``any_power``.

    ``solver`` is the name of a coefficient solver (``onmf.coefficients.names()``), which runs until the stopping rule
    of ``onmf.coefficients.base`` falls below ``tol`` (None: 1e-3), ``max_iter`` iterations at most (None: the solver's
    own limit). "auto" is the paper's choice: "constant" where one Lipschitz constant serves everywhere (Huber, squared
    l2, Mahalanobis), "armijo" for the other smooth losses and l2, "polyak" for l1, which has ``delta_tol`` (None: 0.01)
    of a sample's mean entry in place of ``tol``.
    """

    tau: int = 10
    a: float = 2e4
    b: float = 2e4
    power: float = 1.0
    any_power: bool = False
    solver: str = "auto"
    tol: float | None = None
    max_iter: int | None = None
    delta_tol: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.solver, str):
            raise ValueError(f"solver must be the name of a coefficient solver, got {self.solver!r}.")
        if self.solver != "auto":
            coefficients.find(self.solver)
        if not isinstance(self.any_power, (bool, np.bool_)):
            raise ValueError(f"any_power must be True or False, got {self.any_power!r}.")
        require_at_least(0, **({} if self.tol is None else {"tol": self.tol}))
        if self.max_iter is not None:
            require_whole(1, max_iter=self.max_iter)
        if self.delta_tol is not None:
            Polyak(delta_tol=self.delta_tol)
        StepSize(self.a, self.b, self.power, self.any_power)

    def refuses(self, divergence: Divergence) -> str | None:
        solver = self.coefficients(divergence)
        if self.delta_tol is not None and not isinstance(solver, Polyak):
            return f"delta_tol belongs to Polyak's step, which {divergence.name} does not use; leave it out."
        if self.tol is not None and not solver.uses_tol:
            return f"tol has no effect on {type(solver).__name__}, which {divergence.name} uses here; leave it out."
        return solver.refuses(divergence)

    def coefficients(self, divergence: Divergence) -> CoefficientSolver:
        solver = _papers_choice(divergence) if self.solver == "auto" else coefficients.find(self.solver)()
        if isinstance(solver, Polyak) and self.delta_tol is not None:
            solver = replace(solver, delta_tol=self.delta_tol)
        return solver.stopping(1e-3 if self.tol is None else self.tol, self.max_iter or solver.max_iter)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet) -> State:
        """W_0 may be any element of C; one outside is brought in by a change of units."""
        return State(C.rescale_into(W), C)

    def local(self, problem: Problem, H: Array) -> Statistics:
        """The summed subgradient in W."""
        X, divergence = problem.X, problem.divergence
        Y = H @ problem.W
        gradient = H.T @ divergence.grad(X, Y)
        return Statistics({"gradient": gradient}, samples=len(X), losses=divergence.value(X, Y))

    def apply(self, divergence: Divergence, state: State, statistics: Statistics) -> State:
        """One projected step."""
        eta = step_size(self.a, self.b, self.power, self.any_power)(state.clock + statistics.samples)
        return state.after(statistics.samples, state.C.project(state.W - eta * statistics.parts["gradient"]))

    def shorter_step(self) -> str:
        return f"paper:a={self.a / 10:g}"


def _papers_choice(divergence: Divergence) -> CoefficientSolver:
    if divergence.lipschitz is not None:
        return ConstantStep()
    return Armijo() if divergence.smooth_unless_exact else Polyak()
