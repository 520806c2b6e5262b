"""Batch updates, one after the other, until the objective has nearly stopped falling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.methods.batch.updates import Updates

PATIENCE = 10  # iterations over which the loss has to fall


@dataclass(frozen=True)
class Iterate:
    """The state after an iteration; the loss is summed over the samples."""

    number: int
    H: Array
    W: Array
    loss: float
    converged: bool  # has the objective, the loss with the penalties, nearly stopped falling?


def factorise(updates: Updates, H: Array, W: Array, max_iter: int, tol: float, fixed: int = 0) -> Iterator[Iterate]:
    """The states from the start (number 0) to the last, which has converged or is number ``max_iter``.

    The first ``fixed`` atoms stay: the majorant is a sum over weights, so that the others' steps are what they were.
    Converged means that the objective has fallen by less than ``tol`` of itself over ten iterations.
    """
    objectives: list[float] = []
    updates.fixed = fixed
    for number in range(max_iter + 1):
        learning = fixed < len(W) and number < max_iter  # the last one is for the loss alone
        loss, *after = updates.iterate(H, W, learning)
        objectives.append(updates.objective(loss, H, W))
        ten_ago = objectives[-1 - PATIENCE] if len(objectives) > PATIENCE else np.inf
        converged = tol > 0 and ten_ago - objectives[-1] <= tol * ten_ago < np.inf
        yield Iterate(number, H, W, loss, converged)
        if converged:
            return
        known = W[:fixed]
        H, W = after
        if learning:
            W[:fixed] = known
