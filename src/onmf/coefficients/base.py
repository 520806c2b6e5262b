"""The coefficient step (the paper's Algorithm 2): h = argmin over h in H of d(x || hW) + penalty(h).

All samples of a mini-batch are solved side by side; a sample drops out once it has converged.

**When is a sample converged?** A first-order bound on what is left to gain, relative to a scale of the problem:

    sum_k max(g_k, 0) (h_k - eps')  +  sum_k max(-g_k, 0) min(max(r_k - h_k, h_k), U - h_k)   <=   tol * d(x || 2x)

with g the gradient in h and r_k = sum_f x_f / sum_f W_kf, the coefficient at which component k alone carries the
sample's whole mass. For a convex divergence and any solution h* <= max(r, 2h) the left side bounds f(h) - f(h*) from
above; for the others it measures the distance from a critical point, and Newton's method takes what its quadratic model
promises instead. Where f itself is at hand it is a bound too, since
no loss is negative. d(x || 2x), the loss of a fit that is off by a factor of two, is a scale that every divergence has,
and it does not depend on where the iteration started.

On the simplex the left side is max over z of <g, h - z>, the gap of Frank and Wolfe: for a convex divergence a bound on
f(h) - f(h*), whatever h* is. There a sample may be far from all fits: a gap of tol f(h) is enough, too, and no
tolerance is below the rounding of the loss of equal shares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask
from onmf._support.checks import require_at_least, require_whole
from onmf._support.registry import Registered
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box, Simplex


@dataclass(frozen=True)
class Coefficients:
    """The answer of a solver: H (n, K), and for every sample its iterations and whether it converged.

    Where the solver has them at hand for all samples, the fits and the losses come along. Where fits may be at a kink
    of the divergence, so do slopes u (n, F) in the fits for which the gap of (h, u) is small: see theory.md.
    """

    H: Array
    iterations: Counts
    converged: Mask
    Y: Array | None = None
    loss: Array | None = None
    slopes: Array | None = None

    @classmethod
    def untested(cls, H: Array, iterations: int = 0) -> Self:
        """Return H after this number of iterations, with no sample said to have converged."""
        return cls(H, np.full(len(H), iterations, dtype=np.int64), np.zeros(len(H), dtype=bool))


@dataclass(frozen=True)
class CoefficientSolver(Registered, kind="solver"):
    """Immutable settings of a solver; ``solve`` does not change them. A ``name`` makes it ``paper:solver=NAME``."""

    tol: float = 1e-3
    max_iter: int = 100
    uses_tol: ClassVar[bool] = True  # or does it stop by something else?
    shares: ClassVar[bool] = True  # does it solve for coefficients on the simplex, too?

    def __post_init__(self) -> None:
        require_at_least(0, tol=self.tol)
        require_whole(1, max_iter=self.max_iter)

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        """Return why this solver cannot serve a divergence with a penalty, and the cure; None if it can.

        ``masked`` says that entries may be missing or weigh differently.
        """
        return None

    def why_not_on(self, box: Box | Simplex) -> str | None:
        """Return why this solver cannot keep coefficients in a set, and the cure; None if it can."""
        if self.shares or not isinstance(box, Simplex):
            return None
        return f"{type(self).__name__} cannot keep coefficients on the simplex: its steps change their sum; use newton."

    def within(self, box: Box | Simplex) -> CoefficientSolver:
        """Return the solver that does what this one does, for coefficients in that set."""
        return self

    def takes_sparse(self, divergence: Divergence, masked: bool = False) -> bool:
        """Return whether the solver can use sparse data of this divergence as they are."""
        return False

    def stopping(self, tol: float, max_iter: int) -> Self:
        """Return the same solver with other stopping constants."""
        return _stopping(self, tol, max_iter)  # type: ignore[return-value]

    def solve(self, problem: Problem, H0: Array | None = None) -> Coefficients:
        """Return the coefficients, from H0 or a uniform start; blocks of samples are shared out among the threads."""
        reason = self.why_not(problem.divergence, problem.penalty, problem.X.masked) or self.why_not_on(problem.box)
        if reason is not None:
            raise ValueError(reason)
        posed = self._prepared(problem)
        found = self._solve_by_blocks(posed, self._start(posed, H0))
        problem.proved_slopes = found.slopes
        if problem.upper_bounds is None:
            return found
        return replace(found, H=np.minimum(found.H, problem.upper_bounds), Y=None, loss=None)

    def _prepared(self, problem: Problem) -> Problem:
        """Return the problem in the form that the solver prefers."""
        return problem

    def _start(self, problem: Problem, H0: Array | None) -> Array:
        """Return coefficients to begin with, in the box."""
        return problem.start(H0)

    def _solve_by_blocks(self, problem: Problem, H: Array) -> Coefficients:
        rows = problem.blocks()
        if len(rows) == 1:
            return self._solve(problem, H)
        found = threads.each(lambda some: self._solve(problem.rows(some), H[some].copy()), rows)
        columns = {name: [getattr(part, name) for part in found] for name in vars(found[0])}
        return Coefficients(
            **{name: np.concatenate(each) for name, each in columns.items() if all(a is not None for a in each)}
        )

    @abstractmethod
    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        """Solve from the start H, a fresh array that may be overwritten."""


@lru_cache(maxsize=64)  # it is asked for with every batch
def _stopping(solver: CoefficientSolver, tol: float, max_iter: int) -> CoefficientSolver:
    return replace(solver, tol=tol, max_iter=max_iter)


class Iteration(ABC):
    """The state of an iteration: every array among the attributes has one row per sample that still takes part."""

    def __init__(self, H: Array) -> None:
        self.H, self.done = H, np.zeros(len(H), dtype=bool)  # done: found to have converged

    def test(self, k: int) -> Mask:
        """Return which samples have converged after k steps; after the last step, costly tests are left out."""
        return self.done

    @abstractmethod
    def step(self) -> Mask:
        """Make a step, and return which samples get no further."""

    def answers(self) -> Array:
        """Return the coefficients as they are now."""
        return self.H

    def slopes(self) -> Array | None:
        """Return the slopes in the fits that belong to the answers, where they are more than derivatives."""
        return None

    def nobody(self) -> Mask:
        """Return a mask of no sample at all."""
        return np.zeros(len(self.H), dtype=bool)

    def keep(self, stay: Mask) -> None:
        """Continue with some of the samples."""
        state: dict[str, Any] = vars(self)
        state.update({name: self._part(name, a, stay) for name, a in state.items() if isinstance(a, np.ndarray)})

    def _part(self, name: str, array: Array, stay: Mask) -> Array:
        return array[stay]


class Descent(Iteration):
    """The iterates of a problem; fits Y and curvatures have the rows that the problem gives them."""

    def __init__(self, problem: Problem, H: Array) -> None:
        super().__init__(H)
        self.problem = problem

    def keep(self, stay: Mask) -> None:
        super().keep(stay)
        self.problem = self.problem.rows(stay)

    def _part(self, name: str, array: Array, stay: Mask) -> Array:
        return self.problem.rows_of(array, stay) if name in ("Y", "curvatures") else array[stay]


def iterate(iteration: Iteration, max_iter: int) -> Coefficients:
    """Test and step until every sample has converged, or gets no further, or has made ``max_iter`` steps."""
    n, first = len(iteration.H), iteration.slopes()
    found = replace(
        Coefficients.untested(np.empty_like(iteration.H), max_iter), slopes=None if first is None else first.copy()
    )
    active = np.arange(n)

    def write(rows: Any, some: Any) -> None:
        found.H[rows] = iteration.answers()[some]
        if found.slopes is not None:
            found.slopes[rows] = cast(Array, iteration.slopes())[some]

    def retire(leaving: Mask, iterations: int, converged: bool) -> bool:
        """Write down the answers of some samples, and return whether any is left."""
        nonlocal active
        if np.count_nonzero(leaving):
            rows, stay = active[leaving], ~leaving
            write(rows, leaving)
            found.iterations[rows], found.converged[rows] = iterations, converged
            active = active[stay]
            if active.size:
                iteration.keep(stay)
        return bool(active.size)

    for k in range(max_iter):
        if not retire(iteration.test(k), k, True) or not retire(iteration.step(), k + 1, False):
            return found
    if active.size == n:  # the usual end of a few steps
        return Coefficients(iteration.answers(), found.iterations, iteration.done, slopes=iteration.slopes())
    write(active, slice(None))
    found.converged[active] = iteration.done
    return found
