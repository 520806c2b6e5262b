"""The fast dictionary step: an averaged quadratic model of the loss per feature, minimised by coordinate descent.

At the fit y = hW every entry's divergence is replaced by its quadratic model with slope g and curvature c > 0. Summed
over samples, the model of feature f has the sufficient statistics

    A_f = avg c_f h h'   (K x K, packed)        b_f = avg (c_f y_f - g_f) h   (K)

averaged with weights rho that fall like a power of the samples seen. The K weights of the feature then minimise
w A_f w' / 2 - b_f w' over w >= low_f by a few sweeps. Where the curvature is one number a sample (squared l2, l2) one A
serves all features, and for squared l2 this is online dictionary learning as Mairal et al. (2010) do it. theory.md
has a theorem, with ``certified``.

Where F K^2 / 2 numbers are too many, A_f is modelled by its diagonal and one correlation matrix for all features:
A_f = diag(r_f) S diag(r_f) with S = avg h h' and r_fk^2 = (A_f)_kk / S_kk, which takes F K numbers. b_f is then the
average of A_f w - g_f h with the chunk's own such A_f, so that the model still has the slope of the loss.

W stays in [0, 1] by a change of units, W = V / u with a unit u_k per component, its largest weight; the statistics are
those of V, and hardly ever need rescaling. With penalties, ``quadratics.settled`` finds W and its units; where
coefficients sum to one, W has no bound, and all units stay one. Where the features are coupled (Mahalanobis),
``coupled`` takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts
from onmf._support.checks import require_at_least
from onmf.coefficients import CoefficientSolver, Ratios, kernels, precise_solver
from onmf.coefficients.problem import Problem, packed_diagonal, quadratic_model, takes_sparse
from onmf.divergences import Divergence
from onmf.methods import coupled, quadratics
from onmf.methods.base import AveragingMethod, Growing, Method, averaging
from onmf.methods.quadratics import Floor, floor_of
from onmf.model.sets import DictionarySet
from onmf.model.state import State, Sums
from onmf.samples import FEW_ENTRIES, Samples

DENSE, SPARSE = Growing(30, 0.01, 300), Growing(200, 0.1, 1600)  # chunks
SPARSE_EXPONENT = 1.0  # of the weights
HIGHEST = 1.05  # of a feature's mean that one component may contribute on average, where entries are missing

Swept: TypeAlias = tuple[Array, Array] | None


@dataclass(frozen=True, repr=False)
class Surrogate(AveragingMethod, name="surrogate"):
    """The method that averages quadratic models of the loss, one per feature, and minimises them.

    Parameters
    ----------
    tau : int or None
        Samples of an update; None: 30 at first, later a hundredth of those seen, at most 300.
    forgetting : float
        A floor under the weight of 1,000 samples in the averages.
    max_memory : float
        Bytes that the statistics of all features may take, two copies of them (one is learnt on); beyond, their
        diagonals are kept.
    tol : float or None
        Coefficients are found by few Newton steps, until this tolerance; None: 1e-3.
    max_iter : int or None
        Newton steps at most; None: what suits the divergence.
    sparse : bool or None
        Whether the data are sparse, which matters under squared l2: they get larger chunks, and weights that fall
        faster, since a sample of few entries says little, and what the fit leaves of it is noise. None: as the first
        batch is.
    certified : int or None
        The samples after which Theorem B covers the run, such as 20,000: from there on coefficients are found ever more
        exactly, units and floors stay, and no component is exchanged.

    Examples
    --------
    >>> method = onmf.methods.Surrogate(tau=20)
    >>> OnlineNMF(3, method=method, random_state=0).fit(X).method_.tau
    20
    """

    tau: int | None = None
    forgetting: float = 0.0
    max_memory: float = 2.0**30
    tol: float | None = None
    max_iter: int | None = None
    sparse: bool | None = None
    certified: int | None = None

    adapts: ClassVar[bool] = True
    on_device: ClassVar[bool] = True
    masked_on_device: ClassVar[bool] = True
    frozen_constants: ClassVar[tuple[str, ...]] = ("max_memory", "certified")
    nonnegative: ClassVar[tuple[str, ...]] = ("unit", "mass", "squares", "low", "kappa")
    feature_axes: ClassVar[Mapping[str, int]] = dict.fromkeys(("b", "a", "size", "mean"), -1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, max_memory=self.max_memory, **({} if self.tol is None else {"tol": self.tol}))
        if not isinstance(self.sparse, bool | None):
            raise ValueError(f"sparse must be True, False or None, got {self.sparse!r}.")

    @property
    def growing(self) -> Growing:  # type: ignore[override]
        return SPARSE if self.sparse else DENSE

    def chosen(self, divergence: Divergence, K: int, batch: Samples, on_device: bool = False) -> Method:
        undecided = self.sparse is None and (_takes_sparse(divergence) or batch.masked)
        return replace(self, sparse=batch.density < FEW_ENTRIES) if undecided else self

    def why_not_shares(self, divergence: Divergence, masked: bool = False) -> str | None:
        unbounded = "certified needs a bounded dictionary, and coefficients='simplex' has none; leave out one of them."
        return None if self.certified is None else unbounded

    def continued(self, before: Method) -> Method:
        """Return the method with ``sparse`` as the first batch decided it, unless it is set now."""
        super().continued(before)
        return self if self.sparse is not None else replace(self, sparse=getattr(before, "sparse", None))

    def weight(self, divergence: Divergence, clock: float, n: float) -> float:
        exponent = SPARSE_EXPONENT if self.sparse else divergence.averaging_exponent
        return averaging(exponent, self.forgetting)(clock, n, self.tau or self.growing.first)

    def laid_out(self, divergence: Divergence, batch: Samples) -> Samples:
        """Keep sparse data sparse under squared l2, and make dense data with few entries so."""
        if batch.masked:
            return batch if takes_sparse(divergence, masked=True) else batch.densified()
        if not _takes_sparse(divergence):
            return batch.densified()
        return batch.sparsified() if not batch.sparse and batch.density < FEW_ENTRIES else batch

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        """Return a solver that makes few steps: what is left to gain in h, the next samples gain in W."""
        if divergence.sees_ratios and not masked and self.tol is None and self.max_iter is None:
            return Ratios()  # Newton's step after it buys nothing that the next samples do not
        steps = 4 if divergence.absolute_deviations else 3 if divergence.robust else 1
        tol = 1e-3
        if masked and divergence.least_squares is not None:
            steps, tol = 10, 1e-7  # as good as the active set that whole samples have
        return precise_solver(divergence).stopping(tol if self.tol is None else self.tol, self.max_iter or steps)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        W = C.rescale_into(W)
        if divergence.metric is not None:
            return coupled.start(W, C)
        state = State(W, C, memory=quadratics.empty(divergence, W, self.max_memory, masked))
        if self.certified is not None and "a" in state.memory:
            enough = self.with_constants(max_memory=(len(W) + 1) * W.nbytes).text()
            raise ValueError(f"certified needs more than max_memory for its statistics; use {enough!r} or more.")
        return state

    def expected(self, divergence: Divergence, state: State, masked: bool = False) -> dict[str, Array]:
        expected, (K, F) = super().expected(divergence, state, masked), state.W.shape
        if self.is_certified(state.clock):
            expected |= {"low": np.empty(F, state.W.dtype), "kappa": np.empty(K, state.W.dtype)}
        return expected

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Average, sweep, and bring W back to [0, 1] by a change of units."""
        X, divergence, n = problem.X, problem.divergence, problem.X.weight
        rho = self.weight(divergence, state.clock + n, n)
        if divergence.metric is not None:
            return self._certified(divergence, coupled.update(divergence.metric, state, problem, H, rho))
        memory, floor = dict(state.memory), floor_of(divergence, X.masked)
        curvatures, targets = self._curvatures_and_targets(problem, H, Y, slopes_only="a" in memory)
        unit = memory["unit"]
        H = H / unit
        counted = X.times_sample_weight(H)
        if X.masked:
            mean = Floor().of_masked(X, memory["mean"])
            size = n * (floor.of_masked(X, memory["size"]) if floor.geometric else mean)
            memory["mean"] = (1 - rho) * memory["mean"] + rho * mean
        else:
            size = floor.statistic(X)
        news = {"size": size, "mass": counted.sum(axis=0)}
        if state.penalties:  # which alone look at the squares
            news["squares"] = (counted * H).sum(axis=0)
        for name, each in news.items():
            memory[name] = (1 - rho) * memory[name] + (rho / n) * each
        low = memory["low"] if "low" in memory else floor.low(memory["size"], float((memory["mass"] * unit).sum()))
        V = state.W * unit[:, None]
        damping = n * memory["kappa"] if "kappa" in memory else None
        Ht = np.ascontiguousarray(H.T)
        shared = "S" in memory and "a" not in memory
        if "S" in memory:
            S = (Ht * curvatures[:, 0] if shared else Ht) @ (H if shared else counted)
            if damping is not None:
                S[np.diag_indices(len(S))] += damping
            memory["S"] = (1 - rho) * memory["S"] + (rho / n) * S
        outer = kernels.gram.pack(Ht) if "A" in memory else np.square(Ht)
        b = Ht @ targets if X.omits_zeros else None
        sweeps = quadratics.sweeps(memory, n)

        def block(f: slice) -> Swept:
            news = np.ascontiguousarray(Ht @ targets[:, f] if b is None else b[:, f])
            A = None if shared else np.ascontiguousarray(outer @ curvatures[:, f])
            if A is not None and "a" in memory:
                # The chunk's own model of A V, not A V itself: the slope at V is then the loss's, whatever the model.
                r = quadratics.ratio(A, S)
                news += r * (S @ (r * V[:, f]))
            if damping is not None:
                news += damping[:, None] * V[:, f]
                if A is not None:
                    A[packed_diagonal(len(V))] += damping[:, None]
            step = 1 - rho, rho / n
            return quadratics.update(memory, f, A, news, V, low, step, sweeps, state.C, state.penalties)

        if "A" in memory and not (X.sparse or state.penalties):
            found = []
            products = outer, Ht, curvatures, targets
            quadratics.average_and_sweep(memory, products, V, low, (1 - rho, rho / n), sweeps, state.C.fixed)
        else:
            found = threads.each(block, quadratics.blocks(memory))
        return self._finished(divergence, state, n, V, memory, found)

    def _curvatures_and_targets(self, problem: Problem, H: Array, Y: Array, slopes_only: bool) -> tuple[Any, Any]:
        """Return C, and what b averages, times h: C Y - G, or -G alone; each row times the weight of its sample.

        G and C are slopes and curvatures at the fit Y. Under squared l2, C = 1 and C Y - G = X.
        """
        X, divergence = problem.X, problem.divergence
        if _takes_sparse(divergence) and not X.masked:
            return X.times_sample_weight(np.ones((len(H), 1), dtype=H.dtype)), X.matrix_times_sample_weight(X.values)
        G, C = quadratic_model(divergence, X, Y)
        if X.sparse:  # by columns: features are taken block by block
            averaged = -G if slopes_only else C * Y - G
            return X.matrix_times_sample_weight(C).tocsc(), X.matrix_times_sample_weight(averaged).tocsc()
        C = C[:, :1] if divergence.curvature_per_sample and not X.masked else C
        C, G = X.times_sample_weight(C), X.times_sample_weight(G)
        return C, -G if slopes_only else C * Y - G

    def _finished(
        self, divergence: Divergence, state: State, n: float, V: Array, memory: dict[str, Array], found: list[Swept]
    ) -> State:
        """Return the state with V in units of its largest weights, or in the best ones for the penalties."""
        unit = memory["unit"]
        if not (divergence.domain.x.includes_zero or "low" in memory):
            # A weight keeps half of its value in one step: else the loss spikes.
            np.maximum(V, 0.5 * unit[:, None] * state.W, out=V)
        if "mean" in memory:
            free = slice(state.C.fixed, None)
            mass = np.maximum(memory["mass"][free], float(np.finfo(V.dtype).tiny))[:, None]
            np.minimum(V[free], HIGHEST * (memory["mean"] + 0.01 * memory["mean"].mean()) / mass, out=V[free])
        if "low" in memory:
            W: Array = V / unit[:, None]
        elif state.penalties:
            W, memory["unit"] = quadratics.settled(
                state.penalties, state.C, V, memory, [each for each in found if each]
            )
        else:
            memory["unit"] = quadratics.units(V, unit, state.C)
            W = V / memory["unit"][:, None]
        W = state.C.project(W)
        quadratics.rebase(memory)
        return self._certified(divergence, state.after(n, W, memory))

    def _certified(self, divergence: Divergence, state: State) -> State:
        """Return the state as it is or, when its samples are those after which it is certified, in that form."""
        if not self.is_certified(state.clock) or "low" in state.memory:
            return state
        memory, low = state.memory, np.zeros_like(state.W[0])
        if divergence.metric is None:
            mass = float((memory["mass"] * memory["unit"]).sum())
            low = floor_of(divergence, masked=False).low(memory["size"], mass)
        state = self.boxed(state, low)
        damped = coupled.damped if divergence.metric is not None else quadratics.damped
        return replace(state, memory=damped(dict(state.memory), state.W))

    def of_features(self, state: State, W: Array, places: Counts) -> State:
        state, before = super().of_features(state, W, places), state.memory
        return state.with_arrays(W, quadratics.of_features(before, state.memory, places, self.max_memory))

    def largest_merger_cost(self, divergence: Divergence) -> float:
        return np.inf if divergence.metric is None else 0.0

    def recombined(self, divergence: Divergence, state: State, W: Array, T: Array) -> State:
        return replace(state, W=W, memory=quadratics.recombined(state.memory, T))

    def summary(self, divergence: Divergence, before: State, after: State) -> Sums:
        """Return n times the averages, and n V, in the units that the statistics had before."""
        n, memory = after.samples - before.samples, dict(after.memory)
        if divergence.metric is not None:
            return coupled.summary(before, after)
        quadratics.change_units(memory, np.exp2(before.memory["base"] - memory["base"]).astype(after.W.dtype))
        sums = {name: n * memory[name] for name in quadratics.AVERAGES if name in memory}
        sums |= {"V": n * after.W * memory["unit"][:, None], "unit": n * memory["unit"]}
        return Sums(n, after.steps - before.steps, sums)

    def merged(self, divergence: Divergence, before: State, sums: Sums) -> State:
        if not sums.samples:
            return before
        if divergence.metric is not None:
            return coupled.merged(divergence.metric, before, sums)
        arrays: dict[str, Array] = {name: array / sums.samples for name, array in sums.arrays.items()}
        V, unit = arrays.pop("V"), arrays.pop("unit")
        V[: before.C.fixed] = before.W[: before.C.fixed]  # bit for bit
        unit = unit if before.penalties else quadratics.units(V, before.memory["unit"], before.C)
        memory = dict(before.memory) | arrays | {"unit": unit}
        # The shards have come a long way from ``before``: what a weight keeps of its old value, it keeps of theirs.
        state = replace(before, W=V / unit[:, None])
        low = floor_of(divergence, "mean" in memory).low(memory["size"], float((memory["mass"] * unit).sum()))
        sweeps = quadratics.sweeps(memory, sums.samples)

        def block(f: slice) -> Swept:
            A = None
            if "A" in memory:
                A = quadratics.matrices(memory, f).copy()
            elif "a" in memory:
                A = memory["a"][:, f].copy()
            news = memory["b"][:, f].copy()
            return quadratics.update(memory, f, A, news, V, low, (1.0, 0.0), sweeps, before.C, before.penalties)

        found = threads.each(block, quadratics.blocks(memory))
        merged = self._finished(divergence, state, sums.samples, V, memory, found)
        return replace(merged, steps=before.steps + sums.steps + 1)


def _takes_sparse(divergence: Divergence) -> bool:
    """Can data stay sparse? Then features share their A, and b is the average of h'x."""
    return divergence.quadratic and divergence.metric is None
