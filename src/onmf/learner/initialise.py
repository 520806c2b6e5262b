"""The beginning of a model: its first batch fixes units, method and initial dictionary, or it continues an earlier one.

Initial dictionaries depend on the first batch only, and contain no zero that a later step could not leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from onmf import divergences
from onmf._support import threads
from onmf._support.arrays import Array, dense
from onmf.coefficients import precise_solver
from onmf.coefficients.problem import Problem
from onmf.data.columns import Features
from onmf.divergences import Divergence, SquaredL2
from onmf.learner.config import Recipe, require_served
from onmf.learner.learned import Coverage, Learned, Usage
from onmf.learner.update import faults_of_batch
from onmf.model.sets import as_numbers, beside, fixed_weights, require_fittable, require_init
from onmf.model.units import Units
from onmf.samples import FEW_ENTRIES, Samples

MOST_ENTRIES, ROBUST = 2**18, 2**19  # of the samples that a start is made of, where a GPU waits for it


def begin(recipe: Recipe, batch: Samples, features: Features, rng: np.random.Generator, rows: Any = None) -> Learned:
    """Fix units, divergence, method and initial dictionary by the first batch, before anything is learnt from it.

    ``rows`` are the numbers of its samples, for messages.
    """
    units = Units.of_first_batch(batch, recipe.clip, recipe.rescales)
    divergence = recipe.divergence.for_data(units.mean, batch.shape[1])
    inside, weighted = divergence.in_units(units.scale), batch.sample_weight is not None
    if batch.masked:
        require_weighs_entries(divergence)
    if recipe.reservoir_size and (weighted or batch.masked):
        raise ValueError(
            "a reservoir keeps complete samples of equal weight; use reservoir=0 with missing values or weights."
        )
    method = recipe.choice.chosen(divergence, recipe.n_components, batch, recipe.device is not None)
    require_served(method, inside, recipe, masked=batch.masked, weighted=weighted)
    if recipe.fixed is not None and not method.keeps_fixed:
        raise ValueError(f"method {method.name!r} cannot learn beside fixed components; use method 'auto'.")
    internal, _ = units.inside(method.laid_out(divergence, batch), divergence, rows)
    unit = units.scale if recipe.shares else None
    C, fixed = recipe.dictionary_set, fixed_weights(recipe.fixed, batch.shape[1], internal.dtype, unit)
    require_fittable(fixed, recipe.n_components, C, inside)
    free, first = recipe.n_components - C.fixed, Samples(internal.completed(), None, internal.sample_weight)
    if recipe.device is not None:  # whose first batch is larger than a start needs
        most = ROBUST if divergence.robust else MOST_ENTRIES
        few = max(most * len(first) // max(first.values.size, 1), 5 * recipe.n_components)
        first = first[:few]
    start = partial(initial_dictionary, recipe.init, first, free, rng, fixed=fixed, unit=unit)
    given = None if isinstance(recipe.init, str) else start()  # what is wrong with it is no fault of the batch
    with threads.own_threads():
        with faults_of_batch(rows):
            W = start(ratios=not divergence.domain.x.includes_zero) if given is None else given
        state = replace(method.start(inside, beside(fixed, W), C, batch.masked), penalties=recipe.penalties)
        with faults_of_batch(rows):
            problem = Problem(inside, internal, state.W, recipe.coefficient_set, method.penalty(recipe.penalties))
            state = method.first_look(problem, state)
    if recipe.reservoir:
        state = replace(state, memory=dict(state.memory) | recipe.reservoir.start(state.W))
    return Learned(
        state=state,
        divergence=divergence,
        adaptive=recipe.divergence.adaptive,
        units=units,
        method=method,
        features=features,
        usage=Usage(np.zeros(len(state.W))),
        coverage=Coverage(np.zeros(batch.shape[1], dtype=bool)) if batch.masked else None,
    )


def continued(recipe: Recipe, learned: Learned) -> Learned:
    """Return ``learned`` with the settings as they are now; a change of one that must not change raises an error."""
    state, units = learned.state, learned.units
    given = recipe.divergence.for_data(units.mean, state.W.shape[1])
    alike = type(given) is type(learned.divergence)
    unchanged = {
        "n_components": recipe.n_components == len(state.W),
        "divergence": recipe.divergence.adaptive == learned.adaptive
        and (alike if learned.adaptive else divergences.same(given, learned.divergence)),
        "clip": recipe.clip == units.clip,
        "scale": units.scale == (units.mean if recipe.rescales else 1.0),
        "reservoir": recipe.reservoir_size == len(state.memory.get("kept", ())),
        "fixed": recipe.dictionary_set.fixed == state.C.fixed and _same_fixed(recipe, learned),
        "coefficients": recipe.dictionary_set.high == state.C.high,
        "eps of sets": recipe.dictionary_set == state.C,
    }
    unchanged |= {name: value == getattr(state.penalties, name) for name, value in asdict(recipe.penalties).items()}
    for name, same in unchanged.items():
        if not same:
            raise ValueError(f"{name} cannot be changed while a model learns; keep it, or begin a new model.")
    method = recipe.method.continued(learned.method)
    if recipe.device is not None:
        method.for_device()
    require_served(method, learned.inside, recipe, masked=learned.masked)
    return replace(learned, method=method)


def _same_fixed(recipe: Recipe, learned: Learned) -> bool:
    """Are the first components those that the settings fix?"""
    W = learned.state.W
    fixed = fixed_weights(recipe.fixed, W.shape[1], W.dtype, learned.units.scale if learned.shares else None)
    return fixed is None or np.array_equal(fixed, W[: len(fixed)])


def require_weighs_entries(divergence: Divergence) -> None:
    """Raise an error where entries are missing or weigh differently under a divergence that needs them all."""
    if not divergence.weighs_entries:
        raise ValueError(
            f"{divergence.name} looks at all features of a sample together, so that entries can neither be missing "
            "nor weigh differently; use squared_l2, or fill them first."
        )


def initial_dictionary(
    init: Any,
    samples: Samples,
    K: int,
    rng: np.random.Generator,
    ratios: bool = False,
    fixed: Array | None = None,
    unit: float | None = None,
) -> Array:
    """Return W_0 (K, F) by the name of a rule, or the user's own array; samples are in internal units, none missing.

    A batch with fewer samples than components is padded by randomly modulated copies of its mean. ``ratios`` says that
    the divergence sees ratios, not differences: samples are then far from each other if their logarithms are.
    ``fixed`` components (J, F) are not among the K; k-means++ begins far from them, with what they leave. A sample of
    some weight counts as that many.

    Where coefficients sum to one, components are as large as samples. The user's own are then in the data's units, and
    are divided by ``unit``, the scale of X.
    """
    if isinstance(init, str) or as_numbers(init) is None:
        require_init(init)
    X, weights = samples.matrix, samples.sample_weight
    if not isinstance(init, str):
        W = _users(init, (K, X.shape[1]), X.dtype, fixed)
        return W if unit is None else W / W.dtype.type(unit)
    if K == 0:  # all are fixed
        return np.zeros((0, X.shape[1]), dtype=X.dtype)
    if init == "kmeans++" or (init == "samples" and unit is not None):
        return _chosen_samples(X, K, rng, ratios, fixed, weights, whole=unit is not None, spread=init == "kmeans++")
    if init == "nndsvda" and weights is not None:  # X'X is then that of as many copies
        X = (scipy.sparse.diags_array(np.sqrt(weights)) @ X).astype(X.dtype)
    W = {"uniform": _uniform, "samples": _samples, "nndsvda": _nndsvda}[init](X, K, rng)
    return W if unit is None else _to_size_of(X, W)


def _uniform(X: Any, K: int, rng: np.random.Generator) -> Array:
    """Draw entries uniform on (0, 1], the range that C allows: the coefficients take up the scale of the data."""
    return (1.0 - rng.random((K, X.shape[1]))).astype(X.dtype)


def _samples(X: Any, K: int, rng: np.random.Generator) -> Array:
    """Draw K different samples of the first batch; a hundredth of the mean sample makes every entry positive."""
    candidates = np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() > 0)
    chosen = rng.permutation(candidates)[:K]
    return _padded(_to_unit_maximum(dense(X[chosen]) + 0.01 * _profile(X)), K, X, rng, _to_unit_maximum)


def _chosen_samples(
    X: Any,
    K: int,
    rng: np.random.Generator,
    ratios: bool,
    fixed: Array | None,
    weights: Array | None,
    *,
    whole: bool,
    spread: bool,
) -> Array:
    """Return samples far from each other (``spread``), chosen as k-means++ chooses its seeds, or any.

    With 3 % of the mean sample, or with as much of it as of themselves where few entries are not zero: a document has
    too few words for a component. Unless samples stay ``whole``, it is the direction that counts, as a component has no
    length: samples are divided by their mean, and by their norm where k-means++ measures distances.
    """
    from sklearn.preprocessing import normalize  # here: scikit-learn's preprocessing is slow to import

    def sized(samples: Any) -> Any:
        return samples if whole else normalize(samples, norm="l1") * X.shape[1]

    def places(samples: Any) -> Any:
        """Return where samples lie in the space whose distances count."""
        return (np.log(samples) if ratios else samples if whole else normalize(samples)).astype(np.float64)

    filled = np.asarray(X.sum(axis=1)).ravel() > 0
    candidates = sized(X[filled])
    counts = None if weights is None else weights[filled].astype(np.float64)
    fixed = None if fixed is None else sized(fixed)
    if spread:
        # A zero has no logarithm: it counts as the least that any sample has there.
        taken = np.maximum(fixed, candidates.min(axis=0)) if ratios and fixed is not None else fixed
        chosen = _far_from_each_other(places(candidates), K, rng, None if taken is None else places(taken), counts)
    else:
        chosen = rng.permutation(candidates.shape[0])[:K].tolist()
    components, profile = dense(candidates[chosen]), _profile(candidates, counts)
    if whole:
        return _padded(0.97 * components + 0.03 * profile, K, X, rng, partial(_to_size_of, X))
    if fixed is not None and chosen:  # of a mixture, only what they leave in least squares is still to be learnt
        H = precise_solver(SquaredL2()).solve(Problem(SquaredL2(), components, fixed)).H
        components = np.maximum(components - H @ fixed, 0)
    share = 1.0 if Samples(candidates).density < FEW_ENTRIES else 0.03
    return _padded(_to_unit_maximum(components + share * profile), K, X, rng, _to_unit_maximum)


def _far_from_each_other(
    places: Any, K: int, rng: np.random.Generator, taken: Array | None = None, counts: Array | None = None
) -> list[int]:
    """Return K different rows, or as many as there are, by greedy k-means++ (Arthur and Vassilvitskii 2007).

    Among equally good candidates, such as the two of an isolated pair, the first one drawn is taken: rounding, and
    with it the units of the data, must not decide. Places that are ``taken`` count like rows that were chosen before. A
    row may count as several; whole ``counts`` lead to the same rows as that many copies would.
    """
    across = places.T.tocsr() if scipy.sparse.issparse(places) else places.T  # once, not in every product
    squares = np.asarray((places.multiply(places) if scipy.sparse.issparse(places) else places**2).sum(axis=1)).ravel()

    def distances(others: Any, lengths: Array) -> Array:
        products = others @ across
        apart: Array = lengths[:, None] + squares - 2 * dense(products)
        return np.where(apart > 1e-9 * squares, apart, 0.0)  # anything nearer is the same point, up to rounding

    if taken is None:
        chosen = [_drawn(places.shape[0], rng, counts)]
        nearest = distances(places[chosen], squares[chosen])[0]
    else:
        chosen = []
        nearest = distances(taken, np.square(taken).sum(axis=1)).min(axis=0)
    each: Any = 1.0 if counts is None else counts
    while len(chosen) < K and nearest.any():
        sums = np.cumsum(each * nearest)
        trials = np.searchsorted(sums, rng.random(2 + int(np.log(K))) * sums[-1], side="right")
        left = np.minimum(nearest, distances(places[trials], squares[trials]))
        potential = (each * left).sum(axis=1)
        best = int(np.argmax(potential <= (1 + 1e-6) * potential.min()))
        chosen.append(int(trials[best]))
        nearest = left[best]
    return chosen


def _drawn(n: int, rng: np.random.Generator, counts: Array | None) -> int:
    """Return one of n rows at random, each as likely as its count says."""
    if counts is None:
        return int(rng.integers(n))
    ends = np.cumsum(counts)
    whole = (counts == np.round(counts)).all()
    place = rng.integers(int(ends[-1])) if whole else rng.random() * ends[-1]
    return min(int(np.searchsorted(ends, place, side="right")), n - 1)


def _nndsvda(X: Any, K: int, rng: np.random.Generator) -> Array:
    """Return NNDSVD (Boutsidis and Gallopoulos 2008): the stronger sign of each singular pair, averages for zeros."""
    from sklearn.utils.extmath import randomized_svd  # scikit-learn takes a second to import, and few start here

    rank = min(K, *X.shape)
    U, _, Vt = randomized_svd(X, rank, random_state=int(rng.integers(2**31)))
    components = np.empty((rank, X.shape[1]), dtype=X.dtype)
    for k in range(rank):
        plus = np.linalg.norm(np.maximum(U[:, k], 0)) * np.linalg.norm(np.maximum(Vt[k], 0))
        minus = np.linalg.norm(np.maximum(-U[:, k], 0)) * np.linalg.norm(np.maximum(-Vt[k], 0))
        components[k] = np.maximum(Vt[k] if plus >= minus else -Vt[k], 0)
    components = components[components.max(axis=1) > 0]
    average = components.mean(axis=1, keepdims=True)
    return _padded(_to_unit_maximum(np.where(components > 0, components, average)), K, X, rng, _to_unit_maximum)


def _users(init: Any, shape: tuple[int, int], dtype: np.dtype[Any], fixed: Array | None) -> Array:
    W = np.asarray(init).astype(dtype)
    if W.shape != shape:
        rows = "n_components" if fixed is None else f"n_components - {len(fixed)} fixed"
        raise ValueError(f"the initial dictionary must have shape ({rows}, n_features) = {shape}, got {W.shape}.")
    if not np.isfinite(W).all() or (W < 0).any():
        raise ValueError("the initial dictionary has negative, NaN or infinite entries.")
    return W


def _padded(W: Array, K: int, X: Any, rng: np.random.Generator, sized: Callable[[Array], Array]) -> Array:
    """Return K components: where the batch gave fewer, the mean sample times random numbers is added, ``sized``."""
    short = K - len(W)
    return np.vstack([W, sized(_profile(X) * _uniform(X, short, rng))]) if short > 0 else W


def _profile(X: Any, counts: Array | None = None) -> Array:
    """Return the mean sample, with a little for features that the first batch has not shown yet."""
    if counts is not None:
        X = (scipy.sparse.diags_array(counts * (len(counts) / counts.sum())) @ X).astype(X.dtype)
    profile: Array = np.asarray(X.mean(axis=0)).ravel() + 0.01 * X.mean()
    return profile.astype(X.dtype)


def _to_unit_maximum(W: Array) -> Array:
    return W / W.max(axis=1, keepdims=True)


def _to_size_of(X: Any, W: Array) -> Array:
    """Return components with the mean of the samples."""
    return W * (W.dtype.type(X.mean()) / W.mean(axis=1, keepdims=True))
