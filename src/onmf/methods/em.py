"""Accumulated multiplicative statistics ("online EM") for Kullback-Leibler and the alpha family with alpha > 0.

For fixed H the multiplicative (majorisation-minimisation) update of W is

    W^alpha = N / D,    N_fk = W_kf^alpha sum_n h_nk (x_nf / y_nf)^alpha,    D_k = sum_n h_nk

Online, both sums are averaged over the chunks with falling weights. Memory is O(F K), and on sparse X a chunk costs
O(nnz K): entries with x = 0 add nothing to N. Each chunk is visited a few times, its own share of the statistics being
replaced each time.

With penalties on the dictionary, W is the root of D w^alpha + alpha (l1 w^alpha + l2 w^(1 + alpha)) = N, or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, some_of, weight_of
from onmf.coefficients import CoefficientSolver, Multiplicative, kernels
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.methods.base import AveragingMethod, Growing, averaging
from onmf.model.penalty import NO_PENALTIES, Penalties, carried, falling, resized
from onmf.model.sets import DictionarySet
from onmf.model.state import State, Sums
from onmf.samples import Samples

EXPONENT = 0.75  # of the weights
MOST_VISITS, VISITS = 3, 10.0  # how often a chunk is looked at: at most, and per unit of its weight
LIGHT, VERY_LIGHT = 0.08, 0.02  # that of 200 samples after some 17,000 and 110,000: more steps pay from there on
EXCHANGE = 1e-3  # cost of a merger: components that are dead or coincide
WORK = 8e4  # weights that a thread divides at a time
FLOOR = 0.01  # of a feature's mean that every component keeps
RARE = 0.3  # of a typical entry, shared by all samples so far, that a feature may have had unseen
ENOUGH_EVIDENCE = 20_000.0  # samples after which that floor falls
MEANS = ("size", "entries")  # statistics that are plain means over all samples
NEWTON_STEPS = 6
STRONGEST = 1e30  # pull of l2, relative to the other terms: beyond, its square is out of range


@dataclass(frozen=True, repr=False)
class Accumulating(AveragingMethod):
    """The base of em and the sparse surrogate: Kullback-Leibler and alpha > 0, multiplicative coefficient steps."""

    tau: int | None = None
    forgetting: float = 0.0
    max_iter: int | None = None

    growing: ClassVar[Growing]
    steps: ClassVar[int]  # multiplicative ones per visit
    layout: ClassVar[Literal["C", "F"]] = "F"
    chunks_per_round: ClassVar[int] = 8

    def weight(self, divergence: Divergence, clock: float, n: float) -> float:
        return averaging(EXPONENT, self.forgetting)(clock, n, self.tau or self.growing.first)

    def why_not(self, divergence: Divergence, penalties: Penalties = NO_PENALTIES, masked: bool = False) -> str | None:
        if divergence.alpha_order is None:
            served = "supports only kl, hellinger and alpha > 0"
            return f"method {self.name!r} {served}, not {divergence.name!r}; use method 'surrogate'."
        if masked and penalties:
            return (
                f"method {self.name!r} takes no penalties where entries are missing or weigh differently, as it does "
                "not know how large coefficients are there; use method 'surrogate'."
            )
        return super().why_not(divergence, penalties, masked)

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return Multiplicative(max_iter=self.max_iter or self.steps)

    def effort(self, clock: float) -> int:
        if self.max_iter is not None:
            return 1
        weight = self._next_weight(clock, self.tau or self.growing.first)
        wanted = 1 if weight >= LIGHT else 2 if weight >= VERY_LIGHT else 4
        return -(-wanted // self.visits(clock))  # a later visit continues where the last one has stopped

    def _next_weight(self, clock: float, n: int) -> float:
        """Return the weight of the next n samples."""
        return averaging(EXPONENT, self.forgetting)(clock + n, n, self.tau or self.growing.first)

    def largest_merger_cost(self, divergence: Divergence) -> float:
        """Return next to nothing: bolder exchanges raised the loss on text, from which averages recover slowly."""
        return EXCHANGE

    def _start(self, W: Array, C: DictionarySet, masked: bool) -> State:
        """Return empty statistics. A component of zeros, which no multiplicative step can leave, begins flat."""
        W = C.rescale_into(np.where(W.any(axis=1, keepdims=True), W, np.ones_like(W)))
        K, F = W.shape
        shapes: dict[str, tuple[int, ...]] = {
            "D": (F, K) if masked else (K,),  # different samples have different features
            "size": (F,),
            "entries": (2,),
            "evidence": (1,),
            "log_unit": (K,),
            "squares": (K,),  # avg h^2, which l2_coefficients needs for a change of units
        }
        return State(W, C, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})


@dataclass(frozen=True, repr=False)
class EM(Accumulating, name="em"):
    """The method that averages the numerator and the denominator of multiplicative updates, and divides them.

    Parameters
    ----------
    tau : int or None
        Samples of an update; None: 200 at first, later a tenth of those seen, at most 1,600.
    forgetting : float
        A floor under the weight of 1,000 samples.
    max_iter : int or None
        Coefficient steps per visit. None: five, and two and four times as many once chunks weigh little: coefficients
        from few steps are slightly biased, and W converges to what suits them, at a slightly higher loss. Early on that
        costs little, since the dictionary still changes.
    certified : int or None
        The samples after which Theorem B covers the run, such as 20,000: from there on coefficients are found ever more
        exactly, units and floors stay, and no component is exchanged.

    Examples
    --------
    >>> OnlineNMF(3, method="em:tau=20", random_state=0).fit(X).method_.tau
    20
    """

    certified: int | None = None

    growing: ClassVar[Growing] = Growing(200, 0.1, 1600)
    steps: ClassVar[int] = 5
    on_device: ClassVar[bool] = True
    frozen_constants: ClassVar[tuple[str, ...]] = ("certified",)
    made_anew: ClassVar[tuple[str, ...]] = ("N",)
    nonnegative: ClassVar[tuple[str, ...]] = ("N", "D", "squares", "size", "entries", "evidence", "low")
    feature_axes: ClassVar[Mapping[str, int]] = {"N": -2, "D": -2, "size": -1}

    def laid_out(self, divergence: Divergence, batch: Samples) -> Samples:
        """Return dense data with few entries as CSR, and other data as they are."""
        return batch.sparsified() if not batch.sparse and batch.mostly_zeros() else batch

    def visits(self, clock: float) -> int:
        """Return several while a chunk weighs much, one later: what hardly changes W need not be looked at again."""
        return 1 if self.is_certified(clock) else visits_worth(self._next_weight(clock, self.usual_chunk(clock)))

    def _why_not_certified(self, divergence: Divergence, penalties: Penalties, masked: bool) -> str | None:
        if penalties.on_dictionary:
            return "certified covers no penalties on the dictionary under em; use method 'surrogate'."
        return super()._why_not_certified(divergence, penalties, masked)

    def expected(self, divergence: Divergence, state: State, masked: bool = False) -> dict[str, Array]:
        low = {"low": np.empty(state.W.shape[1], state.W.dtype)} if self.is_certified(state.clock) else {}
        return super().expected(divergence, state, masked) | low

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        state = self._start(W, C, masked)
        memory = dict(state.memory)
        memory["N"] = np.zeros(state.W.shape[::-1], dtype=W.dtype)
        return replace(state, memory=memory)

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Average, divide, keep a little mass for features that are rare or not seen yet, and rescale."""
        X, W, divergence = problem.X, problem.W, problem.divergence
        counted, ratio = X.times_sample_weight(H), ratios(problem, Y)
        n, memory = X.weight, dict(state.memory)
        rho = self.weight(divergence, state.clock + n, n)
        memory["D"] = (1 - rho) * memory["D"] + (rho / n) * X.sum_of_rows(counted)
        memory["squares"] = (1 - rho) * memory["squares"] + (rho / n) * (counted * H).sum(axis=0)
        memory |= evidence_with(state, X, new)

        def news(f: slice, out: Array) -> None:
            if X.sparse:
                out[:] = 0
                kernels.multiplicative.accumulate(X.matrix, ratio, counted, out, f.start)
            else:
                np.matmul(ratio[:, f].T, counted, out=out)

        state = state.after(n, *self._divided(divergence, state, W, memory, news, (1 - rho, rho / n)))
        first = self.is_certified(state.clock) and "low" not in memory
        return self.boxed(state, floor(memory)) if first else state

    def _divided(
        self,
        divergence: Divergence,
        state: State,
        W: Array,
        memory: dict[str, Array],
        news: Callable[[slice, Array], object],
        weights: tuple[float, float],
    ) -> tuple[Array, dict[str, Array]]:
        """Return W = (N / D)^(1/alpha) with N = keep N + gain W^alpha news, above the floor, in units of W <= 1."""
        order, N, D, C, penalties = order_of(divergence), memory["N"], memory["D"], state.C, state.penalties
        tiny = float(np.finfo(N.dtype).tiny)
        low = memory["low"] if "low" in memory else floor(memory)
        N_new, W_new = np.empty_like(N), np.empty_like(N)
        Wt, divisor = np.ascontiguousarray(W.T), np.maximum(D, tiny)
        if penalties:
            divisor = (divisor + order * penalties.l1_dictionary).astype(D.dtype)

        def block(f: slice) -> Array:
            news(f, N_new[f])
            if D.ndim == 2:  # every feature has a divisor of its own; one without entries stays
                keep, gain = weights
                N_new[f] = keep * N[f] + gain * N_new[f] * (Wt[f] if order == 1 else Wt[f] ** order)
                W_new[f] = np.where(tiny < D[f], (N_new[f] / np.maximum(D[f], tiny)) ** (1 / order), Wt[f])
                np.maximum(W_new[f], low[f, None], out=W_new[f])
                return np.asarray(W_new[f].max(axis=0))
            largest = np.empty_like(D, shape=N.shape[1])
            kernels.multiplicative.divide(N[f], Wt[f], divisor, low[f], N_new[f], W_new[f], largest, *weights, order)
            return largest

        def rescale(f: slice) -> None:
            if not penalties:
                W_new[f] /= s
            if order != 1:
                N_new[f] *= s ** (1 - order)

        features = threads.by_work(len(N), N.shape[1], WORK)
        s = np.max(threads.each(block, features), axis=0)
        if "low" in memory:
            s = np.ones_like(s)
            np.minimum(W_new, 1, out=W_new)
        elif penalties:
            W_new, s = divided(penalties, order, W_new, N_new, divisor, low, (D, memory["squares"]), C.fixed)
        s[: C.fixed] = 1
        W_new[:, : C.fixed] = Wt[:, : C.fixed]
        threads.each(rescale, features)
        # The floor alone gives most features more than eps, and dividing by s has brought all weights to [0, 1].
        feasible = (N.shape[1] - C.fixed) * float(low.min()) >= C.eps * float(s.max())
        memory = memory | {"N": N_new, "D": D * s, "log_unit": memory["log_unit"] + np.log(s)}
        memory["squares"] = memory["squares"] * np.square(s)
        return W_new.T if feasible else C.project(W_new.T), memory

    def recombined(self, divergence: Divergence, state: State, W: Array, T: Array) -> State:
        D = state.memory["D"] @ T.T
        N = np.ascontiguousarray(W.T ** order_of(divergence) * D)
        squares = np.square(T) @ state.memory["squares"]
        return replace(state, W=W, memory=dict(state.memory) | {"N": N, "D": D, "squares": squares})

    def summary(self, divergence: Divergence, before: State, after: State) -> Sums:
        """Return N and D in the units that the components had before, and the size and entries of the new samples."""
        n, memory, arrays = after.samples - before.samples, after.memory, evidence_between(before, after)
        unit = np.exp(memory["log_unit"] - before.memory["log_unit"])
        arrays |= {"N": n * memory["N"] / unit ** (1 - order_of(divergence)), "D": n * memory["D"] / unit}
        arrays |= {"squares": n * memory["squares"] / np.square(unit), "unit": n * unit}
        return Sums(n, after.steps - before.steps, arrays)

    def merged(self, divergence: Divergence, before: State, sums: Sums) -> State:
        if not sums.samples:
            return before
        n, memory = sums.samples, evidence_merged(before, sums)
        memory |= {name: sums.arrays[name] / n for name in ("N", "D", "squares")}
        if before.penalties:
            unit = sums.arrays["unit"] / n
            memory["N"], memory["D"] = memory["N"] * unit ** (1 - order_of(divergence)), memory["D"] * unit
            memory["squares"] = memory["squares"] * np.square(unit)
            memory["log_unit"] = memory["log_unit"] + np.log(unit)
        W, memory = self._divided(divergence, before, before.W, memory, lambda _, out: out.fill(0), (1.0, 0.0))
        return replace(before.after(n, np.ascontiguousarray(W), memory), steps=before.steps + sums.steps + 1)


def visits_worth(weight: float) -> int:
    """Return how often samples of this weight are looked at."""
    return max(1, min(MOST_VISITS, round(VISITS * weight)))


def order_of(divergence: Divergence) -> float:
    """Return the alpha of a divergence."""
    if divergence.alpha_order is None:
        raise ValueError(f"em cannot learn {divergence.name}.")
    return divergence.alpha_order


def ratios(problem: Problem, Y: Array) -> Array:
    """Return (x / y)^alpha by the weights of the entries, where fits are."""
    ratio, order = problem.X.values / Y, order_of(problem.divergence)
    if order != 1:
        ratio **= order
    return problem.X.times_entry_weight(ratio)


def divided(
    penalties: Penalties,
    order: float,
    Wt: Array,
    N: Array,
    D: Array,
    low: Array,
    averages: tuple[Array, Array],
    fixed: int,
) -> tuple[Array, Array]:
    """Return W and its change of units s, from the roots w of D w^order = N; all (F, K). D holds l1 already."""
    l2 = penalties.l2_dictionary
    Wt = np.maximum(_shrunk(Wt, D, order, l2), low[:, None])
    bounded = Wt >= 1
    pull = np.where(bounded, np.maximum((N - D) / order - l2, 0), 0).sum(axis=0)
    stiffness = np.where(bounded, N + l2, 0).sum(axis=0)
    W = np.minimum(Wt.T, 1)
    s = resized(penalties, W, averages, falling(pull, stiffness), fixed)
    return np.ascontiguousarray(carried(W, s).T), s


def _shrunk(W: Array, D: Array, order: float, l2: float) -> Array:
    """Turn the roots w of D w^order = N into those of D w^order + order l2 w^(1 + order) = N, by Newton's steps.

    In t, the logarithm of how much a root changes, order t + log(1 + order l2 w e^t / D) is convex, grows, and is not
    negative at t = 0: all steps go down, and none too far.
    """
    if not l2:
        return W
    z, t = np.minimum(order * min(l2, STRONGEST) * (W / D), STRONGEST), np.zeros_like(W)
    for _ in range(NEWTON_STEPS):
        pull = z * np.exp(t)
        t -= (order * t + np.log1p(pull)) / (order + pull / (1 + pull))
    return W * np.exp(t)


# The floor under the weights


def evidence_with(state: State, X: Samples, new: int) -> dict[str, Array]:
    """Return the statistics of the floor after the chunk X, whose first ``new`` samples are seen for the first time.

    Two of these are plain means over all samples; ``evidence`` counts samples, and one seen again is no news.
    """
    memory, n, newly = state.memory, float(X.weight), weight_of(some_of(X.sample_weight, slice(new)), new)
    totals = {"size": X.feature_totals, "entries": np.array([X.feature_totals.sum(), X.nonzeros], X.dtype)}
    share = n / (state.samples + n)
    means = {name: memory[name] + (total / n - memory[name]) * share for name, total in totals.items()}
    return means | {"evidence": memory["evidence"] + newly}


def floor(memory: dict[str, Array]) -> Array:
    """Return what no weight of a feature falls below: a little mass for features that are rare or not seen yet."""
    tiny = float(np.finfo(memory["size"].dtype).tiny)
    typical = float(memory["entries"][0] / max(memory["entries"][1], tiny))  # the mean of the non-zeros
    evidence = max(float(memory["evidence"][0]), 1.0)
    share = FLOOR * min(1.0, ENOUGH_EVIDENCE / evidence)
    if memory["D"].ndim == 1:
        return (share * memory["size"] + RARE * typical / evidence) / max(float(memory["D"].sum()), tiny)
    mass = memory["D"].sum(axis=1)
    # What is added for rarity is not divided by the sums of a feature of which few entries were seen.
    return share * memory["size"] / np.maximum(mass, tiny) + RARE * typical / evidence / max(float(mass.max()), tiny)


def evidence_between(before: State, after: State) -> dict[str, Array]:
    """Return what the samples between two states have added."""
    arrays: dict[str, Array] = {
        name: after.samples * after.memory[name] - before.samples * before.memory[name] for name in MEANS
    }
    return arrays | {"evidence": after.memory["evidence"] - before.memory["evidence"]}


def evidence_merged(before: State, sums: Sums) -> dict[str, Array]:
    """Return the memory with what all shards have added."""
    memory, n = dict(before.memory), sums.samples
    for name in MEANS:
        memory[name] = (before.samples * memory[name] + sums.arrays[name]) / (before.samples + n)
    return memory | {"evidence": memory["evidence"] + sums.arrays["evidence"]}
