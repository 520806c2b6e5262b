"""Step sizes of the paper's Algorithm 1, and weights of new samples in averages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from onmf._support.checks import is_number


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
                raise ValueError(f"the step size a / (samples + b)^power needs {name} > 0, got {value!r}.")
        if (
            not is_number(self.power)
            or not math.isfinite(self.power)
            or (not self.any_power and not 0.5 < self.power <= 1)
        ):
            raise ValueError(
                f"power = {self.power!r} breaks the Robbins-Monro conditions (sum eta = inf, sum eta^2 < inf), which "
                "need 1/2 < power <= 1; choose such a power, or set any_power=True to go without the theory."
            )

    def __call__(self, samples: float) -> float:
        """eta after ``samples`` samples."""
        with np.errstate(all="ignore"):  # of a very large power: 0, or inf if it is negative
            return float(self.a / np.float64(samples + self.b) ** self.power)


@dataclass(frozen=True)
class Averaging:
    """rho = ((1 + delay) / (t + delay))^exponent * n / chunk with t = samples / chunk: the weight of n new samples.

    It counts samples, not calls: a short chunk weighs less. sum rho = inf and sum rho^2 < inf for exponents in
    (1/2, 1]. ``forgetting`` is a floor under the weight of a full chunk, for streams that drift.
    """

    exponent: float = 0.6
    delay: float = 2.0
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if not is_number(self.exponent) or not 0.5 < self.exponent <= 1:
            raise ValueError(f"the exponent of the averaging must lie in (1/2, 1], got {self.exponent!r}.")
        if not is_number(self.forgetting) or not 0 <= self.forgetting < 1:
            raise ValueError(f"forgetting must lie in [0, 1), got {self.forgetting!r}.")

    def __call__(self, samples: float, n: int, chunk: int) -> float:
        """The weight of the last n of ``samples``."""
        if samples <= chunk:
            return n / samples  # before the first chunk is full: the plain mean
        t = samples / chunk
        rho = ((1 + self.delay) / (t + self.delay)) ** self.exponent
        return float(min(1.0, max(rho, self.forgetting) * n / chunk))


# Made once, checks included: they are asked for at every step.
step_size = lru_cache(maxsize=64)(StepSize)
averaging = lru_cache(maxsize=64)(lambda exponent, forgetting: Averaging(exponent, forgetting=forgetting))
