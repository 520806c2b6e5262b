"""Least absolute deviations with coefficients on the simplex: the interior-point method with an equality."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf.coefficients.interior_point import LIFT, Scaled, Steps
from onmf.coefficients.problem import Problem, packed_diagonal
from onmf.model.sets import Simplex


class ScaledOnSimplex(Scaled):
    """The same on the simplex: one unit for all atoms, so that the q of a sample sum to one number, ``total``."""

    def __init__(self, problem: Problem, W: Array, tol: float) -> None:
        self.box, self.l2, self.priced = problem.box, problem.penalty.l2, problem.penalty.linear
        self.tol = tol
        self.mean = np.full(len(W), W.mean(), dtype=W.dtype)
        self.W = np.ascontiguousarray(W / self.mean[:, None])
        self.Wt = np.ascontiguousarray(self.W.T)
        self.mass = self.W.sum(axis=1)

    def steps(self, X: Array, H: Array, limit: Array, prices: Array, weights: Array | None) -> Steps:
        return StepsOnSimplex(self, X, H, limit, prices, weights)


class StepsOnSimplex(Steps):
    """The equality borders the systems; bounds of twice the total are never met, and any a proves something."""

    def _unit(self, scaled: Scaled, X: Array) -> Array:
        """Samples may be far darker than any fit."""
        free = scaled.box.free(len(scaled.W)) if isinstance(scaled.box, Simplex) else 1.0
        unit = np.maximum(super()._unit(scaled, X), free * scaled.mean[0])
        self.total = (free * scaled.mean[0] / unit).astype(X.dtype)
        return unit

    def _tops(self) -> tuple[Array, Mask]:
        top = np.repeat(2 * self.total, len(self.scaled.W), axis=1)
        return top, np.zeros(top.shape, dtype=bool)

    def _inside(self) -> Array:
        return (1 - LIFT) * self.found + LIFT * self.total / self.found.shape[1]

    def _assess(self, fit: Array) -> Mask:
        """As in the other solvers, a gap of tol times the objective is enough, too."""
        stuck = super()._assess(fit)
        self.done |= self.gap <= self.scaled.tol * self.best
        return stuck & ~self.done

    def _proof(self, c: Array, dual: Array) -> Array:
        """A ridge is above its tangent at q, and what is linear has its minimum at a corner."""
        q = self.bounds[:, 0]
        pull = self.l2 * (q + self.low)
        tangent = (pull * (0.5 * (q + self.low) - q)).sum(axis=1)
        if self.scaled.priced:
            pull = pull + self.price
        return dual + tangent - self.total[:, 0] * (c - pull).max(axis=1)

    def _hessians(self, weights: Array) -> Array:
        """With a multiple of the matrix of ones, whose product with dq is known.

        Near the minimum the direction in which all coefficients grow may be the only one without much curvature, and
        the two solutions below would lose all digits to it.
        """
        M = super()._hessians(weights)
        M += M[:, packed_diagonal(len(self.scaled.W))].mean(axis=1, keepdims=True)
        return M

    def _solve_factored(self, M: Array, dq: Array) -> None:
        """M dq = b + nu with the nu for which q + dq sums to the total."""
        super()._solve_factored(M, dq)
        ones = np.ones_like(dq)
        super()._solve_factored(M, ones)
        missing = self.total[:, 0] - (self.bounds[:, 0] + dq).sum(axis=1)
        dq += (missing / ones.sum(axis=1))[:, None] * ones

    def _feasible(self, q: Array) -> Array:
        return q * (self.total / q.sum(axis=1, keepdims=True))
