"""What a method is: how a chunk of samples with its coefficients changes the dictionary; and how one is found by name.

A method is one frozen dataclass in one file of this folder, and its fields are its constants. Giving the class a
``name`` registers it: ``"paper"``, ``"paper:tau=5"`` and ``Paper(tau=5)`` then mean it everywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import require_whole
from onmf._support.registry import Constants
from onmf.coefficients import CoefficientSolver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.methods.schedules import Growing
from onmf.model.penalty import NO_PENALTIES, Penalties, Penalty
from onmf.model.sets import DictionaryBox, DictionarySet
from onmf.model.state import State, Sums
from onmf.samples import Samples

PENALISED_EFFORT = 2  # of methods whose coefficients are found in haste


@dataclass(frozen=True, repr=False)
class Choice(Constants, kind="method"):
    """A method by its name and constants, or a rule that picks one when it sees the first batch."""

    on_device: ClassVar[bool] = False  # can it learn with PyTorch, too?
    masked_on_device: ClassVar[bool] = False  # and from samples with missing or weighted entries?

    @abstractmethod
    def chosen(
        self, divergence: Divergence, K: int, batch: Samples, n_samples: int | None, on_device: bool = False
    ) -> Method:
        """The method for a dictionary of K components, by the first batch and the length of the data, if known."""

    def for_shares(self) -> Choice:
        """The choice where the coefficients of a sample sum to one: the same, unless a rule has to pick otherwise."""
        return self

    def for_device(self) -> Choice:
        """The choice where PyTorch computes: the same, if it is there."""
        if self.on_device:
            return self
        raise ValueError(
            f"method {self.name!r} runs on the processor only; leave device out, or begin on the device with 'auto'."
        )

    @abstractmethod
    def continued(self, before: Method) -> Method:
        """The method for a model that has learnt with ``before``: the same with constants as they are now."""


class Method(Choice):
    """One way to learn W: ``update`` makes the next state from a chunk of samples with their coefficients."""

    layout: ClassVar[Literal["C", "F"]] = "C"  # how W lies in memory while it is learnt
    skips_empty: ClassVar[bool] = False  # leave out samples of zeros? Averages of them alone would say that W is zero
    adapts: ClassVar[bool] = False  # does it let a parameter left to the data (Huber's delta) follow the residuals?
    keeps_fixed: ClassVar[bool] = False  # does it leave the first components alone if C says that they are known?
    fixed: ClassVar[tuple[str, ...]] = ()  # constants that shape the statistics, and stay as they were at the start
    weighs: ClassVar[bool] = True  # can samples and entries weigh differently, or entries be unknown?
    nonnegative: ClassVar[tuple[str, ...]] = ()  # statistics without negative entries, for the check of a file
    not_additive: ClassVar[str] = "it learns sample by sample, so that shards cannot be summed"  # or "": it is

    growing: ClassVar[Growing | None] = None  # chunks where tau is None

    tau: int | None  # samples per update; larger batches are split. None: more and more

    def __post_init__(self) -> None:
        if self.tau is not None or self.growing is None:
            require_whole(1, tau=self.tau)

    # What it serves

    def why_not(self, divergence: Divergence, penalties: Penalties = NO_PENALTIES, masked: bool = False) -> str | None:
        """Why the method cannot serve a divergence with such penalties, and what to use instead; None if it can.

        ``masked`` says that entries may be missing or weigh differently.
        """
        return self.coefficients(divergence, masked).why_not(divergence, self.penalty(penalties), masked)

    def why_not_shares(self, divergence: Divergence, masked: bool = False) -> str | None:
        """Why the method cannot learn with coefficients on the simplex, and what to use instead; None if it can."""
        return (
            f"method {self.name!r} cannot keep coefficients on the simplex: it changes the units of components and "
            "coefficients as it learns; use method 'auto', 'surrogate' or 'paper'."
        )

    def chosen(
        self, divergence: Divergence, K: int, batch: Samples, n_samples: int | None, on_device: bool = False
    ) -> Method:
        return self

    def continued(self, before: Method) -> Method:
        if type(self) is not type(before):
            raise ValueError(
                f"this model was begun with method {before.name!r} and cannot continue with {self.name!r}; "
                "keep it, or begin a new model."
            )
        for name in self.fixed:
            if getattr(self, name) != getattr(before, name):
                raise ValueError(
                    f"the method's {name} cannot be changed while a model learns; keep it, or begin a new model."
                )
        return self

    def stored(self, divergence: Divergence, batch: Samples) -> Samples:
        """The batch, dense or sparse, as the method learns from it fastest."""
        return batch.densified()

    # Chunks

    def chunk(self, clock: float, left: int) -> int:
        """How many of the ``left`` samples of a batch are the next chunk, after so many samples.

        Chunks without a fixed size share out the rest of the batch evenly: a short one at its end would cost an update
        as well.
        """
        size = self.usual_chunk(clock)
        return min(size, left) if self.tau is not None else -(-left // max(1, round(left / size)))

    def usual_chunk(self, clock: float) -> int:
        """The size of a chunk after so many samples, in a batch that is large enough."""
        if self.tau is not None or self.growing is None:
            return int(self.tau or 1)
        return self.growing(clock)

    # The coefficient step

    @abstractmethod
    def coefficients(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        """The solver of the coefficient step while learning."""

    def penalty(self, penalties: Penalties) -> Penalty:
        """The penalty on the coefficients: the user's, and what the method adds."""
        return penalties.of_coefficients

    def visits(self, clock: float) -> int:
        """How often the chunk after so many samples is looked at before the next one."""
        return 1

    @property
    def horizon(self) -> float:
        """For how many samples the past is remembered where it is forgotten; else infinite."""
        return np.inf

    def effort(self, clock: float) -> int:
        """How many times its usual iterations the coefficient solver may take for the chunk after so many samples."""
        return 1

    @property
    def penalised_effort(self) -> int:
        """How many times that with penalties, of which a start in haste knows little."""
        return 1

    def weight(self, divergence: Divergence, clock: float, n: float) -> float:
        """The weight of n new samples, the last of ``clock``, in what is averaged: by default, all count alike."""
        return n / clock

    # The dictionary step

    @abstractmethod
    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """The state before the first sample, with W brought into C."""

    def first_look(self, problem: Problem, state: State) -> State:
        """The state after a look at the whole first batch, which is then learnt from, and from which units come too."""
        return state

    @abstractmethod
    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """The next state, by a chunk of samples with coefficients H and fits Y: nothing else in the library learns.

        The first ``new`` samples are seen for the first time. The old state's memory may be overwritten, unless
        ``visits`` may be more than one.
        """

    def exchanges(self, divergence: Divergence) -> float:
        """Return what merging two components may cost, relative to what a component carries on average.

        None at all: 0. Only components that are dead or coincide: next to nothing.
        """
        return 0.0

    def recombined(self, divergence: Divergence, state: State, W: Array, T: Array) -> State:
        """The state with another dictionary, whose coefficients are T h where they were h."""
        raise ValueError(f"method {self.name!r} cannot exchange components.")

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        """The set that W stays in."""
        return state.C

    def expected(self, divergence: Divergence, state: State, masked: bool = False) -> dict[str, Array]:
        """Statistics of the shapes and types that belong to this state, to compare those in a file with."""
        return dict(self.start(divergence, state.W, state.C, masked).memory)

    def require_sound(self, divergence: Divergence, state: State) -> None:
        """Refuse statistics that the method could not have made, as a damaged file may hold."""

    def doubts(self, divergence: Divergence, state: State) -> list[str] | None:
        """What the paper's theorem assumes of the method and this run does not have; None: it says nothing of it."""
        return None

    def shorter_step(self) -> str | None:
        """The method with a gentler step, as text, to try where the loss rises; None if it has no step."""
        return None

    # What shards have learnt

    chunks_per_round: ClassVar[int] = 33  # of a shard: fewer cost more messages, more let the shards drift apart

    def on_shard(self, shards: int) -> Method:
        """The method of one of so many shards: the same, unless it forgets by the samples that all of them see."""
        return self

    def summary(self, divergence: Divergence, before: State, after: State) -> Sums:
        """What was learnt between two states, as sums that add up over shards."""
        raise ValueError(f"method {self.name!r} cannot learn on shards: {self.not_additive}; use 'auto'.")

    def merged(self, divergence: Divergence, before: State, sums: Sums) -> State:
        """The state that follows ``before`` by what all shards have learnt; W is minimised anew."""
        raise ValueError(f"method {self.name!r} cannot learn on shards: {self.not_additive}; use 'auto'.")


def why_not_on_dictionary(method: Method, penalties: Penalties) -> str | None:
    """What a method says that gives its components a size of its own, so that no penalty can change it."""
    reason = f"method {method.name!r} takes no l1_dictionary or l2_dictionary: it fixes the size of its components"
    return f"{reason}; use method 'auto'." if penalties.on_dictionary else None
