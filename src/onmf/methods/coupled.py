"""The surrogate for the Mahalanobis distance, whose matrix couples the features.

The loss is quadratic in W, so that averages of h'h and h'x are all it takes (Mairal et al. 2010, with another metric):

    f(W) = trace(W' S W A) / 2 - trace(R' W A),    S = avg h'h (K x K),    R = avg h'x (K x F),    grad = (S W - R) A

Atom by atom, w_k moves down its gradient divided by S_kk d, where d_f = sum_g |A_fg| makes diag(d) - A positive
semidefinite: no such step raises f.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onmf._support.arrays import Array
from onmf.methods.base import State, Statistics, Sums
from onmf.problem import Problem
from onmf.sets import DictionarySet

SWEEPS = 5


def start(W: Array, C: DictionarySet) -> State:
    """Empty statistics."""
    K, F = W.shape
    shapes = {"S": (K, K), "R": (K, F), "log_unit": (K,)}
    return State(W, C, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})


def local(problem: Problem, H: Array) -> Statistics:
    """The samples and their coefficients are the statistics."""
    parts = {"X": problem.X, "H": H, "counted": problem.weighed(H)}
    return Statistics(parts, problem.weight, problem.loss(H, problem.fit(H)))


def apply(A: Array, state: State, statistics: Statistics, rho: float) -> State:
    """Average with weight rho, a few sweeps over the atoms, and back to [0, 1] by a change of units."""
    (X, H, counted), n = (statistics.parts[name] for name in ("X", "H", "counted")), statistics.samples
    memory = dict(state.memory)
    for name, news in {"S": counted.T @ H, "R": counted.T @ X}.items():
        memory[name] = (1 - rho) * memory[name] + (rho / n) * news
    return _minimised(A, state, n, memory, state.W)


def _minimised(A: Array, state: State, n: float, memory: dict[str, Array], W: Array) -> State:
    S, R, W = memory["S"], memory["R"], W.copy()
    A = A.astype(W.dtype, copy=False)
    d = np.abs(A).sum(axis=1)
    for _ in range(SWEEPS):
        for k in range(state.C.fixed, len(W)):
            if S[k, k] > 0:
                W[k] = np.maximum(W[k] - (S[k] @ W - R[k]) @ A / (S[k, k] * d), 0)
    s = np.maximum(W.max(axis=1) / state.C.high, 1.0)
    memory = memory | {"S": S * np.outer(s, s), "R": R * s[:, None], "log_unit": memory["log_unit"] + np.log(s)}
    return state.after(n, state.C.project(W / s[:, None]), memory)


def summary(before: State, after: State) -> Sums:
    """n times the averages and n W, in the units that the atoms had before."""
    n, memory = after.samples - before.samples, after.memory
    s = np.exp(memory["log_unit"] - before.memory["log_unit"])
    arrays = {"S": n * memory["S"] / np.outer(s, s), "R": n * memory["R"] / s[:, None], "W": n * after.W * s[:, None]}
    return Sums(n, after.steps - before.steps, arrays)


def merged(A: Array, before: State, sums: Sums) -> State:
    """W minimised anew from the averages over all shards."""
    arrays = {name: array / sums.samples for name, array in sums.arrays.items()}
    W, fixed = arrays.pop("W"), before.C.fixed
    W[:fixed] = before.W[:fixed]  # to the bit
    state = _minimised(A, before, sums.samples, before.memory | arrays, W)
    return replace(state, steps=before.steps + sums.steps + 1)
