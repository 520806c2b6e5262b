"""Dense samples: everything by BLAS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients.problem.base import Problem

ENTRIES = 60_000  # that make a thread worthwhile


class DenseProblem(Problem):
    """X and Y (n, F)."""

    def fit(self, H: Array) -> Array:
        return H @ self.W if self._few else self._joined(lambda rows: H[rows] @ self.W)

    def loss(self, H: Array, Y: Array) -> Array:
        if self._few:
            return self.divergence.value(self.X, Y)
        return self._joined(lambda rows: self.divergence.value(self.X[rows], Y[rows]))

    def _slope(self, H: Array, Y: Array) -> Array:
        if self._few:
            return self.divergence.grad(self.X, Y) @ self.W.T
        return self._joined(lambda rows: self.divergence.grad(self.X[rows], Y[rows]) @ self.W.T)

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        if self._few:
            slope, curvatures = self.divergence.newton_model(self.X, Y)
            return slope @ self.W.T, curvatures
        curvatures = np.empty_like(Y)

        def block(rows: slice) -> Array:
            slope, curvatures[rows] = self.divergence.newton_model(self.X[rows], Y[rows])
            return slope @ self.W.T

        return self._joined(block), curvatures

    def _joined(self, function: Callable[[slice], Array]) -> Array:
        """function(all rows), by blocks of rows on several threads."""
        return np.concatenate(threads.each(function, threads.by_work(self.n, self.X.shape[1], ENTRIES)))

    @property
    def _few(self) -> bool:
        """Too few entries to share out, as mostly while learning."""
        return self.X.shape[0] * self.X.shape[1] < 2 * ENTRIES

    def _hessians(self, curvatures: Array) -> Array:
        """Singular, or nearly so, where there are nearly as many atoms as features, or more."""
        M = weighted_grams(curvatures, self.W)
        return M if self.W.shape[1] >= 2 * self.K else self.damped(M)


def weighted_grams(weights: Array, W: Array) -> Array:
    """sum_f c_nf w_f w_f' for every row of weights, packed: weights @ (W (x) W)'.

    By blocks of features whose packed products of atoms stay in the cache. The arrays are large, and fresh memory from
    the system costs as much as the product: they are added in place, and the result is the one allocated last, so that
    a caller who keeps it until the next call keeps the allocator from returning the memory of them all.
    """
    from onmf.coefficients.kernels import pack

    def group(features: slice) -> Array:
        total = np.empty((len(weights), packed), dtype=weights.dtype)
        for block in threads.blocks(features.stop - features.start, 128):
            f = slice(features.start + block.start, features.start + block.stop)
            if block.start == 0:
                np.matmul(weights[:, f], pack(W[:, f]).T, out=total)
            else:
                total += weights[:, f] @ pack(W[:, f]).T
        return total

    K, F = W.shape
    packed = K * (K + 1) // 2
    *others, total = threads.each(group, threads.by_work(F, len(weights) * packed, 6e6))
    for part in others:
        total += part
    return total
