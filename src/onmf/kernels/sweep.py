"""Packed outer products, and coordinate descent on the weights of every feature."""

from __future__ import annotations

import numba
import numpy as np

from onmf.arrays import Array


def pack(V: Array) -> Array:
    """The products v_j v_k of every row, j <= k: shape (n, K (K + 1) / 2), row by row of the upper triangle."""
    K = V.shape[1]
    out = np.empty((len(V), K * (K + 1) // 2), dtype=V.dtype)
    _pack(np.ascontiguousarray(V), out)
    return out


@numba.njit(cache=True, nogil=True)
def _pack(V: Array, out: Array) -> None:
    n, K = V.shape
    for i in range(n):
        p = 0
        for j in range(K):
            a = V[i, j]
            for k in range(j, K):
                out[i, p] = a * V[i, k]
                p += 1


def sweep(A: Array, b: Array, Wt: Array, low: Array, sweeps: int) -> None:
    """Coordinate descent on w A_f w' / 2 - b_f w' over w >= low_f for every feature f, in place in Wt (F, K)."""
    F, K = Wt.shape
    if A.shape not in ((F, K * (K + 1) // 2), (1, K * (K + 1) // 2)) or b.shape != (F, K) or low.shape != (F,):
        msg = f"shapes do not fit: A {A.shape}, b {b.shape}, W {Wt.shape}, low {low.shape}."
        raise ValueError(msg)
    _sweep(A, b, Wt, low, sweeps)


@numba.njit(cache=True, nogil=True)
def _sweep(A: Array, b: Array, Wt: Array, low: Array, sweeps: int) -> None:
    F, K = Wt.shape
    shared = A.shape[0] == 1
    Q = np.empty((K, K), dtype=Wt.dtype)
    for f in range(F):
        if f == 0 or not shared:
            p = 0
            for j in range(K):
                for k in range(j, K):
                    Q[j, k] = A[f, p]
                    Q[k, j] = A[f, p]
                    p += 1
        w = Wt[f]
        for _ in range(sweeps):
            for k in range(K):
                if Q[k, k] <= 0:
                    continue
                s = -b[f, k]
                for j in range(K):
                    s += Q[k, j] * w[j]
                w[k] = max(w[k] - s / Q[k, k], low[f])
