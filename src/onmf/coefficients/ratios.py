"""Coefficients under Itakura-Saito, near enough to a minimum for learning.

The loss is not convex in h, and has more than one minimum for some samples. Two ways to one of them are tried, and the
better is kept for each sample: multiplicative steps, which win on spectrograms, and least squares with all features
brought to the same size, which win where there is little noise. For other losses of ratios this is a start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients.base import TINY, Coefficients, CoefficientSolver
from onmf.divergences import Beta, Divergence, ItakuraSaito
from onmf.sets import Box


@dataclass(frozen=True)
class Ratios(CoefficientSolver):
    """A fixed number of multiplicative steps, or scaled least squares; nothing is tested."""

    max_iter: int = 10

    def refuses(self, divergence: Divergence) -> str | None:
        """The multiplicative steps are those of Itakura-Saito."""
        if isinstance(divergence, ItakuraSaito) or divergence == Beta(0.0):
            return None
        return f"Ratios refuses {divergence.name}: its steps are those of is; use newton."

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        n = len(X)
        H = better_of_two(divergence, X, W, H, self.box, self.max_iter)
        return Coefficients(H, np.full(n, self.max_iter, dtype=np.int64), np.zeros(n, dtype=bool))


def better_of_two(divergence: Divergence, X: Array, W: Array, H: Array, box: Box, steps: int) -> Array:
    """Per sample the better of ``steps`` multiplicative steps from H and scaled least squares."""
    from onmf.kernels import nnls_on_gram

    def multiplicative(rows: slice) -> Array:
        x, h = X[rows], H[rows]
        for _ in range(steps):
            inverse = 1.0 / np.maximum(h @ W, TINY)
            h = box.project(h * (((x * np.square(inverse)) @ W.T) / (inverse @ W.T)))
        return h

    first = np.concatenate(threads.each(multiplicative, threads.by_work(len(X), X.shape[1] * len(W), 4e5)))
    g = np.exp(np.log(np.maximum(W, 1e-6)).mean(axis=0))  # the typical size of a feature, by its atoms
    V = W / g
    second = nnls_on_gram(V @ V.T, (X / g) @ V.T)
    second = box.project(np.maximum(second, 1e-6 * second.mean(axis=1, keepdims=True)))
    second = box.project(second * (X / np.maximum(second @ W, TINY)).mean(axis=1, keepdims=True))
    better = divergence.value(X, first @ W) <= divergence.value(X, second @ W)
    return np.where(better[:, None], first, second)
