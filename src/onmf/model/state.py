"""The state that learning carries from chunk to chunk, the result of a batch, and the sums that shards add up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import MOST, require_at_least, require_whole
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTIES, Penalties
from onmf.model.sets import DictionarySet


@dataclass(frozen=True)
class State:
    """The dictionary, counts and statistics that learning carries from one chunk to the next.

    Attributes
    ----------
    W : array (K, F)
        The dictionary, in C.
    C : DictionarySet
        The set of dictionaries.
    samples : float
        Samples in the statistics, each counted by its weight.
    clock : float
        What weights and step lengths are counted by: the samples, or a shard's share of them.
    steps : int
        Updates so far.
    memory : Mapping[str, Array]
        Statistics that a method keeps besides W.
    penalties : Penalties
        The penalties of the user.

    Examples
    --------
    >>> C = onmf.methods.DictionarySet()
    >>> state = onmf.methods.State(C.rescale_into(X[:3] + 1.0), C)
    >>> state.after(10, 0.5 * state.W).samples
    10
    """

    W: Array
    C: DictionarySet
    samples: float = 0
    clock: float = 0.0
    steps: int = 0
    memory: Mapping[str, Array] = field(default_factory=dict)
    penalties: Penalties = NO_PENALTIES

    def require_counts(self) -> None:
        """Raise an error for counts that no run could have, as a damaged file may hold."""
        require_whole(0, steps=self.steps)
        require_at_least(0, samples=self.samples, clock=self.clock)
        for name, count in (("samples", self.samples), ("clock", self.clock)):
            if count >= MOST:
                raise ValueError(f"{name} must be less than {MOST}, got {count}.")

    def copy(self, layout: Literal["C", "F"] = "C", shared: Collection[str] = ()) -> State:
        """Return the state with copies of its statistics, and W component by component (C) or feature by feature (F).

        W and the statistics named in ``shared`` may be the same arrays. All are aligned: arrays that came over a wire
        may not be, and NumPy then sums them in another order.
        """
        sound = self.W.flags.carray if layout == "C" else self.W.flags.farray  # aligned and writeable, too
        W = self.W if sound else np.array(self.W, order=layout)
        memory = {
            name: array if name in shared and array.flags.carray else array.copy()
            for name, array in self.memory.items()
        }
        return self.with_arrays(W, memory)

    def with_arrays(self, W: Array, memory: Mapping[str, Array]) -> State:
        """Return the state with another dictionary and other statistics."""
        return State(W, self.C, self.samples, self.clock, self.steps, memory, self.penalties)

    def on_shard(self, shards: int) -> State:
        """Return the state for one of several shards: its clock counts the shard's part of the samples."""
        return self if shards == 1 else replace(self, clock=self.clock / shards)

    def after(self, n: float, W: Array, memory: Mapping[str, Array] | None = None) -> State:
        """Return the state after one more step, which has seen n samples."""
        memory = self.memory if memory is None else memory
        samples, clock, steps = self.samples + n, self.clock + n, self.steps + 1
        return State(W, self.C, samples, clock, steps, memory, self.penalties)


@dataclass(frozen=True)
class BatchResult:
    """The result of a batch: the new state, and the mean loss of its samples *before* they changed W."""

    state: State
    divergence: Divergence  # as it was, or adapted to the residuals; in internal units
    loss: float
    first_loss: float  # of the first chunk alone: no sample of the batch had changed W yet
    H: Any  # the coefficients of its samples, each found with the W of its time: an array, or a tensor on a device


@dataclass(frozen=True)
class Sums:
    """Sums that a shard has learnt and that add up over shards: arrays of the size of the state, never samples."""

    samples: float
    steps: int
    arrays: Mapping[str, Array]

    def __add__(self, other: Sums) -> Sums:
        arrays = {name: array + other.arrays[name] for name, array in self.arrays.items()}
        return Sums(self.samples + other.samples, self.steps + other.steps, arrays)
