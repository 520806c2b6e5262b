"""Averaged stochastic gradient steps on the simplex: robust stochastic approximation for squared l2."""

from __future__ import annotations

import numba
import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.coefficients.kernels.checked import kernel


def averaged_steps(W: Array, X: Array, H: Array, drawn: Counts, length: float) -> Array:
    """The mean of the dictionaries after each gradient step, weighted by the step lengths r = length / sqrt(step).

    A step is W <- P(W - r h' (hW - x)) with (x, h) the drawn rows of X and H, and P the projection of every atom on the
    simplex.
    """
    if drawn.min() < 0 or drawn.max() >= len(X):
        raise ValueError("a row was drawn that X does not have.")
    average = np.zeros_like(W, order="C")
    _averaged_steps(np.array(W, order="C"), X, H, drawn, average, length)
    return average


@kernel("KF* nF nK s KF*")
def _averaged_steps(W: Array, X: Array, H: Array, drawn: Counts, average: Array, length: float) -> None:
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
                _project_on_simplex(w)
            w, mean = W[k], average[k]
            for f in range(F):
                mean[f] += rate * w[f]
        weights += rate
    for k in range(K):
        for f in range(F):
            average[k, f] /= weights


@numba.njit(cache=True, nogil=True)
def _project_on_simplex(w: Array) -> None:
    """Michelot (1986): lower all entries by the same amount, drop those below zero, until none is."""
    least = w[0]
    for f in range(len(w)):  # compiled in a fifth of the time of w.min()
        least = min(least, w[f])
    threshold, count = least - 1, len(w) + 1
    while True:
        total = threshold - threshold
        above = 0
        for f in range(len(w)):
            if w[f] > threshold:
                total += w[f]
                above += 1
        if above >= count or above == 0:  # rounding must not bring any back
            break
        count = above
        threshold = (total - 1) / above
    for f in range(len(w)):
        w[f] = max(w[f] - threshold, 0)
