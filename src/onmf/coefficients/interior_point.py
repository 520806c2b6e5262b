"""Least absolute deviations by a primal-dual interior-point method, for all samples of a block side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array, Counts, Mask
from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.divergences import L1, Divergence
from onmf.problem import DenseFits

ENTRIES = 1 << 15  # residuals of one block: its dozen arrays of this size stay in the cache
FEWEST = 32  # samples of one block, for the matrix products' sake
CEILING = 4.0  # see _Scaled
LIFT = 0.1  # how far inside the bounds the start is, in parts of a uniform coefficient
PATIENCE = 10  # iterations without progress until rounding is to blame


@dataclass(frozen=True)
class InteriorPoint(CoefficientSolver):
    """Mehrotra's predictor-corrector for min sum_f |x_f - (hW)_f| + (m/2) ||h||^2 over the box: l1 with a proof.

    The dual problem has a variable a_f in [-1, 1] for every feature, and any such a bounds the minimum from below by

        sum_f a_f x_f + min over h in the box of (m/2) ||h||^2 - sum_k (Wa)_k h_k,

    a formula. A sample is converged when the loss at h exceeds the best such bound by tol * d(x || 2x) at most; unlike
    the other solvers' test this supposes nothing about where the minimum is. A step costs one matrix product for all
    Hessians of a block, sum_f d_f w_f w_f' as for Newton's method, and one Cholesky factor a sample. Four to seven
    steps prove a tol of 10^-3, eight to twelve one of 10^-8; single precision suffices for 10^-4, mostly for 10^-5.

    A good H0 saves a step, and the answer is never worse than it. Where several h are best, the answer is among their
    middle ones. docs/decisions/0005-l1-coefficients.md has the measurements.
    """

    max_iter: int = 50

    def refuses(self, divergence: Divergence) -> str | None:
        """Absolute values and nothing else."""
        if isinstance(divergence, L1):
            return None
        return f"InteriorPoint refuses {divergence.name}: it is made for l1 alone; use armijo."

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        limit = self.tolerance(divergence, X)
        W = np.ascontiguousarray(W)  # the sums below depend on the order in memory, by rounding
        iterations = np.zeros(len(X), dtype=np.int64)
        converged = np.ones(len(X), dtype=bool)
        # What the lower bounds explain is subtracted. Where nothing is left they are the answer, as for atoms of zeros.
        X = X - H.dtype.type(self.box.low) * W.sum(axis=0)
        rows, atoms = np.flatnonzero((X > 0).any(axis=1)), np.flatnonzero(W.any(axis=1))
        start = H
        H = np.full_like(start, self.box.low)
        if atoms.size:
            problem = _Scaled(self, W[atoms])
            size = max(FEWEST, ENTRIES // X.shape[1])
            for first in range(0, rows.size, size):
                block = rows[first : first + size]
                where = np.ix_(block, atoms)
                H[where], iterations[block], converged[block] = problem.solve(X[block], start[where], limit[block])
        return Coefficients(self.box.project(H), iterations, converged)


class _Scaled:
    """The problem in units of its own: atoms of mean 1, samples of mean 1, coefficients q that begin at zero.

    No minimum has a coefficient above 2: sum_f (qW)_f <= sum |x - qW| + sum |x| <= 2 sum |x|; and the ridge of none is
    above sum |x| = F, what it saves at most. Bounds of twice that change nothing, and make any a prove something.
    """

    def __init__(self, solver: InteriorPoint, W: Array) -> None:
        self.box, self.ridge, self.max_iter = solver.box, solver.ridge, solver.max_iter
        self.mean = W.mean(axis=1)
        self.W = np.ascontiguousarray(W / self.mean[:, None])
        self.Wt = np.ascontiguousarray(self.W.T)
        self.mass = self.W.sum(axis=1)
        self.hessians = DenseFits(L1(), self.W[:0], self.W).hessians

    def solve(self, X: Array, H: Array, limit: Array) -> tuple[Array, Counts, Mask]:
        """The coefficients of X from the start H, their iterations, and which are within ``limit`` of the minimum."""
        block = _Block(self, X, H, limit)
        result = np.empty_like(H)
        iterations = np.zeros(len(X), dtype=np.int64)
        converged = np.zeros(len(X), dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):  # a sample whose steps overflow gets no further
            for step in range(self.max_iter + 1):
                done, stuck = block.assess()
                leaving = done | stuck | (step == self.max_iter)
                if leaving.any():
                    rows = block.rows[leaving]
                    result[rows] = block.answers()[leaving]
                    iterations[rows], converged[rows] = step, done[leaving]
                    block.keep(~leaving)
                    if not block.rows.size:
                        break
                block.step()
        return result, iterations, converged


class _Block:
    """The iterates of some samples; ``onmf.kernels.interior`` says what ``state``, ``bounds`` and ``work`` hold."""

    def __init__(self, problem: _Scaled, X: Array, H: Array, limit: Array) -> None:
        dtype = X.dtype
        (n, F), K = X.shape, H.shape[1]
        box, mean = problem.box, problem.mean
        unit = np.abs(X).mean(axis=1, keepdims=True)
        self.problem, self.rows = problem, np.arange(n)
        self.X, self.unit, self.limit = X / unit, unit, limit / unit[:, 0]
        with np.errstate(over="ignore"):
            top = (box.high - box.low) * (mean / unit)
            self.ridge = np.minimum(problem.ridge * unit / mean / mean, 1e30)
            ceiling = np.minimum(2 * np.sqrt(2 * F / np.maximum(self.ridge, np.finfo(dtype).tiny)), CEILING)
        self.top, self.boxed = np.minimum(top, ceiling), top <= ceiling
        self.low = box.low * mean / unit
        # The best point so far and the best bound from below; no loss is negative.
        q = (H - box.low) * mean / unit
        beyond = (q > 1.001 * self.top).any(axis=1, keepdims=True)  # no better than zeros
        self.found = np.where(beyond, 0.0, np.minimum(q, self.top)).astype(dtype)
        self.best = self.first = self._objective(self.found)
        self.proved = np.zeros(n, dtype=dtype)
        self.gap = np.full(n, np.inf, dtype=dtype)
        self.idle = np.zeros(n, dtype=np.int64)

        q = np.minimum(np.maximum(self.found, LIFT / K), 0.5 * self.top)
        p = self.top - q
        self.fit: Array = q @ problem.W
        R = self.X - self.fit
        size = np.abs(R).mean(axis=1, keepdims=True) + np.finfo(dtype).eps
        a = 0.5 * R / (np.abs(R) + size)
        v = 0.5 * size / p
        z = np.maximum(self.ridge * (q + self.low) - a @ problem.Wt + v, 0.5 * size / q)
        self.state = np.stack([np.maximum(R, 0.0) + size, np.maximum(-R, 0.0) + size, 1.0 - a, 1.0 + a], axis=1)
        self.bounds = np.stack([q, p, z, v], axis=1)
        self.work = np.empty((5, n, F), dtype=dtype)

    def assess(self) -> tuple[Mask, Mask]:
        """Which samples are proved to be within their limit, and which get no further?"""
        from onmf.kernels.interior import measure

        q, mass = self.bounds[:, 0], self.problem.mass
        deviations, dual = measure(self.X, self.fit, self.state, self.work)
        value = self._with_ridge(q, deviations)
        better = value < self.best
        self.best = np.where(better, value, self.best)
        self.found[better] = q[better]
        c = self.fit @ self.problem.Wt  # ``measure`` has put a in the place of the fit
        # A c that is a little too large for rounding costs as much as q may grow; (a - e) / (1 + e) is cheaper.
        e = (np.maximum(c - self.ridge * (q + self.low), 0.0) / mass).max(axis=1)
        mended = self._bound((c - e[:, None] * mass) / (1 + e[:, None]), (dual - e * self.X.sum(axis=1)) / (1 + e))
        self.proved = np.fmax(self.proved, np.fmax(self._bound(c, dual), mended))
        gap = self.best - self.proved + 2 * np.finfo(c.dtype).eps * self.best
        self.idle = np.where(gap <= 0.9 * self.gap, 0, self.idle + 1)
        self.gap = np.minimum(gap, self.gap)
        return gap <= self.limit, (self.idle >= PATIENCE) | ~np.isfinite(value)

    def step(self) -> None:
        """One predictor-corrector step for all samples."""
        from onmf.kernels.interior import advance, factor, predict, solve_factored

        problem, state, bounds, work = self.problem, self.state, self.bounds, self.work
        joint = problem.ridge > 0  # steps of two lengths suit linear programmes only
        pull = self.ridge * (bounds[:, 0] + self.low)
        M = problem.hessians(work[1])
        factor(M, bounds, self.ridge)
        dq = work[2] @ problem.Wt - pull
        solve_factored(M, dq)
        P = dq @ problem.W
        extra = predict(P, work, state, bounds, dq, joint)
        dq = P @ problem.Wt - pull + extra[:, 0] - extra[:, 1]
        solve_factored(M, dq)
        advance(dq @ problem.W, work, state, bounds, dq, extra, joint)
        self.fit = bounds[:, 0] @ problem.W

    def answers(self) -> Array:
        """The coefficients, exactly at a bound where the multipliers would have them and it costs next to nothing."""
        q, F = self.found, self.X.shape[1]
        high = (self.bounds[:, 3] > F * (self.top - q)) & self.boxed
        exact = np.where(high, self.top, np.where(self.bounds[:, 2] > F * q, 0.0, q)).astype(q.dtype)
        gap = self.best - self.proved
        room = np.clip(self.limit - gap, 0.0, np.minimum(0.1 * gap, self.first - self.best))
        good = (self._objective(exact) <= self.best + room)[:, None]
        q = np.where(good, exact, q)
        box = self.problem.box
        H = box.low + q * (self.unit / self.problem.mean)
        return np.where(high & good, box.high, H).astype(q.dtype)

    def keep(self, stay: Mask) -> None:
        """Go on with some of the samples."""
        for name in (
            "rows",
            "X",
            "unit",
            "limit",
            "ridge",
            "top",
            "boxed",
            "low",
            "found",
            "first",
            "best",
            "proved",
            "gap",
            "idle",
        ):
            setattr(self, name, getattr(self, name)[stay])
        self.state, self.bounds = self.state[stay], self.bounds[stay]
        self.work = np.ascontiguousarray(self.work[:, stay])

    def _objective(self, q: Array) -> Array:
        return self._with_ridge(q, np.abs(self.X - q @ self.problem.W).sum(axis=1))

    def _with_ridge(self, q: Array, deviations: Array) -> Array:
        if not self.problem.ridge:
            return deviations
        return deviations + 0.5 * (self.ridge * np.square(q + self.low)).sum(axis=1)

    def _bound(self, c: Array, dual: Array) -> Array:
        """sum a x + min over q of (m/2) (q + low)^2 - c q."""
        if not self.problem.ridge:
            return dual - (np.maximum(c, 0.0) * self.top).sum(axis=1)
        q = np.clip(c / np.maximum(self.ridge, np.finfo(c.dtype).tiny) - self.low, 0.0, self.top)
        return dual + (0.5 * self.ridge * np.square(q + self.low) - c * q).sum(axis=1)
