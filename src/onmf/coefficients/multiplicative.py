"""Multiplicative steps for the coefficients: cheap, never worse, and at O(nnz K) on sparse data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Mask
from onmf._support.checks import require_whole
from onmf.coefficients.base import Coefficients, CoefficientSolver, Descent, iterate
from onmf.coefficients.problem import Problem, multiplicative_parts, takes_sparse
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.model.penalty import NO_PENALTY, Penalty


@dataclass(frozen=True)
class Multiplicative(CoefficientSolver, name="multiplicative"):
    """h <- h o factor(P W' / (N W' + p / c)), with the parts and the factor of the divergence.

    p is the derivative of the penalty and c the number with d/dy = c (N - P). l2 pulls the stronger, the larger the
    coefficient: its share of the denominator shortens the step, which otherwise might oscillate.

    ``max_iter`` steps are made, or fewer with ``every`` > 0: every so many steps the samples leave whose objective has
    fallen by less than ``tol`` of itself.
    """

    uses_tol: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    max_iter: int = 10
    every: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(0, every=self.every)

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = f"Multiplicative takes no penalty under {divergence.name} with its parameter; use newton."
        return reason if penalty and divergence.multiplicative_slope is None else None

    def takes_sparse(self, divergence: Divergence, masked: bool = False) -> bool:
        """Those of the alpha family with alpha > 0, untested; masked samples by their entries alone."""
        return takes_sparse(divergence, True) if masked else divergence.alpha_order is not None and not self.every

    def _solve_by_blocks(self, problem: Problem, H: Array) -> Coefficients:
        order = problem.divergence.alpha_order
        if not problem.X.sparse or problem.X.masked or order is None:
            return super()._solve_by_blocks(problem, H)
        from onmf.coefficients.kernels.multiplicative import multiplicative_steps

        H, box = np.ascontiguousarray(H), problem.box
        arrays = problem.X.matrix, H, problem.Wt, problem.mass, order * problem.l1[:, 0]
        numbers = order, order * problem.penalty.l2, box.low, box.high, self.max_iter
        threads.each(lambda rows: multiplicative_steps(*arrays, *numbers, rows.start, rows.stop), problem.blocks())
        return Coefficients.untested(H, self.max_iter)

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        return iterate(_Steps(self, problem, H), self.max_iter)

    def improved(self, problem: Problem, H: Array) -> Array:
        """All steps from H for all samples, in the calling thread: a start for another solver."""
        for _ in range(self.max_iter):
            H = stepped(problem, H)
        return H if problem.most is None else np.minimum(H, problem.most)


class _Steps(Descent):
    def __init__(self, solver: Multiplicative, problem: Problem, H: Array) -> None:
        super().__init__(problem, H)
        self.tol, self.every, self.number = solver.tol, solver.every, 0
        self.objective: Array | None = None  # when it was tested last

    def step(self) -> Mask:
        problem = self.problem
        self.H = stepped(problem, self.H)
        self.number += 1
        if self.every and self.number % self.every == 0:
            before, self.objective = self.objective, problem.objective(self.H, _fit(problem, self.H))
            if before is not None:
                self.done = before - self.objective <= self.tol * before
        return self.nobody()


def stepped(problem: Problem, H: Array) -> Array:
    """One step from H."""
    divergence = problem.divergence
    P, N = multiplicative_parts(divergence, problem.X, _fit(problem, H))
    above = problem.gathered(P)
    below = problem.mass if N is None else problem.gathered(N)
    if problem.penalty:
        factor = penalised_factor(divergence, above, below, H, problem.l1, problem.penalty.l2)
    else:
        factor = divergence.multiplicative_factor(above / np.maximum(below, TINY))
    return problem.box.project(H * factor)


def _fit(problem: Problem, H: Array) -> Array:
    return np.maximum(problem.fit(H), TINY)


def penalised_factor(
    divergence: Divergence, above: Array, below: Array, M: Array, l1: Array | float, l2: float
) -> Array:
    """The factor of the update of M, coefficients or weights, whose penalty is l1 ||M||_1 + (l2 / 2) ||M||^2."""
    slope, exponent = divergence.multiplicative_slope or 1.0, 1.0 / (divergence.alpha_order or 1.0)
    below = np.maximum(below + (l2 * M + l1) / slope, TINY)
    factor = divergence.multiplicative_factor(above / below)
    return factor ** (below / (below + l2 * M * (exponent / slope)))
