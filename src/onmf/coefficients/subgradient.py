"""Algorithm 2 with Polyak's modified step size: for the l1 distance, which has no gradient at its minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf._support.checks import is_number
from onmf.coefficients.base import Coefficients, CoefficientSolver, Descent, iterate
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Simplex

SLOW = 0.998  # a faster fall of delta outruns the iterates, and its end says nothing


@dataclass(frozen=True)
class Polyak(CoefficientSolver, name="polyak"):
    """h <- P(h - (f(h) - target) / ||g||^2 g), aiming at target = (best value so far) - delta.

    When a step reaches its target, delta grows by a fifth; when it misses, delta shrinks, never below delta_tol times
    the sample's mean entry, and at a rate that spends four fifths of ``max_iter`` on the way down: a larger limit
    buys a better answer. In the limit the values come within delta_tol of the minimum, and no closer (Nedic and
    Bertsekas 2001). The best point seen is returned.

    ``converged`` says that f itself, which is never negative, is below delta_tol, or that delta came down slowly (by
    less than 1/500 per step, which takes a ``max_iter`` of some thousands) to its least value and that its target,
    best - delta, was then missed ``patience`` times in a row: the gap that the rule gives. That is no proof; a test
    compares with linear programming. ``tol`` plays no part in it.
    """

    uses_tol: ClassVar[bool] = False
    delta_tol: float = 0.01
    patience: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.delta_tol) or not (0 < self.delta_tol < math.inf and self.patience >= 1):
            raise ValueError(f"Polyak needs delta_tol > 0 and patience >= 1; got {self.delta_tol} and {self.patience}.")

    def why_not(self, divergence: Divergence, penalty: Penalty = NO_PENALTY, masked: bool = False) -> str | None:
        reason = f"Polyak cannot solve {divergence.name}: it is not convex, so no step aims at its minimum; use armijo."
        return None if divergence.convex else reason

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        return iterate(_Steps(self, problem, H), self.max_iter)


class _Steps(Descent):
    def __init__(self, solver: Polyak, problem: Problem, H: Array) -> None:
        super().__init__(problem, H)
        self.patience = solver.patience
        self.Y = problem.fit(H)
        self.f = problem.objective(H, self.Y)
        self.best_f, self.best_H = self.f, H
        self.least = solver.delta_tol * problem.X.mean(axis=1)
        self.delta = np.maximum(0.1 * self.f, self.least)
        self.shrink = (self.least / np.where(self.delta > 0, self.delta, 1.0)) ** (1.0 / (0.8 * solver.max_iter))
        self.missed = np.zeros(len(H), dtype=np.int64)

    def answers(self) -> Array:
        return self.best_H

    def step(self) -> Mask:
        problem, H, box, least = self.problem, self.H, self.problem.box, self.least
        G = problem.gradient(H, self.Y)
        # Directions that leave the set are no part of the step (projected subgradient).
        if isinstance(box, Simplex):
            G = _along_simplex(G, box.low >= H)
        else:
            G[((box.low >= H) & (G > 0)) | ((box.high <= H) & (G < 0))] = 0.0
        square = np.square(G).sum(axis=1)
        step = (self.f - (self.best_f - self.delta)) / np.where(square > 0, square, 1.0)
        self.H = box.project(H - step[:, None] * G)
        self.Y = problem.fit(self.H)
        self.f = problem.objective(self.H, self.Y)

        # Where no residual changes its sign a step lands on its target exactly, up to rounding, and values repeat:
        # neither test may hang on the last bits.
        reached = self.f <= self.best_f - 0.9 * self.delta
        at_least = self.delta <= 1.001 * least
        self.missed = np.where(at_least & ~reached, self.missed + 1, 0)
        self.delta = np.where(reached, 1.2 * self.delta, np.maximum(self.shrink * self.delta, least))
        better = self.f < self.best_f * (1 - 100 * float(np.finfo(H.dtype).eps))
        self.best_f = np.where(better, self.f, self.best_f)
        self.best_H = np.where(better[:, None], self.H, self.best_H)
        missing = self.missed >= self.patience
        self.done = (missing & (self.shrink >= SLOW)) | (square == 0) | (self.best_f <= least)
        return missing & ~self.done


def _along_simplex(G: Array, bound: Mask) -> Array:
    """Return G less its mean over the coefficients that can move, which projecting a step would take from it anyway."""

    def level(free: Mask) -> Array:
        mean: Array = np.where(free, G, 0.0).sum(axis=1, keepdims=True) / np.maximum(free.sum(axis=1, keepdims=True), 1)
        return mean

    free = ~bound | (level(~bound) > G)
    return np.where(free, G - level(free), 0.0).astype(G.dtype)
