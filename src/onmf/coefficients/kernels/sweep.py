"""Packed products of rows, and coordinate descent on the weights of every feature. Features lie side by side."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.kernels.checked import kernel

OUTSIDE = "shapes do not fit: some of the columns do not exist."


def pack(V: Array) -> Array:
    """The products v_j v_k of the rows of V (K, m), j <= k: shape (K (K + 1) / 2, m), by rows of the upper triangle."""
    K, m = V.shape
    out = np.empty((K * (K + 1) // 2, m), dtype=V.dtype)
    _pack(V, out)
    return out


@kernel("KF PF*")
def _pack(V: Array, out: Array) -> None:
    K, m = V.shape
    p = 0
    for j in range(K):
        for k in range(j, K):
            for f in range(m):
                out[p, f] = V[j, f] * V[k, f]
            p += 1


@kernel("pF* pB*")
def blend(A: Array, news: Array, first: int, keep: float, gain: float) -> None:
    """keep * A + gain * news for the columns of A from ``first`` on, in place in both."""
    P, B = news.shape
    if not 0 <= first <= A.shape[1] - B:
        raise ValueError(OUTSIDE)
    for p in range(P):
        old = A[p, first : first + B]  # a view: an index with an offset may be negative, which prevents vectorisation
        for f in range(B):
            a = keep * old[f] + gain * news[p, f]
            old[f] = a
            news[p, f] = a


def sweep(
    A: Array, b: Array, W: Array, low: Array, unit: Array, high: float, first: int, sweeps: int, fixed: int = 0
) -> None:
    """Coordinate descent on w A_f w' / 2 - b_f w' over unit_k low_f <= w_k <= unit_k high, from feature ``first`` on.

    It works in place in W (K, F), on as many columns as b (K, B) has. A is (P, B), packed, or (K, K) if the features
    share it. The weights of the first ``fixed`` atoms stay.
    """
    K, B = b.shape
    (_sweep if A.shape == (K * (K + 1) // 2, B) else _sweep_shared)(A, b, W, low, unit, high, first, sweeps, fixed)


@kernel("PB KB KF* F K")
def _sweep(
    A: Array, b: Array, W: Array, low: Array, unit: Array, high: float, first: int, sweeps: int, fixed: int
) -> None:
    K, B = b.shape
    if not 0 <= first <= W.shape[1] - B:
        raise ValueError(OUTSIDE)
    s = np.empty(B, dtype=W.dtype)
    least = low[first : first + B]
    for _ in range(sweeps):
        for k in range(fixed, K):
            for f in range(B):
                s[f] = -b[k, f]
            p = k
            for j in range(K):
                w = W[j, first : first + B]
                for f in range(B):
                    s[f] += A[p, f] * w[f]
                p += K - 1 - j if j < k else 1
            diagonal = k * K - k * (k - 1) // 2
            w, top = W[k, first : first + B], unit[k] * high
            for f in range(B):
                a = A[diagonal, f]
                w[f] = min(max(w[f] - s[f] / a if a > 0 else w[f], unit[k] * least[f]), top)


@kernel("KK KB KF* F K")
def _sweep_shared(
    A: Array, b: Array, W: Array, low: Array, unit: Array, high: float, first: int, sweeps: int, fixed: int
) -> None:
    K, B = b.shape
    if not 0 <= first <= W.shape[1] - B:
        raise ValueError(OUTSIDE)
    size = 64  # features whose weights are copied side by side, to stay in the inner caches
    V = np.empty((K, size), dtype=W.dtype)
    s = np.empty(size, dtype=W.dtype)
    fours = K - K % 4
    for start in range(0, B, size):
        n = min(size, B - start)
        least = low[first + start : first + start + n]
        for k in range(K):
            for f in range(n):
                V[k, f] = W[k, first + start + f]
        for _ in range(sweeps):
            for k in range(fixed, K):
                a, u, top = A[k, k], unit[k], unit[k] * high
                if a <= 0:
                    continue
                for f in range(n):
                    s[f] = -b[k, start + f]
                for j in range(0, fours, 4):  # four at a time: s is read and written less often
                    a0, a1, a2, a3 = A[k, j], A[k, j + 1], A[k, j + 2], A[k, j + 3]
                    for f in range(n):
                        s[f] += (a0 * V[j, f] + a1 * V[j + 1, f]) + (a2 * V[j + 2, f] + a3 * V[j + 3, f])
                for j in range(fours, K):
                    for f in range(n):
                        s[f] += A[k, j] * V[j, f]
                for f in range(n):
                    V[k, f] = min(max(V[k, f] - s[f] / a, u * least[f]), top)
        for k in range(K):
            for f in range(n):
                W[k, first + start + f] = V[k, f]


def packed_product(A: Array, W: Array) -> Array:
    """A_f w_f for every feature f: A (P, F) packed, W (K, F)."""
    out = np.zeros_like(W, order="C")
    _packed_product(A, W, out)
    return out


@kernel("PF KF KF*")
def _packed_product(A: Array, W: Array, out: Array) -> None:
    K, F = W.shape
    p = 0
    for j in range(K):
        for k in range(j, K):
            a, left, right, w, v = A[p], out[j], out[k], W[k], W[j]
            for f in range(F):
                left[f] += a[f] * w[f]
            if k != j:
                for f in range(F):
                    right[f] += a[f] * v[f]
            p += 1
