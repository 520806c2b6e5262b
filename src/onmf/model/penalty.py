"""What large coefficients and large weights cost on top of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import require_at_least
from onmf.samples import Samples

HIGHEST = 1e9  # penalty of a user's: squares of higher ones leave the range of single precision


@dataclass(frozen=True)
class Penalty:
    """(l2 / 2) ||h||^2 + (l1 + lasso ||x||) ||h||_1: what the coefficients of one sample cost."""

    l2: float = 0.0  # the m of the paper's Assumption 2
    l1: float = 0.0
    lasso: float = 0.0  # relative to the sample's length, as Wang, Wang and Yeung have it

    def __post_init__(self) -> None:
        require_at_least(0, l2=self.l2, l1=self.l1, lasso=self.lasso)

    def __bool__(self) -> bool:
        return bool(self.l2 or self.l1 or self.lasso)  # NumPy's numbers would give NumPy's truth

    @property
    def linear(self) -> bool:
        """Does every unit of a coefficient cost the same?"""
        return bool(self.l1 > 0 or self.lasso > 0)

    def per_unit(self, X: Samples) -> Array:
        """l1 + lasso ||x|| per sample: (n, 1)."""
        if not self.lasso:
            return np.full((X.shape[0], 1), self.l1, dtype=X.dtype)
        return self.l1 + self.lasso * np.sqrt(X.per_sample(np.square(X.values)))[:, None]

    def value(self, H: Array, per_unit: Array) -> Array:
        """The penalty per sample."""
        return 0.5 * self.l2 * np.square(H).sum(axis=1) + per_unit[:, 0] * H.sum(axis=1)

    def gradient(self, H: Array, per_unit: Array) -> Array:
        """Its derivative in h >= 0."""
        return self.l2 * H + per_unit


NO_PENALTY = Penalty()


@dataclass(frozen=True)
class Penalties:
    """The objective, in internal units: the mean over the samples of

        d(x || hW) + l1_coefficients ||h||_1 + l2_coefficients / 2 ||h||^2,

    and on top of it l1_dictionary ||W||_1 + l2_dictionary / 2 ||W||_F^2, over W in C and h in H.
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
        """Those among the parameters of an estimator."""
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

    @property
    def of_coefficients(self) -> Penalty:
        """What the coefficients of one sample cost."""
        return Penalty(self.l2_coefficients, self.l1_coefficients)

    def of_dictionary(self, W: Array) -> float:
        """What the dictionary costs."""
        if not self.on_dictionary:
            return 0.0
        W = W.astype(np.float64, copy=False)
        return float(self.l1_dictionary * W.sum() + 0.5 * self.l2_dictionary * np.square(W).sum())

    def slope(self, W: Array) -> Array:
        """The derivative of that in W >= 0."""
        return (self.l1_dictionary + self.l2_dictionary * W).astype(W.dtype, copy=False)


NO_PENALTIES = Penalties()
