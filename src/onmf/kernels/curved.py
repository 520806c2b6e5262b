"""Quadratic models per feature of sparse samples: averaged, and minimised near the old weights."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array
from onmf.kernels.checked import CSR, VECTOR_SUMS, kernel


@kernel("Fnm m m nK FP FK FK F K K FP* FK* FK*", fastmath=VECTOR_SUMS)
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
    sweeps: int,
    first: int,
    last: int,
) -> None:
    """For the features from ``first`` to ``last``: A = keep uu'A + gain sum c h h', b = keep ub + gain sum s h, and
    sweeps on

        w A w' / 2 - (b - D) w' + damping / 2 sum_k D_k (w_k - v_k)^2 / v_k   over w >= low

    from the old weights v. ``columns`` is the CSR matrix of the entries' places in ``slopes`` (s) and ``curvatures``
    (c), a row per feature; A is packed.
    """
    indptr, rows, places, _ = columns
    K = H.shape[1]
    if not 0 <= first <= last <= len(b):
        raise ValueError("shapes do not fit: there are no such features.")
    M = np.empty((K, K), dtype=H.dtype)  # A, unpacked
    pull, weak = np.empty(K, dtype=H.dtype), np.empty(K, dtype=H.dtype)
    for f in range(first, last):
        old, new, least, total = Wt[f], Wt_new[f], low[f], b_new[f]
        M[:] = 0
        total[:] = 0
        for p in range(indptr[f], indptr[f + 1]):
            h, s, c = H[rows[p]], slopes[places[p]], curvatures[places[p]]
            for k in range(K):
                total[k] += s * h[k]
            for j in range(K):
                a = c * h[j]
                row = M[j]
                for k in range(K):
                    row[k] += a * h[k]
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
            new[k] = max(old[k], least)
            weak[k] = damping * D[k] / new[k]
            M[k, k] += weak[k]
            pull[k] = total[k] - D[k] + weak[k] * new[k]
        for _ in range(sweeps):
            for k in range(K):
                row = M[k]
                s = -pull[k]
                for j in range(K):
                    s += row[j] * new[j]
                if row[k] > 0:
                    new[k] = max(new[k] - s / row[k], least)
