"""The dictionary step: what is learnt from a chunk of samples, and how it changes the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from onmf.arrays import Array
from onmf.divergences import Divergence


@dataclass(frozen=True)
class State:
    """All that learning carries from one chunk to the next: what a model file has to hold."""

    W: Array  # (K, F), in the set C
    samples: int = 0
    steps: int = 0
    memory: Mapping[str, Array] = field(default_factory=dict)  # statistics that an update keeps besides W


@dataclass(frozen=True)
class Statistics:
    """What ``local`` found in one chunk; the statistics of two chunks add up."""

    sums: Mapping[str, Array]
    samples: int


class DictionaryUpdate(ABC):
    """One way to learn W. ``local`` looks at data and may run anywhere; ``apply`` alone changes the state."""

    chunk: int  # samples per update; larger batches are split

    @abstractmethod
    def start(self, W: Array) -> State:
        """The state before the first sample, with W brought into C."""

    @abstractmethod
    def local(self, divergence: Divergence, X: Array, H: Array, Y: Array) -> Statistics:
        """What the chunk X with coefficients H and fit Y = HW says about W."""

    @abstractmethod
    def apply(self, state: State, statistics: Statistics) -> State:
        """The next state."""
