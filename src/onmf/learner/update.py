"""Learning from one batch of samples, and the report of it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, is_finite
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.learner.algorithm import HostEngine, learn
from onmf.learner.config import Recipe, require_served
from onmf.learner.learned import Coverage, Learned, Usage
from onmf.learner.resume import Position, RoundPosition
from onmf.model.sets import USUAL_SETS
from onmf.model.state import State
from onmf.model.validation import DataError, require_below_bound, require_finite_values, require_valid_entries
from onmf.samples import Samples

FEW = 256  # samples on a device that tell what any dictionary should beat


@dataclass(frozen=True)
class BatchFacts:
    """Counts, loss and usage of the samples of a batch; the facts of several shards add up."""

    samples: int
    loss: float  # the mean of theirs, each just before it was learnt from, in internal units
    weight: float  # of the samples in that mean
    usage: Usage
    raised: int = 0  # entries outside the domain that were raised
    coverage: Coverage | None = None  # of masked data

    def __add__(self, other: BatchFacts) -> BatchFacts:
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        return BatchFacts(
            self.samples + other.samples,
            (1 - share) * self.loss + share * other.loss,
            weight,
            Usage(self.usage.sums + other.usage.sums),
            self.raised + other.raised,
            self.coverage and other.coverage and self.coverage + other.coverage,
        )


@dataclass(frozen=True)
class BatchUpdate:
    """The new state of a model after a batch or a round of batches, with the facts of its samples."""

    state: State
    divergence: Divergence  # as it was or, if it is left to the data, adapted to the residuals; in internal units
    facts: BatchFacts
    H: Array | None = None  # coefficients of the batch as they were found while learning, in the data's units
    loss_to_beat: float | None = None  # what any dictionary should beat, in the data's units; of the first batch alone


def learn_batch(
    recipe: Recipe,
    learned: Learned,
    batch: Samples,
    rows: Any = None,
    *,
    repeated: bool = False,
    shards: int = 1,
) -> BatchUpdate:
    """Learn from one batch. With ``shards`` > 1, that many batches are learnt from the same state at the same time.

    ``rows`` are the numbers of its samples, for messages; ``repeated`` says that an earlier pass has had them.
    """
    units, method = learned.units, learned.method
    if recipe.device is None:
        require_valid_entries(batch, rows, learned.features.names)
    if learned.masked or batch.masked:
        batch = masked_like(learned, batch.on_host())
    if batch.sample_weight is not None:
        require_served(method, learned.inside, recipe, masked=learned.masked, weighted=True)
    start = method.on_shard(shards), learned.inside, learned.state.on_shard(shards)
    box, adapt = recipe.coefficient_set, method.adapts and learned.adaptive
    options: dict[str, Any] = {"box": box, "adapt": adapt, "repeated": repeated}
    options["exchanges"] = shards == 1  # all shards must have the same components
    first = shards == 1 and not learned.history.samples
    unit = learned.divergence.loss_unit(units.scale)
    H: Array | None = None
    if recipe.device is None:
        internal, raised = inside(learned, batch, rows)
        with threads.own_threads(internal.values.size * len(learned.state.W) ** 2), faults_of_batch(rows):
            result = learn(HostEngine(*start, internal, reservoir=recipe.reservoir, **options))
        state = result.state
        _require_finite(all_finite(state), result.loss * unit if result.loss else 0.0, rows)
        H = result.H * state.W.dtype.type(learned.coefficient_unit)
        require_finite_values(H, batch, units.mean, rows)
        if recipe.sets == USUAL_SETS and not recipe.shares:  # a bound of the user's own is meant
            require_below_bound(result.H, box.high, batch, units.scale, rows)
        usage = Usage.of(result.H, state.W, batch.sample_weight)
    else:
        # Imported here, as PyTorch is an optional dependency.
        from onmf.device.engine import learn_on_device
        from onmf.device.transfer import as_batch

        samples = as_batch(batch, recipe.device, units, learned.divergence, learned.state.W.dtype)
        if not samples.rows.sound:
            require_valid_entries(batch.on_host(), rows, learned.features.names)
        with faults_of_batch(rows):
            engine, result = learn_on_device(learn, *start, samples, batch.sample_weight, options)
        _require_finite(engine.device_state.finite, result.loss * unit if result.loss else 0.0, rows)
        if not np.isfinite(engine.largest) or (recipe.sets == USUAL_SETS and engine.largest >= 0.5 * box.high):
            given, found = batch.on_host(), result.H.cpu().numpy()
            require_finite_values(found, given, units.mean, rows)
            require_below_bound(found, box.high, given, units.scale, rows)
        if first:
            some = batch[samples.filled[:FEW].cpu().numpy()].on_host().densified()
            internal, _ = units.inside(some.astype(learned.state.W.dtype), learned.divergence, rows)
        usage, raised = Usage(engine.usage), int(engine.samples.raised)
    to_beat = max(result.first_loss, rank_one_loss(learned.inside, internal)) * unit if first else None
    coverage = Coverage.of(batch) if learned.masked else None
    facts = BatchFacts(len(batch), result.loss, batch.weight, usage, raised, coverage)
    return BatchUpdate(result.state, result.divergence, facts, H, to_beat)


def inside(learned: Learned, batch: Samples, rows: Any = None) -> tuple[Samples, int]:
    """Return samples in internal units as the method stores them, and how many entries were raised."""
    X = learned.method.laid_out(learned.divergence, batch).astype(learned.state.W.dtype)
    return learned.units.inside(X, learned.divergence, rows)


def masked_like(learned: Learned, batch: Samples) -> Samples:
    """Return the batch as the model's statistics need it: with weights of its entries, if it was begun with them."""
    if batch.masked and not learned.masked:
        raise ValueError(
            "this model was begun on data without missing values or weights of entries; begin a new model with them, "
            "from its first batch on."
        )
    return batch.as_masked() if learned.masked else batch


def all_finite(state: State) -> bool:
    """Return whether dictionary and statistics are made of finite numbers."""
    return all(map(is_finite, (state.W, *state.memory.values())))


def _require_finite(finite: bool, loss: float, rows: Any) -> None:
    """Raise an error for a state that is no longer made of finite numbers, or a loss, in the data's units, that is not.

    A loss that is finite inside may be beyond the range of numbers in the data's units.
    """
    if not finite:
        raise unlearnable("makes the dictionary infinite or NaN", rows)
    if not math.isfinite(loss):
        raise unlearnable("has a loss beyond the range of numbers", rows)


def unlearnable(why: str, rows: Any) -> DataError:
    """Return the error for a batch that cannot be learnt from; ``rows`` are the numbers of its samples."""
    where = "" if rows is None or not len(rows) else f", rows {min(rows)} to {max(rows)},"
    if where and rows.dtype == object:  # names have no order
        where = f", rows {rows[0]} to {rows[-1]},"
    return DataError(
        f"The batch{where} {why}, so it is not learnt from: its numbers are too large or too unequal for this "
        "divergence; rescale or clip them."
    )


def rank_one_loss(divergence: Divergence, X: Samples) -> float:
    """Return the mean loss of fits that are all multiples of the mean sample, which any dictionary should beat.

    It is at least a millionth of that of fits twice too large: what is below is rounding.
    """
    profile = X.mean(axis=0).reshape(1, -1) + 1e-6 * X.mean()
    problem = Problem(divergence, X, (profile / profile.sum()).astype(X.dtype))
    H = problem.start() if X.masked else X.sum(axis=1)[:, None] + TINY
    return max(float(problem.loss(H, problem.fit(H)).mean()), 1e-6 * float(problem.scale.mean()))


@contextmanager
def faults_of_batch(rows: Any) -> Iterator[None]:
    """Turn errors of the arithmetic into an error of the batch with these rows."""
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
    """The report that a callback is given after every batch.

    Attributes
    ----------
    samples : int
        Learnt from so far.
    total : int or None
        Samples in all passes, if known.
    steps : int
        Dictionary updates so far.
    seconds : float
        Of learning so far.
    loss : float
        Mean loss of the batch's samples, each just before it was learnt from, in the data's units.
    W : array
        The dictionary now.
    H : array or None
        The batch's coefficients as they were found while learning (not with Dask or on a device).
    raised : int
        Entries outside the domain that were raised.
    skipped : int
        Samples or batches left out so far.
    drift : float
        From 0, new samples are fitted as earlier ones, to 1: the stream has changed.
    drifted : bool
        Has this batch shown that it has?
    phases : Mapping[str, float] or None
        With Dask: seconds of this fit by what they went to: read, learn, merge.
    new : int
        Samples of this batch.

    Examples
    --------
    >>> def show(progress):
    ...     print(f"{progress.samples} of {progress.total}")
    >>> model = OnlineNMF(3, batch_size=30, callbacks=[show]).fit(X)
    30 of 60
    60 of 60
    """

    samples: int
    total: int | None
    steps: int
    seconds: float
    loss: float
    W: Array
    H: Array | None = None
    raised: int = 0
    skipped: int = 0
    drift: float = 0.0
    drifted: bool = False
    phases: Mapping[str, float] | None = None
    new: int = 0


def step(
    recipe: Recipe,
    learned: Learned,
    batch: Any,
    rows: Any = None,
    position: Position | None = None,
    total: int | None = None,
) -> tuple[Learned, Progress]:
    """Learn from one batch; return the model after it, and what to report.

    ``rows`` are the numbers of its samples, for messages; ``position`` is where a fit stands after it.
    """
    started = time.perf_counter()
    update = learn_batch(recipe, learned, batch, rows, repeated=position is not None and position.repeats)
    return updated(learned, update, time.perf_counter() - started, position, total, rows)


def updated(
    learned: Learned,
    update: BatchUpdate,
    seconds: float,
    position: Position | RoundPosition | None,
    total: int | None,
    rows: Any = None,
) -> tuple[Learned, Progress]:
    """Return the model after an update, and what to report of it."""
    units, method, history, facts = learned.units, learned.method, learned.history, update.facts
    passes = learned.passes if position is None else position.passes
    unit = learned.divergence.loss_unit(units.scale)
    loss = facts.loss * unit if facts.loss else 0.0  # the unit may be infinite where all is fitted exactly
    adapts = method.adapts and learned.adaptive and not method.is_certified(learned.state.clock)
    to_beat = update.loss_to_beat
    after = replace(
        learned,
        state=update.state,
        divergence=update.divergence.in_units(1 / units.scale) if adapts else learned.divergence,
        history=history.after(facts.samples, seconds, loss),
        position=position,
        passes=passes,
        pass_began=history.samples if passes > learned.passes else learned.pass_began,
        raised=learned.raised or facts.raised > 0,
        drift=learned.drift.after(facts.samples, facts.loss),
        coverage=learned.coverage and facts.coverage and learned.coverage + facts.coverage,
        usage=learned.usage.and_then(facts.usage, history.samples, facts.samples, method.horizon),
        loss_to_beat=learned.loss_to_beat if to_beat is None else to_beat,
    )
    W, drift, (samples, seconds, loss) = after.W, after.drift, after.history.last
    if after.shares and not is_finite(W):  # in the data's units
        raise unlearnable("makes the dictionary infinite", rows)
    if drift.changed:
        log.warning(
            "The stream has changed: after %d samples the model fits new ones %s than earlier ones (change %d).",
            *(samples, "worse" if drift.rise > drift.fall else "far better", drift.changes),
        )
    return after, Progress(
        *(samples, total, after.state.steps, seconds, loss, W, update.H),
        raised=facts.raised,
        skipped=after.skipped.count,
        drift=drift.statistic,
        drifted=drift.changed,
        new=facts.samples,
    )
