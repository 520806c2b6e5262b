"""The constraint sets of the paper's Problem Formulation, with their exact Euclidean projections.

    C = {W >= 0, sum_k W_kf >= eps for every feature f, W_kf <= 1}        dictionaries
    H = {eps' <= h_k <= U}                                                coefficients

Together they keep the fit y = hW above eps * eps', where every divergence is finite. The robust losses need no
such floor: for them eps and eps' may be 0 (Remark 2).

Or the coefficients are shares, H = {h_k >= eps', sum_k h_k = 1}: W is then in the data's units, and C unbounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_whole
from onmf.divergences import Divergence

COEFFICIENTS = ("nonnegative", "simplex")
LEAST_LACK = 1e-6  # of eps, that a feature can lack: less is the rounding of what fixed components give it


def project_on_simplex(V: Array, size: float | Array, metric: Array | None = None) -> Array:
    """Argmin sum (P - V)^2 / metric over columns P_:f >= 0 with sum_k P_kf = size_f (Duchi et al. 2008, by sorting).

    P = max(V + metric * nu, 0) with one nu per column; no ``metric`` means ones, the Euclidean projection.
    """
    D = np.ones_like(V) if metric is None else metric
    # A shift along D changes nothing, but keeps the digits of a V far below the simplex. Upwards only: downwards, it
    # could be so long where D is large that no digit of V is left.
    V = V - D * np.minimum((V / D).max(axis=0), 0.0)
    ratio = V / D
    order = np.argsort(-ratio, axis=0, kind="stable")
    descending, v, d = (np.take_along_axis(array, order, axis=0) for array in (ratio, V, D))
    levels = (size - np.cumsum(v, axis=0)) / np.cumsum(d, axis=0)
    support = np.count_nonzero(descending + levels > 0, axis=0)
    support = np.maximum(support, 1)  # rounding can empty it when size is far below the spacing of V
    nu = np.take_along_axis(levels, support[None, :] - 1, axis=0)
    return np.maximum(V + D * nu, 0.0)


@dataclass(frozen=True)
class DictionarySet:
    """C: entries in [0, high], every feature with at least ``eps`` of total weight over the components.

    The first ``fixed`` components are known: they stay as they are, and the others give a feature what it lacks.
    """

    eps: float = 1e-8
    fixed: int = 0
    high: float = 1.0  # or infinite, where the coefficients sum to one: no change of units could keep W below a bound

    def __post_init__(self) -> None:
        require_whole(0, fixed=self.fixed)
        if not is_number(self.eps) or not 0 <= self.eps < 1:
            raise ValueError(f"eps must lie in [0, 1), got {self.eps!r}.")
        if not is_number(self.high) or self.high not in (1.0, np.inf):
            raise ValueError(f"entries of the dictionary are at most 1, or have no bound; got {self.high!r}.")

    def project(self, V: Array, metric: Array | None = None) -> Array:
        """Argmin sum (W - V)^2 / metric over W in C; no ``metric`` means ones, the Euclidean projection.

        Fixed components are returned as they are in V. Of the others, clipping to [0, high] is the answer for a feature
        whose clipped weights reach eps, whatever the metric. Otherwise the constraint on the sum is active, and the
        *unclipped* weights are projected on the simplex of the size that is lacking; since eps < 1, the upper bound
        then holds by itself.
        """
        W: Array = np.clip(V, 0.0, self.high)
        known, free = slice(0, self.fixed), slice(self.fixed, None)
        W[known] = V[known]
        if self.eps > 0 and self.fixed < len(V):
            short = W.sum(axis=0) < self.eps
            if metric is None and short.any():  # the projection of zero, often that of many features, needs no sorting
                nothing = short & ~V.any(axis=0)
                W[free, nothing] = self.least_mean(len(V))
                short &= ~nothing
            if short.any():
                # In double precision: eps may be far below the rounding of V. The last line undoes the loss of
                # a feature's few ulps, so that a projection is feasible and stays where it is when repeated.
                D = None if metric is None else metric[free, short].astype(np.float64)
                lacking = np.maximum(self.eps - V[known, short].sum(axis=0, dtype=np.float64), LEAST_LACK * self.eps)
                P = project_on_simplex(V[free, short].astype(np.float64), lacking, D)
                P *= np.maximum(lacking / P.sum(axis=0), 1.0)
                W[free, short] = P
        return W

    def least_mean(self, K: int) -> float:
        """The weight that makes a feature feasible if each of those of the K components that are learnt has it."""
        return self.eps / max(K - self.fixed, 1)

    def contains(self, W: Array, rtol: float = 1e-6) -> bool:
        """Is W in C, up to rounding?"""
        inside = np.isfinite(W).all() and (W >= 0).all() and (self.high * (1 + rtol) >= W).all()
        if not inside or self.fixed > len(W):
            return False
        return self.fixed == len(W) or bool((W.sum(axis=0) >= self.eps * (1 - rtol)).all())

    def rescale_into(self, W: Array) -> Array:
        """The same components in C by a change of units: W_k / s_k and h_k * s_k give the same fit.

        Only features without any weight have to be projected, since no change of units can give them some.
        """
        return self.project(W / np.maximum(W.max(axis=1, keepdims=True) / self.high, 1.0))


@dataclass(frozen=True, eq=False)
class DictionaryBox:
    """{low_f <= W_kf <= high}, a part of C where K min low >= eps: every component keeps a little of every feature."""

    low: Array  # (F,)
    fixed: int = 0  # the first components, which are known and stay as they are
    high: float = 1.0

    def project(self, V: Array, metric: Array | None = None) -> Array:
        """Argmin sum (W - V)^2 / metric over W in the box: entrywise thresholding, whatever the metric."""
        W = np.minimum(np.maximum(V, self.low), self.high)
        W[: self.fixed] = V[: self.fixed]
        return W


@dataclass(frozen=True)
class Box:
    """H: every coefficient in [low, high]; the paper's eps' and U."""

    low: float = 1e-8
    high: float = 1e8

    def __post_init__(self) -> None:
        if not (is_number(self.low) and is_number(self.high)) or not 0 <= self.low < self.high:
            raise ValueError(f"the coefficients' bounds need 0 <= eps_prime < U, got {self.low!r} and {self.high!r}.")

    def project(self, H: Array) -> Array:
        """Argmin ||P - H||_F over low <= P <= high: entrywise thresholding."""
        return np.minimum(np.maximum(H, self.low), self.high)

    def contains(self, H: Array) -> bool:
        """Is every entry of H in [low, high], up to the rounding of its dtype?"""
        low, high = np.asarray([self.low, self.high], dtype=H.dtype)
        return bool(((low <= H) & (high >= H)).all())


@dataclass(frozen=True)
class Simplex:
    """H of shares: every coefficient at least ``low``, and those of a sample sum to one."""

    low: float = 1e-8
    high: ClassVar[float] = 1.0

    def free(self, K: int) -> float:
        """What the lower bounds leave of the one that K coefficients sum to."""
        left = 1.0 - K * self.low
        if left <= 0:
            raise ValueError(
                f"{K} coefficients of at least eps_prime = {self.low:g} sum to one or more; they must leave some of it "
                "free: sets=Sets(eps_prime=...)."
            )
        return left

    def project(self, H: Array) -> Array:
        """Argmin ||P - H||_F over the simplex, row by row; rows on it stay as they are, bit for bit."""
        size = H.dtype.type(self.free(H.shape[1]))
        H = H - H.dtype.type(self.low)
        off = (H < 0).any(axis=1) | (np.abs(H.sum(axis=1) - size) > 4 * np.finfo(H.dtype).eps)
        if off.any():
            V = H[off]
            P = project_on_simplex((V - V.max(axis=1, keepdims=True)).T, float(size)).T  # what all share is no matter
            H[off] = P * (size / P.sum(axis=1, keepdims=True))
        return H + H.dtype.type(self.low)

    def contains(self, H: Array) -> bool:
        """Is every row of H on the simplex, up to the rounding of its dtype?"""
        eps, low = float(np.finfo(H.dtype).eps), np.asarray(self.low, dtype=H.dtype)
        sums = H.sum(axis=1, dtype=np.float64)
        return bool((low <= H).all() and (np.abs(sums - 1) <= 8 * eps * H.shape[1] ** 0.5).all())

    def gap(self, H: Array, G: Array) -> Array:
        """max over z on the simplex of <G, h - z> per row: no convex function of slope G falls by more from h."""
        return ((G - G.min(axis=1, keepdims=True)) * (H - self.low)).sum(axis=1)


@dataclass(frozen=True)
class Sets:
    """The constants of both sets, in internal units: ``eps`` of C, ``eps_prime`` and ``U`` of H."""

    eps: float = 1e-8
    eps_prime: float = 1e-8
    U: float = 1e8

    def __post_init__(self) -> None:
        _ = self.dictionaries, self.coefficients  # they check the constants

    @cached_property
    def dictionaries(self) -> DictionarySet:
        """C."""
        return DictionarySet(self.eps)

    @cached_property
    def coefficients(self) -> Box:
        """H."""
        return Box(self.eps_prime, self.U)

    def where(self, coefficients: str) -> tuple[DictionarySet, Box | Simplex]:
        """C and H for coefficients that are "nonnegative", or on the "simplex": they sum to one, and W has units."""
        if not isinstance(coefficients, str) or coefficients not in COEFFICIENTS:
            raise ValueError(f"coefficients must be 'nonnegative' or 'simplex', got {coefficients!r}.")
        if coefficients == "simplex":
            return replace(self.dictionaries, high=np.inf), Simplex(self.eps_prime)
        return self.dictionaries, self.coefficients

    def require_positive_fit(self, divergence: Divergence) -> None:
        """Refuse eps = 0 or eps' = 0 where the divergence is not defined at a fit of zero (Remark 2)."""
        if not divergence.domain.y.closed and 0 in (self.eps, self.eps_prime):
            raise ValueError(
                f"{divergence.name or type(divergence).__name__} is not defined for a fit of zero, so eps and "
                "eps_prime must be positive; zeros suit losses that are, such as huber, l1, l2 and squared_l2."
            )
