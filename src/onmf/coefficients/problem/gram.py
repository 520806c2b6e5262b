"""Least squares on the Gram matrix of the atoms."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients.problem.base import Problem


class GramProblem(Problem):
    """A quadratic loss as h Q h' / 2 - b h' + d(x || 0) with Q = WAW' and b = xAW': hQ stands for the fit.

    The samples, dense or sparse, are touched once. The loss of a nearly exact fit loses digits to cancellation.
    """

    def _prepare(self) -> None:
        self.AW = -self.divergence.grad(self.W, np.zeros_like(self.W))  # the rows A w_k
        Q = self.AW @ self.W.T
        self.Q = 0.5 * (Q + Q.T)

    @cached_property
    def products(self) -> Array:
        """The rows b."""
        return np.asarray(self.X @ self.AW.T)

    def blocks(self) -> list[slice]:
        """Large ones: what takes long, the active sets, is shared out among the threads anyway."""
        n = self.n
        entries = self.X.nnz / max(n, 1) if scipy.sparse.issparse(self.X) else self.X.shape[1]
        return threads.by_work(n, float(entries) * self.K, 3e6)

    def penalised(self) -> tuple[Array, Array]:
        """Q and the rows b of the whole objective."""
        Q = self.Q + self.penalty.l2 * np.eye(self.K, dtype=self.Q.dtype) if self.penalty.l2 else self.Q
        return Q, self.products - self.prices if self.penalty.priced else self.products

    def fit(self, H: Array) -> Array:
        return H @ self.Q

    def loss(self, H: Array, Y: Array) -> Array:
        """d(x || 0) is d(x || 2x) here; what rounding takes below zero is zero."""
        return np.maximum(self.scale + (H * (0.5 * Y - self.products)).sum(axis=1), 0)

    def _slope(self, H: Array, Y: Array) -> Array:
        return Y - self.products

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        return Y - self.products, np.ones((len(Y), 1), dtype=Y.dtype)

    def _hessians(self, curvatures: Array) -> Array:
        return curvatures * self.Q[np.triu_indices(self.K)]


def least_squares(problem: Problem) -> GramProblem | None:
    """A quadratic problem with the same solution, if there is one."""
    quadratic = problem.divergence.least_squares
    if isinstance(problem, GramProblem):
        return problem
    if quadratic is None or (problem.penalty and not problem.divergence.quadratic):
        return None
    return GramProblem(quadratic, problem.X, problem.W, problem.box, problem.penalty)
