"""The paper's Algorithm 1: for every mini-batch, coefficients first, then one step of the dictionary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf.arrays import Array
from onmf.coefficients import CoefficientSolver
from onmf.dictionary import DictionaryUpdate, State
from onmf.divergences import Divergence
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class Method:
    """A way to learn: a coefficient solver and a dictionary update, nothing more."""

    coefficients: CoefficientSolver
    dictionary: DictionaryUpdate


@dataclass(frozen=True)
class Learnt:
    """What one batch did: the new state, and the mean loss of its samples *before* they changed W."""

    state: State
    loss: float


def learn(method: Method, divergence: Divergence, state: State, X: Array) -> Learnt:
    """Learn from the batch X (n, F), cut into chunks of the dictionary update's size; the last may be short."""
    loss = 0.0
    for first in range(0, len(X), method.dictionary.chunk):
        V = X[first : first + method.dictionary.chunk]
        H = method.coefficients.solve(divergence, V, state.W).H
        Y = H @ state.W
        loss += float(divergence.value(V, Y).sum(dtype=np.float64))
        state = method.dictionary.apply(state, method.dictionary.local(divergence, V, H, Y))
    return Learnt(state, loss / len(X))


def gradient_mapping_norm(divergence: Divergence, C: DictionarySet, W: Array, X: Array, H: Array) -> float:
    """||W - P_C(W - grad f(W))||_F with f the mean loss over X: zero just at the critical points of f on C.

    H holds the minimisers of d(x || hW); by Danskin's theorem grad f is then the mean of h' (d/dy) d(x || hW).
    """
    grad = H.T @ divergence.grad(X, H @ W) / len(X)
    return float(np.linalg.norm(W - C.project(W - grad)))
