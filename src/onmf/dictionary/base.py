"""The dictionary step: what is learnt from a chunk of samples, and how it changes the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    loss: float  # summed over the chunk, at the W that it was computed with


class DictionaryUpdate(ABC):
    """One way to learn W. ``local`` looks at data and may run anywhere; ``apply`` alone changes the state."""

    chunk: int  # samples per update; larger batches are split
    visits: int = 1  # how often a chunk is looked at before the next one

    @abstractmethod
    def start(self, W: Array) -> State:
        """The state before the first sample, with W brought into C."""

    @abstractmethod
    def local(self, divergence: Divergence, X: Any, H: Array, W: Array) -> Statistics:
        """What the chunk X with coefficients H in the dictionary W says about W."""

    @abstractmethod
    def apply(self, state: State, statistics: Statistics) -> State:
        """The next state."""
