"""The loss curve of a run, read from ``history_``, in which batches are weighted by their samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array

REMAINDER = 0.5  # of the samples of the batch before: a smaller batch is the end of a pass
REACH = 0.15  # of the position, to both sides: the window of the running mean
FALLS, CERTAIN = 0.08, 2.5  # of the loss, over the last half of the run, and standard errors of it
FALLS_BRIEFLY = 0.15  # of the loss, from one batch to the next, in a run of few
FEW_BATCHES = 8


@dataclass(frozen=True, eq=False)
class LossCurve:
    """The samples and seconds so far after every batch of a run, and the mean loss of the batch."""

    samples: Array
    seconds: Array
    loss: Array
    sizes: Array  # the samples of each batch

    @classmethod
    def of(cls, history: Mapping[str, Array]) -> LossCurve:
        """Read ``history_``; a small batch at the end of a pass, perhaps a single sample, joins the one before it."""
        samples, seconds, loss = (
            np.asarray(history[name], dtype=np.float64) for name in ("samples", "seconds", "loss")
        )
        sizes = np.maximum(np.diff(samples, prepend=0.0), 1e-9)  # BatchNMF begins before any sample
        starts = np.flatnonzero(np.r_[True, sizes[1:] >= REMAINDER * sizes[:-1]])
        last = np.r_[starts[1:], len(sizes)] - 1
        pooled = np.add.reduceat(sizes, starts)
        means = np.where(last == starts, loss[starts], np.add.reduceat(sizes * loss, starts) / pooled)
        return cls(samples[last], seconds[last], means, pooled)

    @property
    def running_mean(self) -> Array:
        """Return the mean loss per sample over windows that widen with the position, as a run settles."""
        first = np.searchsorted(self.samples, (1 - REACH) * self.samples)
        last = np.searchsorted(self.samples, (1 + REACH) * self.samples, side="right")
        losses, sizes = (np.concatenate([[0.0], np.cumsum(each)]) for each in (self.sizes * self.loss, self.sizes))
        return (losses[last] - losses[first]) / (sizes[last] - sizes[first])

    def still_falls(self, pass_began: int = 0) -> float | None:
        """Return the share by which the loss fell over the last half of the run, or None if that may be chance.

        The second half of the last of several passes, which began after ``pass_began`` samples, is compared with
        that of the pass before, since samples within a pass differ and may be in an order.
        """
        loss, samples = self.loss, self.samples
        if len(loss) < 2 or not loss[-1] > 0:
            return None
        half, number = (samples[-1] - pass_began) / 2, np.arange(len(loss)) - len(loss)
        last, before = samples > samples[-1] - half, (samples > pass_began - half) & (samples <= pass_began)
        if not (passes := pass_began >= 2 * half and before.any()):
            last, before = number == -1, number == -2
        if passes or len(loss) < FEW_BATCHES:
            means = [np.average(loss[each], weights=self.sizes[each]) for each in (last, before)]
            fall = 1 - means[0] / means[1]
            # The losses of samples differ by about their mean, so that those of few samples differ by chance.
            chance = CERTAIN * np.sqrt(1 / self.sizes[last].sum() + 1 / self.sizes[before].sum())
            return float(fall) if fall > max(FALLS if passes else FALLS_BRIEFLY, chance) else None
        late = samples >= samples[-1] - (samples[-1] - samples[0]) / 2
        late[-4:] = True
        weights = self.sizes[late] / self.sizes[late].mean()
        x = samples[late] - np.average(samples[late], weights=weights)
        y = loss[late] / np.average(loss[late], weights=weights) - 1
        spread = weights @ np.square(x)
        slope = float(weights @ (x * y) / spread)
        noise = np.sqrt(weights @ np.square(y - slope * x) / max(len(x) - 2, 1) / spread)
        fall = -slope * (x[-1] - x[0])  # in means of these losses; of the first of them it is less
        return min(float(fall / (1 + fall / 2)), 1.0) if fall > FALLS and -slope > CERTAIN * noise else None
