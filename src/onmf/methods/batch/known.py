"""Batch updates of samples that are known in part: P and N times the weights of the entries.

A sum of majorants is a majorant of the sum, so that the loss over what is known cannot rise either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.known import Known
from onmf.coefficients.problem import SparseKnownProblem
from onmf.divergences import Divergence, Partial
from onmf.methods.batch.sparse import by_columns, gathered
from onmf.methods.batch.updates import LEAST_FIT, DenseUpdates, Updates, ratio


class KnownUpdates(DenseUpdates):
    """Dense samples and weights, block by block."""

    def __init__(
        self,
        divergence: Divergence,
        rows: Callable[[slice], Known],
        shape: tuple[int, int],
        samples: Array | None = None,
    ) -> None:
        super().__init__(Partial(divergence), rows, shape, samples=samples)

    def start(self, W: Array) -> Array:
        return np.concatenate([known_start(self.rows(block), W) for block in self.blocks])

    def _constant(self) -> None:
        return None

    def _parts(self, X: Any, Y: Array) -> tuple[Array, Array]:
        P, N = self.divergence.multiplicative_parts(X, Y)
        return P, X.present if N is None else N


class SparseKnownUpdates(Updates):
    """CSR samples that are known where they store an entry, under a sum over the entries: O(known K).

    The entries are kept by columns, too, since the dictionary's sums go over the samples of a feature.
    """

    def __init__(self, divergence: Divergence, X: Known, samples: Array | None = None) -> None:
        super().__init__(Partial(divergence), lambda _: X, [slice(0, len(X))], samples)
        self.X: Any = X
        self.columns = by_columns(X.X)

    def start(self, W: Array) -> Array:
        return known_start(self.X, W)

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Rows for the coefficients, features for the dictionary."""
        divergence, problem = self.divergence, SparseKnownProblem(self.divergence, self.X, W)
        Y = self._fit(problem, H)
        loss = self._summed(divergence.value(self.X, Y), slice(None))
        P, N = self._parts(Y)
        H = H * self._coefficients_factor(H, problem.gathered(P), problem.gathered(N))
        if not dictionary:
            return loss, H, W
        P, N = self._parts(self._fit(problem, H))
        counted = self._counted(H, slice(None))
        above, below = (gathered(self.columns, part, counted) for part in (P, N))
        if self.penalties:
            return loss, *self._updated(H, W, above.T, below.T)
        factor = divergence.multiplicative_factor(ratio(above, below))
        return loss, H, np.asfortranarray((problem.Wt * factor).T)

    def _fit(self, problem: SparseKnownProblem, H: Array) -> Array:
        return np.maximum(problem.fit(H), LEAST_FIT[H.itemsize])

    def _parts(self, Y: Array) -> tuple[Array, Array]:
        P, N = self.divergence.multiplicative_parts(self.X, Y)
        return P, self.X.weighted(np.ones_like(P)) if N is None else N


def known_start(X: Known, W: Array) -> Array:
    """The same coefficient for all atoms, such that the fit has the mass of what is known of the sample."""
    mass = np.asarray(X.present @ W.sum(axis=0))
    totals = X.sum(axis=1)
    return np.repeat(np.divide(totals, mass, out=np.zeros_like(totals), where=mass > 0)[:, None], len(W), axis=1)
