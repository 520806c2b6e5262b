"""The paper's Algorithm 1: for every mini-batch, coefficients first, then one step of the dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients import CoefficientSolver
from onmf.coefficients.base import TINY, row_sums
from onmf.dictionary import DictionaryUpdate, State
from onmf.divergences import Divergence
from onmf.problem import fits
from onmf.reservoir import NEW_SHARE, Reservoir
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class Method:
    """A way to learn: a coefficient solver and a dictionary update, nothing more."""

    coefficients: CoefficientSolver  # while learning
    dictionary: DictionaryUpdate
    precise: CoefficientSolver  # for ``transform`` and its like
    reservoir: Reservoir | None = None  # old samples to mix with the new ones

    def start(self, W: Array) -> State:
        """The state before the first sample."""
        state = self.dictionary.start(W)
        return replace(state, memory=state.memory | self.reservoir.start(W)) if self.reservoir else state


@dataclass(frozen=True)
class Learnt:
    """What one batch did: the new state, and the mean loss of its samples *before* they changed W."""

    state: State
    divergence: Divergence  # as it was, or adapted to the residuals
    loss: float
    first_loss: float  # of the first chunk alone: no sample of the batch had changed W yet
    H: Array  # the coefficients of its samples, each found with the W of its time


def learn(
    method: Method, divergence: Divergence, state: State, X: Any, adapt: bool = False, repeated: bool = False
) -> Learnt:
    """Learn from the batch X (n, F), cut into chunks of the dictionary update's size; the last may be short.

    With ``adapt``, a divergence with a parameter left to the data lets it follow the residuals. ``repeated`` says that
    an earlier pass has had these samples. Updates that average leave out samples of zeros: they say nothing of W, and
    averages made of them alone, at the start of a stream or after a long silence, would say that W is zero.
    """
    update, reservoir = method.dictionary, method.reservoir
    losses: list[float] = []
    coefficients = np.zeros((X.shape[0], len(state.W)), dtype=state.W.dtype)
    n, rows = len(coefficients), np.arange(len(coefficients))
    if update.skips_empty:
        rows = np.flatnonzero(row_sums(X) != 0)
        X = X if len(rows) == n else X[rows]
    state = state.copy(update.layout)
    kept = {name: state.memory[name] for name in (reservoir.start(state.W) if reservoir else ())}
    fresh = max(1, update.chunk // NEW_SHARE) if reservoir else update.chunk
    for first in range(0, X.shape[0], fresh):
        new = X[first : first + fresh]
        V = reservoir.mixed(kept, new) if reservoir else new
        before, H = state, None
        effort, solver = update.effort(state.samples), method.coefficients
        if effort > 1:
            solver = solver.precise(solver.tol, effort * solver.max_iter)
        for visit in range(update.visits(state.samples)):
            H = solver.solve(divergence, V, state.W, H).H
            statistics = replace(update.local(divergence, V, H, state.W), new=0 if repeated else new.shape[0])
            if adapt:
                weight = update.averaging(state.samples + V.shape[0], V.shape[0], update.chunk)
                divergence = divergence.adapted(V, H @ state.W, weight)
            state = update.apply(before, statistics)
            if visit == 0:
                losses.append(statistics.loss * new.shape[0] / V.shape[0])
        if H is not None:
            coefficients[rows[first : first + fresh]] = H[: new.shape[0]]
        if reservoir:
            reservoir.keep(kept, new)
    # One layout in memory, whatever the update prefers: a model read from a file then goes on to the bit.
    state = replace(state, W=np.ascontiguousarray(state.W), memory=state.memory | kept)
    first_loss = losses[0] / min(fresh, X.shape[0]) if losses else 0.0
    return Learnt(state, divergence, sum(losses) / n, first_loss, coefficients)


def rank_one_loss(divergence: Divergence, X: Any) -> float:
    """The mean loss of fits that are all multiples of the mean sample: what any dictionary should beat.

    It is a millionth of that of fits twice too large at least: what is below is rounding.
    """
    profile = np.asarray(X.mean(axis=0)).reshape(1, -1) + 1e-6 * X.mean()
    problem = fits(divergence, X, (profile / profile.sum()).astype(X.dtype))
    H = row_sums(X)[:, None] + TINY
    rounding = 1e-6 * float(CoefficientSolver.scale(divergence, X).mean())
    return max(float(problem.value(H, problem.fit(H)).mean()), rounding)


def gradient_mapping_norm(
    divergence: Divergence, C: DictionarySet, W: Array, blocks: Iterable[tuple[Array, Array]]
) -> float:
    """||W - P_C(W - grad f(W))||_F with f the mean loss over samples: zero just at the critical points of f on C.

    The samples come in blocks (X, H), H holding the minimisers of d(x || hW); by Danskin's theorem grad f is then the
    mean of h' (d/dy) d(x || hW).
    """
    total, n = np.zeros_like(W), 0
    for X, H in blocks:
        total += H.T @ divergence.grad(X, H @ W)
        n += len(X)
    return float(np.linalg.norm(W - C.project(W - total / n)))
