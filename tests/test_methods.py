"""What every method promises for every divergence that it serves; a new one is tested by being registered."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import estimator_checks_generator

from onmf import OnlineNMF, load, methods, save
from onmf.coefficients.problem import Problem
from onmf.divergences import Alpha, Beta, Divergence, Huber, get, names
from onmf.methods.steps import STATISTICS
from onmf.model.penalty import Penalties, Penalty
from onmf.model.sets import DictionarySet
from onmf.samples import Samples
from tests.conftest import every_divergence, mahalanobis, require_scikit_learns_check, spread
from tests.learning import (
    METHODS,
    PAIRS,
    F,
    K,
    LogCosh,
    assert_same_bits,
    assert_sound,
    begun,
    both_kinds,
    data,
    divergence_id,
    every_method,
    every_pair,
    learnt,
    memory,
    pairs,
    parted,
    quick,
    served,
    small,
    sparse_counts,
    streamed,
    usual,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::onmf.DomainWarning"),
    pytest.mark.filterwarnings("ignore:The loss:sklearn.exceptions.ConvergenceWarning"),
]


# The default passes all of them in tests/test_conventions.py; each check meets two of the methods.
CHECKS = [list(estimator_checks_generator(quick(name, usual(name), batch_size=20))) for name in METHODS]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [checks[place] for checks, place in spread(CHECKS, range(len(CHECKS[0])), len(METHODS) // 2)],
    ids=lambda part: part.method if isinstance(part, OnlineNMF) else part.func.__name__,
)
def test_scikit_learn_contract_holds(estimator, check):
    require_scikit_learns_check(estimator, check)


# Chunk by chunk


def dictionary(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.2, 0.8, (K, F))


@every_method
def test_a_batch_is_cut_into_chunks(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    for n, tau, steps in [(20, 10, 2), (25, 10, 3), (7, 10, 1), (10, 1, 10), (10, 10, 1)]:
        method = small(name, tau=tau)
        state = learnt(method, divergence, begun(method, divergence, dictionary(rng)), data(n, rng)).state
        assert (state.samples, state.clock, state.steps) == (n, n, steps)


@every_pair
def test_two_batches_are_one_batch_cut_at_a_chunk(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    method, X = small(name, tau=8), data(24, rng)
    start = begun(method, divergence, dictionary(rng))
    once = learnt(method, divergence, start, X)
    first = learnt(method, divergence, start, X[:16])
    second = learnt(method, divergence, first.state, X[16:])
    np.testing.assert_array_equal(second.state.W, once.state.W)
    assert (second.state.samples, second.state.steps) == (once.state.samples, once.state.steps) == (24, 3)
    assert (16 * first.loss + 8 * second.loss) / 24 == pytest.approx(once.loss, rel=1e-9)
    np.testing.assert_array_equal(np.vstack([first.H, second.H]), once.H)
    assert once.first_loss == first.first_loss


@every_pair
def test_the_loss_and_the_coefficients_are_those_before_the_step_and_nothing_given_is_changed(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    method, X = small(name, tau=8), data(8, rng)
    state = begun(method, divergence, dictionary(rng))
    given = [array.copy() for array in (X, state.W, *state.memory.values())]
    found = learnt(method, divergence, state, X)
    for before, after in zip(given, (X, state.W, *state.memory.values()), strict=True):
        np.testing.assert_array_equal(before, after)
    H = method.coefficient_solver(divergence).solve(Problem(divergence, X, state.W)).H
    assert found.loss == found.first_loss == pytest.approx(divergence.value(X, H @ state.W).mean(), rel=1e-9)
    if method.visits(0) == 1:
        np.testing.assert_allclose(found.H, H, rtol=1e-9)
    assert DictionarySet().contains(found.state.W)
    assert not np.array_equal(found.state.W, state.W)


# guan draws samples by their place in its buffer, and wang forgets sample by sample
@pairs(without=("guan", "wang"))
def test_the_order_of_the_samples_in_a_chunk_does_not_matter(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    method, X = small(name, tau=10), data(10, rng)
    state = begun(method, divergence, dictionary(rng))
    one, other = (learnt(method, divergence, state, batch) for batch in (X, X[::-1].copy()))
    # Sums in another order round differently, which a loss that is not convex makes larger.
    np.testing.assert_allclose(other.state.W, one.state.W, rtol=1e-6, atol=1e-9)
    assert other.loss == pytest.approx(one.loss, rel=1e-10)


# Streams and files


@every_pair
def test_partial_fit_over_the_batches_is_fit_to_the_bit_and_a_seed_repeats(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(34, rng)  # the last batch has 10 samples, and the last chunks of all three are short
    whole = quick(small(name, tau=8), divergence, batch_size=12, shuffle=False).fit(X)
    pieces = streamed(quick(small(name, tau=8), divergence), X.copy(), 12)
    assert whole.n_steps_ == 6
    assert_same_bits(whole, pieces)
    one, other = (quick(name, divergence, max_passes=2, batch_size=20).fit(X) for _ in range(2))  # shuffled
    assert_same_bits(one, other)


@every_pair
def test_a_saved_model_goes_on_to_the_bit_and_reading_does_not_change_it(
    name: str, divergence: Divergence, rng: np.random.Generator, tmp_path: Path
) -> None:
    X = data(30, rng)
    model = quick(name, divergence, batch_size=20).fit(X)
    save(model, tmp_path / "m")
    model.transform(X)
    model.score(X)
    given = {} if type(divergence) is not LogCosh else {"divergence": divergence}
    loaded = load(tmp_path / "m", **given)
    assert loaded.method_ == model.method_
    assert_same_bits(model.partial_fit(X), loaded.partial_fit(X))


# What is learnt


@every_pair
def test_learning_lowers_the_loss_and_stays_in_the_set(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    X, held_out = parted((120, 40), rng)
    start = quick("paper:step=canonical,a=1e-12,max_iter=1,tau=150", divergence, batch_size=20).fit(X)
    model = quick(name, divergence, batch_size=20, max_passes=2).fit(X)
    assert model.loss(held_out) < start.loss(held_out)
    assert_sound(model, held_out)


@pytest.mark.parametrize(
    ("name", "divergence"),
    [pytest.param(name, each, id=f"{name}-{label}") for name, label, each in PAIRS if each.degree is not None],
)
def test_units_from_1e_12_to_1e12_do_not_matter(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(40, rng)
    model = quick(name, divergence).fit(X)
    for c in (1e-12, 1e12):
        scaled = quick(name, divergence.in_units(1 / c)).fit(c * X)
        np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-4, atol=1e-4)
        assert scaled.loss(c * X) * divergence.loss_unit(1 / c) == pytest.approx(model.loss(X), rel=1e-6)


@every_pair
def test_sparse_data_give_what_dense_data_give(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    X = sparse_counts(40, rng)
    dense, sparse = (quick(name, divergence, batch_size=20).fit(V) for V in (X, scipy.sparse.csr_matrix(X)))
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(sparse.history_["loss"], dense.history_["loss"], rtol=1e-7)
    assert sparse.loss(scipy.sparse.csc_matrix(X)) == pytest.approx(dense.loss(X), rel=1e-5)


@every_pair
def test_single_precision_stays_single(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(40, rng)
    single, double = (quick(name, divergence).fit(V) for V in (X.astype(np.float32), X))
    in_double = {"factors", "losses", *STATISTICS} if name == "paper" else set()  # sums, whatever the data
    kept = [array for key, array in memory(single).items() if key not in in_double]
    arrays = [single.components_, *kept, single.transform(X.astype(np.float32))]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    assert single.loss(X) == pytest.approx(double.loss(X), rel=1e-2)


@every_method
@both_kinds
def test_more_passes_over_the_same_samples_count_them_again(
    stored: Callable[..., Any], name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(50, rng)
    model = quick(name, divergence, max_passes=3).fit(stored(X))
    assert (model.n_samples_seen_, model.n_iter_) == (150, 3)


# Data of every odd kind

ODD: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "samples of zeros": (lambda X: np.where(np.arange(len(X))[:, None] % 3 == 0, 0.0, X), 3),
    "zeros at first": (lambda X: np.vstack([np.zeros((150, F)), X[:40]]), 3),
    "features of zeros": (lambda X: np.where(np.arange(F) % 4 == 1, 0.0, X), 3),
    "duplicated samples": (lambda X: np.repeat(X[:4], 20, axis=0), 6),
    "one and the same sample": (lambda X: np.repeat(X[:1], 50, axis=0), 3),
    "K = 1": (lambda X: X, 1),
    "K > F": (lambda X: X, F + 5),
    "K > n": (lambda X: X[:5], 9),
    "n = 1": (lambda X: X[:1], 3),
    "F = 1": (lambda X: X[:, :1], 3),
    "F = 1, K = 1": (lambda X: X[:, :1], 1),
    "constant": (lambda X: np.full_like(X, 3.0), 3),
    "constant, K = 1": (lambda X: np.full_like(X, 3.0), 1),
    "one feature a sample": (lambda X: np.eye(F)[np.arange(len(X)) % F], 4),
    "one entry in all": (lambda X: np.where((np.arange(X.size) == 77).reshape(X.shape), 2.0, 0.0), 2),
    "very unequal": (lambda X: X * np.geomspace(1e-9, 1e9, len(X))[:, None], 3),
}
SOME = ["kl", "is", "squared_l2", "huber", "l1", "l2", "alpha:2", "alpha:-1", "beta:0.5", "beta:3"]
MAHALANOBIS = mahalanobis()[0]
# The fast methods with divergences of every kind, the others with one.
TRIED = [("auto", divergence) for divergence in (*SOME, MAHALANOBIS, LogCosh())]
TRIED += [(name, usual(name)) for name in METHODS if name not in ("surrogate", "em")]


# The default on two divergences meets all of them, and so does each kind of data a third of the rest.
ODD_CASES = [(pair, kind) for pair in TRIED[:3:2] for kind in ODD] + spread(TRIED[1:2] + TRIED[3:], ODD, 3)


@pytest.mark.parametrize(
    ("kind", "name", "divergence"),
    [pytest.param(kind, *pair, id=f"{kind}-{pair[0]}-{divergence_id(pair[1])}") for pair, kind in ODD_CASES],
)
def test_odd_data_leave_a_sound_model(
    kind: str, name: str, divergence: Divergence | str, rng: np.random.Generator
) -> None:
    make, components = ODD[kind]
    X = make(data(60, rng))
    if isinstance(divergence, LogCosh):  # without a degree, the bounds of the coefficients are in the data's units
        X = np.minimum(X, 1e6)
    if X.shape[1] != F and divergence is MAHALANOBIS:
        divergence = mahalanobis(X.shape[1])[0]
    for V in (X, scipy.sparse.csr_matrix(X)):
        model = quick(
            name, divergence, n_components=components, max_passes=2, shuffle=False, transform_max_iter=50
        ).fit(V)
        assert model.components_.shape == (components, X.shape[1])
        assert model.n_samples_seen_ == 2 * len(X)
        assert_sound(model, V)


@pytest.mark.parametrize(
    ("name", "divergence", "stored"),
    [
        pytest.param(*pair, stored, id=f"{pair[0]}-{divergence_id(pair[1])}-{stored.__name__}")
        for pair, stored in spread(TRIED, [np.asarray, scipy.sparse.csr_matrix], 2)
    ],
)
def test_samples_may_come_one_by_one(
    name: str, divergence: Divergence | str, stored: Callable[..., Any], rng: np.random.Generator
) -> None:
    X, held_out = parted((60, 40), rng)
    X[5] = 0
    V = stored(X)
    model = streamed(quick(name, divergence), V[:3], 1)
    early = model.loss(held_out)
    streamed(model, V[3:], 1)
    assert model.n_samples_seen_ == 60
    assert_sound(model, V)
    if divergence != "huber":  # whose own delta changes what is measured
        assert model.loss(held_out) < early


@st.composite
def any_divergence(draw: st.DrawFn, features: int) -> Divergence:
    name = draw(st.sampled_from([*names(), "logcosh"]))
    if name == "logcosh":
        return LogCosh()
    if name == "mahalanobis":
        return draw(st.sampled_from(mahalanobis(features)))
    if name == "alpha":
        return Alpha(round(draw(st.floats(-2, 3)), 2))
    if name == "beta":
        return Beta(round(draw(st.floats(-1, 3)), 2))
    if name == "huber":
        return Huber(draw(st.none() | st.floats(0.01, 100)))
    return get(name)


@hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_whatever_comes_the_model_is_sound_and_no_worse_than_its_start(source: st.DataObject) -> None:
    draw = source.draw
    n, features, components = draw(st.integers(1, 60)), draw(st.integers(1, 30)), draw(st.integers(1, 8))
    divergence = draw(any_divergence(features))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    planted = rng.gamma(1.0, 1.0, (min(components, 4), features)) * 10.0 ** draw(st.integers(-6, 6))
    counts, dtype = draw(st.booleans()), draw(st.sampled_from([np.float64, np.float32]))

    def samples(n: int) -> np.ndarray:
        Y = rng.gamma(1.0, 1.0, (n, len(planted))) @ planted
        X = rng.poisson(2 * Y / planted.mean()) * planted.mean() if counts else Y * rng.gamma(10.0, 0.1, Y.shape)
        return X.astype(dtype)

    X, held_out = samples(n), samples(60)
    if not X[0].any():  # a first batch must have some entry
        X[0, 0] = planted.mean()
    stored = scipy.sparse.csr_matrix if draw(st.booleans()) else np.asarray
    settings = {
        "divergence": divergence,
        "n_components": components,
        "batch_size": draw(st.sampled_from([None, 1, 7, 64])),
        "l2_coefficients": draw(st.sampled_from([0.0, 1e-3, 0.1])),
        "shuffle": False,  # the sample that is not zero comes first
        "random_state": draw(st.integers(0, 100)),
        "transform_max_iter": 200,
    }
    learning = {"max_passes": draw(st.integers(1, 3)), "reservoir": draw(st.sampled_from([0, 5, 50]))}
    tau, forgetting = draw(st.sampled_from([None, 1, 5, 40])), draw(st.sampled_from([0.0, 0.1, 0.5]))
    method = draw(
        st.sampled_from(
            [methods.Auto(tau=tau, forgetting=forgetting), methods.Surrogate(tau or 30, forgetting, max_memory=0)]
        )
    )
    model = OnlineNMF(method=method, **settings, **learning).fit(stored(X))
    assert_sound(model, stored(held_out))

    # Samples few for their components, a few at a time or again and again, teach more of themselves than of others;
    # zeros have valleys of their own where the divergence is not convex; and a penalty is minimised along with the
    # loss.
    few = n < 15 * components or tau in (1, 5) or learning["reservoir"] == 5
    if few or (counts and not divergence.convex) or settings["l2_coefficients"]:
        return
    # A step of next to no length leaves the initial dictionary.
    start = OnlineNMF(method="paper:step=canonical,a=1e-12,tau=60,max_iter=1", **settings).fit(stored(X))
    # Huber's delta may have moved: the same yardstick for both.
    start._learned = dataclasses.replace(start._learned, divergence=model.divergence_)
    inside = model._learned.units.inside(Samples(held_out), model.divergence_)[0].matrix
    off_by_two = float(model._learned.inside.value(inside, np.maximum(2 * inside, 1e-30)).mean())
    size = off_by_two * model.divergence_.loss_unit(model.scale_)
    # One pass over a few dozen samples: a little is left to chance, and an exact start to rounding.
    assert model.loss(stored(held_out)) <= 1.05 * start.loss(stored(held_out)) + 0.05 * size


# Penalties on the coefficients


@every_method
def test_an_l2_penalty_acts_while_learning_and_in_transform_alike(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(60, rng)
    method = small(name, tau=60)
    state = begun(method, divergence, dictionary(rng))
    lengths, losses = [], []
    for l2 in (0.0, 0.3, 3.0, 30.0):
        penalised = dataclasses.replace(state, penalties=Penalties(l2_coefficients=l2))
        found = learnt(method, divergence, penalised, X / X.mean())
        lengths.append(np.square(found.H).sum())
        losses.append(found.loss)
        # What is told is the loss alone, at the coefficients of the penalised problem.
        problem = Problem(divergence, X / X.mean(), state.W, penalty=Penalty(l2))
        solver, effort = method.coefficient_solver(divergence), method.penalised_effort if l2 else 1
        H = solver.stopping(solver.tol, effort * solver.max_iter).solve(problem).H
        assert found.loss == pytest.approx(divergence.value(X / X.mean(), H @ state.W).mean(), rel=1e-9)
    assert (np.diff(lengths) < 0).all()
    assert losses[-1] > losses[0]
    models = [quick(name, divergence, l2_coefficients=l2).fit(X) for l2 in (0.0, 3.0)]
    assert not np.allclose(models[0].components_, models[1].components_, rtol=1e-3)
    assert np.square(models[1].transform(X)).sum() < np.square(models[0].transform(X)).sum()


@pytest.mark.parametrize("name", ["kl", "squared_l2", "is", "huber:0.3"])
def test_an_l2_penalty_is_the_same_in_every_method(name: str, rng: np.random.Generator) -> None:
    """Solved to the end, all coefficient steps minimise one objective."""
    divergence = get(name)
    X, W = data(20, rng), dictionary(rng)
    X /= X.mean()
    problem = Problem(divergence, X, W, penalty=Penalty(0.5))
    objectives = {}
    for method in METHODS:
        if small(method).why_not(divergence) is None:
            solver = small(method).coefficient_solver(divergence)
            H = solver.stopping(1e-9, 20_000).solve(problem).H
            objectives[method] = problem.objective(H, problem.fit(H)).mean()
    assert len(objectives) >= 2
    assert max(objectives.values()) == pytest.approx(min(objectives.values()), rel=1e-3)


# What it serves


@pytest.mark.parametrize("name", METHODS)
def test_a_divergence_is_served_or_refused_by_name_with_another_method(name: str) -> None:
    assert served(name)
    for _, divergence in served("surrogate"):
        reason = small(name).why_not(divergence)
        if reason is not None:
            assert f"method {name!r} supports only " in reason
            with pytest.raises(ValueError, match=re.escape(reason)):
                quick(name, divergence).fit(np.ones((4, F)))
            other = re.search(r"use method '(\w+)'", reason)[1]
            assert other == "auto" or methods.get(other).why_not(divergence) is None


@pytest.mark.parametrize("name", METHODS)
def test_a_fit_of_zero_is_refused_where_the_divergence_is_not_defined(name: str) -> None:
    from onmf import Sets

    for _, divergence in served(name):
        for sets in (Sets(eps=0.0), Sets(eps_prime=0.0)):
            model = quick(name, divergence, sets=sets)
            if divergence.domain.y.includes_zero:
                assert_sound(model.fit(np.ones((4, F)) + np.eye(4, F)), np.ones((4, F)))
            else:
                with pytest.raises(ValueError, match="is not defined for a fit of zero"):
                    model.fit(np.ones((4, F)))


# The choice of a method


def filled(features: int, density: float) -> Samples:
    """One sample of ones and zeros."""
    return Samples((np.arange(features) < round(density * features)).astype(float)[None])


@every_divergence
def test_auto_looks_at_the_non_zeros_if_they_are_few_under_what_is_linear_at_zero(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    few, many = np.eye(12)[np.arange(40) % 12], sparse_counts(40, rng, mean=5.0)
    assert np.count_nonzero(few) < 0.15 * few.size < np.count_nonzero(many)
    linear = methods.EM().why_not(get(divergence)) is None
    expected = "sparse_surrogate" if linear else "surrogate"
    if linear:
        y = np.array([0.5, 1.0, 2.0])
        np.testing.assert_allclose(get(divergence).d(np, np.zeros(3), y), get(divergence).slope_at_zero * y)
        for (k, features), density in (((3, 1000), 0.029), ((500, 10_000), 0.1)):  # too few for curvatures, or too many
            assert methods.Auto().chosen(get(divergence), k, filled(features, density)).name == "em"
    for density in (0.03, 0.149):
        assert methods.Auto().chosen(get(divergence), 3, filled(1000, density)).name == expected
    assert methods.Auto().chosen(get(divergence), 3, filled(1000, 0.15)).name == "surrogate"
    for stored in (np.asarray, scipy.sparse.csr_matrix):
        assert quick("auto", divergence).fit(stored(few)).method_.name == expected
        assert quick("auto", divergence).fit(stored(many)).method_.name == "surrogate"


def test_zeros_that_a_sparse_matrix_stores_are_no_entries(rng: np.random.Generator) -> None:
    X = scipy.sparse.csr_matrix(sparse_counts(40, rng, mean=5.0))
    X.data[: int(0.99 * X.nnz)] = 0
    assert quick("auto", "kl").fit(X).method_ == methods.EM()


def test_auto_hands_its_constants_on_and_stays_with_its_choice(rng: np.random.Generator) -> None:
    few, many = np.eye(12)[np.arange(40) % 12], sparse_counts(40, rng, mean=5.0)
    auto = methods.Auto(tau=7, forgetting=0.1, max_iter=3)
    assert quick(auto, "kl").fit(few).method_ == methods.SparseSurrogate(tau=7, forgetting=0.1, max_iter=3)
    assert quick(auto, "kl").fit(many).method_ == methods.Surrogate(tau=7, forgetting=0.1, max_iter=3)
    model = quick("auto", "kl").partial_fit(few).partial_fit(many)
    assert model.method_ == methods.SparseSurrogate()
    assert model.set_params(method=auto).partial_fit(many).method_ == methods.SparseSurrogate(
        tau=7, forgetting=0.1, max_iter=3
    )


def test_auto_is_the_default_and_an_unknown_method_is_refused_with_the_list() -> None:
    model = OnlineNMF()
    assert methods.get(model.method) == methods.Auto()
    assert model.fit(np.ones((3, 2))).method_ == methods.Surrogate()
    with pytest.raises(ValueError, match=f"unknown method 'magic'; choose one of {', '.join(methods.names())}"):
        OnlineNMF(method="magic").fit(np.ones((3, 2)))
