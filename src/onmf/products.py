"""The products of samples with a dictionary: by BLAS where X is dense, sampled at the non-zeros where it is sparse.

A solver asks for a fit, its value, its gradient in h and its Hessians, and does not see which kind of X it has. Sparse
X cost O(nnz K): for divergences that are linear in y at x = 0, d(0, y) = slope * y, the zeros enter only through sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import scipy.sparse

from onmf.arrays import Array, Counts, Mask
from onmf.divergences import Divergence, Separable


class Fits(ABC):
    """min over h of d(x || hW), one problem a row of X."""

    divergence: Divergence
    X: Any
    W: Array

    @abstractmethod
    def fit(self, H: Array) -> Array:
        """Y = HW where it is needed: everywhere, or at the non-zeros of X."""

    @abstractmethod
    def value(self, H: Array, Y: Array) -> Array:
        """d(x || hW) per sample."""

    @abstractmethod
    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The gradient in h (n, K), and the curvatures that ``hessians`` turns into Hessians."""

    @abstractmethod
    def hessians(self, C: Array) -> Array:
        """sum_f c_nf w_f w_f' for every sample, packed: (n, K (K + 1) / 2)."""

    @abstractmethod
    def rows(self, keep: Mask) -> Self:
        """The same problem for some of the samples."""

    @abstractmethod
    def rows_of(self, Y: Array, keep: Mask) -> Array:
        """What ``fit`` gave, for some of the samples."""


class DenseFits(Fits):
    """Everything by BLAS."""

    def __init__(self, divergence: Divergence, X: Array, W: Array, WW: Array | None = None) -> None:
        self.divergence, self.X, self.W, self.WW = divergence, X, W, WW

    def fit(self, H: Array) -> Array:
        """HW."""
        Y: Array = H @ self.W
        return Y

    def value(self, H: Array, Y: Array) -> Array:
        """The divergence's own."""
        del H
        return self.divergence.value(self.X, Y)

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """G W' and C."""
        del H
        slope, C = self.divergence.newton_model(self.X, Y)
        G: Array = slope @ self.W.T
        return G, C

    def hessians(self, C: Array) -> Array:
        """One matrix product with the packed products of atoms."""
        if self.WW is None:
            from onmf.kernels import pack

            self.WW = pack(self.W.T)
        M: Array = C @ self.WW
        return M

    def rows(self, keep: Mask) -> DenseFits:
        """Rows of X."""
        return DenseFits(self.divergence, self.X[keep], self.W, self.WW)

    def rows_of(self, Y: Array, keep: Mask) -> Array:
        """Rows of Y."""
        return Y[keep]


class SparseFits(Fits):
    """X in CSR form; Y and the curvatures live at its non-zeros."""

    def __init__(self, divergence: Separable, X: Any, W: Array, Wt: Array | None = None) -> None:
        slope = divergence.slope_at_zero
        if slope is None:
            msg = f"{divergence.name} is not linear at zero: its sparse data must be densified."
            raise ValueError(msg)
        self.divergence: Separable = divergence
        self.X, self.W, self.slope = X, W, slope
        self.Wt = np.ascontiguousarray(W.T) if Wt is None else Wt
        self.mass = W.sum(axis=1)
        total = np.asarray(X.sum(axis=1)).ravel()
        # A sample with fewer non-zeros than atoms has singular Hessians: a thousandth of mass_k / reach_k damps them.
        self.damping = 1e-3 * np.square(self.mass) / np.where(total > 0, total, 1.0)[:, None]

    def fit(self, H: Array) -> Array:
        """The entries of HW at the non-zeros of X."""
        from onmf.kernels import sampled_product

        return sampled_product(self.X.indptr, self.X.indices, H, self.Wt)

    def value(self, H: Array, Y: Array) -> Array:
        """The non-zeros' divergence, and slope times the fit's sum over the zeros."""
        entries = self.divergence.d(np, self.X.data, Y) - self.slope * Y
        total: Array = self._sums(entries) + self.slope * (H @ self.mass)
        return total

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """At the zeros the gradient is constant and the curvature nothing."""
        del H
        slope = self.divergence.dy(np, self.X.data, Y) - self.slope
        G = self._like(slope) @ self.Wt + self.slope * self.mass
        return G, self.divergence.newton_curvature(np, self.X.data, Y)

    def hessians(self, C: Array) -> Array:
        """Sums over the non-zeros of each row."""
        from onmf.kernels import sampled_hessians

        M = sampled_hessians(self.X.indptr, self.X.indices, C, self.Wt)
        M[:, packed_diagonal(len(self.mass))] += self.damping
        return M

    def rows(self, keep: Mask) -> SparseFits:
        """Rows of X."""
        return SparseFits(self.divergence, self.X[keep], self.W, self.Wt)

    def rows_of(self, Y: Array, keep: Mask) -> Array:
        """The entries of Y in some rows."""
        return Y[np.repeat(keep, np.diff(self.X.indptr))]

    def _sums(self, entries: Array) -> Array:
        return np.asarray(self._like(entries).sum(axis=1)).ravel().astype(entries.dtype)

    def _like(self, entries: Array) -> Any:
        return scipy.sparse.csr_matrix((entries, self.X.indices, self.X.indptr), shape=self.X.shape)


def packed_diagonal(K: int) -> Counts:
    """Where the diagonal stands in a packed K x K matrix."""
    return np.cumsum(np.r_[0, np.arange(K, 1, -1)])


def fits(divergence: Divergence, X: Any, W: Array) -> Fits:
    """The products that suit X."""
    if scipy.sparse.issparse(X) and isinstance(divergence, Separable):
        return SparseFits(divergence, X, W)
    return DenseFits(divergence, X, W)
