"""One batch: a model is begun from the first, and learns from each."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from onmf import divergences
from onmf._support import threads
from onmf._support.arrays import Array, dense, density
from onmf._support.known import Known, apart, without_holes
from onmf.divergences import Partial
from onmf.divergences.partial import require_weighed, whole
from onmf.fixed import beside, known_atoms, require_fittable
from onmf.initial import initial_dictionary
from onmf.learner.chunks import BatchResult, learn, rank_one_loss, require_finite, unlearnable
from onmf.learner.learned import Coverage, Features, Learned
from onmf.learner.position import Position
from onmf.learner.recipe import Recipe, require_served
from onmf.learner.usage import Usage
from onmf.problem import pose
from onmf.sets import Sets
from onmf.units import DataError, Units, refuse_bad_entries, refuse_bounded, refuse_infinite

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
    H: Array | None = None  # the batch's coefficients as they were found while learning (OnlineNMF)
    raised: int = 0  # entries outside the domain that were raised, the first time that there are any
    skipped: int = 0  # samples or batches left out so far
    drift: float = 0.0  # from 0, new samples are fitted as well as earlier ones, to 1: the stream has changed
    drifted: bool = False  # has this batch shown that it has?


def begin(
    recipe: Recipe,
    batch: Any,
    features: Features,
    rng: np.random.Generator,
    n_samples: int | None,
    rows: Any = None,
) -> Learned:
    """Units, divergence, method and initial dictionary from the first batch, before anything is learnt from it.

    ``rows`` are the numbers of its samples, for messages.
    """
    batch, weights = apart(as_floats(batch))
    units = Units.of_first_batch(batch, recipe.clip, recipe.rescale, weights)
    divergence = recipe.divergence.for_data(units.mean, batch.shape[1])
    inside = divergence.in_units(units.scale)
    if isinstance(batch, Known):
        require_weighed(divergence)
        inside = Partial(inside)
    if recipe.reservoir and (weights is not None or inside.partial):
        raise ValueError(
            "a reservoir keeps whole samples that count alike; use reservoir=0 with missing values or weights."
        )
    shape = recipe.n_components, batch.shape[1]
    kind = Partial(divergence) if inside.partial else divergence
    choice = recipe.method.for_shares() if recipe.shares else recipe.method
    method = choice.chosen(kind, shape, share_of_entries(batch), n_samples)
    require_served(method, inside, recipe, weights is not None)
    if recipe.fixed is not None and not method.keeps_known:
        raise ValueError(f"method {method.name!r} cannot learn beside fixed atoms; use method 'auto'.")
    internal, _ = units.inside(method.stored(kind, batch), divergence, rows)
    unit = units.scale if recipe.shares else None
    C, known = recipe.C, known_atoms(recipe.fixed, shape[1], internal.dtype, unit)
    require_fittable(known, recipe.n_components, C, inside)
    free, first = recipe.n_components - C.fixed, without_holes(internal, weights)
    start = partial(initial_dictionary, recipe.init, first, free, rng, known=known, weights=weights, unit=unit)
    given = None if isinstance(recipe.init, str) else start()  # what is wrong with it is no fault of the batch
    with threads.taken_from_blas(), _faults_of_batch(rows):
        W = start(ratios=not divergence.domain.x.closed) if given is None else given
        state = replace(method.start(inside, beside(known, W), C), penalties=recipe.penalties)
        problem = pose(inside, internal, state.W, recipe.H, method.penalty(recipe.penalties), weights)
        state = method.first_look(problem, state)
    if recipe.remembered:
        state = replace(state, memory=state.memory | recipe.remembered.start(state.W))
    adaptive = recipe.divergence.adaptive
    return Learned(
        state=state,
        divergence=divergence,
        adaptive=adaptive,
        units=units,
        method=method,
        features=features,
        usage=Usage(np.zeros(len(state.W))),
        coverage=Coverage(np.zeros(batch.shape[1], dtype=bool)) if inside.partial else None,
    )


def continued(recipe: Recipe, learned: Learned) -> Learned:
    """``learned`` ready to continue with settings as they are now; what cannot be changed on the way is refused."""
    state, units = learned.state, learned.units
    given = recipe.divergence.for_data(units.mean, state.W.shape[1])
    alike = type(given) is type(learned.divergence)
    fixed = {
        "n_components": recipe.n_components == len(state.W),
        "divergence": recipe.divergence.adaptive == learned.adaptive
        and (alike if learned.adaptive else divergences.same(given, learned.divergence)),
        "clip": recipe.clip == units.clip,
        "scale": units.scale == (units.mean if recipe.rescale else 1.0),
        "reservoir": recipe.reservoir == len(state.memory.get("kept", ())),
        "fixed": recipe.C.fixed == state.C.fixed and _same_known(recipe, learned),
        "coefficients": recipe.C.high == state.C.high,
        "eps of sets": recipe.C == state.C,
    }
    fixed |= {name: value == getattr(state.penalties, name) for name, value in vars(recipe.penalties).items()}
    for name, unchanged in fixed.items():
        if not unchanged:
            raise ValueError(f"{name} cannot be changed while a model learns; keep it, or begin a new model.")
    method = recipe.method.continued(learned.method)
    require_served(method, learned.inside, recipe)
    return replace(learned, method=method)


def _same_known(recipe: Recipe, learned: Learned) -> bool:
    """Are the first atoms those that are known?"""
    W = learned.state.W
    known = known_atoms(recipe.fixed, W.shape[1], W.dtype, learned.units.scale if learned.shares else None)
    return known is None or np.array_equal(known, W[: len(known)])


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
    divergence, units, method, history = learned.divergence, learned.units, learned.method, learned.history
    batch, weights = apart(as_floats(batch))
    refuse_bad_entries(batch, rows, learned.features.names)
    batch = _as_begun(learned, batch)
    inside = learned.inside_model
    if weights is not None:
        require_served(method, inside, recipe, weighted=True)
    X = method.stored(Partial(divergence) if learned.partial else divergence, batch)
    internal, raised = units.inside(X.astype(learned.state.W.dtype, copy=False), divergence, rows)
    adapt = method.adapts and learned.adaptive
    repeated = position is not None and position.repeats
    result = _learnt(recipe, learned, internal, rows, adapt, repeated, weights)
    unit = divergence.loss_unit(units.scale)
    require_finite(result, rows, unit)
    H = result.H * result.state.W.dtype.type(learned.coefficient_unit)
    refuse_infinite(H, X, units.mean, rows)
    if recipe.sets == Sets() and not recipe.shares:  # a bound of the user's own is meant
        refuse_bounded(result.H, recipe.H.high, X, units.scale, rows)
    to_beat = learned.loss_to_beat
    if not history.entries:
        to_beat = max(result.first_loss, rank_one_loss(inside, internal)) * unit
    loss = result.loss * unit if result.loss else 0.0  # the unit may be infinite where all is fitted exactly
    passes = learned.passes if position is None else position.passes
    began = history.samples if passes > learned.passes else learned.pass_began
    history = history.after(X.shape[0], time.perf_counter() - started, loss)
    after = replace(
        learned,
        state=result.state,
        divergence=whole(result.divergence).in_units(1 / units.scale) if adapt else divergence,
        history=history,
        position=position,
        passes=passes,
        pass_began=began,
        loss_to_beat=to_beat,
        raised=learned.raised or raised > 0,
        zeros=learned.zeros or any_zeros(batch),
        drift=learned.drift.after(X.shape[0], result.loss),
        coverage=learned.coverage and learned.coverage.after(batch),
        usage=learned.usage.and_then(
            Usage.of(result.H, result.state.W, weights), learned.history.samples, X.shape[0], method.horizon
        ),
    )
    with np.errstate(over="ignore"):
        W = after.W
    if not np.isfinite(W.sum(dtype=np.float64)):  # in the data's units, where the coefficients are shares
        raise unlearnable("makes the dictionary infinite", rows)
    drift = after.drift
    if drift.changed:
        log.warning(
            "The stream has changed: after %d samples new ones are fitted worse than those before (change %d).",
            *(history.samples, drift.changes),
        )
    told = history.samples, total, result.state.steps, history.seconds, loss, W, H
    news = 0 if learned.raised else raised, learned.skipped.count, drift.statistic, drift.changed
    return after, Progress(*told, *news)


def _as_begun(learned: Learned, batch: Any) -> Any:
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


def _learnt(
    recipe: Recipe, learned: Learned, X: Any, rows: Any, adapt: bool, repeated: bool, weights: Array | None
) -> BatchResult:
    """Learn from X, in internal units."""
    method = learned.method
    with threads.taken_from_blas(), _faults_of_batch(rows):
        return learn(
            method,
            learned.inside_model,
            learned.state,
            X,
            box=recipe.H,
            reservoir=recipe.remembered,
            adapt=adapt,
            repeated=repeated,
            exchanges=True,
            weights=weights,
        )


@contextmanager
def _faults_of_batch(rows: Any) -> Iterator[None]:
    """Whatever the numbers of a batch do to the arithmetic is an error of this batch."""
    try:
        yield
    except DataError:
        raise
    except (ArithmeticError, ValueError) as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise unlearnable(f"cannot be computed with ({cause})", rows) from error


def share_of_entries(batch: Any) -> float:
    """The share of entries that are not zero, or that are known of sparse data whose others are not."""
    if not isinstance(batch, Known):
        return density(batch)
    return batch.X.nnz / max(int(np.prod(batch.shape)), 1) if batch.sparse else 1.0


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
