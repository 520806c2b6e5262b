"""Learning in rounds: shards learn from one state at the same time, and what they have learnt is summed up.

    the state W, statistics, samples S
        |-- shard 1: n rows, its clock at S / P --> sums
        |-- shard 2: ...                        --> sums   added up in a fixed order
        |-- shard P: ...                        --> sums
    the next state: statistics divided by all n, and W minimised anew from them

Shards that begin from a poor W would go separate ways, so that the first samples are learnt in sequence, and a round
never has more than half as many samples as came before it: the number of shards grows with the samples seen. It follows
from them and from the data alone, never from the number of machines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onmf._support import threads
from onmf.data.columns import Features
from onmf.divergences import Divergence
from onmf.learner.algorithm import HostEngine
from onmf.learner.config import Recipe
from onmf.learner.drift import Drift
from onmf.learner.learned import History, Learned, Skipped
from onmf.learner.update import BatchFacts, all_finite, faults_of_batch, inside, learn_batch, masked_like, unlearnable
from onmf.methods import Method, exchange
from onmf.model.state import State, Sums
from onmf.model.validation import DataError
from onmf.samples import Samples

SHARE = 0.5  # of the samples seen: the most that a round adds


@dataclass(frozen=True)
class RoundStart:
    """The settings and the model that the shards of a round begin with: small, but for the state."""

    recipe: Recipe
    learned: Learned
    repeated: bool  # were all samples learnt from in an earlier pass?
    shards: int

    @classmethod
    def of(cls, recipe: Recipe, learned: Learned, repeated: bool, shards: int) -> RoundStart:
        """Leave out what only the driver needs: not every shard has to be sent the history of the run."""
        light = replace(
            learned,
            history=History(learned.history.entries[-1:]),
            features=Features(learned.features.number),
            skipped=Skipped(),
            drift=Drift(),
            position=None,
            source=None,
        )
        return cls(replace(recipe, init="kmeans++"), light, repeated, shards)

    def received(self) -> RoundStart:
        """Return the start with its arrays aligned, as they may not be once they have come over a wire."""
        return replace(self, learned=replace(self.learned, state=self.learned.state.copy()))


@dataclass(frozen=True)
class RoundResult:
    """The result of a shard or of several as sums, or of a whole round as a state."""

    facts: BatchFacts | None = None  # None: nothing could be learnt from
    sums: Sums | None = None  # of shards
    state: State | None = None  # after the round
    parameters: Mapping[str, float] = field(default_factory=dict)  # of the divergence, in sums each times the samples
    faults: tuple[DataError, ...] = ()  # why shards have learnt nothing
    seconds: float = 0.0  # of the slowest shard
    ended: float = 0.0  # the last shard, by the clock of its machine

    def __add__(self, other: RoundResult) -> RoundResult:
        both = other if self.sums is None else self
        if self.sums and self.facts and other.sums and other.facts:
            parameters = {name: value + other.parameters[name] for name, value in self.parameters.items()}
            both = RoundResult(self.facts + other.facts, self.sums + other.sums, parameters=parameters)
        seconds, ended = max(self.seconds, other.seconds), max(self.ended, other.ended)
        return replace(both, faults=self.faults + other.faults, seconds=seconds, ended=ended)

    def aligned(self) -> RoundResult:
        """Return the result with sums that are aligned: elsewhere NumPy would add them up in another order."""
        if self.sums is None:
            return self
        arrays = {name: np.require(array, requirements="A") for name, array in self.sums.arrays.items()}
        return replace(self, sums=replace(self.sums, arrays=arrays))


def require_shards(recipe: Recipe) -> None:
    """Raise an error, before anything is read, for what cannot be learnt on shards."""
    method = recipe.method
    if isinstance(method, Method) and method.why_not_on_shards:
        raise ValueError(f"method {method.name!r} cannot learn on shards: {method.why_not_on_shards}.")
    if recipe.reservoir_size:
        raise ValueError(
            "a reservoir mixes the samples of one stream, and shards mix theirs already: rows are drawn from many "
            "partitions; use reservoir=0."
        )


def size_of_round(method: Method, clock: float, most: int) -> tuple[int, int]:
    """Return how many shards the next round has, ``most`` at most, and how many rows each: chunks of its clock."""

    def rows(shards: int) -> int:
        return method.chunks_per_round * method.usual_chunk(clock / shards)

    shards = max(1, min(most, int(SHARE * clock / rows(most))))
    while shards > 1 and shards * rows(shards) > SHARE * clock:  # the fewer shards, the larger their chunks
        shards -= 1
    return shards, rows(shards)


def exchange_due(start: RoundStart, n: int) -> bool:
    """Tell whether to try an exchange of components before the n samples of the round: shards have them in common."""
    state, method = start.learned.state, start.learned.method
    can_exchange = method.largest_merger_cost(start.learned.inside) > 0 and not start.recipe.shares
    wanted = can_exchange and start.shards > 1 and not start.repeated
    return wanted and exchange.due(len(state.W), state.clock, state.clock + n, method.horizon)


def exchanged(start: RoundStart, batch: Samples) -> RoundStart:
    """Return the start after an exchange of components, if the samples of the batch are fitted better by it."""
    learned, method, box = start.learned, start.learned.method, start.recipe.coefficient_set
    X, _ = inside(learned, masked_like(learned, batch[: exchange.samples_needed(len(learned.state.W))]))
    with threads.own_threads(), faults_of_batch(None):
        engine = HostEngine(method, learned.inside, learned.state, X, box=box)  # without empty samples
        state = exchange.exchanged(method, learned.inside, engine.state, engine.X, box)
    state = replace(state, W=np.ascontiguousarray(state.W))
    return replace(start, learned=replace(learned, state=state))


def learn_shard(start: RoundStart, batch: Any, rows: Any) -> RoundResult:
    """Learn from the samples of one shard; a shard that is alone learns plainly, and ends the round."""
    started, learned = time.perf_counter(), start.learned
    try:
        update = learn_batch(start.recipe, learned, batch, rows, repeated=start.repeated, shards=start.shards)
    except DataError as error:
        return RoundResult(faults=(error,), seconds=time.perf_counter() - started, ended=time.time())
    result = RoundResult(update.facts, state=update.state)
    if learned.method.adapts and learned.adaptive:  # parameters that follow the residuals
        given = update.divergence.parameters().items()
        result = replace(result, parameters={name: value for name, value in given if isinstance(value, float)})
    if start.shards > 1:
        with threads.own_threads():
            sums = learned.method.summary(learned.inside, learned.state.on_shard(start.shards), update.state)
        parameters = {name: sums.samples * value for name, value in result.parameters.items()}
        result = replace(result, sums=sums, state=None, parameters=parameters)
    return replace(result, seconds=time.perf_counter() - started, ended=time.time())


def finish_round(start: RoundStart, found: RoundResult) -> RoundResult:
    """Return the state that follows from what all shards have found."""
    if found.sums is None:
        return found
    samples = found.sums.samples
    parameters = {name: value / samples for name, value in found.parameters.items()} if samples else {}
    with threads.own_threads():
        state = start.learned.method.merged(adapted(start.learned, parameters), start.learned.state, found.sums)
    if not all_finite(state):
        error = unlearnable("makes the dictionary infinite or NaN", None)
        return replace(found, facts=None, sums=None, faults=(*found.faults, error))
    return replace(found, sums=None, state=state, parameters=parameters)


def adapted(learned: Learned, parameters: Mapping[str, float]) -> Divergence:
    """Return the divergence of the model in internal units, with parameters that follow the residuals."""
    if not parameters:
        return learned.inside
    return replace(learned.inside, **parameters)  # type: ignore[type-var] # all divergences are dataclasses
