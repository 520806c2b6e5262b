"""The paper's Algorithm 1: for every chunk of samples, coefficients first, then one step of the dictionary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support.arrays import Array, row_sums
from onmf._support.known import Known
from onmf.coefficients.problem import pose
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.learner import exchange
from onmf.methods import Method, State
from onmf.methods.reservoir import NEW_SHARE, Reservoir
from onmf.model.sets import Box, Simplex
from onmf.model.units import DataError


@dataclass(frozen=True)
class BatchResult:
    """What one batch did: the new state, and the mean loss of its samples *before* they changed W."""

    state: State
    divergence: Divergence  # as it was, or adapted to the residuals
    loss: float
    first_loss: float  # of the first chunk alone: no sample of the batch had changed W yet
    H: Any  # the coefficients of its samples, each found with the W of its time: an array, or a tensor on a device


def learn(
    method: Method,
    divergence: Divergence,
    state: State,
    X: Any,
    *,
    box: Box | Simplex,
    reservoir: Reservoir | None = None,
    adapt: bool = False,
    repeated: bool = False,
    exchanges: bool = False,
    weights: Array | None = None,
) -> BatchResult:
    """Learn from the batch X (n, F) in internal units, cut into chunks of the method's sizes.

    With ``adapt``, a divergence with a parameter left to the data lets it follow the residuals. ``repeated`` says that
    an earlier pass has had these samples. With ``exchanges``, atoms may be exchanged: not on a shard, as all
    shards have their atoms in common. ``weights`` are those of the samples, if they differ.
    """
    losses: list[float] = []
    coefficients = np.zeros((X.shape[0], len(state.W)), dtype=state.W.dtype)
    n, rows = len(coefficients), np.arange(len(coefficients))
    shares = isinstance(box, Simplex)
    if method.skips_empty and not shares:  # of shares, zeros say that there is an atom of them
        rows = np.flatnonzero((X.sum(axis=1) if isinstance(X, Known) else row_sums(X)) != 0)
        X = X if len(rows) == n else X[rows]
    total = n if weights is None else float(weights.sum(dtype=np.float64))
    weights = None if weights is None else weights[rows].astype(state.W.dtype, copy=False)
    state = state.copy(method.layout)
    kept = {name: state.memory[name] for name in (reservoir.start(state.W) if reservoir else ())}
    usual, penalty = method.coefficients(divergence).within(box), method.penalty(state.penalties)
    share = NEW_SHARE if reservoir else 1
    exchanges = exchanges and not repeated and method.exchanges(divergence) > 0  # samples once learnt from cannot judge
    exchanges = exchanges and not shares  # an atom scaled to what two of them carry takes shares off the simplex
    first, first_size = 0, 0.0
    while first < X.shape[0]:
        left = X.shape[0] - first
        size = max(1, min(left, method.chunk(state.clock, share * left) // share))
        first_size = first_size or (size if weights is None else float(weights[:size].sum()))
        new = X[first : first + size]
        count = None if weights is None else weights[first : first + size]
        if exchanges and exchange.due(len(state.W), state.clock, state.clock + share * size, method.horizon):
            some = X[first : first + -(-exchange.taking_part(len(state.W)) // share)]
            some = reservoir.mixed(kept, some) if reservoir else some
            counts = None if weights is None else weights[first : first + some.shape[0]]
            state = exchange.exchanged(method, divergence, state, some, box, counts)
        V = reservoir.mixed(kept, new) if reservoir else new
        before, H = state, None
        effort = method.effort(state.clock) * (method.penalised_effort if state.penalties else 1)
        solver = usual if effort == 1 else usual.stopping(usual.tol, effort * usual.max_iter)
        for visit in range(method.visits(state.clock)):
            problem = pose(divergence, V, state.W, box, penalty, count)
            H = solver.solve(problem, H).H
            statistics = replace(method.local(problem, H), new=0 if repeated else new.shape[0])
            if adapt:
                weight = method.weight(divergence, state.clock + problem.weight, problem.weight)
                divergence = divergence.adapted(V, problem.fit(H), weight, *(() if count is None else (count,)))
            state = method.apply(divergence, before, statistics)
            if visit == 0:
                if count is None:
                    losses.append(float(statistics.losses[: new.shape[0]].sum(dtype=np.float64)))
                else:
                    losses.append(float(count @ statistics.losses.astype(np.float64)))
        if H is not None:
            coefficients[rows[first : first + size]] = H[: new.shape[0]]
        if reservoir:
            reservoir.keep(kept, new)
        first += size
    # One layout in memory, whatever the method prefers: a model read from a file then continues to the bit.
    state = replace(state, W=np.ascontiguousarray(state.W), memory=state.memory | kept)
    first_loss = losses[0] / first_size if losses else 0.0
    return BatchResult(state, divergence, sum(losses) / (total or 1.0), first_loss, coefficients)


def require_finite(result: BatchResult, rows: Any, unit: float) -> None:
    """Refuse to continue with a dictionary that is no longer made of numbers, or a loss that is not one.

    ``unit`` is that of the loss: what is finite inside may be beyond the range of numbers in the data's units.
    """
    state = result.state
    if not all(np.isfinite(array.sum(dtype=np.float64)) for array in (state.W, *state.memory.values())):
        raise unlearnable("makes the dictionary infinite or NaN", rows)
    if result.loss and not np.isfinite(result.loss * unit):
        raise unlearnable("has a loss beyond the range of numbers", rows)


def unlearnable(why: str, rows: Any) -> DataError:
    """What to raise of a batch that cannot be learnt from; ``rows`` are the numbers of its samples."""
    where = "" if rows is None or not len(rows) else f", rows {min(rows)} to {max(rows)},"
    if where and rows.dtype == object:  # names have no order
        where = f", rows {rows[0]} to {rows[-1]},"
    return DataError(
        f"The batch{where} {why}, so it is not learnt from: its numbers are too large or too unequal for this "
        "divergence; rescale or clip them."
    )


def rank_one_loss(divergence: Divergence, X: Any) -> float:
    """The mean loss of fits that are all multiples of the mean sample: what any dictionary should beat.

    It is at least a millionth of that of fits twice too large: what is below is rounding.
    """
    profile = np.asarray(X.mean(axis=0)).reshape(1, -1) + 1e-6 * X.mean()
    problem = pose(divergence, X, (profile / profile.sum()).astype(X.dtype))
    H = problem.start() if isinstance(X, Known) else row_sums(X)[:, None] + TINY
    return max(float(problem.loss(H, problem.fit(H)).mean()), 1e-6 * float(problem.scale.mean()))
