"""Weights of new samples in averages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from onmf._support.checks import is_number


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


# Made once, checks included: it is asked for at every step.
averaging = lru_cache(maxsize=64)(lambda exponent, forgetting: Averaging(exponent, forgetting=forgetting))
