"""Multiplicative steps for the coefficients: cheap, never worse, and at O(nnz K) on sparse data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf.arrays import Array
from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.divergences import Divergence
from onmf.products import fits


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

    def _solve(self, divergence: Divergence, X: Any, W: Array, H: Array) -> Coefficients:
        problem = fits(divergence, X, W)
        sparse = scipy.sparse.issparse(X)
        mass = W.sum(axis=1)
        Wt = np.ascontiguousarray(W.T)
        for _ in range(self.max_iter):
            ratio = (X.data if sparse else X) / problem.fit(H)
            if self.order != 1:
                ratio **= self.order
            if sparse:
                ratio = scipy.sparse.csr_matrix((ratio, X.indices, X.indptr), shape=X.shape)
            factor = np.asarray(ratio @ Wt) / mass
            H = self.box.project(H * (factor if self.order == 1 else factor ** (1.0 / self.order)))
        n = X.shape[0]
        return Coefficients(H, np.full(n, self.max_iter, dtype=np.int64), np.zeros(n, dtype=bool))
