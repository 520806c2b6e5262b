"""How many samples make a chunk, and how much they weigh in averages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from onmf._support.checks import is_number

SAMPLES = 1000  # whose weight forgetting bounds from below


@dataclass(frozen=True)
class Growing:
    """Chunks of a share of the samples seen, within bounds.

    At first the dictionary learns most from being updated often. Later its error is that of an average over far more
    samples than a chunk has, and updating it for every few of them is time lost.
    """

    first: int
    share: float
    most: int

    def __call__(self, samples: float) -> int:
        """The size of the next chunk after so many samples."""
        return int(min(max(self.first, self.share * samples), self.most))


@dataclass(frozen=True)
class Averaging:
    """rho = ((1 + delay) / (t + delay))^exponent with t = samples / chunk: the weight of a chunk of new samples.

    n samples weigh 1 - (1 - rho)^(n / chunk), as if they had come in chunks of this size: what is remembered of the
    past, measured in samples, depends neither on how a stream is cut nor on chunks that grow. sum rho = inf and
    sum rho^2 < inf for exponents in (1/2, 1]. ``forgetting``, for streams that drift, is a floor under the weight of
    1,000 samples, whatever the method and its chunks: after m thousand samples the past weighs (1 - forgetting)^m.
    """

    exponent: float = 0.6
    delay: float = 2.0
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if not is_number(self.exponent) or not 0.5 < self.exponent <= 1:
            raise ValueError(f"the exponent of the averaging must lie in (1/2, 1], got {self.exponent!r}.")
        if not is_number(self.forgetting) or not 0 <= self.forgetting < 1:
            raise ValueError(f"forgetting must lie in [0, 1), got {self.forgetting!r}.")

    def __call__(self, samples: float, n: float, chunk: int) -> float:
        """The weight of the last n of ``samples``."""
        if samples <= max(chunk, n):
            return n / samples  # before the first chunk is full: the plain mean
        t = samples / chunk
        rho = ((1 + self.delay) / (t + self.delay)) ** self.exponent
        rho = rho if n == chunk else 1 - (1 - rho) ** (n / chunk)
        return float(max(rho, 1 - (1 - self.forgetting) ** (n / SAMPLES)) if self.forgetting else rho)


def remembered(forgetting: float) -> float:
    """After how many samples what was learnt before weighs 1/e."""
    return -SAMPLES / math.log1p(-forgetting) if forgetting else math.inf


# Made once, checks included: it is asked for at every step.
averaging = lru_cache(maxsize=64)(lambda exponent, forgetting: Averaging(exponent, forgetting=forgetting))


def forgotten_by_all(forgetting: float, shards: int) -> float:
    """The ``forgetting`` of one of so many shards, so that together they forget as fast as one stream would."""
    return min(1 - (1 - forgetting) ** shards, 1 - 1e-9)
