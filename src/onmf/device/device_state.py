"""A state on a device, and its way there and back."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from onmf._support.arrays import Array
from onmf.device.samples import to_device
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionarySet
from onmf.model.state import State

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Twin(ABC):
    """A state's dictionary and statistics on a device; no operation changes them in place."""

    W: Any  # (K, F)
    C: DictionarySet
    memory: Tensors
    penalties: Penalties

    @classmethod
    def sent(cls, state: State, device: str) -> Tensors:
        """The statistics of a state there, as they are laid out there."""
        return {name: to_device(array, device) for name, array in state.memory.items()}

    @property
    def arrays(self) -> dict[str, Array]:
        """The statistics on the host, in memory of their own."""
        return {name: _array(tensor) for name, tensor in self.memory.items()}

    def returned(self, before: State) -> dict[str, Array]:
        """The same as the host lays them out; ``before`` is a state of the same shapes."""
        return self.arrays

    def has_moved(self, memory: dict[str, Array], before: State) -> bool:
        """Has the host changed the units of what was returned?"""
        return False

    @abstractmethod
    def recombined(self, divergence: Any, W: Any, T: Any) -> Self:
        """With another dictionary, whose coefficients are T h where they were h."""

    @property
    def finite(self) -> bool:
        """Is it made of numbers?"""
        sums = torch.stack([each.sum(dtype=torch.float64) for each in (self.W, *self.memory.values())])
        return bool(torch.isfinite(sums).all())


def feasible(W: Any, C: DictionarySet) -> Any:
    """The projection on C of weights that are not negative: what a feature lacks is shared out evenly."""
    free = torch.clamp(W[C.fixed :], max=C.high)
    if C.eps and len(free):
        carried = free.sum(dim=0) + W[: C.fixed].sum(dim=0) if C.fixed else free.sum(dim=0)
        free = free + torch.clamp(C.eps - carried, min=0) / len(free)
    return torch.cat([W[: C.fixed], free]) if C.fixed else free


_kept: dict[int, tuple[Any, Twin]] = {}  # of states that live: what is learnt on need not be sent again


def twin_of(kind: type[Twin], state: State, device: str) -> Twin:
    """The state on a device."""
    known = _kept.get(id(state))
    if known is not None and known[0]() is state and str(known[1].W.device) == device:
        return known[1]
    return kind(to_device(state.W, device), state.C, kind.sent(state, device), state.penalties)


def state_of(twin: Twin, before: State, n: float, clock: float, steps: int) -> State:
    """The state on the host after n samples and so many steps; the device keeps its own until the state is gone."""
    memory, W = twin.returned(before), _array(twin.W)
    state = replace(before, W=W, samples=before.samples + n, clock=clock, steps=before.steps + steps, memory=memory)
    if not twin.has_moved(memory, before):
        key = id(state)
        _kept[key] = weakref.ref(state, lambda _: _kept.pop(key, None)), twin
    return state


def _array(tensor: Any) -> Any:
    """On the host, in memory of its own."""
    return tensor.cpu().numpy() if tensor.is_cuda else tensor.numpy().copy()
