"""The paper's Algorithm 1: for every mini-batch, coefficients first, then one step of the dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf.arrays import Array
from onmf.coefficients import CoefficientSolver
from onmf.coefficients.base import TINY
from onmf.dictionary import DictionaryUpdate, State
from onmf.divergences import Divergence
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class Method:
    """A way to learn: a coefficient solver and a dictionary update, nothing more."""

    coefficients: CoefficientSolver  # while learning
    dictionary: DictionaryUpdate
    precise: CoefficientSolver  # for ``transform`` and its like


@dataclass(frozen=True)
class Learnt:
    """What one batch did: the new state, and the mean loss of its samples *before* they changed W."""

    state: State
    loss: float
    first_loss: float  # of the first chunk alone: no sample of the batch had changed W yet


def learn(method: Method, divergence: Divergence, state: State, X: Any) -> Learnt:
    """Learn from the batch X (n, F), cut into chunks of the dictionary update's size; the last may be short."""
    losses: list[float] = []
    n: int = X.shape[0]
    for first in range(0, n, method.dictionary.chunk):
        V = X[first : first + method.dictionary.chunk]
        before, H = state, None
        for visit in range(method.dictionary.visits):
            H = method.coefficients.solve(divergence, V, state.W, H).H
            statistics = method.dictionary.local(divergence, V, H, state.W)
            state = method.dictionary.apply(before, statistics)
            if visit == 0:
                losses.append(statistics.loss)
    return Learnt(state, sum(losses) / n, losses[0] / min(method.dictionary.chunk, n))


def rank_one_loss(divergence: Divergence, X: Array) -> float:
    """The mean loss of fits that are all multiples of the mean sample: what any dictionary should beat."""
    profile = X.mean(axis=0) + 1e-6 * X.mean()
    return float(divergence.value(X, X.sum(axis=1, keepdims=True) * (profile / profile.sum()) + TINY).mean())


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
