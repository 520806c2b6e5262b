"""Averaged stochastic gradient steps on the simplex: robust stochastic approximation for squared l2."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from onmf._support.arrays import Array, Counts


def averaged_steps(W: Array, X: Array, H: Array, drawn: Counts, length: float) -> Array:
    """The mean of the dictionaries after each gradient step, weighted by the steps' lengths r = length / sqrt(step).

    A step is W <- P(W - r h' (hW - x)) with (x, h) the drawn rows of X and H, and P the projection of every atom on the
    simplex.
    """
    K, F = W.shape
    rows = len(X)
    if X.shape != (rows, F) or H.shape != (rows, K) or not W.dtype == X.dtype == H.dtype:
        raise ValueError(
            f"shapes or types do not fit: W {W.shape} {W.dtype}, X {X.shape} {X.dtype}, H {H.shape} {H.dtype}."
        )
    if drawn.min() < 0 or drawn.max() >= rows:
        raise ValueError(f"rows 0 to {rows - 1} can be drawn.")
    average = np.zeros_like(W)
    number: Any = W.dtype.type
    V, X, H = (np.array(a, order="C") for a in (W, X, H))
    _averaged_steps(V, X, H, drawn, number(length), average)
    return average


@numba.njit(cache=True, nogil=True)
def _averaged_steps(W: Array, X: Array, H: Array, drawn: Counts, length: float, average: Array) -> None:
    K, F = W.shape
    r = np.empty(F, dtype=W.dtype)
    weights = length - length
    for step in range(len(drawn)):
        x, h = X[drawn[step]], H[drawn[step]]
        rate = length / np.sqrt(W.dtype.type(step + 1))
        for f in range(F):
            r[f] = -x[f]
        for k in range(K):
            if h[k] != 0:
                w = W[k]
                for f in range(F):
                    r[f] += h[k] * w[f]
        for k in range(K):
            if h[k] != 0:
                w, a = W[k], rate * h[k]
                for f in range(F):
                    w[f] -= a * r[f]
                _on_simplex(w)
            w, mean = W[k], average[k]
            for f in range(F):
                mean[f] += rate * w[f]
        weights += rate
    for k in range(K):
        for f in range(F):
            average[k, f] /= weights


@numba.njit(cache=True, nogil=True)
def _on_simplex(w: Array) -> None:
    """Michelot (1986): lower all by the same amount, drop what is below zero, until nothing is."""
    F = len(w)
    threshold = w[0]
    for f in range(F):
        threshold = min(threshold, w[f])
    threshold -= 1
    count = F + 1
    while True:
        total = threshold - threshold
        above = 0
        for f in range(F):
            if w[f] > threshold:
                total += w[f]
                above += 1
        if above >= count or above == 0:  # rounding must not bring any back
            break
        count = above
        threshold = (total - 1) / above
    for f in range(F):
        w[f] = max(w[f] - threshold, 0)
