"""Coordinate descent at the stored entries, one coefficient at a time: Kullback-Leibler and alpha > 0.

With r = (x / y)^alpha at the entries of a sample, alpha times its objective has in the coefficient h_k

    slope  m_k + alpha l2 h_k - sum_f r_f W_kf,    curvature  sum_f alpha (r_f / y_f) W_kf^2 + alpha l2

where m_k = sum_f W_kf + alpha l1. The slope is concave in h_k. So neither Newton's step nor the multiplicative one goes
too far upwards, and the longer of both is made. Downwards the multiplicative one never goes too far; Newton's may,
and is made where the slopes before and after it do not add up to less than zero: the objective has fallen, then.
"""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array, Counts, Mask
from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import CSR, VECTOR_SUMS, kernel
from onmf.coefficients.kernels.multiplicative import power

FAST = {"fastmath": VECTOR_SUMS, "error_model": "numpy"}  # no error for a division by zero: loops become vectors
IDLE = 0.1  # of the tolerance, shared by all coefficients: one with less to gain stays where it is
CANCELS = 0.05  # of a coefficient: where a step leaves less, fits are computed afresh at entries that lose their digits


@kernel("nFm nK* FK lK nK n n n* n*", **FAST)
def coordinate_descent(
    X: CSR,
    H: Array,
    Wt: Array,
    mass: Array,
    reach: Array,
    tolerance: Array,
    noise: Array,
    iterations: Counts,
    converged: Mask,
    order: float,
    l2: float,
    low: float,
    high: float,
    max_iter: int,
    first: int,
    last: int,
) -> None:
    """Sweep over the coefficients of every sample, in place in H[first:last], until ``remaining_gain`` is small enough.

    ``mass`` (m above, a row for all samples or one for each), ``l2``, tolerances and noise are ``order`` times what
    they are in the objective. A sample has also converged when a sweep promises less than rounding can tell.
    """
    indptr, indices, data, _ = X
    W, y, r, q = room(indptr, H, first, last)
    fixed = first - first
    for i in range(first, last):
        start, m = indptr[i], indptr[i + 1] - indptr[i]
        x, h, own = data[start : start + m], H[i], mass[i if len(mass) > 1 else 0]
        gather(indices[start : start + m], Wt, W)
        likely = True
        for number in range(max_iter):
            if likely:
                fit(x, h, W, y, r, q, order)
                if _remaining(h, W, r, own, reach[i], l2, low, high, m) <= tolerance[i]:
                    converged[i] = True
                    break
            left, promised = sweep(x, h, W, y, r, q, own, reach[i], tolerance[i], order, l2, low, high, fixed)
            iterations[i] = number + 1
            if promised <= noise[i]:
                converged[i] = True
                break
            likely = left <= 2 * tolerance[i]


@cached_njit(**FAST)
def sweep(
    x: Array,
    h: Array,
    W: Array,
    y: Array,
    r: Array,
    q: Array,
    mass: Array,
    reach: Array,
    tolerance: float,
    order: float,
    l2: float,
    low: float,
    high: float,
    fixed: int,
) -> tuple[float, float]:
    """Make one step of every coefficient after the ``fixed`` ones, and keep y = hW, r = (x / y)^order and q = r / y.

    Return what the slopes, each as it was found, left to gain, and what they promised for the steps that were made.
    """
    m, K = len(x), len(h)
    left, promised = low - low, low - low
    for k in range(fixed, K):
        w, old = W[k], h[k]
        below = mass[k] + l2 * old
        slope = below - _dot(r, w, m)
        if slope >= 0:
            gain = slope * (old - low)
        else:
            gain = -slope * min(max(reach[k] - old, old), high - old)
        left += gain
        if not IDLE / K * tolerance < gain < np.inf:
            continue
        new = old - slope / (l2 + order * _curvature(q, w, m))
        if slope < 0 and l2 == 0:
            new = max(new, old * power((below - slope) / below, 1 / order))
        new = min(max(new, low), high)
        promised += slope * (old - new)
        _move(x, h, W, y, r, q, k, new, order)
        if slope > 0 and not slope + (mass[k] + l2 * new - _dot(r, w, m)) >= 0:  # too far, or not a number
            shorter = ((below - slope) / below) ** (below / (order * below + l2 * old))
            _move(x, h, W, y, r, q, k, max(old * shorter, low), order)
    return left, promised


@cached_njit(**FAST)
def _move(
    x: Array, h: Array, W: Array, y: Array, r: Array, q: Array, k: int, new: float, order: float
) -> None:
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
    ratios(x, y, r, q, order)


@cached_njit(**FAST)
def ratios(x: Array, y: Array, r: Array, q: Array, order: float) -> None:
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
def fit(x: Array, h: Array, W: Array, y: Array, r: Array, q: Array, order: float) -> None:
    """Compute y = hW, r and q."""
    m = len(x)
    for p in range(m):
        y[p] = 0
    for k in range(len(h)):
        a, w = h[k], W[k]
        for p in range(m):
            y[p] += a * w[p]
    ratios(x, y, r, q, order)


@cached_njit(**FAST)
def _remaining(
    h: Array, W: Array, r: Array, mass: Array, reach: Array, l2: float, low: float, high: float, m: int
) -> float:
    """Return ``remaining_gain``, times the order."""
    total = low - low
    for k in range(len(h)):
        slope = mass[k] + l2 * h[k] - _dot(r, W[k], m)
        total += slope * (h[k] - low) if slope > 0 else -slope * min(max(reach[k] - h[k], h[k]), high - h[k])
    return total


@cached_njit(**FAST)
def _dot(a: Array, b: Array, m: int) -> float:
    total = a.dtype.type(0)
    for p in range(m):
        total += a[p] * b[p]
    return total


@cached_njit(**FAST)
def _curvature(q: Array, w: Array, m: int) -> float:
    total = q.dtype.type(0)
    for p in range(m):
        total += q[p] * w[p] * w[p]
    return total


@cached_njit()
def room(indptr: Array, H: Array, first: int, last: int) -> tuple[Array, Array, Array, Array]:
    """Return memory for the components, the fit, r and q at the entries of any of these samples."""
    if not 0 <= first <= last <= len(H):
        raise ValueError("shapes do not fit: H does not have these rows.")
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    rows = np.empty((3, longest), dtype=H.dtype)
    return np.empty((H.shape[1], longest), dtype=H.dtype), rows[0], rows[1], rows[2]


@cached_njit()
def gather(entries: Array, Wt: Array, W: Array) -> None:
    """Gather the components at a sample's entries: loops over entries are long enough for vectors, loops over K not."""
    for p in range(len(entries)):
        w = Wt[entries[p]]
        for k in range(len(w)):
            W[k, p] = w[k]
