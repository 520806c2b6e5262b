"""The alpha family (Csiszar divergences, Table 1): sum_f y phi_alpha(x / y), convex in y for every alpha.

It has phi_p(u) = (u^p - 1 - p (u - 1)) / (p (p - 1)) in common with the beta family, sum_f y^beta phi_beta(x / y).
Written as printed, phi loses all digits for p near 0 and 1. With the deformed logarithm

    ln_a(u) = (u^a - 1) / a = expm1(a log u) / a,    ln_0(u) = log u

there are two exact forms, each without cancellation at the limit it contains:

    phi_p(u) = (u ln_{p-1}(u) - u + 1) / p     for p >= 1/2 (p = 1: u log u - u + 1)
    phi_p(u) = (u - 1 - ln_p(u)) / (1 - p)     for p <  1/2 (p = 0: u - 1 - log u)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.threads import cached_property
from onmf.divergences.base import Divergence, Domain, Interval, RowMean, Separable, order, row_mean, total

SMALLEST = 1e-38  # the least ratio whose logarithm is taken; at x = 0 any will do
NEAR = 0.05  # to alpha = 0 or 1: summing the terms one by one would lose digits
NEARLY_ZERO = 0.01  # below it, 1 / alpha as an exponent would lose digits


def deformed_log(xp: Any, a: float, u: Any) -> Any:
    """Return ln_a(u), continuous in a through 0; u > 0, or u >= 0 when a > 0."""
    log_u = xp.log(xp.where(u > 0, u, 1.0))
    inside = log_u if a == 0 else xp.expm1(a * log_u) / a
    return inside if a <= 0 else xp.where(u > 0, inside, -1.0 / a)


def phi(xp: Any, p: float, u: Any) -> Any:
    """Return phi_p(u) >= 0 for u > 0, or u >= 0 when p > 0; rounding below zero is cut off."""
    if p < 0.5:
        value = (u - 1.0 - deformed_log(xp, p, u)) / (1.0 - p)
    else:
        # At u = 0 the product u ln_{p-1}(u) = (u^p - u)/(p - 1) is 0, also where the logarithm is not.
        safe = xp.where(u > 0, u, 1.0)
        value = (u * deformed_log(xp, p - 1.0, safe) - u + 1.0) / p
    return xp.maximum(value, 0.0)


class AlphaFamily(Separable):
    """d(x || y) = sum_f (y [(x/y)^alpha - 1] - alpha (x - y)) / (alpha (alpha - 1)); subclasses have the alpha."""

    alpha: float
    smooth_curvature = True
    convex = True  # y phi(x/y) is the perspective of a convex function
    degree = 1.0  # d(cx || cy) = c d(x || y)

    @cached_property
    def domain(self) -> Domain:
        """The data may contain zeros only if alpha > 0."""
        return Domain(x=Interval(includes_zero=self.alpha > 0), y=Interval(includes_zero=False))

    @property
    def slope_at_zero(self) -> float | None:
        """d(0, y) = y / alpha for alpha > 0."""
        return 1.0 / self.alpha if self.alpha > 0 else None

    @property
    def alpha_order(self) -> float | None:
        return self.alpha if self.alpha >= NEARLY_ZERO else None

    @property
    def multiplicative_slope(self) -> float | None:
        """1 / alpha; for alpha <= 0 the positive part of the derivative is another one."""
        return None if self.alpha_order is None else 1.0 / self.alpha_order

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """1/y: the curvature at y = x."""
        return 1.0 / y

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the second derivative u^alpha / y, kept away from zero."""
        return xp.minimum(xp.maximum(self._power(x / y), 1e-3), 1e6) / y

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """(x/y)^alpha and 1; near alpha = 0 the deformed logarithm of x/y, which has a limit there."""
        u = X / Y
        return deformed_log(np, self.alpha, u) if self._nearly_zero else self._power(u), None

    def _power(self, u: Any) -> Any:
        return u if self.alpha == 1 else u**self.alpha

    def loss_of_samples(self, X: Array) -> float:
        """-sum x / (alpha - 1), away from the limits."""
        return 0.0 if self._near_a_limit else -total(X) / (self.alpha - 1.0)

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        """sum (y (x/y)^alpha / (alpha (alpha - 1)) + y / alpha)."""
        if self._near_a_limit:
            return super().loss_of_fits(X, Y, P, N)
        return total(P, Y) / (self.alpha * (self.alpha - 1.0)) + total(Y) / self.alpha

    def multiplicative_factor(self, ratio: Array) -> Array:
        """Return the power mean of order alpha of the x/y; for alpha = 0 the geometric mean."""
        if not self._nearly_zero:
            return ratio if self.alpha == 1 else ratio ** (1.0 / self.alpha)
        least = np.finfo(ratio.dtype).eps - 1.0  # zero up to rounding, with a finite logarithm
        return np.exp(ratio if self.alpha == 0 else np.log1p(np.maximum(self.alpha * ratio, least)) / self.alpha)

    @property
    def _near_a_limit(self) -> bool:
        return min(abs(self.alpha), abs(self.alpha - 1.0)) < NEAR

    @property
    def _nearly_zero(self) -> bool:
        return abs(self.alpha) < NEARLY_ZERO


@dataclass(frozen=True)
class Alpha(AlphaFamily, name="alpha"):
    """d(x || y) = sum_f (y [(x/y)^alpha - 1] - alpha (x - y)) / (alpha (alpha - 1)).

    alpha = 1 is Kullback-Leibler, alpha = 1/2 Hellinger, alpha = 0 the limit sum_f y log(y/x) + x - y.

    Parameters
    ----------
    alpha : float
        The order; 0.5 is Hellinger's, 1 Kullback-Leibler's.

    Examples
    --------
    >>> divergence = onmf.divergences.Alpha(0.7)
    >>> OnlineNMF(3, divergence=divergence).fit(X).divergence_
    Alpha(alpha=0.7)
    """

    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", order("alpha", self.alpha))

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """y phi_alpha(x/y)."""
        return y * phi(xp, self.alpha, x / y)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """phi(u) - u phi'(u) = (1 - u^alpha) / alpha at u = x/y."""
        return -deformed_log(xp, self.alpha, x / y)

    def special_case(self) -> Divergence:
        cases = {0.5: Hellinger(), 1.0: KullbackLeibler()}
        return cases.get(self.alpha, self) if type(self) is Alpha else self


@dataclass(frozen=True)
class Hellinger(AlphaFamily, name="hellinger"):
    """d(x || y) = 2 sum_f (sqrt x - sqrt y)^2: counts, less sensitive to large ones than Kullback-Leibler.

    Examples
    --------
    >>> onmf.divergences.get("hellinger")
    Hellinger()
    """

    alpha = 0.5

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        return 2.0 * (xp.sqrt(x) - xp.sqrt(y)) ** 2

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """2 (1 - sqrt(x/y))."""
        return 2.0 - 2.0 * xp.sqrt(x / y)


@dataclass(frozen=True)
class KullbackLeibler(AlphaFamily, name="kl", aliases=("kullback-leibler",)):
    """d(x || y) = sum_f x log(x/y) - x + y: Poisson noise, counts, text.

    Examples
    --------
    >>> onmf.divergences.get("kl")
    KullbackLeibler()
    """

    alpha = 1.0

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """x log(x/y) - x + y, with 0 log 0 = 0."""
        return xp.maximum(x * xp.log(xp.maximum(x / y, SMALLEST)) - (x - y), 0.0)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return 1.0 - x / y

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """x/y^2, kept away from zero."""
        return xp.maximum(x / y, 1e-3) / y

    def loss_of_samples(self, X: Array) -> float:
        """sum (x log x - x)."""
        return total(X, np.log(np.maximum(X, SMALLEST))) - total(X)

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        """sum (y - x log y)."""
        return total(Y) - total(X, np.log(Y))
