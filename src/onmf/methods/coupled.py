"""The surrogate for the Mahalanobis distance, whose matrix couples the features.

The loss is quadratic in W, so that averages of h'h and h'x are all it takes (Mairal et al. 2010, with another metric):

    f(W) = trace(W' S W A) / 2 - trace(R' W A),    S = avg h'h (K x K),    R = avg h'x (K x F),    grad = (S W - R) A

Component by component, w_k moves down its gradient divided by S_kk d, where d_f = sum_g |A_fg| makes diag(d) - A
positive semidefinite: no such step raises f. Penalties are added to the gradient and to what it is divided by; W then
stays below 1, and its units are those that cost least (``model.penalty``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.problem import Problem
from onmf.model.penalty import carried, falling, resized
from onmf.model.sets import DictionarySet
from onmf.model.state import State, Sums

SWEEPS = 5
DAMPING = 1e-3  # of the mean squares of coefficients: kappa


def start(W: Array, C: DictionarySet) -> State:
    """Return empty statistics."""
    K, F = W.shape
    shapes = {"S": (K, K), "R": (K, F), "mass": (K,), "log_unit": (K,)}
    return State(W, C, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})


def update(A: Array, state: State, problem: Problem, H: Array, rho: float) -> State:
    """Average with weight rho, a few sweeps over the components, and back to [0, 1] by a change of units."""
    counted, n, memory = problem.X.times_sample_weight(H), problem.X.weight, dict(state.memory)
    sums = {"S": counted.T @ H, "R": counted.T @ problem.X.matrix, "mass": counted.sum(axis=0)}
    if "kappa" in memory:
        sums = _with_kappa(sums, n * memory["kappa"], state.W)
    for name, news in sums.items():
        memory[name] = (1 - rho) * memory[name] + (rho / n) * news
    return _minimised(A, state, n, memory, state.W)


def _minimised(A: Array, state: State, n: float, memory: dict[str, Array], W: Array) -> State:
    S, R, W, penalties = memory["S"], memory["R"], W.copy(), state.penalties
    A = A.astype(W.dtype, copy=False)
    bounded = bool(penalties) and np.isfinite(state.C.high)  # where penalties depend on the size of components
    d, high, low = np.abs(A).sum(axis=1), 1.0 if bounded else np.inf, memory.get("low", 0.0)
    for _ in range(SWEEPS):
        for k in range(state.C.fixed, len(W)):
            if S[k, k] > 0:
                slope, curvature = (S[k] @ W - R[k]) @ A, S[k, k] * d
                if penalties:
                    slope, curvature = slope + penalties.slope(W[k]), curvature + penalties.l2_dictionary
                W[k] = np.minimum(np.maximum(W[k] - slope / curvature, low), high)
    if "low" in memory:
        return state.after(n, W, memory)
    if bounded:
        s, W = _resized(A, state, memory, W)
    else:
        s = np.maximum(W.max(axis=1) / state.C.high, 1.0)
        W = W / s[:, None]
    return state.after(n, state.C.project(W), _in_units(memory, s))


def _in_units(memory: dict[str, Array], s: Array) -> dict[str, Array]:
    """Return the statistics of W / s instead of W."""
    new = {"S": memory["S"] * np.outer(s, s), "R": memory["R"] * s[:, None], "mass": memory["mass"] * s}
    return memory | new | {"log_unit": memory["log_unit"] + np.log(s)}


def _resized(A: Array, state: State, memory: dict[str, Array], W: Array) -> tuple[Array, Array]:
    """Return the change of units that is best for the penalties, and W after it."""
    S, penalties, bounded = memory["S"], state.penalties, W >= 1
    slope = (S @ W - memory["R"]) @ A + penalties.slope(W)
    pull = np.where(bounded, np.maximum(-slope, 0), 0).sum(axis=1)
    stiffness = np.where(bounded, np.diag(S)[:, None] * np.diag(A) + penalties.l2_dictionary, 0).sum(axis=1)
    s = resized(penalties, W, (memory["mass"], np.diag(S)), falling(pull, stiffness), state.C.fixed)
    return s, carried(W, s)


def damped(memory: dict[str, Array], W: Array) -> dict[str, Array]:
    """Return S + kappa and R + kappa W with a small kappa, which then is in every chunk's S and R, too."""
    mean = np.diag(memory["S"])
    kappa = DAMPING * np.maximum(mean, 1e-3 * mean.mean())
    return _with_kappa(memory, kappa, W) | {"kappa": kappa}


def _with_kappa(memory: dict[str, Array], kappa: Array, W: Array) -> dict[str, Array]:
    return memory | {"S": memory["S"] + np.diag(kappa), "R": memory["R"] + kappa[:, None] * W}


def summary(before: State, after: State) -> Sums:
    """Return n times the averages and n W, in the units that the components had before."""
    n, memory = after.samples - before.samples, after.memory
    s = np.exp(memory["log_unit"] - before.memory["log_unit"])
    arrays = {"S": n * memory["S"] / np.outer(s, s), "R": n * memory["R"] / s[:, None], "mass": n * memory["mass"] / s}
    return Sums(n, after.steps - before.steps, arrays | {"W": n * after.W * s[:, None], "unit": n * s})


def merged(A: Array, before: State, sums: Sums) -> State:
    """Return the state with W minimised anew from the averages over all shards."""
    arrays = {name: array / sums.samples for name, array in sums.arrays.items()}
    W, unit, fixed = arrays.pop("W"), arrays.pop("unit"), before.C.fixed
    memory = dict(before.memory) | arrays
    if before.penalties:  # the bound is that of W in units of the shards' own
        memory, W = _in_units(memory, unit), W / unit[:, None]
    W[:fixed] = before.W[:fixed]  # bit for bit
    state = _minimised(A, before, sums.samples, memory, W)
    return replace(state, steps=before.steps + sums.steps + 1)
