"""Multiplicative steps of the alpha family on sparse samples, and the division that gives its dictionary.

The only kernels that know a divergence, by its exponent ``order`` (1 for Kullback-Leibler, 1/2 for Hellinger): the
same steps as sparse products and elementwise formulas take several times as long (docs/decisions/0004-fast-methods.md).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from onmf.arrays import Array, Counts
from onmf.kernels.gram import VECTOR_SUMS


@numba.njit(cache=True, nogil=True)
def _power(x: Any, order: Any) -> Any:
    if order == 1:
        return x
    if order == 0.5:
        return np.sqrt(x)
    if order == 2:
        return x * x
    return x**order


def multiplicative_steps(
    X: Any, H: Array, Wt: Array, mass: Array, order: float, low: float, high: float, steps: int, rows: slice
) -> None:
    """h_k <- h_k (sum_f W_kf (x_f / y_f)^order / mass_k)^(1/order), ``steps`` times, in place in some rows of H.

    X is CSR.
    """
    n, K = H.shape
    F = Wt.shape[0]
    if X.shape != (n, F) or Wt.shape != (F, K) or mass.shape != (K,) or not H.dtype == Wt.dtype == X.dtype:
        msg = f"shapes or types do not fit: X {X.shape} {X.dtype}, H {H.shape} {H.dtype}, W' {Wt.shape} {Wt.dtype}."
        raise ValueError(msg)
    if not (H.flags.c_contiguous and Wt.flags.c_contiguous):
        msg = "H and W' must be C-contiguous."
        raise ValueError(msg)
    number: Any = H.dtype.type
    numbers = number(order), number(1.0 / order), number(low), number(high)
    first, last, _ = rows.indices(n)
    _steps(X.indptr, X.indices, X.data, H, Wt, mass, *numbers, steps, first, last)


@numba.njit(cache=True, nogil=True, fastmath=VECTOR_SUMS)
def _steps(
    indptr: Counts,
    indices: Counts,
    data: Array,
    H: Array,
    Wt: Array,
    mass: Array,
    order: float,
    inverse: float,
    low: float,
    high: float,
    steps: int,
    first: int,
    last: int,
) -> None:
    K = H.shape[1]
    W, y = _room(indptr, K, first, last, H)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        _atoms_at(indices[start : start + m], Wt, W)
        for _ in range(steps):
            _fit(h, W, m, y)
            for p in range(m):
                y[p] = x[p] / y[p]
            if order != 1:
                for p in range(m):
                    y[p] = _power(y[p], order)
            for k in range(K):
                w = W[k]
                total = mass[k] - mass[k]
                for p in range(m):
                    total += y[p] * w[p]
                h[k] = min(max(h[k] * _power(total / mass[k], inverse), low), high)


# The atoms at a sample's entries are copied to lie side by side: loops over its entries are long enough for vectors,
# those over a few atoms are not.


@numba.njit(cache=True, nogil=True)
def _room(indptr: Counts, K: int, first: int, last: int, like: Array) -> tuple[Array, Array]:
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return np.empty((K, longest), dtype=like.dtype), np.empty(longest, dtype=like.dtype)


@numba.njit(cache=True, nogil=True)
def _atoms_at(entries: Counts, Wt: Array, W: Array) -> None:
    for p in range(len(entries)):
        w = Wt[entries[p]]
        for k in range(len(w)):
            W[k, p] = w[k]


@numba.njit(cache=True, nogil=True, fastmath=VECTOR_SUMS)
def _fit(h: Array, W: Array, m: int, y: Array) -> None:
    for p in range(m):
        y[p] = 0
    for k in range(len(h)):
        a, w = h[k], W[k]
        for p in range(m):
            y[p] += a * w[p]


def accumulate(X: Any, entries: Array, H: Array, first: int, out: Array) -> None:
    """out += (E' H) for the features from ``first`` on, as many as ``out`` (B, K) has rows.

    E has its entries where the CSR matrix X has its own.
    """
    n, K = H.shape
    if X.shape[0] != n or out.shape[1] != K or not 0 <= first <= X.shape[1] - len(out) or entries.dtype != H.dtype:
        msg = f"shapes or types do not fit: X {X.shape}, H {H.shape} {H.dtype}, out {out.shape} at {first}."
        raise ValueError(msg)
    if entries.shape != X.data.shape:
        msg = f"shapes do not fit: {X.nnz} entries in X, {len(entries)} given."
        raise ValueError(msg)
    _accumulate(X.indptr, X.indices, entries, np.ascontiguousarray(H), first, out)


@numba.njit(cache=True, nogil=True)
def _accumulate(indptr: Counts, indices: Counts, data: Array, H: Array, first: int, out: Array) -> None:
    B, K = out.shape
    for i in range(H.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p] - first
            if 0 <= f < B:
                for k in range(K):
                    out[f, k] += data[p] * H[i, k]


def divide(
    N: Array,
    news: Array,
    Wt: Array,
    D: Array,
    low: Array,
    keep: float,
    gain: float,
    order: float,
    rows: slice,
    out: tuple[Array, Array],
) -> Array:
    """N <- keep N + gain W^order news and W = max((N / D)^(1/order), low) in some rows of the arrays (F, K) in ``out``.

    ``news`` has these rows alone. The result is the largest W in them, per atom.
    """
    F, K = N.shape
    first, last, _ = rows.indices(F)
    if any(a.shape != (F, K) for a in (Wt, *out)) or news.shape != (last - first, K):
        msg = f"shapes do not fit: N {N.shape}, W' {Wt.shape}, {news.shape} for {last - first} rows."
        raise ValueError(msg)
    if D.shape != (K,) or low.shape != (F,):
        msg = f"shapes do not fit: N {N.shape}, D {D.shape}, low {low.shape}."
        raise ValueError(msg)
    largest = np.zeros_like(D)
    number: Any = N.dtype.type
    numbers = number(keep), number(gain), number(order), number(1.0 / order)
    _divide(N, np.ascontiguousarray(news), Wt, D, low, *numbers, first, *out, largest)
    return largest


@numba.njit(cache=True, nogil=True)
def _divide(
    N: Array,
    news: Array,
    Wt: Array,
    D: Array,
    low: Array,
    keep: float,
    gain: float,
    order: float,
    inverse: float,
    first: int,
    averaged: Array,
    weights: Array,
    largest: Array,
) -> None:
    B, K = news.shape
    inverted = 1 / D
    top = np.zeros(K, dtype=D.dtype)
    for i in range(B):
        f = first + i
        old, w, new, out, least = N[f], Wt[f], averaged[f], weights[f], low[f]
        if order == 1:  # a loop of its own, without powers, which the compiler turns into vectors
            for k in range(K):
                a = keep * old[k] + gain * news[i, k] * w[k]
                new[k] = a
                out[k] = max(a * inverted[k], least)
        else:
            for k in range(K):
                a = keep * old[k] + gain * news[i, k] * _power(w[k], order)
                new[k] = a
                out[k] = max(_power(a * inverted[k], inverse), least)
        for k in range(K):
            top[k] = max(top[k], out[k])
    for k in range(K):
        largest[k] = top[k]


def multiplicative_iteration(
    X: Any, H: Array, Wt: Array, mass: Array, order: float, low: float, rows: slice, out: tuple[Array, Array]
) -> None:
    """One step of some rows of H, in place, for a CSR matrix X.

    ``out`` takes the fits before it and (x / y)^order after it, at X's entries.
    """
    n, K = H.shape
    F = Wt.shape[0]
    if X.shape != (n, F) or Wt.shape != (F, K) or mass.shape != (K,) or not H.dtype == Wt.dtype == X.dtype:
        msg = f"shapes or types do not fit: X {X.shape} {X.dtype}, H {H.shape} {H.dtype}, W' {Wt.shape} {Wt.dtype}."
        raise ValueError(msg)
    if any(a.shape != X.data.shape or a.dtype != H.dtype for a in out) or not H.flags.c_contiguous:
        msg = "H must be C-contiguous, and what is put out as long as X's entries, of their type."
        raise ValueError(msg)
    number: Any = H.dtype.type
    numbers = number(order), number(1.0 / order), number(low)
    first, last, _ = rows.indices(n)
    _iteration(X.indptr, X.indices, X.data, H, np.ascontiguousarray(Wt), mass, *numbers, first, last, *out)


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
    W, y = _room(indptr, K, first, last, H)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        old, new = before[start : start + m], after[start : start + m]
        _atoms_at(indices[start : start + m], Wt, W)
        _fit(h, W, m, y)
        for p in range(m):
            old[p] = max(y[p], low)
            y[p] = x[p] / old[p]
        if order != 1:
            for p in range(m):
                y[p] = _power(y[p], order)
        for k in range(K):
            w = W[k]
            total = low - low
            for p in range(m):
                total += y[p] * w[p]
            h[k] *= _power(total / mass[k], inverse)
        _fit(h, W, m, y)
        for p in range(m):
            new[p] = x[p] / max(y[p], low)
        if order != 1:
            for p in range(m):
                new[p] = _power(new[p], order)


def gather(columns: tuple[Counts, Counts, Counts], entries: Array, H: Array, features: slice, out: Array) -> None:
    """out_f = sum of e h over the entries e of feature f and the coefficients h of their samples: rows of E'H.

    ``columns`` are where the entries of each feature begin, their samples, and their places in ``entries``.
    """
    indptr, rows, places = columns
    F, K = out.shape
    fits = len(indptr) == F + 1 and rows.shape == entries.shape == places.shape and H.shape[1] == K
    if not fits or not H.dtype == out.dtype == entries.dtype:
        msg = f"shapes or types do not fit: {len(indptr) - 1} columns, H {H.shape} {H.dtype}, out {out.shape}."
        raise ValueError(msg)
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
