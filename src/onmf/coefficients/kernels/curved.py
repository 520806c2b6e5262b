"""Quadratic models per feature of sparse samples: averaged, and minimised near the old weights."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.kernels.checked import CSR, VECTOR_SUMS, kernel

FOUR = 4


@kernel("Fnm m m nK FP FK FK F DK K FP* FK* FK*", fastmath=VECTOR_SUMS)
def curved_step(
    columns: CSR,
    slopes: Array,
    curvatures: Array,
    H: Array,
    A: Array,
    b: Array,
    Wt: Array,
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
    """For the features from ``first`` to ``last``: A = keep uu'A + gain sum c h h', b = keep ub + gain sum s h, and
    sweeps on

        w A w' / 2 - (b - D) w' + damping / 2 sum_k D_k (w_k - v_k)^2 / v_k + l1 sum_k w_k + l2 / 2 ||w||^2

    over low <= w <= high, from the old weights v. ``columns`` is the CSR matrix of the entries' places in ``slopes``
    (s) and ``curvatures`` (c), a row per feature; A is packed. D has a row per feature, or one for all. The
    weights of the first ``fixed`` atoms stay.
    """
    indptr, rows, places, _ = columns
    K = H.shape[1]
    if not 0 <= first <= last <= len(b) or (len(D) != 1 and len(D) != len(b)):
        raise ValueError("shapes do not fit: there are no such features.")
    M, h = np.empty((K, K), dtype=H.dtype), np.zeros((FOUR, K), dtype=H.dtype)  # M: A, unpacked
    c, slope = np.empty(FOUR, dtype=H.dtype), np.empty(K, dtype=H.dtype)
    for f in range(first, last):
        old, new, least, total = Wt[f], Wt_new[f], low[f], b_new[f]
        sums = D[f] if len(D) > 1 else D[0]
        M[:] = 0
        total[:] = 0
        for start in range(indptr[f], indptr[f + 1], FOUR):  # four entries at a time: M is read and written less often
            c[:] = 0
            for i in range(min(FOUR, indptr[f + 1] - start)):
                place, coefficients = places[start + i], H[rows[start + i]]
                c[i] = curvatures[place]
                for k in range(K):
                    h[i, k] = coefficients[k]
                    total[k] += slopes[place] * coefficients[k]
            h0, h1, h2, h3 = h[0], h[1], h[2], h[3]
            for j in range(K):
                a0, a1, a2, a3, row = c[0] * h0[j], c[1] * h1[j], c[2] * h2[j], c[3] * h3[j], M[j]
                for k in range(K):
                    row[k] += (a0 * h0[k] + a1 * h1[k]) + (a2 * h2[k] + a3 * h3[k])
        q = 0
        for j in range(K):
            total[j] = keep * unit[j] * b[f, j] + gain * total[j]
            for k in range(j, K):
                a = keep * unit[j] * unit[k] * A[f, q] + gain * M[j, k]
                A_new[f, q] = a
                M[j, k] = a
                M[k, j] = a
                q += 1
        for k in range(K):
            new[k] = old[k] if k < fixed else max(old[k], least)
            slope[k] = sums[k] - total[k] + l1
            M[k, k] += l2
        for k in range(K):  # M is symmetric: its columns are its rows
            w, row = new[k], M[k]
            for j in range(K):
                slope[j] += w * row[j]
        for k in range(fixed, K):  # from here on M has the last term's curvature; its slope is zero at the old weights
            M[k, k] += damping * sums[k] / new[k]
        for _ in range(sweeps):
            for k in range(fixed, K):
                row = M[k]
                if row[k] <= 0:
                    continue
                w = min(max(new[k] - slope[k] / row[k], least), high)
                change = w - new[k]
                if change != 0:  # most weights are, and stay, at their floor
                    new[k] = w
                    for j in range(K):
                        slope[j] += change * row[j]
