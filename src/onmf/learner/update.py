"""What one batch of samples teaches a model, be it all that the model sees at a time or a shard's part of a round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from onmf._support import threads
from onmf._support.arrays import Array, dense
from onmf._support.known import Known, apart
from onmf.divergences import Divergence, Partial
from onmf.learner.algorithm import learn, rank_one_loss, require_finite, unlearnable
from onmf.learner.config import Recipe, require_served
from onmf.learner.learned import Coverage, Learned
from onmf.learner.usage import Usage
from onmf.methods import State
from onmf.model.sets import Sets
from onmf.model.units import DataError, refuse_bad_entries, refuse_bounded, refuse_infinite


@dataclass(frozen=True)
class News:
    """What samples have shown besides the dictionary; that of several shards adds up."""

    samples: int
    loss: float  # the mean of theirs, each just before it was learnt from, in internal units
    weight: float  # of the samples in that mean
    usage: Usage
    raised: int = 0  # entries outside the domain that were raised
    zeros: bool = False  # were there any in the data?
    coverage: Coverage | None = None  # of data that are known in part

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
    batch: Any,
    rows: Any = None,
    *,
    repeated: bool = False,
    shards: int = 1,
) -> Lesson:
    """Learn from one batch, one of so many that ``shards`` learn from at the same time, each by itself.

    ``rows`` are the numbers of its samples, for messages; ``repeated`` says that an earlier pass has had them.
    """
    if recipe.device is not None:
        from onmf.learner.on_device import learnt_on_device  # PyTorch is there, but not for everybody

        return learnt_on_device(recipe, learned, batch, rows, repeated=repeated, shards=shards)
    divergence, units, method = learned.divergence, learned.units, learned.method
    batch, weights = apart(as_floats(batch))
    refuse_bad_entries(batch, rows, learned.features.names)
    batch = as_begun(learned, batch)
    if weights is not None:
        require_served(method, learned.inside_model, recipe, weighted=True)
    internal, X, raised = inside(learned, batch, rows)
    with threads.taken_from_blas(), faults_of_batch(rows):
        result = learn(
            method.on_shard(shards),
            learned.inside_model,
            learned.state.on_shard(shards),
            internal,
            box=recipe.H,
            reservoir=recipe.remembered,
            adapt=method.adapts and learned.adaptive,
            repeated=repeated,
            exchanges=shards == 1,
            weights=weights,
        )
    unit = divergence.loss_unit(units.scale)
    require_finite(result, rows, unit)
    H = result.H * result.state.W.dtype.type(learned.coefficient_unit)
    refuse_infinite(H, X, units.mean, rows)
    if recipe.sets == Sets() and not recipe.shares:  # a bound of the user's own is meant
        refuse_bounded(result.H, recipe.H.high, X, units.scale, rows)
    to_beat = learned.loss_to_beat
    if not learned.history.entries and shards == 1:
        to_beat = max(result.first_loss, rank_one_loss(learned.inside_model, internal)) * unit
    weight = X.shape[0] if weights is None else float(weights.sum(dtype=np.float64))
    news = News(
        X.shape[0],
        result.loss,
        weight,
        Usage.of(result.H, result.state.W, weights),
        raised,
        any_zeros(batch),
        Coverage.of(batch) if learned.partial else None,
    )
    return Lesson(result.state, result.divergence, news, H, to_beat)


def inside(learned: Learned, batch: Any, rows: Any = None) -> tuple[Any, Any, int]:
    """Samples in internal units, in the data's as the method stores them, and how many entries had to be raised."""
    divergence, method = learned.divergence, learned.method
    X = method.stored(Partial(divergence) if learned.partial else divergence, batch)
    internal, raised = learned.units.inside(X.astype(learned.state.W.dtype, copy=False), divergence, rows)
    return internal, X, raised


def as_begun(learned: Learned, batch: Any) -> Any:
    """The batch as the model's statistics need it: with weights of its entries, if it was begun with them."""
    if isinstance(batch, Known) and not learned.partial:
        raise ValueError(
            "this model was begun on data without missing values or weights of entries; begin a new model with them, "
            "from its first batch on."
        )
    if not learned.partial or isinstance(batch, Known):
        return batch
    X = dense(batch)
    return Known(X, np.ones_like(X))


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


def any_zeros(batch: Any) -> bool:
    """Has it entries that are zero?"""
    if isinstance(batch, Known):
        zeros = batch.values == 0
        return bool(zeros.any() and batch.weighted(zeros).any())
    if scipy.sparse.issparse(batch):
        return bool(batch.nnz < np.prod(batch.shape) or not batch.data.all())
    return not batch.all()


def as_floats(batch: Any) -> Any:
    """A batch in single or double precision: as it is, or as the latter."""
    if batch.dtype in (np.float32, np.float64) and batch.dtype.isnative:
        return batch
    return batch.astype(np.float64)
