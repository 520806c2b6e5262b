"""Precise coefficients on a device, block by block of samples."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from onmf.device.problem import DeviceProblem, precise
from onmf.device.samples import Chunks
from onmf.device.transfer import moved, to_device
from onmf.divergences import Divergence
from onmf.model.penalty import Penalty
from onmf.model.sets import Box
from onmf.model.units import Units

log = logging.getLogger("onmf")

BLOCK = 8192  # samples solved side by side
MOST_ENTRIES = 2**27


@dataclass(frozen=True)
class SolvedBlock:
    """What was found for a block of samples: coefficients H (n, K) and losses."""

    rows: slice
    H: Any
    losses: Any
    unsolved: int  # samples that have not converged
    raised: int  # entries outside the domain


@dataclass(frozen=True)
class DeviceSolver:
    """What the coefficients of samples are found by."""

    W: Any  # (K, F)
    divergence: Divergence  # in the data's units
    inside: Divergence  # in internal ones
    units: Units
    box: Box
    penalty: Penalty
    tol: float
    max_iter: int

    def solved(self, X: Any, device: str) -> Iterator[SolvedBlock]:
        """Yield precise coefficients of samples or of a tensor, block by block."""
        K, F = self.W.shape
        size = max(1, min(BLOCK, MOST_ENTRIES // max(F, K * K)))
        W = to_device(self.W, device)
        first, scarce = 0, False
        while first < X.shape[0]:
            rows = slice(first, min(first + size, X.shape[0]))
            try:
                found = self._block(X[rows], rows, W)
            except torch.cuda.OutOfMemoryError:
                if scarce:
                    raise MemoryError(
                        f"the memory of {device} is full; free some of it, or leave device out to compute on the "
                        "processor."
                    ) from None
                size, scarce = max(1, size // 8), True
                torch.cuda.empty_cache()
                log.warning("The memory of %s is full; continuing with an eighth of the samples at a time.", device)
                continue
            yield found
            first = rows.stop

    def _block(self, X: Any, rows: slice, W: Any) -> SolvedBlock:
        there = moved(X, W.device, W.dtype)
        chunks = Chunks(there, torch.arange(there.shape[0], device=there.device), self.units, self.divergence, W.dtype)
        V, present = chunks[:]
        problem = DeviceProblem(self.inside, V, W, self.box, self.penalty, present)
        H, converged = precise(problem, self.tol, self.max_iter)
        losses = problem.losses(problem.fit(H))
        return SolvedBlock(rows, H, losses, int((~converged).sum()), int(chunks.raised))
