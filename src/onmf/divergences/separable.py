"""Divergences that are sums over the entries: a subclass gives the formulas for one entry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, row_sums
from onmf._support.known import Known
from onmf.divergences.base import TINY, Divergence, chord


class Separable(Divergence):
    """d(x || y) = sum_f d(x_f, y_f): a subclass writes ``d`` and ``dy`` elementwise on an array namespace xp.

    ``curvature`` and ``newton_curvature`` are optional: second-order weights for the fast method, the former positive,
    and the latter if the divergence is convex. With a ``slope_at_zero``, which makes sparse data cheap,
    ``newton_curvature`` is needed.
    """

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """The positive weight of each entry's quadratic model in y, for the dictionary; None: that of the chord."""
        return None

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """The same for the coefficients, negative where the loss is not convex; by default that of the dictionary."""
        return self.curvature(xp, x, y)

    def modelled(self, xp: Any, X: Any, Y: Any, newton: bool = False) -> tuple[Any, Any]:
        """``model``, or ``newton_model``: dy and ``curvature``, or ``newton_curvature``."""
        slope = self.dy(xp, X, Y)
        weight = (self.newton_curvature if newton else self.curvature)(xp, X, Y)
        return slope, chord(xp, lambda x, y: self.dy(xp, x, y), X, Y, slope) if weight is None else weight

    def model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        return self.modelled(np, X, Y)

    def newton_model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        return self.modelled(np, X, Y, newton=True)

    def valued(self, xp: Any, x: Any, y: Any) -> Any:
        """``d``, as a divergence in other units has it, too."""
        return self.d(xp, x, y)

    @abstractmethod
    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """The divergence of each entry."""

    @abstractmethod
    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """The derivative of each entry in y."""

    def scale(self, X: Any) -> Array:
        if self.degree is None or not self._homogeneous:
            return _row_sums(lambda x: self.d(np, x, np.maximum(2 * x, TINY)), X)
        return _row_powers(X, self.degree) * self._twice

    @cached_property
    def _homogeneous(self) -> bool:
        """Is d(x || 2x) = x^degree d(1 || 2)?"""
        return self.degree is not None and self.in_units(2.0) is self

    @cached_property
    def _twice(self) -> float:
        """d(1 || 2)."""
        return float(self.d(np, np.float64(1.0), np.float64(2.0)))

    def value(self, X: Array, Y: Array) -> Array:
        with np.errstate(over="ignore"):  # a loss beyond the range of the dtype is infinite: no step will end there
            return self.d(np, X, Y).sum(axis=1)

    def grad(self, X: Array, Y: Array) -> Array:
        return self.dy(np, X, Y)

    separable = True

    def weighted_value(self, X: Known, Y: Array) -> Array:
        with np.errstate(over="ignore"):
            values = self.d(np, X.values, Y)
            return row_sums(X.like(X.weighted(values))) if X.sparse else np.einsum("nf,nf->n", X.present, values)

    def weighted_scale(self, X: Known) -> Array:
        if not self._homogeneous:
            return super().weighted_scale(X)
        if self.degree in (0, 1):
            return self._twice * (X.sum(axis=1) if self.degree else X.weight(axis=1))
        return self._twice * row_sums(X.like(X.weighted(_powers(X.values, self.degree))))

    def weighted_grad(self, X: Known, Y: Array) -> Array:
        return X.weighted(self.grad(X.values, Y))

    def weighted_model(self, X: Known, Y: Array, newton: bool) -> tuple[Array, Array]:
        slope, curvature = _by_rows(self.newton_model if newton else self.model, X, Y)
        return X.weighted(slope), X.weighted(curvature)

    def weighted_parts(self, X: Known, Y: Array) -> tuple[Array, Array | None]:
        P, N = _by_rows(self.multiplicative_parts, X, Y)
        return X.weighted(P), None if N is None else X.weighted(N)

    def loss_unit(self, unit: float) -> float:
        """unit^degree, or without a degree d(unit || 2 unit): losses inside are then of order one."""
        if self.degree is not None or unit == 1.0:
            return super().loss_unit(unit)
        with np.errstate(all="ignore"):
            loss = float(self.d(np, np.float64(unit), np.float64(2 * unit)))
        return loss if 0 < loss < np.inf else 1.0


def _by_rows(function: Callable[[Array, Array], tuple[Any, Any]], X: Known, Y: Array) -> tuple[Any, Any]:
    """function(X, Y) of two results; a sparse X has its entries one per row, as some look at the mean of a row."""
    if not X.sparse:
        return function(X.values, Y)
    one, other = function(X.values[:, None], Y[:, None])
    return one[:, 0], None if other is None else other[:, 0]


def _row_powers(X: Any, degree: float) -> Array:
    """sum_f x_f^degree per sample; zeros add nothing, as d(0 || 0) = 0."""
    if degree == 1:
        return row_sums(X)
    if degree == 2:
        return _row_sums(np.square, X) if scipy.sparse.issparse(X) else np.einsum("nf,nf->n", X, X)
    return _row_sums(lambda x: _powers(x, degree), X)


def _powers(x: Array, degree: float | None) -> Array:
    """x^degree, and zero of zeros, whatever the degree."""
    if degree == 2:
        return np.square(x)
    powers: Array = np.where(x > 0, x, 1.0) ** degree * (x > 0)
    return powers


def _row_sums(function: Callable[[Array], Array], X: Any) -> Array:
    """The sum over f of the function of x_f; sparse data have nothing to add where they store nothing."""
    if not scipy.sparse.issparse(X):
        return row_sums(function(X))
    return row_sums(scipy.sparse.csr_matrix((function(X.data), X.indices, X.indptr), shape=X.shape))
