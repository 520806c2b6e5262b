"""A way out of poor local minima: two atoms become one, and the place of the other goes to what the samples miss.

Where two atoms share one part of the data and two parts of the data share one atom, no small step helps. So now and
then, at every doubling of the samples seen, one exchange is tried:

- the parts h_j w_j + h_k w_k of two atoms become their best approximation g v. In least squares that costs the smaller
  eigenvalue of S Q, the 2 x 2 Gram matrices of their coefficients and of their weights: nothing if one of the two is
  never used, or if they coincide. The pair that costs least is taken;
- a new atom comes from the residuals of every other sample: their best approximation u g, from the worst-fitted
  sample on;
- the samples between them, which the atom has not been made of, decide: the exchange happens if it fits them better,
  by more than the standard error of the difference.

Nothing is drawn at random, and where no exchange happens nothing changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from onmf._support.arrays import Array, dense
from onmf.divergences import Divergence
from onmf.methods import Method, State
from onmf.problem import Penalty, pose
from onmf.sets import Box

FEWEST, MOST = 16, 200  # samples that an exchange is judged by
ROUNDS = 8  # of alternating least squares for the new atom
EFFORT = 4  # times the usual iterations of the coefficient solver: both dictionaries get the same, from the same start
BACKGROUND = 0.03  # of the mean sample in the new atom, where the fit must not be zero
PER_DOUBLING = 1
CLEARLY = 1.0  # standard errors


def due(before: float, after: float) -> bool:
    """Does the clock pass a power of two, while so many samples are learnt from?"""
    return before > 0 and int(PER_DOUBLING * np.log2(before)) < int(PER_DOUBLING * np.log2(after))


def exchanged(method: Method, divergence: Divergence, state: State, X: Any, box: Box, penalty: Penalty) -> State:
    """The state after one exchange, if that makes the fit of the samples X better, or as it was."""
    X = X[:MOST]
    if X.shape[0] < FEWEST or len(state.W) < 2:
        return state
    usual = method.coefficients(divergence)
    solver = usual.stopping(usual.tol, EFFORT * usual.max_iter)

    def solved(rows: Any, W: Array) -> tuple[Array, Array, Array]:
        problem = pose(divergence, rows, W, box, penalty)
        H = solver.solve(problem).H
        values = problem.objective(H, problem.fit(H))
        return H, values, values / problem.scale

    H, before, misfit = solved(X, state.W)
    made_of = slice(0, None, 2)
    judges = slice(1, None, 2)
    new = _missed(divergence, X[made_of], H[made_of], state.W, int(np.argmax(misfit[made_of])))
    if new is None:
        return state
    j, k, merged, mixing = _cheapest_merger(divergence, X, H, state.W)
    W = state.W.copy()
    W[j], W[k] = merged, new
    W = state.C.project(W)
    change = solved(X[judges], W)[1] - before[judges]
    if change.mean() > -CLEARLY * change.std() / np.sqrt(len(change)):
        return state
    return method.recombined(divergence, state, W, mixing)


def _missed(divergence: Divergence, X: Any, H: Array, W: Array, worst: int) -> Array | None:
    """u >= 0 with g u, g >= 0, nearest to the residuals in the metric of the curvatures; None if there are none."""
    seen = np.flatnonzero(np.asarray(X.sum(axis=0)).ravel())  # elsewhere the fit is large enough
    X = dense(X[:, seen])
    slope, C = divergence.model(X, H @ W[:, seen])
    C = np.broadcast_to(C, X.shape)
    tiny = float(np.finfo(X.dtype).tiny)
    u = np.maximum(-slope[worst] / C[worst], 0)
    for _ in range(ROUNDS):
        g = np.maximum(-slope @ u, 0) / (C @ np.square(u) + tiny)
        u = np.maximum(-slope.T @ g, 0) / (C.T @ np.square(g) + tiny)
        if not u.any():
            return None
        u /= u.max()
    new = np.zeros_like(W[0])
    new[seen] = u
    if not divergence.domain.y.closed:
        profile = W.mean(axis=0)
        new += BACKGROUND * new.mean() / profile.mean() * profile
    return new / new.max()


def _cheapest_merger(divergence: Divergence, X: Any, H: Array, W: Array) -> tuple[int, int, Array, Array]:
    """The atoms j and k to merge, their merger, and the matrix by which the coefficients become those after it."""
    K = len(W)
    S, Q = _grams(divergence, X, H, W)
    s, q = np.diag(S), np.diag(Q)
    trace = np.add.outer(s * q, s * q) + 2 * S * Q
    determinant = (np.outer(s, s) - np.square(S)) * (np.outer(q, q) - np.square(Q))
    root = np.sqrt(np.maximum(np.square(trace) - 4 * determinant, 0))
    cost = 2 * np.maximum(determinant, 0) / np.maximum(trace + root, float(np.finfo(W.dtype).tiny))
    cost[np.tril_indices(K)] = np.inf
    pair = list(np.unravel_index(int(np.argmin(cost)), cost.shape))
    S, Q = S[np.ix_(pair, pair)], Q[np.ix_(pair, pair)]
    values, vectors = np.linalg.eig(S @ Q)
    weights = np.abs(np.real(vectors[:, int(np.argmax(np.real(values)))]))  # of w_j and w_k: Perron's, of one sign
    merged = weights @ W[pair]
    size = float(merged.max()) or 1.0
    mixing = np.eye(K, dtype=W.dtype)
    mixing[pair] = 0
    mixing[pair[0], pair] = size * (Q @ weights) / max(float(weights @ Q @ weights), float(np.finfo(W.dtype).tiny))
    return int(pair[0]), int(pair[1]), merged / size, mixing


def _grams(divergence: Divergence, X: Any, H: Array, W: Array) -> tuple[Array, Array]:
    """S = avg h h' and Q = W W' (K, K), in the metric of curvatures c_nf that are about a product of r_n and d_f."""
    if divergence.quadratic:
        return H.T @ H / len(H), W @ W.T
    C = np.log(np.broadcast_to(divergence.model(dense(X), H @ W)[1], X.shape))
    r, d = np.exp(C.mean(axis=1, keepdims=True)), np.exp(C.mean(axis=0) - C.mean())
    return (H * r).T @ H / len(H), (W * d) @ W.T
