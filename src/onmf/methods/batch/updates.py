"""Batch multiplicative updates: every iteration sees all samples, coefficients first, then the dictionary.

    H <- H o factor(P W' / N W')        W <- W o factor(H'P / H'N)

with P, N and the factor of the divergence (``multiplicative_parts``): majorisation-minimisation, by which the loss
cannot rise. P and N are made for one block of samples at a time and never exist as a whole. Each iteration finds the
loss of the state that it starts from on its way.

With penalties these are part of the denominators (``penalised_factor``), weights do not exceed 1, and every atom is
given the size that costs least (``methods.scales``): the objective, loss and penalties, falls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array, dense, row_sums
from onmf.coefficients.multiplicative import penalised_factor
from onmf.coefficients.problem import NO_PENALTIES, Penalties, uniform_start
from onmf.divergences import Divergence, SquaredL2
from onmf.divergences.base import TINY, total
from onmf.methods.scales import resized

# Of the data's mean, by the size of a number in bytes: the powers of smaller fits are out of its range.
LEAST_FIT = {4: 1e-12, 8: 1e-40}
NEARLY_EXACT = {4: 1e-2, 8: 1e-6}  # of its terms, likewise: a smaller loss cannot be computed as their difference
IN_CACHE = 14_000  # entries of a block of samples: larger arrays would be allocated afresh by the system every time


class Updates(ABC):
    """The samples, in blocks given by a function of their rows, and how one iteration goes over them.

    ``samples`` are the weights of the samples, if they differ: how often each counts in the loss and the dictionary.
    """

    penalties: Penalties = NO_PENALTIES
    fixed: int = 0  # the first atoms, which stay

    def __init__(
        self,
        divergence: Divergence,
        rows: Callable[[slice], Any],
        blocks: list[slice],
        samples: Array | None = None,
    ) -> None:
        self.divergence, self.rows, self.blocks, self.samples = divergence, rows, blocks, samples

    def start(self, W: Array) -> Array:
        """Coefficients to begin with: the same for all atoms, such that the fit has the sample's mass."""
        return np.concatenate([uniform_start(self.rows(block), W) for block in self.blocks])

    def _counted(self, h: Array, rows: slice) -> Array:
        """The coefficients of some samples as the dictionary's sums count them."""
        return h if self.samples is None else h * self.samples[rows, None].astype(h.dtype)

    def _summed(self, losses: Array, rows: slice) -> float:
        """The losses of some samples, each as often as it counts."""
        if self.samples is None:
            return float(losses.sum(dtype=np.float64))
        return float(self.samples[rows] @ losses)

    def objective(self, loss: float, H: Array, W: Array) -> float:
        """The summed loss with the penalties."""
        if not self.penalties:
            return loss
        penalty, prices = self.penalties.of_coefficients, np.full((1, 1), self.penalties.l1_coefficients)
        of_coefficients = self._summed(penalty.value(H, prices), slice(None))
        return loss + of_coefficients + self._count(H) * self.penalties.of_dictionary(W)

    def _count(self, H: Array) -> float:
        """How many samples these count for."""
        return len(H) if self.samples is None else float(self.samples.sum())

    def _coefficients_factor(self, h: Array, above: Array, below: Array) -> Array:
        if not self.penalties:
            return self.divergence.multiplicative_factor(ratio(above, below))
        penalty = self.penalties.of_coefficients
        return penalised_factor(self.divergence, above, below, h, penalty.l1, penalty.l2)

    def _updated(self, H: Array, W: Array, above: Array, below: Array) -> tuple[Array, Array]:
        """H and W after the update of W, of which above and below are sums over the samples."""
        penalties, n = self.penalties, self._count(H)
        if not penalties:
            return H, W * self.divergence.multiplicative_factor(ratio(above, below))
        prices = n * penalties.l1_dictionary, n * penalties.l2_dictionary
        wanted = W * penalised_factor(self.divergence, above, below, W, *prices)
        counted = self._counted(H.astype(np.float64), slice(None))
        averages = counted.sum(axis=0) / n, (counted * H).sum(axis=0) / n
        pull = self._pull(n, W, wanted, above, below)
        s = resized(penalties, np.minimum(wanted, 1), averages, pull, self.fixed)
        return H * s, np.minimum(wanted / s[:, None], 1)

    def _pull(self, n: float, W: Array, wanted: Array, above: Array, below: Array) -> Callable[[Array], Array]:
        """At least how strongly the majorant's derivative wants weights that are at a bound of s to be larger.

        At v it is c (N (v/w)^a - P (w/v)^b), where a and b are such that the factor is the power 1 / (a + b) of P / N.
        As long as that is negative, its own derivative is c (a + b) P / w at most.
        """
        power = float(np.log(self.divergence.multiplicative_factor(np.array([np.e])))[0])
        c = (self.divergence.multiplicative_slope or 1.0) / n
        k, f = np.nonzero(wanted > 1)
        w, P, N = W[k, f], above[k, f], np.broadcast_to(below, W.shape)[k, f]
        slope = c * (N - P) + self.penalties.slope(w)
        stiffness = c * P / (power * np.maximum(w, TINY)) + self.penalties.l2_dictionary

        def pull(s: Array) -> Array:
            total: Array = np.zeros(len(W))
            np.add.at(total, k, np.maximum(-slope - stiffness * (s[k] - w), 0))
            return total

        return pull

    @abstractmethod
    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """The summed loss before the iteration, and H and W after it; W does not change unless ``dictionary``."""


class DenseUpdates(Updates):
    """P and N on dense blocks of samples.

    The loss is a ``constant``, that of the samples alone, and what changes; of samples with weights it is computed as
    a whole.
    """

    def __init__(
        self,
        divergence: Divergence,
        rows: Callable[[slice], Any],
        shape: tuple[int, int],
        size: int = 0,
        samples: Array | None = None,
    ) -> None:
        super().__init__(divergence, rows, threads.blocks(shape[0], size or max(32, IN_CACHE // shape[1])), samples)
        self.constant = self._constant()

    def _constant(self) -> float | None:
        """None: the loss is computed as a whole."""
        if self.samples is not None:
            return None
        return sum(threads.each(lambda block: self.divergence.loss_of_samples(self.rows(block)), self.blocks))

    def exact_loss(self, H: Array, W: Array) -> float:
        """The loss to the last digit."""

        def block(some: slice) -> float:
            return self._summed(self.divergence.value(dense(self.rows(some)), fit(H[some], W)), some)

        return sum(threads.each(block, self.blocks))

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Groups of blocks are shared out among the threads, each with sums of its own."""
        new = H.copy()
        groups = threads.by_work(len(self.blocks), len(H) / len(self.blocks) * W.size, 1e6)
        found = threads.each(lambda group: self._group(new, W, self.blocks[group], dictionary), groups)
        changing, above, below = (sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True))
        loss, below = (self.constant or 0.0) + changing, self._denominator(below, W)
        # Entries are of order one, so that terms that cancel may be of that size each.
        if self.constant is not None and loss <= NEARLY_EXACT[W.itemsize] * (
            abs(self.constant) + abs(changing) + len(H) * W.shape[1]
        ):
            loss = self.exact_loss(H, W)
        return loss, *(self._updated(new, W, above, below) if dictionary else (new, W))

    def _denominator(self, below: Array, W: Array) -> Array:
        """H'N, of what the groups' sums add up to."""
        return below

    def _group(self, H: Array, W: Array, blocks: list[slice], dictionary: bool) -> tuple[float, Array, Array]:
        """The loss of some blocks before the step, but for the constant, and their sums H'P and H'N after it."""
        divergence, Wt, mass = self.divergence, W.T, W.sum(axis=1)
        loss, above, below = 0.0, np.zeros_like(W), np.zeros((len(W), 1), dtype=W.dtype)
        for block in blocks:
            X, h = self.rows(block), H[block]
            Y = fit(h, W)
            P, N = self._parts(X, Y)
            by_parts = self.constant is not None
            loss += divergence.loss_of_fits(X, Y, P, N) if by_parts else self._summed(divergence.value(X, Y), block)
            h *= self._coefficients_factor(h, P @ Wt, mass if N is None else N @ Wt)
            if dictionary:
                P, N = self._parts(X, fit(h, W))
                h = self._counted(h, block)
                above += h.T @ P
                below = below + (h.sum(axis=0)[:, None] if N is None else h.T @ N)
        return loss, above, below

    def _parts(self, X: Any, Y: Array) -> tuple[Array, Array | None]:
        """P and N; N = None stands for ones."""
        return self.divergence.multiplicative_parts(X, Y)


class GramUpdates(DenseUpdates):
    """Squared l2 by the products X W', W W', H'X and H'H of blocks of samples: no fit is needed, X may be sparse.

    Lee and Seung's updates; the loss is ||X||^2 / 2 - <X W', H> + <H W W', H> / 2.
    """

    def __init__(self, X: Any, samples: Array | None = None) -> None:
        self.X, sparse = X, scipy.sparse.issparse(X)
        size = max(128, IN_CACHE // (max(1, X.nnz // X.shape[0]) if sparse else X.shape[1]))
        parts = {rows.start: X[rows] for rows in threads.blocks(X.shape[0], size)}
        super().__init__(SquaredL2(), lambda rows: parts[rows.start], X.shape, size, samples)

    def _constant(self) -> float:
        X, sparse = self.X, scipy.sparse.issparse(self.X)
        if self.samples is None:
            return 0.5 * float(np.square(X.data if sparse else X, dtype=np.float64).sum())
        squares = X.multiply(X) if sparse else np.square(X)
        return 0.5 * float(self.samples @ row_sums(squares))

    def _group(self, H: Array, W: Array, blocks: list[slice], dictionary: bool) -> tuple[float, Array, Array]:
        Q = W @ W.T
        loss, above, gram = 0.0, np.zeros_like(W), np.zeros_like(Q)
        for block in blocks:
            X, h = self.rows(block), H[block]
            B, HQ = X @ W.T, h @ Q
            loss += total(self._counted(h, block), 0.5 * HQ - B)
            h *= self._coefficients_factor(h, B, HQ)
            if dictionary:
                counted = self._counted(h, block)
                above += counted.T @ X
                gram += counted.T @ h
        return loss, above, gram

    def _denominator(self, below: Array, W: Array) -> Array:
        return below @ W


def fit(H: Array, W: Array) -> Array:
    """HW, kept away from zero."""
    Y = H @ W
    np.maximum(Y, LEAST_FIT[Y.itemsize], out=Y)
    return Y


def ratio(above: Array, below: Array) -> Array:
    """above / below, and one where there is nothing below: what has no weight is left alone."""
    quotient = np.ones_like(above)
    np.divide(above, below, out=quotient, where=below > np.finfo(above.dtype).tiny)
    return quotient
