"""One batch: what a model becomes by it, and what is told of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences import Divergence
from onmf.learner.config import Recipe
from onmf.learner.learned import Learned
from onmf.learner.position import Position, Standing
from onmf.learner.update import News, learnt, unlearnable
from onmf.model.state import State

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
