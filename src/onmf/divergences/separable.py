"""Divergences that are sums over the entries: a subclass gives the formulas for one entry."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences.base import Divergence, RowMean, chord, row_mean


class Separable(Divergence):
    """d(x || y) = sum_f d(x_f, y_f): a subclass writes ``d`` and ``dy`` elementwise on an array namespace xp.

    ``curvature`` and ``newton_curvature`` are optional: second-order weights for the fast method, the former positive,
    and the latter if the divergence is convex. With a ``slope_at_zero``, which makes sparse data cheap,
    ``newton_curvature`` is needed.
    """

    separable = True

    @abstractmethod
    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """The divergence of each entry."""

    @abstractmethod
    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """The derivative of each entry in y."""

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """The positive weight of each entry's quadratic model in y, for the dictionary; None: that of the chord."""
        return None

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """The same for the coefficients, negative where the loss is not convex; by default that of the dictionary."""
        return self.curvature(xp, x, y)

    def modelled(self, xp: Any, x: Any, y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """``dy`` with ``curvature``, or with ``newton_curvature``; ``mean`` is over the entries of each sample."""
        slope = self.dy(xp, x, y)
        weight = (self.newton_curvature if newton else self.curvature)(xp, x, y)
        return slope, chord(xp, lambda x, y: self.dy(xp, x, y), x, y, slope, mean) if weight is None else weight

    def value(self, X: Array, Y: Array) -> Array:
        with np.errstate(over="ignore"):  # a loss beyond the range of the dtype is infinite: no step will end there
            return self.d(np, X, Y).sum(axis=1)

    def grad(self, X: Array, Y: Array) -> Array:
        return self.dy(np, X, Y)

    def model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        return self.modelled(np, X, Y)

    def newton_model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        return self.modelled(np, X, Y, newton=True)

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        slope, curvature = self.modelled(np, X, Y, mean=mean)
        N: Array = curvature * Y
        return np.maximum(N - slope, 0.0), N

    @cached_property
    def loss_of_twice(self) -> float | None:
        """d(1 || 2), where d(x || 2x) is that times x^degree; else None."""
        if self.degree is None or self.in_units(2.0) is not self:
            return None
        return float(self.d(np, np.float64(1.0), np.float64(2.0)))

    def loss_unit(self, unit: float) -> float:
        """unit^degree, or without a degree d(unit || 2 unit): losses inside are then of order one."""
        if self.degree is not None or unit == 1.0:
            return super().loss_unit(unit)
        with np.errstate(all="ignore"):
            loss = float(self.d(np, np.float64(unit), np.float64(2 * unit)))
        return loss if 0 < loss < np.inf else 1.0
