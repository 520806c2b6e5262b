"""Batch multiplicative updates: every iteration sees all samples, coefficients first, then the dictionary.

    H <- H o factor(P W' / N W')        W <- W o factor(H'P / H'N)

with P, N and the factor of the divergence (``multiplicative_parts``): majorisation-minimisation, by which the loss
cannot rise. P and N are made for one block of samples at a time and never exist as a whole. Each iteration finds the
loss of the state that it begins with on its way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.divergences import Divergence, SquaredL2
from onmf.divergences.base import total
from onmf.problem import SparseProblem, uniform_start

LEAST_FIT = {4: 1e-12, 8: 1e-40}  # of the data's mean, by bytes a number: fits below have powers that it does not hold
NEARLY_EXACT = {4: 1e-2, 8: 1e-6}  # of its terms, by bytes a number: a loss below cannot be found as their difference
IN_CACHE = 14_000  # entries of a block of samples: larger arrays are taken from the system afresh every time
PATIENCE = 10  # iterations over which the loss has to fall


class Updates(ABC):
    """The samples of a problem, and how one iteration goes over them."""

    @abstractmethod
    def start(self, W: Array) -> Array:
        """Coefficients to begin with: the same for all atoms, the fit having the sample's mass."""

    @abstractmethod
    def loss(self, H: Array, W: Array) -> float:
        """The loss, summed over the samples."""

    @abstractmethod
    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """One iteration: the loss before it, and H and W after it (the same W if not ``dictionary``)."""


class DenseUpdates(Updates):
    """Blocks of samples, given as dense arrays by a function of their rows."""

    def __init__(self, divergence: Divergence, rows: Callable[[slice], Array], shape: tuple[int, int]) -> None:
        self.divergence, self.rows, self.shape = divergence, rows, shape
        n, F = shape
        self.blocks = threads.blocks(n, max(32, IN_CACHE // F))
        self.constant = sum(threads.each(lambda block: divergence.loss_of_samples(rows(block)), self.blocks))

    def start(self, W: Array) -> Array:
        """Block by block."""
        return np.concatenate([uniform_start(self.rows(block), W) for block in self.blocks])

    def loss(self, H: Array, W: Array) -> float:
        """Block by block, to the last digit."""

        def block(some: slice) -> float:
            return float(self.divergence.value(self.rows(some), fit(H[some], W)).sum(dtype=np.float64))

        return sum(threads.each(block, self.blocks))

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Groups of blocks, shared out among the threads; the sums of each group are its own."""
        groups = threads.by_work(len(self.blocks), self.shape[0] / len(self.blocks) * self.shape[1] * len(W), 1e6)
        new = H.copy()
        found = threads.each(lambda group: self._group(new, W, self.blocks[group], dictionary), groups)
        changing = sum(part[0] for part in found)
        loss = self.constant + changing
        if loss <= NEARLY_EXACT[W.itemsize] * (abs(self.constant) + abs(changing) + len(H) * W.shape[1]):
            loss = self.loss(H, W)  # entries are of order one, so that terms that cancel may be of that size each
        if not dictionary:
            return loss, new, W
        above, below = (sum(parts[1:], start=parts[0]) for parts in zip(*(part[1:] for part in found), strict=True))
        return loss, new, W * self.divergence.multiplicative_factor(ratio(above, below))

    def _group(self, H: Array, W: Array, blocks: list[slice], dictionary: bool) -> tuple[Any, ...]:
        """The loss of some blocks before the step, and after it their sums H'P and H'N, if wanted."""
        divergence, Wt, mass = self.divergence, W.T, W.sum(axis=1)
        loss, above, below = 0.0, np.zeros_like(W), np.zeros((len(W), 1), dtype=W.dtype)
        for block in blocks:
            X, h = self.rows(block), H[block]
            Y = fit(h, W)
            P, N = divergence.multiplicative_parts(X, Y)
            loss += divergence.loss_of_fits(X, Y, P, N)
            h *= divergence.multiplicative_factor(ratio(P @ Wt, mass if N is None else N @ Wt))
            if dictionary:
                P, N = divergence.multiplicative_parts(X, fit(h, W))
                above += h.T @ P
                below = below + (h.sum(axis=0)[:, None] if N is None else h.T @ N)
        return loss, above, below


class SparseUpdates(Updates):
    """CSR samples under a divergence that is linear at zero: the alpha family with alpha = ``order`` > 0.

    The entries are kept by columns too, since the dictionary's sums go over the samples of a feature.
    """

    def __init__(self, divergence: Divergence, X: Any, order: float) -> None:
        self.divergence, self.X, self.order = divergence, X, order
        places = scipy.sparse.csr_matrix((np.arange(X.nnz), X.indices, X.indptr), shape=X.shape).tocsc()
        self.columns = places.indptr, places.indices, places.data

    def start(self, W: Array) -> Array:
        """By the sums of the non-zeros."""
        return uniform_start(self.X, W)

    def loss(self, H: Array, W: Array) -> float:
        """By the fits at the non-zeros."""
        problem = SparseProblem(self.divergence, self.X, W)
        return self._loss(H, problem, np.maximum(problem.fit(H), LEAST_FIT[H.itemsize]))

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Rows for the coefficients, features for the dictionary."""
        from onmf.kernels import gather, multiplicative_iteration

        X, (n, K) = self.X, H.shape
        problem = SparseProblem(self.divergence, X, W)
        new = H.copy()
        Y, P = np.empty_like(X.data), np.empty_like(X.data)
        mass = np.maximum(problem.mass, np.finfo(W.dtype).tiny)
        settings = X, new, problem.Wt, mass, self.order, LEAST_FIT[H.itemsize]
        rows = threads.by_work(n, X.nnz / n * K, 1e5)
        threads.each(lambda some: multiplicative_iteration(*settings, some, (Y, P)), rows)
        loss = self._loss(H, problem, Y)
        if not dictionary:
            return loss, new, W
        sums = np.empty_like(problem.Wt)
        features = threads.by_work(len(sums), X.nnz / len(sums) * K, 1e5)
        threads.each(lambda some: gather(self.columns, P, new, some, sums), features)
        factor = self.divergence.multiplicative_factor(ratio(sums, new.sum(axis=0)))
        return loss, new, np.asfortranarray((problem.Wt * factor).T)

    @staticmethod
    def _loss(H: Array, problem: SparseProblem, Y: Array) -> float:
        return float(problem.loss(H, Y).sum(dtype=np.float64))


class GramUpdates(Updates):
    """Squared l2 by the products X W', W W', H'X and H'H of blocks of samples: no fit is needed, X may be sparse."""

    def __init__(self, X: Any) -> None:
        sparse = scipy.sparse.issparse(X)
        size = max(128, IN_CACHE // (max(1, X.nnz // X.shape[0]) if sparse else X.shape[1]))
        self.parts = [(rows, X[rows]) for rows in threads.blocks(X.shape[0], size)]
        self.square = float(np.square(X.data if sparse else X, dtype=np.float64).sum())
        self.exact = DenseUpdates(SquaredL2(), lambda rows: X[rows].toarray() if sparse else X[rows], X.shape)

    def start(self, W: Array) -> Array:
        """Block by block."""
        return np.concatenate([uniform_start(X, W) for _, X in self.parts])

    def loss(self, H: Array, W: Array) -> float:
        """Without an iteration."""
        return self._loss(H, W, sum(total(H[rows], H[rows] @ (0.5 * W @ W.T) - X @ W.T) for rows, X in self.parts))

    def _loss(self, H: Array, W: Array, changing: float) -> float:
        """Found as a difference, unless too little of it would be left."""
        loss = 0.5 * self.square + changing
        return loss if loss > NEARLY_EXACT[H.itemsize] * self.square else self.exact.loss(H, W)

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Lee and Seung's updates; the loss is ||X||^2 / 2 - <X W', H> + <H W W', H> / 2."""
        new, Q = H.copy(), W @ W.T

        def group(some: slice) -> tuple[Any, ...]:
            changing, above, gram = 0.0, np.zeros_like(W), np.zeros_like(Q)
            for rows, X in self.parts[some]:
                h, B = new[rows], X @ W.T
                HQ = h @ Q
                changing += total(h, 0.5 * HQ - B)
                h *= ratio(B, HQ)
                if dictionary:
                    above += h.T @ X
                    gram += h.T @ h
            return changing, above, gram

        groups = threads.by_work(len(self.parts), len(H) / len(self.parts) * W.size, 1e6)
        changing, above, gram = (
            sum(parts[1:], start=parts[0]) for parts in zip(*threads.each(group, groups), strict=True)
        )
        loss = self._loss(H, W, changing)
        return loss, new, W * ratio(above, gram @ W) if dictionary else W


def fit(H: Array, W: Array) -> Array:
    """HW, nowhere zero."""
    Y = H @ W
    np.maximum(Y, LEAST_FIT[Y.itemsize], out=Y)
    return Y


def ratio(above: Array, below: Array) -> Array:
    """above / below, and one where there is nothing below: what has no weight is left alone."""
    quotient = np.ones_like(above)
    np.divide(above, below, out=quotient, where=below > np.finfo(above.dtype).tiny)
    return quotient


@dataclass(frozen=True)
class Iterate:
    """The state after an iteration; the loss is summed over the samples."""

    number: int
    H: Array
    W: Array
    loss: float
    converged: bool  # has the loss nearly stopped to fall?


def factorise(
    updates: Updates, H: Array, W: Array, max_iter: int, tol: float, dictionary: bool = True
) -> Iterator[Iterate]:
    """The states from the start (number 0) to the last one, which has converged or is the ``max_iter``-th.

    Converged means that the loss has fallen by less than ``tol`` of itself over ten iterations.
    """
    losses: list[float] = []
    for number in range(max_iter + 1):
        last = number == max_iter
        loss, *after = (updates.loss(H, W), H, W) if last else updates.iterate(H, W, dictionary)
        losses.append(loss)
        ten_ago = losses[-1 - PATIENCE] if len(losses) > PATIENCE else np.inf
        converged = tol > 0 and ten_ago - loss <= tol * ten_ago < np.inf
        yield Iterate(number, H, W, loss, converged)
        if converged:
            return
        H, W = after
