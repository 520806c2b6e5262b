"""Multiplicative steps of the alpha family on sparse samples, and the division that gives its dictionary.

The only kernels that know a divergence, by its exponent ``order`` (1 for Kullback-Leibler, 1/2 for Hellinger): the
same steps as sparse products and elementwise formulas take several times as long (docs/decisions/0004-fast-methods.md).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.kernels.gram import VECTOR_SUMS


@numba.njit(cache=True, nogil=True)
def power(x: Any, order: Any) -> Any:
    """x^order, without the general power where that is not needed."""
    if order == 1:
        return x
    if order == 0.5:
        return np.sqrt(x)
    if order == 2:
        return x * x
    return x**order


def require_sparse_problem(X: Any, H: Array, Wt: Array, mass: Array) -> None:
    """Refuse what a kernel on CSR samples X, coefficients H and the transposed dictionary W' could not read safely."""
    n, K = H.shape
    F = Wt.shape[0]
    if X.shape != (n, F) or Wt.shape != (F, K) or mass.shape != (K,) or not H.dtype == Wt.dtype == X.dtype:
        raise ValueError(
            f"shapes or types do not fit: X {X.shape} {X.dtype}, H {H.shape} {H.dtype}, W' {Wt.shape} {Wt.dtype}."
        )
    if not (H.flags.c_contiguous and Wt.flags.c_contiguous):
        raise ValueError("H and W' must be C-contiguous.")


def multiplicative_steps(
    X: Any,
    H: Array,
    Wt: Array,
    mass: Array,
    order: float,
    ridge: float,
    prices: Array,
    low: float,
    high: float,
    steps: int,
    rows: slice,
) -> None:
    """h_k <- h_k (sum_f W_kf (x_f / y_f)^order / b_k)^(1/order), ``steps`` times, in place in some rows of H.

    X is CSR, and b_k = mass_k + ridge h_k + price, the last two being ``order`` times the penalty's. The share s of the
    ridge in b_k shortens the step: the exponent is 1 / (order + s), with which it cannot oscillate.
    """
    require_sparse_problem(X, H, Wt, mass)
    if prices.shape != (len(H),):
        raise ValueError(f"shapes do not fit: H {H.shape}, prices {prices.shape}.")
    number: Any = H.dtype.type
    numbers = number(order), number(1.0 / order), number(ridge)
    first, last, _ = rows.indices(len(H))
    prices = np.ascontiguousarray(prices, dtype=H.dtype)
    _steps(X.indptr, X.indices, X.data, H, Wt, mass, *numbers, prices, number(low), number(high), steps, first, last)


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
    ridge: float,
    prices: Array,
    low: float,
    high: float,
    steps: int,
    first: int,
    last: int,
) -> None:
    K = H.shape[1]
    W, y = room(indptr, K, first, last, H)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        atoms_at(indices[start : start + m], Wt, W)
        for _ in range(steps):
            fit_at(h, W, m, y)
            for p in range(m):
                y[p] = x[p] / y[p]
            if order != 1:
                for p in range(m):
                    y[p] = power(y[p], order)
            for k in range(K):
                w = W[k]
                total = mass[k] - mass[k]
                for p in range(m):
                    total += y[p] * w[p]
                pull = ridge * h[k]
                below = mass[k] + prices[i] + pull
                if pull > 0:
                    factor = (total / below) ** (below / (order * below + pull))
                else:
                    factor = power(total / below, inverse)
                h[k] = min(max(h[k] * factor, low), high)


# The atoms at a sample's entries are copied to lie side by side: loops over its entries are long enough for vectors,
# those over a few atoms are not.


@numba.njit(cache=True, nogil=True)
def room(indptr: Counts, K: int, first: int, last: int, like: Array) -> tuple[Array, Array]:
    """Memory for the atoms and the fit at the entries of any of these samples."""
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return np.empty((K, longest), dtype=like.dtype), np.empty(longest, dtype=like.dtype)


@numba.njit(cache=True, nogil=True)
def atoms_at(entries: Counts, Wt: Array, W: Array) -> None:
    """The columns of W at a sample's entries, side by side."""
    for p in range(len(entries)):
        w = Wt[entries[p]]
        for k in range(len(w)):
            W[k, p] = w[k]


@numba.njit(cache=True, nogil=True, fastmath=VECTOR_SUMS)
def fit_at(h: Array, W: Array, m: int, y: Array) -> None:
    """y = hW at m entries."""
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
        raise ValueError(f"shapes or types do not fit: X {X.shape}, H {H.shape} {H.dtype}, out {out.shape} at {first}.")
    if entries.shape != X.data.shape:
        raise ValueError(f"shapes do not fit: {X.nnz} entries in X, {len(entries)} given.")
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
        raise ValueError(f"shapes do not fit: N {N.shape}, W' {Wt.shape}, {news.shape} for {last - first} rows.")
    if D.shape != (K,) or low.shape != (F,):
        raise ValueError(f"shapes do not fit: N {N.shape}, D {D.shape}, low {low.shape}.")
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
                a = keep * old[k] + gain * news[i, k] * power(w[k], order)
                new[k] = a
                out[k] = max(power(a * inverted[k], inverse), least)
        for k in range(K):
            top[k] = max(top[k], out[k])
    for k in range(K):
        largest[k] = top[k]
