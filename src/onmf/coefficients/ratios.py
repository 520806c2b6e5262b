"""Coefficients under Itakura-Saito, near enough to a minimum for learning.

The loss is not convex in h, and has more than one minimum for some samples. Two ways to one of them are tried, and the
better is kept for each sample: multiplicative steps, which win on spectrograms, and least squares with all features
brought to the same size, which win where there is little noise. For other losses of ratios this is a start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box, Simplex

ON_SIMPLEX = 5  # steps of Newton's method


@dataclass(frozen=True)
class Ratios(CoefficientSolver, name="ratios"):
    """A fixed number of multiplicative steps, or scaled least squares; nothing is tested."""

    uses_tol: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    max_iter: int = 10

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = f"Ratios cannot solve {divergence.name}: its steps are those of is; use newton."
        return None if divergence.sees_ratios and not masked else reason

    def within(self, box: Box | Simplex) -> CoefficientSolver:
        """Few steps of Newton's method on the simplex."""
        from onmf.coefficients.newton import Newton  # which begins with what is here

        return Newton(max_iter=ON_SIMPLEX) if isinstance(box, Simplex) else self

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        return Coefficients.untested(better_of_two(problem, H, self.max_iter), self.max_iter)


def better_of_two(problem: Problem, H: Array, steps: int) -> Array:
    """Per sample the better of ``steps`` multiplicative steps from H and scaled least squares."""
    from onmf.coefficients.kernels.gram import nnls_on_gram

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
    second = nnls_on_gram(V @ V.T, (X / g) @ V.T)
    second = project(np.maximum(second, 1e-6 * second.mean(axis=1, keepdims=True)))
    second = project(second * (X / np.maximum(second @ W, TINY)).mean(axis=1, keepdims=True))
    better = problem.objective(first, first @ W) <= problem.objective(second, second @ W)
    return np.where(better[:, None], first, second)


def typical_size(W: Array) -> Array:
    """Of each feature, by its components: their geometric mean."""
    return np.exp(np.log(np.maximum(W, 1e-6)).mean(axis=0))
