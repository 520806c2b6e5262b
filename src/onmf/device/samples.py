"""Samples on a device: dense or compressed rows, checked once, handed out chunk by chunk in internal units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
import torch

from onmf._support.device_rows import Resident
from onmf.device.entries import Entries
from onmf.divergences import Divergence
from onmf.model.units import FLOOR, Units
from onmf.model.validation import refuse_broken_structure
from onmf.samples import Samples

STAGE = 2**26  # bytes of pinned memory through which arrays go to a GPU, twice
ROOM = 0.5  # of a GPU's free memory that data may take to stay there


@dataclass(frozen=True, eq=False)
class Rows:
    """Samples (n, F) on a device: a dense tensor, perhaps with weights of its entries, or compressed rows."""

    values: Any  # (n, F), or those that are stored
    shape: tuple[int, int]
    present: Any = None
    starts: Any = None  # of compressed rows: (n + 1,)
    columns: Any = None
    longest: int = 0  # entries of one of them
    given: Any = None  # what they were on the host, if that is still there

    @property
    def device(self) -> Any:
        return self.values.device

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """The least and the largest entry."""
        low, high = torch.stack(torch.aminmax(self.values)).tolist() if self.values.numel() else (0.0, 0.0)
        return low, high

    @property
    def sound(self) -> bool:
        """Are there no NaN, infinite or negative entries?"""
        low, high = self._extremes
        return low >= 0 and high < math.inf

    @cached_property
    def zeros(self) -> bool:
        """Has it entries that are zero, among those that count?"""
        if self.present is not None:
            return bool(((self.values == 0) & (self.present > 0)).any())
        return self.values.numel() < self.shape[0] * self.shape[1] or self._extremes[0] == 0

    @cached_property
    def empty(self) -> Any:
        """Which samples have no entry above zero."""
        if self.starts is None and self.present is None and not self.zeros:
            return torch.zeros(self.shape[0], dtype=torch.bool, device=self.device)
        if self.starts is None:
            return (self.values if self.present is None else self.values * self.present).amax(dim=1) <= 0
        counts = torch.zeros(self.shape[0], dtype=torch.int64, device=self.device)
        return counts.index_add_(0, self._row_of_each(), (self.values > 0).to(torch.int64)) == 0

    def _row_of_each(self) -> Any:
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), torch.diff(self.starts))

    def take(self, rows: Any) -> tuple[Any, Any]:
        """Some of them, dense, and the weights of their entries."""
        if self.starts is None:
            return self.values[rows], None if self.present is None else self.present[rows]
        first = self.starts[:-1][rows]
        lengths = self.starts[1:][rows] - first
        # As many places per row as the longest has: how many entries these rows have, nobody has to wait for.
        place = torch.arange(self.longest, device=self.device)
        stored = place < lengths[:, None]
        place = torch.clamp(first[:, None] + place, max=max(len(self.values) - 1, 0))
        X = torch.zeros((len(first), self.shape[1]), dtype=self.values.dtype, device=self.device)
        if self.longest:  # what is added beyond the end of a row is zero
            X.scatter_add_(1, self.columns[place].long() * stored, self.values[place] * stored)
        return X, None

    def entries(self, rows: Any) -> Entries:
        """Some of them, compressed."""
        if self.starts is None:
            return Entries.of_dense(self.values[rows])
        return Entries.of_rows(self.values, self.columns, self.starts, rows, self.shape)

    def host(self, rows: Any) -> Any:
        """Some of them as NumPy or SciPy has them."""
        if self.given is not None:
            return self.given[rows]
        if self.starts is None:
            return self.values[torch.as_tensor(rows, device=self.device)].cpu().numpy()
        parts = (self.values, self.columns, self.starts)
        X = scipy.sparse.csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=self.shape)
        return X[rows]


def moved(batch: Any, device: Any, dtype: Any = None) -> Rows:
    """A batch of the learner's on a device: samples, an array, a sparse matrix, or a tensor."""
    if isinstance(batch, torch.Tensor):
        values = batch.detach().to(device, dtype or (batch.dtype if batch.dtype == torch.float64 else torch.float32))
        return Rows(values, (values.shape[0], values.shape[1]))
    if isinstance(batch, Samples) and batch.masked:
        whole = batch.densified()
        values, present = (to_device(part, device, dtype) for part in (whole.matrix, whole.entry_weights))
        return Rows(values, whole.shape, present)
    batch = batch.matrix if isinstance(batch, Samples) else batch
    if scipy.sparse.issparse(batch):
        refuse_broken_structure(batch)  # a GPU would follow wrong indices into foreign memory, or stop for good
        X = batch.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        values, starts, columns = (to_device(part, device) for part in (X.data, X.indptr, X.indices))
        values = values if dtype is None else values.to(dtype)
        longest = int(np.diff(X.indptr).max(initial=0))
        return Rows(values, X.shape, starts=starts.long(), columns=columns, longest=longest)
    values = to_device(batch, device, dtype)
    return Rows(values, (values.shape[0], values.shape[1]))


def to_device(X: Any, device: Any, dtype: Any = None) -> Any:
    """An array as a tensor there; what is large goes through pinned memory, copied while the last part is sent."""
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
    """Can an array or sparse matrix stay on the device while it is learnt from?"""
    if torch.device(device).type != "cuda":
        return True
    size = X.data.nbytes * 6 if scipy.sparse.issparse(X) else X.nbytes
    return bool(size <= ROOM * torch.cuda.mem_get_info(device)[0])


@dataclass
class Chunks:
    """The samples of a batch that are learnt from, in internal units."""

    rows: Rows
    numbers: Any  # which of the rows, in which order: a tensor
    units: Units
    divergence: Divergence  # in the data's units
    dtype: Any
    raised: Any = 0  # entries outside the domain so far

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> tuple[Any, Any]:
        """Samples and the weights of their entries."""
        X, present = self.rows.take(self.numbers[part])
        X, raised = inside(X.to(self.dtype), present, self.units, self.divergence)
        self.raised = self.raised + raised
        return X, None if present is None else present.to(self.dtype)

    def entries(self, part: slice) -> Entries:
        """Samples by their entries above zero, for divergences whose data may contain zeros."""
        if self.units.clip is not None and self.units.clip[0] > 0:  # nothing is zero then
            return Entries.of_dense(self[part][0])
        found = self.rows.entries(self.numbers[part])
        values, _ = inside(found.values.to(self.dtype)[:, None], None, self.units, self.divergence)
        return replace(found, values=values[:, 0])


def inside(X: Any, present: Any, units: Units, divergence: Divergence) -> tuple[Any, Any]:
    """``Units.inside`` of dense samples: clipped, in internal units, and raised into the divergence's domain."""
    if units.clip is not None:
        X = torch.clamp(X, *(min(bound, torch.finfo(X.dtype).max) for bound in units.clip))
    X = X / units.scale
    if divergence.domain.x.closed:
        return X, 0
    if present is None:
        mean = X.mean(dim=1, keepdim=True, dtype=torch.float64)
    else:
        weight = present.sum(dim=1, keepdim=True)
        mean = ((X * present).sum(dim=1, keepdim=True) / (weight + (weight <= 0))).to(torch.float64)
    least = (FLOOR * torch.clamp(mean, min=units.mean / units.scale)).to(X.dtype)
    short = least > X if present is None else (least > X) & (present > 0)
    return torch.maximum(X, least), short.sum()


def chosen(batch: Samples, device: str) -> tuple[Rows, Any]:
    """A batch on the device, and the numbers of its rows there."""
    there = batch.matrix
    if isinstance(there, Resident):
        return there.data, torch.as_tensor(there.rows, device=there.data.device)
    rows = moved(batch, device)
    return rows, torch.arange(rows.shape[0], device=rows.device)
