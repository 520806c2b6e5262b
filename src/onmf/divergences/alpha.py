"""The alpha family (Csiszar divergences, Table 1): sum_f y phi_alpha(x / y). All of it is convex in y."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onmf.divergences.base import Domain, Interval, finite_number
from onmf.divergences.power import deformed_log, phi
from onmf.divergences.separable import Separable

POSITIVE_FIT = Interval(closed=False)


@dataclass(frozen=True)
class Alpha(Separable, name="alpha"):
    """d(x || y) = sum_f (y [(x/y)^alpha - 1] - alpha (x - y)) / (alpha (alpha - 1)).

    alpha = 1 is Kullback-Leibler, alpha = 1/2 Hellinger, alpha = 0 the limit sum_f y log(y/x) + x - y.
    """

    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", finite_number("alpha", "alpha", self.alpha))

    @property
    def domain(self) -> Domain:
        """Zeros in the data are admissible for alpha > 0 only."""
        return Domain(x=Interval(closed=self.alpha > 0), y=POSITIVE_FIT)

    @property
    def slope_at_zero(self) -> float | None:
        """d(0, y) = y / alpha."""
        return 1.0 / self.alpha if self.alpha > 0 else None

    @property
    def convex(self) -> bool:
        """y phi(x/y) is the perspective of a convex function."""
        return True

    @property
    def degree(self) -> float:
        """d(cx || cy) = c d(x || y)."""
        return 1.0

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """y phi_alpha(x/y)."""
        return y * phi(xp, self.alpha, x / y)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """phi(u) - u phi'(u) = (1 - u^alpha) / alpha at u = x/y."""
        return -deformed_log(xp, self.alpha, x / y)

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """1/y: the curvature at y = x."""
        del xp, x
        return 1.0 / y

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """The second derivative u^alpha / y, not too small."""
        return xp.clip((x / y) ** self.alpha, 1e-3, 1e6) / y

    @classmethod
    def examples(cls, n_features: int) -> Iterator[Alpha]:
        """Both sides of the limits, and far from them."""
        del n_features
        for alpha in (-1.0, 0.0, 0.3, 0.5, 1.0, 1.0 + 1e-8, 2.0, 3.0):
            yield cls(alpha)


@dataclass(frozen=True)
class Hellinger(Separable, name="hellinger"):
    """d(x || y) = 2 sum_f (sqrt x - sqrt y)^2: counts whose variance one does not trust."""

    domain = Domain(y=POSITIVE_FIT)
    slope_at_zero = 2.0
    convex = True
    degree = 1.0

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """2 (sqrt x - sqrt y)^2."""
        return 2.0 * (xp.sqrt(x) - xp.sqrt(y)) ** 2

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """2 (1 - sqrt(x/y))."""
        return 2.0 - 2.0 * xp.sqrt(x / y)

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """1/y."""
        del xp, x
        return 1.0 / y

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """sqrt(x/y) / y, not too small."""
        return xp.maximum(xp.sqrt(x / y), 1e-3) / y


@dataclass(frozen=True)
class KullbackLeibler(Separable, name="kl"):
    """d(x || y) = sum_f x log(x/y) - x + y: Poisson noise, counts, text."""

    domain = Domain(y=POSITIVE_FIT)
    slope_at_zero = 1.0
    convex = True
    degree = 1.0

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """x log(x/y) - x + y, with 0 log 0 = 0."""
        u = x / y
        return xp.maximum(x * xp.log(xp.where(u > 0, u, 1.0)) - x + y, 0.0)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """1 - x/y."""
        del xp
        return 1.0 - x / y

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """1/y."""
        del xp, x
        return 1.0 / y

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """x/y^2, not too small."""
        return xp.maximum(x / y, 1e-3) / y
