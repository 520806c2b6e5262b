"""A divergence between samples that are known in part and their fits: the sum over what is known, entry by weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from onmf._support.arrays import Array
from onmf.divergences.base import Divergence


@dataclass(frozen=True)
class Partial(Divergence):
    """d(x || y) = sum_f m_f d(x_f || y_f) with weights m, zero where x is unknown, in place of ``inner``.

    Samples X are ``Known``. Where they are dense, Y and all results have their shape; where they are sparse, one number
    per known entry. No sample shares its curvatures with another, so that nothing of least squares' short cuts is left.
    """

    inner: Divergence

    partial = True

    def value(self, X: Any, Y: Array) -> Array:
        return self.inner.weighted_value(X, Y)

    def scale(self, X: Any) -> Array:
        return self.inner.weighted_scale(X)

    def grad(self, X: Any, Y: Array) -> Array:
        return self.inner.weighted_grad(X, Y)

    def model(self, X: Any, Y: Array) -> tuple[Array, Array]:
        return self.inner.weighted_model(X, Y, newton=False)

    def newton_model(self, X: Any, Y: Array) -> tuple[Array, Array]:
        return self.inner.weighted_model(X, Y, newton=True)

    def multiplicative_parts(self, X: Any, Y: Array) -> tuple[Array, Array | None]:
        """A sum of majorants is one of the sum."""
        return self.inner.weighted_parts(X, Y)

    def multiplicative_factor(self, ratio: Array) -> Array:
        return self.inner.multiplicative_factor(ratio)

    def adapted(self, X: Any, Y: Array, weight: float, samples: Array | None = None) -> Divergence:
        return replace(self, inner=self.inner.adapted(X, Y, weight, *(() if samples is None else (samples,))))

    def in_units(self, unit: float) -> Divergence:
        return replace(self, inner=self.inner.in_units(unit))

    def loss_unit(self, unit: float) -> float:
        return self.inner.loss_unit(unit)

    def parameters(self) -> dict[str, Any]:
        return self.inner.parameters()


# What holes do not change. The rest, as base.py has it, promises nothing.
for _name in (
    *("name", "aliases", "domain", "smooth", "smooth_unless_exact", "convex", "robust", "metric", "alpha_order"),
    *("absolute_deviations", "averaging_exponent", "adaptive", "degree", "multiplicative_slope", "separable"),
    "majorised",
):
    setattr(Partial, _name, property(attrgetter(f"inner.{_name}")))


def whole(divergence: Divergence) -> Divergence:
    """The divergence of samples that are known as a whole."""
    return divergence.inner if isinstance(divergence, Partial) else divergence


def require_weighed(divergence: Divergence) -> None:
    """Refuse missing entries and weights of entries under a divergence that cannot do without any."""
    if not divergence.weighs_entries:
        raise ValueError(
            f"{divergence.name} looks at all features of a sample together, so that entries can neither be missing "
            "nor weigh differently; use squared_l2, or fill them first."
        )
