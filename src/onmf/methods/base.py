"""The interface of a method: how the dictionary is updated from a chunk of samples and their coefficients.

A method is one frozen dataclass in one file of this folder, and its fields are its constants. Giving the class a
``name`` registers it: ``"paper"``, ``"paper:tau=5"`` and ``Paper(tau=5)`` then mean it everywhere.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np

from onmf._support.arrays import Array, Counts, taken
from onmf._support.checks import is_number, require_whole
from onmf._support.registry import Constants
from onmf.coefficients import CoefficientSolver, precise_solver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.model.penalty import NO_PENALTIES, Penalties, Penalty
from onmf.model.sets import DictionaryBox, DictionarySet
from onmf.model.state import State, Sums
from onmf.samples import Samples

PENALISED_EFFORT = 2  # for methods that find coefficients with few steps
TOL, PATIENCE = 1e-3, 1000  # of precise coefficients, to begin with: the tolerance, and the limit on iterations
FREEZE = 20_000.0  # samples after which tolerances fall, and steps no longer adapt
SAMPLES = 1000  # whose weight forgetting bounds from below


@dataclass(frozen=True)
class Growing:
    """The size of chunks: a fixed fraction of the samples seen so far, within bounds.

    At first the dictionary learns most from being updated often. Later its error is that of an average over far more
    samples than a chunk has, and updating it for every few of them is time lost.
    """

    first: int
    share: float
    most: int

    def __call__(self, samples: float) -> int:
        """Return the size of the next chunk after this many samples."""
        return int(min(max(self.first, self.share * samples), self.most))


@dataclass(frozen=True)
class Averaging:
    """rho = ((1 + delay) / (t + delay))^exponent with t = samples / chunk: the weight of a chunk of new samples.

    n samples weigh 1 - (1 - rho)^(n / chunk), as if they had come in chunks of this size: what is remembered of the
    past, measured in samples, depends neither on how a stream is cut nor on chunks that grow. sum rho = inf and
    sum rho^2 < inf for exponents in (1/2, 1]. ``forgetting``, for streams that drift, is a floor under the weight of
    1,000 samples, whatever the method and its chunks: after m thousand samples the past weighs (1 - forgetting)^m.
    """

    exponent: float = 0.6
    delay: float = 2.0
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if not is_number(self.exponent) or not 0.5 < self.exponent <= 1:
            raise ValueError(f"the exponent of the averaging must lie in (1/2, 1], got {self.exponent!r}.")
        if not is_number(self.forgetting) or not 0 <= self.forgetting < 1:
            raise ValueError(f"forgetting must lie in [0, 1), got {self.forgetting!r}.")

    def __call__(self, samples: float, n: float, chunk: int) -> float:
        """Return the weight of the last n of ``samples``."""
        if samples <= max(chunk, n):
            return n / samples  # before the first chunk is full: the plain mean
        t = samples / chunk
        rho = ((1 + self.delay) / (t + self.delay)) ** self.exponent
        rho = rho if n == chunk else 1 - (1 - rho) ** (n / chunk)
        return float(max(rho, 1 - (1 - self.forgetting) ** (n / SAMPLES)) if self.forgetting else rho)


# Made once, checks included: it is asked for at every step.
averaging = lru_cache(maxsize=64)(lambda exponent, forgetting: Averaging(exponent, forgetting=forgetting))


def falling(tol: float, clock: float) -> float:
    """Return tol / sqrt(1 + clock / FREEZE) at least, and less than twice that: it is halved from time to time."""
    return float(tol * 0.5 ** (math.log2(1 + clock / FREEZE) // 2))


@dataclass(frozen=True, repr=False)
class Choice(Constants, kind="method"):
    """A value of ``method=``: a method, or a rule (``auto``) that picks one when it sees the first batch.

    Examples
    --------
    >>> choice = onmf.methods.get("auto:forgetting=0.5")
    >>> isinstance(choice, onmf.methods.Method)
    False
    """

    on_device: ClassVar[bool] = False  # can it learn with PyTorch, too?
    masked_on_device: ClassVar[bool] = False  # and from samples with missing or weighted entries?

    @abstractmethod
    def chosen(self, divergence: Divergence, K: int, batch: Samples, on_device: bool = False) -> Method:
        """Return the method for K components, by the first batch."""

    def for_shares(self) -> Choice:
        """Return the choice where the coefficients of a sample sum to one."""
        return self

    def for_device(self) -> Choice:
        """Return the choice where PyTorch computes, or raise an error if there is none."""
        if getattr(self, "certified", None) is not None:
            raise ValueError("certified learns on the processor only; leave device out, or certified.")
        if self.on_device:
            return self
        raise ValueError(
            f"method {self.name!r} runs on the processor only; leave device out, or begin on the device with 'auto'."
        )

    @abstractmethod
    def continued(self, before: Method) -> Method:
        """Return the method for a model that has learnt with ``before``: the same with constants as they are now."""


class Method(Choice):
    """One way to learn W: ``update`` makes the next state from a chunk of samples with their coefficients.

    A subclass is a frozen dataclass whose fields are the constants, and ``name=`` registers it. It writes
    ``coefficient_solver``, ``start`` and ``update``.

    Examples
    --------
    >>> isinstance(model.method_, onmf.methods.Method)
    True
    >>> model.method_.name, model.method_.with_constants(tau=50).tau
    ('surrogate', 50)
    """

    layout: ClassVar[Literal["C", "F"]] = "C"  # how W lies in memory while it is learnt
    made_anew: ClassVar[tuple[str, ...]] = ()  # large statistics that ``update`` returns afresh and never overwrites
    skips_empty: ClassVar[bool] = False  # leave out samples of zeros? Averages of them alone would say that W is zero
    adapts: ClassVar[bool] = False  # does it let a parameter left to the data (Huber's delta) follow the residuals?
    keeps_fixed: ClassVar[bool] = False  # does it leave the fixed components of C alone?
    frozen_constants: ClassVar[tuple[str, ...]] = ()  # those that shape the statistics: as they were at the start
    weighs: ClassVar[bool] = True  # can samples and entries weigh differently, or entries be missing?
    nonnegative: ClassVar[tuple[str, ...]] = ()  # statistics without negative entries, for the check of a file
    feature_axes: ClassVar[Mapping[str, int] | None] = (
        None  # of statistics, from the last; None: features cannot change
    )
    # Why it cannot learn on shards, and the cure; None: it can.
    why_not_on_shards: ClassVar[str | None] = "it learns sample by sample; use 'auto'"

    theorem: ClassVar[str] = "A"  # of theory.md, about this method
    certified: int | None = None  # samples after which learning has the form of the theorem, where it has not anyway

    growing: ClassVar[Growing | None] = None  # chunks where tau is None

    tau: int | None  # samples per update; larger batches are split. None: more and more

    def __post_init__(self) -> None:
        if self.tau is not None or self.growing is None:
            require_whole(1, tau=self.tau)

    # What it serves

    def why_not(self, divergence: Divergence, penalties: Penalties = NO_PENALTIES, masked: bool = False) -> str | None:
        """Return why the method cannot serve a divergence with such penalties, and what to use instead; None if it can.

        ``masked`` says that entries may be missing or weigh differently.
        """
        return self.coefficient_solver(divergence, masked).why_not(divergence, self.penalty(penalties), masked)

    def why_not_shares(self, divergence: Divergence, masked: bool = False) -> str | None:
        """Return why the method cannot keep coefficients on the simplex, and what to use instead; None if it can."""
        return (
            f"method {self.name!r} cannot keep coefficients on the simplex: it changes the units of components and "
            "coefficients as it learns; use method 'auto', 'surrogate' or 'paper'."
        )

    def chosen(self, divergence: Divergence, K: int, batch: Samples, on_device: bool = False) -> Method:
        return self

    def continued(self, before: Method) -> Method:
        if type(self) is not type(before):
            raise ValueError(
                f"this model was begun with method {before.name!r} and cannot continue with {self.name!r}; "
                "keep it, or begin a new model."
            )
        for name in self.frozen_constants:
            if getattr(self, name) != getattr(before, name):
                raise ValueError(
                    f"the method's {name} cannot be changed while a model learns; keep it, or begin a new model."
                )
        return self

    def laid_out(self, divergence: Divergence, batch: Samples) -> Samples:
        """Return the batch as the method learns from it fastest: dense or sparse."""
        return batch.densified()

    # Chunks

    def chunk(self, clock: float, left: int) -> int:
        """Return how many of the ``left`` samples of a batch are the next chunk, after this many samples.

        Chunks without a fixed size share out the rest of the batch evenly: a short one at its end would cost an update
        as well.
        """
        size = self.usual_chunk(clock)
        return min(size, left) if self.tau is not None else -(-left // max(1, round(left / size)))

    def usual_chunk(self, clock: float) -> int:
        """Return the size of a chunk after this many samples, in a batch that is large enough."""
        if self.tau is not None or self.growing is None:
            return int(self.tau or 1)
        return self.growing(clock)

    # The coefficient step

    @abstractmethod
    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        """Return the solver of the coefficient step while learning."""

    def solver_after(self, clock: float, penalised: bool, divergence: Divergence, X: Samples) -> CoefficientSolver:
        """Return the solver after this many samples: the usual one, with the effort that the next chunk is worth."""
        usual, effort = self.coefficient_solver(divergence, X.masked), self.effort(clock)
        effort *= self.penalised_effort if penalised else 1
        return usual if effort == 1 else usual.stopping(usual.tol, effort * usual.max_iter)

    def penalty(self, penalties: Penalties) -> Penalty:
        """Return the penalty on the coefficients: the user's, and what the method adds."""
        return penalties.of_coefficients

    def penalties_after(self, clock: float, penalties: Penalties) -> Penalties:
        """Return the penalties that are learnt with after this many samples, of those that the user has given."""
        return penalties

    def visits(self, clock: float) -> int:
        """Return how often the chunk after this many samples is looked at before the next one."""
        return 1

    @property
    def horizon(self) -> float:
        """The number of samples after which what was learnt before weighs 1/e; infinite where nothing is forgotten."""
        return np.inf

    def effort(self, clock: float) -> int:
        """Return how many times its usual iterations the coefficient solver may take after this many samples."""
        return 1

    @property
    def penalised_effort(self) -> int:
        """The factor of that effort with penalties, for methods that find coefficients with few steps."""
        return 1

    def weight(self, divergence: Divergence, clock: float, n: float) -> float:
        """Return the weight of n new samples, the last of ``clock``, in averages: by default, all count alike."""
        return n / clock

    # The dictionary step

    @abstractmethod
    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return the state before the first sample, with W brought into C."""

    def first_look(self, problem: Problem, state: State) -> State:
        """Return the state after a look at the whole first batch, which is then learnt from."""
        return state

    @abstractmethod
    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Return the next state, by a chunk of samples with coefficients H and fits Y: nothing else learns.

        The first ``new`` samples are seen for the first time. The old state's memory may be overwritten, unless
        ``visits`` may be more than one.
        """

    def largest_merger_cost(self, divergence: Divergence) -> float:
        """Return the most that merging two components may cost, relative to what a component carries on average.

        With 0 nothing is exchanged; with next to nothing, only components that are dead or coincide.
        """
        return 0.0

    def recombined(self, divergence: Divergence, state: State, W: Array, T: Array) -> State:
        """Return the state with another dictionary, whose coefficients are T h where they were h."""
        raise ValueError(f"method {self.name!r} cannot exchange components.")

    def of_features(self, state: State, W: Array, places: Counts) -> State:
        """Return the state with other features and their dictionary; ``places`` are theirs so far, or -1: new ones."""
        axes, memory = dict(self.feature_axes or {}) | {"kept": -1}, dict(state.memory)
        for name in memory.keys() & axes.keys():
            if memory[name].ndim >= -axes[name]:
                memory[name] = taken(memory[name], places, axes[name])
        return state.with_arrays(W, memory)

    def is_certified(self, clock: float) -> bool:
        """Has learning the form of a theorem from this number of samples on, in which nothing but W adapts?"""
        return self.certified is not None and clock >= self.certified

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        """Return the set that W stays in."""
        return state.C

    def expected(self, divergence: Divergence, state: State, masked: bool = False) -> dict[str, Array]:
        """Return statistics of the shapes and types that belong to this state, to compare those in a file with."""
        return dict(self.start(divergence, state.W, state.C, masked).memory)

    def require_sound(self, divergence: Divergence, state: State) -> None:
        """Raise an error for statistics that the method could not have made, as a damaged file may hold."""

    def doubts(self, divergence: Divergence, state: State) -> list[str] | None:
        """Return which assumptions of its theorem (theory.md) the run does not meet; None: it has no theorem."""
        return None

    def inexact(self, divergence: Divergence, state: State) -> list[str]:
        """Return what keeps coefficients from becoming exact in the limit: one sentence or none."""
        given = {name: value for name, value in self.changed().items() if name in ("solver", "tol", "max_iter")}
        if given.get("solver") == precise_solver(divergence).name:
            del given["solver"]
        if divergence.quadratic and given.get("tol", 1.0) <= TOL:  # an active set is exact, whatever the tolerance
            del given["tol"]
        limits = [f"{name}={value}" for name, value in given.items()]
        limits += ["single precision"] if state.W.dtype != np.float64 else []
        what = f"coefficients must be found ever more exactly, and {', '.join(limits)} ends that (leave it out)"
        return [what] if limits else []

    def shorter_step(self) -> str | None:
        """Return the method with a shorter step, as text, to try where the loss rises; None if it has no step."""
        return None

    # What shards have learnt

    chunks_per_round: ClassVar[int] = 33  # of a shard: fewer cost more messages, more let the shards drift apart

    def on_shard(self, shards: int) -> Method:
        """Return the method for one of several shards: the same, unless it forgets by the samples of all shards."""
        return self

    def summary(self, divergence: Divergence, before: State, after: State) -> Sums:
        """Return what was learnt between two states, as sums that add up over shards."""
        raise ValueError(f"method {self.name!r} cannot learn on shards: {self.why_not_on_shards}.")

    def merged(self, divergence: Divergence, before: State, sums: Sums) -> State:
        """Return the state after ``before`` and all that the shards have learnt; W is minimised again."""
        raise ValueError(f"method {self.name!r} cannot learn on shards: {self.why_not_on_shards}.")


class AveragingMethod(Method):
    """A method that averages statistics over the samples, and can forget old ones and learn on shards.

    With ``certified`` it learns in the form of Theorem B of theory.md from that number of samples on: coefficients
    to a tolerance that falls, W in a box that no longer changes ("low" in the memory), and no exchanges.
    """

    forgetting: float
    max_iter: int | None

    theorem: ClassVar[str] = "B"
    skips_empty: ClassVar[bool] = True
    keeps_fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_iter is not None:
            require_whole(1, max_iter=self.max_iter)
        if self.certified is not None:
            require_whole(1, certified=self.certified)
        Averaging(forgetting=self.forgetting)  # checks it

    @property
    def horizon(self) -> float:
        return -SAMPLES / math.log1p(-self.forgetting) if self.forgetting else math.inf

    @property
    def penalised_effort(self) -> int:
        return PENALISED_EFFORT if self.max_iter is None else 1

    @property
    def why_not_on_shards(self) -> str | None:  # type: ignore[override]
        return None if self.certified is None else "certified is about one stream of samples; leave it out"

    def on_shard(self, shards: int) -> Self:
        """Return a method that forgets as fast as one stream would, all shards together."""
        forgetting = min(1 - (1 - self.forgetting) ** shards, 1 - 1e-9)
        return self.with_constants(forgetting=forgetting) if self.forgetting else self

    # The form that is proved

    def why_not(self, divergence: Divergence, penalties: Penalties = NO_PENALTIES, masked: bool = False) -> str | None:
        why = None if self.certified is None else self._why_not_certified(divergence, penalties, masked)
        return why or super().why_not(divergence, penalties, masked)

    def _why_not_certified(self, divergence: Divergence, penalties: Penalties, masked: bool) -> str | None:
        name = repr(divergence.name or type(divergence).__name__)
        if not divergence.convex:
            return f"certified needs a loss that is convex in the fit, and {name} is not; leave certified out."
        if not divergence.smooth:
            cure = "use method 'paper', which covers it" if divergence.slopes_known else "leave certified out"
            return f"certified needs a loss that is smooth in the fit, and {name} is not; {cure}."
        if not divergence.smooth_curvature or divergence.chords:
            why = f"and {name} does not give one and say so (smooth_curvature = True)"
            return f"certified needs a curvature that is Lipschitz in the fit, {why}; leave certified out."
        if not penalties.l2_coefficients:
            return "certified needs coefficients that are unique: give l2_coefficients, such as 1e-3."
        if self.forgetting:
            return "certified needs weights that vanish; leave out certified or forgetting."
        if masked:
            return "certified covers no missing or weighted entries; leave it out."
        return None

    def solver_after(self, clock: float, penalised: bool, divergence: Divergence, X: Samples) -> CoefficientSolver:
        if not self.is_certified(clock):
            return super().solver_after(clock, penalised, divergence, X)
        given, tol = getattr(self, "tol", None), falling(TOL, clock)
        limit = self.max_iter or int(PATIENCE * TOL / tol)  # the lower the tolerance, the more steps
        return precise_solver(divergence, X.sparse).stopping(tol if given is None else given, limit)

    def penalties_after(self, clock: float, penalties: Penalties) -> Penalties:
        """Return none before the form begins if there is just the one that it asks for: early on, that costs loss."""
        early = self.certified is not None and not self.is_certified(clock)
        return (
            NO_PENALTIES if early and penalties == Penalties(l2_coefficients=penalties.l2_coefficients) else penalties
        )

    def boxed(self, state: State, low: Array) -> State:
        """Return the state with W in the box that it stays in from now on."""
        low = np.clip(low, state.C.least_mean(len(state.W)), 0.5).astype(state.W.dtype)
        state = replace(state, memory=dict(state.memory) | {"low": low})
        return replace(state, W=_box(state).project(state.W))

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        return _box(state) if "low" in state.memory else state.C

    def doubts(self, divergence: Divergence, state: State) -> list[str] | None:
        if self.certified is None:
            return None
        early = f"it has that form from {self.certified} samples on, and has seen {state.clock:.0f}"
        return [*([] if self.is_certified(state.clock) else [early]), *self.inexact(divergence, state)]


def _box(state: State) -> DictionaryBox:
    return DictionaryBox(state.memory["low"], state.C.fixed, state.C.high)
