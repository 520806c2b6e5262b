"""What a model makes of every sample, partition by partition, when it is asked for."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask
import dask.array
import numpy as np

from onmf._support.arrays import Array
from onmf.data import SourceError
from onmf.distributed.allocation import reuse_pages
from onmf.distributed.partitions import Partitions, Raw, Reader, Sealed
from onmf.model.validation import DataError

log = logging.getLogger("onmf")

# What is applied to the rows of a partition on a worker; what becomes of the result there, told the partition's number.
Function = Callable[[Raw], Any]
Then = Callable[[int, Raw, Array], Any]


def mapped(partitions: Partitions, function: Function, width: int, dtype: Any, what: str, skip: bool = False) -> Any:
    """A dask array of ``width`` columns: ``function`` of the rows of every partition, computed on demand."""
    empty = np.empty((0, width), dtype)
    parts = []
    tasks = each(partitions, function, what, skip, dtype, width=width)
    for task, length in zip(tasks, partitions.lengths, strict=True):
        shape = np.nan if length is None else length, width
        parts.append(dask.array.from_delayed(task, shape=shape, dtype=dtype, meta=empty))
    return parts[0] if len(parts) == 1 else dask.array.concatenate(parts, axis=0)


def each(
    partitions: Partitions,
    function: Function,
    what: str,
    skip: bool = False,
    dtype: Any = None,
    then: Then | None = None,
    width: int | None = None,
) -> list[Any]:
    """A task per partition; ``what`` names them in the dashboard. With a ``dtype``, the results are arrays of it."""
    token = uuid.uuid4().hex[:8]
    shared = dask.delayed(_itself, pure=False)(Sealed((function, then)), dask_key_name=f"onmf-model-{token}")
    tasks = []
    begins = 0
    for number, length in enumerate(partitions.lengths):
        reader, inputs = partitions.read(number)
        label = partitions.label(number)
        call = Sealed(_Call(number, label, reader, partitions.n_features, begins, length, skip, dtype, width))
        begins += length or 0
        key = f"onmf-{what}-{token}-{number}"
        tasks.append(dask.delayed(_applied, pure=False)(call, shared, *inputs, dask_key_name=key))
    return tasks


@dataclass(frozen=True)
class _Call:
    """What a task knows of its partition."""

    number: int
    label: str
    reader: Reader
    n_features: int
    begins: int  # the number of its first row, where that is known
    length: int | None
    skip: bool
    dtype: Any
    width: int | None  # of a row of what is made of it, if it is one

    def __call__(self, function: Function, then: Then | None, inputs: tuple[Any, ...]) -> Any:
        try:
            raw: Raw = self.reader(*inputs, skip=self.skip)
            if raw.batch.shape[1] != self.n_features:
                raise SourceError(f"it has {raw.batch.shape[1]} features, not {self.n_features}.")
            found = function(raw)
        except (DataError, SourceError, OSError) as error:
            said = f"Partition {self.label}: {error}"
            if not self.skip or self.length is None or self.width is None:
                raise (DataError if isinstance(error, DataError) else SourceError)(said) from error
            log.warning("Its rows are NaN. %s", said)
            raw = Raw(np.arange(0), np.zeros((0, self.n_features)), self.begins)
            found = np.zeros((0, self.width), dtype=self.dtype)
        if self.dtype is not None:
            found = self._whole(raw, found).astype(self.dtype, copy=False)
        return found if then is None else then(self.number, raw, found)

    def _whole(self, raw: Raw, found: Array) -> Array:
        """Rows of NaN where some could not be read, so that the others stay where they are."""
        length = self.length
        if length is None:
            length = len(found) + sum(getattr(fault, "rows", 1) for fault in raw.faults)
        if len(found) == length or raw.rows.dtype == object:
            return found
        whole = np.full((length, found.shape[1]), np.nan, found.dtype)
        whole[raw.rows - raw.begins] = found
        return whole


def _itself(sealed: Sealed) -> Sealed:
    return sealed


def _applied(call: Sealed, shared: Sealed, *inputs: Any) -> Any:
    reuse_pages()
    return call.content(*shared.content, inputs)
