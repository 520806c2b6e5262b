"""Batch updates: every iteration sees all samples, coefficients first, then the dictionary. Multiplicative ones are

    H <- H o factor(P W' / N W')        W <- W o factor(H'P / H'N)

with P, N and the factor of the divergence (``multiplicative_parts``): majorisation-minimisation, by which the loss
cannot rise. P and N are made for one block of samples at a time and never exist as a whole. Each iteration finds the
loss of the state that it starts from on its way.

With penalties these are part of the denominators (``penalised_factor``), weights do not exceed 1, and every component
is given the size that costs least (``model.penalty``): the objective, loss and penalties, falls.

``methods.batch_descent`` has updates that get there sooner, for sparse counts and for dense data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array, Counts
from onmf.coefficients import kernels
from onmf.coefficients.multiplicative import penalised_factor
from onmf.coefficients.problem import Problem, component_sums, losses, multiplicative_parts
from onmf.divergences import Divergence, SquaredL2
from onmf.divergences.base import TINY, total
from onmf.model.penalty import NO_PENALTIES, Penalties, resized
from onmf.model.units import Units
from onmf.samples import Samples

FIRST = 2000  # samples of which the start is made where all of them would have to be densified
# A share of the data's mean, by the size of a number in bytes: powers of smaller fits are out of its range.
LEAST_FIT = {4: 1e-12, 8: 1e-40}
NEARLY_EXACT = {4: 1e-2, 8: 1e-6}  # of its terms, likewise: a smaller loss cannot be computed as their difference
IN_CACHE = 14_000  # entries of a block of samples: larger arrays would be allocated afresh by the system every time


@dataclass(frozen=True)
class Iterate:
    """The state after an iteration; the loss is summed over the samples."""

    number: int
    H: Array
    W: Array
    loss: float
    converged: bool  # has the objective, the loss with the penalties, nearly stopped falling?


def factorise(updates: Updates, H: Array, W: Array, max_iter: int, tol: float, fixed: int = 0) -> Iterator[Iterate]:
    """Yield the states from the start (number 0) to the last, which has converged or is number ``max_iter``.

    The first ``fixed`` components stay: the majorant is a sum over weights, so that others step as they would.
    Converged means that the objective has fallen by less than ``tol`` of itself over ``patience`` iterations.
    """
    objectives: list[float] = []
    updates.fixed = fixed
    for number in range(max_iter + 1):
        learning = fixed < len(W) and number < max_iter  # the last one is for the loss alone
        loss, *after = updates.iterate(H, W, learning)
        objectives.append(updates.objective(loss, H, W))
        before = objectives[-1 - updates.patience] if len(objectives) > updates.patience else np.inf
        converged = tol > 0 and before - objectives[-1] <= tol * abs(before) < np.inf
        yield Iterate(number, H, W, loss, converged)
        if converged:
            return
        start = W[:fixed]
        H, W = after
        if learning:
            W[:fixed] = start


def updates_of(X: Samples, units: Units, divergence: Divergence, inside: Divergence) -> tuple[Updates, Samples, int]:
    """Return the updates that suit the samples, the samples that the start looks at, and how many entries were raised.

    Sparse data under a divergence that needs all entries are densified block by block, in every iteration again.
    """
    squared_l2 = inside.quadratic and inside.metric is None and not X.masked
    by_entries = inside.separable if X.masked else squared_l2 or inside.alpha_order is not None
    if X.sparse and not by_entries:

        def rows(some: Any) -> tuple[Samples, int]:
            return units.inside(X[some].densified(), divergence)

        first, _ = rows(_some_rows(X))
        updates = DenseUpdates(inside, lambda some: rows(some)[0], X.shape, X.sample_weight, masked=X.masked)
        return updates, first, sum(rows(some)[1] for some in updates.blocks)
    internal, raised = units.inside(X, divergence)
    if squared_l2:
        return GramUpdates(internal), internal, raised
    if X.sparse:
        return StoredUpdates(inside, internal), internal[_some_rows(X)] if X.masked else internal, raised
    updates = DenseUpdates(inside, lambda some: internal[some], X.shape, X.sample_weight, masked=X.masked)
    return updates, internal, raised


def _some_rows(X: Samples) -> Counts:
    """Return rows of a sparse matrix that have entries: evenly spaced, as many as the start may densify."""
    filled = np.flatnonzero(np.diff(X.matrix.indptr))
    return filled[:: -(-len(filled) // FIRST)]


class Updates(ABC):
    """The samples, in blocks given by a function of their rows, and how one iteration goes over them.

    A sample counts in the loss and the dictionary as often as its ``sample_weight`` says.
    """

    patience: ClassVar[int] = 10  # iterations over which the objective has to fall
    penalties: Penalties = NO_PENALTIES
    fixed: int = 0  # the first components, which stay

    def __init__(
        self,
        divergence: Divergence,
        rows: Callable[[slice], Samples],
        blocks: list[slice],
        sample_weight: Array | None,
    ) -> None:
        self.divergence, self.rows, self.blocks, self.sample_weight = divergence, rows, blocks, sample_weight

    def start(self, W: Array) -> Array:
        """Return the same coefficient for all components of a sample, such that the fit has the mass of its entries."""
        return np.concatenate([self._uniform(self.rows(block), W) for block in self.blocks])

    def _uniform(self, X: Samples, W: Array) -> Array:
        totals = X.sum(axis=1)
        if X.masked:
            mass = np.asarray(X.entry_weights @ W.sum(axis=0))
            sizes = np.divide(totals, mass, out=np.zeros_like(totals), where=mass > 0)
        else:
            sizes = totals / (float(component_sums(W).sum()) or 1.0)
        return np.repeat(sizes[:, None], len(W), axis=1)

    def _counted(self, h: Array, rows: slice) -> Array:
        """Return coefficients of some samples, each times the weight of its sample."""
        return h if self.sample_weight is None else h * self.sample_weight[rows, None].astype(h.dtype)

    def _summed(self, losses: Array, rows: slice) -> float:
        """Return the sum of losses of some samples, each times the weight of its sample."""
        if self.sample_weight is None:
            return float(losses.sum(dtype=np.float64))
        return float(self.sample_weight[rows] @ losses)

    def objective(self, loss: float, H: Array, W: Array) -> float:
        """Return the summed loss with the penalties."""
        if not self.penalties:
            return loss
        penalty, l1 = self.penalties.of_coefficients, np.full((1, 1), self.penalties.l1_coefficients)
        of_coefficients = self._summed(penalty.value(H, l1), slice(None))
        return loss + of_coefficients + self._count(H) * self.penalties.of_dictionary(W)

    def _count(self, H: Array) -> float:
        """Return how many samples these count for."""
        return len(H) if self.sample_weight is None else float(self.sample_weight.sum())

    def _coefficients_factor(self, h: Array, above: Array, below: Array) -> Array:
        if not self.penalties:
            return self.divergence.multiplicative_factor(_ratio(above, below))
        penalty = self.penalties.of_coefficients
        return penalised_factor(self.divergence, above, below, h, penalty.l1, penalty.l2)

    def _updated(self, H: Array, W: Array, above: Array, below: Array) -> tuple[Array, Array]:
        """Return H and W after the update of W; above and below are sums over the samples."""
        penalties, n = self.penalties, self._count(H)
        if not penalties:
            return H, W * self.divergence.multiplicative_factor(_ratio(above, below))
        weights = n * penalties.l1_dictionary, n * penalties.l2_dictionary
        wanted = W * penalised_factor(self.divergence, above, below, W, *weights)
        counted = self._counted(H.astype(np.float64), slice(None))
        averages = counted.sum(axis=0) / n, (counted * H).sum(axis=0) / n
        pull = self._pull(n, W, wanted, above, below)
        s = resized(penalties, np.minimum(wanted, 1), averages, pull, self.fixed)
        return H * s, np.minimum(wanted / s[:, None], 1)

    def _pull(self, n: float, W: Array, wanted: Array, above: Array, below: Array) -> Callable[[Array], Array]:
        """Return at least how strongly the majorant's derivative pulls at weights that are at a bound of s.

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
        """Return the summed loss before the iteration, and H and W after it; W changes only with ``dictionary``."""


class DenseUpdates(Updates):
    """P and N on dense blocks of samples, with weights of their entries or without.

    The loss is a ``constant``, that of the samples alone, and what changes; of samples with weights it is computed as
    a whole.
    """

    def __init__(
        self,
        divergence: Divergence,
        rows: Callable[[slice], Samples],
        shape: tuple[int, int],
        sample_weight: Array | None = None,
        *,
        masked: bool = False,
        size: int = 0,
    ) -> None:
        blocks = threads.blocks(shape[0], size or max(32, IN_CACHE // shape[1]))
        super().__init__(divergence, rows, blocks, sample_weight)
        self.constant = None if masked else self._constant()

    def _constant(self) -> float | None:
        """Return the part of the loss that never changes; None where the loss is computed as a whole."""
        if self.sample_weight is not None:
            return None
        return sum(threads.each(lambda block: self.divergence.loss_of_samples(self.rows(block).matrix), self.blocks))

    def exact_loss(self, H: Array, W: Array) -> float:
        """Return the loss to the last digit."""

        def block(some: slice) -> float:
            X = self.rows(some).densified()
            return self._summed(losses(self.divergence, X, fitted(H[some], W)), some)

        return sum(threads.each(block, self.blocks))

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Share groups of blocks out among the threads, each with sums of its own."""
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
        """Return H'N, given the sum over all groups."""
        return below

    def _group(self, H: Array, W: Array, blocks: list[slice], dictionary: bool) -> tuple[float, Array, Array]:
        """Return the loss of some blocks before the step, but for the constant, and their sums H'P and H'N after it."""
        divergence, Wt, mass = self.divergence, W.T, W.sum(axis=1)
        loss, above, below = 0.0, np.zeros_like(W), np.zeros((len(W), 1), dtype=W.dtype)
        for block in blocks:
            X, h = self.rows(block), H[block]
            Y = fitted(h, W)
            P, N = _parts(divergence, X, Y)
            if self.constant is not None:
                loss += divergence.loss_of_fits(X.matrix, Y, P, N)
            else:
                loss += self._summed(losses(divergence, X, Y), block)
            h *= self._coefficients_factor(h, P @ Wt, mass if N is None else N @ Wt)
            if dictionary:
                P, N = _parts(divergence, X, fitted(h, W))
                h = self._counted(h, block)
                above += h.T @ P
                below = below + (h.sum(axis=0)[:, None] if N is None else h.T @ N)
        return loss, above, below


class GramUpdates(DenseUpdates):
    """Squared l2 by the products X W', W W', H'X and H'H of blocks of samples: no fit is needed, X may be sparse.

    Lee and Seung's updates; the loss is ||X||^2 / 2 - <X W', H> + <H W W', H> / 2.
    """

    def __init__(self, X: Samples) -> None:
        self.X = X
        size = max(128, IN_CACHE // max(1, X.values.size // len(X)))
        parts = {rows.start: X[rows] for rows in threads.blocks(len(X), size)}
        super().__init__(SquaredL2(), lambda rows: parts[rows.start], X.shape, X.sample_weight, size=size)

    def _constant(self) -> float:
        if self.sample_weight is None:
            return 0.5 * float(np.square(self.X.values, dtype=np.float64).sum())
        return 0.5 * float(self.sample_weight @ self.X.per_sample(np.square(self.X.values)))

    def _group(self, H: Array, W: Array, blocks: list[slice], dictionary: bool) -> tuple[float, Array, Array]:
        Q = W @ W.T
        loss, above, gram = 0.0, np.zeros_like(W), np.zeros_like(Q)
        for block in blocks:
            X, h = self.rows(block).matrix, H[block]
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


class StoredUpdates(Updates):
    """CSR samples at their stored entries, O(nnz K): the alpha family with alpha > 0, or masked under any sum.

    The entries are kept by columns, too, since the dictionary's sums go over the samples of a feature.
    """

    def __init__(self, divergence: Divergence, X: Samples) -> None:
        super().__init__(divergence, lambda _: X, [slice(0, len(X))], X.sample_weight)
        self.X, stored = X, X.matrix
        places = scipy.sparse.csr_matrix((np.arange(stored.nnz), stored.indices, stored.indptr), shape=stored.shape)
        self.columns = places.tocsc().T

    def iterate(self, H: Array, W: Array, dictionary: bool) -> tuple[float, Array, Array]:
        """Go over the rows for the coefficients, and over the features for the dictionary."""
        problem = Problem(self.divergence, self.X, W)
        fused = not (self.X.masked or self.penalties)
        new, Y, P, N = self._by_kernel(problem, H) if fused else self._by_products(problem, H, dictionary)
        loss = self._summed(problem.loss(H, Y), slice(None))
        if not dictionary:
            return loss, new, W
        counted = self._counted(new, slice(None))
        above = self._gathered(P, counted)
        below = counted.sum(axis=0) if N is None else self._gathered(N, counted)
        if self.penalties:
            return loss, *self._updated(new, W, above.T, below[:, None] if N is None else below.T)
        factor = self.divergence.multiplicative_factor(_ratio(above, below))
        return loss, new, np.asfortranarray((problem.Wt * factor).T)

    def _by_kernel(self, problem: Problem, H: Array) -> tuple[Array, Array, Array, None]:
        """Return the coefficients after one step, the fits before it and (x / y)^alpha after it."""
        X, (n, K) = self.X.matrix, H.shape
        new, Y, P = H.copy(), np.empty_like(X.data), np.empty_like(X.data)
        mass = np.maximum(problem.mass, np.finfo(H.dtype).tiny)
        settings = X, new, problem.Wt, mass, Y, P, self.divergence.alpha_order or 1.0, LEAST_FIT[H.itemsize]
        rows = threads.by_work(n, X.nnz / n * K, 1e5)
        iteration = kernels.multiplicative.multiplicative_iteration
        threads.each(lambda some: iteration(*settings, some.start, some.stop), rows)
        return new, Y, P, None

    def _by_products(self, problem: Problem, H: Array, parts: bool) -> tuple[Array, Array, Array, Array | None]:
        """Do as ``_by_kernel`` by sparse products, with the P and N of the new fits if ``parts`` are asked for."""
        least = LEAST_FIT[H.itemsize]
        Y = np.maximum(problem.fit(H), least)
        P, N = _parts(self.divergence, self.X, Y)
        below = problem.mass if N is None else problem.gathered(N)
        new = H * self._coefficients_factor(H, problem.gathered(P), below)
        return new, Y, *(_parts(self.divergence, self.X, np.maximum(problem.fit(new), least)) if parts else (P, N))

    def _gathered(self, entries: Array, H: Array) -> Array:
        """Return E'H (F, K) of a sparse matrix E with these ``entries``."""
        sums = np.empty((self.columns.shape[0], H.shape[1]), dtype=H.dtype)
        features = threads.by_work(len(sums), self.columns.nnz / len(sums) * H.shape[1], 1e5)
        gather = kernels.multiplicative.gather
        threads.each(lambda some: gather(self.columns, entries, H, sums, some.start, some.stop), features)
        return sums


def _parts(divergence: Divergence, X: Samples, Y: Array) -> tuple[Array, Array | None]:
    """Return P and N by the weights of the entries; N = None stands for ones."""
    P, N = multiplicative_parts(divergence, X, Y)
    return P, X.times_entry_weight(np.ones_like(P)) if N is None and X.masked else N


def fitted(H: Array, W: Array) -> Array:
    """Return HW, kept away from zero."""
    Y = H @ W
    np.maximum(Y, LEAST_FIT[Y.itemsize], out=Y)
    return Y


def _ratio(above: Array, below: Array) -> Array:
    """Return above / below, and one where there is nothing below: what has no weight is left alone."""
    quotient = np.ones_like(above)
    np.divide(above, below, out=quotient, where=below > np.finfo(above.dtype).tiny)
    return quotient
