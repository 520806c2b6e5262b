"""Steps of the dictionary: quadratic models averaged and swept."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import CSR, VECTOR_SUMS, kernel

SIDE_BY_SIDE = 56  # features that are swept at a time: an odd number of cache lines, lest rows share places in it
OUTSIDE = "shapes do not fit: some of the columns do not exist."


@kernel("pF* pB*")
def blend(A: Array, news: Array, first: int, keep: float, gain: float) -> None:
    """Compute keep * A + gain * news for the columns of A from ``first`` on, in place in both."""
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
    """Minimise w A_f w' / 2 - b_f w' over unit_k low_f <= w_k <= unit_k high by coordinate descent, from ``first`` on.

    It works in place in W (K, F), on as many columns as b (K, B) has. A is (P, B), packed, or (K, K) if the features
    share it. The weights of the first ``fixed`` components stay.
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


_blended, _swept = blend.compiled, _sweep.compiled  # type: ignore[attr-defined]  # what has been checked need not be again


@kernel("Pn Kn nF nF a* KF* KF* F K e")
def averaged_step(
    outer: Array,
    Ht: Array,
    C: Array,
    targets: Array,
    A: Array,
    b: Array,
    V: Array,
    low: Array,
    unit: Array,
    edges: Counts,
    keep: float,
    gain: float,
    high: float,
    sweeps: int,
    first: int,
    last: int,
    fixed: int,
) -> None:
    """Average the products outer C and Ht targets into A and b, and sweep V, for the blocks ``first`` to ``last``.

    Block i has the features from edges[i] to edges[i + 1]; A holds the packed matrices block by block. One call for
    many blocks: threads that take turns in Python between them wait for each other.
    """
    P, F = len(outer), C.shape[1]
    if not 0 <= first <= last < len(edges) or edges[0] < 0 or edges[-1] > F or len(A) != P * F:
        raise ValueError(OUTSIDE)
    for i in range(first, last):
        f = slice(edges[i], edges[i + 1])
        matrices, slopes = np.dot(outer, C[:, f].copy()), np.dot(Ht, targets[:, f].copy())
        _blended(b, slopes, f.start, keep, gain)
        _blended(A[P * f.start : P * f.stop].reshape((P, f.stop - f.start)), matrices, 0, keep, gain)
        _swept(matrices, slopes, V, low, unit, high, f.start, sweeps, fixed)


def packed_product(A: Array, W: Array) -> Array:
    """Return A_f w_f for every feature f: A (P, F) packed, W (K, F)."""
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


@kernel("Fnm m m nK nP FK FP FK F DK K FP* FK* FK*", fastmath=VECTOR_SUMS, error_model="numpy")
def curved_step(
    columns: CSR,
    slopes: Array,
    curvatures: Array,
    H: Array,
    HH: Array,
    Wt: Array,
    A: Array,
    b: Array,
    low: Array,
    D: Array,
    unit: Array,
    A_new: Array,
    b_new: Array,
    Wt_new: Array,
    keep: float,
    gain: float,
    damping: float,
    l1: float,
    l2: float,
    high: float,
    sweeps: int,
    first: int,
    last: int,
    fixed: int,
) -> None:
    """Average A = keep uu'A + gain sum c h h' and b = keep ub + gain sum s h for some features, and make sweeps on

        w A w' / 2 - (b - D) w' + damping / 2 sum_k D_k (w_k - v_k)^2 / v_k + l1 sum_k w_k + l2 / 2 ||w||^2

    over low <= w <= high, from the old weights v, for the features from ``first`` to ``last``. ``columns`` is the CSR
    matrix of the entries' places in ``slopes`` (s) and ``curvatures`` (c), a row per feature; A and the matrices h h'
    in HH are packed. D has a row per feature, or one for all. The weights of the first ``fixed`` components stay.
    """
    indptr, rows, places, _ = columns
    P, K = HH.shape[1], H.shape[1]
    if not 0 <= first <= last <= len(b) or (len(D) != 1 and len(D) != len(b)):
        raise ValueError("shapes do not fit: there are no such features.")
    kept, packed = np.empty(P, dtype=A.dtype), np.empty((K, K), dtype=np.int64)
    q = 0
    for j in range(K):
        for k in range(j, K):
            packed[j, k], packed[k, j], kept[q] = q, q, keep * unit[j] * unit[k]
            q += 1
    # Models, weights and linear terms of some features side by side: loops over one feature's components are short.
    room = np.empty((P + 2 * K + 2, SIDE_BY_SIDE), dtype=A.dtype)
    M, V, linear, least, s = room[:P], room[P : P + K], room[P + K : P + 2 * K], room[P + 2 * K], room[P + 2 * K + 1]
    for start in range(first, last, SIDE_BY_SIDE):
        n = min(SIDE_BY_SIDE, last - start)
        for i in range(n):
            f = start + i
            total, square, sums = b_new[f], A_new[f], D[f] if len(D) > 1 else D[0]
            for q in range(P):
                square[q] = kept[q] * A[f, q]
            for k in range(K):
                total[k] = keep * unit[k] * b[f, k]
            end = indptr[f + 1]
            fours = end - (end - indptr[f]) % 4
            for p in range(indptr[f], fours, 4):  # four entries at a time: A is read and written less often
                e, r = places[p : p + 4], rows[p : p + 4]
                _add_four(square, gain, curvatures, e, HH, r)
                _add_four(total, gain, slopes, e, H, r)
            for p in range(fours, end):
                c, g, hh, h = gain * curvatures[places[p]], gain * slopes[places[p]], HH[rows[p]], H[rows[p]]
                for q in range(P):
                    square[q] += c * hh[q]
                for k in range(K):
                    total[k] += g * h[k]
            for q in range(P):
                M[q, i] = square[q]
            least[i] = low[f]
            for k in range(K):
                w = Wt[f, k] if k < fixed else max(Wt[f, k], low[f])
                pull = damping * sums[k]  # the last term's curvature times the old weight, where its slope is zero
                V[k, i], linear[k, i] = w, sums[k] - total[k] + l1 - pull
                M[packed[k, k], i] += l2 + pull / w
        for _ in range(sweeps):
            for k in range(fixed, K):
                for i in range(n):
                    s[i] = linear[k, i]
                for j in range(K):
                    m, v = M[packed[k, j]], V[j]
                    for i in range(n):
                        s[i] += m[i] * v[i]
                m, v = M[packed[k, k]], V[k]
                for i in range(n):
                    v[i] = min(max(v[i] - s[i] / m[i], least[i]), high) if m[i] > 0 else v[i]
        for i in range(n):
            for k in range(K):
                Wt_new[start + i, k] = V[k, i]


@cached_njit(fastmath=VECTOR_SUMS)
def _add_four(total: Array, gain: float, numbers: Array, e: Array, V: Array, i: Array) -> None:
    """Add gain times four of the numbers, e, each times a row of V, i."""
    a, b, c, d = gain * numbers[e[0]], gain * numbers[e[1]], gain * numbers[e[2]], gain * numbers[e[3]]
    v, w, x, y = V[i[0]], V[i[1]], V[i[2]], V[i[3]]
    for k in range(len(total)):
        total[k] += (a * v[k] + b * w[k]) + (c * x[k] + d * y[k])
