"""Transfer of data to a device: all at once, to stay there, or batch by batch, during the learning from the last."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from onmf import data
from onmf._support.arrays import Counts, is_tensor
from onmf._support.device_rows import Resident
from onmf.device.samples import DeviceBatch, DeviceRows
from onmf.divergences import Divergence
from onmf.model.units import Units
from onmf.model.validation import require_sound_structure
from onmf.samples import Samples, canonical

STAGE = 2**26  # bytes of pinned memory through which arrays go to a GPU, twice
ROOM = 0.5  # of a GPU's free memory that data may take to stay there

Cut = tuple[Any, Any, Counts]


def moved(batch: Any, device: Any, dtype: Any = None) -> DeviceRows:
    """Send samples, an array, a sparse matrix or a tensor to a device."""
    if is_tensor(batch):
        values = batch.detach().to(device, dtype or (batch.dtype if batch.dtype == torch.float64 else torch.float32))
        return DeviceRows(values, tuple(values.shape))
    batch = batch if isinstance(batch, Samples) else Samples(batch)
    if batch.omits_zeros:
        require_sound_structure(batch.matrix)  # a GPU would follow wrong indices into foreign memory, or stop for good
        X = canonical(batch.matrix)
        values, starts, columns = (to_device(part, device) for part in (X.data, X.indptr, X.indices))
        values = values if dtype is None else values.to(dtype)
        longest = int(np.diff(X.indptr).max(initial=0))
        return DeviceRows(values, X.shape, starts=starts.long(), columns=columns, longest=longest)
    whole = batch.densified()
    present = to_device(whole.entry_weights, device, dtype) if whole.masked else None
    return DeviceRows(to_device(whole.matrix, device, dtype), whole.shape, present)


def to_device(X: Any, device: Any, dtype: Any = None) -> Any:
    """Return an array as a tensor there; a large one goes through pinned memory, part by part."""
    given = torch.from_numpy(np.ascontiguousarray(X if X.flags.writeable else X.copy()))
    device = torch.device(device)
    if device.type != "cuda" or given.nbytes <= STAGE:
        return given.to(device, dtype or given.dtype)
    there = torch.empty(given.shape, dtype=given.dtype, device=device)
    rows = max(1, STAGE // max(1, given[0].nbytes))
    stages = [torch.empty((rows, *given.shape[1:]), dtype=given.dtype, pin_memory=True) for _ in range(2)]
    sent = [torch.cuda.Event() for _ in range(2)]
    for number, first in enumerate(range(0, len(given), rows)):
        stage, event = stages[number % 2], sent[number % 2]
        event.synchronize()
        part = given[first : first + rows]
        stage[: len(part)].copy_(part)
        there[first : first + len(part)].copy_(stage[: len(part)], non_blocking=True)
        event.record(torch.cuda.current_stream(device))
    torch.cuda.current_stream(device).synchronize()
    return there if dtype is None else there.to(dtype)


def fits(X: Any, device: str) -> bool:
    """Return whether an array or sparse matrix can stay on the device while it is learnt from."""
    if torch.device(device).type != "cuda":
        return True
    size = X.data.nbytes * (6 if Samples(X).sparse else 1)
    return bool(size <= ROOM * torch.cuda.mem_get_info(device)[0])


def as_batch(batch: Samples, device: str, units: Units, divergence: Divergence, dtype: np.dtype[Any]) -> DeviceBatch:
    """Return a batch on the device, where its chunks have this type; ``divergence`` is in the data's units."""
    there = batch.matrix
    if isinstance(there, Resident):
        rows, numbers = there.data, torch.as_tensor(there.rows, device=there.data.device)
    else:
        rows = moved(batch, device)
        numbers = torch.arange(rows.shape[0], device=rows.device)
    return DeviceBatch(rows, numbers, units, divergence, getattr(torch, dtype.name))


class DeviceSource(data.Rows):
    """A source whose rows are on a device: a batch holds only the numbers of its rows."""

    resident = True

    def __init__(self, there: DeviceRows, dtype: Any) -> None:
        self.X, self.dtype = there, np.dtype(dtype)
        self.n_samples, self.n_features = there.shape

    def _read(self, rows: Any) -> Resident:
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        return Resident(self.X, numbers, self.dtype)


def sent_ahead(batches: Iterator[Cut], device: str) -> Generator[Cut, None, None]:
    """Yield the batches on the device, each read and sent by another thread while the one before it is learnt from."""
    stream = torch.cuda.Stream(device) if torch.device(device).type == "cuda" else None  # its copies overlap with work

    def following() -> Cut | None:
        with torch.cuda.stream(stream) if stream is not None else nullcontext():
            for rows, batch, place in batches:
                sent = _sent(batch, device)
                if stream is not None:
                    stream.synchronize()
                return rows, sent, place
        return None

    with ThreadPoolExecutor(1, "onmf-ahead") as reader:
        ahead = reader.submit(following)
        while (item := ahead.result()) is not None:
            ahead = reader.submit(following)
            _claim(item[1])
            yield item


def _sent(batch: Samples, device: str) -> Samples:
    """Send a batch to the device; one with weights, which needs more preparation, goes there when it is learnt from."""
    if batch.masked or batch.sample_weight is not None or isinstance(batch.matrix, Resident):
        return batch
    there = replace(moved(batch, device), given=batch.matrix)
    return Samples(Resident(there, np.arange(len(batch)), batch.dtype))


def _claim(batch: Samples) -> None:
    """Tell the allocator that the tensors are in use by this thread, too."""
    if isinstance(batch.matrix, Resident):
        there = batch.matrix.data
        for tensor in (there.values, there.starts, there.columns):
            if tensor is not None and tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
