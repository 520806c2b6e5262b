"""BatchNMF: the loss never rises, scikit-learn's updates are followed, dense and sparse agree."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

from onmf import BatchNMF, DataError, DomainWarning, OnlineNMF, Sets
from onmf.coefficients import Multiplicative
from onmf.coefficients.problem import Problem
from onmf.divergences import L1, Alpha, Divergence, Huber, Separable, get
from onmf.divergences.robust import SMOOTHING
from onmf.methods.batch import LEAST_FIT, DenseUpdates, factorise
from onmf.methods.batch_descent import SurrogateUpdates
from onmf.model.penalty import Penalty
from onmf.model.sets import Box, DictionarySet
from onmf.samples import Samples
from tests.conftest import DISTINCT, F, LogCosh, every_distinct_divergence, example_id, examples

K = 3
BETAS = {"is": 0.0, "beta:0.5": 0.5, "kl": 1.0, "beta:1.5": 1.5, "squared_l2": 2.0}

and_a_small_alpha = pytest.mark.parametrize("divergence", [*DISTINCT, Alpha(0.005)], ids=example_id)


def data(n: int, rng: np.random.Generator, noise: float = 0.2) -> np.ndarray:
    X = rng.gamma(1.0, 1.0, (n, K)) @ rng.gamma(1.0, 1.0, (K, F)) + 0.05
    return X * rng.gamma(1 / noise**2, noise**2, (n, F))


def quick(divergence: Divergence | str, **settings: Any) -> BatchNMF:
    return BatchNMF(**({"n_components": K, "divergence": divergence, "random_state": 0, "tol": 0.0} | settings))


def uniform_start(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Equal coefficients, such that the fit has the sample's mass."""
    return np.repeat(X.sum(axis=1, keepdims=True) / W.sum(), len(W), axis=1)


def losses(divergence: Divergence, X: np.ndarray, W: np.ndarray, iterations: int) -> np.ndarray:
    """Of the states, computed afresh; of l1 that which the updates minimise."""
    updates = DenseUpdates(divergence, lambda rows: Samples(X[rows]), X.shape)
    found = []
    for state in factorise(updates, updates.start(W), W, iterations, tol=0.0):
        Y = np.maximum(state.H @ state.W, LEAST_FIT[8])
        if isinstance(divergence, L1):
            s = SMOOTHING * X.mean(axis=1, keepdims=True)
            found.append(float((np.hypot(X - Y, s) - s).sum()))
        else:
            found.append(float(divergence.value(X, Y).sum()))
            assert state.loss == pytest.approx(found[-1], rel=1e-8)
    return np.array(found)


@and_a_small_alpha
def test_the_loss_never_rises(divergence: Divergence, rng: np.random.Generator) -> None:
    for trial in range(15):
        n = int(rng.integers(1, 30))
        X = data(n, rng, noise=float(rng.choice([0.01, 0.3, 1.0])))
        if divergence.domain.x.includes_zero and trial % 3 == 0:
            X[rng.random(X.shape) < 0.4] = 0
        X /= max(X.mean(), 1e-9)
        course = losses(divergence, X, rng.random((int(rng.integers(1, 6)), F)) + 1e-3, 40)
        assert np.isfinite(course).all()
        rounding = 1e-9 * course[:-1] + 1e-14 * X.size  # entries are of order one
        assert (np.diff(course) <= rounding).all(), f"trial {trial}"
        assert course[-1] < course[0]


@pytest.mark.parametrize("name", BETAS)
def test_it_follows_scikit_learn_from_the_same_start(name: str, rng: np.random.Generator) -> None:
    X, W = data(80, rng), 1.0 - rng.random((K, F))
    ours = quick(name, init=W, max_iter=200, solver="multiplicative").fit(X)
    for iterations in (1, 10, 50, 200):
        theirs = NMF(K, init="custom", solver="mu", beta_loss=BETAS[name], max_iter=iterations, tol=0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            H = theirs.fit_transform(X, W=uniform_start(X, W), H=W.copy())
        loss = get(name).value(X, H @ theirs.components_).mean()
        assert ours.history_["loss"][iterations] == pytest.approx(loss, rel=1e-9)


@and_a_small_alpha
def test_sparse_data_give_what_dense_data_give(divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(40, rng)
    X[rng.random(X.shape) < 0.5] = 0
    X[:, 0] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DomainWarning)
        dense, sparse = (quick(divergence, max_iter=15).fit(V) for V in (X, scipy.sparse.csr_matrix(X)))
    np.testing.assert_allclose(sparse.history_["loss"], dense.history_["loss"], rtol=1e-7)
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(sparse.coefficients_, dense.coefficients_, rtol=1e-5, atol=1e-9)


@every_distinct_divergence
def test_with_a_fixed_dictionary_it_agrees_with_the_coefficient_solvers(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, W = data(20, rng), rng.random((K, F)) + 0.05
    W /= W.max(axis=1, keepdims=True)
    model = quick(divergence, fixed=W, max_iter=1000).fit(X)
    np.testing.assert_array_equal(model.components_, W)
    found = divergence.value(X, model.coefficients_ @ W).mean()
    best = divergence.value(X, model.transform(X) @ W).mean()
    assert found == pytest.approx(best, rel=1e-2 if isinstance(divergence, L1) else 2e-3)
    assert found == pytest.approx(model.history_["loss"][-1], rel=1e-8)


@every_distinct_divergence
def test_scale_precision_and_the_set_of_dictionaries(divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(60, rng)
    model = quick(divergence, max_iter=30).fit(X)
    assert DictionarySet().contains(model.components_)
    scaled = quick(divergence.in_units(1e-3), max_iter=30).fit(1e3 * X)
    np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(scaled.coefficients_, 1e3 * model.coefficients_, rtol=1e-6, atol=1e-9)
    single = quick(divergence, max_iter=30).fit(X.astype(np.float32))
    assert {single.components_.dtype, single.coefficients_.dtype} == {np.dtype(np.float32)}
    assert single.history_["loss"][-1] == pytest.approx(model.history_["loss"][-1], rel=2e-2)


@pytest.mark.parametrize("divergence", [*DISTINCT, LogCosh()], ids=example_id)
def test_fit_transform_is_fit_and_transform(divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(30, rng)
    H = quick(divergence, max_iter=20).fit_transform(X)
    np.testing.assert_array_equal(H, quick(divergence, max_iter=20).fit(X).transform(X))
    few, many = (quick(divergence, max_iter=each, solver="multiplicative").fit(X).loss(X) for each in (1, 200))
    assert many < 0.95 * few


@and_a_small_alpha
def test_samples_of_zeros_and_clipped_data_start_where_they_are(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(30, rng)
    X[4] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for stored in (X, scipy.sparse.csr_matrix(X)):
            model = quick(divergence, max_iter=100).fit(stored)
            assert np.isfinite(model.history_["loss"]).all()
            assert model.history_["loss"][-1] < model.history_["loss"][0]
        clipped = quick(divergence, max_iter=300, clip=(0.1, 10.0)).fit(X)
    assert clipped.history_["loss"][-1] == pytest.approx(clipped.loss(X), rel=0.25)


@pytest.mark.parametrize("name", ["squared_l2", "kl", "is", "hellinger", "beta:1.5", "alpha:2"])
def test_the_losses_of_single_precision_are_true(name: str, rng: np.random.Generator) -> None:
    X = (rng.gamma(1.0, 1.0, (100, K)) @ rng.gamma(1.0, 1.0, (K, 40)) + 0.05) * rng.normal(1, 3e-4, (100, 40))
    model = quick(name, max_iter=150).fit(X.astype(np.float32))
    fit = model.coefficients_.astype(float) @ model.components_.astype(float)
    assert model.history_["loss"][-1] == pytest.approx(get(name).value(X, fit).mean(), rel=2e-2)
    course = model.history_["loss"].astype(float)
    assert (np.diff(course) <= 1e-3 * course[:-1]).all()


def test_zeros_of_the_initial_dictionary_stay(rng: np.random.Generator) -> None:
    X, W = data(30, rng), rng.random((K, F))
    W[0] = 0
    for divergence in examples():
        model = quick(divergence, init=W, max_iter=20, solver="multiplicative").fit(X)
        assert np.isfinite(model.history_["loss"]).all(), divergence
        assert model.components_[0].max() <= 1e-7


def test_convergence_is_told_as_it_is(rng: np.random.Generator) -> None:
    X = data(50, rng)
    model = BatchNMF(K, tol=1e-4, random_state=0, solver="multiplicative").fit(X)
    course = model.history_["loss"]
    assert model.converged_
    assert len(course) == model.n_iter_ + 1
    assert course[-11] - course[-1] <= 1e-4 * course[-11] < course[-12] - course[-2]
    assert model.history_["samples"].tolist() == [50 * i for i in range(model.n_iter_ + 1)]
    with pytest.warns(ConvergenceWarning, match="still falls by more than tol=1e-05"):
        model = BatchNMF(K, max_iter=12, random_state=0, solver="multiplicative").fit(X)
    assert not model.converged_
    assert model.n_iter_ == 12


# Second-order steps


@pytest.mark.parametrize("name", ["kl", "hellinger", "squared_l2", "beta:1.5", "is"])
def test_second_order_steps_never_raise_the_loss_and_get_as_low_as_multiplicative_ones(
    name: str, rng: np.random.Generator
) -> None:
    X = rng.poisson(5 * data(120, rng)) + 1.0
    low = quick(name, solver="multiplicative", max_iter=300).fit(X).history_["loss"][-1]
    loss = quick(name, solver="surrogate", max_iter=40).fit(X).history_["loss"]
    assert (np.diff(loss) <= 1e-12 * loss[:-1]).all()
    assert loss[-1] <= 1.001 * low


def test_where_a_second_order_step_would_raise_the_loss_a_multiplicative_one_is_made(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = data(60, rng)
    monkeypatch.setattr(SurrogateUpdates, "_minimum", lambda self, H, W: W[:, ::-1] + 0.3)
    loss = quick("kl", max_iter=20).fit(X).history_["loss"]
    assert (np.diff(loss) < 0).all()


def test_auto_takes_second_order_steps_for_dense_data_under_convex_divergences(rng: np.random.Generator) -> None:
    X = data(60, rng)

    def bits(X: Any, solver: str, **settings: Any) -> np.ndarray:
        settings = {"divergence": "kl", "max_iter": 4, "solver": solver} | settings
        return quick(**settings).fit(X).components_

    for given, settings in [(X, {}), (scipy.sparse.csr_matrix(X), {}), (X, {"divergence": "squared_l2"})]:
        assert np.array_equal(bits(given, "auto", **settings), bits(X, "surrogate", **settings))
    for settings in ({"divergence": "is"}, {"divergence": "huber"}, {"l2_coefficients": 0.1}, {"n_components": 90}):
        assert np.array_equal(bits(X, "auto", **settings), bits(X, "multiplicative", **settings))
    with pytest.raises(ValueError, match="takes no penalties; use 'multiplicative'"):
        bits(X, "surrogate", l2_coefficients=0.1)


def test_second_order_steps_count_samples_by_weight_and_keep_fixed_components(rng: np.random.Generator) -> None:
    X, fixed = data(40, rng), rng.uniform(0.1, 0.9, (1, F))
    weights, begun = rng.integers(1, 4, len(X)), OnlineNMF(K, fixed=fixed, random_state=0).fit(X)
    given: dict[str, Any] = {"init": begun, "fixed": fixed, "max_iter": 6}
    weighted = quick("kl", **given).fit(X, sample_weight=weights)
    copied = quick("kl", **given).fit(np.repeat(X, weights, axis=0))
    assert np.array_equal(weighted.components_[:1], fixed)
    assert weighted.history_["loss"] == pytest.approx(copied.history_["loss"], rel=1e-2)


def test_a_callback_sees_every_iteration_and_may_end_the_fit(rng: np.random.Generator) -> None:
    seen: list[int] = []

    def stop_at_five(progress: Any) -> bool:
        seen.append(progress.steps)
        return progress.steps == 5

    model = quick("kl", callbacks=[stop_at_five]).fit(data(20, rng))
    assert seen == [0, 1, 2, 3, 4, 5]
    assert model.n_iter_ == 5
    assert not model.converged_


def test_an_interrupt_leaves_the_last_iteration(rng: np.random.Generator) -> None:
    def interrupt(progress: Any) -> None:
        if progress.steps == 4:
            raise KeyboardInterrupt

    X = data(20, rng)
    model = quick("kl", callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    whole = quick("kl", max_iter=4).fit(X)
    assert model.n_iter_ == 4
    np.testing.assert_array_equal(model.components_, whole.components_)
    np.testing.assert_array_equal(model.coefficients_, whole.coefficients_)


def test_the_loss_of_a_nearly_exact_fit_keeps_its_digits(rng: np.random.Generator) -> None:
    X = rng.gamma(1.0, 1.0, (30, 1)) @ rng.gamma(1.0, 1.0, (1, F)) + 1e-300
    for divergence in (d for d in examples() if isinstance(d, Separable) and not isinstance(d, (L1, Huber))):
        model = quick(divergence, n_components=1, max_iter=30).fit(X)
        assert 0 <= model.history_["loss"][-1] <= 1e-13 * X.mean() ** (divergence.degree or 1) * F


def test_one_sample_one_feature_and_samples_of_zeros() -> None:
    assert quick("kl", n_components=1, max_iter=5).fit(np.array([[2.0]])).inverse_transform([[2.0]]).shape == (1, 1)
    X = np.ones((6, 4))
    X[2] = 0
    for stored in (X, scipy.sparse.csr_matrix(X)):
        model = quick("kl", n_components=2, max_iter=50).fit(stored)
        assert np.isfinite(model.components_).all()
        assert model.coefficients_[2].max() < 1e-6
    assert quick("kl", n_components=9, max_iter=5).fit(X).components_.shape == (9, 4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_components": 0}, "n_components must be .*at least 1"),
        ({"max_iter": 0}, "max_iter must be .*at least 1"),
        ({"tol": -1.0}, "tol must be .*at least 0"),
        ({"callbacks": 3}, "callbacks must be a list of functions"),
        ({"sets": Sets(eps=0.0)}, "not defined for a fit of zero"),
        ({"clip": (3, 1)}, "clip must be a pair"),
        ({"random_state": "x"}, "random_state must be None"),
        ({"divergence": "nonsense"}, "unknown divergence"),
        ({"init": "nonsense"}, "unknown init"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BatchNMF(**settings).fit(np.ones((5, 4)))


def test_an_error_leaves_the_model_as_it_was(rng: np.random.Generator) -> None:
    X = data(20, rng)
    model = quick("kl", max_iter=5).fit(X)
    before = dict(vars(model))
    X[3, 1] = np.nan
    with pytest.raises(DataError, match="NaN in the data at row 3, column 1"):
        model.fit(X)
    assert vars(model) == before


@every_distinct_divergence
def test_multiplicative_coefficients_descend_to_newtons(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = data(15, rng), rng.random((K, F)) + 0.05
    start = uniform_start(X, W)
    course = [divergence.value(X, start @ W)]
    for steps in (1, 5, 50):
        H = Multiplicative(max_iter=steps).solve(Problem(divergence, X, W, Box(1e-12)), start).H
        course.append(divergence.value(X, H @ W))
    slack = 1e-2 * course[0] if isinstance(divergence, L1) else 1e-9 * course[0]
    for before, after in pairwise(course):
        assert (after <= before + slack).all()


def test_penalties_shrink_multiplicative_coefficients(rng: np.random.Generator) -> None:
    X, W = data(40, rng), rng.random((K, F)) + 0.05
    free, shrunk = (
        Multiplicative(max_iter=200).solve(Problem(get("huber:0.2"), X, W, penalty=penalty)).H
        for penalty in (Penalty(), Penalty(l1=0.1))
    )
    assert shrunk.sum() < free.sum()
