"""Where a divergence d(x || y) is defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onmf._support.arrays import Array


@dataclass(frozen=True)
class Interval:
    """The half-line of admissible numbers: [0, inf) if closed, (0, inf) if not."""

    closed: bool = True

    def outside(self, x: Array) -> Any:
        """Elementwise: is x below the interval?"""
        return x < 0 if self.closed else x <= 0


@dataclass(frozen=True)
class Domain:
    """Where d(x || y) is finite and has a derivative in y: one interval for the data, one for the fit."""

    x: Interval = Interval()
    y: Interval = Interval()
