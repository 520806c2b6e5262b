"""Has the stream changed? Page and Hinkley's test on the losses that batches have before they are learnt from.

A batch of n samples with mean loss x is compared with the running mean m of the batches before it:

    z = (x / m - 1) / sqrt(v / n + TOLERANCE^2)        S = max(0, S + min(z, MOST) - SLACK)

with v the running variance of one sample's x / m. S stays near zero while the loss is what it used to be, and falls to
it while the loss falls, as at the start; it grows from batch to batch when new samples are fitted worse than those
before. Beyond LIMIT the stream has changed, and m, v and S begin anew. Everything is relative: neither the unit of the
loss nor the size of the batches matters, and no single batch, however odd, raises an alarm.

A second sum does the same for losses that fall, as when a sensor dies, with log(m / x) in place of x / m - 1, which has
an end at -1. Learning makes losses fall, too, so that it has a larger tolerance and slack, FALL_TOLERANCE and
FALL_SLACK: the loss has to fall markedly, and at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onmf._support.checks import require_at_least, require_whole

MEMORY = 32  # batches that the running mean is about, once there are as many
BEGINNING = 10  # batches before the first judgement: the dictionary is being found
TOLERANCE = 0.02  # of the mean loss: what is less is no change, however certain
SLACK, LIMIT = 0.5, 14.0  # deviations: what a batch may be above the mean for nothing, and what is a change in sum
FALL_TOLERANCE, FALL_SLACK = 0.1, 2.0  # the same for batches below it
MOST, MOST_LEARNT = 4.0, 3.0  # deviations of one batch: in the sum, and in the mean that later ones are compared with
SPIKE = 1e3  # times the mean: the most that a loss is taken for
LARGEST = 1e100  # losses beyond, or below its inverse, are taken for that


@dataclass(frozen=True)
class Drift:
    """The state of the test after the last batch."""

    batches: int = 0  # since the last change, or the start
    weight: float = 0.0  # samples that the mean is about
    mean: float = 0.0
    variance: float = 0.0  # of one sample's loss, relative to the mean's square
    rise: float = 0.0  # S / LIMIT: a change from 1 on, and 1 for the batch that shows it
    fall: float = 0.0  # the same of losses that fall
    changes: int = 0  # found so far

    def require_sound(self) -> None:
        """Raise an error for numbers that no run could have, as a damaged file may hold."""
        require_whole(0, batches=self.batches, changes=self.changes)
        for name in ("weight", "mean", "variance", "rise", "fall"):
            require_at_least(0, **{name: getattr(self, name)})
        if self.statistic > 1 or max(self.mean, self.weight) > LARGEST or (self.batches and not self.mean):
            raise ValueError("the test for changes of the stream is in a state that it cannot be in")

    @property
    def statistic(self) -> float:
        """How much the losses have changed in either direction, from 0 to 1."""
        return max(self.rise, self.fall)

    @property
    def changed(self) -> bool:
        """Has the last batch shown that the stream is another?"""
        return self.statistic >= 1

    def after(self, n: int, loss: float) -> Drift:
        """Return the state after one more batch of n samples, with their mean ``loss`` before they were learnt from.

        Batches without a loss, silent ones, say nothing of the others.
        """
        if not loss > 0:
            return self if not self.changed else Drift(changes=self.changes)
        loss = max(1 / LARGEST, min(loss, LARGEST))
        if self.changed or not self.batches:
            return Drift(1, float(n), loss, changes=self.changes)
        excess, rise, fall = min(loss / self.mean, SPIKE) - 1, 0.0, 0.0
        if self.batches >= BEGINNING:
            deviation = math.sqrt(self.variance / n + TOLERANCE**2)
            z = excess / deviation
            below = math.log(self.mean / loss) / math.sqrt(self.variance / n + FALL_TOLERANCE**2)
            rise = min(1.0, max(0.0, self.rise + (min(z, MOST) - SLACK) / LIMIT))
            fall = min(1.0, max(0.0, self.fall + (min(below, MOST) - FALL_SLACK) / LIMIT))
            excess = deviation * max(-MOST_LEARNT, min(z, MOST_LEARNT))
        # The first batches, from which the loss falls fast, are forgotten fast.
        kept = 1 - max(1 / MEMORY, min(0.5, 4 / (self.batches + 1)))
        weight = kept * self.weight + n
        share = n / weight
        mean = max(1 / LARGEST, self.mean * (1 + share * excess))
        variance = kept * self.variance + (1 - kept) * n * (1 - share) * excess**2
        changes = self.changes + (max(rise, fall) >= 1)
        return Drift(self.batches + 1, weight, mean, variance, rise, fall, changes)
