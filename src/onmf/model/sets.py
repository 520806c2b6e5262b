"""The constraint sets of the paper's Problem Formulation, with their exact Euclidean projections.

    C = {W >= 0, sum_k W_kf >= eps for every feature f, W_kf <= 1}        dictionaries
    H = {eps' <= h_k <= U}                                                coefficients

Together they keep the fit y = hW above eps * eps', where every divergence is finite. The robust losses need no
such floor: for them eps and eps' may be 0 (Remark 2).

Or the coefficients are shares, H = {h_k >= eps', sum_k h_k = 1}: W is then in the data's units, and C unbounded.

The first J components of a dictionary may be fixed: they stay as they are while the others are learnt beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_whole
from onmf._support.threads import cached_property
from onmf.divergences import Divergence
from onmf.model.settings import setting

COEFFICIENTS, INITS = setting("coefficients").choices, setting("init").choices
LEAST_LACK = 1e-6  # of eps, that a feature can lack: less is the rounding of what fixed components give it


def project_on_simplex(V: Array, size: float | Array, metric: Array | None = None) -> Array:
    """Return argmin sum (P - V)^2 / metric over P >= 0 with sum_k P_kf = size_f (Duchi et al. 2008, by sorting).

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
    """The set C: entries in [0, high], and for every feature at least ``eps`` of total weight over the components.

    Parameters
    ----------
    eps : float
        The least sum of a feature's weights, in [0, 1).
    fixed : int
        The number of components, the first ones, that stay as they are; the others give a feature what it lacks.
    high : float
        1, or infinity where coefficients sum to one: no change of units could keep W below a bound.

    Examples
    --------
    >>> C, W = onmf.methods.DictionarySet(), np.array([[2.0, 0.5]])
    >>> C.project(W), C.rescale_into(W)
    (array([[1. , 0.5]]), array([[1.  , 0.25]]))
    """

    eps: float = 1e-8
    fixed: int = 0
    high: float = 1.0

    def __post_init__(self) -> None:
        require_whole(0, fixed=self.fixed)
        if not is_number(self.eps) or not 0 <= self.eps < 1:
            raise ValueError(f"eps must lie in [0, 1), got {self.eps!r}.")
        if not is_number(self.high) or self.high not in (1.0, np.inf):
            raise ValueError(f"entries of the dictionary are at most 1, or have no bound; got {self.high!r}.")

    def project(self, V: Array, metric: Array | None = None) -> Array:
        """Return argmin sum (W - V)^2 / metric over W in C; no ``metric`` means ones, the Euclidean projection.

        Fixed components are returned as they are in V. For the others, clipping to [0, high] is the answer at a feature
        whose clipped weights reach eps, whatever the metric. Otherwise the constraint on the sum is active, and the
        *unclipped* weights are projected on the simplex of the size that is lacking; since eps < 1, the upper bound
        then holds by itself.
        """
        W: Array = np.minimum(np.maximum(V, 0.0), self.high)
        fixed, free = slice(0, self.fixed), slice(self.fixed, None)
        W[fixed] = V[fixed]
        if self.eps > 0 and self.fixed < len(V):
            short = W.sum(axis=0) < self.eps
            if not np.count_nonzero(short):
                return W
            if metric is None:  # the projection of zero, often that of many features, needs no sorting
                nothing = short & ~V.any(axis=0)
                W[free, nothing] = self.least_mean(len(V))
                short &= ~nothing
            if short.any():
                # In double precision: eps may be far below the rounding of V. The last line undoes the loss of
                # a feature's few ulps, so that a projection is feasible and stays where it is when repeated.
                D = None if metric is None else metric[free, short].astype(np.float64)
                lacking = np.maximum(self.eps - V[fixed, short].sum(axis=0, dtype=np.float64), LEAST_LACK * self.eps)
                P = project_on_simplex(V[free, short].astype(np.float64), lacking, D)
                P *= np.maximum(lacking / P.sum(axis=0), 1.0)
                W[free, short] = P
        return W

    def least_mean(self, K: int) -> float:
        """Return the weight that makes a feature feasible if each of the K components that is learnt has it."""
        return self.eps / max(K - self.fixed, 1)

    def contains(self, W: Array, rtol: float = 1e-6) -> bool:
        """Is W in C, up to rounding?"""
        inside = np.isfinite(W).all() and (W >= 0).all() and (self.high * (1 + rtol) >= W).all()
        if not inside or self.fixed > len(W):
            return False
        return self.fixed == len(W) or bool((W.sum(axis=0) >= self.eps * (1 - rtol)).all())

    def rescale_into(self, W: Array) -> Array:
        """Return the same components in C by a change of units: W_k / s_k and h_k * s_k give the same fit.

        Only features without any weight have to be projected, since no change of units can give them some.
        """
        return self.project(W / np.maximum(W.max(axis=1, keepdims=True) / self.high, 1.0))


@dataclass(frozen=True, eq=False)
class DictionaryBox:
    """{low_f <= W_kf <= high}, a part of C where K min low >= eps: every component keeps a little of every feature."""

    low: Array  # (F,)
    fixed: int = 0  # the first components, which stay as they are
    high: float = 1.0

    def project(self, V: Array, metric: Array | None = None) -> Array:
        """Return argmin sum (W - V)^2 / metric over W in the box: entrywise thresholding, whatever the metric."""
        W = np.minimum(np.maximum(V, self.low), self.high)
        W[: self.fixed] = V[: self.fixed]
        return W


@dataclass(frozen=True)
class Box:
    """The set H of coefficients in [low, high]: the paper's eps' and U."""

    low: float = 1e-8
    high: float = 1e8

    def __post_init__(self) -> None:
        if not (is_number(self.low) and is_number(self.high)) or not 0 <= self.low < self.high:
            raise ValueError(f"the coefficients' bounds need 0 <= eps_prime < U, got {self.low!r} and {self.high!r}.")

    def project(self, H: Array) -> Array:
        """Return argmin ||P - H||_F over low <= P <= high: entrywise thresholding."""
        return np.minimum(np.maximum(H, self.low), self.high)

    def contains(self, H: Array) -> bool:
        """Is every entry of H in [low, high], up to the rounding of its dtype?"""
        low, high = np.asarray([self.low, self.high], dtype=H.dtype)
        return bool(((low <= H) & (high >= H)).all())


@dataclass(frozen=True)
class Simplex:
    """The set H of shares: every coefficient is at least ``low``, and those of a sample sum to one."""

    low: float = 1e-8
    high: ClassVar[float] = 1.0

    def free(self, K: int) -> float:
        """Return what the lower bounds leave of the one that K coefficients sum to."""
        left = 1.0 - K * self.low
        if left <= 0:
            raise ValueError(
                f"{K} coefficients of at least eps_prime = {self.low:g} sum to one or more; they must leave some of it "
                "free: sets=Sets(eps_prime=...)."
            )
        return left

    def project(self, H: Array) -> Array:
        """Return argmin ||P - H||_F over the simplex, row by row; rows on it stay as they are, bit for bit."""
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
        """Return max over z on the simplex of <G, h - z> per row: no convex function of slope G falls more."""
        return ((G - G.min(axis=1, keepdims=True)) * (H - self.low)).sum(axis=1)


@dataclass(frozen=True)
class Sets:
    """The constants of both sets, in internal units: ``eps`` of C, ``eps_prime`` and ``U`` of H.

    Parameters
    ----------
    eps : float
        The least sum of a feature's weights over the components, in [0, 1).
    eps_prime : float
        The lower bound of the coefficients.
    U : float
        Their upper bound.

    Examples
    --------
    >>> OnlineNMF(3, sets=onmf.Sets(U=1e6), random_state=0).fit(X).n_components_
    3
    """

    eps: float = 1e-8
    eps_prime: float = 1e-8
    U: float = 1e8

    def __post_init__(self) -> None:
        _ = self.dictionaries, self.coefficients  # they check the constants

    @cached_property
    def dictionaries(self) -> DictionarySet:
        """The set C of the dictionaries."""
        return DictionarySet(self.eps)

    @cached_property
    def coefficients(self) -> Box:
        """The set H of the coefficients."""
        return Box(self.eps_prime, self.U)

    def where(self, coefficients: str) -> tuple[DictionarySet, Box | Simplex]:
        """Return C and H for coefficients that are "nonnegative" or on the "simplex"; there W has no upper bound."""
        if not isinstance(coefficients, str) or coefficients not in COEFFICIENTS:
            raise ValueError(f"coefficients must be 'nonnegative' or 'simplex', got {coefficients!r}.")
        if coefficients == "simplex":
            return replace(self.dictionaries, high=np.inf), Simplex(self.eps_prime)
        return self.dictionaries, self.coefficients

    def require_positive_fit(self, divergence: Divergence) -> None:
        """Raise an error for eps = 0 or eps' = 0 if the divergence is not defined at a fit of zero (Remark 2)."""
        if not divergence.domain.y.includes_zero and 0 in (self.eps, self.eps_prime):
            raise ValueError(
                f"{divergence.name or type(divergence).__name__} is not defined for a fit of zero, so eps and "
                "eps_prime must be positive; zeros suit losses that are, such as huber, l1, l2 and squared_l2."
            )


USUAL_SETS = Sets()


def as_numbers(value: Any) -> Array | None:
    """Return a user's array in double precision, or None if it does not hold numbers."""
    try:
        given = np.asarray(value)
        return given.astype(np.float64) if given.dtype.kind in "buifO" else None
    except (TypeError, ValueError, OverflowError):
        return None


def require_init(init: Any) -> None:
    """Raise an error for what is neither the name of a rule nor an array of numbers."""
    names = ", ".join(INITS)
    if isinstance(init, str):
        if init not in INITS:
            raise ValueError(f"unknown init {init!r}; choose one of {names}, or give an array of shape (K, F).")
        return
    W = as_numbers(init)
    if W is None:
        raise ValueError(f"init must be one of {names} or an array of numbers, got {type(init).__name__}.")
    if W.ndim != 2:
        raise ValueError(f"init must be one of {names} or an array of shape (K, F), got {init!r}.")


def require_fixed(fixed: Any, n_components: int) -> None:
    """Raise unless ``fixed`` is an array (J, F) of components, J at most K; the data are compared with it later."""
    if fixed is None:
        return
    W = as_numbers(fixed)
    if W is None or W.ndim != 2 or not W.size:
        what = type(fixed).__name__ if W is None else f"an array of shape {W.shape}"
        raise ValueError(
            "fixed must be an array (J, n_features) of fixed components, such as components_ of a model, or None; "
            f"got {what}."
        )
    if len(W) > n_components:
        raise ValueError(
            f"fixed has {len(W)} components, and n_components={n_components} includes them; raise it to {len(W)}."
        )
    if not np.isfinite(W).all() or (W < 0).any():
        raise ValueError("fixed has negative, NaN or infinite entries; components are nonnegative numbers.")
    if not (W.max(axis=1) > 0).all():
        empty = int(np.argmin(W.max(axis=1) > 0))
        raise ValueError(f"component {empty} of fixed is all zeros, so that it can fit nothing; leave it out.")


def count(fixed: Any) -> int:
    """Return J, the number of fixed components."""
    return 0 if fixed is None else len(fixed)


def fixed_weights(fixed: Any, n_features: int, dtype: Any, unit: float | None = None) -> Array | None:
    """Return the fixed components as the dictionary holds them: entries above 1 are divided by the component's largest.

    Other components stay bit for bit. Entries lie in [0, 1] there, and a component has no length of its own: its
    coefficients take up the scale. Where these sum to one, components come in the data's units, of which ``unit`` is
    the internal one.
    """
    if fixed is None:
        return None
    W = np.asarray(fixed).astype(np.float64)
    if W.shape[1] != n_features:
        raise ValueError(
            f"the fixed components have {W.shape[1]} features, the data {n_features}; learn them from data like these."
        )
    size = np.maximum(W.max(axis=1, keepdims=True), 1.0) if unit is None else unit
    return (W / size).astype(dtype)


def beside(fixed: Array | None, free: Array) -> Array:
    """Return the dictionary of the fixed components, which come first, and the others."""
    return free if fixed is None else np.concatenate([fixed, free])


def require_fittable(fixed: Array | None, K: int, C: DictionarySet, divergence: Divergence) -> None:
    """Raise if all components are fixed and a feature has no weight where the divergence needs a positive fit."""
    if fixed is None or len(fixed) < K or divergence.domain.y.includes_zero:
        return
    weights = fixed.sum(axis=0, dtype=np.float64)
    if not (weights >= C.eps).all():
        raise ValueError(
            f"the fixed components have no weight at feature {int(np.argmin(weights >= C.eps))} (counted from 0), and "
            f"{divergence.name} is not defined for a fit of zero; give them a little there, or raise n_components, so "
            "that a component which is learnt can fit it."
        )


def aligned(W: Array, theirs: Sequence[str] | None, ours: Sequence[str] | None) -> Array:
    """Return the columns of W in the order of the data's features; as they are where either has no names."""
    if theirs is None or ours is None or list(theirs) == list(ours):
        return W
    places = {name: place for place, name in enumerate(theirs)}
    missing, extra = [name for name in ours if name not in places], sorted(set(theirs) - set(ours))
    if missing or extra:
        name, one, other = (missing or extra)[0], "the data", "the fixed components"
        one, other = (one, other) if missing else (other, one)
        raise ValueError(
            f"{one} have a feature {name!r} that {other} lack; read both with the same columns, or learn the fixed "
            "components from such data."
        )
    return W[:, [places[name] for name in ours]]
