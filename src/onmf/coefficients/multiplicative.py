"""Multiplicative steps for the coefficients: cheap, never worse, and at O(nnz K) on sparse data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients import kernels
from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.coefficients.problem import Problem, multiplicative_parts, takes_sparse
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box, Simplex

ON_SIMPLEX = 5  # steps of Newton's method
ENOUGH = 6e5  # work of a thread at a time, in products


@dataclass(frozen=True)
class Multiplicative(CoefficientSolver, name="multiplicative"):
    """h <- h o factor(P W' / (N W' + p / c)), with the parts and the factor of the divergence.

    p is the derivative of the penalty and c the number with d/dy = c (N - P). l2 pulls the stronger, the larger the
    coefficient: its share of the denominator shortens the step, which otherwise might oscillate.

    ``max_iter`` steps are made, and nothing is tested.
    """

    uses_tol: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    max_iter: int = 10

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = f"Multiplicative takes no penalty under {divergence.name} with its parameter; use newton."
        return reason if penalty and divergence.multiplicative_slope is None else None

    def takes_sparse(self, divergence: Divergence, masked: bool = False) -> bool:
        """Return True for the alpha family with alpha > 0, untested; masked samples count by their entries alone."""
        return takes_sparse(divergence, True) if masked else divergence.alpha_order is not None

    def _solve_by_blocks(self, problem: Problem, H: Array) -> Coefficients:
        order = problem.divergence.alpha_order
        if not problem.X.omits_zeros or order is None:
            return super()._solve_by_blocks(problem, H)
        H, box, fits = np.ascontiguousarray(H), problem.box, np.empty_like(problem.X.values)
        arrays = problem.X.matrix, H, problem.Wt, np.atleast_2d(problem.mass), order * problem.l1[:, 0], fits
        numbers = order, order * problem.penalty.l2, box.low, box.high, self.max_iter
        threads.each(
            lambda rows: kernels.multiplicative.multiplicative_steps(*arrays, *numbers, rows.start, rows.stop),
            threads.by_work(len(H), fits.size / max(len(H), 1) * problem.K * self.max_iter, ENOUGH),
        )
        if problem.upper_bounds is not None:  # with which the fits are others
            return Coefficients.untested(np.minimum(H, problem.upper_bounds), self.max_iter)
        return replace(Coefficients.untested(H, self.max_iter), Y=fits)

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        return Coefficients.untested(self.improved(problem, H), self.max_iter)

    def improved(self, problem: Problem, H: Array) -> Array:
        """Make all steps from H for all samples, in the calling thread: a start for another solver."""
        for _ in range(self.max_iter):
            H = stepped(problem, H)
        return H if problem.upper_bounds is None else np.minimum(H, problem.upper_bounds)


def stepped(problem: Problem, H: Array) -> Array:
    """Return H after one step."""
    divergence = problem.divergence
    P, N = multiplicative_parts(divergence, problem.X, np.maximum(problem.fit(H), TINY))
    above = problem.gathered(P)
    below = problem.mass if N is None else problem.gathered(N)
    if problem.penalty:
        factor = penalised_factor(divergence, above, below, H, problem.l1, problem.penalty.l2)
    else:
        factor = divergence.multiplicative_factor(above / np.maximum(below, TINY))
    return problem.box.project(H * factor)


def penalised_factor(
    divergence: Divergence, above: Array, below: Array, M: Array, l1: Array | float, l2: float
) -> Array:
    """Return the factor of the update of M, coefficients or weights, whose penalty is l1 ||M||_1 + (l2 / 2) ||M||^2."""
    slope, exponent = divergence.multiplicative_slope or 1.0, 1.0 / (divergence.alpha_order or 1.0)
    below = np.maximum(below + (l2 * M + l1) / slope, TINY)
    factor = divergence.multiplicative_factor(above / below)
    return factor ** (below / (below + l2 * M * (exponent / slope)))


@dataclass(frozen=True)
class Ratios(CoefficientSolver, name="ratios"):
    """Coefficients under Itakura-Saito, near enough to a minimum for learning; nothing is tested.

    The loss is not convex in h, and has more than one minimum for some samples. Two ways to one of them are tried, and
    the better is kept for each sample: a fixed number of multiplicative steps, which win on spectrograms, and least
    squares with all features brought to the same size, which win where there is little noise. For other losses of
    ratios this is a start.
    """

    uses_tol: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    max_iter: int = 10

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = f"Ratios cannot solve {divergence.name}: its steps are those of is; use newton."
        return None if divergence.sees_ratios and not masked else reason

    def within(self, box: Box | Simplex) -> CoefficientSolver:
        """Return few steps of Newton's method for the simplex."""
        from onmf.coefficients.newton import Newton  # which begins with these steps

        return Newton(max_iter=ON_SIMPLEX) if isinstance(box, Simplex) else self

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        H, Y, objective = better_of_two(problem, H, self.max_iter)
        found = Coefficients.untested(H, self.max_iter)
        return Coefficients(H, found.iterations, found.converged, Y, None if problem.penalty else objective)


def better_of_two(problem: Problem, H: Array, steps: int) -> tuple[Array, Array, Array]:
    """Return for each sample the better of ``steps`` multiplicative steps from H and scaled least squares.

    Fits and objectives come along.
    """
    X, W, project, penalty = problem.X.matrix, problem.W, problem.box.project, problem.penalty

    def multiplicative(rows: slice) -> Array:
        x, h = X[rows], H[rows]
        for _ in range(steps):
            inverse = 1.0 / np.maximum(h @ W, TINY)
            above, below = (x * np.square(inverse)) @ W.T, inverse @ W.T
            if penalty:
                below += penalty.gradient(h, problem.l1[rows])
            factor = above / below
            if penalty.l2:  # whose share of the denominator shortens the step: see Multiplicative
                factor **= below / (below + 2 * penalty.l2 * h)
            h = project(h * factor)
        return h

    first = np.concatenate(threads.each(multiplicative, threads.by_work(len(X), X.shape[1] * len(W), 4e5)))
    g = typical_size(W)
    V = W / g
    second = project(kernels.gram.nnls_on_gram(V @ V.T, (X / g) @ V.T, lift=1e-6))
    second = project(second * (X / np.maximum(second @ W, TINY)).mean(axis=1, keepdims=True))
    fits = first @ W, second @ W
    values = problem.objective(first, fits[0]), problem.objective(second, fits[1])
    better = values[0] <= values[1]
    chosen = better[:, None]
    return np.where(chosen, first, second), np.where(chosen, *fits), np.where(better, *values)


def typical_size(W: Array) -> Array:
    """Return the size of each feature: the geometric mean of its components' weights."""
    return np.exp(np.log(np.maximum(W, 1e-6)).mean(axis=0))
