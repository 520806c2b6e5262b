"""Batch updates that get there sooner: coordinate descent for sparse counts, second-order steps for dense data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients import kernels
from onmf.coefficients.base import Coefficients
from onmf.coefficients.coordinate_descent import CoordinateDescent
from onmf.coefficients.newton import Newton
from onmf.coefficients.problem import Problem, losses, quadratic_model
from onmf.divergences import Divergence
from onmf.methods.batch import Updates, fitted
from onmf.model.sets import Box, DictionarySet
from onmf.samples import Samples

AT_ONCE, SWEEPS = 500_000, 10  # entries of a block, and sweeps over the weights, of second-order steps
FIRST_REACH, GROWTH, MOST_REACH = 1.0, 1.1, 2.5  # of extrapolation, in steps; halved where it fails
KEPT = 0.1  # of a coefficient or weight, whatever extrapolation says


class CoordinateUpdates(Updates):
    """Sweeps of coordinate descent over sparse samples, and over their features with the roles exchanged.

    One sweep each in turn: more at a time took longer. Then coefficients and weights are extrapolated from the last
    sweeps, as far as the objective does not rise. Weights do not fall to zero, so that they can rise again. Components
    are divided by their largest weights, which leaves the fit as it is.

    ``prior`` is a, the pseudo-count of every feature in every component: -a sum log w is then part of the objective,
    where the weights of a component sum to one. Their sum is kept by its multiplier, F a.
    """

    patience = 3

    def __init__(self, divergence: Divergence, X: Samples, box: Box, C: DictionarySet, prior: float = 0.0) -> None:
        super().__init__(divergence, lambda _: X, [slice(0, len(X))], X.sample_weight)
        self.X, self.box, self.C, self.prior, self.order = X, box, C, prior, divergence.alpha_order or 1.0
        counted = X.entries_times_sample_weight(np.ones_like(X.values))
        self.columns = X.like(X.values * counted ** (1 / self.order)).tocsc().T  # see by_weight
        self._last: tuple[Array, Array] | None = None  # H and W after the last sweeps
        self._reach = FIRST_REACH

    def start(self, W: Array) -> Array:
        """Return coefficients after a sweep."""
        return CoordinateDescent(max_iter=1).solve(Problem(self.divergence, self.X, W, self.box)).H

    def objective(self, loss: float, H: Array, W: Array) -> float:
        """Return the summed loss with the prior."""
        if not self.prior:
            return loss
        free = W[self.fixed :].astype(np.float64)
        return loss - self.prior * float(np.log(free / free.sum(axis=1, keepdims=True)).sum())

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Sweep over the rows for the coefficients, and over the columns for the dictionary."""
        problem, new, box = Problem(self.divergence, self.X, W, self.box), H.copy(), self.box
        Y = self._swept(self.X.matrix, new, problem.Wt, problem.mass, box.low, box.high)
        loss = self._summed(problem.loss(H, Y), slice(None))
        if not dictionary:
            return loss, new, W
        low = self.C.least_mean(len(W))
        Wt = np.maximum(problem.Wt, low)
        if self.prior:
            new *= self._to_unit(Wt, Wt.sum(axis=0))
        mass = self._counted(new, slice(None)).sum(axis=0)
        bounds = low * float(Wt.max()), np.inf, self.prior, self.fixed
        self._swept(self.columns, Wt, new, mass + Wt.dtype.type(self.prior * len(Wt)), *bounds)
        new *= self._to_unit(Wt, Wt.max(axis=0))
        return loss, *self._extrapolated(new, np.maximum(Wt, low).T, self.objective(loss, H, W))

    def _extrapolated(self, H: Array, W: Array, most: float) -> tuple[Array, Array]:
        """Return H and W, further on the way from the last ones if the objective is at most ``most`` there."""
        last, self._last = self._last, (H, W)
        if last is None or self.prior:  # with which the few sweeps that there are do not repay the look ahead
            return H, W
        far_H, far_W = (
            np.maximum(now + now.dtype.type(self._reach) * (now - before), KEPT * now)
            for now, before in zip((H, W), last, strict=True)
        )
        far_H = np.minimum(np.maximum(far_H, self.box.low), self.box.high)
        problem = Problem(self.divergence, self.X, far_W, self.box)
        loss = self._summed(problem.loss(far_H, problem.fit(far_H)), slice(None))
        lower = self.objective(loss, far_H, far_W) <= most
        self._reach = min(GROWTH * self._reach, MOST_REACH) if lower else 0.5 * self._reach
        return (far_H, far_W) if lower else (H, W)

    def _to_unit(self, Wt: Array, size: Array) -> Array:
        """Divide components, but for fixed ones, by their sizes in place, and return what multiplies coefficients."""
        size[: self.fixed] = 1
        Wt /= size
        return size

    def _swept(
        self, X: Any, H: Array, Wt: Array, mass: Array, low: float, high: float, prior: float = 0.0, fixed: int = 0
    ) -> Array:
        """Sweep over H in place, and return the fits before."""
        fits = np.empty_like(X.data)
        arrays, numbers = (X, H, Wt, mass, fits), (self.order, low, high, prior, fixed)
        rows = threads.by_work(len(H), X.nnz / len(H) * H.shape[1], 1e5)
        sweep = kernels.coordinate_descent.coordinate_sweep
        threads.each(lambda some: sweep(*arrays, *numbers, some.start, some.stop), rows)
        return fits


class SurrogateUpdates(Updates):
    """Newton's step for the coefficients, then the minimum near W of quadratic models: the surrogate's, of all samples.

    With slopes g and curvatures c at the fits, the model of feature f has A_f = sum of c h'h and b_f = sum of
    (c y - g) h (``methods.quadratics``), nothing being averaged. Where the loss would rise, a multiplicative update is
    made instead.
    """

    patience = 3

    def __init__(self, divergence: Divergence, X: Samples, box: Box, C: DictionarySet, instead: Updates) -> None:
        blocks = threads.blocks(len(X), max(64, AT_ONCE // X.shape[1]))
        super().__init__(divergence, lambda rows: X[rows], blocks, X.sample_weight)
        self.box, self.C, self.instead = box, C, instead
        self._found: tuple[Array, float] | None = None  # coefficients whose loss is known already

    def start(self, W: Array) -> Array:
        """Return coefficients near their best."""
        return self._by_blocks(lambda rows, problem: Newton(1e-3, 3).solve(problem).H, W)

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Step, and look at the loss before the step counts."""
        loss = self._found[1] if self._found and self._found[0] is H else self._loss(H, W)
        new = self._by_blocks(lambda rows, problem: self._stepped(problem, H[rows]), W)
        if not dictionary:
            return loss, new, W
        V = self._minimum(new, W)
        size = V.max(axis=1)
        size[: self.fixed] = 1
        changed, V = new * size, np.maximum(V / size[:, None], self.C.least_mean(len(W)))
        V[: self.fixed] = W[: self.fixed]
        self._found = changed, self._loss(changed, V)
        if self._found[1] <= loss:
            return loss, changed, V
        return loss, *self.instead.iterate(new, W, dictionary=True)[1:]

    def _by_blocks(self, function: Callable[[slice, Problem], Array], W: Array) -> Array:
        def block(rows: slice) -> Array:
            return function(rows, Problem(self.divergence, self.rows(rows), W, self.box))

        return np.concatenate(threads.each(block, self.blocks))

    def _stepped(self, problem: Problem, h: Array) -> Array:
        """Return coefficients after Newton's step, or the best ones where least squares find them."""
        if problem.divergence.quadratic:
            return Newton().solve(problem).H
        n, h = len(h), problem.box.project(h.copy())  # multiplicative updates leave zeros to samples of zeros
        return Newton(1e-5, 1).finish(problem, Coefficients(h, np.zeros(n, np.int64), np.zeros(n, bool))).H

    def _loss(self, H: Array, W: Array) -> float:
        def block(rows: slice) -> float:
            return self._summed(losses(self.divergence, self.rows(rows), fitted(H[rows], W)), rows)

        return sum(threads.each(block, self.blocks))

    def _minimum(self, H: Array, W: Array) -> Array:
        """Return the dictionary after some sweeps over the quadratic models."""
        (K, F), shared = W.shape, self.divergence.curvature_per_sample
        features = threads.blocks(F, 128)
        b: Array = np.zeros_like(W, order="C")
        sizes = [(K, K)] if shared else [(K * (K + 1) // 2, f.stop - f.start) for f in features]
        A: list[Array] = [np.zeros(size, dtype=W.dtype) for size in sizes]
        for rows in self.blocks:
            X, h = self.rows(rows), H[rows]
            Y = fitted(h, W)
            G, C = quadratic_model(self.divergence, X, Y)
            counted = np.ascontiguousarray(self._counted(h, rows).T)
            b += counted @ (C * Y - G)
            if shared:
                A[0] += (counted * C[:, 0]) @ h
                continue
            outer = kernels.gram.pack(np.ascontiguousarray(h.T))
            C = X.times_sample_weight(np.broadcast_to(C, Y.shape))
            threads.each(partial(_add_product, A, outer, C), list(enumerate(features)))
        V, low = np.array(W, order="C"), np.full(F, self.C.least_mean(K), dtype=W.dtype)

        def sweep(place: int) -> None:
            f = features[place]
            part = A[0 if shared else place], np.ascontiguousarray(b[:, f])
            kernels.dictionary.sweep(*part, V, low, np.ones(K, dtype=W.dtype), np.inf, f.start, SWEEPS, self.fixed)

        threads.each(sweep, list(range(len(features))))
        return V if self.divergence.domain.x.includes_zero else np.maximum(V, 0.5 * W)  # else the loss may jump


def _add_product(A: list[Array], outer: Array, C: Array, block: tuple[int, slice]) -> None:
    place, f = block
    A[place] += outer @ C[:, f]
