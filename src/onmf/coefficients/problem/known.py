"""Samples that are known in part: every sample has its own atoms, those at the entries that it has."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Mask
from onmf.coefficients.problem.base import Problem, atom_sums, packed_diagonal
from onmf.coefficients.problem.dense import DenseProblem, weighted_grams
from onmf.divergences.partial import whole
from onmf.model.sets import Simplex

MOST = 10.0
ENOUGH = 2  # entries per atom that tell a sample's coefficients


class OwnMass(Problem):
    """What an atom can contribute to a sample, by the weights of the sample's entries."""

    per_sample = Problem.per_sample | {"mass", "most", "gram"}

    @cached_property
    def mass(self) -> Array:
        """sum_f m_nf W_kf per sample and atom: (n, K)."""
        return np.asarray(self.X.present @ self.W.T)

    @cached_property
    def totals(self) -> Array:
        return self.X.sum(axis=1)

    @cached_property
    def most(self) -> Array | None:  # type: ignore[override]
        """What no coefficient may exceed: an atom then has ten times the mass that the sample is likely to have.

        Where an atom has next to nothing at the entries that are known, a little gain there would have any coefficient,
        and the rest of the sample would be filled with it.
        """
        if isinstance(self.box, Simplex):
            return None
        mass = atom_sums(self.W)
        weight = self.X.weight(axis=1)
        likely = MOST * self.X.shape[1] * self.totals / np.where(weight > 0, weight, 1.0)
        return np.divide.outer(likely, np.where(mass > 0, mass, 1.0)) + self.box.low

    @abstractmethod
    def grams(self, curvatures: Array) -> Array:
        """sum_f c_nf w_f w_f' for every sample, packed."""

    @cached_property
    def gram(self) -> Array:
        """The Hessians of the sum of weighted squares that has the same minimum, wherever one is."""
        return self.grams(self._squares[1])

    def normal_equations(self) -> tuple[Array, Array]:
        """The same, and what its slopes at zero are less than zero: without the penalty."""
        return self.gram, self.gathered(-self._squares[0])

    @property
    def _squares(self) -> tuple[Array, Array]:
        """Its slopes at a fit of zero, and its curvatures."""
        quadratic = whole(self.divergence).least_squares or self.divergence
        return quadratic.weighted_model(self.X, np.zeros_like(self.X.values), newton=True)

    def least_squares(self) -> tuple[Array, Mask]:
        """Where that is, and which samples have enough entries to tell: the others have many minima, some far off."""
        from onmf.coefficients.kernels import nnls_on_grams

        M, B = self.normal_equations()
        if self.penalty.l2:
            M = M.copy()
            M[:, packed_diagonal(self.K)] += self.penalty.l2
        if self.penalty.priced:
            B = B - self.prices
        number = (self.X.present > 0).sum(axis=1)
        return self.box.project(nnls_on_grams(M, B)), np.asarray(number).ravel() >= ENOUGH * self.K

    def _hessians(self, curvatures: Array) -> Array:
        known = whole(self.divergence).quadratic
        return _regular(self.gram.copy() if known else self.grams(curvatures), self.K)

    def carried(self, H: Array) -> Array:
        return (H * self.mass).sum(axis=1)

    def _uniform(self) -> Array:
        mass = self.mass.sum(axis=1, keepdims=True)
        return np.repeat(self.totals[:, None] / np.where(mass > 0, mass, 1.0), self.K, axis=1)


class KnownProblem(OwnMass, DenseProblem):
    """Dense samples with weights: fits are made everywhere, and count where something is known."""

    def grams(self, curvatures: Array) -> Array:
        return weighted_grams(curvatures, self.W)


class SparseKnownProblem(OwnMass):
    """Sparse samples that are known where they have an entry, at O(known K): Y and the curvatures live there."""

    def _prepare(self) -> None:
        self.Wt = np.ascontiguousarray(self.W.T)

    def fit(self, H: Array) -> Array:
        from onmf.coefficients.kernels import sampled_product

        Y = np.empty(self.X.X.nnz, dtype=H.dtype)
        threads.each(lambda rows: sampled_product(self.X.X, H, self.Wt, Y, rows.start, rows.stop), self.blocks())
        return Y

    def loss(self, H: Array, Y: Array) -> Array:
        return self.divergence.value(self.X, Y)

    def _slope(self, H: Array, Y: Array) -> Array:
        return self.gathered(self.divergence.grad(self.X, Y))

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        slope, curvatures = self.divergence.newton_model(self.X, Y)
        return self.gathered(slope), curvatures

    def _positive_curvatures(self, Y: Array) -> Array:
        return self.divergence.model(self.X, Y)[1]

    def gathered(self, entries: Array) -> Array:
        return np.asarray(self.X.like(entries) @ self.Wt)

    def grams(self, curvatures: Array) -> Array:
        from onmf.coefficients.kernels import sampled_hessians

        M = np.zeros((self.n, self.K * (self.K + 1) // 2), dtype=curvatures.dtype)
        sampled_hessians(self.X.X, curvatures, self.Wt, M)
        return M

    def rows_of(self, Y: Array, keep: Mask | slice) -> Array:
        indptr = self.X.X.indptr
        if isinstance(keep, slice):
            first, last, _ = keep.indices(self.n)
            return Y[indptr[first] : indptr[last]]
        return Y[np.repeat(keep, np.diff(indptr))]

    def blocks(self) -> list[slice]:
        return threads.by_work(self.n, float(self.X.X.nnz) / max(self.n, 1) * self.K, 6e4)


def _regular(M: Array, K: int) -> Array:
    """Packed Hessians, in place: those of a sample with fewer entries than atoms are singular."""
    diagonal = packed_diagonal(K)
    own = M[:, diagonal]
    own += (1e-4 / K) * own.sum(axis=1, keepdims=True) + float(np.finfo(M.dtype).tiny)
    M[:, diagonal] = own
    return M
