"""Step sizes eta_t of the paper's Algorithm 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onmf.checks import is_number


@dataclass(frozen=True)
class StepSize:
    """eta = a / (s + b)^power, where s counts the samples seen; the paper's s is tau t and its power 1.

    Counting samples instead of mini-batches weighs mini-batches of unequal size rightly. The Robbins-Monro
    conditions, sum eta = inf and sum eta^2 < inf, hold for 1/2 < power <= 1 only; other powers have no
    convergence theory and are refused unless ``any_power`` is set.
    """

    a: float = 2e4
    b: float = 2e4
    power: float = 1.0
    any_power: bool = False

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < math.inf:
                msg = f"the step size a / (samples + b)^power needs {name} > 0, got {value!r}."
                raise ValueError(msg)
        if (
            not is_number(self.power)
            or not math.isfinite(self.power)
            or (not self.any_power and not 0.5 < self.power <= 1)
        ):
            msg = (
                f"power = {self.power!r} breaks the Robbins-Monro conditions (sum eta = inf, sum eta^2 < inf), which "
                "need 1/2 < power <= 1; choose such a power, or set any_power=True to go without the theory."
            )
            raise ValueError(msg)

    def __call__(self, samples: int) -> float:
        """eta after ``samples`` samples."""
        return float(self.a / (samples + self.b) ** self.power)
