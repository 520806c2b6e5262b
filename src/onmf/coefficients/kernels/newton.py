"""Newton's directions, and products at the stored entries of a CSR matrix."""

from __future__ import annotations

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Mask
from onmf.coefficients.kernels.compiled import CSR, VECTOR_SUMS, kernel
from onmf.coefficients.kernels.gram import SMALL_SYSTEMS, damping, solve_free

NEAR = 0.1  # of the mean coefficient: how close to its lower bound a coefficient may count as bound


def newton_directions(M: Array, G: Array, H: Array, low: float, high: float) -> tuple[Array, Mask]:
    """Projected-Newton directions for packed Hessians M (n, P), gradients G and points H (n, K) in [low, high].

    A coefficient near its lower bound that its own Newton step -g_k / M_kk would take there goes there, and stays out
    of the linear system for the others (after Bertsekas 1982): otherwise the projected arc need not descend. Being near
    is not enough, since a sample's coefficients may differ by ten orders of magnitude; for the same reason each M_kk is
    damped in proportion to itself. At the upper bound, which is seldom met, a step that passes it is enough.

    Also which Hessians were positive definite on the rest; without that, the directions are those own steps.
    """
    n, K = H.shape
    D, positive, relative = np.zeros_like(H), np.zeros(n, dtype=bool), damping(K, H.dtype)

    def block(rows: slice) -> None:
        _newton_directions(M[rows], G[rows], H[rows], D[rows], positive[rows], low, high, relative, NEAR)

    threads.each(block, threads.by_work(n, K**3, SMALL_SYSTEMS))
    return D, positive


@kernel("nP nK nK nK* n*")
def _newton_directions(
    M: Array,
    G: Array,
    H: Array,
    D: Array,
    positive: Mask,
    low: float,
    high: float,
    relative: float,
    near_share: float,
) -> None:
    n, K = H.shape
    Q = np.empty((K, K), dtype=H.dtype)
    L = np.empty((K, K), dtype=H.dtype)
    x = np.empty(K, dtype=H.dtype)
    free = np.empty(K, dtype=np.int64)
    for i in range(n):
        p = 0
        for j in range(K):
            for k in range(j, K):
                Q[j, k] = M[i, p]
                Q[k, j] = M[i, p]
                p += 1
            Q[j, j] += relative * abs(Q[j, j])
        near = low - low
        for k in range(K):
            near += near_share * H[i, k] / K
        m = K - K  # not a literal 0, for which solve_free would be compiled once more
        for k in range(K):
            g = G[i, k]
            if g == 0 and Q[k, k] == 0:  # a component of zeros
                continue
            if g > 0 and H[i, k] - low <= near and (H[i, k] - low) * Q[k, k] <= g:
                D[i, k] = low - H[i, k]
            elif g < 0 and Q[k, k] > 0 and (high - H[i, k]) * Q[k, k] <= -g:
                D[i, k] = high - H[i, k]
            else:
                free[m] = k
                m += 1
        positive[i] = solve_free(Q, G[i], free, m, L, x)
        for j in range(m):
            k = free[j]
            if positive[i]:
                D[i, k] = -x[j]
            elif Q[k, k] != 0:
                D[i, k] = -G[i, k] / abs(Q[k, k])


@kernel("nFm nK FK m*", fastmath=VECTOR_SUMS)
def sampled_product(X: CSR, H: Array, Wt: Array, out: Array, first: int, last: int) -> None:
    """HW at the non-zeros of the rows of X from ``first`` to ``last``."""
    indptr, indices, _, _ = X
    n, K = H.shape
    if not 0 <= first <= last <= n:
        raise ValueError("shapes do not fit: X does not have these rows.")
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            y = H[i, 0] * Wt[f, 0]
            for k in range(1, K):
                y += H[i, k] * Wt[f, k]
            out[p] = y


@kernel("nFm m FK nP*")
def sampled_hessians(X: CSR, C: Array, Wt: Array, out: Array) -> None:
    """out += sum of c w_f w_f' over the entries of each sample, packed; C has a weight c for each of them."""
    indptr, indices, _, _ = X
    K = Wt.shape[1]
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            w = Wt[indices[p]]
            q = 0
            for j in range(K):
                a = C[p] * w[j]
                for k in range(j, K):
                    row[q] += a * w[k]
                    q += 1
