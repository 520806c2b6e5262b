"""The coefficient problem, min over h in a set of d(x || hW) + penalty(h): all that a coefficient solver sees.

A solver asks for a fit, its loss, its gradient in h and its Hessians, and does not see which kind of X it has. Sparse X
cost O(nnz K): for divergences that are linear in y at x = 0, d(0, y) = slope * y, the zeros enter only through sums.
Where entries are missing or weigh differently, every sample has its own components: those at the entries that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, cached_property
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask, times_vector
from onmf.coefficients.losses import losses, model, scales, slopes
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box, Simplex
from onmf.samples import Samples

CARRIES = 1e-3  # of the sample's mass: a start whose fit has less is discarded, as the gradient may explode near 0
DEFAULT_BOX = Box()
ENTRIES = 60_000  # that make a thread worthwhile
MOST = 10.0  # times the mass that a sample is likely to have, in one component


class Problem:
    """min over h in the box, or on the simplex, of d(x || hW) + penalty(h), one problem per row of X.

    A quadratic loss may be posed on the Gram matrix of the components (``gram``), h Q h' / 2 - b h' + d(x || 0) with
    Q = WAW' and b = xAW': hQ stands for the fit, and samples are touched once. The loss of a nearly exact fit then
    loses digits to cancellation.
    """

    def __init__(
        self,
        divergence: Divergence,
        X: Samples | Any,
        W: Array,
        box: Box | Simplex = DEFAULT_BOX,
        penalty: Penalty = NO_PENALTY,
        gram: bool = False,
    ) -> None:
        X = X if isinstance(X, Samples) else Samples(X)
        self.divergence, self.X, self.W, self.box, self.penalty = divergence, X, W, box, penalty
        self.Q: Array | None = None
        self._few = X.shape[0] * X.shape[1] < 2 * ENTRIES  # too few to share out, as mostly while learning
        self.slope_at_zero = 0.0  # of the loss of a zero that X does not store
        if gram or (X.sparse and not X.masked and _is_squared_l2(divergence)):
            self.AW = -divergence.grad(W, np.zeros_like(W))  # the rows A w_k
            Q = self.AW @ W.T
            self.Q = 0.5 * (Q + Q.T)
        elif X.sparse:
            self.Wt = np.ascontiguousarray(W.T)
            if not X.masked:
                if divergence.slope_at_zero is None:
                    raise ValueError(f"{divergence.name} is not linear at zero: sparse samples must be made dense.")
                self.slope_at_zero = divergence.slope_at_zero

    # The objective and its derivatives. Fits Y and curvatures lie like X.values, or stand for hQ.

    def fit(self, H: Array) -> Array:
        """Y = HW where it is needed: everywhere, or at the stored entries of X; hQ on the Gram matrix."""
        if self.Q is not None:
            return H @ self.Q
        if not self.X.sparse:
            return H @ self.W if self._few else self._by_rows(lambda rows: H[rows] @ self.W)
        from onmf.coefficients.kernels import sampled_product

        X, Y = self.X.matrix, np.empty(self.X.values.size, dtype=H.dtype)
        threads.each(lambda rows: sampled_product(X, H, self.Wt, Y, rows.start, rows.stop), self.blocks())
        return Y

    def loss(self, H: Array, Y: Array) -> Array:
        """d(x || hW) per sample, without the penalty."""
        if self.Q is not None:  # d(x || 0) is d(x || 2x) here; what rounding takes below zero is zero
            return np.maximum(self.scale + (H * (0.5 * Y - self.products)).sum(axis=1), 0)
        if not self.X.sparse:
            if self._few:
                return losses(self.divergence, self.X, Y)
            return self._by_rows(lambda rows: losses(self.divergence, self.X[rows], Y[rows]))
        if self.X.masked:
            return losses(self.divergence, self.X, Y)
        # The loss at the non-zeros, and the slope times the fit's sum over the zeros.
        divergence, X, entries, s = self.divergence, self.X.matrix, np.empty_like(Y), self.slope_at_zero

        def block(rows: slice) -> None:
            e = slice(X.indptr[rows.start], X.indptr[rows.stop])
            entries[e] = divergence.value(X.data[e, None], Y[e, None]) - s * Y[e]

        threads.each(block, self.blocks())
        return self.X.per_sample(entries) + s * self.carried(H)

    def _slope(self, H: Array, Y: Array) -> Array:
        """The derivative of the loss in h."""
        if self.Q is not None:
            return Y - self.products
        if self.X.sparse:
            return self._gathered_with_zeros(slopes(self.divergence, self.X, Y))
        if self._few:
            return slopes(self.divergence, self.X, Y) @ self.W.T
        return self._by_rows(lambda rows: slopes(self.divergence, self.X[rows], Y[rows]) @ self.W.T)

    def _model(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The same, and the curvatures of ``newton``."""
        if self.Q is not None:
            return Y - self.products, np.ones((len(Y), 1), dtype=Y.dtype)
        if self.X.sparse:  # at the zeros the gradient is constant, and there is no curvature
            slope, curvatures = model(self.divergence, self.X, Y, newton=True)
            return self._gathered_with_zeros(slope), curvatures
        if self._few:
            slope, curvatures = model(self.divergence, self.X, Y, newton=True)
            return slope @ self.W.T, curvatures
        curvatures = np.empty_like(Y)

        def block(rows: slice) -> Array:
            slope, curvatures[rows] = model(self.divergence, self.X[rows], Y[rows], newton=True)
            return slope @ self.W.T

        return self._by_rows(block), curvatures

    def _by_rows(self, function: Callable[[slice], Array]) -> Array:
        """function(all rows), by blocks of rows on several threads."""
        return np.concatenate(threads.each(function, threads.by_work(self.n, self.X.shape[1], ENTRIES)))

    def gathered(self, entries: Array) -> Array:
        """sum_f e_f W_kf per sample and component, of numbers e that lie like ``X.values``: (n, K)."""
        return np.asarray(self.X.like(entries) @ self.Wt) if self.X.sparse else entries @ self.W.T

    def _gathered_with_zeros(self, slope: Array) -> Array:
        if self.X.masked:
            return self.gathered(slope)
        return self.gathered(slope - self.slope_at_zero) + self.slope_at_zero * self.mass

    def objective(self, H: Array, Y: Array) -> Array:
        """The loss and the penalty, per sample."""
        loss = self.loss(H, Y)
        return loss + self.penalty.value(H, self.l1) if self.penalty else loss

    def gradient(self, H: Array, Y: Array) -> Array:
        """The derivative of the objective in h: (n, K); on the simplex, its part along it."""
        return self._with_penalty(H, self._slope(H, Y))

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """The gradient of the objective, and the curvatures that ``hessians`` turns into its Hessians."""
        G, curvatures = self._model(H, Y)
        return self._with_penalty(H, G), curvatures

    def _with_penalty(self, H: Array, G: Array) -> Array:
        G = G + self.penalty.gradient(H, self.l1) if self.penalty else G
        # Along the simplex what all coefficients have in common is no slope, and would cost the others their digits.
        return G - G.mean(axis=1, keepdims=True) if isinstance(self.box, Simplex) else G

    def hessians(self, curvatures: Array) -> Array:
        """sum_f c_nf w_f w_f' + l2 for every sample, packed: (n, K (K + 1) / 2); kept from being singular."""
        if self.Q is not None:
            M: Array = curvatures * self.Q[np.triu_indices(self.K)]
        elif self.X.masked:
            M = self.own_grams.copy() if self.divergence.quadratic else self.grams(curvatures)
            diagonal = packed_diagonal(self.K)
            own = M[:, diagonal]
            own += (1e-4 / self.K) * own.sum(axis=1, keepdims=True) + float(np.finfo(M.dtype).tiny)
            M[:, diagonal] = own
        else:
            M = self.grams(curvatures)
            if self.X.sparse or self.W.shape[1] < 2 * self.K:  # fewer entries than components, or nearly so
                totals = np.where(self.totals > 0, self.totals, 1.0)[:, None]
                M[:, packed_diagonal(self.K)] += 1e-3 * np.square(self.mass) / totals
        if self.penalty.l2:
            M[:, packed_diagonal(self.K)] += self.penalty.l2
        return M

    def positive_hessians(self, Y: Array) -> Array:
        """``hessians`` of the dictionary's quadratic models, whose curvatures are positive."""
        return self.hessians(model(self.divergence, self.X, Y)[1])

    def grams(self, curvatures: Array) -> Array:
        """sum_f c_nf w_f w_f' for every sample, packed."""
        if not self.X.sparse:
            return weighted_grams(curvatures, self.W)
        from onmf.coefficients.kernels import sampled_hessians

        M = np.zeros((self.n, self.K * (self.K + 1) // 2), dtype=curvatures.dtype)
        sampled_hessians(self.X.matrix, curvatures, self.Wt, M)
        return M

    # What is known of the samples and the components

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.X.shape[0])

    @property
    def K(self) -> int:
        """The number of components."""
        return len(self.W)

    @cached_property
    def mass(self) -> Array:
        """sum_f W_kf per component: (K,); by the weights of a sample's entries where these differ: (n, K)."""
        return np.asarray(self.X.entry_weights @ self.W.T) if self.X.masked else component_sums(self.W)

    @cached_property
    def totals(self) -> Array:
        """sum_f x_f per sample."""
        return self.X.sum(axis=1)

    @cached_property
    def scale(self) -> Array:
        """d(x || 2x) per sample."""
        return scales(self.divergence, self.X)

    @cached_property
    def size(self) -> Array:
        """What rounding is measured by: ``scale``, or the loss of equal shares, far above it for a dark sample."""
        if not isinstance(self.box, Simplex):
            return self.scale
        H = self.start(None)
        return np.maximum(self.scale, self.loss(H, self.fit(H)))

    @cached_property
    def reach(self) -> Array:
        """r_k = sum_f x_f / sum_f W_kf: the coefficient at which component k alone has the sample's mass: (n, K)."""
        return self.totals[:, None] / np.where(self.mass > 0, self.mass, 1.0)

    @cached_property
    def l1(self) -> Array:
        """The penalty on one unit of a coefficient, per sample: (n, 1)."""
        return self.penalty.per_unit(self.X)

    @cached_property
    def products(self) -> Array:
        """The rows b of a problem on the Gram matrix."""
        return np.asarray(self.X.matrix @ self.AW.T)

    @cached_property
    def most(self) -> Array | None:
        """What no coefficient of a masked sample may exceed: ten times the mass that the sample is likely to have.

        Where a component has next to nothing at the entries that are there, a little gain there would have any
        coefficient, and the rest of the sample would be filled with it.
        """
        if not self.X.masked or isinstance(self.box, Simplex):
            return None
        mass, weight = component_sums(self.W), self.X.weight_sums(axis=1)
        likely = MOST * self.X.shape[1] * self.totals / np.where(weight > 0, weight, 1.0)
        return np.divide.outer(likely, np.where(mass > 0, mass, 1.0)) + self.box.low

    @cached_property
    def own_grams(self) -> Array:
        """The Hessians of the sum of weighted squares that has the same minimum, of masked samples."""
        return self.grams(self.squares[1])

    @property
    def squares(self) -> tuple[Array, Array]:
        """The slopes of that sum at a fit of zero, and its curvatures."""
        quadratic = self.divergence.least_squares or self.divergence
        return model(quadratic, self.X, np.zeros_like(self.X.values), newton=True)

    def penalised(self) -> tuple[Array, Array]:
        """Q and the rows b of the whole objective, of a problem on the Gram matrix."""
        assert self.Q is not None  # noqa: S101
        Q = self.Q + self.penalty.l2 * np.eye(self.K, dtype=self.Q.dtype) if self.penalty.l2 else self.Q
        return Q, self.products - self.l1 if self.penalty.linear else self.products

    # Convergence

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

    # Starts and parts

    def start(self, H0: Array | None = None) -> Array:
        """A fresh array in the set: H0 in the rows where its fit has some of the sample's mass, or a uniform start."""
        H = self._uniform()
        if H0 is not None:
            carries = self.carried(H0) >= CARRIES * self.totals
            H = np.where(carries[:, None], H0, H).astype(self.X.dtype)
        if self.penalty:  # on a component of zeros, which has no use, nor a curvature to find the way by
            H[np.broadcast_to(self.mass == 0, H.shape)] = 0.0
        return self.box.project(H)

    def carried(self, H: Array) -> Array:
        """sum_f (hW)_f per sample."""
        return (H * self.mass).sum(axis=1) if self.X.masked else times_vector(H, self.mass)

    def _uniform(self) -> Array:
        """The same coefficient for all components, such that the fit has the sample's mass."""
        if not self.X.masked:
            return np.repeat(self.totals[:, None] / (float(self.mass.sum()) or 1.0), self.K, axis=1)
        mass = self.mass.sum(axis=1, keepdims=True)
        return np.repeat(self.totals[:, None] / np.where(mass > 0, mass, 1.0), self.K, axis=1)

    def blocks(self) -> list[slice]:
        """Samples for one thread to solve side by side; many if dense, as packed products of components serve all."""
        n, F = self.X.shape
        if not self.X.sparse:
            return threads.by_work(n, F * self.K, 3e6)
        # On the Gram matrix what takes long, the active sets, is shared out among the threads anyway.
        enough = 6e4 if self.Q is None else 3e6
        return threads.by_work(n, float(self.X.values.size) / max(n, 1) * self.K, enough)

    def rows_of(self, Y: Array, keep: Mask | slice) -> Array:
        """What ``fit`` or ``newton`` gave, for some of the samples."""
        if not self.X.sparse or self.Q is not None:
            return Y[keep]
        indptr = self.X.matrix.indptr
        if isinstance(keep, slice):
            first, last, _ = keep.indices(self.n)
            return Y[indptr[first] : indptr[last]]
        return Y[np.repeat(keep, np.diff(indptr))]

    def rows(self, keep: Mask | Counts | slice, known: Collection[str] = ()) -> Problem:
        """The same problem for some of the samples, with all that is known about them, or just ``known``."""
        part, per_sample = object.__new__(Problem), PER_SAMPLE_MASKED if self.X.masked else PER_SAMPLE
        for name, value in self.__dict__.items():
            if name not in per_sample or value is None:
                part.__dict__[name] = value
            elif not known or name in known:
                part.__dict__[name] = value[keep]
        part._few = part.X.shape[0] * part.X.shape[1] < 2 * ENTRIES
        return part


# What has one row per sample, if it is known.
PER_SAMPLE = frozenset({"X", "totals", "scale", "size", "reach", "l1", "products"})
PER_SAMPLE_MASKED = PER_SAMPLE | {"mass", "most", "own_grams"}


def takes_sparse(divergence: Divergence, masked: bool = False) -> bool:
    """Does sparse X cost O(nnz) under this divergence? Others must be densified, batch by batch."""
    if masked:
        return divergence.separable and not divergence.absolute_deviations
    return divergence.slope_at_zero is not None or _is_squared_l2(divergence)


def _is_squared_l2(divergence: Divergence) -> bool:
    return divergence.quadratic and divergence.metric is None


def component_sums(W: Array) -> Array:
    """sum_f W_kf per component, as a product: BLAS does not mind in which order W lies in memory."""
    return times_vector(W, np.ones(W.shape[1], dtype=W.dtype))


def weighted_grams(weights: Array, W: Array) -> Array:
    """sum_f c_nf w_f w_f' for every row of weights, packed: weights @ (W (x) W)'.

    By blocks of features whose packed products of components stay in the cache. The arrays are large, and fresh memory
    from the system costs as much as the product: they are added in place, and the result is the one allocated last, so
    that a caller who keeps it until the next call keeps the allocator from returning the memory of them all.
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


@cache
def packed_diagonal(K: int) -> Counts:
    """The positions of the diagonal in a packed K x K matrix."""
    positions = np.cumsum(np.r_[0, np.arange(K, 1, -1)])
    positions.flags.writeable = False
    return positions
