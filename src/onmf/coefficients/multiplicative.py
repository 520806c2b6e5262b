"""Multiplicative steps for the coefficients: cheap, never worse, and at O(nnz K) on sparse data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf import threads
from onmf.arrays import Array
from onmf.coefficients.base import Coefficients, CoefficientSolver, atom_sums, blocks_of_rows
from onmf.divergences import Divergence


@dataclass(frozen=True)
class Multiplicative(CoefficientSolver):
    """h_k <- h_k (sum_f W_kf (x_f / y_f)^alpha / sum_f W_kf)^(1/alpha), a fixed number of times; nothing is tested."""

    order: float = 1.0
    max_iter: int = 10

    def refuses(self, divergence: Divergence) -> str | None:
        """Only the alpha family has these steps here."""
        if getattr(divergence, "slope_at_zero", None) is not None:
            return None
        return f"Multiplicative refuses {divergence.name}: it serves kl, hellinger and alpha > 0; use newton."

    def _solve_by_blocks(self, divergence: Divergence, X: Any, W: Array, H: Array) -> Coefficients:
        if not scipy.sparse.issparse(X):
            return super()._solve_by_blocks(divergence, X, W, H)
        from onmf.kernels import multiplicative_steps

        Wt, mass = np.ascontiguousarray(W.T), atom_sums(W)
        H = np.ascontiguousarray(H)
        settings = self.order, self.box.low, self.box.high, self.max_iter
        threads.each(lambda some: multiplicative_steps(X, H, Wt, mass, *settings, some), blocks_of_rows(X, W))
        return self._found(H)

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        del divergence
        mass = atom_sums(W)
        for _ in range(self.max_iter):
            ratio = X / (H @ W)
            factor = (ratio if self.order == 1 else ratio**self.order) @ W.T / mass
            H = self.box.project(H * (factor if self.order == 1 else factor ** (1.0 / self.order)))
        return self._found(H)

    def _found(self, H: Array) -> Coefficients:
        n = len(H)
        return Coefficients(H, np.full(n, self.max_iter, dtype=np.int64), np.zeros(n, dtype=bool))
