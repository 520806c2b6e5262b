"""Algorithm 2 with the Armijo rule (Algorithm 3), and with the constant step 1/L."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array, Counts, Mask
from onmf.coefficients import kernels
from onmf.coefficients.base import Coefficients, CoefficientSolver, Descent, iterate
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Simplex

# In internal units a gradient reaches 1e16 where the fit is near its floor, and is tiny for loud samples or weak
# components.
SHORTEST, LONGEST = 1e-25, 1e10
TRIED = ("X", "l1", "mass")  # the facts about samples that a line search needs


@dataclass(frozen=True)
class Armijo(CoefficientSolver, name="armijo"):
    """h <- P(h - xi grad) with the step xi found by backtracking: at most q times, xi <- gamma xi.

    A step is taken when f(h(xi)) <= f(h) + alpha <grad, h(xi) - h> at the *projected* trial point h(xi): the condition
    of Calamai and More (1987), whose theorem the paper cites. ``literal`` tests what the paper prints, unprojected
    trial points and ||grad||^2, which stalls at the boundary of H.

    Near the minimum the fall drowns in the rounding of f. There
    <grad f(h(xi)), h - h(xi)> >= alpha <grad f(h), h - h(xi)> is tested instead, which for a convex f implies the
    condition and is not blurred by rounding.

    The first search begins at xi = 1, the others one notch above the step taken last: the steps stay bounded below (no
    step is shorter than gamma times one that the Lipschitz constant allows), which is what convergence needs, for a
    third of the trials; and samples much louder than the average get the longer steps that they need.
    """

    alpha: float = 0.01
    gamma: float = 0.1
    q: int = 10
    literal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.alpha < 0.5 and 0 < self.gamma < 1 and self.q >= 1):
            raise ValueError(
                f"Armijo needs 0 < alpha < 0.5, 0 < gamma < 1, q >= 1; got {self.alpha}, {self.gamma}, {self.q}."
            )

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = (
            f"Armijo cannot solve {divergence.name}: it is not smooth, so a gradient step need not descend; use polyak."
        )
        return None if divergence.smooth_unless_exact else reason

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        return iterate(_Searches(self, problem, H), self.max_iter)


@dataclass(frozen=True)
class ArmijoLiteral(Armijo, name="armijo-literal"):
    """Algorithm 3 to the letter."""

    literal: bool = True
    shares: ClassVar[bool] = False  # ||grad||^2 promises what a step along the simplex cannot keep


class _Searches(Descent):
    G: Array

    def __init__(self, rule: Armijo, problem: Problem, H: Array) -> None:
        super().__init__(problem, H)
        self.rule = rule
        self.Y = problem.fit(H)
        self.f = problem.objective(H, self.Y)
        self.xi = np.full((len(H), 1), rule.gamma, dtype=H.dtype)
        self.tolerance, self.noise = problem.tolerance(rule.tol), problem.noise
        self.domain = problem.divergence.domain.y
        self.zero_is_critical = self.domain.includes_zero and not problem.divergence.convex  # beta > 2

    def test(self, k: int) -> Mask:
        self.G = self.problem.gradient(self.H, self.Y)
        return self.problem.enough(self.H, self.G, self.f, self.rule.tol, self.tolerance)

    def step(self) -> Mask:
        """Backtrack from the steps xi, each sample from its own."""
        rule, problem, G = self.rule, self.problem, self.G
        self.xi = np.ones_like(self.xi) if rule.literal else np.minimum(self.xi / rule.gamma, LONGEST)
        H, Y, f, xi = self.H.copy(), self.Y.copy(), self.f.copy(), self.xi
        pending = np.arange(len(H))
        for _ in range(rule.q + 1):
            some = problem if len(pending) == len(H) else problem.rows(pending, TRIED)
            trial, fit, value, good = self._trial(some, pending)
            hit = pending[good]
            H[hit], Y[hit], f[hit] = trial[good], fit[good], value[good]
            pending = pending[~good]
            if not pending.size:
                break
            xi[pending] *= rule.gamma
        if rule.literal and pending.size:  # as printed, the last step is taken untested
            some = problem.rows(pending)
            trial = problem.box.project(H[pending] - xi[pending] * G[pending])
            fit = some.fit(trial)
            H[pending], Y[pending], f[pending] = trial, fit, some.objective(trial, fit)
        self.H, self.Y, self.f = H, Y, f
        # The next search starts where this one ended; below some length a step is none.
        stuck = self.nobody()
        stuck[pending] = not rule.literal and xi[pending, 0] < SHORTEST
        return stuck

    def _trial(self, some: Problem, pending: Counts) -> tuple[Array, Array, Array, Mask]:
        """Return projected trial points of the pending samples, their fits and values, and which of them are good."""
        rule, project = self.rule, some.box.project
        h, g, f, step = self.H[pending], self.G[pending], self.f[pending], self.xi[pending]
        trial: Array = h - step * g
        if rule.literal:
            fall = step[:, 0] * np.square(g).sum(axis=1)
            raw = some.fit(trial)
            with np.errstate(all="ignore"):  # an unprojected trial point may lie outside the domain
                tested = some.objective(trial, raw)
            tested = np.where(self.domain.outside(raw).any(axis=1), np.inf, tested)
        trial = project(trial)
        fit = some.fit(trial)
        value = some.objective(trial, fit)
        if not rule.literal:
            fall, tested = (g * (h - trial)).sum(axis=1), value
        good = tested <= f - rule.alpha * fall
        blurred = (np.abs(tested - f) <= self.noise[pending]).nonzero()[0]
        if blurred.size and not rule.literal:
            there = some.rows(blurred, TRIED).gradient(trial[blurred], fit[blurred])
            good[blurred] = (there * (h - trial)[blurred]).sum(axis=1) >= rule.alpha * fall[blurred]
        if self.zero_is_critical:  # one step too long would end there for good
            good &= some.carried(trial) >= 0.01 * some.carried(h)
        return trial, fit, value, good


@dataclass(frozen=True)
class ConstantStep(CoefficientSolver, name="constant"):
    """h <- P(h - grad / L) with a Lipschitz constant L of the gradient: majorisation-minimisation, no line search.

    L = (Lipschitz constant of d in y) * (largest eigenvalue of WW') + l2. For squared l2 and Mahalanobis the
    gradient is hQ - b with the K x K matrix Q = WAW' and b = xAW': a compiled kernel iterates without touching F.
    """

    max_iter: int = 300  # an iteration without a line search costs a third
    check_every: int = 10

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        cure = "armijo" if divergence.smooth_unless_exact else "polyak"
        reason = (
            f"ConstantStep cannot solve {divergence.name}: its gradient has no global Lipschitz constant; use {cure}."
        )
        return reason if divergence.lipschitz is None or masked else None

    def _prepared(self, problem: Problem) -> Problem:
        return problem.on_gram() or problem

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        if problem.Q is None or isinstance(problem.box, Simplex):
            return iterate(_Steps(self, problem, H), self.max_iter)
        # Imported here: ``import onmf`` must not wait for Numba.
        Q, B = problem.penalised()
        found = Coefficients.untested(H)
        arrays = Q, B, H, problem.reach, problem.tolerance(self.tol), found.iterations, found.converged
        low, high = problem.box.low, problem.box.high
        kernels.gram.projected_gradient_on_gram(*arrays, 1.0 / largest_eigenvalue(Q), low, high, self.max_iter)
        return found


class _Steps(Descent):
    G: Array

    def __init__(self, solver: ConstantStep, problem: Problem, H: Array) -> None:
        super().__init__(problem, H)
        self.solver, self.tolerance = solver, problem.tolerance(solver.tol)
        if problem.Q is not None:
            lipschitz = largest_eigenvalue(problem.Q)
        else:
            lipschitz = (problem.divergence.lipschitz or 0.0) * largest_eigenvalue(problem.W @ problem.W.T)
        self.length = 1.0 / (lipschitz + problem.penalty.l2)

    def test(self, k: int) -> Mask:
        self.G = self.problem.gradient(self.H, self.problem.fit(self.H))
        if k % self.solver.check_every and k != self.solver.max_iter - 1:
            return self.nobody()
        return self.problem.remaining_gain(self.H, self.G) <= self.tolerance

    def step(self) -> Mask:
        self.G *= self.length
        self.H = self.problem.box.project(self.H - self.G)
        return self.nobody()


def largest_eigenvalue(Q: Array) -> float:
    """Return the largest eigenvalue of a symmetric positive semidefinite K x K matrix, with room for rounding."""
    largest = float(np.linalg.eigvalsh(Q)[-1]) * (1 + 10 * float(np.finfo(Q.dtype).eps))
    return largest if largest > 0 else 1.0
