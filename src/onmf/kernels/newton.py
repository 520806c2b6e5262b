"""Projected-Newton directions from packed Hessians."""

from __future__ import annotations

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.kernels.checked import kernel
from onmf.kernels.gram import SMALL_SYSTEMS, damping, solve_free

NEAR = 0.1  # of the mean coefficient: how close to its bound a coefficient may count as bound


def newton_directions(M: Array, G: Array, H: Array, low: float) -> Array:
    """Projected-Newton directions for packed Hessians M (n, P), gradients G and points H (n, K).

    Coefficients near their lower bound that the gradient pushes towards it stay out of the linear system and follow
    their own scaled gradient (Bertsekas 1982): otherwise the projected arc need not descend.
    """
    n, K = H.shape
    D, relative = np.zeros_like(H), damping(K, H.dtype)

    def block(rows: slice) -> None:
        _newton_directions(M[rows], G[rows], H[rows], D[rows], low, relative, NEAR)

    threads.each(block, threads.by_work(n, K**3, SMALL_SYSTEMS))
    return D


@kernel("nP nK nK nK*")
def _newton_directions(M: Array, G: Array, H: Array, D: Array, low: float, relative: float, near_share: float) -> None:
    n, K = H.shape
    Q = np.empty((K, K), dtype=H.dtype)
    L = np.empty((K, K), dtype=H.dtype)
    x = np.empty(K, dtype=H.dtype)
    free = np.empty(K, dtype=np.int64)
    for i in range(n):
        p = 0
        trace = low - low
        for j in range(K):
            for k in range(j, K):
                Q[j, k] = M[i, p]
                Q[k, j] = M[i, p]
                p += 1
            trace += Q[j, j]
        tiny = trace / K * relative
        mean = low - low
        length = low - low
        for k in range(K):
            Q[k, k] += tiny
            mean += H[i, k] / K
            to = max(H[i, k] - G[i, k] / Q[k, k], low)
            length = max(length, abs(H[i, k] - to))
        near = min(mean * near_share, length)
        m = K - K  # not a literal 0, for which solve_free would be compiled once more
        for k in range(K):
            if G[i, k] > 0 and H[i, k] - low <= near:
                D[i, k] = -G[i, k] / Q[k, k]
            else:
                free[m] = k
                m += 1
        if solve_free(Q, G[i], free, m, L, x):
            for j in range(m):
                D[i, free[j]] = -x[j]
        else:
            for j in range(m):
                k = free[j]
                D[i, k] = -G[i, k] / max(Q[k, k], tiny)
