"""Algorithm 2 with Polyak's modified step size: for the l1 distance, which has no gradient at its minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number
from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.divergences import Divergence

SLOW = 0.998  # a faster fall of delta outruns the iterates, and its end says nothing


@dataclass(frozen=True)
class Polyak(CoefficientSolver):
    """h <- P(h - (f(h) - target) / ||g||^2 g), aiming at target = (best value so far) - delta.

    When a step reaches its target, delta grows by a fifth; when it misses, delta shrinks, never below delta_tol times
    the sample's mean entry, and at a rate that spends four fifths of ``max_iter`` on the way down: a larger limit
    buys a better answer. In the limit the values come within delta_tol of the minimum, and no closer (Nedic and
    Bertsekas 2001). The best point seen is returned.

    ``converged`` says that f itself, which is never negative, is below delta_tol, or that delta came down slowly (by
    less than 1/500 a step, which takes a ``max_iter`` of some thousands) to its least value and that its target, best -
    delta, was then missed ``patience`` times in a row: the gap that the rule gives. That is no proof; a test compares
    with linear programming. ``tol`` has no part in it.
    """

    delta_tol: float = 0.01
    patience: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.delta_tol) or not (0 < self.delta_tol < math.inf and self.patience >= 1):
            raise ValueError(f"Polyak needs delta_tol > 0 and patience >= 1; got {self.delta_tol} and {self.patience}.")

    def refuses(self, divergence: Divergence) -> str | None:
        """Polyak's step aims at a global minimum: that needs convexity."""
        if divergence.convex:
            return None
        return f"Polyak refuses {divergence.name}: it is not convex, so no step aims at its minimum; use armijo."

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        n = len(X)
        iterations = np.zeros(n, dtype=np.int64)
        converged = np.zeros(n, dtype=bool)
        result = H.copy()
        active = np.arange(n)
        f = self.objective(divergence, X, H, H @ W)
        best_f, best_H = f, H
        least = self.delta_tol * X.mean(axis=1)
        delta = np.maximum(0.1 * f, least)
        shrink = (least / np.where(delta > 0, delta, 1.0)) ** (1.0 / (0.8 * self.max_iter))
        missed = np.zeros(n, dtype=np.int64)
        rounding = 100 * float(np.finfo(X.dtype).eps)
        for _ in range(self.max_iter):
            G = self.gradient(divergence, X, H, H @ W, W)
            # Directions that leave the box are no part of the step (projected subgradient).
            G[((self.box.low >= H) & (G > 0)) | ((self.box.high <= H) & (G < 0))] = 0.0
            square = np.square(G).sum(axis=1)
            target = best_f - delta
            step = (f - target) / np.where(square > 0, square, 1.0)
            H = self.box.project(H - step[:, None] * G)
            f = self.objective(divergence, X, H, H @ W)
            iterations[active] += 1

            # Where no residual changes its sign a step lands on its target exactly, up to rounding, and values repeat:
            # neither test may hang on the last bits.
            reached = f <= best_f - 0.9 * delta
            at_least = delta <= 1.001 * least
            missed = np.where(at_least & ~reached, missed + 1, 0)
            delta = np.where(reached, 1.2 * delta, np.maximum(shrink * delta, least))
            better = f < best_f * (1 - rounding)
            best_f = np.where(better, f, best_f)
            best_H = np.where(better[:, None], H, best_H)

            found = ((missed >= self.patience) & (shrink >= SLOW)) | (square == 0) | (best_f <= least)
            done = found | (missed >= self.patience)
            if done.any():
                converged[active[found]] = True
                result[active[done]] = best_H[done]
                stay = ~done
                active, X, H, f = active[stay], X[stay], H[stay], f[stay]
                best_f, best_H, delta, least = best_f[stay], best_H[stay], delta[stay], least[stay]
                missed, shrink = missed[stay], shrink[stay]
                if not active.size:
                    break
        result[active] = best_H
        return Coefficients(result, iterations, converged)
