"""The coefficient problem, min over h in a set of d(x || hW) + penalty(h): all that a coefficient solver sees.

A solver asks for a fit, its loss, its gradient in h and its Hessians, and does not see which kind of X it has. Sparse X
cost O(nnz K): for divergences that are linear in y at x = 0, d(0, y) = slope * y, the zeros enter only through sums.
Where entries are missing or weigh differently, every sample has its own components: those at the entries that it has.

``losses``, ``slopes`` and ``model`` are what a divergence says of samples and fits, by the weights of the entries. Fits
lie like ``X.values``: everywhere, or at the stored entries of a sparse X, where what X leaves out is not in the sums. A
divergence that is not a sum over entries (l2) sees samples and fits times the roots of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask, row_sums, times_vector
from onmf._support.threads import cached_property
from onmf.coefficients import kernels
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box, Simplex
from onmf.samples import Samples

CARRIES = 1e-3  # of the sample's mass: a start whose fit has less is discarded, as the gradient may explode near 0
DEFAULT_BOX = Box()
ENTRIES = 60_000  # that make a thread worthwhile
FEWEST, HESSIANS, FITS = 64, 6e5, 5e5  # samples, at least, and numbers, at most, in a block of dense samples
MOST = 10.0  # times the mass that a sample is likely to have, in one component


def losses(divergence: Any, X: Samples, Y: Array) -> Array:
    """Return d(x || y) per sample: (n,)."""
    if divergence.separable:
        with np.errstate(over="ignore"):  # a loss beyond the range of the dtype is infinite: no step will end there
            return X.per_sample(divergence.d(np, X.values, Y))
    value: Array = divergence.value(*_by_roots(X, Y)[1:])
    return value


def slopes(divergence: Divergence, X: Samples, Y: Array) -> Array:
    """Return the derivatives of the loss in the fits, like ``X.values``."""
    if divergence.separable:
        return X.times_entry_weight(divergence.grad(X.values, Y))
    roots, x, y = _by_roots(X, Y)
    slope = divergence.grad(x, y)
    return slope if roots is None else roots * slope


def quadratic_model(divergence: Divergence, X: Samples, Y: Array, newton: bool = False) -> tuple[Array, Array]:
    """Return slopes and curvatures of the quadratic model in the fits: the dictionary's, or Newton's."""
    if divergence.separable:
        slope, curvature = divergence.model(np, X.values, Y, newton, X.row_mean)
        return X.times_entry_weight(slope), X.times_entry_weight(curvature)
    roots, x, y = _by_roots(X, Y)
    slope, curvature = divergence.model(np, x, y, newton)
    return slope if roots is None else roots * slope, X.times_entry_weight(curvature)


def _by_roots(X: Samples, Y: Array) -> tuple[Array | None, Array, Array]:
    """Return the roots of the weights of dense samples' entries, if these differ, and samples and fits times them."""
    if not X.masked:
        return None, X.matrix, Y
    roots = np.sqrt(X.entry_weights)
    return roots, roots * X.matrix, roots * Y


def multiplicative_parts(divergence: Divergence, X: Samples, Y: Array) -> tuple[Array, Array | None]:
    """Return P and N of the multiplicative updates by weight; N = None stands for ones, or for the weights."""
    if divergence.separable or not X.masked:
        P, N = divergence.multiplicative_parts(X.values, Y, X.row_mean)
        return X.times_entry_weight(P), None if N is None else X.times_entry_weight(N)
    slope, curvature = quadratic_model(divergence, X, Y)
    return np.maximum(curvature * Y - slope, 0.0), curvature * Y


def scales(divergence: Divergence, X: Samples) -> Array:
    """Return d(x || 2x) per sample, the loss of a fit that is twice too large."""
    twice, degree = divergence.loss_of_twice, divergence.degree
    if twice is None:
        X = X if divergence.separable else X.densified()
        return losses(divergence, X, np.maximum(2 * X.values, TINY))
    if degree == 1:
        return X.sum(axis=1) * twice
    if degree == 2 and not (X.sparse or X.masked):
        return np.einsum("nf,nf->n", X.matrix, X.matrix) * twice
    powers = np.square(X.values) if degree == 2 else np.where(X.values > 0, X.values, 1.0) ** degree * (X.values > 0)
    return row_sums(X.like(X.times_entry_weight(powers))) * twice


def adapted(divergence: Divergence, X: Samples, Y: Array, share: float) -> Divergence:
    """Return the divergence with a parameter that follows the residuals moved by ``share`` towards those of X."""
    counted = X.with_sample_weights_in_entries()
    weights = counted.times_entry_weight(np.ones_like(X.values)) if counted.masked else None
    return divergence.adapted(np.abs(X.values - Y), weights, float(counted.mean()), share)


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
        self.proved_slopes: Array | None = None  # those of the last solution, where the solver has found them, too
        self._few = X.shape[0] * X.shape[1] < 2 * ENTRIES  # too few to share out, as mostly while learning
        self.slope_at_zero = 0.0  # of the loss of a zero that X does not store
        if gram or (X.omits_zeros and _is_squared_l2(divergence)):
            self.AW = -divergence.grad(W, np.zeros_like(W))  # the rows A w_k
            Q = self.AW @ W.T
            self.Q = 0.5 * (Q + Q.T)
        elif X.sparse:
            self.Wt = np.ascontiguousarray(W.T)
            if X.omits_zeros:
                if divergence.slope_at_zero is None:
                    raise ValueError(f"{divergence.name} is not linear at zero: sparse samples must be made dense.")
                self.slope_at_zero = divergence.slope_at_zero

    # The objective and its derivatives. Fits Y and curvatures lie like X.values, or stand for hQ.

    def fit(self, H: Array) -> Array:
        """Return Y = HW where it is needed: everywhere, or at the stored entries of X; hQ on the Gram matrix."""
        if self.Q is not None:
            return H @ self.Q
        if not self.X.sparse:
            return H @ self.W if self._few else self._by_rows(lambda X, H: H @ self.W, H)
        X, Y = self.X.matrix, np.empty(self.X.values.size, dtype=H.dtype)
        threads.each(lambda rows: kernels.gram.sampled_product(X, H, self.Wt, Y, rows.start, rows.stop), self.blocks())
        return Y

    def loss(self, H: Array, Y: Array) -> Array:
        """Return d(x || hW) per sample, without the penalty."""
        divergence, s = self.divergence, self.slope_at_zero
        if self.Q is not None:  # d(x || 0) is d(x || 2x) here; what rounding takes below zero is zero
            return np.maximum(self.scale + (H * (0.5 * Y - self.products)).sum(axis=1), 0)
        if not self.X.omits_zeros if self.X.sparse else self._few:
            return losses(divergence, self.X, Y)
        if not self.X.sparse:
            return self._by_rows(lambda X, Y: losses(divergence, X, Y), Y)
        # The loss at the non-zeros, and the slope times the fit's sum over the zeros.
        X, entries = self.X.matrix, np.empty_like(Y)

        def block(rows: slice) -> None:
            e = slice(X.indptr[rows.start], X.indptr[rows.stop])
            entries[e] = divergence.value(X.data[e, None], Y[e, None]) - s * Y[e]

        threads.each(block, self.blocks())
        return self.X.per_sample(entries) + s * self.carried(H)

    def objective(self, H: Array, Y: Array) -> Array:
        """Return the loss and the penalty, per sample."""
        loss = self.loss(H, Y)
        return loss + self.penalty.value(H, self.l1) if self.penalty else loss

    def gradient(self, H: Array, Y: Array) -> Array:
        """Return the derivative of the objective in h: (n, K); on the simplex, its part along it."""
        if self.Q is not None:
            G: Array = Y - self.products
        elif self.X.sparse:
            G = self._gathered_with_zeros(slopes(self.divergence, self.X, Y))
        else:
            G = self._by_rows(lambda X, Y: slopes(self.divergence, X, Y) @ self.W.T, Y)
        return self._with_penalty(H, G)

    def slopes(self, Y: Array) -> Array:
        """Return the slopes u (n, F) of the losses in the fits Y = HW of all entries: h (x) u is the slope in W.

        Where a fit is exact, l1 and l2 have many slopes in it, and only some will do: those that the solver has found.
        """
        found = self.proved_slopes
        return slopes(self.divergence, self.X.densified(), Y) if found is None else found

    def newton(self, H: Array, Y: Array) -> tuple[Array, Array]:
        """Return the gradient of the objective, and the curvatures that ``hessians`` turns into its Hessians."""
        if self.Q is not None:
            return self.gradient(H, Y), np.ones((len(Y), 1), dtype=Y.dtype)
        if self.X.sparse or self._few:  # at the zeros the gradient is constant, and there is no curvature
            slope, curvatures = quadratic_model(self.divergence, self.X, Y, newton=True)
            return self._with_penalty(H, self._gathered_with_zeros(slope)), curvatures
        curvatures = np.empty_like(Y)

        def block(X: Samples, Y: Array, out: Array) -> Array:
            slope, out[:] = quadratic_model(self.divergence, X, Y, newton=True)
            return slope @ self.W.T

        return self._with_penalty(H, self._by_rows(block, Y, curvatures)), curvatures

    def _by_rows(self, function: Callable[..., Array], *rows: Array) -> Array:
        """Return function(X, *rows), by blocks of rows on several threads where there are many."""
        if self._few:
            return function(self.X, *rows)
        blocks = threads.by_work(self.n, self.X.shape[1], ENTRIES)
        return np.concatenate(threads.each(lambda some: function(self.X[some], *(a[some] for a in rows)), blocks))

    def gathered(self, entries: Array) -> Array:
        """Return sum_f e_f W_kf per sample and component, of numbers e that lie like ``X.values``: (n, K)."""
        return np.asarray(self.X.like(entries) @ self.Wt) if self.X.sparse else entries @ self.W.T

    def _gathered_with_zeros(self, slope: Array) -> Array:
        if not self.X.omits_zeros:
            return self.gathered(slope)
        return self.gathered(slope - self.slope_at_zero) + self.slope_at_zero * self.mass

    def _with_penalty(self, H: Array, G: Array) -> Array:
        G = G + self.penalty.gradient(H, self.l1) if self.penalty else G
        # Along the simplex what all coefficients have in common is no slope, and would cost the others their digits.
        return G - G.mean(axis=1, keepdims=True) if isinstance(self.box, Simplex) else G

    def hessians(self, curvatures: Array) -> Array:
        """Return sum_f c_nf w_f w_f' + l2 for every sample, packed: (n, K (K + 1) / 2); kept from being singular."""
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
        """Return ``hessians`` of the dictionary's quadratic models, whose curvatures are positive."""
        return self.hessians(quadratic_model(self.divergence, self.X, Y)[1])

    def grams(self, curvatures: Array) -> Array:
        """Return sum_f c_nf w_f w_f' for every sample, packed."""
        if not self.X.sparse:
            return weighted_grams(curvatures, self.W)
        M = np.zeros((self.n, self.K * (self.K + 1) // 2), dtype=curvatures.dtype)
        kernels.gram.sampled_hessians(self.X.matrix, curvatures, self.Wt, M)
        return M

    # Facts about the samples and the components

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
    def rounding_scale(self) -> Array:
        """The size of a loss that rounding is measured by: ``scale``, on the simplex at least the loss of equal shares.

        A sample of tiny entries has a scale far below that loss.
        """
        if not isinstance(self.box, Simplex):
            return self.scale
        H = self.start(None)
        return np.maximum(self.scale, self.loss(H, self.fit(H)))

    @cached_property
    def reach(self) -> Array:
        """r_k = sum_f x_f / sum_f W_kf: the coefficient at which component k alone has the sample's mass: (n, K)."""
        return self.totals[:, None] / (self.mass + (self.mass == 0))

    @cached_property
    def l1(self) -> Array:
        """The penalty on one unit of a coefficient, per sample: (n, 1)."""
        return self.penalty.per_unit(self.X)

    @cached_property
    def products(self) -> Array:
        """The rows b of a problem on the Gram matrix."""
        return np.asarray(self.X.matrix @ self.AW.T)

    @cached_property
    def upper_bounds(self) -> Array | None:
        """Upper bounds on the coefficients of masked samples: ten times the mass that the sample is likely to have.

        Where a component has next to nothing at the entries that are there, a little gain there would justify any
        coefficient, and the rest of the sample would be filled with it.
        """
        if not self.X.masked or isinstance(self.box, Simplex):
            return None
        mass, weight = component_sums(self.W), self.X.weight_sums(axis=1)
        likely = MOST * self.X.shape[1] * self.totals / np.where(weight > 0, weight, 1.0)
        return np.divide.outer(likely, np.where(mass > 0, mass, 1.0)) + self.box.low

    @cached_property
    def own_grams(self) -> Array:
        """The Hessians of ``squares``, of masked samples."""
        return self.grams(self.squares[1])

    @property
    def is_penalised_distance(self) -> bool:
        """Is the loss a distance, with a kink at exact fits, that the penalty keeps from being least squares?"""
        divergence = self.divergence
        return bool(self.penalty) and divergence.least_squares is not None and not divergence.quadratic

    @property
    def squares(self) -> tuple[Array, Array]:
        """The slopes at a fit of zero, and the curvatures, of the sum of weighted squares that has the same minimum."""
        quadratic = self.divergence.least_squares or self.divergence
        return quadratic_model(quadratic, self.X, np.zeros_like(self.X.values), newton=True)

    def penalised(self) -> tuple[Array, Array]:
        """Return Q and the rows b of the whole objective, of a problem on the Gram matrix."""
        assert self.Q is not None  # noqa: S101
        Q = self.Q + self.penalty.l2 * np.eye(self.K, dtype=self.Q.dtype) if self.penalty.l2 else self.Q
        return Q, self.products - self.l1 if self.penalty.linear else self.products

    # Convergence

    def tolerance(self, tol: float) -> Array:
        """Return tol * d(x || 2x) per sample, no tighter than the arithmetic of the dtype can tell."""
        if isinstance(self.box, Simplex):
            return np.maximum(tol * self.scale, 10 * self._eps * self.rounding_scale)
        return max(tol, 10 * self._eps) * self.scale

    @property
    def noise(self) -> Array:
        """The distance that rounding may move a sample's objective."""
        return 16 * self._eps * self.rounding_scale

    @property
    def _eps(self) -> float:
        return float(np.finfo(self.W.dtype).eps)

    def remaining_gain(self, H: Array, G: Array) -> Array:
        """Return a first-order bound on f(h) - min f per sample: see ``onmf.coefficients.base``."""
        if isinstance(self.box, Simplex):
            return self.box.gap(H, G)
        return kernels.gram.remaining_gains(H, G, self.reach, self.box.low, self.box.high)

    def enough(self, H: Array, G: Array, f: Array, tol: float, tolerance: Array) -> Mask:
        """Return where at most ``tolerance`` is left to gain, or tol of f on the simplex, where fits may be far off."""
        if isinstance(self.box, Simplex):
            tolerance = np.maximum(tolerance, tol * f)
        elif self.is_penalised_distance:  # near its kink a low objective says nothing of the slope
            return self.remaining_gain(H, G) <= tolerance
        return np.minimum(self.remaining_gain(H, G), f) <= tolerance

    # Starts and parts

    def start(self, H0: Array | None = None) -> Array:
        """Return a fresh array in the set: H0 where its fit has some of the sample's mass, or else a uniform start.

        There all components have the same coefficient, such that the fit has the sample's mass.
        """
        mass = self.mass.sum(axis=-1, keepdims=True)
        H = np.repeat(self.totals[:, None] / np.where(mass > 0, mass, 1.0), self.K, axis=1)
        if H0 is not None:
            carries = self.carried(H0) >= CARRIES * self.totals
            H = np.where(carries[:, None], H0, H).astype(self.X.dtype)
        if self.penalty:  # on a component of zeros, which has no use, nor a curvature to find the way by
            H[np.broadcast_to(self.mass == 0, H.shape)] = 0.0
        return self.box.project(H)

    def carried(self, H: Array) -> Array:
        """Return sum_f (hW)_f per sample."""
        return (H * self.mass).sum(axis=1) if self.X.masked else times_vector(H, self.mass)

    def blocks(self) -> list[slice]:
        """Return blocks of samples for threads: large ones if dense, as samples share packed products of components."""
        n, F = self.X.shape
        if not self.X.sparse and self.Q is None:
            return threads.blocks(n, max(FEWEST, int(min(HESSIANS / (self.K * (self.K + 1)), FITS / F))))
        # On the Gram matrix what takes long, the active sets, is shared out among the threads anyway.
        enough = 6e4 if self.Q is None else 3e6
        return threads.by_work(n, float(self.X.values.size) / max(n, 1) * self.K, enough)

    def rows_of(self, Y: Array, keep: Mask | slice) -> Array:
        """Return the rows of some samples in what ``fit`` or ``newton`` gave."""
        if not self.X.sparse or self.Q is not None:
            return Y[keep]
        indptr = self.X.matrix.indptr
        if isinstance(keep, slice):
            first, last, _ = keep.indices(self.n)
            return Y[indptr[first] : indptr[last]]
        return Y[np.repeat(keep, np.diff(indptr))]

    def rows(self, keep: Mask | Counts | slice, needed: Collection[str] = ()) -> Problem:
        """Return the same problem for some of the samples, with all facts about them, or just those ``needed``."""
        part = object.__new__(Problem)
        for name, value in self.__dict__.items():
            if value is None or name not in PER_SAMPLE or (name == "mass" and value.ndim == 1):
                part.__dict__[name] = value
            elif not needed or name in needed:
                part.__dict__[name] = value[keep]
        part._few = part.X.shape[0] * part.X.shape[1] < 2 * ENTRIES
        return part

    def on_gram(self) -> Problem | None:
        """Return a quadratic problem on the Gram matrix with the same solution, if there is one."""
        if self.Q is not None:
            return self
        quadratic = self.divergence.least_squares
        if self.X.masked or quadratic is None or self.is_penalised_distance:
            return None
        return Problem(quadratic, self.X, self.W, self.box, self.penalty, gram=True)


# What is computed once has one row per sample; the mass has that of masked samples only.
COMPUTED = {name for name, value in vars(Problem).items() if isinstance(value, cached_property)}
PER_SAMPLE = frozenset({"X", "proved_slopes"} | COMPUTED)


def takes_sparse(divergence: Divergence, masked: bool = False) -> bool:
    """Return whether sparse X cost O(nnz) under this divergence; else they must be densified, batch by batch."""
    if masked:
        return divergence.separable and not divergence.absolute_deviations
    return divergence.slope_at_zero is not None or _is_squared_l2(divergence)


def _is_squared_l2(divergence: Divergence) -> bool:
    return divergence.quadratic and divergence.metric is None


def component_sums(W: Array) -> Array:
    """Return sum_f W_kf per component, as a product: BLAS does not mind in which order W lies in memory."""
    return times_vector(W, np.ones(W.shape[1], dtype=W.dtype))


def weighted_grams(weights: Array, W: Array) -> Array:
    """Return sum_f c_nf w_f w_f' for every row of weights, packed: weights @ (W (x) W)'.

    By blocks of features whose packed products of components stay in the cache. The arrays are large, and fresh memory
    from the system costs as much as the product: they are added in place, and the result is the one allocated last, so
    that a caller who keeps it until the next call keeps the allocator from returning the memory of them all.
    """

    def group(features: slice) -> Array:
        total = np.empty((len(weights), packed), dtype=weights.dtype)
        kernels.gram.weighted_grams(weights, W, total, features.start, features.stop)
        return total

    K, F = W.shape
    packed = K * (K + 1) // 2
    *others, total = threads.each(group, threads.by_work(F, len(weights) * packed, 6e6))
    for part in others:
        total += part
    return total


def unpacked(M: Array, K: int) -> Array:
    """Return the symmetric matrices (n, K, K) of packed ones (n, P)."""
    (j, k), full = np.triu_indices(K), np.empty((len(M), K, K), dtype=M.dtype)
    full[:, j, k] = full[:, k, j] = M
    return full


@cache
def packed_diagonal(K: int) -> Counts:
    """Return the positions of the diagonal in a packed K x K matrix."""
    positions = np.cumsum(np.r_[0, np.arange(K, 1, -1)])
    positions.flags.writeable = False
    return positions
