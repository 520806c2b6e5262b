"""Where a model comes from: its first batch, or what it had learnt before."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from onmf import divergences
from onmf._support import threads
from onmf.coefficients.problem import Problem
from onmf.data.columns import Features
from onmf.divergences import Divergence
from onmf.learner.config import Recipe, require_served
from onmf.learner.initial_dictionary import initial_dictionary
from onmf.learner.learned import Coverage, Learned, Usage
from onmf.learner.update import faults_of_batch
from onmf.model.fixed import beside, fixed_weights, require_fittable
from onmf.model.units import Units
from onmf.samples import Samples

MOST_ENTRIES, ROBUST = 2**18, 2**19  # of the samples that a start is made of, where a GPU waits for it


def begin(
    recipe: Recipe,
    batch: Samples,
    features: Features,
    rng: np.random.Generator,
    n_samples: int | None,
    rows: Any = None,
) -> Learned:
    """Units, divergence, method and initial dictionary from the first batch, before anything is learnt from it.

    ``rows`` are the numbers of its samples, for messages.
    """
    units = Units.of_first_batch(batch, recipe.clip, recipe.rescale)
    divergence = recipe.divergence.for_data(units.mean, batch.shape[1])
    inside, weighted = divergence.in_units(units.scale), batch.sample_weight is not None
    if batch.masked:
        require_weighs_entries(divergence)
    if recipe.reservoir and (weighted or batch.masked):
        raise ValueError(
            "a reservoir keeps whole samples that count alike; use reservoir=0 with missing values or weights."
        )
    shape = recipe.n_components, batch.shape[1]
    on_device = recipe.device is not None
    method = recipe.choice.chosen(divergence, recipe.n_components, batch, n_samples, on_device)
    require_served(method, inside, recipe, masked=batch.masked, weighted=weighted)
    if recipe.fixed is not None and not method.keeps_fixed:
        raise ValueError(f"method {method.name!r} cannot learn beside fixed components; use method 'auto'.")
    internal, _ = units.inside(method.stored(divergence, batch), divergence, rows)
    unit = units.scale if recipe.shares else None
    C, known = recipe.C, fixed_weights(recipe.fixed, shape[1], internal.dtype, unit)
    require_fittable(known, recipe.n_components, C, inside)
    free, first = recipe.n_components - C.fixed, Samples(internal.completed(), None, internal.sample_weight)
    if recipe.device is not None:  # whose first batch is larger than a start needs
        most = ROBUST if divergence.robust else MOST_ENTRIES
        few = max(most * len(first) // max(first.values.size, 1), 5 * recipe.n_components)
        first = first[:few]
    start = partial(initial_dictionary, recipe.init, first, free, rng, known=known, unit=unit)
    given = None if isinstance(recipe.init, str) else start()  # what is wrong with it is no fault of the batch
    with threads.taken_from_blas(), faults_of_batch(rows):
        W = start(ratios=not divergence.domain.x.closed) if given is None else given
        state = replace(method.start(inside, beside(known, W), C, batch.masked), penalties=recipe.penalties)
        problem = Problem(inside, internal, state.W, recipe.H, method.penalty(recipe.penalties))
        state = method.first_look(problem, state)
    if recipe.remembered:
        state = replace(state, memory=dict(state.memory) | recipe.remembered.start(state.W))
    adaptive = recipe.divergence.adaptive
    return Learned(
        state=state,
        divergence=divergence,
        adaptive=adaptive,
        units=units,
        method=method,
        features=features,
        usage=Usage(np.zeros(len(state.W))),
        coverage=Coverage(np.zeros(batch.shape[1], dtype=bool)) if batch.masked else None,
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
    if recipe.device is not None:
        method.for_device()
    require_served(method, learned.inside, recipe, masked=learned.masked)
    return replace(learned, method=method)


def _same_known(recipe: Recipe, learned: Learned) -> bool:
    """Are the first components those that are known?"""
    W = learned.state.W
    known = fixed_weights(recipe.fixed, W.shape[1], W.dtype, learned.units.scale if learned.shares else None)
    return known is None or np.array_equal(known, W[: len(known)])


def require_weighs_entries(divergence: Divergence) -> None:
    """Raise an error where entries are missing or weigh differently under a divergence that needs them all."""
    if not divergence.weighs_entries:
        raise ValueError(
            f"{divergence.name} looks at all features of a sample together, so that entries can neither be missing "
            "nor weigh differently; use squared_l2, or fill them first."
        )
