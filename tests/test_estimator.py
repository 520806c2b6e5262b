"""What ``OnlineNMF`` learns, and what it makes of data: dense or sparse, in any unit, precision and shape."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from onmf import BatchNMF, DomainWarning, OnlineNMF, Sets, divergences
from onmf.data.examples import NOISE_OF, Planted
from onmf.methods import Canonical, Paper
from onmf.model.sets import INITS, DictionarySet
from tests.conftest import F, LogCosh
from tests.small import both_methods, data, every_pair, quick, small, start

# Precision is not what these tests are about: the coefficient step may stop at its limit.
pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


# What is learnt


@pytest.mark.parametrize("divergence", ["kl", "is", "huber"])
@pytest.mark.parametrize("method", ["auto", "paper", "canonical"])  # the same bits in all: test_methods.py
def test_the_same_seed_gives_the_same_bits_and_another_another_model(divergence, method, rng):
    X = data(60, rng)
    first, second = (quick(divergence, method, max_passes=2).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    other = quick(divergence, method, max_passes=2, random_state=1).fit(X)
    assert not np.array_equal(first.components_, other.components_)


@every_pair
def test_scaling_the_data_scales_the_coefficients_only(divergence, method, rng):
    X = data(60, rng)
    # Where the loss falls, rounding stays rounding.
    shorter = Canonical(a=0.5 / max(divergence.lipschitz or 1, 1), b=200)
    given = small(method, step=shorter) if method == "canonical" else method
    model = quick(divergence, given).fit(X)
    H, loss = model.transform(X), model.loss(X)
    for c in (1e-3, 1e3):
        scaled = quick(divergence.in_units(1 / c), given).fit(c * X)  # parameters in the data's units are scaled too
        factor = 1 / divergence.loss_unit(1 / c)
        np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(scaled.transform(c * X) / c, H, rtol=1e-5, atol=1e-7)
        assert scaled.loss(c * X) == pytest.approx(factor * loss, rel=1e-6)
        np.testing.assert_allclose(scaled.history_["loss"], factor * model.history_["loss"], rtol=1e-6, atol=0)


@pytest.mark.parametrize(("name", "method"), [("kl", "auto"), ("huber:15", "auto"), ("squared_l2", "paper")])
def test_stationarity_falls_along_a_run(name, method, rng):
    planted = Planted.draw(30, 4, NOISE_OF[name.partition(":")[0]], rng)
    X = planted.sample(300, rng).V
    settings = {"divergence": name, "init": "uniform", "random_state": 0}
    if method == "paper":
        settings["l2_coefficients"] = 1e-6
        settings["method"] = Paper(step=Canonical(a=200, b=200), solver="paper")
        early = OnlineNMF(4, **settings).partial_fit(X[:50])
        late = OnlineNMF(4, max_passes=5, **settings).fit(X)
    else:
        early, late = (OnlineNMF(4, max_passes=passes, **settings).fit(X) for passes in (1, 20))
    assert late.stationarity(X) < 0.5 * early.stationarity(X)


@pytest.mark.parametrize("method", ["auto", "paper:step=canonical,a=100,b=1000"])
@pytest.mark.parametrize("init", ["samples", "kmeans++"])
def test_a_planted_dictionary_is_recovered(method, init, rng):
    W = np.kron(np.eye(4), np.ones(5)) + 0.01
    X = rng.exponential(1.0, (2000, 4)) @ W
    model = OnlineNMF(4, divergence="squared_l2", method=method, init=init, max_passes=3, random_state=0).fit(X)
    learnt = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    planted = W / np.linalg.norm(W, axis=1, keepdims=True)
    assert (learnt @ planted.T).max(axis=0).min() > 0.99


@both_methods
def test_huber_withstands_outliers_that_spoil_squared_l2(method, rng):
    clean = data(600, rng)
    X = np.where(rng.random(clean.shape) < 0.1, 10 * clean.max(), clean)

    def error(divergence: str) -> float:
        model = quick(divergence, method, max_passes=3, transform_max_iter=3000).fit(X)
        return float(np.abs(model.inverse_transform(model.transform(X)) - clean).mean())

    assert error("huber") < 0.5 * error("squared_l2")


@both_methods
def test_a_users_own_divergence_works_with_value_and_derivative_alone(method, rng):
    X = data(100, rng)
    model = quick(LogCosh(), method, init="uniform", max_passes=5).fit(X)
    assert model.loss(X) < start(LogCosh(), init="uniform").fit(X).loss(X)
    Y = model.inverse_transform(model.transform(X))
    assert model.loss(X) == pytest.approx(np.log(np.cosh(X - Y)).sum(axis=1).mean(), rel=1e-9)


@both_methods
def test_nothing_depends_on_the_number_of_samples_to_come(method, rng):
    X = data(200, rng)
    seen = []
    quick(method=method, shuffle=False, callbacks=[lambda p: seen.append(p.W)]).fit(X)
    np.testing.assert_array_equal(seen[1], quick(method=method, shuffle=False).fit(X[:40]).components_)


def test_the_literal_reading_stays_available_and_fails_as_measured(rng):
    X = Planted.draw(40, 5, "poisson", rng).sample(400, rng).V
    method = "paper:step=canonical,a=200,b=200,solver=paper"
    settings = {"method": method, "init": "uniform", "random_state": 0, "transform_max_iter": 200}
    literal = OnlineNMF(5, scale="none", **settings)
    with pytest.warns(ConvergenceWarning, match="the steps are too long"):
        literal.fit(X)
    ours = OnlineNMF(5, **settings).fit(X)
    assert literal.scale_ == 1.0
    assert ours.scale_ == pytest.approx(X.mean(), rel=0.1)
    assert ours.loss(X) < 0.1 * literal.loss(X)


@pytest.mark.parametrize("init", ["uniform", "kmeans++"])
def test_steps_that_are_too_long_are_reported_with_the_cure(init, rng):
    X = data(400, rng)
    with pytest.warns(ConvergenceWarning, match="too long for these data. Try method='paper'"):
        quick("kl", Paper(step=Canonical()), init=init).fit(X)


# What is made of it


def test_fit_transform_is_fit_then_transform(rng):
    X = data(60, rng)
    np.testing.assert_array_equal(quick().fit(X).transform(X), quick().fit_transform(X))


def test_inverse_transform_is_the_product_and_loss_its_divergence(rng):
    X = data(60, rng)
    model = quick("beta:1.5").fit(X)
    H = model.transform(X)
    Y = model.inverse_transform(H)
    np.testing.assert_allclose(Y, H @ model.components_)
    assert model.loss(X) == pytest.approx(divergences.get("beta:1.5").value(X, Y).mean(), rel=1e-9)
    assert model.score(X) == -model.loss(X)


@both_methods
def test_coefficients_short_of_the_tolerance_are_reported(method, rng):
    X = data(30, rng)
    model = quick(method=method, transform_max_iter=1).fit(X)
    with pytest.warns(ConvergenceWarning, match=r"of 30 samples did not reach transform_tol=0.0001; raise"):
        model.transform(X)


# Precision and sparse data


@both_methods
@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber", "l1", "l2"])
def test_float32_stays_float32(name, method, rng):
    X = data(60, rng).astype(np.float32)
    model = quick(name, method).fit(X)
    assert model.components_.dtype == np.float32
    assert model.transform(X).dtype == np.float32
    assert model.proportions(X).dtype == np.float32
    double = quick(name, method).fit(X.astype(np.float64))
    assert model.loss(X) == pytest.approx(double.loss(X.astype(np.float64)), rel=1e-2)


every_form = pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix])


@every_form
@pytest.mark.parametrize(
    ("method", "name"),
    [("paper", "kl"), ("paper", "squared_l2"), ("surrogate", "kl"), ("auto", "huber"), ("auto", "l1")],
)
def test_sparse_data_that_are_densified_give_the_bits_of_dense_data(form, method, name, rng):
    X = rng.poisson(0.5, (60, F)).astype(float)
    dense, sparse = quick(name, method).fit(X), quick(name, method).fit(form(X))
    np.testing.assert_array_equal(dense.components_, sparse.components_)
    if name in ("huber", "l1"):  # transform densifies too
        np.testing.assert_array_equal(dense.transform(X), sparse.transform(form(X)))
    assert dense.loss(X) == pytest.approx(sparse.loss(form(X)), rel=1e-5)


@every_form
@pytest.mark.parametrize(("method", "name"), [("em", "kl"), ("em", "hellinger"), ("auto", "squared_l2")])
def test_sparse_data_that_stay_sparse_give_what_dense_data_give(form, method, name, rng):
    X = rng.poisson(0.5, (60, F)).astype(float)
    dense, sparse = quick(name, method).fit(X), quick(name, method).fit(form(X))
    np.testing.assert_allclose(dense.components_, sparse.components_, rtol=1e-8, atol=1e-10)
    assert dense.loss(X) == pytest.approx(sparse.loss(form(X)), rel=1e-5)


@pytest.mark.parametrize(("method", "name"), [("em", "kl"), ("auto", "squared_l2"), ("paper", "kl")])
@pytest.mark.parametrize("settings", [{}, {"clip": (0.0, 2.0)}, {"reservoir": 10}], ids=str)
def test_entries_of_a_sparse_matrix_may_come_in_any_order_and_in_parts(method, name, settings, rng):
    X = rng.poisson(0.7, (60, F)).astype(float)
    neat = scipy.sparse.csr_matrix(X)
    mixed = scipy.sparse.csr_matrix(neat)
    for n in range(60):
        row = slice(neat.indptr[n], neat.indptr[n + 1])
        order = rng.permutation(row.stop - row.start)
        mixed.indices[row], mixed.data[row] = neat.indices[row][order], neat.data[row][order]
    halves = [np.repeat(part, 2) for part in (mixed.indices, 0.5 * mixed.data)]
    parts = scipy.sparse.csr_matrix((halves[1], halves[0], 2 * neat.indptr), shape=X.shape)
    assert not parts.has_canonical_format
    before = parts.data.copy()
    one, other = quick(name, method, **settings).fit(neat), quick(name, method, **settings).fit(parts)
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.transform(neat), other.transform(parts))
    np.testing.assert_array_equal(parts.data, before)


# The domain of the divergence


@both_methods
@pytest.mark.parametrize("name", ["is", "alpha:-1", "alpha:0", "beta:-0.5"])
def test_zeros_outside_the_domain_are_raised_with_one_warning(name, method, rng):
    X = data(60, rng)
    X[3, 4] = X[25, 0] = X[41, 2] = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = quick(name, method, shuffle=False, max_passes=2).fit(X)
        model.transform(X)
    assert sum(issubclass(warning.category, DomainWarning) for warning in caught) == 1
    raised = np.maximum(X, 1e-9 * np.maximum(X.mean(axis=1, keepdims=True), X[:20].mean()))
    np.testing.assert_allclose(model.loss(X), model.loss(raised), rtol=1e-8)


def test_zeros_that_come_with_transform_only_are_reported_there(rng):
    X = data(40, rng)
    model = quick("is").fit(X)
    with pytest.warns(DomainWarning, match="where 'is' is not defined"):
        model.transform(np.where(X.mean() > X, 0.0, X))


@both_methods
@pytest.mark.parametrize("name", ["kl", "hellinger", "huber", "l1", "l2", "squared_l2", "beta:1.5"])
def test_zeros_inside_the_domain_stay(name, method, rng):
    X = rng.poisson(0.5, (60, F)).astype(float)
    X[5] = 0
    X[:, 3] = 0
    model = quick(name, method).fit(X)
    assert np.isfinite(model.components_).all()
    assert model.transform(X)[5] == pytest.approx(0, abs=1e-6)


# The sets, the start, and small shapes


@both_methods
@pytest.mark.parametrize("name", ["huber", "l1", "l2", "squared_l2"])
def test_robust_losses_need_no_floor(name, method, rng):
    X, W = data(40, rng), rng.random((3, F))
    X[:, 0], W[:, 0] = 0, 1e-10
    without, with_floor = (quick(name, method, sets=sets, init=W).fit(X) for sets in (Sets(0.0, 0.0), Sets()))
    assert without.components_[:, 0].sum() <= 3.1e-10
    assert with_floor.components_[:, 0].sum() >= 0.999e-8


@both_methods
def test_the_users_dictionary_is_brought_in_by_a_change_of_units(method, rng):
    X = data(40, rng)
    W = rng.gamma(1.0, 5.0, (3, F))
    model = start("kl", init=W).fit(X)
    np.testing.assert_allclose(model.components_, W / np.maximum(W.max(axis=1, keepdims=True), 1), rtol=1e-9)
    assert DictionarySet().contains(model.components_)
    losses = [quick(method=method, init=c * W).fit(X).loss(X) for c in (1, 7)]
    np.testing.assert_allclose(*losses, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "name"), [("auto", "kl"), ("auto", "huber"), ("em", "kl"), ("paper", "kl"), ("canonical", "kl")]
)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
def test_a_component_of_zeros_is_a_start_like_any_other(method, name, form, rng):
    X = form(rng.poisson(0.7, (100, F)).astype(float))
    W = rng.random((3, F))
    W[1] = 0
    model = quick(name, method, init=W).fit(X)
    assert np.isfinite(model.components_).all()
    used = model.transform(X).sum(axis=0) * model.components_.sum(axis=1)  # whatever the units of the components
    assert used[1] > 0.1 * used.sum()


@both_methods
def test_clip_is_the_compact_set_of_the_paper(method, rng):
    X = data(60, rng)
    high = float(np.quantile(X, 0.8))
    clipped = quick(method=method, clip=(0.5, high)).fit(X)
    np.testing.assert_array_equal(clipped.components_, quick(method=method).fit(np.clip(X, 0.5, high)).components_)
    assert clipped.loss(X) == pytest.approx(clipped.loss(np.clip(X, 0.5, high)))


@both_methods
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
def test_there_may_be_more_components_than_samples_and_features(form, init, method, rng):
    X = form(data(10, rng, n_features=4))
    assert quick(method=method, n_components=15, init=init).fit(X).transform(X).shape == (10, 15)


@both_methods
@pytest.mark.parametrize("name", ["kl", "is", "squared_l2", "huber", "l1"])
def test_there_may_be_one_component_one_feature_or_one_sample(name, method, rng):
    assert quick(name, method, n_components=1).fit(data(20, rng)).transform(data(5, rng)).shape == (5, 1)
    assert quick(name, method).fit(data(20, rng, n_features=1)).components_.shape == (3, 1)
    assert quick(name, method).fit(data(1, rng)).n_samples_seen_ == 1


@pytest.mark.parametrize("learn", ["fit", "partial_fit", "batch"])
def test_more_components_than_features_are_warned_of_unless_something_keeps_them_small(learn, rng):
    X = data(60, rng)[:, :3]
    kind, call = (BatchNMF, "fit") if learn == "batch" else (OnlineNMF, learn)
    with pytest.warns(UserWarning, match=r"Rank 4 is more than the data have features \(3\)"):
        getattr(kind(4, random_state=0), call)(X)
    getattr(kind(4, l1_coefficients=0.1, random_state=0), call)(X)
    getattr(kind(3, random_state=0), call)(X)
