"""Batched projected Newton: all Hessians of a chunk as one matrix product, C @ (W (x) W)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf.coefficients.base import Coefficients, CoefficientSolver, atom_reach, remaining_gain
from onmf.coefficients.ratios import better_of_two
from onmf.divergences import L2, Divergence, Mahalanobis, SquaredL2
from onmf.problem import Fits, GramFits, fits, packed_diagonal, takes_sparse

BACKTRACKS = 30
SUFFICIENT = 1e-4  # of the fall that the gradient promises
RATIO_STEPS = 20  # multiplicative ones, before the first of Newton's
NEAR = 0.1  # of the mean coefficient: see kernels.newton


@dataclass(frozen=True)
class Newton(CoefficientSolver):
    """Nonnegative least squares by an active set, then projected Newton steps with a line search on the arc.

    For squared l2, Mahalanobis and l2 (without ridge the same minimiser) the first part is the solution. For the robust
    losses it would be a bad start: they begin at the uniform one.
    """

    max_iter: int = 50

    def refuses(self, divergence: Divergence) -> str | None:
        """Every divergence has a quadratic model."""
        return None

    def takes_sparse(self, divergence: Divergence) -> bool:
        """Where the products do."""
        return takes_sparse(divergence)

    def _solve(self, divergence: Divergence, X: Any, W: Array, H: Array) -> Coefficients:
        if isinstance(divergence, (SquaredL2, Mahalanobis)) or (isinstance(divergence, L2) and not self.ridge):
            return self._least_squares(divergence, X, W)
        problem = fits(divergence, X, W)
        if not divergence.domain.x.closed:
            H = better_of_two(divergence, X, W, H, self.box, RATIO_STEPS)
        elif not divergence.robust:
            H = self._warm(X, W)
        return self._newton(problem, H, atom_reach(X, W), self.scale(divergence, X))

    def _newton(self, problem: Fits, H: Array, reach: Array, scale: Array) -> Coefficients:
        from onmf.kernels import newton_directions

        n, K = H.shape
        eps = float(np.finfo(H.dtype).eps)
        iterations = np.zeros(n, dtype=np.int64)
        converged = np.zeros(n, dtype=bool)
        result = H.copy()
        active = np.arange(n)
        diagonal = packed_diagonal(K)
        Y = problem.fit(H)
        f = self._objective(problem, H, Y)
        for _ in range(self.max_iter):
            G, C = problem.newton(H, Y)
            if self.ridge:
                G = G + self.ridge * H
            done = np.minimum(remaining_gain(H, G, reach, self.box), f) <= max(self.tol, 10 * eps) * scale
            stuck = np.zeros_like(done)
            if not done.all():
                M = problem.hessians(C)
                if self.ridge:
                    M[:, diagonal] += self.ridge
                self._uncouple(M, G, H)
                D, _ = newton_directions(M, G, H, self.box.low)
                D[done] = 0
                H, Y, f, stuck = self._arc_search(problem, H, f, G, D, 16 * eps * scale)
                stuck &= ~done
                iterations[active[~done]] += 1
            leaving = done | stuck
            if leaving.any():
                converged[active[done]] = True
                result[active[leaving]] = H[leaving]
                stay = ~leaving
                Y = problem.rows_of(Y, stay)
                problem = problem.rows(stay)
                active, H, f, reach, scale = active[stay], H[stay], f[stay], reach[stay], scale[stay]
                if not active.size:
                    break
        result[active] = H
        return Coefficients(result, iterations, converged)

    def _uncouple(self, M: Array, G: Array, H: Array) -> None:
        """Coefficients near the upper bound that want to pass it follow their own scaled gradient, as at the lower one.

        The kernel does not know of an upper bound, which is rarely met: they leave the linear system by zeros in M.
        """
        room = self.box.high - H
        some = np.flatnonzero((room <= NEAR * H.mean(axis=1, keepdims=True)).any(axis=1))
        if not some.size:
            return
        H, G, room, packed = H[some], G[some], room[some], M[some]
        length = np.abs(self.box.project(H - G / packed[:, packed_diagonal(H.shape[1])]) - H).max(axis=1)
        held = (G < 0) & (room <= np.minimum(length, NEAR * H.mean(axis=1))[:, None])
        j, k = np.triu_indices(H.shape[1])
        packed[(held[:, j] | held[:, k]) & (j != k)] = 0
        M[some] = packed

    def _objective(self, problem: Fits, H: Array, Y: Array) -> Array:
        value = problem.value(H, Y)
        return value + 0.5 * self.ridge * np.square(H).sum(axis=1) if self.ridge else value

    def _arc_search(
        self, problem: Fits, H: Array, f: Array, G: Array, D: Array, noise: Array
    ) -> tuple[Array, Array, Array, Mask]:
        """h(s) = P(h + s d) for s = 1, 1/2, 1/4, ... until f falls by enough; all samples at once, each with its s."""
        trial = self.box.project(H + D)
        fit = problem.fit(trial)
        value = self._objective(problem, trial, fit)
        bad = ~(value <= f - SUFFICIENT * (G * (H - trial)).sum(axis=1) + noise)
        if not bad.any():
            return trial, fit, value, bad
        step = np.ones((len(H), 1), dtype=H.dtype)
        for _ in range(BACKTRACKS):
            step[bad] *= 0.5
            trial[bad] = self.box.project(H[bad] + step[bad] * D[bad])
            some = problem.rows(bad)
            value[bad] = self._objective(some, trial[bad], some.fit(trial[bad]))
            bad &= ~(value <= f - SUFFICIENT * (G * (H - trial)).sum(axis=1) + noise)
            if not bad.any():
                break
        trial[bad] = H[bad]
        fit = problem.fit(trial)
        return trial, fit, self._objective(problem, trial, fit), bad

    def _warm(self, X: Any, W: Array) -> Array:
        from onmf.kernels import nnls_on_gram

        H = nnls_on_gram(W @ W.T, X @ W.T)
        return self.box.project(np.maximum(H, 1e-3 * H.mean(axis=1, keepdims=True)))

    def _least_squares(self, divergence: Divergence, X: Any, W: Array) -> Coefficients:
        from onmf.kernels import nnls_on_gram

        quadratic = SquaredL2() if isinstance(divergence, L2) else divergence
        AW = -quadratic.grad(W, np.zeros_like(W))
        Q = AW @ W.T
        Q[np.diag_indices_from(Q)] += self.ridge
        B = X @ AW.T
        reach, scale = atom_reach(X, W), self.scale(quadratic, X)
        H = self.box.low + nnls_on_gram(Q, B - Q.dtype.type(self.box.low) * Q.sum(axis=0))
        above = (self.box.high < H).any(axis=1)
        H = self.box.project(H)
        iterations = np.ones(H.shape[0], dtype=np.int64)
        gain = remaining_gain(H, H @ Q - B, reach, self.box)
        converged = gain <= max(self.tol, 10 * float(np.finfo(H.dtype).eps)) * scale
        if above.any():  # the active set knows no upper bound
            problem = GramFits(quadratic, B[above], Q, scale[above])
            found = replace(self, ridge=0.0)._newton(problem, H[above], reach[above], scale[above])
            H[above], iterations[above], converged[above] = found.H, found.iterations, found.converged
        return Coefficients(H, iterations, converged)
