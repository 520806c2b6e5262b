"""Coordinate descent for the coefficients of sparse samples, at O(nnz K) a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients import kernels
from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.coefficients.newton import Newton
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box, Simplex
from onmf.samples import Samples

MANY, FEW = 60, 8  # sweeps, and those with a power that takes far longer than a division
CHEAP_POWERS = (0.5, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class CoordinateDescent(CoefficientSolver, name="coordinate"):
    """Newton's step in one coefficient after the other, at the stored entries; no sample's objective ever rises.

    The steps and the test are in ``kernels.coordinate_descent``. Where components are so much alike that many sweeps do
    not suffice, Newton's method takes over.
    """

    shares: ClassVar[bool] = False
    max_iter: int = 50

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = f"CoordinateDescent cannot solve {divergence.name}: its steps are those of alpha > 0; use newton."
        return reason if divergence.alpha_order is None else None

    def within(self, box: Box | Simplex) -> CoefficientSolver:
        """Return Newton's method for the simplex, on which no coefficient moves alone."""
        return Newton(self.tol, self.max_iter) if isinstance(box, Simplex) else self

    def takes_sparse(self, divergence: Divergence, masked: bool = False) -> bool:
        return True

    def _prepared(self, problem: Problem) -> Problem:
        if problem.X.sparse:
            return problem
        return Problem(problem.divergence, problem.X.sparsified(), problem.W, problem.box, problem.penalty)

    def _start(self, problem: Problem, H0: Array | None) -> Array:
        """Return H0, or a start of the mass of the sample, more of it in components that are like the sample."""
        if H0 is None:
            alike = problem.gathered(problem.X.products.data)
            carried = problem.carried(alike)
            H0 = alike * (problem.totals / np.where(carried > 0, carried, 1.0))[:, None]
        return np.ascontiguousarray(problem.start(H0))

    def _solve_by_blocks(self, problem: Problem, H: Array) -> Coefficients:
        return self._solve(problem, H)  # the kernel takes blocks of rows

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        order, penalty, box = problem.divergence.alpha_order or 1.0, problem.penalty, problem.box
        n, sweeps = problem.n, min(self.max_iter, MANY if order in CHEAP_POWERS else FEW)
        high = (
            np.full((1, problem.K), box.high)
            if problem.upper_bounds is None
            else np.minimum(problem.upper_bounds, box.high)
        )
        high = high.astype(H.dtype)
        H = np.minimum(H, high)
        found = Coefficients(H, np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool))
        mass = np.atleast_2d(problem.mass + order * problem.l1 if penalty else problem.mass)
        limits = high, problem.reach, order * problem.tolerance(self.tol), order * problem.noise
        arrays = by_weight(problem.X, order), H, problem.Wt, mass, *limits, found.iterations, found.converged
        numbers = order, order * penalty.l2, box.low, sweeps
        descend = kernels.coordinate_descent.coordinate_descent
        threads.each(lambda rows: descend(*arrays, *numbers, rows.start, rows.stop), problem.blocks())
        return found if sweeps == self.max_iter else Newton(self.tol, self.max_iter - sweeps).finish(problem, found)


def by_weight(X: Samples, order: float) -> Any:
    """Return sparse X with the weights of its entries in them: w (x / y)^order = (w^(1 / order) x / y)^order."""
    return X.matrix if X.entry_weight is None else X.like(X.values * X.entry_weight ** (1 / order))
