"""Small K x K problems, one per sample: least squares on Gram matrices and Newton's directions, with their products."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask
from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import CSR, VECTOR_SUMS, kernel

SMALL_SYSTEMS = 4e5  # multiplications, roughly, that make a thread worthwhile
SIDE = 8  # samples solved side by side
FEW = 12  # samples, for which packed products of all pairs of components would not pay off
FEATURES = 128  # whose packed products of components stay in the cache
NEAR = 0.1  # of the mean coefficient: how close to its lower bound a coefficient may count as bound


@kernel("KK nK nK* nK n n* n*")
def projected_gradient_on_gram(
    Q: Array,
    B: Array,
    H: Array,
    reach: Array,
    tolerance: Array,
    iterations: Counts,
    converged: Mask,
    step: float,
    low: float,
    high: float,
    max_iter: int,
) -> None:
    """Minimise h Q h' / 2 - b h' over low <= h <= high for every row b of B, in place in H, by h <- P(h - step grad).

    A sample stops when ``remaining_gain`` (see ``onmf.coefficients.base``) falls to its tolerance. ``iterations`` and
    ``converged`` hold zeros before.
    """
    n, K = H.shape
    zero = low - low
    g = np.empty(K, dtype=H.dtype)
    for i in range(n):
        h = H[i]
        for _ in range(max_iter):
            for k in range(K):
                g[k] = -B[i, k]
            for j in range(K):
                if h[j] != zero:
                    for k in range(K):
                        g[k] += h[j] * Q[j, k]
            gain = zero
            for k in range(K):
                if g[k] > zero:
                    gain += g[k] * (h[k] - low)
                else:
                    gain -= g[k] * min(max(reach[i, k] - h[k], h[k]), high - h[k])
            if gain <= tolerance[i]:
                converged[i] = True
                break
            iterations[i] += 1
            for k in range(K):
                h[k] = min(max(h[k] - step * g[k], low), high)


def damping(K: int, dtype: np.dtype[Any]) -> float:
    """Return the share of its mean diagonal that keeps a singular K x K system solvable, without being seen.

    It is above rounding; in single precision there is little room between the two.
    """
    return min(1e4 * float(np.finfo(dtype).eps), 1e-6 * K)


def nnls_on_gram(Q: Array, B: Array, max_iter: int = 60, lift: float = 0.0) -> Array:
    """Return argmin over h >= 0 of h Q h' / 2 - b h' for every row b of B, by block principal pivoting.

    Coefficients below ``lift`` times the mean of their row are raised to it.
    """
    n, K = len(B), len(Q)
    H, relative = np.empty((n, K), dtype=B.dtype), damping(K, B.dtype)

    def block(rows: slice) -> None:
        _nnls_on_gram(Q, B[rows], H[rows], relative, lift, max_iter)

    threads.each(block, threads.by_work(n, K**3, SMALL_SYSTEMS))
    return H


def nnls_on_grams(M: Array, B: Array, max_iter: int = 60) -> Array:
    """Return the minima of ``nnls_on_gram`` where every row b has a matrix of its own: M (n, P), packed."""
    n, K = B.shape
    H, relative = np.empty((n, K), dtype=B.dtype), damping(K, B.dtype)

    def block(rows: slice) -> None:
        _nnls_on_grams(M[rows], B[rows], H[rows], relative, max_iter)

    threads.each(block, threads.by_work(n, K**3, SMALL_SYSTEMS))
    return H


@cached_njit()
def _unpack(packed: Array, Q: Array) -> None:
    """Fill the symmetric Q (K, K) from its upper triangle, row by row."""
    p = 0
    for j in range(len(Q)):
        for k in range(j, len(Q)):
            Q[j, k] = packed[p]
            Q[k, j] = packed[p]
            p += 1


@cached_njit(fastmath=VECTOR_SUMS)
def _factor(Q: Array, L: Array) -> None:
    """Compute Q = L D L', whether Q is positive or not: D on the diagonal of L, both L and L' beside it."""
    for i in range(len(Q)):
        d = Q[i, i]
        for j in range(i):
            s = Q[i, j]
            for k in range(j):
                s -= L[i, k] * L[j, k]
            L[i, j] = s  # times D until the row is complete
        for j in range(i):
            s = L[i, j] / L[j, j]
            d -= s * L[i, j]
            L[i, j] = s
            L[j, i] = s
        L[i, i] = d if d != 0 else 1  # a component of zeros has no equation


@cached_njit()
def _solve_factored(L: Array, B: Array, H: Array) -> None:
    """Solve h = Q^-1 b for every row b of B by the factors of Q, several rows side by side for the vector unit."""
    n, K = B.shape
    x, s = np.empty((K, SIDE), dtype=H.dtype), np.empty(SIDE, dtype=H.dtype)
    for first in range(0, n, SIDE):
        for i in range(K):
            for r in range(SIDE):
                s[r] = B[min(first + r, n - 1), i]  # the last one again, where there are fewer
            for k in range(i):
                for r in range(SIDE):
                    s[r] -= L[i, k] * x[k, r]
            for r in range(SIDE):
                x[i, r] = s[r]
        for i in range(K - 1, -1, -1):
            for r in range(SIDE):
                s[r] = x[i, r] / L[i, i]
            for k in range(i + 1, K):
                for r in range(SIDE):
                    s[r] -= L[i, k] * x[k, r]
            for r in range(SIDE):
                x[i, r] = s[r]
        for r in range(min(SIDE, n - first)):
            for i in range(K):
                H[first + r, i] = x[i, r]


@cached_njit(fastmath=VECTOR_SUMS)
def solve_free(Q: Array, b: Array, free: Counts, n: int, L: Array, x: Array) -> bool:
    """Solve x[:n] = Q[free, free]^-1 b[free] by Cholesky; return False if a pivot fails."""
    for i in range(n):
        fi = free[i]
        for j in range(i + 1):
            s = Q[fi, free[j]]
            for k in range(j):
                s -= L[i, k] * L[j, k]
            if i == j:
                if s <= 0:
                    return False
                L[i, i] = np.sqrt(s)
            else:
                L[i, j] = s / L[j, j]
    for i in range(n):
        s = b[free[i]]
        for k in range(i):
            s -= L[i, k] * x[k]
        x[i] = s / L[i, i]
    for i in range(n - 1, -1, -1):
        s = x[i]
        for k in range(i + 1, n):
            s -= L[k, i] * x[k]
        x[i] = s / L[i, i]
    return True


@kernel("KK nK nK*", fastmath=VECTOR_SUMS)
def _nnls_on_gram(Q: Array, B: Array, H: Array, relative: float, lift: float, max_iter: int) -> None:
    n, K = H.shape
    Q = Q.copy()
    trace = relative - relative
    for k in range(K):
        trace += Q[k, k]
    for k in range(K):
        Q[k, k] += relative * trace / K
    whole = np.empty((K, K), dtype=H.dtype)
    _factor(Q, whole)
    _solve_factored(whole, B, H)
    L = np.empty((K, K), dtype=H.dtype)
    x = np.empty(K, dtype=H.dtype)
    free = np.empty(K, dtype=np.int64)
    passive = np.empty(K, dtype=np.bool_)
    wrong = np.empty(K, dtype=np.bool_)
    for i in range(n):
        h = H[i]
        b = B[i]
        for k in range(K):
            passive[k] = h[k] > 0
        fewest = K + 1
        patience = 3
        for _ in range(max_iter):
            m = K - K  # not a literal 0, for which solve_free would be compiled once more
            for k in range(K):
                if passive[k]:
                    free[m] = k
                    m += 1
            if not solve_free(Q, b, free, m, L, x):
                break
            for k in range(K):
                h[k] = 0
            for j in range(m):
                h[free[j]] = x[j]
            count = 0
            last = -1
            for k in range(K):
                if passive[k]:
                    wrong[k] = h[k] < 0
                else:
                    g = -b[k]
                    for j in range(m):
                        g += Q[k, free[j]] * x[j]
                    wrong[k] = g < 0
                if wrong[k]:
                    count += 1
                    last = k
            if count == 0:
                break
            if count < fewest:
                fewest = count
                patience = 3
            elif patience > 0:
                patience -= 1
            else:  # Murty's rule, which always ends: only the last wrong one changes sides
                for k in range(last):
                    wrong[k] = False
            for k in range(K):
                if wrong[k]:
                    passive[k] = not passive[k]
        total = relative - relative
        for k in range(K):
            h[k] = max(h[k], 0)
            total += h[k]
        if lift > 0:
            for k in range(K):
                h[k] = max(h[k], lift * (total / K))


_nnls = _nnls_on_gram.compiled  # type: ignore[attr-defined]  # what has been checked need not be again


@kernel("nP nK nK*")
def _nnls_on_grams(M: Array, B: Array, H: Array, relative: float, max_iter: int) -> None:
    n, K = H.shape
    Q = np.empty((K, K), dtype=H.dtype)
    for i in range(n):
        _unpack(M[i], Q)
        _nnls(Q, B[i : i + 1], H[i : i + 1], relative, relative - relative, max_iter)


def remaining_gains(H: Array, G: Array, reach: Array, low: float, high: float) -> Array:
    """Return sum_k max(g_k, 0) (h_k - low) + max(-g_k, 0) min(max(r_k - h_k, h_k), high - h_k) for every row: (n,)."""
    gains = np.empty(len(H), dtype=H.dtype)
    _remaining_gains(H, G, reach, gains, low, high)
    return gains


@kernel("nK nK nK n*")
def _remaining_gains(H: Array, G: Array, reach: Array, gains: Array, low: float, high: float) -> None:
    n, K = H.shape
    for i in range(n):
        gain = low - low
        for k in range(K):
            h, g = H[i, k], G[i, k]
            gain += g * (h - low) if g > 0 else -g * min(max(reach[i, k] - h, h), high - h)
        gains[i] = gain


def newton_directions(M: Array, G: Array, H: Array, low: float, high: float) -> tuple[Array, Mask]:
    """Return projected-Newton directions for packed Hessians M (n, P), gradients G and points H (n, K) in [low, high].

    A coefficient near its lower bound that its own Newton step -g_k / M_kk would take there goes there, and stays out
    of the linear system for the others (after Bertsekas 1982): otherwise the projected arc need not descend. Being near
    is not enough, since a sample's coefficients may differ by ten orders of magnitude; for the same reason each M_kk is
    damped in proportion to itself. At the upper bound, which is seldom met, a step that passes it is enough.

    Return also which Hessians were positive definite on the rest; without that, the directions are those own steps.
    """
    n, K = H.shape
    D, positive, relative = np.zeros((n, K), dtype=H.dtype), np.zeros(n, dtype=bool), damping(K, H.dtype)

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
        _unpack(M[i], Q)
        for j in range(K):
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
    """Compute HW at the non-zeros of the rows of X from ``first`` to ``last``."""
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
    """Add the sum of c w_f w_f' over the entries of each sample, packed; C has a weight c for each of them."""
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


def pack(V: Array) -> Array:
    """Return the products v_j v_k of the rows of V (K, m), j <= k, row by row of the upper triangle: (P, m)."""
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


_packed = _pack.compiled  # type: ignore[attr-defined]


@kernel("nF KF nP*")
def weighted_grams(C: Array, W: Array, out: Array, first: int, last: int) -> None:
    """Compute the sums of c_nf w_f w_f' over the features from ``first`` to ``last``, packed, for every row of C.

    One call for many products: threads that take turns in Python between them wait for each other.
    """
    n, F = C.shape
    if not 0 <= first < last <= F:
        raise ValueError("shapes do not fit: there are no such features.")
    if n < FEW:
        some = W[:, first:last].copy()
        for i in range(n):
            M = np.dot(some * C[i, first:last], some.T)
            p = 0
            for j in range(len(W)):
                for k in range(j, len(W)):
                    out[i, p] = M[j, k]
                    p += 1
        return
    blocks = (last - first + FEATURES - 1) // FEATURES
    for i in range(blocks):
        f = slice(first + (last - first) * i // blocks, first + (last - first) * (i + 1) // blocks)
        products = np.empty((out.shape[1], f.stop - f.start), dtype=C.dtype)
        _packed(W[:, f].copy(), products)
        if i == 0:
            np.dot(C[:, f].copy(), products.T, out)
        else:
            out += np.dot(C[:, f].copy(), products.T)
