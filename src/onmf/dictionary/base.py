"""The dictionary step: what is learnt from a chunk of samples, and how it changes the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences import Divergence
from onmf.schedules import Averaging


@dataclass(frozen=True)
class State:
    """All that learning carries from one chunk to the next: what a model file has to hold."""

    W: Array  # (K, F), in the set C
    samples: int = 0  # that the statistics have averaged
    steps: int = 0
    memory: dict[str, Array] = field(default_factory=dict)  # statistics that an update keeps besides W

    def copy(self, layout: Literal["C", "F"] = "C") -> State:
        """The same with a memory of its own, and W in one piece, atom by atom (C) or feature by feature (F)."""
        W = np.asarray(self.W, order=layout)
        return State(W, self.samples, self.steps, {name: array.copy() for name, array in self.memory.items()})


@dataclass(frozen=True)
class Statistics:
    """What ``local`` found in one chunk: arrays with a row a sample, so that two chunks merge by stacking, or sums."""

    parts: Mapping[str, Any]
    samples: int
    loss: float  # summed over the chunk, at the W that it was computed with
    new: int = 0  # samples among them that no earlier chunk had


class DictionaryUpdate(ABC):
    """One way to learn W. ``local`` looks at data and may run anywhere; ``apply`` alone changes the state."""

    chunk: int  # samples per update; larger batches are split
    averaging: Averaging = Averaging()  # the weight of new samples, where an update averages
    layout: ClassVar[Literal["C", "F"]] = "C"  # how W lies in memory while it is learnt
    skips_empty: ClassVar[bool] = False  # are samples of zeros left out? Updates that average must not see them alone

    def visits(self, samples: int) -> int:
        """How often the chunk after so many samples is looked at before the next one."""
        return 1

    def effort(self, samples: int) -> int:
        """How many times its usual iterations the coefficient solver may take for the chunk after so many samples."""
        return 1

    @abstractmethod
    def start(self, W: Array) -> State:
        """The state before the first sample, with W brought into C."""

    @abstractmethod
    def local(self, divergence: Divergence, X: Any, H: Array, W: Array) -> Statistics:
        """What the chunk X with coefficients H in the dictionary W says about W."""

    @abstractmethod
    def apply(self, state: State, statistics: Statistics) -> State:
        """The next state. It may overwrite the old one's memory, unless ``visits`` may be more than one."""
