"""What coefficient problems of every kind have: the penalty, the box, a start and a test for convergence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask, row_sums, times_vector
from onmf.coefficients.problem.penalty import NO_PENALTY, Penalty
from onmf.divergences import Divergence
from onmf.model.sets import Box, Simplex

CARRIES = 1e-3  # of the sample's mass: a start whose fit has less is discarded, as the gradient may explode near 0
DEFAULT_BOX = Box()


class Problem(ABC):
    """min over h in the box, or on the simplex, of d(x || hW) + penalty(h), one problem per row of X."""

    # Attributes with one row per sample, if they exist: ``rows`` takes some of each.
    per_sample = frozenset({"X", "weights", "totals", "scale", "reach", "prices", "products", "size"})
    most: Array | None = None  # coefficients (n, K) beyond which an answer is beside the point, if there are such
    weights: Array | None = None  # of the samples, where they differ: no matter for coefficients, but for W

    def __init__(
        self, divergence: Divergence, X: Any, W: Array, box: Box | Simplex = DEFAULT_BOX, penalty: Penalty = NO_PENALTY
    ) -> None:
        self.divergence, self.X, self.W, self.box, self.penalty = divergence, X, W, box, penalty
        self._prepare()

    # What the kinds of X differ in

    def _prepare(self) -> None:  # noqa: B027 - not every kind needs it
        """Compute what all samples share."""

    @abstractmethod
    def fit(self, H: Array) -> Array:
        """Y = HW where it is needed: everywhere, or at the non-zeros of X."""

    @abstractmethod
    def loss(self, H: Array, Y: Array) -> Array:
        """d(x || hW) per sample, without the penalty."""

    @abstractmethod
    def _slope(self, H: Array, Y: Array) -> Array:
        """The derivative of the loss in h."""

    @abstractmethod
    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The same, and the curvatures of ``newton``."""

    @abstractmethod
    def _hessians(self, curvatures: Array) -> Array:
        """``hessians`` of the loss."""

    def rows_of(self, Y: Array, keep: Mask | slice) -> Array:
        """What ``fit`` or ``newton`` gave, for some of the samples."""
        return Y[keep]

    # What they share

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.X.shape[0])

    @property
    def weight(self) -> float:
        """How many samples they count for."""
        return self.n if self.weights is None else float(self.weights.sum(dtype=np.float64))

    def weighed(self, rows: Array) -> Array:
        """Numbers of the samples (n, ...), each row times the weight of its sample."""
        if self.weights is None:
            return rows
        return rows * self.weights.astype(rows.dtype, copy=False).reshape((-1,) + (1,) * (rows.ndim - 1))

    @property
    def K(self) -> int:
        """The number of atoms."""
        return len(self.W)

    @cached_property
    def mass(self) -> Array:
        """sum_f W_kf per atom."""
        return atom_sums(self.W)

    @cached_property
    def totals(self) -> Array:
        """sum_f x_f per sample."""
        return row_sums(self.X)

    @cached_property
    def scale(self) -> Array:
        """d(x || 2x) per sample."""
        return self.divergence.scale(self.X)

    @cached_property
    def size(self) -> Array:
        """What rounding is measured by: ``scale``, or the loss of equal shares, far above it for a dark sample."""
        if not isinstance(self.box, Simplex):
            return self.scale
        H = self.start(None)
        return np.maximum(self.scale, self.loss(H, self.fit(H)))

    @cached_property
    def reach(self) -> Array:
        """r_k = sum_f x_f / sum_f W_kf: the coefficient at which atom k alone has the sample's mass. Shape (n, K)."""
        return self.totals[:, None] / np.where(self.mass > 0, self.mass, 1.0)

    @cached_property
    def prices(self) -> Array:
        """What one unit of a coefficient costs, per sample: (n, 1)."""
        return self.penalty.prices(self.X)

    def objective(self, H: Array, Y: Array) -> Array:
        """The loss and the penalty, per sample."""
        loss = self.loss(H, Y)
        return loss + self.penalty.value(H, self.prices) if self.penalty else loss

    def gradient(self, H: Array, Y: Array) -> Array:
        """The derivative of the objective in h: (n, K); on the simplex, its part along it."""
        return self._with_penalty(H, self._slope(H, Y))

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The gradient of the objective, and the curvatures that ``hessians`` turns into its Hessians."""
        G, curvatures = self._model(H, Y)
        return self._with_penalty(H, G), curvatures

    def _with_penalty(self, H: Array, G: Array) -> Array:
        G = G + self.penalty.gradient(H, self.prices) if self.penalty else G
        # Along the simplex what all coefficients have in common is no slope, and would cost the others their digits.
        return G - G.mean(axis=1, keepdims=True) if isinstance(self.box, Simplex) else G

    def hessians(self, curvatures: Array) -> Array:
        """sum_f c_nf w_f w_f' + l2 for every sample, packed: (n, K (K + 1) / 2)."""
        M = self._hessians(curvatures)
        if self.penalty.l2:
            M[:, packed_diagonal(self.K)] += self.penalty.l2
        return M

    def damped(self, M: Array) -> Array:
        """Packed Hessians that may be singular, in place: a thousandth of mass_k / reach_k on the diagonal."""
        totals = np.where(self.totals > 0, self.totals, 1.0)[:, None]
        M[:, packed_diagonal(self.K)] += 1e-3 * np.square(self.mass) / totals
        return M

    def positive_hessians(self, Y: Array) -> Array:
        """``hessians`` of the dictionary's quadratic models, whose curvatures are positive."""
        return self.hessians(self._positive_curvatures(Y))

    def _positive_curvatures(self, Y: Array) -> Array:
        return self.divergence.model(self.X, Y)[1]

    def tolerance(self, tol: float) -> Array:
        """tol * d(x || 2x) per sample, no tighter than the arithmetic of the dtype can tell."""
        if isinstance(self.box, Simplex):
            return np.maximum(tol * self.scale, 10 * self._eps * self.size)
        return max(tol, 10 * self._eps) * self.scale

    @property
    def noise(self) -> Array:
        """How far rounding may move a sample's objective."""
        return 16 * self._eps * self.size

    @property
    def _eps(self) -> float:
        return float(np.finfo(self.W.dtype).eps)

    def remaining_gain(self, H: Array, G: Array) -> Array:
        """A first-order bound on f(h) - min f per sample: see ``onmf.coefficients.base``."""
        if isinstance(self.box, Simplex):
            return self.box.gap(H, G)
        down = np.maximum(G, 0.0) * (H - self.box.low)
        up = np.maximum(-G, 0.0) * np.minimum(np.maximum(self.reach - H, H), self.box.high - H)
        return (down + up).sum(axis=1)

    def enough(self, H: Array, G: Array, f: Array, tol: float, tolerance: Array) -> Mask:
        """Is no more than ``tolerance`` left to gain, or on the simplex, where fits may be far off, tol of f?"""
        if isinstance(self.box, Simplex):
            tolerance = np.maximum(tolerance, tol * f)
        return np.minimum(self.remaining_gain(H, G), f) <= tolerance

    def start(self, H0: Array | None = None) -> Array:
        """A fresh array in the set: H0 in the rows where its fit has some of the sample's mass, or a uniform start."""
        H = self._uniform()
        if H0 is not None:
            carries = self.carried(H0) >= CARRIES * self.totals
            H = np.where(carries[:, None], H0, H).astype(self.X.dtype)
        if self.penalty:
            H[np.broadcast_to(self.mass == 0, H.shape)] = (
                0.0  # such an atom has a price and no use, nor a curvature to find the way by
            )
        return self.box.project(H)

    def carried(self, H: Array) -> Array:
        """sum_f (hW)_f per sample."""
        return times_vector(H, self.mass)

    def _uniform(self) -> Array:
        """The same coefficient for all atoms, such that the fit has the sample's mass."""
        return _uniform(self.totals, self.mass)

    def gathered(self, entries: Array) -> Array:
        """sum_f e_f W_kf per sample and atom, of numbers e that the samples have where they have their fits."""
        return entries @ self.W.T

    def blocks(self) -> list[slice]:
        """Samples for one thread to solve side by side; many if dense, as packed products of atoms serve them all."""
        n, F = self.X.shape
        if scipy.sparse.issparse(self.X):
            return threads.by_work(n, float(self.X.nnz) / max(n, 1) * self.K, 6e4)
        return threads.by_work(n, F * self.K, 3e6)

    def rows(self, keep: Mask | Counts | slice, known: Collection[str] = ()) -> Self:
        """The same problem for some of the samples, with all that is known about them, or just ``known``."""
        part = object.__new__(type(self))
        for name, value in self.__dict__.items():
            if name not in self.per_sample:
                part.__dict__[name] = value
            elif not known or name in known:
                part.__dict__[name] = value[keep]
        return part


def atom_sums(W: Array) -> Array:
    """sum_f W_kf per atom, as a product: BLAS does not mind in which order W lies in memory."""
    return times_vector(W, np.ones(W.shape[1], dtype=W.dtype))


def uniform_start(X: Any, W: Array) -> Array:
    """The same coefficient for all atoms, such that the fit has the sample's mass."""
    return _uniform(row_sums(X), atom_sums(W))


def _uniform(totals: Array, mass: Array) -> Array:
    return np.repeat(totals[:, None] / (float(mass.sum()) or 1.0), len(mass), axis=1)


@cache
def packed_diagonal(K: int) -> Counts:
    """The positions of the diagonal in a packed K x K matrix."""
    positions = np.cumsum(np.r_[0, np.arange(K, 1, -1)])
    positions.flags.writeable = False
    return positions
