"""Samples on a device: dense or compressed rows, checked once, handed out chunk by chunk in internal units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import scipy
import torch

from onmf._support.arrays import some_of, times
from onmf._support.threads import cached_property
from onmf.device.entries import Entries
from onmf.divergences import Divergence
from onmf.model.units import FLOOR, Units


@dataclass(frozen=True, eq=False)
class DeviceRows:
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

    @property
    def sparse(self) -> bool:
        """Are the rows compressed?"""
        return self.starts is not None

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
    def empty(self) -> Any:
        """The samples without an entry above zero, as a mask."""
        if not self.sparse and self.present is None and self._extremes[0] > 0:
            return torch.zeros(self.shape[0], dtype=torch.bool, device=self.device)
        if not self.sparse:
            return times(self.values, self.present).amax(dim=1) <= 0
        counts = torch.zeros(self.shape[0], dtype=torch.int64, device=self.device)
        rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), torch.diff(self.starts))
        return counts.index_add_(0, rows, (self.values > 0).to(torch.int64)) == 0

    def take(self, rows: Any) -> tuple[Any, Any]:
        """Return some of the samples, dense, and the weights of their entries."""
        if not self.sparse:
            return self.values[rows], some_of(self.present, rows)
        first = self.starts[:-1][rows]
        lengths = self.starts[1:][rows] - first
        # As many places per row as the longest has: the host need not wait for the number of entries of these rows.
        place = torch.arange(self.longest, device=self.device)
        stored = place < lengths[:, None]
        place = torch.clamp(first[:, None] + place, max=max(len(self.values) - 1, 0))
        X = torch.zeros((len(first), self.shape[1]), dtype=self.values.dtype, device=self.device)
        if self.longest:  # what is added beyond the end of a row is zero
            X.scatter_add_(1, self.columns[place].long() * stored, self.values[place] * stored)
        return X, None

    def entries(self, rows: Any) -> Entries:
        """Return some of the samples, compressed."""
        if not self.sparse:
            return Entries.of_dense(self.values[rows])
        return Entries.of_rows(self.values, self.columns, self.starts, rows, self.shape)

    def host(self, rows: Any) -> Any:
        """Return some of the samples as an array or a sparse matrix."""
        if self.given is not None:
            return self.given[rows]
        if not self.sparse:
            return self.values[torch.as_tensor(rows, device=self.device)].cpu().numpy()
        parts = (self.values, self.columns, self.starts)
        X = scipy.sparse.csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=self.shape)
        return X[rows]


@dataclass
class DeviceBatch:
    """The samples of a batch that are learnt from, in internal units."""

    rows: DeviceRows
    numbers: Any  # which of the rows, in which order: a tensor
    units: Units
    divergence: Divergence  # in the data's units
    dtype: Any
    raised: Any = 0  # entries outside the domain so far

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> tuple[Any, Any]:
        """Return samples and the weights of their entries, and count what is raised."""
        X, present = self.rows.take(self.numbers[part])
        X, raised = inside(X.to(self.dtype), present, self.units, self.divergence)
        self.raised = self.raised + raised
        return X, None if present is None else present.to(self.dtype)

    def uncounted(self, part: slice) -> tuple[Any, Any]:
        """Return samples that are counted when they are learnt from, and the weights of their entries."""
        return replace(self)[part]

    @property
    def filled(self) -> Any:
        """The places of the samples that are not empty."""
        return torch.nonzero(~self.rows.empty[self.numbers])[:, 0]

    def entries(self, part: slice) -> Entries:
        """Return samples by their entries above zero, for divergences whose data may contain zeros."""
        if self.units.clip is not None and self.units.clip[0] > 0:  # nothing is zero then
            return Entries.of_dense(self[part][0])
        found = self.rows.entries(self.numbers[part])
        values, _ = inside(found.values.to(self.dtype)[:, None], None, self.units, self.divergence)
        return replace(found, values=values[:, 0])


def inside(X: Any, present: Any, units: Units, divergence: Divergence) -> tuple[Any, Any]:
    """Return dense samples as ``Units.inside`` does: clipped, in internal units, raised into the domain."""
    if units.clip is not None:
        X = torch.clamp(X, *(min(bound, torch.finfo(X.dtype).max) for bound in units.clip))
    X = X / units.scale
    if divergence.domain.x.includes_zero:
        return X, 0
    if present is None:
        mean = X.mean(dim=1, keepdim=True, dtype=torch.float64)
    else:
        weight = present.sum(dim=1, keepdim=True)
        mean = ((X * present).sum(dim=1, keepdim=True) / (weight + (weight <= 0))).to(torch.float64)
    least = (FLOOR * torch.clamp(mean, min=units.mean / units.scale)).to(X.dtype)
    short = least > X if present is None else (least > X) & (present > 0)
    return torch.maximum(X, least), short.sum()
