"""A sample of all samples seen so far, which keeps the dictionary from forgetting early ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.samples import Samples, stacked

PER_NEW_SAMPLE = 4  # samples in a mixed chunk for each new one: the other three are old


@dataclass(frozen=True)
class Reservoir:
    """A few of all samples seen, each equally likely to be among them, to mix with new ones (Vitter's algorithm R).

    A stream in temporal order (the frames of a recording) shows the same few components for a long time; without a
    reminder of the rest, the dictionary forgets it. Random numbers depend on the samples seen alone, so that a run can
    be resumed.
    """

    size: int

    def start(self, W: Array) -> dict[str, Array]:
        """Return an empty reservoir."""
        return {"kept": np.zeros((self.size, W.shape[1]), dtype=W.dtype), "kept_of": np.zeros(1)}

    def mixed(self, memory: Mapping[str, Array], X: Samples) -> Samples:
        """Return new rows X followed by old ones, three times as many."""
        seen = int(memory["kept_of"][0])
        if seen == 0:
            return X
        rows = np.random.default_rng((0, seen)).integers(min(seen, self.size), size=(PER_NEW_SAMPLE - 1) * len(X))
        old = Samples(memory["kept"][rows])
        both: Samples = stacked([X, old.sparsified() if X.sparse else old])
        return both

    def keep(self, memory: Mapping[str, Array], X: Samples) -> None:
        """Replace kept rows by rows of X, drawn so that all samples seen stay equally likely; in place."""
        seen = int(memory["kept_of"][0])
        number = seen + np.arange(len(X))
        place = (np.random.default_rng((1, seen)).random(len(number)) * (number + 1)).astype(np.int64)
        place = np.where(number < self.size, number, place)
        kept = place < self.size
        memory["kept"][place[kept]] = X[kept].densified().matrix
        memory["kept_of"][0] = seen + len(X)
