"""What one batch of samples teaches a model, be it all that the model sees at a time or a shard's part of a round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.learner.algorithm import BatchResult, learn
from onmf.learner.config import Recipe, require_served
from onmf.learner.engine import HostEngine
from onmf.learner.learned import Coverage, Learned
from onmf.learner.usage import Usage
from onmf.model.sets import Sets
from onmf.model.state import State
from onmf.model.validation import DataError, refuse_bad_entries, refuse_bounded, refuse_infinite
from onmf.samples import Samples


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
        from onmf.learner.device_engine import learnt_on_device  # PyTorch is there, but not for everybody

        return learnt_on_device(recipe, learned, batch, rows, repeated=repeated, shards=shards)
    divergence, units, method = learned.divergence, learned.units, learned.method
    refuse_bad_entries(batch, rows, learned.features.names)
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
    require_finite(result, rows, unit)
    H = result.H * result.state.W.dtype.type(learned.coefficient_unit)
    refuse_infinite(H, X, units.mean, rows)
    if recipe.sets == Sets() and not recipe.shares:  # a bound of the user's own is meant
        refuse_bounded(result.H, recipe.H.high, X, units.scale, rows)
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
    if batch.masked or not learned.masked:
        return batch
    X = batch.densified()
    return Samples(X.matrix, np.ones_like(X.matrix), X.sample_weight, "missing")


def require_finite(result: BatchResult, rows: Any, unit: float) -> None:
    """Raise an error for a dictionary that is no longer made of numbers, or a loss that is not one.

    ``unit`` is that of the loss: what is finite inside may be beyond the range of numbers in the data's units.
    """
    state = result.state
    if not all(np.isfinite(array.sum(dtype=np.float64)) for array in (state.W, *state.memory.values())):
        raise unlearnable("makes the dictionary infinite or NaN", rows)
    if result.loss and not np.isfinite(result.loss * unit):
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
