"""A few samples of all those seen, each equally likely to be among them: old ones to mix with new ones.

A stream in temporal order (the frames of a recording) shows the same few components for a long time; without a reminder
of the rest, the dictionary forgets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.samples import Samples, stacked

NEW_SHARE = 4  # one sample in so many is new, the others are old


@dataclass(frozen=True)
class Reservoir:
    """Vitter's algorithm R over rows; random numbers depend on the samples seen alone, so that a run can go on."""

    size: int

    def start(self, W: Array) -> dict[str, Array]:
        """Nothing kept yet."""
        return {"kept": np.zeros((self.size, W.shape[1]), dtype=W.dtype), "kept_of": np.zeros(1)}

    def mixed(self, memory: Mapping[str, Array], V: Samples) -> Samples:
        """New rows V followed by old ones, three times as many."""
        seen = int(memory["kept_of"][0])
        if seen == 0:
            return V
        rows = np.random.default_rng((0, seen)).integers(min(seen, self.size), size=(NEW_SHARE - 1) * len(V))
        old = Samples(memory["kept"][rows])
        both: Samples = stacked([V, old.sparsified() if V.sparse else old])
        return both

    def keep(self, memory: Mapping[str, Array], V: Samples) -> None:
        """Let the rows V take their chance, in place."""
        seen = int(memory["kept_of"][0])
        number = seen + np.arange(len(V))
        place = (np.random.default_rng((1, seen)).random(len(number)) * (number + 1)).astype(np.int64)
        place = np.where(number < self.size, number, place)
        inside = place < self.size
        memory["kept"][place[inside]] = V[inside].densified().matrix
        memory["kept_of"][0] = seen + len(V)
