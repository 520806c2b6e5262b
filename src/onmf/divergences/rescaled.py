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

    A derivative in y brings a factor unit / loss, a second derivative unit^2 / loss. ``alpha_order``,
    ``absolute_deviations`` and the parts of the loss stay at their defaults: they promise the value itself, which
    ``loss`` changes.
    """

    inner: Any  # a divergence
    unit: float
    loss: float = 1.0

    @property
    def slope_at_zero(self) -> float | None:
        slope = self.inner.slope_at_zero
        return None if slope is None else self._first * slope

    @property
    def lipschitz(self) -> float | None:
        lipschitz = self.inner.lipschitz
        return None if lipschitz is None else self._second * lipschitz

    @property
    def metric(self) -> Array | None:
        metric = self.inner.metric
        return None if metric is None else self._second * metric

    @property
    def least_squares(self) -> Divergence | None:
        inner: Divergence | None = self.inner.least_squares
        return None if inner is None else inner.in_units(self.unit)

    @property
    def _first(self) -> float:
        return self.unit / self.loss

    @property
    def _second(self) -> float:
        return self.unit * self._first

    def value(self, X: Array, Y: Array) -> Array:
        value: Array = self.inner.value(self.unit * X, self.unit * Y) / self.loss
        return value

    def grad(self, X: Array, Y: Array) -> Array:
        return self._first * self.inner.grad(self.unit * X, self.unit * Y)

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the divergence of each entry, of one that is separable."""
        return self.inner.d(xp, self.unit * x, self.unit * y) / self.loss

    def model(self, xp: Any, X: Any, Y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        slope, curvature = self.inner.model(xp, self.unit * X, self.unit * Y, newton, mean)
        return self._first * slope, self._second * curvature

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """Return parts whose ratio has no unit; but a penalty is added to N."""
        P, N = self.inner.multiplicative_parts(self.unit * X, self.unit * Y, mean)
        return self._first * P, np.full_like(P, self._first) if N is None else self._first * N

    def adapted(self, residuals: Array, weights: Array | None, mean: float, share: float) -> Divergence:
        inner = self.inner.adapted(self.unit * residuals, weights, self.unit * mean, share)
        return replace(self, inner=inner)

    def for_data(self, mean: float, n_features: int) -> Self:
        return replace(self, inner=self.inner.for_data(self.unit * mean, n_features))

    def in_units(self, unit: float) -> Divergence:
        divergence: Divergence = self.inner.in_units(self._total(unit))
        return divergence

    def loss_unit(self, unit: float) -> float:
        return float(self.inner.loss_unit(self._total(unit))) / self.loss

    def _total(self, unit: float) -> float:
        """Return units of units; the way back leads to the inner divergence itself, in spite of rounding."""
        product = self.unit * unit
        return 1.0 if math.isclose(product, 1.0, rel_tol=1e-12) else product


# What no change of units touches is that of the inner divergence.
for _name in (
    *("name", "aliases", "domain", "smooth", "smooth_unless_exact", "convex", "robust", "sees_ratios", "quadratic"),
    *("curvature_per_sample", "averaging_exponent", "adaptive", "degree", "multiplicative_slope"),
    *("separable", "weighs_entries", "majorised", "multiplicative_factor", "parameters"),
):
    setattr(InUnits, _name, property(attrgetter(f"inner.{_name}")))
