"""Quadratic programmes on the simplex: an active set with the equality among the free variables."""

from __future__ import annotations

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask
from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import VECTOR_SUMS, kernel
from onmf.coefficients.kernels.gram import SMALL_SYSTEMS, damping, solve_free


def least_squares_on_simplex(Q: Array, B: Array, size: float) -> Array:
    """Return argmin of h Q h' / 2 - b h' over h >= 0 with sum h = size, for every row b of B."""
    K = len(Q)
    M = np.array(Q, order="C")
    M[np.diag_indices(K)] += damping(K, Q.dtype) * np.trace(Q) / K
    B, H = np.ascontiguousarray(B), np.empty_like(B, order="C")

    def block(rows: slice) -> None:
        _least_squares_on_simplex(M, B[rows], H[rows], size)

    threads.each(block, threads.by_work(len(B), K**3, SMALL_SYSTEMS))
    return H


def directions_on_simplex(M: Array, G: Array, H: Array, size: float) -> tuple[Array, Mask]:
    """Return z - h for the z that minimises g (z - h)' + (z - h) M (z - h)' / 2 over z >= 0 with sum z = size = sum h.

    M (n, P) are packed Hessians. Return also which were positive definite; of the others the diagonal is taken.
    """
    n, K = H.shape
    D, positive, relative = np.zeros_like(H, order="C"), np.zeros(n, dtype=bool), damping(K, H.dtype)

    def block(rows: slice) -> None:
        _directions_on_simplex(M[rows], G[rows], H[rows], D[rows], positive[rows], size, relative)

    threads.each(block, threads.by_work(n, K**3, SMALL_SYSTEMS))
    return D, positive


@kernel("KK nK nK*", fastmath=VECTOR_SUMS)
def _least_squares_on_simplex(Q: Array, B: Array, H: Array, size: float) -> None:
    n, K = H.shape
    L, work = np.empty((K, K), dtype=H.dtype), np.empty((3, K), dtype=H.dtype)
    free = np.empty(K, dtype=np.int64)
    for i in range(n):
        _minimum(Q, B[i], H[i], L, work, free, size)


@kernel("nP nK nK nK* n*", fastmath=VECTOR_SUMS)
def _directions_on_simplex(
    M: Array, G: Array, H: Array, D: Array, positive: Mask, size: float, relative: float
) -> None:
    n, K = H.shape
    Q, L, work = np.empty((K, K), dtype=H.dtype), np.empty((K, K), dtype=H.dtype), np.empty((3, K), dtype=H.dtype)
    b, free = np.empty(K, dtype=H.dtype), np.empty(K, dtype=np.int64)
    for i in range(n):
        p = 0
        trace = size - size
        for j in range(K):
            for k in range(j, K):
                Q[j, k] = M[i, p]
                Q[k, j] = M[i, p]
                p += 1
            trace += abs(Q[j, j])
        for j in range(K):  # of its own size, and a little of the mean: a component of zeros has no curvature
            Q[j, j] += relative * (abs(Q[j, j]) + trace / K)
        for attempt in range(2):
            for j in range(K):
                b[j] = -G[i, j]
                for k in range(K):
                    b[j] += Q[j, k] * H[i, k]
            if _minimum(Q, b, D[i], L, work, free, size):
                positive[i] = attempt == 0
                break
            for j in range(K):
                for k in range(K):
                    if k != j:
                        Q[j, k] = 0
                    else:
                        Q[j, j] = abs(Q[j, j])
                if Q[j, j] <= 0:
                    Q[j, j] = 1
        for k in range(K):
            D[i, k] -= H[i, k]


@cached_njit(fastmath=VECTOR_SUMS)
def _minimum(Q: Array, b: Array, h: Array, L: Array, work: Array, free: Counts, size: float) -> bool:
    """Write argmin h Q h' / 2 - b h' over the simplex to h; return False if Q is not positive definite.

    First all variables are free, and those below zero leave until none is. From that point on of the simplex no step
    raises the objective: the variable with the steepest descent joins, and those leave that would pass zero.
    """
    K = len(b)
    x, y, slope = work[0], work[1], work[2]
    eps = np.finfo(h.dtype).eps
    m = K - K  # not a literal 0, for which solve_free would be compiled once more
    for k in range(K):
        h[k] = 0
        free[m] = k
        m += 1
    feasible, newest = False, -1
    for _ in range(4 * K + 20):
        if not _stationary(Q, b, free, m, L, x, y, size):
            return False
        if not feasible:
            kept = K - K
            for j in range(m):
                if x[j] > 0:
                    free[kept] = free[j]
                    kept += 1
            if kept < m and kept > 0:
                m = kept
                continue
            feasible = True
        else:
            length, block = size / size, -1
            for j in range(m):
                if x[j] < 0:
                    most = h[free[j]] / (h[free[j]] - x[j])
                    if most < length:
                        length, block = most, j
            if block >= 0:
                leaving = free[block]
                if leaving == newest and length <= eps:  # rounding alone had it join
                    break
                for j in range(m):
                    h[free[j]] += length * (x[j] - h[free[j]])
                h[leaving] = 0
                for j in range(block, m - 1):
                    free[j] = free[j + 1]
                m -= 1
                continue
        for j in range(m):
            h[free[j]] = max(x[j], size - size)
        newest = _steepest(Q, b, h, free, m, slope)
        if newest < 0 or m == K:
            break
        free[m] = newest
        m += 1
    total = size - size
    for k in range(K):
        total += h[k]
    for k in range(K):  # rounding
        h[k] *= size / total
    return True


@cached_njit(fastmath=VECTOR_SUMS)
def _stationary(Q: Array, b: Array, free: Counts, m: int, L: Array, x: Array, y: Array, size: float) -> bool:
    """Write the minimum over the free variables with sum x = size, Q^-1 (b + nu), to x[:m]; False if a pivot fails."""
    if m == 1:  # whatever b is, and however large
        x[0] = size
        return bool(Q[free[0], free[0]] > 0)
    if not solve_free(Q, b, free, m, L, x):
        return False
    for i in range(m):
        s = size / size
        for k in range(i):
            s -= L[i, k] * y[k]
        y[i] = s / L[i, i]
    for i in range(m - 1, -1, -1):
        s = y[i]
        for k in range(i + 1, m):
            s -= L[k, i] * y[k]
        y[i] = s / L[i, i]
    missing, ones = size, size - size
    for i in range(m):
        missing -= x[i]
        ones += y[i]
    for i in range(m):
        x[i] += missing / ones * y[i]
    return True


@cached_njit(fastmath=VECTOR_SUMS)
def _steepest(Q: Array, b: Array, h: Array, free: Counts, m: int, slope: Array) -> int:
    """Return the bound variable whose slope is farthest below that of the free ones, by more than rounding, or -1."""
    K = len(b)
    noise = 16 * np.finfo(h.dtype).eps
    level, largest = b[0] - b[0], b[0] - b[0]
    for k in range(K):
        s = -b[k]
        largest = max(largest, abs(s))
        for j in range(m):
            s += Q[k, free[j]] * h[free[j]]
        slope[k] = s
    for j in range(m):
        level += slope[free[j]] / m
        slope[free[j]] = np.inf
    least, where = level - noise * (largest + abs(level)), -1
    for k in range(K):
        if slope[k] < least:
            least, where = slope[k], k
    return where
