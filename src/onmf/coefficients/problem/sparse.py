"""Sparse samples at O(nnz K), for divergences that are linear in y at x = 0: d(0, y) = slope * y."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array, Mask, row_sums
from onmf.coefficients.problem.base import Problem


class SparseProblem(Problem):
    """X in CSR form; Y and the curvatures live at its non-zeros."""

    def _prepare(self) -> None:
        slope = self.divergence.slope_at_zero
        if slope is None:
            raise ValueError(f"{self.divergence.name} is not linear at zero: its sparse data must be densified.")
        self.slope_at_zero, self.Wt = slope, np.ascontiguousarray(self.W.T)

    def fit(self, H: Array) -> Array:
        from onmf.coefficients.kernels import sampled_product

        Y = np.empty(self.X.nnz, dtype=H.dtype)
        threads.each(lambda rows: sampled_product(self.X, H, self.Wt, Y, rows.start, rows.stop), self.blocks())
        return Y

    def loss(self, H: Array, Y: Array) -> Array:
        """The loss at the non-zeros, and slope times the fit's sum over the zeros."""
        entries = np.empty_like(Y)

        def block(rows: slice) -> None:
            e = slice(self.X.indptr[rows.start], self.X.indptr[rows.stop])
            entries[e] = self.divergence.value(self.X.data[e, None], Y[e, None]) - self.slope_at_zero * Y[e]

        threads.each(block, self.blocks())
        return row_sums(self._like(entries)) + self.slope_at_zero * self.carried(H)

    def _slope(self, H: Array, Y: Array) -> Array:
        return self._gathered(self.divergence.grad(self.X.data[:, None], Y[:, None]))

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """At the zeros the gradient is constant, and there is no curvature."""
        slope, curvatures = self.divergence.newton_model(self.X.data[:, None], Y[:, None])
        return self._gathered(slope), curvatures[:, 0]

    def _positive_curvatures(self, Y: Array) -> Array:
        return self.divergence.model(self.X.data[:, None], Y[:, None])[1][:, 0]

    def _gathered(self, slope: Array) -> Array:
        return self._like(slope[:, 0] - self.slope_at_zero) @ self.Wt + self.slope_at_zero * self.mass

    def _hessians(self, curvatures: Array) -> Array:
        from onmf.coefficients.kernels import sampled_hessians

        M = np.zeros((self.n, self.K * (self.K + 1) // 2), dtype=curvatures.dtype)
        sampled_hessians(self.X, curvatures, self.Wt, M)
        return self.damped(M)  # a sample may have fewer non-zeros than there are atoms

    def rows_of(self, Y: Array, keep: Mask | slice) -> Array:
        indptr = self.X.indptr
        if isinstance(keep, slice):
            first, last, _ = keep.indices(self.n)
            return Y[indptr[first] : indptr[last]]
        return Y[np.repeat(keep, np.diff(indptr))]

    def _like(self, entries: Array) -> Any:
        return scipy.sparse.csr_matrix((entries, self.X.indices, self.X.indptr), shape=self.X.shape)
