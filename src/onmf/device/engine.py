"""What learns from chunks on a device: a twin, and the rules that it follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from onmf.device.device_state import Twin
from onmf.device.samples import Chunks
from onmf.divergences import Divergence
from onmf.methods import Method
from onmf.model.sets import Box
from onmf.model.state import State


class Running(ABC):
    """One way to learn on a device: a method of ``onmf.methods``, from a state on.

    ``divergence`` is in internal units, of whole samples; ``repeated`` says that an earlier pass has had the samples.
    """

    kept: type[Twin]  # what it keeps on the device

    def __init__(
        self, method: Method, divergence: Divergence, box: Box, state: State, twin: Any, repeated: bool
    ) -> None:
        self.method, self.divergence, self.box, self.repeated = method, divergence, box, repeated
        self.penalty = method.penalty(state.penalties)
        self.samples, self.clock = state.samples, state.clock
        self._twin = twin

    @property
    def twin(self) -> Any:
        """As it is now."""
        return self._twin

    @twin.setter
    def twin(self, twin: Any) -> None:
        self._twin = twin

    @abstractmethod
    def size(self, left: int, smaller: int) -> int:
        """Of the next chunk, of the samples that are left of a batch, so many times smaller than it would be."""

    @abstractmethod
    def weight(self, clock: float, n: float) -> float:
        """That of n samples after which the clock stands there, in what is averaged."""

    @abstractmethod
    def step(self, chunks: Chunks, part: slice, n: float, weights: Any) -> tuple[Any, Any]:
        """Coefficients and the sum of the losses of a chunk, which weighs n; the next may overwrite what is given.

        ``weights`` are those of its samples (n, 1), if they differ.
        """

    def learnt(self, chunks: Chunks, part: slice, n: float, weights: Any) -> tuple[Any, Any]:
        """``step``, and the clock goes on."""
        found = self.step(chunks, part, n, weights)
        self.samples, self.clock = self.samples + n, self.clock + n
        return found
