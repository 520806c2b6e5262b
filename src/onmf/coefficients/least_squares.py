"""Least squares where entries are missing: every sample has a Gram matrix of its own."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf.coefficients.base import Coefficients
from onmf.coefficients.problem import Problem, packed_diagonal

ENOUGH = 2  # entries per component that determine a sample's coefficients
SINGULAR = 1e-12  # of the mean diagonal: Gram matrices of fewer entries than components are singular
PIVOTS = 1000  # of an active set at most: ties among the cheapest fits take more than the usual ones


def normal_equations(problem: Problem) -> tuple[Array, Array]:
    """Return the matrix of every masked sample, packed, and its right-hand sides (n, K), without the penalty."""
    return problem.own_grams, problem.gathered(-problem.squares[0])


def least_squares_by_sample(problem: Problem) -> tuple[Array, Mask]:
    """Return the minima of masked samples, and which of them have enough entries: others have many, some far off."""
    from onmf.coefficients.kernels.gram import nnls_on_grams

    M, B = normal_equations(problem)
    if problem.penalty.l2:
        M = M.copy()
        M[:, packed_diagonal(problem.K)] += problem.penalty.l2
    if problem.penalty.linear:
        B = B - problem.l1
    number = (problem.X.entry_weights > 0).sum(axis=1)
    return problem.box.project(nnls_on_grams(M, B)), np.asarray(number).ravel() >= ENOUGH * problem.K


def penalised_distances(problem: Problem, tol: float, max_iter: int) -> Coefficients:
    """Return the minima of ||x - hW|| + penalty(h) over the box, each until no more than tol ||x|| is left to gain.

    With fewer entries than components a masked sample has fits that are exact, and the distance ||r|| has its kink
    there: Newton's method finds no slope to follow among them, and the cheapest of them is the answer. But

        ||r|| = min over s > 0 of ||r||^2 / (2 s) + s / 2,

    so that penalised least squares with penalties times s lead there, with s = ||r|| in turn or, in half as many steps,
    twice as far on a logarithmic scale: what s is off by is then multiplied by 2 c - 1, where c in (0, 1) is the share
    of a relative change of s that ||r|| follows. With r / s as a dual point, f(h) - min f is at most
    ||r|| (1 - ||r|| / s) where ||r|| <= s, kink or not.
    """
    from onmf.coefficients.kernels.gram import nnls_on_grams

    matrices, products = (each.astype(np.float64, copy=False) for each in normal_equations(problem))
    diagonal, l2, l1 = packed_diagonal(problem.K), problem.penalty.l2, problem.l1.astype(np.float64)
    tiny = float(np.finfo(problem.W.dtype).tiny)
    size = problem.scale.astype(np.float64) + tiny
    enough = max(tol, 10 * float(np.finfo(problem.W.dtype).eps)) * size
    damping = SINGULAR * matrices[:, diagonal].mean(axis=1) + tiny
    found = Coefficients.untested(problem.box.project(np.zeros_like(problem.W, shape=(problem.n, problem.K))), max_iter)
    s, active = size.copy(), np.flatnonzero(problem.totals > 0)
    found.converged[problem.totals <= 0] = True
    for k in range(max_iter):
        if not active.size:
            break
        some, own = problem.rows(active), s[active]
        M = matrices[active]
        M[:, diagonal] += (damping[active] + l2 * own)[:, None]
        solved = nnls_on_grams(M, products[active] - own[:, None] * l1[active], PIVOTS)
        H = problem.box.project(solved.astype(problem.W.dtype))
        norm = some.loss(H, some.fit(H)).astype(np.float64)
        squares = np.square(H).sum(axis=1)
        gap = _gap(norm, own, l1[active, 0] * H.sum(axis=1), l2 * squares) + 0.5 * damping[active] / own * squares
        done = gap <= enough[active]
        found.H[active], found.converged[active], found.iterations[active] = H, done, k + 1
        s[active] = np.maximum(norm * (norm / own), enough[active])
        active = active[~done]
    return found


def _gap(norm: Array, s: Array, linear: Array, square: Array) -> Array:
    """Return a bound on f(h) - min f: r / s is the dual point, or r / ||r|| where that is longer than one."""
    excess = 1 - 1 / np.maximum(norm / s, 1.0)
    gap: Array = norm * (1 - np.minimum(norm / s, 1.0)) + linear * excess + 0.5 * square * np.square(excess)
    return gap
