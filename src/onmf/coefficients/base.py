"""The coefficient step (the paper's Algorithm 2): h = argmin over h in H of d(x || hW) + (m/2) ||h||^2.

All samples of a mini-batch are solved side by side; a sample that has converged takes no more part.

**When is a sample converged?** A first-order bound on what is left to gain, relative to a scale of the problem:

    sum_k max(g_k, 0) (h_k - eps')  +  sum_k max(-g_k, 0) min(max(r_k - h_k, h_k), U - h_k)   <=   tol * d(x || 2x)

with g the gradient in h and r_k = sum_f x_f / sum_f W_kf, the coefficient at which atom k alone carries the sample's
whole mass. For a convex divergence and any solution h* <= max(r, 2h) the left side bounds f(h) - f(h*) from above; for
the others it measures the distance from a critical point. Where f itself is at hand it is a bound too, since no loss is
negative. d(x || 2x), the loss of a fit that is off by a factor of two, is a scale that every divergence has, and it
does not depend on where the iteration started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array, Counts, Mask
from onmf._support.checks import require_at_least, require_whole
from onmf.divergences import Divergence, Separable
from onmf.sets import Box

PARTS = ("H", "iterations", "converged")
TINY = 1e-30  # a fit of zero is outside most domains; in internal units this is zero to all others


@dataclass(frozen=True)
class Coefficients:
    """What a solver found: H (n, K), and for every sample its iterations and whether it converged."""

    H: Array
    iterations: Counts
    converged: Mask


@dataclass(frozen=True)
class CoefficientSolver(ABC):
    """Immutable settings of a solver; ``solve`` does not change them."""

    box: Box = field(default_factory=Box)
    ridge: float = 0.0  # the m of Assumption 2
    tol: float = 1e-3
    max_iter: int = 100

    def __post_init__(self) -> None:
        require_at_least(0, ridge=self.ridge, tol=self.tol)
        require_whole(1, max_iter=self.max_iter)

    @abstractmethod
    def refuses(self, divergence: Divergence) -> str | None:
        """Why this solver cannot serve a divergence, with the cure; None if it can."""

    def takes_sparse(self, divergence: Divergence) -> bool:
        """Can the solver use sparse data of this divergence as they are?"""
        return False

    @abstractmethod
    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        """Solve from the start H, a fresh array that may be overwritten."""

    def solve(self, divergence: Divergence, X: Array, W: Array, H0: Array | None = None) -> Coefficients:
        """The coefficients of the samples X (n, F) in the dictionary W (K, F), from H0 or a uniform start.

        A row of H0 whose fit has less than a thousandth of its sample's mass gives way to the uniform start.
        """
        reason = self.refuses(divergence)
        if reason is not None:
            raise ValueError(reason)
        start = uniform_start(X, W)
        if H0 is not None:
            # A fit with next to none of the sample's mass is no start: where zero is outside the domain, the gradient
            # explodes near it.
            carries = (H0 @ atom_sums(W))[:, None] >= 1e-3 * row_sums(X)[:, None]
            start = np.where(carries, H0, start).astype(X.dtype)
        return self._solve_by_blocks(divergence, X, W, self.box.project(start))

    def _solve_by_blocks(self, divergence: Divergence, X: Any, W: Array, H: Array) -> Coefficients:
        """Blocks of samples, shared out among the threads."""
        rows = blocks_of_rows(X, W)
        if len(rows) == 1:
            return self._solve(divergence, X, W, H)
        found = threads.each(lambda some: self._solve(divergence, X[some], W, H[some].copy()), rows)
        return Coefficients(*(np.concatenate([getattr(part, name) for part in found]) for name in PARTS))

    def precise(self, tol: float, max_iter: int) -> Self:
        """The same solver with other stopping constants."""
        return replace(self, tol=tol, max_iter=max_iter)

    def gradient(self, divergence: Divergence, X: Array, H: Array, Y: Array, W: Array) -> Array:
        """The derivative in h of d(x || hW) + (m/2) ||h||^2, where Y = HW."""
        G: Array = divergence.grad(X, Y) @ W.T
        if self.ridge:
            G += self.ridge * H
        return G

    def objective(self, divergence: Divergence, X: Array, H: Array, Y: Array) -> Array:
        """d(x || hW) + (m/2) ||h||^2 per sample, where Y = HW."""
        value = divergence.value(X, Y)
        if self.ridge:
            value = value + 0.5 * self.ridge * np.square(H).sum(axis=1)
        return value

    def tolerance(self, divergence: Divergence, X: Array) -> Array:
        """Tol * d(x || 2x) per sample; no tighter than the arithmetic of the dtype can tell."""
        resolution = 10 * float(np.finfo(X.dtype).eps)
        return max(self.tol, resolution) * self.scale(divergence, X)

    @staticmethod
    def scale(divergence: Divergence, X: Any) -> Array:
        """d(x || 2x) per sample; what sparse data do not store adds nothing."""
        degree = divergence.degree
        if isinstance(divergence, Separable) and degree is not None and divergence.in_units(2.0) is divergence:
            # Homogeneous: d(x || 2x) = x^degree d(1 || 2).
            share = float(divergence.d(np, np.float64(1.0), np.float64(2.0)))
            return _row_powers(X, degree) * share
        if scipy.sparse.issparse(X) and isinstance(divergence, Separable):
            entries = X.copy()
            entries.data = divergence.d(np, X.data, np.maximum(2 * X.data, TINY))
            return row_sums(entries)
        return divergence.value(X, np.maximum(2 * X, TINY))


def blocks_of_rows(X: Any, W: Array) -> list[slice]:
    """Samples that one thread solves side by side; many if dense, since the packed products of atoms serve them all."""
    n, F = X.shape
    if scipy.sparse.issparse(X):
        return threads.by_work(n, float(X.nnz) / max(n, 1) * len(W), 6e4)
    return threads.by_work(n, F * len(W), 3e6)


def _row_powers(X: Any, degree: float) -> Array:
    """sum_f x_f^degree per sample; zeros count for nothing, as in d(0 || 0)."""
    if degree == 1:
        return row_sums(X)
    if scipy.sparse.issparse(X):
        return row_sums(X.power(degree))
    if degree == 2:
        return np.einsum("nf,nf->n", X, X)
    powers: Array = np.where(X > 0, X, 1.0) ** degree * (X > 0)
    return row_sums(powers)


def row_sums(X: Any) -> Array:
    """sum_f x_f per sample, of dense or sparse data."""
    if scipy.sparse.issparse(X):
        return np.asarray(X @ np.ones(X.shape[1], dtype=X.dtype)).ravel()
    return X.sum(axis=1)


def atom_sums(W: Array) -> Array:
    """sum_f W_kf per atom, as a product: BLAS does not mind in which order W lies in memory."""
    return W @ np.ones(W.shape[1], dtype=W.dtype)


def atom_reach(X: Any, W: Array) -> Array:
    """r_k = sum_f x_f / sum_f W_kf: the coefficient at which atom k alone has the sample's mass. Shape (n, K)."""
    weight = atom_sums(W)
    return row_sums(X)[:, None] / np.where(weight > 0, weight, 1.0)


def uniform_start(X: Array, W: Array) -> Array:
    """The same coefficient for all atoms, such that the fit has the sample's mass."""
    total = float(atom_sums(W).sum())
    start = row_sums(X)[:, None] / (total if total > 0 else 1.0)
    return np.repeat(start, len(W), axis=1)


def remaining_gain(H: Array, G: Array, reach: Array, box: Box) -> Array:
    """The left side of the convergence test: a first-order bound on f(h) - min f, per sample."""
    down = np.maximum(G, 0.0) * (H - box.low)
    up = np.maximum(-G, 0.0) * np.minimum(np.maximum(reach - H, H), box.high - H)
    return (down + up).sum(axis=1)
