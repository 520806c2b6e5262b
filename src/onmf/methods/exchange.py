"""Escape from poor local minima: merge two components, and give the free place to what the fits lack.

Where two components share one part of the data and two parts of the data share one component, no small step helps. So
at every doubling of the samples seen, and more often where the past is forgotten, one exchange is tried on some of
them:

- the parts h_j w_j + h_k w_k of two components become their best approximation g v. In least squares that costs the
  smaller eigenvalue of S Q, the 2 x 2 Gram matrices of their coefficients and of their weights: nothing if one of the
  two is never used, or if they coincide. The pair that costs least is taken;
- the new component u is made of every other sample: g u, g >= 0, is their best approximation of what the fit lacks,
  from the worst-fitted sample on;
- the samples between those, which u has not been made of, decide. If they are fitted better, the exchange happens.

Nothing is drawn at random, and where no exchange happens nothing changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.problem import Problem, quadratic_model
from onmf.divergences import Divergence
from onmf.methods.base import Method
from onmf.model.penalty import Penalties
from onmf.model.sets import Box, DictionarySet, Simplex
from onmf.model.state import State
from onmf.samples import Samples

SEEN, FIRST = 4, 60  # samples per component, and in all, before the first exchange
FEWEST, PER_COMPONENT, MOST = 24, 10, 200  # samples that take part
LOOKS, RARELY = 4, 10  # per horizon at most, and samples between them per sample that takes part at least
EFFORT = 4  # times the usual iterations of the coefficient solver, for both dictionaries: neither has been warmed up
ROUNDS = 8  # of alternating least squares for the new component
BACKGROUND = 0.03  # of the mean component in the new one, where the fit must not be zero


def due(K: int, before: float, after: float, horizon: float = np.inf) -> bool:
    """Tell whether the clock passes a power of two while a chunk is learnt from.

    Where the past is forgotten, a quarter of what is remembered will do, too: a stream that has drifted may need all of
    its components elsewhere, and would wait for as long again as it has lasted.
    """
    if before < max(SEEN * K, FIRST):
        return False
    period = max(horizon / LOOKS, RARELY * samples_needed(K))
    return int(np.log2(before)) < int(np.log2(after)) or int(before / period) < int(after / period)


def samples_needed(K: int) -> int:
    """Return how many samples an exchange of K components is made of and judged by."""
    return min(max(2 * FEWEST, PER_COMPONENT * K), MOST)


def exchanged(method: Method, divergence: Divergence, state: State, X: Samples, box: Box | Simplex) -> State:
    """Return the state after an exchange, if samples X in internal units are fitted better by it; else as it was."""
    whole = X.densified() if X.masked and not X.omits_zeros else X
    samples = HostExchangeSamples(method, divergence, state, whole, box)
    cost = method.largest_merger_cost(divergence)
    found = proposed(cost, state.W, state.C, state.penalties, samples, X.sample_weight)
    return state if found is None else method.recombined(divergence, state, *found)


class ExchangeSamples(ABC):
    """The samples that an exchange is made of and judged by."""

    number: int

    @abstractmethod
    def solved(self, rows: slice, W: Array) -> tuple[Any, Array, Array]:
        """Return coefficients of some samples in a dictionary, their objectives, and these relative to their scales."""

    @abstractmethod
    def grams(self, H: Any, W: Array) -> tuple[Array, Array]:
        """Return S = avg h h' and Q = W W' (K, K), with the curvatures approximated by products r_n d_f."""

    @abstractmethod
    def lacking(self, rows: slice, H: Any, W: Array, worst: int) -> Array | None:
        """Return u of the g u, g >= 0, nearest to x - y of some samples in the metric of the curvatures.

        It starts from the worst-fitted of them; None if no fit is too small anywhere.
        """


class HostExchangeSamples(ExchangeSamples):
    """Samples X in internal units that lie in the host's memory."""

    def __init__(self, method: Method, divergence: Divergence, state: State, X: Samples, box: Box | Simplex) -> None:
        self.divergence, self.X, self.box, self.number = divergence, X, box, len(X)
        usual = method.coefficient_solver(divergence, X.masked)
        self.solver, self.penalty = usual.stopping(usual.tol, EFFORT * usual.max_iter), method.penalty(state.penalties)

    def solved(self, rows: slice, W: Array) -> tuple[Array, Array, Array]:
        problem = Problem(self.divergence, self.X[rows], W, self.box, self.penalty)
        found = self.solver.solve(problem)
        objective = problem.objective(found.H, problem.fit(found.H) if found.Y is None else found.Y)
        return found.H, objective, objective / problem.scale

    def grams(self, H: Array, W: Array) -> tuple[Array, Array]:
        divergence, X = self.divergence, self.X
        r, d = np.ones((len(H), 1), dtype=H.dtype), np.ones_like(W[0])
        if X.sparse and not divergence.quadratic:  # curvature is at the non-zeros alone: sums, not logs
            C = X.with_values(quadratic_model(divergence, X, Problem(divergence, X, W).fit(H))[1])
            r, d = C.sum(axis=1)[:, None], C.mean(axis=0) / C.mean()
        elif X.masked or not divergence.quadratic:
            curvatures = np.broadcast_to(quadratic_model(divergence, X, H @ W)[1], X.shape)
            if X.masked:  # a missing entry says nothing of the curvature that it would have
                curvatures = np.where(X.entry_weights > 0, curvatures, 1.0)
            logs = np.log(np.maximum(curvatures, float(np.finfo(H.dtype).tiny)))
            r, d = np.exp(logs.mean(axis=1, keepdims=True)), np.exp(logs.mean(axis=0) - logs.mean())
        return (H * r).T @ H / len(H), (W * d) @ W.T

    def lacking(self, rows: slice, H: Array, W: Array, worst: int) -> Array | None:
        divergence, X, H = self.divergence, self.X[rows], H[rows]
        seen = np.flatnonzero(X.sum(axis=0))  # where there are no entries, no fit is too small
        X = X.densified()
        present = None if X.entry_weight is None else X.entry_weight[:, seen]
        slope, C = quadratic_model(
            divergence, Samples(np.ascontiguousarray(X.matrix[:, seen]), present), H @ W[:, seen]
        )
        C = C if C.shape == slope.shape else np.repeat(C, len(seen), axis=1)
        tiny = float(np.finfo(X.dtype).tiny)
        u = np.maximum(-slope[worst] / (C[worst] + tiny * X.masked), 0)
        for _ in range(ROUNDS):
            g = np.maximum(-slope @ u, 0) / (C @ np.square(u) + tiny)
            u = np.maximum(-slope.T @ g, 0) / (C.T @ np.square(g) + tiny)
            if not u.any():
                return None
            u /= u.max()
        new = np.zeros_like(W[0])
        new[seen] = u
        return with_background(divergence, new, W)


def proposed(
    bar: float, W: Array, C: DictionarySet, penalties: Penalties, samples: ExchangeSamples, weights: Array | None = None
) -> tuple[Array, Array] | None:
    """Return a dictionary with a component exchanged, and T with which coefficients h become T h, if it is better.

    ``bar`` is what the merger may cost (``Method.largest_merger_cost``).
    """
    if samples.number < FEWEST or len(W) - C.fixed < 2:
        return None
    H, before, misfit = samples.solved(slice(None), W)
    S, Q = samples.grams(H, W)
    pair, cost, merged, mixing = _cheapest_merger(S, Q, W, C.fixed)
    if cost > bar * float((np.diag(S) * np.diag(Q)).mean()):
        return None
    made_of, judges = slice(0, None, 2), slice(1, None, 2)
    new = samples.lacking(made_of, H, W, int(np.argmax(misfit[made_of])))
    if new is None:
        return None
    changed = W.copy()
    changed[pair] = merged, new
    changed = C.project(changed)
    _, after, _ = samples.solved(judges, changed)
    before, counts = before[judges], 1.0 if weights is None else weights[judges]
    number = len(after) if weights is None else float(weights[judges].sum())
    added_penalty = number * (penalties.of_dictionary(changed) - penalties.of_dictionary(W))
    better = (counts * after).sum() + added_penalty < (counts * before).sum()
    return (changed, mixing) if better else None


def with_background(divergence: Divergence, new: Array, W: Array) -> Array:
    """Return a component of largest weight one, with a little of the mean one where the fit must not be zero."""
    if not divergence.domain.y.includes_zero:
        profile = W.mean(axis=0)
        new = new + BACKGROUND * new.mean() / profile.mean() * profile
    return new / new.max()


def _cheapest_merger(S: Array, Q: Array, W: Array, fixed: int) -> tuple[list[int], float, Array, Array]:
    """Return two components, what merging them costs, what they become, and T with which coefficients become T h.

    The first ``fixed`` components are left alone. The place of the second is then free.
    """
    K, tiny = len(W), float(np.finfo(W.dtype).tiny)
    s, q = np.diag(S), np.diag(Q)
    trace = np.add.outer(s * q, s * q) + 2 * S * Q
    determinant = np.maximum((np.outer(s, s) - np.square(S)) * (np.outer(q, q) - np.square(Q)), 0)
    root = np.sqrt(np.maximum(np.square(trace) - 4 * determinant, 0))
    cost = 2 * determinant / np.maximum(trace + root, tiny)
    cost[np.tril_indices(K)] = np.inf
    cost[:fixed] = np.inf
    pair = [int(k) for k in np.unravel_index(int(np.argmin(cost)), cost.shape)]
    S, Q = S[np.ix_(pair, pair)], Q[np.ix_(pair, pair)]
    values, vectors = np.linalg.eig(S @ Q)
    v = np.abs(np.real(vectors[:, int(np.argmax(np.real(values)))]))  # all entries are positive: Perron and Frobenius
    merged = v @ W[pair]
    size = float(merged.max()) or 1.0
    T = np.eye(K, dtype=W.dtype)
    T[pair] = 0
    T[pair[0], pair] = size * (Q @ v) / max(float(v @ Q @ v), tiny)
    return pair, float(cost.min()), merged / size, T
