"""The fast dictionary step: an averaged quadratic model of the loss per feature, minimised by coordinate descent.

At the fit y = hW every entry's divergence is replaced by its quadratic model with slope g and curvature c > 0. Summed
over samples, the model of feature f has the sufficient statistics

    A_f = avg c_f h h'   (K x K, packed)        b_f = avg (c_f y_f - g_f) h   (K)

averaged with weights rho that fall like a power of the samples seen. The K weights of the feature then minimise
w A_f w' / 2 - b_f w' over w >= low_f by a few sweeps. Where the curvature is one number a sample (squared l2, l2) one A
serves all features, and for squared l2 this is online dictionary learning as Mairal et al. (2010) do it. No convergence
theorem is claimed for the rest.

Where F K^2 / 2 numbers are too many, A_f is modelled by its diagonal and one correlation matrix for all features:
A_f = diag(r_f) S diag(r_f) with S = avg h h' and r_fk^2 = (A_f)_kk / S_kk, which takes F K numbers. b_f is then the
average of A_f w - g_f h with the chunk's own such A_f, so that the model still has the slope of the loss.

W stays in [0, 1] by a change of units, W = V / u with a unit u_k per atom, its largest weight; the statistics are those
of V, and hardly ever need rescaling. With penalties, ``priced`` finds W and its units; where coefficients sum to one, W
has no bound, and all units stay one. Where the features are coupled (Mahalanobis), ``coupled`` takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import FEW_ENTRIES, Array, dense, density
from onmf._support.checks import require_at_least, require_whole
from onmf._support.known import Known
from onmf.coefficients import CoefficientSolver, Ratios, precise
from onmf.coefficients.problem import Problem, takes_sparse
from onmf.divergences import Divergence, Partial
from onmf.methods import coupled, quadratics
from onmf.methods import penalised as priced
from onmf.methods.base import PENALISED_EFFORT, Method, State, Statistics, Sums
from onmf.methods.floors import Floor, floor_of
from onmf.methods.schedules import Averaging, Growing, averaging, forgotten_by_all, remembered
from onmf.model.sets import DictionarySet

DENSE, SPARSE = Growing(30, 0.01, 300), Growing(200, 0.1, 1600)  # chunks
SPARSE_EXPONENT = 1.0  # of the weights
HIGHEST = 1.05  # of a feature's mean that one atom may contribute on average, where samples are known in part

Swept: TypeAlias = tuple[Array, Array] | None


@dataclass(frozen=True, repr=False)
class Surrogate(Method, name="surrogate"):
    """tau samples per update (None: 30 at first, later a hundredth of those seen, at most 300).

    ``forgetting`` is a floor under the weight of 1,000 samples in the averages. Under squared l2 ``sparse`` data
    (None: as the first batch is) get larger chunks, and weights that fall faster: a sample of few entries says little,
    and what the fit leaves of it is noise.
    The statistics of all features may take ``max_memory`` bytes, two copies of them (one is learnt on); beyond, their
    diagonals are kept. Coefficients are found by few Newton steps: until ``tol`` (None: 1e-3), in ``max_iter`` steps at
    most (None: what suits the divergence).
    """

    tau: int | None = None
    forgetting: float = 0.0
    max_memory: float = 2.0**30
    tol: float | None = None
    max_iter: int | None = None
    sparse: bool | None = None

    skips_empty: ClassVar[bool] = True
    adapts: ClassVar[bool] = True
    keeps_known: ClassVar[bool] = True
    on_device: ClassVar[bool] = True
    fixed: ClassVar[tuple[str, ...]] = ("max_memory",)
    nonnegative: ClassVar[tuple[str, ...]] = ("unit", "mass", "squares")
    not_additive: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, max_memory=self.max_memory, **({} if self.tol is None else {"tol": self.tol}))
        if self.max_iter is not None:
            require_whole(1, max_iter=self.max_iter)
        if not isinstance(self.sparse, bool | None):
            raise ValueError(f"sparse must be True, False or None, got {self.sparse!r}.")
        Averaging(forgetting=self.forgetting)

    @property
    def growing(self) -> Growing:  # type: ignore[override]
        return SPARSE if self.sparse else DENSE

    def chosen(self, divergence: Divergence, shape: tuple[int, int], density: float, n_samples: int | None) -> Method:
        known = self.sparse is not None or not (_takes_sparse(divergence) or divergence.partial)
        return self if known else replace(self, sparse=density < FEW_ENTRIES)

    def refuses_shares(self, divergence: Divergence) -> str | None:
        return None

    def continued(self, before: Method) -> Method:
        """What the first batch has decided stays, if nothing else is asked for."""
        super().continued(before)
        return self if self.sparse is not None else replace(self, sparse=getattr(before, "sparse", None))

    @property
    def horizon(self) -> float:
        return remembered(self.forgetting)

    @property
    def penalised_effort(self) -> int:
        return PENALISED_EFFORT if self.max_iter is None else 1

    def weight(self, divergence: Divergence, clock: float, n: float) -> float:
        exponent = SPARSE_EXPONENT if self.sparse else divergence.averaging_exponent
        return averaging(exponent, self.forgetting)(clock, n, self.tau or self.growing.first)

    def stored(self, divergence: Divergence, batch: Any) -> Any:
        """Under squared l2 sparse data stay sparse, and dense data with few entries become so."""
        if isinstance(batch, Known):
            return batch if takes_sparse(divergence) else batch.densified()
        if not _takes_sparse(divergence):
            return dense(batch)
        few = not scipy.sparse.issparse(batch) and density(batch) < FEW_ENTRIES
        return scipy.sparse.csr_matrix(batch) if few else batch

    def coefficients(self, divergence: Divergence) -> CoefficientSolver:
        """Few steps: what is left to gain in h, the next samples gain in W."""
        if divergence.sees_ratios and self.tol is None and self.max_iter is None:
            return Ratios()  # Newton's step after it buys nothing that the next samples do not
        steps = 4 if divergence.absolute_deviations else 3 if divergence.robust else 1
        tol = 1e-3
        if isinstance(divergence, Partial) and divergence.inner.least_squares is not None:
            steps, tol = 10, 1e-7  # as good as the active set that whole samples have
        return precise(divergence).stopping(tol if self.tol is None else self.tol, self.max_iter or steps)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet) -> State:
        W = C.rescale_into(W)
        if divergence.metric is not None:
            return coupled.start(W, C)
        return State(W, C, memory=quadratics.empty(divergence, W, self.max_memory))

    def local(self, problem: Problem, H: Array) -> Statistics:
        """Slopes G and curvatures C at the fit Y. Under squared l2, C = 1 and C Y - G = X."""
        X, divergence = problem.X, problem.divergence
        if divergence.metric is not None:
            return coupled.local(problem, H)
        Y = problem.fit(H)
        losses = problem.loss(H, Y)
        parts: dict[str, Any] = {"X": X, "H": H, "weights": problem.weights}
        if _takes_sparse(divergence):
            parts["C"] = problem.weighed(np.ones((len(H), 1), dtype=H.dtype))
        else:
            G, C = divergence.model(X, Y)
            if divergence.partial and X.sparse:
                counts = scipy.sparse.diags_array(problem.weighed(np.ones(len(H), dtype=H.dtype)))
                # By columns: features are taken block by block.
                parts |= {"C": (counts @ X.like(C)).tocsc(), "T": (counts @ X.like(C * Y - G)).tocsc()}
                parts |= {"-G": (counts @ X.like(-G)).tocsc()}
            else:
                C = C[:, :1] if divergence.curvature_per_sample else C
                parts |= {"C": problem.weighed(C), "G": problem.weighed(G), "Y": Y}
        return Statistics(parts, samples=problem.weight, losses=losses)

    def apply(self, divergence: Divergence, state: State, statistics: Statistics) -> State:
        """Average, sweep, and bring W back to [0, 1] by a change of units."""
        from onmf.coefficients.kernels import pack

        n = statistics.samples
        rho = self.weight(divergence, state.clock + n, n)
        if divergence.metric is not None:
            return coupled.apply(divergence.metric, state, statistics, rho)
        parts, memory, floor = statistics.parts, dict(state.memory), floor_of(divergence)
        X, H, C, weights = (parts[name] for name in ("X", "H", "C", "weights"))
        sparse = scipy.sparse.issparse(X)
        T = _targets(parts, slopes="a" in memory)
        unit = memory["unit"]
        H = H / unit
        counted = H if weights is None else H * weights[:, None]
        if isinstance(X, Known):
            X = X if weights is None else X.times(weights)
            mean = Floor().known(X, memory["mean"])
            size = n * (floor.known(X, memory["size"]) if floor.geometric else mean)
            memory["mean"] = (1 - rho) * memory["mean"] + rho * mean
        else:
            size = floor.statistic(T if sparse else X, None if sparse else weights)
        news = {"size": size, "mass": counted.sum(axis=0)}
        if state.penalties:  # which alone look at the squares
            news["squares"] = (counted * H).sum(axis=0)
        for name, new in news.items():
            memory[name] = (1 - rho) * memory[name] + (rho / n) * new
        low = floor.low(memory["size"], float((memory["mass"] * unit).sum()))
        V = state.W * unit[:, None]
        Ht = np.ascontiguousarray(H.T)
        shared = "S" in memory and "a" not in memory
        S = (Ht * C[:, 0] if shared else Ht) @ (H if shared else counted)
        if "S" in memory:
            memory["S"] = (1 - rho) * memory["S"] + (rho / n) * S
        outer = pack(Ht) if "A" in memory else np.square(Ht)
        b = Ht @ T if sparse else None
        sweeps = quadratics.sweeps(memory, n)

        def block(f: slice) -> Swept:
            news = np.ascontiguousarray(Ht @ T[:, f] if b is None else b[:, f])
            A = None if shared else np.ascontiguousarray(outer @ C[:, f])
            if A is not None and "a" in memory:
                # The chunk's own model of A V, not A V itself: the slope at V is then the loss's, whatever the model.
                r = quadratics.ratio(A, S)
                news += r * (S @ (r * V[:, f]))
            step = 1 - rho, rho / n
            return quadratics.update(memory, f, A, news, V, low, step, sweeps, state.C, state.penalties)

        found = threads.each(block, quadratics.blocks(memory))
        return self._finished(divergence, state, n, V, memory, found)

    def _finished(
        self, divergence: Divergence, state: State, n: float, V: Array, memory: dict[str, Array], found: list[Swept]
    ) -> State:
        """The state whose dictionary is V in units of its largest weights, or in those that the penalties make best."""
        unit = memory["unit"]
        if not divergence.domain.x.closed:  # a weight keeps half of its old value in one step: else the loss spikes
            np.maximum(V, 0.5 * unit[:, None] * state.W, out=V)
        if "mean" in memory:
            free = slice(state.C.fixed, None)
            mass = np.maximum(memory["mass"][free], float(np.finfo(V.dtype).tiny))[:, None]
            np.minimum(V[free], HIGHEST * (memory["mean"] + 0.01 * memory["mean"].mean()) / mass, out=V[free])
        if state.penalties:
            W, memory["unit"] = priced.settled(state.penalties, state.C, V, memory, [each for each in found if each])
        else:
            memory["unit"] = quadratics.units(V, unit, state.C)
            W = V / memory["unit"][:, None]
        W = state.C.project(W)
        quadratics.rebase(memory)
        return state.after(n, W, memory)

    def exchanges(self, divergence: Divergence) -> float:
        return np.inf if divergence.metric is None else 0.0

    def recombined(self, divergence: Divergence, state: State, W: Array, T: Array) -> State:
        return replace(state, W=W, memory=quadratics.recombined(state.memory, T))

    def on_shard(self, shards: int) -> Surrogate:
        return self if not self.forgetting else replace(self, forgetting=forgotten_by_all(self.forgetting, shards))

    def summary(self, divergence: Divergence, before: State, after: State) -> Sums:
        """n times the averages, and n V, in the units that the statistics had before."""
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
        V[: before.C.fixed] = before.W[: before.C.fixed]  # to the bit
        unit = unit if before.penalties else quadratics.units(V, before.memory["unit"], before.C)
        memory = before.memory | arrays | {"unit": unit}
        # The shards have come a long way from ``before``: what a weight keeps of its old value, it keeps of theirs.
        state = replace(before, W=V / unit[:, None])
        low = floor_of(divergence).low(memory["size"], float((memory["mass"] * unit).sum()))
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


def _targets(parts: Mapping[str, Any], slopes: bool) -> Any:
    """What b is the average of, times h: C Y - G, or -G alone where only the slopes are asked for; X under squared l2.

    Each row is times the weight of its sample.
    """
    if "-G" in parts:
        return parts["-G"] if slopes else parts["T"]
    if "G" in parts:
        return -parts["G"] if slopes else parts["C"] * parts["Y"] - parts["G"]
    X, weights = parts["X"], parts["weights"]
    if weights is None:
        return X
    return scipy.sparse.diags_array(weights) @ X if scipy.sparse.issparse(X) else weights[:, None] * X


def _takes_sparse(divergence: Divergence) -> bool:
    """Can data stay sparse? Then features share their A, and b is the average of h'x."""
    return divergence.quadratic and divergence.metric is None
