"""What one batch of samples makes of a model, and what is told of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, weight_of
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.learner.algorithm import learn
from onmf.learner.config import Recipe, require_served
from onmf.learner.engine import HostEngine
from onmf.learner.learned import Coverage, Learned, Usage
from onmf.learner.position import Position, Standing
from onmf.model.sets import Sets
from onmf.model.state import BatchResult, State
from onmf.model.validation import DataError, require_finite_values, require_unbounded, require_valid_entries
from onmf.samples import Samples

FEW = 256  # samples on a device that tell what any dictionary should beat


@dataclass(frozen=True)
class News:
    """What samples have shown besides the dictionary; that of several shards adds up."""

    samples: int
    loss: float  # the mean of theirs, each just before it was learnt from, in internal units
    weight: float  # of the samples in that mean
    usage: Usage
    raised: int = 0  # entries outside the domain that were raised
    zeros: bool = False  # were there any in the data?
    coverage: Coverage | None = None  # of masked data

    def __add__(self, other: News) -> News:
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        return News(
            self.samples + other.samples,
            (1 - share) * self.loss + share * other.loss,
            weight,
            Usage(self.usage.sums + other.usage.sums),
            self.raised + other.raised,
            self.zeros or other.zeros,
            self.coverage and other.coverage and self.coverage + other.coverage,
        )


@dataclass(frozen=True)
class Lesson:
    """What a model becomes by a batch."""

    state: State
    divergence: Divergence  # as it was or, if it is left to the data, adapted to the residuals; in internal units
    news: News
    H: Array | None  # coefficients of the batch as they were found while learning, in the data's units; not on a device
    loss_to_beat: float  # of a model that has learnt nothing yet: what any dictionary should beat, in the data's units


def learnt(
    recipe: Recipe,
    learned: Learned,
    batch: Samples,
    rows: Any = None,
    *,
    repeated: bool = False,
    shards: int = 1,
) -> Lesson:
    """Learn from one batch, one of as many as ``shards`` learn from at the same time, each by itself.

    ``rows`` are the numbers of its samples, for messages; ``repeated`` says that an earlier pass has had them.
    """
    if recipe.device is not None:
        return _learnt_on_device(recipe, learned, batch, rows, repeated, shards)
    divergence, units, method = learned.divergence, learned.units, learned.method
    require_valid_entries(batch, rows, learned.features.names)
    batch = as_begun(learned, batch)
    if batch.sample_weight is not None:
        require_served(method, learned.inside, recipe, masked=learned.masked, weighted=True)
    internal, X, raised = inside(learned, batch, rows)
    K = len(learned.state.W)
    with threads.taken_from_blas(internal.values.size * K * K), faults_of_batch(rows):
        engine = HostEngine(
            method.on_shard(shards),
            learned.inside,
            learned.state.on_shard(shards),
            internal,
            box=recipe.H,
            reservoir=recipe.remembered,
            adapt=method.adapts and learned.adaptive,
            repeated=repeated,
            exchanges=shards == 1,
        )
        result = learn(engine)
    unit = divergence.loss_unit(units.scale)
    state = result.state
    finite = all(np.isfinite(array.sum(dtype=np.float64)) for array in (state.W, *state.memory.values()))
    require_finite(finite, result.loss * unit if result.loss else 0.0, rows)
    H = result.H * result.state.W.dtype.type(learned.coefficient_unit)
    require_finite_values(H, X, units.mean, rows)
    if recipe.sets == Sets() and not recipe.shares:  # a bound of the user's own is meant
        require_unbounded(result.H, recipe.H.high, X, units.scale, rows)
    to_beat = learned.loss_to_beat
    if not learned.history.entries and shards == 1:
        to_beat = max(result.first_loss, rank_one_loss(learned.inside, internal)) * unit
    news = News(
        len(X),
        result.loss,
        X.weight,
        Usage.of(result.H, result.state.W, X.sample_weight),
        raised,
        batch.has_zeros,
        Coverage.of(batch) if learned.masked else None,
    )
    return Lesson(result.state, result.divergence, news, H, to_beat)


def _learnt_on_device(
    recipe: Recipe, learned: Learned, batch: Samples, rows: Any, repeated: bool, shards: int
) -> Lesson:
    """Learn from one batch with PyTorch; what is checked of coefficients is looked at there first."""
    # PyTorch is there, but not for everybody.
    from onmf.device.engine import DeviceEngine, engine_of, with_enough_memory
    from onmf.device.transfer import chunks_of

    device, units, method, weights = str(recipe.device), learned.units, learned.method, batch.sample_weight
    if learned.masked or batch.masked:
        batch = as_begun(learned, batch.on_host())
    if weights is not None:
        require_served(method, learned.inside, recipe, masked=learned.masked, weighted=True)
    samples = chunks_of(batch, device, units, learned.divergence, learned.state.W.dtype)
    if not samples.rows.sound:
        require_valid_entries(batch.on_host(), rows, learned.features.names)

    def learning(smaller: int) -> tuple[DeviceEngine, BatchResult]:
        engine = engine_of(method)(
            method.on_shard(shards),
            learned.inside,
            learned.state.on_shard(shards),
            samples,
            weights=weights,
            box=recipe.H,
            adapt=method.adapts and learned.adaptive,
            repeated=repeated,
            exchanges=shards == 1,
            smaller=smaller,
        )
        return engine, learn(engine)

    with faults_of_batch(rows):
        engine, result = with_enough_memory(learning, device)
    unit = learned.divergence.loss_unit(units.scale)
    require_finite(engine.device_state.finite, result.loss * unit if result.loss else 0.0, rows)
    largest = engine.largest
    if not np.isfinite(largest) or (recipe.sets == Sets() and largest >= 0.5 * recipe.H.high):
        given, H = batch.on_host(), result.H.cpu().numpy()
        require_finite_values(H, given, units.mean, rows)
        require_unbounded(H, recipe.H.high, given, units.scale, rows)
    to_beat = learned.loss_to_beat
    if not learned.history.entries and shards == 1:
        some = batch[samples.filled[:FEW].cpu().numpy()].on_host().densified().astype(learned.state.W.dtype)
        internal, _ = units.inside(some, learned.divergence, rows)
        to_beat = max(result.first_loss, rank_one_loss(learned.inside, internal)) * unit
    weight = weight_of(weights, len(samples))
    covered = Coverage.of(batch) if learned.masked else None
    raised, zeros = int(engine.samples.raised), samples.rows.zeros
    news = News(len(samples), result.loss, weight, Usage(engine.usage), raised, zeros, covered)
    return Lesson(result.state, result.divergence, news, None, to_beat)


def inside(learned: Learned, batch: Samples, rows: Any = None) -> tuple[Samples, Samples, int]:
    """Return samples in internal units, in the data's as the method stores them, and how many entries were raised."""
    X = learned.method.stored(learned.divergence, batch)
    internal, raised = learned.units.inside(X.astype(learned.state.W.dtype), learned.divergence, rows)
    return internal, X, raised


def as_begun(learned: Learned, batch: Samples) -> Samples:
    """Return the batch as the model's statistics need it: with weights of its entries, if it was begun with them."""
    if batch.masked and not learned.masked:
        raise ValueError(
            "this model was begun on data without missing values or weights of entries; begin a new model with them, "
            "from its first batch on."
        )
    return batch.as_masked() if learned.masked else batch


def require_finite(finite: bool, loss: float, rows: Any) -> None:
    """Raise an error for a state that is no longer made of finite numbers, or a loss, in the data's units, that is not.

    A loss that is finite inside may be beyond the range of numbers in the data's units.
    """
    if not finite:
        raise unlearnable("makes the dictionary infinite or NaN", rows)
    if not np.isfinite(loss):
        raise unlearnable("has a loss beyond the range of numbers", rows)


def unlearnable(why: str, rows: Any) -> DataError:
    """Return what to raise of a batch that cannot be learnt from; ``rows`` are the numbers of its samples."""
    where = "" if rows is None or not len(rows) else f", rows {min(rows)} to {max(rows)},"
    if where and rows.dtype == object:  # names have no order
        where = f", rows {rows[0]} to {rows[-1]},"
    return DataError(
        f"The batch{where} {why}, so it is not learnt from: its numbers are too large or too unequal for this "
        "divergence; rescale or clip them."
    )


def rank_one_loss(divergence: Divergence, X: Samples) -> float:
    """Return the mean loss of fits that are all multiples of the mean sample: what any dictionary should beat.

    It is at least a millionth of that of fits twice too large: what is below is rounding.
    """
    profile = X.mean(axis=0).reshape(1, -1) + 1e-6 * X.mean()
    problem = Problem(divergence, X, (profile / profile.sum()).astype(X.dtype))
    H = problem.start() if X.masked else X.sum(axis=1)[:, None] + TINY
    return max(float(problem.loss(H, problem.fit(H)).mean()), 1e-6 * float(problem.scale.mean()))


@contextmanager
def faults_of_batch(rows: Any) -> Iterator[None]:
    """Whatever the numbers of a batch do to the arithmetic is an error of this batch."""
    try:
        yield
    except DataError:
        raise
    except (ArithmeticError, ValueError) as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise unlearnable(f"cannot be computed with ({cause})", rows) from error


def as_floats(batch: Any) -> Any:
    """Return a batch in single or double precision: as it is, or as the latter."""
    if batch.dtype in (np.float32, np.float64) and batch.dtype.isnative:
        return batch
    return batch.astype(np.float64)


log = logging.getLogger("onmf")


@dataclass(frozen=True)
class Progress:
    """What a callback is told after every batch."""

    samples: int  # learnt from so far
    total: int | None  # samples in all passes, if known
    steps: int
    seconds: float
    loss: float  # mean loss of the batch's samples, each just before it was learnt from, in the data's units
    W: Array  # the dictionary now
    H: Array | None = None  # the batch's coefficients as they were found while learning (not with Dask or on a device)
    raised: int = 0  # entries outside the domain that were raised, the first time that there are any
    skipped: int = 0  # samples or batches left out so far
    drift: float = 0.0  # from 0, new samples are fitted as well as earlier ones, to 1: the stream has changed
    drifted: bool = False  # has this batch shown that it has?
    phases: Mapping[str, float] | None = None  # with Dask: seconds of this fit by what they went to: read, learn, merge
    new: int = 0  # samples of this batch


def step(
    recipe: Recipe,
    learned: Learned,
    batch: Any,
    rows: Any = None,
    position: Position | None = None,
    total: int | None = None,
) -> tuple[Learned, Progress]:
    """Learn from one batch; also what to tell of it.

    ``rows`` are the numbers of its samples, for messages; ``position`` is where a fit stands after it.
    """
    started = time.perf_counter()
    lesson = learnt(recipe, learned, batch, rows, repeated=position is not None and position.repeats)
    seconds = time.perf_counter() - started
    after = taught(learned, lesson.state, lesson.divergence, lesson.news, seconds, position, lesson.loss_to_beat)
    return after, told(learned, after, lesson.news, total, rows, lesson.H)


def taught(
    learned: Learned,
    state: State,
    divergence: Divergence,
    news: News,
    seconds: float,
    position: Position | Standing | None,
    loss_to_beat: float | None = None,
) -> Learned:
    """What was learnt, with what samples have made of it; ``divergence`` is in internal units."""
    units, method, history = learned.units, learned.method, learned.history
    passes = learned.passes if position is None else position.passes
    began = history.samples if passes > learned.passes else learned.pass_began
    adapted = method.adapts and learned.adaptive
    unit = learned.divergence.loss_unit(units.scale)
    loss = news.loss * unit if news.loss else 0.0  # the unit may be infinite where all is fitted exactly
    return replace(
        learned,
        state=state,
        divergence=divergence.in_units(1 / units.scale) if adapted else learned.divergence,
        history=history.after(news.samples, seconds, loss),
        position=position,
        loss_to_beat=learned.loss_to_beat if loss_to_beat is None else loss_to_beat,
        passes=passes,
        pass_began=began,
        raised=learned.raised or news.raised > 0,
        zeros=learned.zeros or news.zeros,
        drift=learned.drift.after(news.samples, news.loss),
        coverage=learned.coverage and news.coverage and learned.coverage + news.coverage,
        usage=learned.usage.and_then(news.usage, history.samples, news.samples, method.horizon),
    )


def told(
    before: Learned, after: Learned, news: News, total: int | None, rows: Any = None, H: Array | None = None
) -> Progress:
    """What to tell of samples that have made ``after`` of ``before``."""
    with np.errstate(over="ignore"):
        W = after.W
    if not np.isfinite(W.sum(dtype=np.float64)):  # in the data's units, where the coefficients are shares
        raise unlearnable("makes the dictionary infinite", rows)
    drift, (samples, seconds, loss) = after.drift, after.history.entries[-1]
    if drift.changed:
        log.warning(
            "The stream has changed: after %d samples new ones are fitted worse than those before (change %d).",
            *(samples, drift.changes),
        )
    return Progress(
        *(samples, total, after.state.steps, seconds, loss, W, H),
        raised=0 if before.raised else news.raised,
        skipped=after.skipped.count,
        drift=drift.statistic,
        drifted=drift.changed,
        new=news.samples,
    )
