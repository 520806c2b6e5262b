"""One batch: a model is begun from the first, and learns from each."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from onmf import divergences, methods
from onmf._support import threads
from onmf._support.arrays import Array, density
from onmf._support.checks import require_at_least, require_whole
from onmf.divergences import Divergence
from onmf.initial import initial_dictionary, require_init
from onmf.learner.chunks import BatchResult, learn, rank_one_loss, require_finite, unlearnable
from onmf.learner.learned import Features, Learned
from onmf.learner.position import Position
from onmf.methods import Choice, Method
from onmf.methods.reservoir import Reservoir
from onmf.problem import pose
from onmf.sets import Box, DictionarySet, Sets, Simplex
from onmf.units import DataError, Units, checked_clip, refuse_bad_entries, refuse_bounded, refuse_infinite

log = logging.getLogger("onmf")


@dataclass(frozen=True)
class Recipe:
    """What a model is made with, apart from the data and how they are read."""

    n_components: int
    divergence: Divergence  # as the user gave it
    method: Choice
    init: Any = "kmeans++"
    rescale: bool = True  # divide data by the mean of the first batch?
    clip: tuple[float, float] | None = None
    ridge: float = 0.0
    sets: Sets = Sets()
    reservoir: int = 0
    coefficients: str = "nonnegative"

    def __post_init__(self) -> None:
        require_whole(1, n_components=self.n_components)
        require_whole(0, reservoir=self.reservoir)
        require_at_least(0, ridge=self.ridge)
        require_init(self.init)
        if isinstance(self.H, Simplex):
            self.H.free(self.n_components)  # refuses lower bounds that leave nothing

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Recipe:
        """What the parameters of an estimator mean."""
        if not isinstance(settings["scale"], str) or settings["scale"] not in ("mean", "none"):
            raise ValueError(f"scale must be 'mean' or 'none', got {settings['scale']!r}.")
        return cls(
            settings["n_components"],
            divergences.get(settings["divergence"]),
            methods.get(settings["method"]),
            settings["init"],
            settings["scale"] == "mean",
            checked_clip(settings["clip"]),
            settings["ridge"],
            Sets() if settings["sets"] is None else settings["sets"],
            settings["reservoir"],
            settings["coefficients"],
        )

    @property
    def C(self) -> DictionarySet:
        """The set of the dictionaries."""
        return self.sets.where(self.coefficients)[0]

    @property
    def H(self) -> Box | Simplex:
        """The set of the coefficients."""
        return self.sets.where(self.coefficients)[1]

    @property
    def shares(self) -> bool:
        """Do the coefficients of a sample sum to one?"""
        return isinstance(self.H, Simplex)

    @property
    def remembered(self) -> Reservoir | None:
        """Old samples to mix with the new ones."""
        return Reservoir(self.reservoir) if self.reservoir else None


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
    batch = as_floats(batch)
    units = Units.of_first_batch(batch, recipe.clip, recipe.rescale)
    divergence = recipe.divergence.for_data(units.mean, batch.shape[1])
    inside = divergence.in_units(units.scale)
    shape = recipe.n_components, batch.shape[1]
    choice = recipe.method.for_shares() if recipe.shares else recipe.method
    method = choice.chosen(divergence, shape, density(batch), n_samples)
    require_served(method, inside, recipe)
    internal, _ = units.inside(method.stored(divergence, batch), divergence, rows)
    unit = units.scale if recipe.shares else None
    start = partial(initial_dictionary, recipe.init, internal, recipe.n_components, rng, unit=unit)
    given = None if isinstance(recipe.init, str) else start()  # what is wrong with it is no fault of the batch
    with threads.taken_from_blas(), _faults_of_batch(rows):
        W = start(ratios=not divergence.domain.x.closed) if given is None else given
        state = method.start(inside, W, recipe.C)
        problem = pose(inside, internal, state.W, recipe.H, method.penalty(recipe.ridge))
        state = method.first_look(problem, state)
    if recipe.remembered:
        state = replace(state, memory=state.memory | recipe.remembered.start(state.W))
    adaptive = recipe.divergence.adaptive
    return Learned(state=state, divergence=divergence, adaptive=adaptive, units=units, method=method, features=features)


def require_served(method: Method, divergence: Divergence, recipe: Recipe) -> None:
    """Refuse what the method cannot learn: a divergence, coefficients on the simplex, or a fit of zero."""
    reason = method.refuses(divergence)
    if reason is None and recipe.shares:
        reason = method.refuses_shares(divergence)
    if reason is not None:
        raise ValueError(reason)
    recipe.sets.require_positive_fit(divergence)


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
        "coefficients": recipe.C.high == state.C.high,
        "eps of sets": recipe.C == state.C,
    }
    for name, unchanged in fixed.items():
        if not unchanged:
            raise ValueError(f"{name} cannot be changed while a model learns; keep it, or begin a new model.")
    method = recipe.method.continued(learned.method)
    require_served(method, learned.inside, recipe)
    return replace(learned, method=method)


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
    batch = as_floats(batch)
    refuse_bad_entries(batch, rows)
    X = method.stored(divergence, batch)
    internal, raised = units.inside(X.astype(learned.state.W.dtype, copy=False), divergence, rows)
    inside = learned.inside
    adapt = method.adapts and learned.adaptive
    repeated = position is not None and position.repeats
    result = _learnt(recipe, learned, internal, rows, adapt, repeated)
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
        divergence=result.divergence.in_units(1 / units.scale) if adapt else divergence,
        history=history,
        position=position,
        passes=passes,
        pass_began=began,
        loss_to_beat=to_beat,
        raised=learned.raised or raised > 0,
        zeros=learned.zeros or any_zeros(batch),
        ridge=min(learned.ridge, recipe.ridge),
        drift=learned.drift.after(X.shape[0], result.loss),
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


def _learnt(recipe: Recipe, learned: Learned, X: Any, rows: Any, adapt: bool, repeated: bool) -> BatchResult:
    """Learn from X, in internal units."""
    method = learned.method
    with threads.taken_from_blas(), _faults_of_batch(rows):
        return learn(
            method,
            learned.inside,
            learned.state,
            X,
            box=recipe.H,
            penalty=method.penalty(recipe.ridge),
            reservoir=recipe.remembered,
            adapt=adapt,
            repeated=repeated,
            exchanges=True,
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


def any_zeros(batch: Any) -> bool:
    """Has it entries that are zero?"""
    if scipy.sparse.issparse(batch):
        return bool(batch.nnz < np.prod(batch.shape) or not batch.data.all())
    return not batch.all()


def as_floats(batch: Any) -> Any:
    """A batch in single or double precision: as it is, or as the latter."""
    if batch.dtype in (np.float32, np.float64) and batch.dtype.isnative:
        return batch
    return batch.astype(np.float64)
