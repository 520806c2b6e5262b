"""A divergence that is not homogeneous, for data in other units: the chain rule for its whole interface."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences.base import Divergence, RowMean, row_mean


@dataclass(frozen=True)
class InUnits(Divergence):
    """d(unit x || unit y) / loss: the divergence ``inner``, seen from data divided by ``unit``.

    A derivative in y brings a factor unit / loss, a second derivative unit^2 / loss. ``alpha_order`` and
    ``absolute_deviations`` stay at their defaults: they promise the value itself, which ``loss`` changes.
    """

    inner: Divergence
    unit: float
    loss: float = 1.0

    @property
    def slope_at_zero(self) -> float | None:
        return _times(self._first, self.inner.slope_at_zero)

    @property
    def lipschitz(self) -> float | None:
        return _times(self._second, self.inner.lipschitz)

    @property
    def metric(self) -> Array | None:
        return _times(self._second, self.inner.metric)

    @property
    def least_squares(self) -> Divergence | None:
        inner = self.inner.least_squares
        return None if inner is None else inner.in_units(self.unit)

    @property
    def _first(self) -> float:
        return self.unit / self.loss

    @property
    def _second(self) -> float:
        return self.unit * self._first

    def value(self, X: Array, Y: Array) -> Array:
        return self.inner.value(self.unit * X, self.unit * Y) / self.loss

    def grad(self, X: Array, Y: Array) -> Array:
        return self._first * self.inner.grad(self.unit * X, self.unit * Y)

    def model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        slope, curvature = self.inner.model(self.unit * X, self.unit * Y)
        return self._first * slope, self._second * curvature

    def newton_model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        slope, curvature = self.inner.newton_model(self.unit * X, self.unit * Y)
        return self._first * slope, self._second * curvature

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """The divergence of each entry, of one that is separable."""
        inner: Any = self.inner
        return inner.d(xp, self.unit * x, self.unit * y) / self.loss

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """Its derivative in y."""
        inner: Any = self.inner
        return self._first * inner.dy(xp, self.unit * x, self.unit * y)

    def modelled(self, xp: Any, x: Any, y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """The derivative with the curvature of its model."""
        inner: Any = self.inner
        slope, curvature = inner.modelled(xp, self.unit * x, self.unit * y, newton, mean)
        return self._first * slope, self._second * curvature

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """Their ratio has no unit, but a penalty is added to N."""
        P, N = self.inner.multiplicative_parts(self.unit * X, self.unit * Y, mean)
        return self._first * P, np.full_like(P, self._first) if N is None else self._first * N

    def multiplicative_factor(self, ratio: Array) -> Array:
        return self.inner.multiplicative_factor(ratio)

    def loss_of_samples(self, X: Array) -> float:
        return self.inner.loss_of_samples(self.unit * X) / self.loss

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        parts = P / self._first, _times(1 / self._first, N)
        return self.inner.loss_of_fits(self.unit * X, self.unit * Y, *parts) / self.loss

    def adapted(self, residuals: Array, weights: Array | None, mean: float, share: float) -> Divergence:
        inner = self.inner.adapted(self.unit * residuals, weights, self.unit * mean, share)
        return replace(self, inner=inner)

    def for_data(self, mean: float, n_features: int) -> Self:
        return replace(self, inner=self.inner.for_data(self.unit * mean, n_features))

    def in_units(self, unit: float) -> Divergence:
        return self.inner.in_units(self._total(unit))

    def loss_unit(self, unit: float) -> float:
        return self.inner.loss_unit(self._total(unit)) / self.loss

    def _total(self, unit: float) -> float:
        """Units of units; the way back leads to the inner divergence itself, in spite of rounding."""
        product = self.unit * unit
        return 1.0 if math.isclose(product, 1.0, rel_tol=1e-12) else product

    def parameters(self) -> dict[str, Any]:
        return self.inner.parameters()


# What no change of units touches is that of the inner divergence.
for _name in (
    *("name", "aliases", "domain", "smooth", "smooth_unless_exact", "convex", "robust", "sees_ratios", "quadratic"),
    *("curvature_per_sample", "averaging_exponent", "adaptive", "degree", "multiplicative_slope"),
    *("separable", "weighs_entries", "majorised"),
):
    setattr(InUnits, _name, property(attrgetter(f"inner.{_name}")))


def _times(factor: float, value: Any) -> Any:
    return None if value is None else factor * value
