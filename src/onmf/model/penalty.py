"""Penalties on the coefficients and the dictionary, and the scale of each component at which they cost least.

A change of units, W_k / s and s h_k, leaves the fit as it is, and costs nothing without penalties: components are then
divided by their largest weight. With penalties it costs, in terms of W <= 1, m = avg h_k and m2 = avg h_k^2,

    p(s) = l1_coefficients m s + l2_coefficients m2 s^2 / 2
         + l1_dictionary ||W_k||_1 / s + l2_dictionary ||W_k||^2 / (2 s^2)

Weights at their bound of 1 stay there when s grows: the fit gets better at their features as if they had grown, at the
rate pull(s), the sum of their multipliers, which falls with s. Where s = 1 is best for every component, and W for the
bounds as they are, (W, H) is a critical point of the whole objective; s only leads there sooner, the statistics of all
past samples being taken along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import require_at_least
from onmf._support.threads import cached_property
from onmf.samples import Samples

HIGHEST = 1e9  # penalty of a user's: squares of higher ones leave the range of single precision
MOST = 2.0  # by which s changes at a time where weights are at their bound
HALVINGS = 24


@dataclass(frozen=True)
class Penalty:
    """(l2 / 2) ||h||^2 + l1 ||h||_1: the penalty on the coefficients of a sample.

    Parameters
    ----------
    l2 : float
        The m of the paper's Assumption 2.
    l1 : float
        What a unit of a coefficient costs.

    Examples
    --------
    >>> bool(onmf.methods.Penalty()), bool(onmf.methods.Penalty(l2=0.1))
    (False, True)
    """

    l2: float = 0.0
    l1: float = 0.0

    def __post_init__(self) -> None:
        require_at_least(0, l2=self.l2, l1=self.l1)

    def __bool__(self) -> bool:
        return bool(self.l2 or self.l1)  # NumPy's numbers would give NumPy's truth

    @property
    def linear(self) -> bool:
        """Does every unit of a coefficient cost the same?"""
        return bool(self.l1 > 0)

    def per_unit(self, X: Samples) -> Array:
        """Return the penalty on one unit of a coefficient, per sample: (n, 1)."""
        return np.full((X.shape[0], 1), self.l1, dtype=X.dtype)

    def value(self, H: Array, per_unit: Array) -> Array:
        """Return the penalty per sample."""
        return 0.5 * self.l2 * np.square(H).sum(axis=1) + per_unit[:, 0] * H.sum(axis=1)

    def gradient(self, H: Array, per_unit: Array) -> Array:
        """Return the derivative of the penalty in h >= 0."""
        return self.l2 * H + per_unit


NO_PENALTY = Penalty()


@dataclass(frozen=True)
class Penalties:
    """The penalties of an objective. In internal units, it is the mean over the samples of

        d(x || hW) + l1_coefficients ||h||_1 + l2_coefficients / 2 ||h||^2,

    and on top of it l1_dictionary ||W||_1 + l2_dictionary / 2 ||W||_F^2, over W in C and h in H.

    Parameters
    ----------
    l1_coefficients : float
        Makes coefficients sparse.
    l2_coefficients : float
        Keeps coefficients small.
    l1_dictionary : float
        Makes components sparse.
    l2_dictionary : float
        Keeps weights small.

    Examples
    --------
    >>> onmf.methods.Penalties(l1_coefficients=0.1).of_coefficients
    Penalty(l2=0.0, l1=0.1)
    """

    l1_coefficients: float = 0.0
    l2_coefficients: float = 0.0
    l1_dictionary: float = 0.0
    l2_dictionary: float = 0.0

    def __post_init__(self) -> None:
        require_at_least(0, **vars(self))
        for name, value in vars(self).items():
            if value > HIGHEST:
                raise ValueError(
                    f"{name} must be at most {HIGHEST:g}, got {value!r}: penalties are in units in which data have "
                    "mean 1, and far lower ones leave nothing."
                )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the penalties among the parameters of an estimator."""
        return cls(**{field.name: settings[field.name] for field in fields(cls)})

    def __bool__(self) -> bool:  # asked for several times per chunk
        return bool(self.l1_coefficients or self.l2_coefficients or self.l1_dictionary or self.l2_dictionary)

    @property
    def on_coefficients(self) -> bool:
        """Is there a penalty on coefficients?"""
        return bool(self.l1_coefficients > 0 or self.l2_coefficients > 0)

    @property
    def on_dictionary(self) -> bool:
        """Is there a penalty on the dictionary?"""
        return bool(self.l1_dictionary > 0 or self.l2_dictionary > 0)

    def require_effect(self, coefficients_bounded: bool) -> None:
        """Raise an error for penalties that change nothing; bounded coefficients are those that sum to one."""
        if coefficients_bounded and self.l1_coefficients > 0:
            raise ValueError(
                "l1_coefficients has no effect on the simplex, where the coefficients of every sample sum to one; "
                "leave it out, or give l2_coefficients, which draws them to equal shares."
            )
        if self.on_dictionary and not self.on_coefficients and not coefficients_bounded:
            raise ValueError(
                "l1_dictionary and l2_dictionary have no effect alone: W / c with c H fits as well and costs less; "
                "give l1_coefficients or l2_coefficients too, or coefficients='simplex'."
            )

    @cached_property
    def of_coefficients(self) -> Penalty:
        """The penalty on the coefficients of one sample."""
        return Penalty(self.l2_coefficients, self.l1_coefficients)

    def of_dictionary(self, W: Array) -> float:
        """Return the penalty on the dictionary."""
        if not self.on_dictionary:
            return 0.0
        W = W.astype(np.float64, copy=False)
        return float(self.l1_dictionary * W.sum() + 0.5 * self.l2_dictionary * np.square(W).sum())

    def slope(self, W: Array) -> Array:
        """Return the derivative of the penalty on the dictionary in W >= 0."""
        return (self.l1_dictionary + self.l2_dictionary * W).astype(W.dtype, copy=False)


NO_PENALTIES = Penalties()


def resized(
    penalties: Penalties,
    W: Array,
    averages: tuple[Array, Array],
    pull: Callable[[Array], Array],
    fixed: int = 0,
) -> Array:
    """Return the s of every component at which p'(s) = pull(s), in bounds; ``averages`` are m and m2.

    The first ``fixed`` components keep their size.
    """
    m, m2 = np.asarray(averages, dtype=np.float64)
    largest = W.max(axis=1).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rising, bending = penalties.l1_coefficients * m, penalties.l2_coefficients * m2
        size = penalties.l1_dictionary * W.sum(axis=1, dtype=np.float64)
        square = penalties.l2_dictionary * np.square(W, dtype=np.float64).sum(axis=1)
        low = np.log(np.where(largest >= 1, 1 / MOST, np.maximum(largest, np.finfo(np.float64).tiny)))
        high = np.full_like(low, np.log(MOST))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            s = np.exp(middle)
            slope = rising + bending * s - size / s**2 - square / s**3 - pull(s)
            high, low = np.where(slope > 0, middle, high), np.where(slope > 0, low, middle)
    # Nothing tells the size of a component that no sample uses, or that has no weights.
    changes = (largest > 0) & ((rising + bending > 0) | (size + square > 0))
    changes[:fixed] = False
    return np.where(changes, np.exp(low), 1.0).astype(W.dtype)


def falling(pull: Array, stiffness: Array) -> Callable[[Array], Array]:
    """Return a pull that falls by ``stiffness`` per unit of s."""
    return lambda s: pull - stiffness * (s - 1)


def carried(W: Array, s: Array) -> Array:
    """Return W / s, where weights at their bound of 1 stay there."""
    return np.where(W >= 1, np.ones_like(W), np.minimum(W / s[:, None], 1.0))
