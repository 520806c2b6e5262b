"""The beta family (Bregman divergences, Table 2): sum_f y^beta phi_beta(x / y), convex in y for 1 <= beta <= 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.threads import cached_property
from onmf.divergences.alpha import KullbackLeibler, deformed_log
from onmf.divergences.base import Divergence, Domain, Interval, RowMean, Separable, order, row_mean, total

POSITIVE = Interval(includes_zero=False)
NEAR = 0.05  # to beta = 0 or 1: summing the terms one by one would lose digits


@dataclass(frozen=True)
class Beta(Separable, name="beta"):
    """d(x || y) = sum_f (x^beta - y^beta - beta y^(beta-1) (x - y)) / (beta (beta - 1)).

    beta = 2 is half the squared l2 distance, beta = 1 Kullback-Leibler, beta = 0 Itakura-Saito.

    Parameters
    ----------
    beta : float
        The order.

    Examples
    --------
    >>> OnlineNMF(3, divergence="beta:1.5", random_state=0).fit(X).divergence_
    Beta(beta=1.5)
    """

    beta: float

    smooth_curvature = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", order("beta", self.beta))

    @cached_property
    def domain(self) -> Domain:
        """The data may contain zeros if beta > 0, the fit if beta >= 2."""
        return Domain(x=Interval(includes_zero=self.beta > 0), y=Interval(includes_zero=self.beta >= 2))

    @property
    def convex(self) -> bool:
        """Remark 1: class D2 holds for 1 <= beta <= 2."""
        return 1.0 <= self.beta <= 2.0

    @property
    def degree(self) -> float:
        """d(cx || cy) = c^beta d(x || y)."""
        return self.beta

    @property
    def sees_ratios(self) -> bool:
        return self.beta == 0

    def special_case(self) -> Divergence:
        cases = {0.0: ItakuraSaito(), 1.0: KullbackLeibler(), 2.0: SquaredL2()}
        return cases.get(self.beta, self) if type(self) is Beta else self

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """y^beta phi_beta(x/y), in the form of ``alpha`` that keeps its digits, without powers of a ratio."""
        beta = self.beta
        if beta < 0.5:
            u = x / y
            return xp.maximum(y**beta * (u - 1.0 - deformed_log(xp, beta, u)) / (1.0 - beta), 0.0)
        if beta >= 2:  # y = 0 is in the domain: no ratio, and no limit is near
            value = x**beta - y**beta - beta * y ** (beta - 1.0) * (x - y)
            return xp.maximum(value / (beta * (beta - 1.0)), 0.0)
        log_u = deformed_log(xp, beta - 1.0, xp.where(x > 0, x, y) / y)
        return xp.maximum(y ** (beta - 1.0) * (x * log_u - x + y) / beta, 0.0)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return y ** (self.beta - 2.0) * (y - x)

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """y^(beta-2), that of the chord."""
        return y ** (self.beta - 2.0)

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the second derivative y^(beta-2) ((beta-1) - (beta-2) x/y), away from zero if the loss is convex."""
        q = x / y
        second = (self.beta - 1.0) - (self.beta - 2.0) * q
        if self.convex:
            second = xp.maximum(xp.maximum(second, q), 0.1)
        return y ** (self.beta - 2.0) * second

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """x y^(beta-2) and y^(beta-1)."""
        power = Y ** (self.beta - 2.0)
        return X * power, Y * power

    def loss_of_samples(self, X: Array) -> float:
        """sum x^beta / (beta (beta - 1)), away from the limits."""
        return 0.0 if self._near_a_limit else total(X**self.beta) / (self.beta * (self.beta - 1.0))

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        """sum (y^beta / beta - x y^(beta-1) / (beta - 1))."""
        if self._near_a_limit or N is None:
            return super().loss_of_fits(X, Y, P, N)
        return total(N, Y) / self.beta - total(P, Y) / (self.beta - 1.0)

    @property
    def _near_a_limit(self) -> bool:
        return min(abs(self.beta), abs(self.beta - 1.0)) < NEAR

    def multiplicative_factor(self, ratio: Array) -> Array:
        """Return the power of Fevotte and Idier (2011): the ratio where the loss is convex in y, a root elsewhere."""
        exponent = 1.0 / max(2.0 - self.beta, 1.0, self.beta - 1.0)
        return ratio if exponent == 1.0 else ratio**exponent


@dataclass(frozen=True)
class ItakuraSaito(Separable, name="is", aliases=("itakura-saito",)):
    """d(x || y) = sum_f x/y - log(x/y) - 1: multiplicative noise, power spectra of sound.

    Examples
    --------
    >>> onmf.divergences.get("is")
    ItakuraSaito()
    """

    domain = Domain(x=POSITIVE, y=POSITIVE)
    degree = 0.0
    sees_ratios = True
    averaging_exponent = 0.7

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """u - log u - 1 at u = x/y, with two logarithms since the ratio may underflow."""
        return xp.maximum(x / y - (xp.log(x) - xp.log(y)) - 1.0, 0.0)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return (1.0 - x / y) / y

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        return 1.0 / (y * y)

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """(2 x/y - 1) / y^2, which is negative for x < y/2."""
        return (2.0 * (x / y) - 1.0) / (y * y)

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """x / y^2 and 1 / y."""
        inverse = 1.0 / Y
        return X * np.square(inverse), inverse

    def loss_of_samples(self, X: Array) -> float:
        """-sum (log x + 1)."""
        return -total(np.log(X)) - X.size

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        """sum (x/y + log y)."""
        return total(P, Y) + total(np.log(Y))

    def multiplicative_factor(self, ratio: Array) -> Array:
        """Return the square root: the ratio itself is usually faster, but nothing proves that the loss then falls."""
        return np.sqrt(ratio)


@dataclass(frozen=True)
class SquaredL2(Separable, name="squared_l2", aliases=("euclidean", "frobenius")):
    """d(x || y) = ||x - y||^2 / 2: Gaussian noise.

    Examples
    --------
    >>> onmf.divergences.get("squared_l2")
    SquaredL2()
    """

    smooth_curvature = True
    convex = True
    lipschitz = 1.0
    degree = 2.0
    quadratic = True
    curvature_per_sample = True
    averaging_exponent = 0.75

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        return 0.5 * (x - y) ** 2

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return y - x

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.ones_like(x)

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """x and y (Lee and Seung 2001)."""
        return X, Y
