"""Packed products of rows, and coordinate descent on the weights of every feature. Features lie side by side."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from onmf._support.arrays import Array


def pack(V: Array) -> Array:
    """The products v_j v_k of the rows of V (K, m), j <= k: shape (K (K + 1) / 2, m), by rows of the upper triangle."""
    K, m = V.shape
    out = np.empty((K * (K + 1) // 2, m), dtype=V.dtype)
    _pack(np.ascontiguousarray(V), out)
    return out


@numba.njit(cache=True, nogil=True)
def _pack(V: Array, out: Array) -> None:
    K, m = V.shape
    p = 0
    for j in range(K):
        for k in range(j, K):
            for f in range(m):
                out[p, f] = V[j, f] * V[k, f]
            p += 1


def blend(A: Array, news: Array, first: int, keep: float, gain: float) -> None:
    """keep * A + gain * news for the columns of A from ``first`` on, in place in both."""
    if A.shape[0] != news.shape[0] or first < 0 or first + news.shape[1] > A.shape[1] or A.dtype != news.dtype:
        raise ValueError(
            f"shapes or types do not fit: A {A.shape} {A.dtype}, news {news.shape} {news.dtype} at column {first}."
        )
    _require_contiguous(A, news)
    number: Any = A.dtype.type
    _blend(A, news, first, number(keep), number(gain))


@numba.njit(cache=True, nogil=True)
def _blend(A: Array, news: Array, first: int, keep: float, gain: float) -> None:
    P, B = news.shape
    for p in range(P):
        old = A[p, first : first + B]  # a view: an index with an offset may be negative, which keeps it from vectors
        for f in range(B):
            a = keep * old[f] + gain * news[p, f]
            old[f] = a
            news[p, f] = a


def sweep(A: Array, b: Array, W: Array, low: Array, unit: Array, first: int, sweeps: int) -> None:
    """Coordinate descent on w A_f w' / 2 - b_f w' over w_k >= unit_k low_f, for the features f from ``first`` on.

    It works in place in W (K, F), on as many columns as b (K, B) has; low is (F,). A is (P, B), packed, or (K, K) if
    the features share it.
    """
    K, F = W.shape
    B = b.shape[1]
    packed = A.shape == (K * (K + 1) // 2, B)
    if not packed and A.shape != (K, K):
        raise ValueError(f"shapes do not fit: A {A.shape}, b {b.shape}, W {W.shape}.")
    if len(b) != K or low.shape != (F,) or unit.shape != (K,) or not 0 <= first <= F - B:
        raise ValueError(f"shapes do not fit: b {b.shape} at {first}, W {W.shape}, low {low.shape}, unit {unit.shape}.")
    if not A.dtype == b.dtype == W.dtype == low.dtype == unit.dtype:
        raise ValueError(
            f"types do not fit: A {A.dtype}, b {b.dtype}, W {W.dtype}, low {low.dtype}, unit {unit.dtype}."
        )
    _require_contiguous(A, b, W, low)
    (_sweep if packed else _sweep_shared)(A, b, W, low, unit, first, sweeps)


@numba.njit(cache=True, nogil=True)
def _sweep(A: Array, b: Array, W: Array, low: Array, unit: Array, first: int, sweeps: int) -> None:
    K, B = b.shape
    s = np.empty(B, dtype=W.dtype)
    least = low[first : first + B]
    for _ in range(sweeps):
        for k in range(K):
            for f in range(B):
                s[f] = -b[k, f]
            p = k
            for j in range(K):
                w = W[j, first : first + B]
                for f in range(B):
                    s[f] += A[p, f] * w[f]
                p += K - 1 - j if j < k else 1
            diagonal = k * K - k * (k - 1) // 2
            w = W[k, first : first + B]
            for f in range(B):
                a = A[diagonal, f]
                w[f] = max(w[f] - s[f] / a if a > 0 else w[f], unit[k] * least[f])


@numba.njit(cache=True, nogil=True)
def _sweep_shared(A: Array, b: Array, W: Array, low: Array, unit: Array, first: int, sweeps: int) -> None:
    K, B = b.shape
    size = 128  # features whose weights are copied side by side, to stay in the inner caches
    V = np.empty((K, size), dtype=W.dtype)
    least = np.empty(size, dtype=W.dtype)
    s = np.empty(size, dtype=W.dtype)
    fours = K - K % 4
    for start in range(0, B, size):
        n = min(size, B - start)
        for f in range(n):
            least[f] = low[first + start + f]
        for k in range(K):
            for f in range(n):
                V[k, f] = W[k, first + start + f]
        for _ in range(sweeps):
            for k in range(K):
                if A[k, k] <= 0:
                    continue
                for f in range(n):
                    s[f] = -b[k, start + f]
                for j in range(0, fours, 4):  # four at a time: s is read and written less often
                    a0, a1, a2, a3 = A[k, j], A[k, j + 1], A[k, j + 2], A[k, j + 3]
                    for f in range(n):
                        s[f] += (a0 * V[j, f] + a1 * V[j + 1, f]) + (a2 * V[j + 2, f] + a3 * V[j + 3, f])
                for j in range(fours, K):
                    a = A[k, j]
                    for f in range(n):
                        s[f] += a * V[j, f]
                a, u = A[k, k], unit[k]
                for f in range(n):
                    V[k, f] = max(V[k, f] - s[f] / a, u * least[f])
        for k in range(K):
            for f in range(n):
                W[k, first + start + f] = V[k, f]


def packed_product(A: Array, W: Array) -> Array:
    """A_f w_f for every feature f: A (P, F) packed, W (K, F)."""
    K, F = W.shape
    if A.shape != (K * (K + 1) // 2, F) or A.dtype != W.dtype:
        raise ValueError(f"shapes or types do not fit: A {A.shape} {A.dtype}, W {W.shape} {W.dtype}.")
    out = np.zeros_like(W, order="C")
    _packed_product(np.ascontiguousarray(A), np.ascontiguousarray(W), out)
    return out


@numba.njit(cache=True, nogil=True)
def _packed_product(A: Array, W: Array, out: Array) -> None:
    K, F = W.shape
    p = 0
    for j in range(K):
        for k in range(j, K):
            a, left, right = A[p], out[j], out[k]
            w, v = W[k], W[j]
            for f in range(F):
                left[f] += a[f] * w[f]
            if k != j:
                for f in range(F):
                    right[f] += a[f] * v[f]
            p += 1


def _require_contiguous(*arrays: Array) -> None:
    if not all(a.flags.c_contiguous for a in arrays):
        raise ValueError("arrays that a kernel overwrites or reads fast must be C-contiguous.")
