"""Precise coefficients on a device, block by block."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from onmf.device.problem import Problem, precise
from onmf.device.samples import Chunks, moved, to_device
from onmf.divergences import Divergence
from onmf.problem import Penalty
from onmf.sets import Box
from onmf.units import Units

log = logging.getLogger("onmf")

BLOCK = 8192  # samples solved side by side
MOST_ENTRIES = 2**27


@dataclass(frozen=True)
class Solved:
    """Of a block of samples: H (n, K), their losses and whether they have converged."""

    rows: slice
    H: Any
    losses: Any
    unsolved: int
    raised: int


def solved(
    X: Any,
    W: Any,
    divergences: tuple[Divergence, Divergence],
    units: Units,
    box: Box,
    penalty: Penalty,
    stop: tuple[float, int],
    device: str,
) -> Iterator[Solved]:
    """The coefficients of X, an array, sparse matrix, ``Known`` samples or a tensor, in the dictionary W.

    ``divergences`` are those in the data's units and in internal ones; ``stop`` is the tolerance, and how many
    iterations there are at most.
    """
    K, F = W.shape
    size = max(1, min(BLOCK, MOST_ENTRIES // max(F, K * K)))
    dictionary = to_device(W, device)
    first, scarce = 0, False
    while first < X.shape[0]:
        rows = slice(first, min(first + size, X.shape[0]))
        try:
            found = _block(X[rows], dictionary, divergences, units, box, penalty, stop)
        except torch.cuda.OutOfMemoryError:
            if scarce:
                raise MemoryError(
                    f"the memory of {device} is full; free some of it, or leave device out to compute on the processor."
                ) from None
            size, scarce = max(1, size // 8), True
            torch.cuda.empty_cache()
            log.warning("The memory of %s is full; going on with an eighth of the samples at a time.", device)
            continue
        yield Solved(rows, *found)
        first = rows.stop


def _block(
    X: Any,
    W: Any,
    divergences: tuple[Divergence, Divergence],
    units: Units,
    box: Box,
    penalty: Penalty,
    stop: tuple[float, int],
) -> tuple[Any, Any, int, int]:
    there = moved(X, W.device, W.dtype)
    chunks = Chunks(there, torch.arange(there.shape[0], device=there.device), units, divergences[0], W.dtype)
    V, present = chunks[:]
    problem = Problem(divergences[1], V, W, box, penalty, present)
    H, converged = precise(problem, *stop)
    return H, problem.losses(problem.fit(H)), int((~converged).sum()), int(chunks.raised)
