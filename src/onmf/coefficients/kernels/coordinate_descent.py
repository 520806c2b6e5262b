"""Coordinate descent at the stored entries, one coefficient at a time: Kullback-Leibler and alpha > 0.

With r = (x / y)^alpha at the entries of a sample, alpha times its objective has in the coefficient h_k

    slope  m_k + alpha l2 h_k - sum_f r_f W_kf,    curvature  sum_f alpha (r_f / y_f) W_kf^2 + alpha l2

where m_k = sum_f W_kf + alpha l1. The slope is concave in h_k. So neither Newton's step nor the multiplicative one goes
too far upwards, and the longer of both is made. Downwards the multiplicative one never goes too far. Newton's may, and
is made where the slopes before and after it do not add up to less than zero: the objective has fallen, then. They never
do where at least half of h_k is left: as h_k W_kf <= y_f, no term of the slope has changed by more than twice what the
curvature says. (For alpha > 1 that is so where alpha / (1 + alpha) is left.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array, Counts, Mask
from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import CSR, VECTOR_SUMS, kernel
from onmf.coefficients.kernels.multiplicative import gathered, power

FAST = {"fastmath": VECTOR_SUMS, "error_model": "numpy"}  # no error for a division by zero: loops become vectors
IDLE = 0.1  # of the tolerance, shared by all coefficients: one with less to gain stays where it is
CANCELS = 0.05  # of a coefficient: where a step leaves less, fits are computed afresh at entries that lose their digits


@kernel("nFm nK* FK lK uK nK n n n* n*", **FAST)
def coordinate_descent(
    X: CSR,
    H: Array,
    Wt: Array,
    mass: Array,
    high: Array,
    reach: Array,
    tolerance: Array,
    noise: Array,
    iterations: Counts,
    converged: Mask,
    order: float,
    l2: float,
    low: float,
    max_iter: int,
    first: int,
    last: int,
) -> None:
    """Sweep over the coefficients of every sample, in place in H[first:last], until ``remaining_gain`` is small enough.

    ``mass`` (m above) and upper bounds have a row for all samples or one for each. ``mass``, ``l2``, tolerances and
    noise are ``order`` times what they are in the objective. A sample has also converged when a sweep promises less
    than rounding can tell.
    """
    indptr, indices, data, _ = X
    if len(mass) not in (1, len(H)) or len(high) not in (1, len(H)):
        raise ValueError("shapes do not fit: mass and high have a row for all samples, or one for each.")
    W, y, r, q = _room(indptr, H, first, last)
    fixed, none = first - first, low - low
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        own, most = mass[i if len(mass) > 1 else 0], high[i if len(high) > 1 else 0]
        gathered(indices[start : start + m], Wt, W)
        likely = True
        for number in range(max_iter):
            if likely:
                _fit(x, h, W, y, r, q, order)
                if _remaining(h, W, r, own, most, reach[i], l2, low, m) <= tolerance[i]:
                    converged[i] = True
                    break
            left, promised = _sweep(x, h, W, y, r, q, own, most, reach[i], tolerance[i], order, l2, low, none, fixed)
            iterations[i] = number + 1
            if promised <= noise[i]:
                converged[i] = True
                break
            likely = left <= 2 * tolerance[i]


@kernel("nFm nK* FK K m*", **FAST)
def coordinate_sweep(
    X: CSR,
    H: Array,
    Wt: Array,
    mass: Array,
    fits: Array,
    order: float,
    low: float,
    high: float,
    prior: float,
    fixed: int,
    first: int,
    last: int,
) -> None:
    """Sweep once over the coefficients of every sample, in place in H[first:last]; fits y are those before it.

    The first ``fixed`` coefficients stay. With a ``prior`` a, -a sum_k log h_k is part of its objective.
    """
    indptr, indices, data, _ = X
    W, y, r, q = _room(indptr, H, first, last)
    none, most = low - low, np.full(H.shape[1], high)
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h = data[start : start + m], H[i]
        gathered(indices[start : start + m], Wt, W)
        _fit(x, h, W, y, r, q, order)
        fits[start : start + m] = y[:m]
        _sweep(x, h, W, y, r, q, mass, most, mass, none, order, none, low, prior, fixed)


@cached_njit(**FAST)
def _sweep(
    x: Array,
    h: Array,
    W: Array,
    y: Array,
    r: Array,
    q: Array,
    mass: Array,
    high: Array,
    reach: Array,
    tolerance: float,
    order: float,
    l2: float,
    low: float,
    prior: float,
    fixed: int,
) -> tuple[float, float]:
    """Make one step of every coefficient after the ``fixed`` ones, and keep y = hW, r = (x / y)^order and q = r / y.

    Return what the slopes, each as it was found, left to gain, and what they promised for the steps that were made.
    """
    m, K = len(x), len(h)
    none, enough = low - low, max(order, 1) / (1 + max(order, 1))
    left, promised, idle = none, none, IDLE / K * tolerance
    for k in range(fixed, K):
        w, old = W[k], h[k]
        below = mass[k] + l2 * old
        if old > low:
            g, c = _dots(r, q, w, m)
        else:  # mostly it stays
            g, c = _dot(r, w, m), none
        slope = below - g
        if prior > 0:
            slope -= prior / old
        left_up = min(max(reach[k] - old, old), high[k] - old)
        gain = slope * (old - low) if slope >= 0 else -slope * left_up
        left += gain
        if not idle < gain < np.inf:
            continue
        if c == none:
            g, c = _dots(r, q, w, m)
        c = l2 + order * c
        new = old - slope / c
        if prior > 0:  # which is in the model as it is: the root of c h^2 + (slope + prior / old - c old) h - prior
            b = slope + prior / old - c * old
            root = np.sqrt(b * b + 4 * c * prior)
            new = 2 * prior / (b + root) if b > 0 else (root - b) / (2 * c)
        if slope < 0 and l2 == 0:
            new = max(new, old * power((below - slope) / below, 1 / order))
        new = min(max(new, low), high[k])
        promised += slope * (old - new)
        _move(x, h, W, y, r, q, k, new, order)
        if slope > 0 and new < enough * old:
            after = mass[k] + l2 * new - _dot(r, w, m) - (prior / new if prior > 0 else prior)
            if slope + after >= 0:
                continue  # else too far, or not a number
            shorter = ((below - slope) / below) ** (below / (order * below + l2 * old))
            _move(x, h, W, y, r, q, k, max(old * shorter, low), order)
    return left, promised


@cached_njit(**FAST)
def _move(x: Array, h: Array, W: Array, y: Array, r: Array, q: Array, k: int, new: float, order: float) -> None:
    """Set h_k, and all that follows from it."""
    m, w, old = len(x), W[k], h[k]
    h[k] = new
    change = h[k] - old
    if h[k] >= CANCELS * old:
        for p in range(m):
            y[p] += change * w[p]
    else:
        for p in range(m):
            before = y[p]
            y[p] += change * w[p]
            if y[p] < CANCELS * before:
                y[p] = 0
                for j in range(len(h)):
                    y[p] += h[j] * W[j, p]
    _ratios(x, y, r, q, order)


@cached_njit(**FAST)
def _ratios(x: Array, y: Array, r: Array, q: Array, order: float) -> None:
    """Compute r = (x / y)^order and q = r / y."""
    one = order / order
    if order == 1:
        for p in range(len(x)):
            inverted = one / y[p]
            r[p] = x[p] * inverted
            q[p] = r[p] * inverted
    else:
        for p in range(len(x)):
            inverted = one / y[p]
            r[p] = power(x[p] * inverted, order)
            q[p] = r[p] * inverted


@cached_njit(**FAST)
def _fit(x: Array, h: Array, W: Array, y: Array, r: Array, q: Array, order: float) -> None:
    """Compute y = hW, r and q."""
    m = len(x)
    for p in range(m):
        y[p] = 0
    for k in range(len(h)):
        a, w = h[k], W[k]
        for p in range(m):
            y[p] += a * w[p]
    _ratios(x, y, r, q, order)


@cached_njit(**FAST)
def _remaining(
    h: Array, W: Array, r: Array, mass: Array, high: Array, reach: Array, l2: float, low: float, m: int
) -> float:
    """Return ``remaining_gain``, times the order."""
    total = low - low
    for k in range(len(h)):
        slope = mass[k] + l2 * h[k] - _dot(r, W[k], m)
        total += slope * (h[k] - low) if slope > 0 else -slope * min(max(reach[k] - h[k], h[k]), high[k] - h[k])
    return total


@cached_njit(**FAST)
def _dot(a: Array, b: Array, m: int) -> Any:
    total = a.dtype.type(0)
    for p in range(m):
        total += a[p] * b[p]
    return total


@cached_njit(**FAST)
def _dots(r: Array, q: Array, w: Array, m: int) -> tuple[Any, Any]:
    """Return sum r w and sum q w^2."""
    slope = curvature = r.dtype.type(0)
    for p in range(m):
        slope += r[p] * w[p]
        curvature += q[p] * w[p] * w[p]
    return slope, curvature


@cached_njit()
def _room(indptr: Array, H: Array, first: int, last: int) -> tuple[Array, Array, Array, Array]:
    """Return memory for the components, the fit, r and q at the entries of any of these samples."""
    if not 0 <= first <= last <= len(H):
        raise ValueError("shapes do not fit: H does not have these rows.")
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    rows = np.empty((3, longest), dtype=H.dtype)
    return np.empty((H.shape[1], longest), dtype=H.dtype), rows[0], rows[1], rows[2]
