"""The coefficient problem, min over h in the box of d(x || hW) + penalty(h): all that a coefficient solver sees.

A solver asks for a fit, its loss, its gradient in h and its Hessians, and does not see which kind of X it has. Sparse X
cost O(nnz K): for divergences that are linear in y at x = 0, d(0, y) = slope * y, the zeros enter only through sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask, row_sums
from onmf._support.checks import require_at_least
from onmf.divergences import Divergence
from onmf.sets import Box

CARRIES = 1e-3  # of the sample's mass: a start whose fit has less is none, the gradient may explode near zero


@dataclass(frozen=True)
class Penalty:
    """(ridge / 2) ||h||^2 + lasso ||x|| ||h||_1, what large coefficients cost beside the loss."""

    ridge: float = 0.0  # the m of the paper's Assumption 2
    lasso: float = 0.0

    def __post_init__(self) -> None:
        require_at_least(0, ridge=self.ridge, lasso=self.lasso)

    def __bool__(self) -> bool:
        return self.ridge > 0 or self.lasso > 0

    def prices(self, X: Any) -> Array:
        """lasso ||x|| per sample, of dense or sparse data: (n, 1)."""
        if not self.lasso:
            return np.zeros((X.shape[0], 1), dtype=X.dtype)
        squares = row_sums(X.multiply(X)) if scipy.sparse.issparse(X) else np.square(X).sum(axis=1)
        return self.lasso * np.sqrt(squares)[:, None]

    def value(self, H: Array, prices: Array) -> Array:
        """The penalty per sample."""
        return 0.5 * self.ridge * np.square(H).sum(axis=1) + prices[:, 0] * H.sum(axis=1)

    def gradient(self, H: Array, prices: Array) -> Array:
        """Its derivative in h >= 0."""
        return self.ridge * H + prices


DEFAULT_BOX, NO_PENALTY = Box(), Penalty()


class Problem(ABC):
    """min over h in the box of d(x || hW) + penalty(h), one problem per row of X."""

    # Attributes with one row per sample, as far as they are there: ``rows`` takes some of each.
    per_sample = ("X", "totals", "scale", "reach", "prices", "products")

    def __init__(self, divergence: Divergence, X: Any, W: Array, box: Box, penalty: Penalty) -> None:
        self.divergence, self.X, self.W, self.box, self.penalty = divergence, X, W, box, penalty

    # What the kinds of X differ in

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

    # What they have in common

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.X.shape[0])

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
        """The derivative of the objective in h: (n, K)."""
        return self._with_penalty(H, self._slope(H, Y))

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The gradient of the objective, and the curvatures that ``hessians`` turns into its Hessians."""
        G, curvatures = self._model(H, Y)
        return self._with_penalty(H, G), curvatures

    def _with_penalty(self, H: Array, G: Array) -> Array:
        return G + self.penalty.gradient(H, self.prices) if self.penalty else G

    def hessians(self, curvatures: Array) -> Array:
        """sum_f c_nf w_f w_f' + ridge for every sample, packed: (n, K (K + 1) / 2)."""
        M = self._hessians(curvatures)
        if self.penalty.ridge:
            M[:, packed_diagonal(self.K)] += self.penalty.ridge
        return M

    def tolerance(self, tol: float) -> Array:
        """tol * d(x || 2x) per sample, no tighter than the arithmetic of the dtype can tell."""
        return max(tol, 10 * self._eps) * self.scale

    @property
    def noise(self) -> Array:
        """What rounding may do to a sample's objective."""
        return 16 * self._eps * self.scale

    @property
    def _eps(self) -> float:
        return float(np.finfo(self.W.dtype).eps)

    def remaining_gain(self, H: Array, G: Array) -> Array:
        """A first-order bound on f(h) - min f per sample: see ``onmf.coefficients.base``."""
        down = np.maximum(G, 0.0) * (H - self.box.low)
        up = np.maximum(-G, 0.0) * np.minimum(np.maximum(self.reach - H, H), self.box.high - H)
        return (down + up).sum(axis=1)

    def start(self, H0: Array | None = None) -> Array:
        """A fresh array in the box: H0 in the rows where its fit has some of the sample's mass, or a uniform start."""
        H = _uniform(self.totals, self.mass)
        if H0 is not None:
            carries = H0 @ self.mass >= CARRIES * self.totals
            H = np.where(carries[:, None], H0, H).astype(self.X.dtype)
        return self.box.project(H)

    def blocks(self) -> list[slice]:
        """Samples for one thread to solve side by side; many if dense, as packed products of atoms serve them all."""
        n, F = self.X.shape
        if scipy.sparse.issparse(self.X):
            return threads.by_work(n, float(self.X.nnz) / max(n, 1) * self.K, 6e4)
        return threads.by_work(n, F * self.K, 3e6)

    def rows(self, keep: Mask | slice) -> Self:
        """The same problem for some of the samples."""
        part = object.__new__(type(self))
        known = self.__dict__
        part.__dict__.update(known)
        part.__dict__.update({name: known[name][keep] for name in self.per_sample if name in known})
        return part

    def least_squares(self) -> GramProblem | None:
        """A quadratic problem with the same solution, if there is one."""
        quadratic = self.divergence.least_squares
        if quadratic is None or (self.penalty and not self.divergence.quadratic):
            return None
        return GramProblem(quadratic, self.X, self.W, self.box, self.penalty)


class DenseProblem(Problem):
    """Everything by BLAS."""

    def fit(self, H: Array) -> Array:
        Y = np.empty((len(H), self.W.shape[1]), dtype=H.dtype)
        self._each(lambda rows: np.matmul(H[rows], self.W, out=Y[rows]))
        return Y

    def loss(self, H: Array, Y: Array) -> Array:
        return np.concatenate(self._each(lambda rows: self.divergence.value(self.X[rows], Y[rows])))

    def _slope(self, H: Array, Y: Array) -> Array:
        return np.concatenate(self._each(lambda rows: self.divergence.grad(self.X[rows], Y[rows]) @ self.W.T))

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        curvatures = np.empty_like(Y)

        def block(rows: slice) -> Array:
            slope, curvatures[rows] = self.divergence.newton_model(self.X[rows], Y[rows])
            return slope @ self.W.T

        return np.concatenate(self._each(block)), curvatures

    def _each(self, function: Callable[[slice], Any]) -> list[Any]:
        return threads.each(function, threads.by_work(self.n, self.X.shape[1], 60_000))

    def _hessians(self, curvatures: Array) -> Array:
        return weighted_grams(curvatures, self.W)


class SparseProblem(Problem):
    """X in CSR form; Y and the curvatures live at its non-zeros."""

    def __init__(self, divergence: Divergence, X: Any, W: Array, box: Box, penalty: Penalty) -> None:
        super().__init__(divergence, X, W, box, penalty)
        slope = divergence.slope_at_zero
        if slope is None:
            raise ValueError(f"{divergence.name} is not linear at zero: its sparse data must be densified.")
        self.slope_at_zero = slope
        self.Wt = np.ascontiguousarray(W.T)

    def fit(self, H: Array) -> Array:
        from onmf.kernels import sampled_product

        return sampled_product(self.X.indptr, self.X.indices, H, self.Wt)

    def loss(self, H: Array, Y: Array) -> Array:
        """The loss at the non-zeros, and slope times the fit's sum over the zeros."""
        entries = self.divergence.value(self.X.data[:, None], Y[:, None]) - self.slope_at_zero * Y
        return row_sums(self._like(entries)) + self.slope_at_zero * (H @ self.mass)

    def _slope(self, H: Array, Y: Array) -> Array:
        return self._gathered(self.divergence.grad(self.X.data[:, None], Y[:, None]))

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """At the zeros the gradient is constant, and there is no curvature."""
        slope, curvatures = self.divergence.newton_model(self.X.data[:, None], Y[:, None])
        return self._gathered(slope), curvatures[:, 0]

    def _gathered(self, slope: Array) -> Array:
        return self._like(slope[:, 0] - self.slope_at_zero) @ self.Wt + self.slope_at_zero * self.mass

    def _hessians(self, curvatures: Array) -> Array:
        from onmf.kernels import sampled_hessians

        M = sampled_hessians(self.X.indptr, self.X.indices, curvatures, self.Wt)
        # A sample with fewer non-zeros than atoms has singular Hessians: a thousandth of mass_k / reach_k damps them.
        damping = 1e-3 * np.square(self.mass) / np.where(self.totals > 0, self.totals, 1.0)[:, None]
        M[:, packed_diagonal(self.K)] += damping
        return M

    def rows_of(self, Y: Array, keep: Mask | slice) -> Array:
        indptr = self.X.indptr
        if isinstance(keep, slice):
            first, last, _ = keep.indices(self.n)
            return Y[indptr[first] : indptr[last]]
        return Y[np.repeat(keep, np.diff(indptr))]

    def _like(self, entries: Array) -> Any:
        return scipy.sparse.csr_matrix((entries, self.X.indices, self.X.indptr), shape=self.X.shape)


class GramProblem(Problem):
    """A quadratic loss as h Q h' / 2 - b h' + d(x || 0) with Q = WAW' and b = xAW': hQ stands for the fit.

    The samples, dense or sparse, are touched once. What is left of the loss of a nearly exact fit has lost digits.
    """

    def __init__(self, divergence: Divergence, X: Any, W: Array, box: Box, penalty: Penalty) -> None:
        super().__init__(divergence, X, W, box, penalty)
        self.AW = -divergence.grad(W, np.zeros_like(W))  # the rows A w_k
        Q = self.AW @ W.T
        self.Q = 0.5 * (Q + Q.T)

    @cached_property
    def products(self) -> Array:
        """The rows b."""
        return np.asarray(self.X @ self.AW.T)

    def penalised(self) -> tuple[Array, Array]:
        """Q and the rows b of the whole objective."""
        Q = self.Q.copy()
        Q[np.diag_indices_from(Q)] += self.penalty.ridge
        return Q, self.products - self.prices if self.penalty.lasso else self.products

    def fit(self, H: Array) -> Array:
        return H @ self.Q

    def loss(self, H: Array, Y: Array) -> Array:
        """d(x || 0) is d(x || 2x) here; what rounding takes below zero is zero."""
        return np.maximum(self.scale + (H * (0.5 * Y - self.products)).sum(axis=1), 0)

    def _slope(self, H: Array, Y: Array) -> Array:
        return Y - self.products

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        return Y - self.products, np.ones((len(Y), 1), dtype=Y.dtype)

    def _hessians(self, curvatures: Array) -> Array:
        return curvatures * self.Q[np.triu_indices(self.K)]

    def least_squares(self) -> GramProblem:
        return self


def pose(divergence: Divergence, X: Any, W: Array, box: Box = DEFAULT_BOX, penalty: Penalty = NO_PENALTY) -> Problem:
    """The problem in the form that suits X: dense, sparse, or on the Gram matrix (sparse X under squared l2)."""
    kind: type[Problem] = DenseProblem
    if scipy.sparse.issparse(X):
        kind = GramProblem if _separable_least_squares(divergence) else SparseProblem
    return kind(divergence, X, W, box, penalty)


def takes_sparse(divergence: Divergence) -> bool:
    """Does sparse X cost O(nnz) under this divergence? Others must be densified, batch by batch."""
    return divergence.slope_at_zero is not None or _separable_least_squares(divergence)


def _separable_least_squares(divergence: Divergence) -> bool:
    return divergence.quadratic and divergence.metric is None


def atom_sums(W: Array) -> Array:
    """sum_f W_kf per atom, as a product: BLAS does not mind in which order W lies in memory."""
    return W @ np.ones(W.shape[1], dtype=W.dtype)


def uniform_start(X: Any, W: Array) -> Array:
    """The same coefficient for all atoms, such that the fit has the sample's mass."""
    return _uniform(row_sums(X), atom_sums(W))


def _uniform(totals: Array, mass: Array) -> Array:
    return np.repeat(totals[:, None] / (float(mass.sum()) or 1.0), len(mass), axis=1)


def packed_diagonal(K: int) -> Counts:
    """Where the diagonal stands in a packed K x K matrix."""
    return np.cumsum(np.r_[0, np.arange(K, 1, -1)])


def weighted_grams(weights: Array, W: Array) -> Array:
    """sum_f c_nf w_f w_f' for every row of weights, packed: weights @ (W (x) W)'.

    By blocks of features whose packed products of atoms stay in the cache. The arrays are large, and fresh memory from
    the system costs as much as the product: they are added in place, and the result is the one allocated last, so that
    a caller who keeps it until the next call keeps the allocator from returning the memory of them all.
    """
    from onmf.kernels import pack

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
