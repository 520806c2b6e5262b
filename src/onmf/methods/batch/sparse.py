"""Batch updates of sparse samples at their non-zeros, for the alpha family."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients.problem import SparseProblem
from onmf.divergences import Divergence
from onmf.methods.batch.updates import LEAST_FIT, Updates, ratio


class SparseUpdates(Updates):
    """CSR samples under a divergence that is linear at zero: the alpha family with alpha = ``order`` > 0.

    The entries are kept by columns, too, since the dictionary's sums go over the samples of a feature.
    """

    def __init__(self, divergence: Divergence, X: Any, order: float, samples: Array | None = None) -> None:
        super().__init__(divergence, lambda _: X, [slice(0, X.shape[0])], samples)
        self.X, self.order, self.columns = X, order, by_columns(X)

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Rows for the coefficients, features for the dictionary."""
        problem = SparseProblem(self.divergence, self.X, W)
        new, Y, P = (self._penalised if self.penalties else self._plain)(problem, H)
        loss = self._summed(problem.loss(H, Y), slice(None))
        if not dictionary:
            return loss, new, W
        counted = self._counted(new, slice(None))
        sums = gathered(self.columns, P, counted)
        if self.penalties:
            return loss, *self._updated(new, W, sums.T, counted.sum(axis=0)[:, None])
        factor = self.divergence.multiplicative_factor(ratio(sums, counted.sum(axis=0)))
        return loss, new, np.asfortranarray((problem.Wt * factor).T)

    def _plain(self, problem: SparseProblem, H: Array) -> tuple[Array, Array, Array]:
        """The coefficients after one step, the fits before it and (x / y)^alpha after it."""
        from onmf.coefficients.kernels import multiplicative_iteration

        X, (n, K) = self.X, H.shape
        new, Y, P = H.copy(), np.empty_like(X.data), np.empty_like(X.data)
        mass = np.maximum(problem.mass, np.finfo(H.dtype).tiny)
        settings = X, new, problem.Wt, mass, Y, P, self.order, LEAST_FIT[H.itemsize]
        rows = threads.by_work(n, X.nnz / n * K, 1e5)
        threads.each(lambda some: multiplicative_iteration(*settings, some.start, some.stop), rows)
        return new, Y, P

    def _penalised(self, problem: SparseProblem, H: Array) -> tuple[Array, Array, Array]:
        """The same with penalties, by sparse products."""
        X, least = self.X, LEAST_FIT[H.itemsize]
        Y = np.maximum(problem.fit(H), least)
        ratios = scipy.sparse.csr_matrix(((X.data / Y) ** self.order, X.indices, X.indptr), shape=X.shape)
        new = H * self._coefficients_factor(H, ratios @ problem.Wt, problem.mass)
        return new, Y, (X.data / np.maximum(problem.fit(new), least)) ** self.order


def by_columns(X: Any) -> Any:
    """The places of a CSR matrix's entries among its ``data``, a row per feature."""
    return scipy.sparse.csr_matrix((np.arange(X.nnz), X.indices, X.indptr), shape=X.shape).tocsc().T


def gathered(columns: Any, entries: Array, H: Array) -> Array:
    """E'H (F, K) of the ``entries`` of a sparse matrix E, which lie ``by_columns``."""
    from onmf.coefficients.kernels import gather

    sums = np.empty((columns.shape[0], H.shape[1]), dtype=H.dtype)
    features = threads.by_work(len(sums), columns.nnz / len(sums) * H.shape[1], 1e5)
    threads.each(lambda some: gather(columns, entries, H, sums, some.start, some.stop), features)
    return sums
