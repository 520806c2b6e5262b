"""Compiled solvers of the small K x K problems. They know no divergence; every shape is checked before a call."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from onmf.arrays import Array, Counts, Mask


def projected_gradient_on_gram(
    Q: Array,
    B: Array,
    H: Array,
    reach: Array,
    tolerance: Array,
    *,
    step: float,
    low: float,
    high: float,
    max_iter: int,
) -> tuple[Counts, Mask]:
    """Minimise h Q h' / 2 - b h' over low <= h <= high for every row b of B, in place in H, by h <- P(h - step grad).

    A sample stops when ``remaining_gain`` (see ``onmf.coefficients.base``) falls to its tolerance.
    """
    n, K = H.shape
    if Q.shape != (K, K) or B.shape != (n, K) or reach.shape != (n, K) or tolerance.shape != (n,):
        msg = f"shapes do not fit: Q {Q.shape}, B {B.shape}, H {H.shape}, reach {reach.shape}, {tolerance.shape}."
        raise ValueError(msg)
    dtype = H.dtype
    Q, B, reach, tolerance = (np.ascontiguousarray(a, dtype=dtype) for a in (Q, B, reach, tolerance))
    if not H.flags.c_contiguous:
        msg = "H is overwritten and must be C-contiguous."
        raise ValueError(msg)
    iterations = np.zeros(n, dtype=np.int64)
    converged = np.zeros(n, dtype=np.bool_)
    # Scalars of the arrays' own type: a double among floats would make the kernel compute in double precision.
    a: Any = dtype.type(step)
    lo: Any = dtype.type(low)
    hi: Any = dtype.type(high)
    _projected_gradient_on_gram(Q, B, H, reach, tolerance, a, lo, hi, max_iter, iterations, converged)
    return iterations, converged


@numba.njit(cache=True, nogil=True)
def _projected_gradient_on_gram(
    Q: Array,
    B: Array,
    H: Array,
    reach: Array,
    tolerance: Array,
    step: float,
    low: float,
    high: float,
    max_iter: int,
    iterations: Counts,
    converged: Mask,
) -> None:
    n, K = H.shape
    zero = low - low
    g = np.empty(K, dtype=H.dtype)
    for i in range(n):
        h = H[i]
        for _ in range(max_iter):
            for k in range(K):
                g[k] = -B[i, k]
            for j in range(K):
                if h[j] != zero:
                    for k in range(K):
                        g[k] += h[j] * Q[j, k]
            gain = zero
            for k in range(K):
                if g[k] > zero:
                    gain += g[k] * (h[k] - low)
                else:
                    gain -= g[k] * min(max(reach[i, k] - h[k], h[k]), high - h[k])
            if gain <= tolerance[i]:
                converged[i] = True
                break
            iterations[i] += 1
            for k in range(K):
                h[k] = min(max(h[k] - step * g[k], low), high)
