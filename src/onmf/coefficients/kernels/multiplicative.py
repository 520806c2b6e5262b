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


@kernel("nFm nK* FK lK n", fastmath=VECTOR_SUMS)
def multiplicative_steps(
    X: CSR,
    H: Array,
    Wt: Array,
    mass: Array,
    l1: Array,
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
    oscillate.
    """
    if len(mass) not in (1, len(H)):
        raise ValueError("shapes do not fit: mass has a row for all samples, or one for each.")
    indptr, indices, data, _ = X
    W, y = _room(indptr, H, first, last)
    inverse = H.dtype.type(1.0 / order)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h, pull_of_l1, own = data[start : start + m], H[i], l1[i], mass[i if len(mass) > 1 else 0]
        gathered(indices[start : start + m], Wt, W)
        for _ in range(steps):
            _fit(h, W, m, y)
            _ratios(x, y, order)
            for k in range(len(h)):
                w = W[k]
                total = own[k] - own[k]
                for p in range(m):
                    total += y[p] * w[p]
                below = own[k] + pull_of_l1
                if l2 > 0:
                    pull = l2 * h[k]
                    below += pull
                    factor = (total / below) ** (below / (order * below + pull))
                else:
                    factor = power(total / below, inverse)
                h[k] = min(max(h[k] * factor, low), high)


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
    inverse = H.dtype.type(1.0 / order)
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
        for k in range(len(h)):
            w = W[k]
            total = least - least
            for p in range(m):
                total += y[p] * w[p]
            h[k] *= power(total / mass[k], inverse)
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
    return np.empty((H.shape[1], longest), dtype=H.dtype), np.empty(longest, dtype=H.dtype)


@cached_njit()
def gathered(entries: Array, Wt: Array, W: Array) -> None:
    """Gather the components at a sample's entries: loops over entries are long enough for vectors, loops over K not."""
    for p in range(len(entries)):
        w = Wt[entries[p]]
        for k in range(len(w)):
            W[k, p] = w[k]


@cached_njit(fastmath=VECTOR_SUMS)
def _fit(h: Array, W: Array, m: int, y: Array) -> None:
    """Compute y = hW at m entries."""
    for p in range(m):
        y[p] = 0
    for k in range(len(h)):
        a, w = h[k], W[k]
        for p in range(m):
            y[p] += a * w[p]


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


@kernel("BK BK BK K B BK* BK* K*")
def divide(
    N: Array,
    news: Array,
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
    """Set averaged = keep N + gain W^order news, weights = max((averaged / D)^(1/order), low), and their maxima."""
    B, K = news.shape
    inverted, inverse = 1 / D, D.dtype.type(1.0 / order)
    largest[:] = 0
    for f in range(B):
        old, w, new, out, least = N[f], Wt[f], averaged[f], weights[f], low[f]
        if order == 1:  # a loop of its own, without powers, which the compiler turns into vectors
            for k in range(K):
                a = keep * old[k] + gain * news[f, k] * w[k]
                new[k] = a
                out[k] = max(a * inverted[k], least)
        else:
            for k in range(K):
                a = keep * old[k] + gain * news[f, k] * power(w[k], order)
                new[k] = a
                out[k] = max(power(a * inverted[k], inverse), least)
        for k in range(K):
            largest[k] = max(largest[k], out[k])
