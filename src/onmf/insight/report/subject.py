"""What a report is about: all that a page needs to know of a fitted model, in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.data import Spec
from onmf.divergences import Divergence
from onmf.insight.features import directions
from onmf.model.units import Units


@dataclass(frozen=True)
class Solved:
    """Coefficients and losses of samples, in the data's units."""

    H: Array
    losses: Array  # d(x || hW) per sample
    sizes: Array  # d(x || 2x) per sample: what a fit twice too large would cost
    unsolved: int = 0  # samples whose coefficients are not precise


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A fitted model as its report sees it."""

    estimator: str
    settings: Mapping[str, str]  # those that differ from their defaults
    W: Array
    fixed: int  # fixed components, the first ones
    names: tuple[str, ...] | None
    source: Spec
    divergence: Divergence
    method: str
    history: Mapping[str, Array]
    passes: int
    solve: Callable[[Any], Solved]
    missing: str | None = None
    implicit: str = "zero"
    units: Units
    guarantee: str | None = None  # None: of a method without steps to converge
    converged: bool | None = None  # None: of a method that does not tell
    too_long_steps: str | None = None  # what to try if the loss has gone up
    skipped: int = 0
    reasons: tuple[str, ...] = ()
    changes: int = 0  # of the stream, found while learning
    unknown: tuple[int, ...] = ()  # features that were missing in every sample
    blank: int = 0  # samples of which every entry was missing
    usage: Array | None = None  # shares of the components in all that was fitted

    @property
    def K(self) -> int:
        """Return the number of components."""
        return self.W.shape[0]

    @property
    def F(self) -> int:
        """Return the number of features."""
        return self.W.shape[1]

    @property
    def mass(self) -> Array:
        """sum_f W_kf: what one unit of a coefficient adds to a fit."""
        return self.W.sum(axis=1, dtype=np.float64)

    @property
    def divergence_text(self) -> str:
        """Write the divergence as in ``beta:1.5``, without matrices."""
        numbers = [f"{value:.4g}" for value in self.divergence.parameters().values() if isinstance(value, float)]
        return ":".join([self.divergence.name, *([",".join(numbers)] if numbers else [])])

    def similarity(self) -> Array:
        """Return the cosines between components (K, K), and zero of each with itself."""
        unit = directions(self.W)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, 0.0)
        return cosines
