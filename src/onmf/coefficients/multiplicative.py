"""Multiplicative steps for the coefficients: cheap, never worse, and at O(nnz K) on sparse data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf.coefficients.base import TINY, Coefficients, CoefficientSolver, atom_sums, blocks_of_rows
from onmf.divergences import Divergence


@dataclass(frozen=True)
class Multiplicative(CoefficientSolver):
    """h <- h o factor(P W' / (N W' + gamma ||x||)), with the parts and the factor of the divergence.

    ``max_iter`` steps are made, or fewer with ``every`` > 0: every so many steps the samples leave whose loss has
    fallen by less than ``tol`` of itself. ``gamma`` weighs the l1 norm of h.
    """

    max_iter: int = 10
    order: float | None = None  # alpha, in the alpha family with alpha > 0, which sparse data need
    gamma: float = 0.0
    every: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, gamma=self.gamma)
        require_whole(0, every=self.every)

    def refuses(self, divergence: Divergence) -> str | None:
        """Every divergence has such steps."""
        return None

    def takes_sparse(self, divergence: Divergence) -> bool:
        """Those of the alpha family, without gamma and test."""
        return self.order is not None and not self.gamma and not self.every

    def _solve_by_blocks(self, divergence: Divergence, X: Any, W: Array, H: Array) -> Coefficients:
        if not scipy.sparse.issparse(X) or self.order is None:
            return super()._solve_by_blocks(divergence, X, W, H)
        from onmf.kernels import multiplicative_steps

        Wt, mass = np.ascontiguousarray(W.T), atom_sums(W)
        H = np.ascontiguousarray(H)
        settings = self.order, self.box.low, self.box.high, self.max_iter
        threads.each(lambda some: multiplicative_steps(X, H, Wt, mass, *settings, some), blocks_of_rows(X, W))
        n = len(H)
        return Coefficients(H, np.full(n, self.max_iter, dtype=np.int64), np.zeros(n, dtype=bool))

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        n, mass = len(H), atom_sums(W)
        price = self.gamma * np.sqrt(np.square(X).sum(axis=1, keepdims=True)) if self.gamma else None
        iterations = np.full(n, self.max_iter, dtype=np.int64)
        converged = np.zeros(n, dtype=bool)
        result, active, loss = H.copy(), np.arange(n), None
        for number in range(1, self.max_iter + 1):
            Y = np.maximum(H @ W, TINY)
            P, N = divergence.multiplicative_parts(X, Y)
            below = mass if N is None else N @ W.T
            if price is not None:
                below = below + price
            factor = divergence.multiplicative_factor(P @ W.T / np.maximum(below, TINY))
            H = self.box.project(H * factor)
            if not self.every or number % self.every:
                continue
            before, loss = loss, divergence.value(X, np.maximum(H @ W, TINY))
            if price is not None:
                loss = loss + price[:, 0] * H.sum(axis=1)
            if before is None:
                continue
            done = before - loss <= self.tol * before
            result[active[done]] = H[done]
            iterations[active[done]], converged[active[done]] = number, True
            stay = ~done
            active, X, H, loss = active[stay], X[stay], H[stay], loss[stay]
            price = price if price is None else price[stay]
            if not active.size:
                break
        result[active] = H
        return Coefficients(result, iterations, converged)
