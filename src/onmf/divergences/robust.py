"""The robust metrics (Table 3): l1, l2 and Huber, on which an outlier has bounded influence.

At a zero residual, all of them take zero as their subgradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.divergences.base import Divergence, RowMean, Separable, finite_number, row_mean
from onmf.divergences.beta import SquaredL2

DEFAULT_DELTA = 0.1  # of the data's mean
LEAST_RESIDUAL = 0.03  # of a sample's mean entry: smaller ones weigh no more in the model of l1
SMOOTHING = 1e-3  # of a sample's mean entry: rounds off l1's kink in multiplicative updates
MAD_TO_DELTA = 1.345  # Huber's constant, in units of the median absolute residual
SAMPLED = 500  # values that tell where their median lies


@dataclass(frozen=True)
class L1(Separable, name="l1"):
    """d(x || y) = sum_f |x - y|: many entries are outliers, the others exact.

    Examples
    --------
    >>> onmf.divergences.get("l1")
    L1()
    """

    smooth = False
    convex = True
    robust = True
    degree = 1.0
    absolute_deviations = True

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.abs(x - y)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.sign(y - x)

    def model(self, xp: Any, X: Any, Y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """Return the model of a Huber loss whose delta is a twentieth of the mean residual: 1/|r| is unbounded.

        A share of the sample's mean is added, for the coefficients a millionth. They fit as many entries exactly as
        they are many, and samples in the cone of the components altogether: with next to nothing in its place, these
        would hold the components where they are (divergences.md).
        """
        r = Y - X
        size = xp.abs(r)
        least = 0.05 * mean(size) + (1e-6 if newton else LEAST_RESIDUAL) * mean(xp.abs(X))
        weight = 1.0 / xp.maximum(size, least + xp.finfo(X.dtype).tiny)
        return r * weight, weight

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """Return least squares reweighted by 1 / sqrt(r^2 + s^2), with s a thousandth of the sample's mean entry.

        So what cannot rise is the sum of sqrt(r^2 + s^2) - s, which is less than |r| by at most s per entry. With a
        smaller s the updates get stuck where an entry happens to be fitted exactly.
        """
        s = SMOOTHING * mean(X) + np.finfo(X.dtype).tiny
        weight = 1.0 / np.hypot(Y - X, s)
        return weight * X, weight * Y


@dataclass(frozen=True)
class L2(Divergence, name="l2"):
    """d(x || y) = ||x - y||, not squared: whole samples are outliers.

    Examples
    --------
    >>> onmf.divergences.get("l2")
    L2()
    """

    smooth = False
    smooth_unless_exact = True
    convex = True
    degree = 1.0
    curvature_per_sample = True
    averaging_exponent = 0.75

    @property
    def least_squares(self) -> Divergence:
        """||x - y|| and its square are least at the same y."""
        return SquaredL2()

    def value(self, X: Array, Y: Array) -> Array:
        """||x - y|| per row."""
        return np.sqrt(np.square(X - Y).sum(axis=1))

    def grad(self, X: Array, Y: Array) -> Array:
        """(y - x) / ||y - x||, and 0 where the fit is exact."""
        R = Y - X
        norm = np.sqrt(np.square(R).sum(axis=1, keepdims=True))
        return R / np.where(norm > 0, norm, 1.0)

    def model(self, xp: Any, X: Any, Y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """Return the weight 1/||r|| of a sample, but at most 10^4 / ||x||, with its slope.

        Newton's has the derivative itself; with a line search, larger weights do no harm.
        """
        R = Y - X
        size, norm = (np.sqrt(np.square(V).sum(axis=1, keepdims=True)) for V in (X, R))
        weight = 1.0 / np.maximum(norm, (1e-8 if newton else 1e-4) * size + np.finfo(X.dtype).tiny)
        return self.grad(X, Y) if newton else R * weight, np.broadcast_to(weight, X.shape)

    weighs_entries = True  # ||sqrt(m) (x - y)|| with weights m


@dataclass(frozen=True)
class Huber(Separable, name="huber"):
    """d(x || y) = sum_f h(x - y), h(r) = r^2/2 for |r| <= delta and delta (|r| - delta/2) beyond.

    Some entries are outliers, the others have Gaussian noise. ``delta`` is in the data's units. If it is not given, it
    starts at a tenth of the mean of the first batch, and the fast methods then adapt it to the residuals.

    Parameters
    ----------
    delta : float or None
        The residual from which on the loss grows linearly.

    Examples
    --------
    >>> model = OnlineNMF(3, divergence="huber:0.5", random_state=0).fit(X)
    >>> model.delta_
    0.5
    """

    delta: float | None = None

    def __post_init__(self) -> None:
        if self.delta is not None:
            object.__setattr__(self, "delta", finite_number("huber", "delta", self.delta))
            if self.delta <= 0:
                raise ValueError(f"huber: delta must be positive, got {self.delta!r}.")

    smooth_curvature = True
    convex = True
    robust = True
    majorised = True
    lipschitz = 1.0
    degree = 2.0

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """c (|r| - c/2) with c = min(|r|, delta)."""
        r = xp.abs(x - y)
        c = xp.minimum(r, self._given_delta)
        return c * (r - 0.5 * c)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """y - x, clipped to [-delta, delta]."""
        delta = self._given_delta
        return xp.clip(y - x, -delta, delta)

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """min(1, delta/|r|), that of the chord: the model majorises the loss."""
        delta = self._given_delta
        return delta / xp.maximum(xp.abs(y - x), delta)

    def model(self, xp: Any, X: Any, Y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """Return the slope c (y - x) and the curvature c."""
        r = Y - X
        c = self._given_delta / xp.maximum(xp.abs(r), self._given_delta)
        return c * r, c

    scaled_parameters = ("delta",)

    @property
    def _given_delta(self) -> float:
        if self.delta is None:
            raise ValueError("huber has no delta yet: give one, Huber(delta=...), or let fit take it from the data.")
        return self.delta

    def in_units(self, unit: float) -> Huber:
        """Return it with delta / unit, within the range of numbers: beyond it all residuals are large, or all small."""
        limits = np.finfo(np.float64)
        delta = min(max(self._given_delta / unit, float(limits.smallest_subnormal)), float(limits.max))
        return replace(self, delta=delta)

    def for_data(self, mean: float, n_features: int) -> Huber:
        return self if self.delta is not None else replace(self, delta=DEFAULT_DELTA * mean)

    @property
    def adaptive(self) -> bool:
        return self.delta is None

    def adapted(self, residuals: Array, weights: Array | None, mean: float, share: float) -> Huber:
        """Move delta towards 1.345 times the median absolute residual, but not below 1e-4 of the data's mean."""
        median = float(np.median(residuals)) if weights is None else weighted_median(residuals, weights)
        target = max(MAD_TO_DELTA * median, 1e-4 * mean)
        return replace(self, delta=(1 - share) * self._given_delta + share * target) if target > 0 else self


def weighted_median(values: Array, weights: Array) -> float:
    """Return the median of as many copies of each value as its weight says; zero if there are none."""
    values, weights = values.ravel(), weights.ravel().astype(np.float64, copy=False)
    half = 0.5 * float(weights.sum())
    if half <= 0:
        return 0.0
    below, stride = 0.0, len(values) // SAMPLED
    if stride > 1:  # some of them tell where it lies: sorting them all would take longer than a chunk's fits
        order, sums = _sorted(values[::stride], weights[::stride])
        some = values[::stride][order]
        first, last = np.searchsorted(sums, np.array([0.43, 0.57]) * sums[-1])
        low, high = some[first], some[min(last, len(some) - 1)]
        under, upto = values < low, values <= high
        if float(weights @ under) < half < float(weights @ upto):
            inside = np.flatnonzero(upto > under)
            values, weights, below = values[inside], weights[inside], float(weights @ under)
    order, sums = _sorted(values, weights)
    sums += below
    middle = (int(np.searchsorted(sums, half, side=side)) for side in ("left", "right"))
    return 0.5 * sum(float(values[order[min(place, len(order) - 1)]]) for place in middle)


def _sorted(values: Array, weights: Array) -> tuple[Counts, Array]:
    """Return the order of the values, and the sums of their weights in it."""
    order = np.argsort(values)
    return order, np.cumsum(weights[order], dtype=np.float64)
