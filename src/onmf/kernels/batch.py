"""One iteration of batch multiplicative updates on sparse samples, for the alpha family."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.kernels.gram import VECTOR_SUMS
from onmf.kernels.multiplicative import atoms_at, fit_at, power, require_sparse_problem, room


def multiplicative_iteration(
    X: Any, H: Array, Wt: Array, mass: Array, order: float, low: float, rows: slice, out: tuple[Array, Array]
) -> None:
    """One step of some rows of H, in place, for a CSR matrix X.

    ``out`` takes the fits before it and (x / y)^order after it, at X's entries.
    """
    require_sparse_problem(X, H, Wt, mass)
    if any(a.shape != X.data.shape or a.dtype != H.dtype for a in out):
        raise ValueError("what is put out must be as long as X's entries, and of their type.")
    number: Any = H.dtype.type
    numbers = number(order), number(1.0 / order), number(low)
    first, last, _ = rows.indices(len(H))
    _iteration(X.indptr, X.indices, X.data, H, Wt, mass, *numbers, first, last, *out)


@numba.njit(cache=True, nogil=True, fastmath=VECTOR_SUMS)
def _iteration(
    indptr: Counts,
    indices: Counts,
    data: Array,
    H: Array,
    Wt: Array,
    mass: Array,
    order: float,
    inverse: float,
    low: float,
    first: int,
    last: int,
    before: Array,
    after: Array,
) -> None:
    K = H.shape[1]
    W, y = room(indptr, K, first, last, H)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        old, new = before[start : start + m], after[start : start + m]
        atoms_at(indices[start : start + m], Wt, W)
        fit_at(h, W, m, y)
        for p in range(m):
            old[p] = max(y[p], low)
            y[p] = x[p] / old[p]
        if order != 1:
            for p in range(m):
                y[p] = power(y[p], order)
        for k in range(K):
            w = W[k]
            total = low - low
            for p in range(m):
                total += y[p] * w[p]
            h[k] *= power(total / mass[k], inverse)
        fit_at(h, W, m, y)
        for p in range(m):
            new[p] = x[p] / max(y[p], low)
        if order != 1:
            for p in range(m):
                new[p] = power(new[p], order)


def gather(columns: tuple[Counts, Counts, Counts], entries: Array, H: Array, features: slice, out: Array) -> None:
    """out_f = sum of e h over the entries e of feature f and the coefficients h of their samples: rows of E'H.

    ``columns`` are where the entries of each feature begin, their samples, and their places in ``entries``.
    """
    indptr, rows, places = columns
    F, K = out.shape
    fits = len(indptr) == F + 1 and rows.shape == entries.shape == places.shape and H.shape[1] == K
    if not fits or not H.dtype == out.dtype == entries.dtype:
        raise ValueError(
            f"shapes or types do not fit: {len(indptr) - 1} columns, H {H.shape} {H.dtype}, out {out.shape}."
        )
    first, last, _ = features.indices(F)
    _gather(indptr, rows, places, entries, np.ascontiguousarray(H), first, last, out)


@numba.njit(cache=True, nogil=True)
def _gather(
    indptr: Counts, rows: Counts, places: Counts, entries: Array, H: Array, first: int, last: int, out: Array
) -> None:
    K = H.shape[1]
    total = np.empty(K, dtype=H.dtype)
    for f in range(first, last):
        for k in range(K):
            total[k] = 0
        for p in range(indptr[f], indptr[f + 1]):
            e, h = entries[places[p]], H[rows[p]]
            for k in range(K):
                total[k] += e * h[k]
        for k in range(K):
            out[f, k] = total[k]
