"""Least absolute deviations by a primal-dual interior-point method, for all samples of a block side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf.coefficients.base import Coefficients, CoefficientSolver, Work, iterate
from onmf.divergences import Divergence
from onmf.problem import NO_PENALTY, Penalty, Problem, weighted_grams
from onmf.sets import Simplex

ENTRIES = 1 << 15  # residuals per block: a dozen arrays of this size stay in the cache
FEWEST = 32  # samples per block, to keep the matrix products efficient
CEILING = 4.0  # see Scaled
LIFT = 0.1  # how far inside the bounds the start lies, relative to a uniform coefficient
PATIENCE = 10  # iterations without progress after which rounding is to blame


@dataclass(frozen=True)
class InteriorPoint(CoefficientSolver, name="interior-point"):
    """Mehrotra's predictor-corrector for min sum_f |x_f - (hW)_f| + (m/2) ||h||^2 over the box: l1 with a proof.

    The dual problem has a variable a_f in [-1, 1] for every feature, and any such a bounds the minimum from below by

        sum_f a_f x_f + min over h in the box of (m/2) ||h||^2 - sum_k (Wa)_k h_k,

    a formula. A sample is converged when the loss at h exceeds the best such bound by tol * d(x || 2x) at most; unlike
    the other solvers' test, this assumes nothing about where the minimum is. A step costs one matrix product for all
    Hessians of a block, sum_f d_f w_f w_f' as for Newton's method, and one Cholesky factor per sample. Four to seven
    steps prove a tol of 10^-3, eight to twelve one of 10^-8; single precision suffices for 10^-4, mostly for 10^-5.

    A good H0 saves a step, and the answer is never worse than it. Where several h are best, the answer is among their
    middle ones. docs/decisions/0005-l1-coefficients.md has the measurements.
    """

    max_iter: int = 50

    def refuses(self, divergence: Divergence, penalty: Penalty = NO_PENALTY) -> str | None:
        if not divergence.absolute_deviations:
            return f"InteriorPoint refuses {divergence.name}: it is made for l1 alone; use armijo."
        return "InteriorPoint refuses a lasso: its proof knows a ridge alone; use polyak." if penalty.lasso else None

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        limit, low = problem.tolerance(self.tol), problem.box.low
        W = np.ascontiguousarray(problem.W)  # the sums below depend on the order in memory, by rounding
        start, n = H, len(H)
        found = Coefficients(np.full_like(H, low), np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool))
        # What the lower bounds explain is subtracted. Where nothing is left they are the answer, as for atoms of zeros.
        X = problem.X - H.dtype.type(low) * W.sum(axis=0)
        rows, atoms = np.flatnonzero((X > 0).any(axis=1)), np.flatnonzero(W.any(axis=1))
        kind: type[Scaled] = Scaled
        if isinstance(problem.box, Simplex):  # nothing else may have what these leave
            from onmf.coefficients.interior_simplex import ScaledOnSimplex  # which derives from what is here

            rows, atoms, kind = np.arange(n), np.arange(len(W)), ScaledOnSimplex
        if atoms.size:
            scaled = kind(problem, W[atoms], self.tol)
            size = max(FEWEST, ENTRIES // X.shape[1])
            for first in range(0, rows.size, size):
                block = rows[first : first + size]
                where = np.ix_(block, atoms)
                with np.errstate(over="ignore", invalid="ignore"):  # a sample whose steps overflow gets no further
                    part = iterate(scaled.steps(X[block], start[where], limit[block]), self.max_iter)
                found.H[where] = part.H
                found.iterations[block], found.converged[block] = part.iterations, part.converged
        return Coefficients(problem.box.project(found.H), found.iterations, found.converged)


class Scaled:
    """The problem in units of its own: atoms of mean 1, samples of mean 1, coefficients q that begin at zero.

    No minimum has a coefficient above 2: sum_f (qW)_f <= sum |x - qW| + sum |x| <= 2 sum |x|; and the ridge of none is
    above sum |x| = F, what it saves at most. Bounds of twice that change nothing, and make any a prove something.
    """

    def __init__(self, problem: Problem, W: Array, tol: float) -> None:
        self.box, self.ridge, self.tol = problem.box, problem.penalty.ridge, tol
        self.mean = W.mean(axis=1)
        self.W = np.ascontiguousarray(W / self.mean[:, None])
        self.Wt = np.ascontiguousarray(self.W.T)
        self.mass = self.W.sum(axis=1)

    def steps(self, X: Array, H: Array, limit: Array) -> Steps:
        """The iterates from H."""
        return Steps(self, X, H, limit)


class Steps(Work):
    """The iterates of some samples; ``onmf.kernels.interior`` says what ``state``, ``bounds`` and ``work`` hold."""

    def __init__(self, scaled: Scaled, X: Array, H: Array, limit: Array) -> None:
        dtype = X.dtype
        n, F = X.shape
        box, mean = scaled.box, scaled.mean
        unit = self._unit(scaled, X)
        super().__init__(H)
        self.scaled = scaled
        self.X, self.unit, self.limit = X / unit, unit, limit / unit[:, 0]
        with np.errstate(over="ignore"):
            self.ridge = np.minimum(scaled.ridge * unit / mean / mean, 1e30)
            self.top, self.boxed = self._tops()
        self.low = box.low * mean / unit
        # The best point so far and the best bound from below; no loss is negative.
        q = (H - box.low) * mean / unit
        beyond = (q > 1.001 * self.top).any(axis=1, keepdims=True)  # no better than zeros
        self.found = np.where(beyond, 0.0, np.minimum(q, self.top)).astype(dtype)
        self.best = self.first = self._objective(self.found)
        self.proved = np.zeros(n, dtype=dtype)
        self.gap = np.full(n, np.inf, dtype=dtype)
        self.idle = np.zeros(n, dtype=np.int64)

        q = self._inside()
        p = self.top - q
        fit: Array = q @ scaled.W
        R = self.X - fit
        size = np.abs(R).mean(axis=1, keepdims=True) + np.finfo(dtype).eps
        a = 0.5 * R / (np.abs(R) + size)
        v = 0.5 * size / p
        z = np.maximum(self.ridge * (q + self.low) - a @ scaled.Wt + v, 0.5 * size / q)
        self.state = np.stack([np.maximum(R, 0.0) + size, np.maximum(-R, 0.0) + size, 1.0 - a, 1.0 + a], axis=1)
        self.bounds = np.stack([q, p, z, v], axis=1)
        self.work = np.empty((5, n, F), dtype=dtype)
        self._assess(fit)

    def _unit(self, scaled: Scaled, X: Array) -> Array:
        """That of the samples, (n, 1)."""
        unit: Array = np.abs(X).mean(axis=1, keepdims=True)
        return unit

    def _tops(self) -> tuple[Array, Mask]:
        """The upper bounds, and whether these are those of the box."""
        scaled, F = self.scaled, self.X.shape[1]
        top = (scaled.box.high - scaled.box.low) * (scaled.mean / self.unit)
        ceiling = np.minimum(2 * np.sqrt(2 * F / np.maximum(self.ridge, np.finfo(self.X.dtype).tiny)), CEILING)
        return np.minimum(top, ceiling), top <= ceiling

    def _inside(self) -> Array:
        """Coefficients to begin with, between the bounds."""
        return np.minimum(np.maximum(self.found, LIFT / self.found.shape[1]), 0.5 * self.top)

    def _assess(self, fit: Array) -> Mask:
        """Find out which samples are proved to be within their limit; which of the others get no further?"""
        from onmf.kernels.interior import measure

        q = self.bounds[:, 0]
        deviations, dual = sums = np.empty((2, len(q)), dtype=q.dtype)
        measure(self.X, fit, self.state, self.work, sums)
        value = self._with_ridge(q, deviations)
        better = value < self.best
        self.best = np.where(better, value, self.best)
        self.found[better] = q[better]
        self.proved = np.fmax(self.proved, self._proof(fit @ self.scaled.Wt, dual))  # a is in the place of the fit
        gap = self.best - self.proved + 2 * np.finfo(q.dtype).eps * self.best
        self.idle = np.where(gap <= 0.9 * self.gap, 0, self.idle + 1)
        self.gap = np.minimum(gap, self.gap)
        self.done = gap <= self.limit
        return ~self.done & ((self.idle >= PATIENCE) | ~np.isfinite(value))

    def _proof(self, c: Array, dual: Array) -> Array:
        """What a proves, with c = Wa and the sum of a x."""
        mass = self.scaled.mass
        # A c that is a little too large for rounding costs as much as q may grow; (a - e) / (1 + e) is cheaper.
        e = (np.maximum(c - self.ridge * (self.bounds[:, 0] + self.low), 0.0) / mass).max(axis=1)
        mended = self._bound((c - e[:, None] * mass) / (1 + e[:, None]), (dual - e * self.X.sum(axis=1)) / (1 + e))
        return np.fmax(self._bound(c, dual), mended)

    def step(self) -> Mask:
        """One predictor-corrector step for all samples."""
        from onmf.kernels.interior import advance, factor, predict

        scaled, state, bounds, work = self.scaled, self.state, self.bounds, self.work
        joint = scaled.ridge > 0  # steps of two lengths suit linear programmes only
        pull = self.ridge * (bounds[:, 0] + self.low)
        M = self._hessians(work[1])
        numbers = np.finfo(M.dtype)
        factor(M, bounds, self.ridge, 10 * float(numbers.eps))
        dq = work[2] @ scaled.Wt - pull
        self._solve_factored(M, dq)
        P = dq @ scaled.W
        extra = np.empty((len(dq), 2, dq.shape[1]), dtype=dq.dtype)
        predict(P, work, state, bounds, dq, extra, joint)
        dq = P @ scaled.Wt - pull + extra[:, 0] - extra[:, 1]
        self._solve_factored(M, dq)
        least = float(numbers.tiny) ** 0.5  # products of two such numbers do not vanish
        advance(dq @ scaled.W, work, state, bounds, dq, extra, joint, least)
        bounds[:, 0] = self._feasible(bounds[:, 0])
        return self._assess(bounds[:, 0] @ scaled.W)

    def _hessians(self, weights: Array) -> Array:
        """Of the deviations, packed."""
        return weighted_grams(weights, self.scaled.W)

    def _solve_factored(self, M: Array, dq: Array) -> None:
        """Solve the systems M for the right-hand sides dq, in place."""
        from onmf.kernels.interior import solve_factored

        solve_factored(M, dq)

    def answers(self) -> Array:
        """The coefficients, exactly at a bound where the multipliers would have them and it costs next to nothing."""
        q, F = self.found, self.X.shape[1]
        high = (self.bounds[:, 3] > F * (self.top - q)) & self.boxed
        exact = np.where(high, self.top, np.where(self.bounds[:, 2] > F * q, 0.0, q)).astype(q.dtype)
        exact = self._feasible(exact)
        gap = self.best - self.proved
        room = np.clip(self.limit - gap, 0.0, np.minimum(0.1 * gap, self.first - self.best))
        good = (self._objective(exact) <= self.best + room)[:, None]
        q = np.where(good, exact, q)
        box = self.scaled.box
        H = box.low + q * (self.unit / self.scaled.mean)
        return np.where(high & good, box.high, H).astype(q.dtype)

    def _feasible(self, q: Array) -> Array:
        """Coefficients within their bounds, in their set."""
        return q

    def _part(self, name: str, array: Array, stay: Mask) -> Array:
        return np.ascontiguousarray(array[:, stay]) if name == "work" else array[stay]

    def _objective(self, q: Array) -> Array:
        return self._with_ridge(q, np.abs(self.X - q @ self.scaled.W).sum(axis=1))

    def _with_ridge(self, q: Array, deviations: Array) -> Array:
        if not self.scaled.ridge:
            return deviations
        return deviations + 0.5 * (self.ridge * np.square(q + self.low)).sum(axis=1)

    def _bound(self, c: Array, dual: Array) -> Array:
        """sum a x + min over q of (m/2) (q + low)^2 - c q."""
        if not self.scaled.ridge:
            return dual - (np.maximum(c, 0.0) * self.top).sum(axis=1)
        q = np.clip(c / np.maximum(self.ridge, np.finfo(c.dtype).tiny) - self.low, 0.0, self.top)
        return dual + (0.5 * self.ridge * np.square(q + self.low) - c * q).sum(axis=1)
