"""The paper's method (Algorithms 1 to 3): stochastic projected subgradient descent, the one with the theorem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from onmf import coefficients
from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf._support.registry import UnknownNameError
from onmf.coefficients import Armijo, CoefficientSolver, ConstantStep, Polyak, precise_solver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.methods.base import PATIENCE, TOL, Method, falling
from onmf.methods.steps import Adaptive, Slopes, Step
from onmf.model.penalty import NO_PENALTIES, Penalties
from onmf.model.sets import DictionaryBox, DictionarySet, Simplex
from onmf.model.state import State
from onmf.samples import Samples

ADAPTIVE = Adaptive()


@dataclass(frozen=True, repr=False)
class Paper(Method, name="paper"):
    """W <- P(W - eta G), G = sum over the mini-batch of the subgradients h' (d/dy) d(x || hW).

    The gradient is *summed* over the tau samples of a mini-batch, not averaged, and steps count samples, so
    mini-batches must stay small ([why](../decisions/0002-reading-of-the-paper.md)).

    Parameters
    ----------
    tau : int
        Samples of a mini-batch.
    step : str or Adaptive or Canonical
        The length of steps: "adaptive" learns it from the data, "canonical" is the paper's a/(s + b).
    solver : str
        The solver of the coefficients. "auto": the fastest one that reaches the tolerance, Newton's method, and for l1
        an interior-point method. "paper": the paper's choice, which is "constant" where one Lipschitz constant serves
        everywhere (Huber, squared l2, Mahalanobis), "armijo" for the other smooth losses and l2, "polyak" for l1.
        ``onmf.coefficients.names()`` lists all.
    tol : float or None
        Coefficients have converged once this share of d(x || 2x) is left to gain. None: it begins at 1e-3 and falls
        like the root of the step length, as the theorem needs.
    max_iter : int or None
        Iterations of the solver at most.
    delta_tol : float or None
        For "polyak", in place of ``tol``: a share of a sample's mean entry; None: 0.01.

    Examples
    --------
    >>> OnlineNMF(3, method="paper:tau=5,step=canonical").fit(X).method_.tau
    5
    """

    tau: int = 10
    step: Step | str = ADAPTIVE
    solver: str = "auto"
    tol: float | None = None
    max_iter: int | None = None
    delta_tol: float | None = None

    keeps_fixed: ClassVar[bool] = True
    frozen_constants: ClassVar[tuple[str, ...]] = ("step",)
    nonnegative: ClassVar[tuple[str, ...]] = ("squares", "mass", "seen", "factors", "losses", "runs", "metric", "low")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "step", Step.get(self.step))
        if not isinstance(self.solver, str):
            raise ValueError(f"solver must be the name of a coefficient solver, got {self.solver!r}.")
        if self.solver not in ("auto", "paper"):
            try:
                coefficients.find(self.solver)
            except UnknownNameError as error:
                error.args = (str(error).replace("choose one of", "choose one of auto, paper,"),)
                raise
        require_at_least(0, **({} if self.tol is None else {"tol": self.tol}))
        if self.max_iter is not None:
            require_whole(1, max_iter=self.max_iter)
        if self.delta_tol is not None:
            Polyak(delta_tol=self.delta_tol)

    @classmethod
    def make(cls, constants: Mapping[str, Any]) -> Self:
        """Make the method; constants of the step may stand among its own: ``paper:step=canonical,a=200``."""
        given = constants.get("step", cls.step)
        if not isinstance(given, (str, Step)):
            raise ValueError(f"step must be one of {', '.join(Step.names())}, got {given!r}.")
        step = Step.get(given)
        names = [*cls.constant_names(), *step.constant_names()]
        for name in constants.keys() - names:
            for other in Step.names():
                if name in Step.find(other).constant_names():
                    raise ValueError(f"{name} is a constant of step={other}; write paper:step={other},{name}=...")
        cls.require_known(constants, names)
        own = {name: value for name, value in constants.items() if name in cls.constant_names()}
        more = {name: value for name, value in constants.items() if name not in own}
        return cls(**own | {"step": replace(step, **more)})

    @property
    def _step(self) -> Step:
        return Step.get(self.step)

    # The coefficient step

    def why_not(self, divergence: Divergence, penalties: Penalties = NO_PENALTIES, masked: bool = False) -> str | None:
        solver = self.coefficient_solver(divergence, masked)
        if self.delta_tol is not None and not isinstance(solver, Polyak):
            return f"delta_tol belongs to Polyak's step, which {divergence.name} does not use here; leave it out."
        if self.tol is not None and not solver.uses_tol:
            return f"tol has no effect on {type(solver).__name__}, which {divergence.name} uses here; leave it out."
        return solver.why_not(divergence, self.penalty(penalties), masked)

    def why_not_shares(self, divergence: Divergence, masked: bool = False) -> str | None:
        return self.coefficient_solver(divergence, masked).why_not_on(Simplex())

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        if self.solver == "paper":
            solver = _papers_choice(divergence, masked)
        else:
            solver = precise_solver(divergence) if self.solver == "auto" else coefficients.find(self.solver)()
        if isinstance(solver, Polyak) and self.delta_tol is not None:
            solver = replace(solver, delta_tol=self.delta_tol)
        limit = PATIENCE if type(solver) is type(precise_solver(divergence)) else solver.max_iter
        return solver.stopping(TOL if self.tol is None else self.tol, self.max_iter or limit)

    def solver_after(self, clock: float, penalised: bool, divergence: Divergence, X: Samples) -> CoefficientSolver:
        usual = self.coefficient_solver(divergence, X.masked)
        if self.tol is not None:
            return usual
        tol = falling(TOL, clock)
        return usual.stopping(tol, self.max_iter or int(usual.max_iter * TOL / tol))

    def _solve(self, problem: Problem) -> Array:
        return self.coefficient_solver(problem.divergence, problem.X.masked).solve(problem).H

    # The dictionary step

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return W_0, any element of C; one outside is brought in by a change of units."""
        return State(C.rescale_into(W), C)

    def first_look(self, problem: Problem, state: State) -> State:
        return self._step.first_look(problem, state, self._solve)

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Return the state with W - eta G, projected onto C: the step says how long eta is."""
        return self._step.after(Slopes.of(problem, H), state, self.tau, self._solve)

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        return self._step.feasible(divergence, state)

    def expected(self, divergence: Divergence, state: State, masked: bool = False) -> dict[str, Array]:
        return self._step.expected(divergence, state)

    def require_sound(self, divergence: Divergence, state: State) -> None:
        self._step.require_sound(state)

    def doubts(self, divergence: Divergence, state: State) -> list[str]:
        return [*self._step.doubts(state), *self.inexact(divergence, state)]

    def shorter_step(self) -> str:
        return replace(self, step=self._step.gentler()).text()


def _papers_choice(divergence: Divergence, masked: bool) -> CoefficientSolver:
    if divergence.lipschitz is not None and not masked:
        return ConstantStep()
    return Armijo() if divergence.smooth_unless_exact else Polyak()
