"""Averaged quadratic models at the non-zeros: Newton's step where em makes a multiplicative one.

Under Kullback-Leibler and the alpha family with alpha > 0 the loss of a zero is linear in the fit, so that all
curvature lies at the non-zeros. With r = (x / y)^alpha there, alpha times the loss of feature f has at the fit y = hW

    slope  D - avg r_f h,    curvature  A_f = avg alpha (r_f / y_f) h h'    (K x K, packed),    D = avg h

and its model's statistics, averaged with falling weights, are A_f and b_f = A_f w + avg r_f h = avg (1 + alpha) r_f h.
The K weights of the feature minimise, by a few sweeps of coordinate descent,

    w A_f w' / 2 - (b_f - D) w' + damping / 2 sum_k D_k (w_k - v_k)^2 / v_k    over w >= low_f

where v are the old weights: the last term has a share of the curvature of em's majoriser. It decides what few samples
say nothing about. A chunk costs O(nnz K^2) and memory is F K^2 / 2 numbers, but far fewer passes are needed than with
em, which takes many small steps where this takes one. No convergence theorem is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients import kernels
from onmf.coefficients.problem import Problem, unpacked
from onmf.divergences import Divergence
from onmf.methods import em
from onmf.methods.base import Growing
from onmf.methods.em import Accumulating, order_of
from onmf.model.penalty import Penalties, carried, falling, resized
from onmf.model.sets import DictionarySet
from onmf.model.state import State, Sums
from onmf.samples import Samples

DAMPING, CAUTION = 0.3, 2.0  # of em's curvature: at least, and per unit of the weight of a chunk
SWEEPS = 3
MOST_VISITS = 2  # of a chunk
BLOCK = 2048  # features whose matrices are unpacked at a time
WORK = 1e6  # of a thread at a time, in products
AVERAGES = ("A", "b", "D", "squares")

News: TypeAlias = tuple[Any, Array, Array, Array]  # the places of a feature's entries, their slopes and curvatures, H


@dataclass(frozen=True, repr=False)
class SparseSurrogate(Accumulating, name="sparse_surrogate"):
    """The surrogate for sparse data, whose quadratic models are made at the non-zero entries alone.

    Parameters
    ----------
    tau : int or None
        Samples of an update; None: 200 at first, later a twentieth of those seen, at most 500.
    forgetting : float
        A floor under the weight of 1,000 samples.
    max_iter : int or None
        Coefficient steps per visit; None: they grow as those of em do.

    Examples
    --------
    >>> OnlineNMF(3, method="sparse_surrogate").fit(X).method_.name
    'sparse_surrogate'
    """

    growing: ClassVar[Growing] = Growing(200, 0.05, 500)
    steps: ClassVar[int] = 8
    made_anew: ClassVar[tuple[str, ...]] = ("A", "b")
    nonnegative: ClassVar[tuple[str, ...]] = ("A", "b", "D", "squares", "unit", "size", "entries", "evidence")
    feature_axes: ClassVar[Mapping[str, int]] = {"A": -2, "b": -2, "D": -2, "size": -1}

    def laid_out(self, divergence: Divergence, batch: Samples) -> Samples:
        return batch.sparsified()

    def visits(self, clock: float) -> int:
        """Return one visit once 200 samples weigh little in the averages: Newton's step then needs no second one."""
        return min(MOST_VISITS, em.visits_worth(self._next_weight(clock, self.tau or self.growing.first)))

    def _damping(self, clock: float) -> float:
        """Return more damping while samples weigh much: models are then made of few, at fits that are still far off."""
        return max(DAMPING, CAUTION * self._next_weight(clock, self.tau or self.growing.first))

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return empty statistics: A, b and D are those of V = unit W, ``log_unit`` says how V has been rescaled."""
        state = self._start(W, C, masked)
        memory, (K, F) = dict(state.memory), W.shape
        memory["A"] = np.zeros((F, K * (K + 1) // 2), dtype=W.dtype)
        memory["b"] = np.zeros((F, K), dtype=W.dtype)
        memory["unit"] = np.ones(K, dtype=W.dtype)
        return replace(state, memory=memory)

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Average slopes and curvatures at the non-zeros in the units of W as it is, sweep, and rescale W."""
        X, order = problem.X, order_of(problem.divergence)
        counted, ratio, n = X.times_sample_weight(H), em.ratios(problem, Y), X.weight
        Y = X.entries_times_sample_weight(Y)  # slopes have the weights by h, of which curvatures have two
        rho = self.weight(problem.divergence, state.clock + n, n)
        memory = dict(state.memory) | em.evidence_with(state, X, new)
        unit = memory["unit"]
        memory["D"] = (1 - rho) * unit * memory["D"] + (rho / n) * X.sum_of_rows(counted)
        memory["squares"] = (1 - rho) * np.square(unit) * memory["squares"] + (rho / n) * (counted * H).sum(axis=0)
        memory["log_unit"] = memory["log_unit"] + np.log(unit)
        news = X.places_by_feature, (1 + order) * ratio, order * ratio / Y, counted
        numbers = 1 - rho, rho / n, self._damping(state.clock)
        return state.after(n, *self._swept(order, state, problem.W, memory, news, numbers))

    def _swept(
        self,
        order: float,
        state: State,
        W: Array,
        memory: dict[str, Array],
        news: News,
        numbers: tuple[float, float, float],
    ) -> tuple[Array, dict[str, Array]]:
        """Return the averaged models' minimum near W, in units of its largest weights, and the memory with them."""
        C, penalties = state.C, state.penalties
        A, b, D, unit = (memory[name] for name in ("A", "b", "D", "unit"))
        F, K = b.shape
        Wt, low = np.ascontiguousarray(W.T), em.floor(memory)
        A_new, b_new, Wt_new = np.empty_like(A), np.empty_like(b), np.empty_like(b)
        HH = np.ascontiguousarray(kernels.gram.pack(np.ascontiguousarray(news[3].T)).T)
        arrays = *news, HH, Wt, A, b, low, np.atleast_2d(D), unit, A_new, b_new, Wt_new
        per_feature = (news[0].nnz / F + SWEEPS + 1) * K * K
        features = threads.by_work(F, per_feature, WORK)
        penalty = order * penalties.l1_dictionary, order * penalties.l2_dictionary, 1.0 if penalties else np.inf
        threads.each(
            lambda f: kernels.dictionary.curved_step(*arrays, *numbers, *penalty, SWEEPS, f.start, f.stop, C.fixed),
            features,
        )
        if penalties:
            bounded = self._bounded(order, penalties, A_new, b_new, D, Wt_new)
            largest = resized(penalties, Wt_new.T, (D, memory["squares"]), falling(*bounded), C.fixed)
            W_new = carried(Wt_new.T, largest)
        else:
            largest = Wt_new.max(axis=0)
            largest[: C.fixed] = 1
            W_new = (Wt_new / largest).T
        # The floor alone gives most features more than eps, and dividing by the largest has brought all to [0, 1].
        feasible = (K - C.fixed) * float(low.min()) >= C.eps * float(largest.max())
        memory = memory | {"A": A_new, "b": b_new, "unit": largest}
        return W_new if feasible else C.project(W_new), memory

    def _bounded(
        self, order: float, penalties: Penalties, A: Array, b: Array, D: Array, Wt: Array
    ) -> tuple[Array, Array]:
        """Return the pull and the stiffness of the weights at their bound of 1, per component."""
        pull, stiffness = np.zeros_like(D), np.zeros_like(D)
        features = np.flatnonzero((Wt >= 1).any(axis=1))
        for part in threads.blocks(len(features), BLOCK):
            f = features[part]
            w = Wt[f]
            full = unpacked(A[f], len(D))
            slope = (full @ w[:, :, None])[:, :, 0] - b[f] + D + order * penalties.slope(w)
            diagonal = full[:, range(len(D)), range(len(D))] + order * penalties.l2_dictionary
            pull += np.where(w >= 1, np.maximum(-slope, 0), 0).sum(axis=0) / order
            stiffness += np.where(w >= 1, diagonal, 0).sum(axis=0) / order
        return pull, stiffness

    def recombined(self, divergence: Divergence, state: State, W: Array, T: Array) -> State:
        memory, unit = dict(state.memory), state.memory["unit"]
        T = T * unit / unit[:, None]
        A, (j, k), K = np.empty_like(memory["A"]), np.triu_indices(len(T)), len(T)
        for f in threads.blocks(len(A), BLOCK):
            A[f] = (T @ unpacked(memory["A"][f], K) @ T.T)[:, j, k]
        new = {"A": A, "b": memory["b"] @ T.T, "D": memory["D"] @ T.T, "squares": np.square(T) @ memory["squares"]}
        return replace(state, W=W, memory=memory | new)

    def summary(self, divergence: Divergence, before: State, after: State) -> Sums:
        """Return A, b, D and V in the units that V had before, and the size and entries of the new samples."""
        sums, n, memory = em.evidence_between(before, after), after.samples - before.samples, after.memory
        unit = np.exp(memory["log_unit"] - before.memory["log_unit"])
        A, b, D, squares = (memory[name] for name in AVERAGES)
        averages: dict[str, Array] = {"A": A / kernels.gram.pack(unit[:, None]).T, "b": b / unit, "D": D / unit}
        averages |= {"squares": squares / np.square(unit), "unit": memory["unit"] * unit}
        averages["V"] = after.W * averages["unit"][:, None]
        return Sums(n, after.steps - before.steps, sums | {name: n * each for name, each in averages.items()})

    def merged(self, divergence: Divergence, before: State, sums: Sums) -> State:
        if not sums.samples:
            return before
        n, memory = sums.samples, em.evidence_merged(before, sums)
        memory |= {name: sums.arrays[name] / n for name in AVERAGES}
        memory["unit"] = np.ones_like(memory["unit"])  # the models are V's already
        V = sums.arrays["V"] / n
        if before.penalties:  # bounds are those of W, in units of the shards' own
            unit = memory["unit"] = sums.arrays["unit"] / n
            memory["D"], memory["squares"] = memory["D"] * unit, memory["squares"] * np.square(unit)
            memory["log_unit"], V = memory["log_unit"] + np.log(unit), V / unit[:, None]
        fixed = before.C.fixed
        V[:fixed] = before.W[:fixed]  # bit for bit
        (F, K), dtype = memory["b"].shape, V.dtype
        nobody, nothing = scipy.sparse.csr_matrix((F, 0), dtype=np.int64), np.zeros(0, dtype=dtype)
        news = nobody, nothing, nothing, np.zeros((0, K), dtype=dtype)
        numbers = 1.0, 0.0, self._damping(before.clock)
        W, memory = self._swept(order_of(divergence), before, V, memory, news, numbers)
        return replace(before.after(n, np.ascontiguousarray(W), memory), steps=before.steps + sums.steps + 1)
