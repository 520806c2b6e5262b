"""Products at the non-zeros of a CSR matrix."""

from __future__ import annotations

import numba
import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.kernels.gram import VECTOR_SUMS


def sampled_product(indptr: Counts, indices: Counts, H: Array, Wt: Array) -> Array:
    """(HW) at the positions of a CSR matrix; Wt is (F, K)."""
    if len(indptr) != len(H) + 1 or H.shape[1] != Wt.shape[1]:
        raise ValueError(f"shapes do not fit: {len(indptr) - 1} rows, H {H.shape}, W' {Wt.shape}.")
    out = np.empty(len(indices), dtype=H.dtype)
    _sampled_product(indptr, indices, np.ascontiguousarray(H), Wt, out)
    return out


@numba.njit(cache=True, nogil=True, fastmath=VECTOR_SUMS)
def _sampled_product(indptr: Counts, indices: Counts, H: Array, Wt: Array, out: Array) -> None:
    n, K = H.shape
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            y = H[i, 0] * Wt[f, 0]
            for k in range(1, K):
                y += H[i, k] * Wt[f, k]
            out[p] = y


def sampled_hessians(indptr: Counts, indices: Counts, C: Array, Wt: Array) -> Array:
    """sum over a row's entries of c w_f w_f', packed."""
    K = Wt.shape[1]
    if len(C) != len(indices):
        raise ValueError(f"shapes do not fit: {len(indices)} entries, {len(C)} curvatures.")
    out = np.zeros((len(indptr) - 1, K * (K + 1) // 2), dtype=C.dtype)
    _sampled_hessians(indptr, indices, C, Wt, out)
    return out


@numba.njit(cache=True, nogil=True)
def _sampled_hessians(indptr: Counts, indices: Counts, C: Array, Wt: Array, out: Array) -> None:
    K = Wt.shape[1]
    for i in range(len(indptr) - 1):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            w = Wt[indices[p]]
            q = 0
            for j in range(K):
                a = C[p] * w[j]
                for k in range(j, K):
                    row[q] += a * w[k]
                    q += 1
