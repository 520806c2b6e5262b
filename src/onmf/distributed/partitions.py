"""What data are to many machines: partitions, each of which is read where it is learnt from."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data import Spec


class Sealed:
    """Something that is passed on as it is, and opened where it is needed.

    Dask does not look for tasks in it. Classes of the user's own, from a notebook or a file of --module, travel with
    it; a worker that lacks what it needs fails at the task, and not while it listens to the scheduler.
    """

    def __init__(self, content: Any) -> None:
        self._content: Any = content
        self._packed: tuple[bytes, list[Any]] | None = None

    @property
    def content(self) -> Any:
        """What is in it."""
        if self._packed is not None:
            payload, buffers = self._packed
            self._content, self._packed = pickle.loads(payload, buffers=buffers), None  # noqa: S301 (Dask's own way)
        return self._content

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is None:
            import cloudpickle

            buffers: list[pickle.PickleBuffer] = []
            payload = cloudpickle.dumps(self._content, protocol=5, buffer_callback=buffers.append)
            return _packed, (payload, buffers)
        payload, given = self._packed
        return _packed, (payload, [pickle.PickleBuffer(buffer) for buffer in given])

    def __sizeof__(self) -> int:
        if self._packed is None:
            return size_in_bytes(self._content)
        return sum(memoryview(buffer).nbytes for buffer in self._packed[1])


def _packed(payload: bytes, buffers: list[Any]) -> Sealed:
    sealed = Sealed(None)
    sealed._packed = payload, buffers
    return sealed


@dataclass(frozen=True)
class Raw:
    """The rows of a partition as they were read, with their numbers or names."""

    rows: npt.NDArray[Any]
    batch: Any
    begins: int = 0  # the number that the first row of the partition has, or would have if it could be read
    faults: list[ValueError] = field(default_factory=list)  # rows that could not be read


# What reads a partition, on a worker: given what the tasks that it needs have computed, and whether to leave out rows
# that cannot be read.
Reader = Callable[..., Raw]


class Partitions(ABC):
    """Samples in pieces that lie, or are to be read, wherever Dask likes; nothing is read before it is needed."""

    n_features: int
    feature_names: list[str] | None = None
    lengths: Sequence[int | None]  # the rows of each partition, where they are known
    dtype: np.dtype[Any] | None = None  # of the coefficients of its samples; None: as the dictionary's
    rewinds = True  # can they be read again?
    spec: Spec | None = None  # how the features are made, of data that were opened by their name
    index_name: str | None = None  # of the names of rows, where they have some

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def n_samples(self) -> int | None:
        """Of all partitions, if it is known."""
        known = [length for length in self.lengths if length is not None]
        return sum(known) if len(known) == len(self.lengths) else None

    def label(self, number: int) -> str:
        """The partition in messages: its number, and its file if it is one."""
        return str(number)

    @abstractmethod
    def read(self, number: int) -> tuple[Reader, tuple[Any, ...]]:
        """How a worker reads a partition: what it calls, and the ``Delayed`` objects whose values it is given."""


def size_in_bytes(content: Any) -> int:
    """Of the arrays in it, as far as they lie near: by this Dask decides what to move."""
    if isinstance(content, np.ndarray):
        return content.nbytes
    if isinstance(content, dict):
        return sum(map(size_in_bytes, content.values()))
    if isinstance(content, (list, tuple)):
        return sum(map(size_in_bytes, content))
    inside = getattr(content, "__dict__", None)
    return 64 + (size_in_bytes(inside) if inside else 0)
