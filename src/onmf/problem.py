"""The products of samples with a dictionary: by BLAS where X is dense, sampled at the non-zeros where it is sparse.

A solver asks for a fit, its value, its gradient in h and its Hessians, and does not see which kind of X it has. Sparse
X cost O(nnz K): for divergences that are linear in y at x = 0, d(0, y) = slope * y, the zeros enter only through sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask
from onmf.divergences import Divergence, Separable, SquaredL2


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

    def __init__(self, divergence: Divergence, X: Array, W: Array) -> None:
        self.divergence, self.X, self.W = divergence, X, W

    def fit(self, H: Array) -> Array:
        """HW."""
        Y = np.empty((len(H), self.W.shape[1]), dtype=H.dtype)
        self._each(lambda rows: np.matmul(H[rows], self.W, out=Y[rows]))
        return Y

    def value(self, H: Array, Y: Array) -> Array:
        """The divergence's own."""
        return np.concatenate(self._each(lambda rows: self.divergence.value(self.X[rows], Y[rows])))

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """G W' and C."""
        C = np.empty_like(Y)

        def block(rows: slice) -> Array:
            slope, C[rows] = self.divergence.newton_model(self.X[rows], Y[rows])
            return slope @ self.W.T

        return np.concatenate(self._each(block)), C

    def _each(self, function: Callable[[slice], Any]) -> list[Any]:
        return threads.each(function, threads.by_work(len(self.X), self.X.shape[1], 60_000))

    def hessians(self, C: Array) -> Array:
        """C @ (W (x) W)', by blocks of features whose packed products of atoms stay in the cache."""
        from onmf.kernels import pack

        def group(features: slice) -> Array:
            total = np.zeros((len(C), packed), dtype=C.dtype)
            for block in threads.blocks(features.stop - features.start, 128):
                f = slice(features.start + block.start, features.start + block.stop)
                total += C[:, f] @ pack(self.W[:, f]).T
            return total

        K, F = self.W.shape
        packed = K * (K + 1) // 2
        parts = threads.each(group, threads.by_work(F, len(C) * packed, 6e6))
        return sum(parts[1:], start=parts[0])

    def rows(self, keep: Mask) -> DenseFits:
        """Rows of X."""
        return DenseFits(self.divergence, self.X[keep], self.W)

    def rows_of(self, Y: Array, keep: Mask) -> Array:
        """Rows of Y."""
        return Y[keep]


class SparseFits(Fits):
    """X in CSR form; Y and the curvatures live at its non-zeros."""

    def __init__(self, divergence: Separable, X: Any, W: Array, Wt: Array | None = None) -> None:
        slope = divergence.slope_at_zero
        if slope is None:
            raise ValueError(f"{divergence.name} is not linear at zero: its sparse data must be densified.")
        self.divergence: Separable = divergence
        self.X, self.W, self.slope = X, W, slope
        self.Wt = np.ascontiguousarray(W.T) if Wt is None else Wt
        self.mass = W @ np.ones(W.shape[1], dtype=W.dtype)

    def fit(self, H: Array) -> Array:
        """The entries of HW at the non-zeros of X."""
        from onmf.kernels import sampled_product

        return sampled_product(self.X.indptr, self.X.indices, H, self.Wt)

    def value(self, H: Array, Y: Array) -> Array:
        """The non-zeros' divergence, and slope times the fit's sum over the zeros."""
        entries = self.divergence.d(np, self.X.data, Y) - self.slope * Y
        return self._sums(entries) + self.slope * (H @ self.mass)

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """At the zeros the gradient is constant and the curvature nothing."""
        slope = self.divergence.dy(np, self.X.data, Y) - self.slope
        G = self._like(slope) @ self.Wt + self.slope * self.mass
        return G, self.divergence.newton_curvature(np, self.X.data, Y)

    def hessians(self, C: Array) -> Array:
        """Sums over the non-zeros of each row."""
        from onmf.kernels import sampled_hessians

        M = sampled_hessians(self.X.indptr, self.X.indices, C, self.Wt)
        # A sample with fewer non-zeros than atoms has singular Hessians: a thousandth of mass_k / reach_k damps them.
        total = np.asarray(self.X.sum(axis=1)).ravel()
        damping = 1e-3 * np.square(self.mass) / np.where(total > 0, total, 1.0)[:, None]
        M[:, packed_diagonal(len(self.mass))] += damping
        return M

    def rows(self, keep: Mask) -> SparseFits:
        """Rows of X."""
        return SparseFits(self.divergence, self.X[keep], self.W, self.Wt)

    def rows_of(self, Y: Array, keep: Mask) -> Array:
        """The entries of Y in some rows."""
        return Y[np.repeat(keep, np.diff(self.X.indptr))]

    def _sums(self, entries: Array) -> Array:
        return self._like(entries) @ np.ones(self.X.shape[1], dtype=entries.dtype)

    def _like(self, entries: Array) -> Any:
        return scipy.sparse.csr_matrix((entries, self.X.indices, self.X.indptr), shape=self.X.shape)


def takes_sparse(divergence: Divergence) -> bool:
    """Does sparse X cost O(nnz) under this divergence? Others must be densified, batch by batch."""
    linear = isinstance(divergence, Separable) and divergence.slope_at_zero is not None
    return linear or isinstance(divergence, SquaredL2)


class GramFits(Fits):
    """A quadratic loss, h Q h' / 2 - b h' + c for every row b of X: hQ stands for the fit, which nobody needs.

    Sparse x under squared l2 are of this kind, with Q = W W', b = x W' and c = ||x||^2 / 2.
    """

    def __init__(self, divergence: Divergence, X: Array, W: Array, constant: Array) -> None:
        self.divergence, self.X, self.W, self.constant = divergence, X, W, constant

    @classmethod
    def of_samples(cls, divergence: Divergence, X: Any, W: Array) -> GramFits:
        """Squared l2 of samples X in the dictionary W."""
        square = np.asarray(X.multiply(X).sum(axis=1)).ravel().astype(W.dtype)
        return cls(divergence, np.asarray(X @ W.T), W @ W.T, 0.5 * square)

    def fit(self, H: Array) -> Array:
        """HQ."""
        return H @ self.W

    def value(self, H: Array, Y: Array) -> Array:
        """By the Gram matrix; what rounding takes below zero is zero."""
        return np.maximum(self.constant + (H * (0.5 * Y - self.X)).sum(axis=1), 0)

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The gradient; the curvature is one."""
        return Y - self.X, np.ones((len(Y), 1), dtype=Y.dtype)

    def hessians(self, C: Array) -> Array:
        """Q for every sample."""
        return C * self.W[np.triu_indices(len(self.W))]

    def rows(self, keep: Mask) -> GramFits:
        """Rows of X."""
        return GramFits(self.divergence, self.X[keep], self.W, self.constant[keep])

    def rows_of(self, Y: Array, keep: Mask) -> Array:
        """Rows of HQ."""
        return Y[keep]


def packed_diagonal(K: int) -> Counts:
    """Where the diagonal stands in a packed K x K matrix."""
    return np.cumsum(np.r_[0, np.arange(K, 1, -1)])


def fits(divergence: Divergence, X: Any, W: Array) -> Fits:
    """The products that suit X."""
    if scipy.sparse.issparse(X):
        if isinstance(divergence, SquaredL2):
            return GramFits.of_samples(divergence, X, W)
        if isinstance(divergence, Separable):
            return SparseFits(divergence, X, W)
    return DenseFits(divergence, X, W)
