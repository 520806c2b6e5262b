"""Multiplicative steps of the alpha family on sparse samples, and the division that gives its dictionary.

The only kernels that know a divergence, by its exponent ``order`` (1 for Kullback-Leibler, 1/2 for Hellinger): the
same steps as sparse products and elementwise formulas take several times as long (docs/decisions/0004-fast-methods.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import CSR, VECTOR_SUMS, kernel

EIGHT = 8
TOGETHER = 512  # weights that are divided at a time: loops over one feature's components are too short for vectors


@cached_njit()
def power(x: Any, order: Any) -> Any:
    """Return x^order, without the general power where that is not needed."""
    if order == 1:
        return x
    if order == 0.5:
        return np.sqrt(x)
    if order == 1.5:
        return x * np.sqrt(x)
    if order == 2:
        return x * x
    if order == 3:
        return x * x * x
    return x**order


@kernel("nFm nK* FK lK n m*", fastmath=VECTOR_SUMS)
def multiplicative_steps(
    X: CSR,
    H: Array,
    Wt: Array,
    mass: Array,
    l1: Array,
    fits: Array,
    order: float,
    l2: float,
    low: float,
    high: float,
    steps: int,
    first: int,
    last: int,
) -> None:
    """Make the steps h_k <- h_k (sum_f W_kf (x_f / y_f)^order / b_k)^(1/order), in place in H[first:last].

    b_k = mass_k + l2 h_k + l1, the last two being ``order`` times the penalty's; ``mass`` has a row for all samples, or
    one for each. The share s of l2 in b_k shortens the step: the exponent is 1 / (order + s), with which it cannot
    oscillate. The fits y at the end are those at the entries.
    """
    if len(mass) not in (1, len(H)):
        raise ValueError("shapes do not fit: mass has a row for all samples, or one for each.")
    indptr, indices, data, _ = X
    W, y = _room(indptr, H, first, last)
    inverse, total = H.dtype.type(1.0 / order), np.empty(H.shape[1], dtype=H.dtype)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h, pull_of_l1, own = data[start : start + m], H[i], l1[i], mass[i if len(mass) > 1 else 0]
        gathered(indices[start : start + m], Wt, W)
        _fit(h, W, m, y)
        for _ in range(steps):
            _ratios(x, y, order)
            _sums(y, W, m, total)
            for k in range(len(h)):
                below = own[k] + pull_of_l1
                if l2 > 0:
                    pull = l2 * h[k]
                    below += pull
                    factor = (total[k] / below) ** (below / (order * below + pull))
                else:
                    factor = power(total[k] / below, inverse)
                h[k] = min(max(h[k] * factor, low), high)
            _fit(h, W, m, y)
        out = fits[start : start + m]
        for p in range(m):
            out[p] = y[p]


@kernel("nFm nK* FK K m* m*", fastmath=VECTOR_SUMS)
def multiplicative_iteration(
    X: CSR,
    H: Array,
    Wt: Array,
    mass: Array,
    fits: Array,
    ratios: Array,
    order: float,
    least: float,
    first: int,
    last: int,
) -> None:
    """Make a step of a batch iteration, without penalty or bounds: fits y before it, and (x / y)^order after it.

    No y counts as less than ``least``. A kernel of its own: as a special case of the steps above it took 18 % longer.
    """
    indptr, indices, data, _ = X
    W, y = _room(indptr, H, first, last)
    inverse, total = H.dtype.type(1.0 / order), np.empty(H.shape[1], dtype=H.dtype)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        before, after = fits[start : start + m], ratios[start : start + m]
        gathered(indices[start : start + m], Wt, W)
        _fit(h, W, m, y)
        for p in range(m):
            before[p] = max(y[p], least)
            y[p] = x[p] / before[p]
        if order != 1:
            for p in range(m):
                y[p] = power(y[p], order)
        _sums(y, W, m, total)
        for k in range(len(h)):
            h[k] *= power(total[k] / mass[k], inverse)
        _fit(h, W, m, y)
        for p in range(m):
            after[p] = x[p] / max(y[p], least)
        if order != 1:
            for p in range(m):
                after[p] = power(after[p], order)


@cached_njit()
def _room(indptr: Array, H: Array, first: int, last: int) -> tuple[Array, Array]:
    """Return memory for the components and the fit at the entries of any of these samples."""
    if not 0 <= first <= last <= len(H):
        raise ValueError("shapes do not fit: H does not have these rows.")
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    odd = (
        (longest + EIGHT - 1) // EIGHT | 1
    ) * EIGHT  # lines of the cache, lest all components share a few places in it
    return np.empty((H.shape[1], odd), dtype=H.dtype), np.empty(longest, dtype=H.dtype)


@cached_njit()
def gathered(entries: Array, Wt: Array, W: Array) -> None:
    """Gather the components at a sample's entries: loops over entries are long enough for vectors, loops over K not.

    Eight entries at a time: they fill a line of the cache.
    """
    m, K = len(entries), Wt.shape[1]
    whole = m - m % EIGHT
    for p in range(0, whole, EIGHT):
        e = entries[p : p + EIGHT]
        w0, w1, w2, w3, w4, w5, w6, w7 = Wt[e[0]], Wt[e[1]], Wt[e[2]], Wt[e[3]], Wt[e[4]], Wt[e[5]], Wt[e[6]], Wt[e[7]]
        for k in range(K):
            row = W[k, p : p + EIGHT]
            row[0], row[1], row[2], row[3] = w0[k], w1[k], w2[k], w3[k]
            row[4], row[5], row[6], row[7] = w4[k], w5[k], w6[k], w7[k]
    for p in range(whole, m):
        w = Wt[entries[p]]
        for k in range(K):
            W[k, p] = w[k]


@cached_njit(fastmath=VECTOR_SUMS)
def _fit(h: Array, W: Array, m: int, y: Array) -> None:
    """Compute y = hW at m entries, four components at a time: y is read and written less often."""
    fours = len(h) - len(h) % 4
    for p in range(m):
        y[p] = 0
    for k in range(0, fours, 4):
        a0, a1, a2, a3, w0, w1, w2, w3 = h[k], h[k + 1], h[k + 2], h[k + 3], W[k], W[k + 1], W[k + 2], W[k + 3]
        for p in range(m):
            y[p] += (a0 * w0[p] + a1 * w1[p]) + (a2 * w2[p] + a3 * w3[p])
    for k in range(fours, len(h)):
        a, w = h[k], W[k]
        for p in range(m):
            y[p] += a * w[p]


@cached_njit(fastmath=VECTOR_SUMS)
def _sums(r: Array, W: Array, m: int, total: Array) -> None:
    """Compute W r, sums over m entries, four components at a time."""
    fours, zero = len(total) - len(total) % 4, total.dtype.type(0)
    for k in range(0, fours, 4):
        w0, w1, w2, w3 = W[k], W[k + 1], W[k + 2], W[k + 3]
        t0, t1, t2, t3 = zero, zero, zero, zero
        for p in range(m):
            t0 += r[p] * w0[p]
            t1 += r[p] * w1[p]
            t2 += r[p] * w2[p]
            t3 += r[p] * w3[p]
        total[k], total[k + 1], total[k + 2], total[k + 3] = t0, t1, t2, t3
    for k in range(fours, len(total)):
        t0, w0 = zero, W[k]
        for p in range(m):
            t0 += r[p] * w0[p]
        total[k] = t0


@cached_njit(fastmath=VECTOR_SUMS)
def _ratios(x: Array, y: Array, order: float) -> None:
    """Replace y by (x / y)^order at the entries of x."""
    for p in range(len(x)):
        y[p] = x[p] / y[p]
    if order != 1:
        for p in range(len(x)):
            y[p] = power(y[p], order)


@kernel("nFm m nK BK*")
def accumulate(X: CSR, entries: Array, H: Array, out: Array, first: int) -> None:
    """Add E'H to ``out`` for as many features as it has rows, from ``first`` on; E has its entries where X has its."""
    indptr, indices, _, F = X
    B, K = out.shape
    if not 0 <= first <= F - B:
        raise ValueError("shapes do not fit: X does not have these features.")
    for i in range(H.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p] - first
            if 0 <= f < B:
                for k in range(K):
                    out[f, k] += entries[p] * H[i, k]


@kernel("Fnm m nK FK*")
def gather(columns: CSR, entries: Array, H: Array, out: Array, first: int, last: int) -> None:
    """Compute rows of E'H: the sums of e h over the entries e of a feature and the coefficients h of their samples.

    ``columns`` is the CSR matrix of the entries' places in ``entries``, a row per feature.
    """
    indptr, rows, places, _ = columns
    K = H.shape[1]
    if not 0 <= first <= last <= len(out):
        raise ValueError("shapes do not fit: out does not have these rows.")
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


@kernel("BK BK K B BK* BK* K*")
def divide(
    N: Array,
    Wt: Array,
    D: Array,
    low: Array,
    averaged: Array,
    weights: Array,
    largest: Array,
    keep: float,
    gain: float,
    order: float,
) -> None:
    """Set averaged = keep N + gain W^order news, weights = max((averaged / D)^(1/order), low), and their maxima.

    The news are in ``averaged`` before.
    """
    B, K = N.shape
    rows, inverse = max(1, TOGETHER // K), D.dtype.type(1.0 / order)
    inverted, least, most = np.empty((rows, K), D.dtype), np.empty((rows, K), D.dtype), np.zeros((rows, K), D.dtype)
    inverted[:] = 1 / D
    for first in range(0, B, rows):
        n = min(rows, B - first)
        for f in range(n):
            for k in range(K):
                least[f, k] = low[first + f]
        old, w = N[first : first + n].reshape(-1), Wt[first : first + n].reshape(-1)
        new, out = averaged[first : first + n].reshape(-1), weights[first : first + n].reshape(-1)
        over, floor, top = inverted.reshape(-1), least.reshape(-1), most.reshape(-1)
        if order == 1:  # a loop of its own, without powers, which the compiler turns into vectors
            for i in range(n * K):
                a = keep * old[i] + gain * new[i] * w[i]
                new[i] = a
                out[i] = max(a * over[i], floor[i])
        else:
            for i in range(n * K):
                a = keep * old[i] + gain * new[i] * power(w[i], order)
                new[i] = a
                out[i] = max(power(a * over[i], inverse), floor[i])
        for i in range(n * K):
            top[i] = max(top[i], out[i])
    largest[:] = 0
    for f in range(rows):
        for k in range(K):
            largest[k] = max(largest[k], most[f, k])
