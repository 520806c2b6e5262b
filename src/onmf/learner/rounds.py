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
from functools import reduce
from typing import Any

import numpy as np

from onmf._support import threads
from onmf.data.columns import Features
from onmf.divergences import Divergence
from onmf.learner.config import Recipe
from onmf.learner.drift import Drift
from onmf.learner.learned import History, Learned, Skipped
from onmf.learner.update import News, as_begun, faults_of_batch, inside, learnt, unlearnable
from onmf.methods import Method, exchange
from onmf.model.sets import Simplex
from onmf.model.state import State, Sums
from onmf.model.validation import DataError
from onmf.samples import Samples

SHARE = 0.5  # of the samples seen: the most that a round adds


@dataclass(frozen=True)
class Setting:
    """What the shards of a round begin with: small, but for the state."""

    recipe: Recipe
    learned: Learned
    repeated: bool  # were all samples learnt from in an earlier pass?

    @classmethod
    def of(cls, recipe: Recipe, learned: Learned, repeated: bool) -> Setting:
        """Without what only the driver needs: not every shard has to be sent the history of the run."""
        light = replace(
            learned,
            history=History(learned.history.entries[-1:]),
            features=Features(learned.features.number),
            skipped=Skipped(),
            drift=Drift(),
            position=None,
            source=None,
        )
        return cls(replace(recipe, init="kmeans++"), light, repeated)

    def received(self) -> Setting:
        """The same after it has come over a wire."""
        return replace(self, learned=replace(self.learned, state=self.learned.state.aligned()))


@dataclass(frozen=True)
class Found:
    """What one shard has found, or several together."""

    sums: Sums | None = None  # None: nothing could be learnt from
    news: News | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)  # of the divergence, each times the samples
    faults: tuple[DataError, ...] = ()  # why shards have learnt nothing
    seconds: float = 0.0  # of the slowest
    ended: float = 0.0  # the last of them, by the clock of its machine

    def __add__(self, other: Found) -> Found:
        faults, seconds = self.faults + other.faults, max(self.seconds, other.seconds)
        both = replace(self, faults=faults, seconds=seconds, ended=max(self.ended, other.ended))
        if other.sums is None or other.news is None:
            return both
        if self.sums is None or self.news is None:
            return replace(both, sums=other.sums, news=other.news, parameters=other.parameters)
        parameters = {name: value + other.parameters[name] for name, value in self.parameters.items()}
        return replace(both, sums=self.sums + other.sums, news=self.news + other.news, parameters=parameters)


@dataclass(frozen=True)
class Outcome:
    """What a round has made of the model."""

    state: State
    parameters: Mapping[str, float]  # of the divergence in internal units, as far as they follow the residuals
    news: News | None  # None: nothing could be learnt from
    faults: tuple[DataError, ...]
    seconds: float  # of the slowest shard
    ended: float  # the last shard, by the clock of its machine


def require_shards(recipe: Recipe) -> None:
    """Refuse, before anything is read, what cannot be learnt on shards."""
    method = recipe.method
    if isinstance(method, Method) and method.not_additive:
        raise ValueError(f"method {method.name!r} cannot learn on shards: {method.not_additive}; use 'auto'.")
    if recipe.reservoir:
        raise ValueError(
            "a reservoir mixes the samples of one stream, and shards mix theirs already: rows are drawn from many "
            "partitions; use reservoir=0."
        )


def size_of_round(method: Method, clock: float, most: int) -> tuple[int, int]:
    """How many shards the next round has, ``most`` at most, and how many rows each: so many chunks of its clock."""

    def rows(shards: int) -> int:
        return method.chunks_per_round * method.usual_chunk(clock / shards)

    shards = max(1, min(most, int(SHARE * clock / rows(most))))
    while shards > 1 and shards * rows(shards) > SHARE * clock:  # the fewer shards, the larger their chunks
        shards -= 1
    return shards, rows(shards)


def exchange_due(recipe: Recipe, learned: Learned, n: int, repeated: bool) -> bool:
    """Is an exchange of atoms to be tried before the next n samples? Shards have their atoms in common."""
    state, method = learned.state, learned.method
    able = method.exchanges(learned.inside) > 0 and not isinstance(recipe.H, Simplex)
    return able and not repeated and exchange.due(len(state.W), state.clock, state.clock + n, method.horizon)


def exchanged(setting: Setting, batch: Samples) -> Setting:
    """The setting after an exchange of atoms, if the samples of the batch are fitted better."""
    recipe, learned, method = setting.recipe, setting.learned, setting.learned.method
    X, _, _ = inside(learned, as_begun(learned, batch[: exchange.taking_part(len(learned.state.W))]))
    X = X[np.flatnonzero(X.sum(axis=1) != 0)]
    counts = None if X.sample_weight is None else X.sample_weight.astype(learned.state.W.dtype, copy=False)
    X = Samples(X.matrix, X.entry_weight, counts, X.absent)
    with threads.taken_from_blas(), faults_of_batch(None):
        begun = learned.state.copy(method.layout)
        state = exchange.exchanged(method, learned.inside, begun, X, recipe.H)
    state = replace(state, W=np.ascontiguousarray(state.W))
    return replace(setting, learned=replace(learned, state=state))


def shard(setting: Setting, batch: Any, rows: Any, shards: int) -> Found:
    """What one of so many shards learns from its samples."""
    started, learned = time.perf_counter(), setting.learned
    try:
        lesson = learnt(setting.recipe, learned, batch, rows, repeated=setting.repeated, shards=shards)
    except DataError as error:
        return Found(faults=(error,), seconds=time.perf_counter() - started, ended=time.time())
    with threads.taken_from_blas():
        begun = learned.state.on_shard(shards)
        sums = learned.method.summary(learned.inside, begun, lesson.state)
    parameters = {name: sums.samples * value for name, value in _left_to_data(learned, lesson.divergence).items()}
    return Found(sums, lesson.news, parameters, (), time.perf_counter() - started, time.time())


def together(found: list[Found]) -> Found:
    """All of them as one, added up in their order."""
    return reduce(lambda one, other: one + other, found)


def finished(setting: Setting, found: Found) -> Outcome:
    """The state that follows from what all shards have found."""
    learned, times = setting.learned, (found.seconds, found.ended)
    if found.sums is None or found.news is None:
        return Outcome(learned.state, {}, None, found.faults, *times)
    samples = found.sums.samples
    parameters = {name: value / samples for name, value in found.parameters.items()} if samples else {}
    with threads.taken_from_blas():
        state = learned.method.merged(adapted(learned, parameters), learned.state, found.sums)
    if not all(np.isfinite(array.sum(dtype=np.float64)) for array in (state.W, *state.memory.values())):
        error = unlearnable("makes the dictionary infinite or NaN", None)
        return Outcome(learned.state, {}, None, (*found.faults, error), *times)
    return Outcome(state, parameters, found.news, found.faults, *times)


def alone(setting: Setting, batch: Any, rows: Any) -> Outcome:
    """The round of a single shard: plain learning."""
    started, learned = time.perf_counter(), setting.learned
    try:
        lesson = learnt(setting.recipe, learned, batch, rows, repeated=setting.repeated)
    except DataError as error:
        return Outcome(learned.state, {}, None, (error,), time.perf_counter() - started, time.time())
    parameters = _left_to_data(learned, lesson.divergence)
    return Outcome(lesson.state, parameters, lesson.news, (), time.perf_counter() - started, time.time())


def adapted(learned: Learned, parameters: Mapping[str, float]) -> Divergence:
    """The divergence of the model in internal units, with parameters that follow the residuals."""
    if not parameters:
        return learned.inside
    return replace(learned.inside, **parameters)  # type: ignore[type-var] # all divergences are dataclasses


def _left_to_data(learned: Learned, divergence: Divergence) -> dict[str, float]:
    """The parameters of a divergence that follow the residuals."""
    if not (learned.method.adapts and learned.adaptive):
        return {}
    return {name: value for name, value in divergence.parameters().items() if isinstance(value, float)}
