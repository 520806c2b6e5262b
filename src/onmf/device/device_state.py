"""The state of a method as tensors on a device, and its transfer there and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from onmf._support.arrays import Array
from onmf._support.threads import cached_property
from onmf.device.transfer import to_device
from onmf.divergences import Divergence
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionarySet
from onmf.model.state import State

Tensors = dict[str, Any]


@dataclass(frozen=True)
class DeviceState(ABC):
    """A dictionary and a method's statistics on a device; no operation changes them in place."""

    W: Any  # (K, F)
    C: DictionarySet
    memory: Tensors
    penalties: Penalties

    @classmethod
    def of(cls, state: State, device: str) -> Self:
        """Return the state on a device: the tensors that it comes from, if they are there, or else copies."""
        W, memory = state.W, state.memory
        if isinstance(memory, HostCopy) and memory.W is W and str(memory.origin.W.device) == device:
            return cls(memory.origin.W, state.C, memory.origin.memory, state.penalties)
        return cls(to_device(W, device), state.C, cls.sent(memory, device), state.penalties)

    @classmethod
    def sent(cls, memory: Mapping[str, Array], device: str) -> Tensors:
        """Send statistics to the device and lay them out as it wants them."""
        return {name: to_device(array, device) for name, array in memory.items()}

    def on_host(self) -> dict[str, Array]:
        """Return the statistics as the host lays them out, in memory of their own."""
        return {name: _array(tensor) for name, tensor in self.memory.items()}

    @property
    def changes_on_host(self) -> bool:
        """Must the host change the units of the statistics? If so, learning continues from the host's copy."""
        return False

    def after_batch(self, before: State, clock: float, steps: int) -> State:
        """Return the state on the host at this clock; statistics are copied when they are first read."""
        W = _array(self.W)
        memory = self.on_host() if self.changes_on_host else HostCopy(self, W)
        samples = before.samples + (clock - before.clock)
        return replace(before, W=W, samples=samples, clock=clock, steps=before.steps + steps, memory=memory)

    @abstractmethod
    def recombined(self, divergence: Divergence, W: Any, T: Any) -> Self:
        """Return the state with another dictionary, whose coefficients are T h where they were h."""

    @property
    def finite(self) -> bool:
        """Are dictionary and statistics made of numbers?"""
        sums = torch.stack([each.sum(dtype=torch.float64) for each in (self.W, *self.memory.values())])
        return bool(torch.isfinite(sums).all())

    def like(self, *arrays: Array) -> tuple[Any, ...]:
        """Return arrays as tensors of the dictionary's type on its device."""
        return tuple(torch.as_tensor(each, dtype=self.W.dtype, device=self.W.device) for each in arrays)


class HostCopy(Mapping[str, Array]):
    """The statistics of a state on a device, copied to the host when they are first looked at.

    ``W`` is the dictionary of the state on the host: a state with another one does not come from these tensors. In a
    pickle only arrays are left.
    """

    def __init__(self, origin: DeviceState, W: Array) -> None:
        self.origin, self.W = origin, W

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The statistics as arrays on the host."""
        return self.origin.on_host()

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.origin.memory)

    def __len__(self) -> int:
        return len(self.origin.memory)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.arrays,)


def feasible(W: Any, C: DictionarySet) -> Any:
    """Project weights that are not negative on C: what a feature lacks is shared out evenly."""
    free = torch.clamp(W[C.fixed :], max=C.high)
    if C.eps and len(free):
        carried = free.sum(dim=0) + W[: C.fixed].sum(dim=0) if C.fixed else free.sum(dim=0)
        free = free + torch.clamp(C.eps - carried, min=0) / len(free)
    return torch.cat([W[: C.fixed], free]) if C.fixed else free


def _array(tensor: Any) -> Array:
    array: Array = tensor.cpu().numpy() if tensor.is_cuda else tensor.numpy().copy()
    return array
