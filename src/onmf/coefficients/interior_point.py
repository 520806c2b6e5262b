"""Least absolute deviations by a primal-dual interior-point method, for all samples of a block side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onmf._support.arrays import Array, Mask, some_of, times
from onmf.coefficients import kernels
from onmf.coefficients.base import Coefficients, CoefficientSolver, Iteration, iterate
from onmf.coefficients.problem import Problem, packed_diagonal, weighted_grams
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Simplex

ENTRIES = 1 << 15  # residuals per block: a dozen arrays of this size stay in the cache
FEWEST = 32  # samples per block, to keep the matrix products efficient
CEILING = 4.0  # see Scaled
LIFT = 0.1  # how far inside the bounds the start lies, relative to a uniform coefficient
PATIENCE = 10  # iterations without progress after which rounding is to blame


@dataclass(frozen=True)
class InteriorPoint(CoefficientSolver, name="interior-point"):
    """Mehrotra's predictor-corrector for min sum_f |x_f - (hW)_f| + (m/2) ||h||^2 + p ||h||_1, with a proof.

    The dual problem has a variable a_f in [-1, 1] for every feature, and any such a bounds the minimum from below by

        sum_f a_f x_f + min over h in the box of (m/2) ||h||^2 - sum_k ((Wa)_k - p) h_k,

    a formula. A sample is converged when the loss at h exceeds the best such bound by tol * d(x || 2x) at most; unlike
    the other solvers' test, this assumes nothing about where the minimum is. -a comes along as the slopes in the fits.
    A step costs one matrix product for all Hessians of a block, sum_f d_f w_f w_f' as for Newton's method, and one
    Cholesky factor per sample. Four to seven steps prove a tol of 10^-3, eight to twelve one of 10^-8; single precision
    suffices for 10^-4, mostly for 10^-5.

    A good H0 saves a step, and the answer is never worse than it. Where several h are best, the answer is among their
    middle ones. docs/decisions/0005-l1-coefficients.md has the measurements.
    """

    max_iter: int = 50

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        if not divergence.absolute_deviations:
            return f"InteriorPoint cannot solve {divergence.name}: it is made for l1 alone; use armijo."
        return None

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        limit, low = problem.tolerance(self.tol), problem.box.low
        W = np.ascontiguousarray(problem.W)  # the sums below depend on the order in memory, by rounding
        start, n = H, len(H)
        # What the lower bounds explain is subtracted. Where nothing is left they are the answer, as for components of
        # zeros.
        weights = problem.X.entry_weight
        X = problem.X.times_entry_weight(problem.X.matrix - H.dtype.type(low) * W.sum(axis=0))
        slopes = problem.X.times_entry_weight(np.where(X > 0, -1, 1).astype(X.dtype))
        found = Coefficients(np.full_like(H, low), np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool), slopes=slopes)
        rows, components = np.flatnonzero((X > 0).any(axis=1)), np.flatnonzero(W.any(axis=1))
        kind = Steps
        if isinstance(problem.box, Simplex):  # nothing else may have what these leave
            rows, components, kind = np.arange(n), np.arange(len(W)), StepsOnSimplex
        if components.size:
            scaled = Scaled(problem, W[components], self.tol)
            size = max(FEWEST, ENTRIES // X.shape[1])
            for first in range(0, rows.size, size):
                block = rows[first : first + size]
                where = np.ix_(block, components)
                with np.errstate(over="ignore", invalid="ignore"):  # a sample whose steps overflow gets no further
                    l1, some = problem.l1[block], some_of(weights, block)
                    part = iterate(kind(scaled, X[block], start[where], limit[block], l1, some), self.max_iter)
                found.H[where] = part.H
                slopes[block] = times(part.slopes, some)
                found.iterations[block], found.converged[block] = part.iterations, part.converged
        return replace(found, H=problem.box.project(found.H))


class Scaled:
    """The problem in units of its own: components of mean 1, samples of mean 1, coefficients q that begin at zero.

    On the simplex all components have one unit, so that the q of a sample sum to one number.

    No minimum has a coefficient above 2: sum_f (qW)_f <= sum |x - qW| + sum |x| <= 2 sum |x|; and the l2 penalty of
    none is above sum |x| = F, what it saves at most. Bounds of twice that change nothing, and let any a prove
    something.
    """

    def __init__(self, problem: Problem, W: Array, tol: float) -> None:
        self.box, self.l2, self.linear, self.tol = problem.box, problem.penalty.l2, problem.penalty.linear, tol
        simplex = isinstance(problem.box, Simplex)
        self.mean = np.full(len(W), W.mean(), dtype=W.dtype) if simplex else W.mean(axis=1)
        self.W = np.ascontiguousarray(W / self.mean[:, None])
        self.Wt = np.ascontiguousarray(self.W.T)
        self.mass = self.W.sum(axis=1)


class Steps(Iteration):
    """The iterates of some samples; ``kernels.interior`` says what ``state``, ``bounds`` and ``work`` hold.

    Entries that weigh differently make X and W other ones: sum m |x - hW| has m x for x, and m w for w, with a W per
    sample that is never made, as it only occurs in products.
    """

    def __init__(self, scaled: Scaled, X: Array, H: Array, limit: Array, l1: Array, weights: Array | None) -> None:
        dtype = X.dtype
        n, F = X.shape
        box, mean = scaled.box, scaled.mean
        unit = self._unit(scaled, X)
        super().__init__(H)
        self.scaled = scaled
        self.weights = weights  # of the entries
        mass = np.broadcast_to(scaled.mass, H.shape) if weights is None else weights @ scaled.Wt
        self.mass = np.maximum(mass, np.finfo(dtype).tiny)
        self.X, self.unit, self.limit = X / unit, unit, limit / unit[:, 0]
        with np.errstate(over="ignore"):
            self.l2 = np.minimum(scaled.l2 * unit / mean / mean, 1e30)
            self.l1 = np.minimum(l1 / mean, 1e30)
            self.top, self.boxed = self._tops()
        self.low = box.low * mean / unit
        # The best point so far and the best bound from below; no loss is negative.
        given = (H - box.low) * mean / unit
        beyond = (given > 1.001 * self.top).any(axis=1, keepdims=True)  # no better than zeros
        self.found = np.where(beyond, 0.0, np.minimum(given, self.top)).astype(dtype)
        self.best = self.first = self._objective(self.found)
        self.proved, self.dual = np.zeros(n, dtype=dtype), np.zeros_like(X)  # a = 0 proves as much
        self.mending = np.zeros(n, dtype=dtype)
        self.gap = np.full(n, np.inf, dtype=dtype)
        self.idle = np.zeros(n, dtype=np.int64)

        q = self._inside()
        p = self.top - q
        fit = self._fit(q)
        R = self.X - fit
        size = np.abs(R).mean(axis=1, keepdims=True) + np.finfo(dtype).eps
        a = 0.5 * R / (np.abs(R) + size)
        v = 0.5 * size / p
        z = np.maximum(self._pull(q) - self._gathered(a) + v, 0.5 * size / q)
        self.state = np.stack([np.maximum(R, 0.0) + size, np.maximum(-R, 0.0) + size, 1.0 - a, 1.0 + a], axis=1)
        self.bounds = np.stack([q, p, z, v], axis=1)
        self.work = np.empty((5, n, F), dtype=dtype)
        self._assess(fit)

    def _unit(self, scaled: Scaled, X: Array) -> Array:
        """Return the unit of each sample: (n, 1)."""
        unit: Array = np.abs(X).mean(axis=1, keepdims=True)
        return unit

    def _tops(self) -> tuple[Array, Mask]:
        """Return the upper bounds, and whether these are those of the box."""
        scaled, F = self.scaled, self.X.shape[1]
        top = (scaled.box.high - scaled.box.low) * (scaled.mean / self.unit)
        ceiling = np.minimum(2 * np.sqrt(2 * F / np.maximum(self.l2, np.finfo(self.X.dtype).tiny)), CEILING)
        if self.weights is not None:  # a component's mean is less than one where little of it is seen
            ceiling = ceiling * F / np.where(self.mass > 1e-6 * F, self.mass, F)
        return np.minimum(top, ceiling), top <= ceiling

    def _inside(self) -> Array:
        """Return coefficients to begin with, between the bounds."""
        return np.minimum(np.maximum(self.found, LIFT / self.found.shape[1]), 0.5 * self.top)

    def _assess(self, fit: Array) -> Mask:
        """Find the samples that are proved to be within their limit; return which of the others get no further."""
        q = self.bounds[:, 0]
        deviations, dual = sums = np.empty((2, len(q)), dtype=q.dtype)
        kernels.interior.measure(self.X, fit, self.state, self.work, sums)
        value = self._with_penalty(q, deviations)
        better = value < self.best
        self.best = np.where(better, value, self.best)
        self.found[better] = q[better]
        proof, e = self._proof(self._gathered(fit), dual)  # a is in the place of the fit
        better = proof > self.proved
        self.proved, self.mending = np.fmax(self.proved, proof), np.where(better, e, self.mending)
        np.copyto(self.dual, fit, where=better[:, None])
        gap = self.best - self.proved + 2 * np.finfo(q.dtype).eps * self.best
        self.idle = np.where(gap <= 0.9 * self.gap, 0, self.idle + 1)
        self.gap = np.minimum(gap, self.gap)
        self.done = gap <= self.limit
        return ~self.done & ((self.idle >= PATIENCE) | ~np.isfinite(value))

    def slopes(self) -> Array:
        """Return -a of the best bound."""
        e = self.mending[:, None]
        slopes: Array = (e - self.dual) / (1 + e)
        return slopes

    def _proof(self, c: Array, dual: Array) -> tuple[Array, Array]:
        """Return the bound that a proves, or (a - e) / (1 + e), from c = Wa and the sum of a x, and the better e."""
        mass = self.mass
        # A c that is a little too large for rounding costs as much as q may grow; (a - e) / (1 + e) is cheaper.
        e = (np.maximum(c - self._pull(self.bounds[:, 0]), 0.0) / mass).max(axis=1)
        mended = self._bound((c - e[:, None] * mass) / (1 + e[:, None]), (dual - e * self.X.sum(axis=1)) / (1 + e))
        plain = self._bound(c, dual)
        return np.fmax(plain, mended), np.where(plain >= mended, 0.0, e)

    def step(self) -> Mask:
        """Make a predictor-corrector step for all samples."""
        scaled, state, bounds, work = self.scaled, self.state, self.bounds, self.work
        joint = scaled.l2 > 0  # steps of two lengths suit linear programmes only
        pull = self._pull(bounds[:, 0])
        M = self._hessians(work[1] if self.weights is None else np.square(self.weights) * work[1])
        numbers = np.finfo(M.dtype)
        kernels.interior.factor(M, bounds, self.l2, 10 * float(numbers.eps))
        dq = self._gathered(work[2]) - pull
        self._solve_factored(M, dq)
        P = self._fit(dq)
        extra = np.empty((len(dq), 2, dq.shape[1]), dtype=dq.dtype)
        kernels.interior.predict(P, work, state, bounds, dq, extra, joint)
        dq = self._gathered(P) - pull + extra[:, 0] - extra[:, 1]
        self._solve_factored(M, dq)
        least = float(numbers.tiny) ** 0.5  # products of two such numbers do not vanish
        kernels.interior.advance(self._fit(dq), work, state, bounds, dq, extra, joint, least)
        bounds[:, 0] = self._feasible(bounds[:, 0])
        return self._assess(self._fit(bounds[:, 0]))

    def _fit(self, q: Array) -> Array:
        return times(q @ self.scaled.W, self.weights)

    def _gathered(self, entries: Array) -> Array:
        return times(entries, self.weights) @ self.scaled.Wt

    def _hessians(self, weights: Array) -> Array:
        """Return the Hessians of the deviations, packed."""
        return weighted_grams(weights, self.scaled.W)

    def _solve_factored(self, M: Array, dq: Array) -> None:
        """Solve the systems M for the right-hand sides dq, in place."""
        kernels.interior.solve_factored(M, dq)

    def answers(self) -> Array:
        """Return the coefficients, exactly at a bound where the multipliers say so and it costs next to nothing."""
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
        """Return coefficients within their bounds, in their set."""
        return q

    def _part(self, name: str, array: Array, stay: Mask) -> Array:
        return np.ascontiguousarray(array[:, stay]) if name == "work" else array[stay]

    def _objective(self, q: Array) -> Array:
        return self._with_penalty(q, np.abs(self.X - self._fit(q)).sum(axis=1))

    def _with_penalty(self, q: Array, deviations: Array) -> Array:
        """Add (m/2) (q + low)^2 + p q: what the lower bounds cost by p, they cost anyway."""
        if self.scaled.linear:
            deviations = deviations + (self.l1 * q).sum(axis=1)
        if self.scaled.l2:
            deviations = deviations + 0.5 * (self.l2 * np.square(q + self.low)).sum(axis=1)
        return deviations

    def _pull(self, q: Array) -> Array:
        """Return the derivative of that penalty."""
        pull = self.l2 * (q + self.low)
        return pull + self.l1 if self.scaled.linear else pull

    def _bound(self, c: Array, dual: Array) -> Array:
        """Return sum a x + min over q of (m/2) (q + low)^2 - (c - p) q."""
        if self.scaled.linear:
            c = c - self.l1
        if not self.scaled.l2:
            return dual - (np.maximum(c, 0.0) * self.top).sum(axis=1)
        box, mean = self.scaled.box, self.scaled.mean  # the whole of it: no such bound may depend on W
        most = (box.high - box.low) * (mean / self.unit)
        q = np.clip(c / np.maximum(self.l2, np.finfo(c.dtype).tiny) - self.low, 0.0, most)
        return dual + (0.5 * self.l2 * np.square(q + self.low) - c * q).sum(axis=1)


class StepsOnSimplex(Steps):
    """Iterates on the simplex: the equality borders the systems, and upper bounds of twice the total are never met."""

    def _unit(self, scaled: Scaled, X: Array) -> Array:
        """Return a unit that suits the fits, too: samples may be far darker than any."""
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
        """Accept a gap of tol times the objective, too, as in the other solvers."""
        stuck = super()._assess(fit)
        self.done |= self.gap <= self.scaled.tol * self.best
        return stuck & ~self.done

    def _proof(self, c: Array, dual: Array) -> tuple[Array, Array]:
        """Return the bound of a ridge's tangent at q, which is below it: what is linear has its minimum at a corner."""
        q = self.bounds[:, 0]
        pull = self.l2 * (q + self.low)
        tangent = (pull * (0.5 * (q + self.low) - q)).sum(axis=1)
        if self.scaled.linear:
            pull = pull + self.l1
        return dual + tangent - self.total[:, 0] * (c - pull).max(axis=1), np.zeros_like(dual)

    def _hessians(self, weights: Array) -> Array:
        """Add a multiple of the matrix of ones, whose product with dq the equality gives.

        Near the minimum the direction in which all coefficients grow may be the only one without much curvature, and
        the two solutions below would lose all digits to it.
        """
        M = super()._hessians(weights)
        M += M[:, packed_diagonal(len(self.scaled.W))].mean(axis=1, keepdims=True)
        return M

    def _solve_factored(self, M: Array, dq: Array) -> None:
        """Solve M dq = b + nu with the nu for which q + dq sums to the total."""
        super()._solve_factored(M, dq)
        ones = np.ones_like(dq)
        super()._solve_factored(M, ones)
        missing = self.total[:, 0] - (self.bounds[:, 0] + dq).sum(axis=1)
        dq += (missing / ones.sum(axis=1))[:, None] * ones

    def _feasible(self, q: Array) -> Array:
        return q * (self.total / q.sum(axis=1, keepdims=True))
