"""BatchNMF by coordinate descent: sparse counts, pseudo-counts, and dictionaries to continue from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_limits

from onmf import BatchNMF, OnlineNMF
from onmf._support import threads
from onmf.divergences import get
from onmf.methods.batch import factorise
from onmf.methods.batch_descent import CoordinateUpdates
from onmf.model.sets import Box, DictionarySet
from onmf.samples import Samples

K, F = 4, 60


def counts(rng: np.random.Generator, n: int = 80, features: int = F) -> Any:
    """Counts of a few topics, about a tenth of whose entries are not zero."""
    rates = rng.dirichlet(np.full(K, 0.3), n) @ rng.dirichlet(np.full(features, 0.1), K)
    return scipy.sparse.csr_matrix(rng.poisson(8 * rates).astype(float))


def quick(**settings: Any) -> BatchNMF:
    return BatchNMF(**({"n_components": K, "solver": "coordinate", "random_state": 0} | settings))


@pytest.mark.parametrize("kind", ["plain", "sample weights", "fixed"])
@pytest.mark.parametrize(
    ("name", "prior"), [("kl", 0), ("kl", 0.05), ("hellinger", 0), ("alpha:2", 0), ("alpha:0.3", 0)]
)
def test_the_objective_of_sweeps_never_rises(name: str, kind: str, prior: float, rng: np.random.Generator) -> None:
    X, W = counts(rng), rng.random((K, F)) ** 4 + 1e-4
    samples = Samples(X, sample_weight=rng.uniform(0.2, 3, X.shape[0]) if kind == "sample weights" else None)
    updates = CoordinateUpdates(get(name), samples, Box(), DictionarySet(), prior)
    fixed = 2 if kind == "fixed" else 0
    course = []
    for state in factorise(updates, updates.start(W), W, 25, 0.0, fixed):
        course.append(updates.objective(state.loss, state.H, state.W))
        np.testing.assert_array_equal(state.W[:fixed], W[:fixed])
    assert (np.diff(course) <= 1e-10 * np.abs(course[:-1])).all()
    assert course[-1] < course[0]


def test_sweeps_end_below_multiplicative_updates_from_the_same_start(rng: np.random.Generator) -> None:
    X, W = counts(rng, 150), rng.random((K, F)) + 0.01
    fine, slow = (
        quick(init=W, solver=solver, tol=0, max_iter=iterations).fit(X).history_["loss"][-1]
        for solver, iterations in (("coordinate", 60), ("multiplicative", 300))
    )
    assert quick(init=W, pseudo_counts=0, tol=0, max_iter=60).fit(X).history_["loss"][-1] <= slow * (1 + 1e-3)
    assert fine <= slow * 1.05  # pseudo-counts cost a little


def test_auto_takes_coordinate_descent_for_counts_however_they_are_stored(rng: np.random.Generator) -> None:
    X = counts(rng)
    expected = quick().fit(X).components_
    for stored in (X, X.toarray(), X.tocsc()):
        np.testing.assert_array_equal(quick(solver="auto").fit(stored).components_, expected)
    others: list[tuple[Any, dict[str, Any], str]] = [
        (X.toarray() + 0.5, {}, "surrogate"),
        (X, {"divergence": "squared_l2"}, "multiplicative"),
        (X, {"l1_coefficients": 0.1}, "multiplicative"),
    ]
    for data, settings, expected in others:
        models = (quick(solver=solver, max_iter=15, tol=0, **settings).fit(data) for solver in ("auto", expected))
        np.testing.assert_array_equal(*(model.components_ for model in models))


def test_a_sample_of_weight_two_counts_as_two_samples_in_sweeps(rng: np.random.Generator) -> None:
    X = counts(rng)
    weights, begun = rng.integers(1, 4, X.shape[0]), OnlineNMF(K, random_state=0).fit(X)
    weighted = quick(init=begun, max_iter=8, tol=0).fit(X, sample_weight=weights)
    copied = quick(init=begun, max_iter=8, tol=0).fit(X[np.repeat(np.arange(X.shape[0]), weights)])
    assert weighted.history_["loss"][-1] == pytest.approx(copied.history_["loss"][-1], rel=1e-2)
    np.testing.assert_allclose(weighted.components_, copied.components_, atol=0.05)


def test_a_fitted_model_is_continued_from(rng: np.random.Generator) -> None:
    X = counts(rng, 200)
    online = OnlineNMF(K, random_state=0).fit(X)
    more = quick(init=online, pseudo_counts=0, tol=1e-5).fit(X)
    assert more.loss(X) < online.loss(X)
    with pytest.raises(ValueError, match="X has 59 features, but the model in init was learnt from 60"):
        quick(init=online).fit(X[:, 1:])
    with pytest.raises(NotFittedError):
        clone(quick(init=online)).fit(X)  # scikit-learn's clones of models have learnt nothing


def test_an_online_pass_begins_with_the_dictionary_that_is_given(rng: np.random.Generator) -> None:
    X = counts(rng, 200)
    W = OnlineNMF(K, random_state=0).fit(X).components_
    for order in (np.arange(K), np.arange(K)[::-1]):  # components stay next to those that they begin with
        found = quick(init=W[order], max_iter=1, tol=0).fit(X).components_
        nearest = np.argmax(np.corrcoef(found, W)[:K, K:], axis=1)
        np.testing.assert_array_equal(nearest, order)
    assert (
        quick(init=W, max_iter=1, tol=0).fit(X).history_["loss"][0]
        < quick(init=W, max_iter=1, tol=0, solver="multiplicative").fit(X).history_["loss"][0]
    )


def test_pseudo_counts_keep_weights_of_words_that_a_component_has_not_seen(rng: np.random.Generator) -> None:
    X = counts(rng, 200)
    with_prior, without = (quick(pseudo_counts=a, tol=1e-5).fit(X).components_ for a in (0.1, 0.0))
    assert with_prior.min() > 1e-5
    assert np.median(without) < 1e-7
    np.testing.assert_array_equal(quick().fit(X).components_, quick(pseudo_counts=0.01).fit(X).components_)


def test_pseudo_counts_are_in_the_units_of_the_data(rng: np.random.Generator) -> None:
    X = counts(rng)
    one, other = quick(pseudo_counts=0.1).fit(X), quick(pseudo_counts=0.2).fit(2 * X)
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6)


def test_single_precision_is_learnt_from_in_single_precision(rng: np.random.Generator) -> None:
    X = counts(rng)
    single, double = quick().fit(X.astype(np.float32)), quick().fit(X)
    assert {single.components_.dtype, single.coefficients_.dtype} == {np.dtype(np.float32)}
    assert single.history_["loss"][-1] == pytest.approx(double.history_["loss"][-1], rel=2e-2)


def test_any_number_of_threads_gives_the_same_sweeps(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    X = counts(rng, 4000, 500)
    with threadpool_limits(1, user_api="blas"):
        expected = quick(max_iter=3, tol=0).fit(X)
    monkeypatch.setattr(threads, "_pool", ThreadPoolExecutor(2))
    monkeypatch.setattr(threads, "_size", 2)
    with threadpool_limits(3, user_api="blas"):
        found = quick(max_iter=3, tol=0).fit(X)
    np.testing.assert_array_equal(found.components_, expected.components_)
    np.testing.assert_array_equal(found.coefficients_, expected.coefficients_)


def test_convergence_is_told_over_three_sweeps(rng: np.random.Generator) -> None:
    model = quick(pseudo_counts=0, tol=1e-3).fit(counts(rng))
    course = model.history_["loss"]
    assert model.converged_
    assert course[-4] - course[-1] <= 1e-3 * course[-4] < course[-5] - course[-2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"solver": "newton"}, "solver must be one of auto, multiplicative, coordinate, surrogate; got 'newton'"),
        ({"divergence": "is"}, "solver='coordinate' takes no is, only kl and alpha > 0; use 'multiplicative'"),
        ({"l2_coefficients": 0.1}, "solver='coordinate' takes no penalties; use 'multiplicative'"),
        ({"missing": "nan"}, "solver='coordinate' takes no missing or weighted entries; use 'multiplicative'"),
        ({"pseudo_counts": -1.0}, "pseudo_counts must be .*at least 0"),
        ({"pseudo_counts": 0.1, "divergence": "hellinger"}, "pseudo_counts are for solver='coordinate' under kl"),
        ({"pseudo_counts": 0.1, "solver": "multiplicative"}, "pseudo_counts are for solver='coordinate' under kl"),
    ],
)
def test_settings_that_do_not_go_together_raise_an_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        quick(**settings).fit(np.where(np.eye(5, 4) > 0, np.nan if "missing" in settings else 2.0, 1.0))
