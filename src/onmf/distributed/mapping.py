"""Apply a model to every sample, partition by partition, when the result is asked for."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

import dask
import dask.array
import numpy as np

from onmf._support.arrays import Array
from onmf.data import SourceError
from onmf.distributed.cluster import Sealed
from onmf.distributed.partitions import Partitions, Raw
from onmf.distributed.worker import reuse_pages
from onmf.model.validation import DataError

log = logging.getLogger("onmf")

# Applied to the rows of a partition on a worker; applied to its number, its rows and the result there.
Function = Callable[[Raw], Any]
Then = Callable[[int, Raw, Array], Any]


def lazy_array(
    partitions: Partitions, function: Function, width: int, dtype: Any, what: str, skip: bool = False
) -> Any:
    """Return a dask array of ``width`` columns: ``function`` of the rows of every partition, computed on demand."""
    empty = np.empty((0, width), dtype)
    tasks = tasks_of(partitions, function, what, skip, dtype, width=width)
    shapes = [(np.nan if length is None else length, width) for length in partitions.lengths]
    parts = [
        dask.array.from_delayed(task, shape=shape, dtype=dtype, meta=empty)
        for task, shape in zip(tasks, shapes, strict=True)
    ]
    return parts[0] if len(parts) == 1 else dask.array.concatenate(parts, axis=0)


def tasks_of(
    partitions: Partitions,
    function: Function,
    what: str,
    skip: bool = False,
    dtype: Any = None,
    then: Then | None = None,
    width: int | None = None,
) -> list[Any]:
    """Return a task per partition; ``what`` names them in the dashboard.

    With a ``dtype`` they make arrays of it, with rows of ``width`` numbers.
    """
    token = uuid.uuid4().hex[:8]
    job = Sealed((function, then, partitions.n_features, skip, dtype, width))
    shared = dask.delayed(_received, pure=False)(job, dask_key_name=f"onmf-model-{token}")
    tasks, begins = [], 0
    for number, length in enumerate(partitions.lengths):
        reader, inputs = partitions.read(number)
        part = Sealed((number, partitions.label(number), reader, begins, length))
        begins += length or 0
        key = f"onmf-{what}-{token}-{number}"
        tasks.append(dask.delayed(_applied, pure=False)(shared, part, *inputs, dask_key_name=key))
    return tasks


def _received(job: Sealed) -> Sealed:
    return job


def _applied(job: Sealed, part: Sealed, *inputs: Any) -> Any:
    """Work on one partition, whose first row has the number ``begins`` if the lengths of all are known."""
    reuse_pages()
    function, then, n_features, skip, dtype, width = job.content
    number, label, reader, begins, length = part.content
    try:
        raw = reader(*inputs, skip=skip)
        if raw.batch.shape[1] != n_features:
            raise SourceError(f"it has {raw.batch.shape[1]} features, not {n_features}.")
        found = function(raw)
    except (DataError, SourceError, OSError) as error:
        said = f"Partition {label}: {error}"
        if not skip or length is None or width is None:
            raise (DataError if isinstance(error, DataError) else SourceError)(said) from error
        log.warning("Its rows are NaN. %s", said)
        raw, found = Raw(np.arange(0), np.zeros((0, n_features)), begins), np.zeros((0, width), dtype=dtype)
    if dtype is not None:
        found = _with_unread(raw, found, length).astype(dtype, copy=False)
    return found if then is None else then(number, raw, found)


def _with_unread(raw: Raw, found: Array, length: int | None) -> Array:
    """Return rows of NaN where some could not be read, so that the others stay where they are."""
    if length is None:
        length = len(found) + sum(getattr(fault, "rows", 1) for fault in raw.faults)
    if len(found) == length or raw.rows.dtype == object:
        return found
    whole = np.full((length, found.shape[1]), np.nan, found.dtype)
    whole[raw.rows - raw.begins] = found
    return whole
