from __future__ import annotations

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import onmf
from onmf import DataError, DomainWarning, OnlineNMF
from onmf.datasets.synthetic import NOISE_OF, Planted
from onmf.divergences import Divergence
from onmf.sets import DictionarySet
from onmf.streams import Rows
from tests.conftest import F, LogCosh, every_divergence

# Precision is not what these tests are about: the coefficient step may stop at its limit.
pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


def data(n: int, rng: np.random.Generator, n_features: int = F, rank: int = 3) -> np.ndarray:
    return rng.gamma(2.0, 1.0, (n, rank)) @ rng.gamma(1.0, 1.0, (rank, n_features)) + 0.1


def quick(divergence: Divergence | str = "kl", **settings: object) -> OnlineNMF:
    given = {"n_components": 3, "random_state": 0, "batch_size": 20, "max_iter": 20, "transform_max_iter": 300}
    given |= {"a": 2.0, "b": 200.0}  # steps that suit such small data
    return OnlineNMF(divergence=divergence, **(given | settings))


@parametrize_with_checks(
    [OnlineNMF(), quick("huber"), quick("is"), quick("l1"), quick("squared_l2", init="nndsvda"), quick("l2", tau=3)]
)
def test_scikit_learn_contract_holds(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@every_divergence
def test_partial_fit_over_the_batches_is_fit_to_the_bit(divergence, rng):
    X = data(50, rng)  # the last batch has 10 samples, and its last chunk 2
    whole = quick(divergence, shuffle=False, tau=4).fit(X)
    pieces = quick(divergence, tau=4)
    for first in range(0, 50, 20):
        pieces.partial_fit(X[first : first + 20].copy())
    np.testing.assert_array_equal(whole.components_, pieces.components_)
    assert whole.n_samples_seen_ == pieces.n_samples_seen_ == 50
    assert whole.n_steps_ == pieces.n_steps_ == 5 + 5 + 3


@every_divergence
def test_the_same_seed_gives_the_same_bits(divergence, rng):
    X = data(60, rng)
    first, second = (quick(divergence, max_passes=2).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert not np.array_equal(first.components_, quick(divergence, random_state=1).fit(X).components_)


@every_divergence
@pytest.mark.parametrize("c", [1e-3, 1e3])
def test_scaling_the_data_scales_the_coefficients_only(divergence, c, rng):
    X = data(60, rng)
    scaled_divergence = divergence.in_units(1 / c)  # the same, but for parameters in the data's units
    factor = 1 / divergence.loss_unit(1 / c)
    a = 2 / max(divergence.lipschitz or 1, 1)  # where the loss falls, rounding stays rounding
    model, scaled = quick(divergence, a=a).fit(X), quick(scaled_divergence, a=a).fit(c * X)
    np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(scaled.transform(c * X) / c, model.transform(X), rtol=1e-5, atol=1e-7)
    assert scaled.loss(c * X) == pytest.approx(factor * model.loss(X), rel=1e-6)
    np.testing.assert_allclose(scaled.history_["loss"], factor * model.history_["loss"], rtol=1e-6, atol=0)


@every_divergence
def test_learning_lowers_the_loss_and_stays_in_the_sets(divergence, rng):
    X = data(400, rng)
    train, held_out = X[:300], X[300:]
    start = quick(divergence, a=1e-12).fit(train)
    model = quick(divergence, a=5.0, max_passes=5).fit(train)
    assert model.loss(held_out) < start.loss(held_out)
    assert DictionarySet(model.eps).contains(model.components_)
    assert (model.transform(held_out) >= 0).all()


@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber"])
def test_stationarity_falls_along_a_run(name, rng):
    planted = Planted.draw(30, 4, NOISE_OF[name], rng)
    X = planted.sample(600, rng).V
    early = OnlineNMF(4, divergence=name, random_state=0, a=200, b=200, ridge=1e-6).partial_fit(X[:50])
    late = OnlineNMF(4, divergence=name, random_state=0, a=200, b=200, ridge=1e-6, max_passes=5).fit(X)
    assert late.stationarity(X) < 0.5 * early.stationarity(X)


def test_a_planted_dictionary_is_recovered(rng):
    W = np.kron(np.eye(4), np.ones(5)) + 0.01
    X = rng.exponential(1.0, (2000, 4)) @ W
    model = OnlineNMF(4, divergence="squared_l2", init="samples", random_state=0, a=100, b=1000, max_passes=3).fit(X)
    learnt = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    planted = W / np.linalg.norm(W, axis=1, keepdims=True)
    assert (learnt @ planted.T).max(axis=0).min() > 0.99


def test_huber_withstands_outliers_that_spoil_squared_l2(rng):
    clean = data(600, rng)
    X = np.where(rng.random(clean.shape) < 0.1, 10 * clean.max(), clean)

    def error(divergence: str) -> float:
        model = quick(divergence, max_passes=3, transform_max_iter=3000).fit(X)
        return float(np.abs(model.inverse_transform(model.transform(X)) - clean).mean())

    assert error("huber") < 0.5 * error("squared_l2")


def test_fit_transform_agrees_with_fit_then_transform(rng):
    X = data(60, rng)
    np.testing.assert_array_equal(quick().fit(X).transform(X), quick().fit_transform(X))


def test_inverse_transform_is_the_product_and_loss_its_divergence(rng):
    X = data(60, rng)
    model = quick("beta:1.5").fit(X)
    H = model.transform(X)
    Y = model.inverse_transform(H)
    np.testing.assert_allclose(Y, H @ model.components_)
    assert model.loss(X) == pytest.approx(onmf.divergences.get("beta:1.5").value(X, Y).mean(), rel=1e-9)
    assert model.score(X) == -model.loss(X)
    with pytest.raises(ValueError, match="inverse_transform takes coefficients of shape"):
        model.inverse_transform(X)


def test_history_has_one_entry_a_batch(rng):
    X = data(50, rng)
    history = quick(max_passes=2).fit(X).history_
    assert history["samples"].tolist() == [20, 40, 50, 70, 90, 100]
    assert (np.diff(history["seconds"]) > 0).all()
    assert np.isfinite(history["loss"]).all()
    assert {len(column) for column in history.values()} == {6}
    with pytest.raises(AttributeError, match="after fit"):
        quick().history_  # noqa: B018


def test_callbacks_see_every_batch_and_may_end_the_run(rng):
    seen = []

    def watch(progress: onmf.Progress) -> bool:
        seen.append(progress)
        return progress.samples >= 60

    model = quick(callbacks=[watch], max_passes=10).fit(data(50, rng))
    assert [p.samples for p in seen] == [20, 40, 50, 70]
    assert seen[-1].total == 500
    assert model.n_iter_ == 2
    np.testing.assert_array_equal(seen[-1].W, model.components_)


@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber", "l1"])
def test_float32_stays_float32(name, rng):
    X = data(60, rng).astype(np.float32)
    model = quick(name).fit(X)
    assert model.components_.dtype == np.float32
    assert model.transform(X).dtype == np.float32
    double = quick(name).fit(X.astype(np.float64))
    assert model.loss(X) == pytest.approx(double.loss(X.astype(np.float64)), rel=1e-2)


@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix])
def test_sparse_data_give_what_dense_data_give(form, rng):
    X = rng.poisson(0.5, (60, F)).astype(float)
    dense, sparse = quick().fit(X), quick().fit(form(X))
    np.testing.assert_array_equal(dense.components_, sparse.components_)
    np.testing.assert_array_equal(dense.transform(X), sparse.transform(form(X)))
    assert dense.loss(X) == sparse.loss(form(X))


@pytest.mark.parametrize("layout", ["fortran", "strided", "readonly", "integers", "list"])
def test_the_layout_of_the_data_does_not_matter(layout, rng):
    X = rng.poisson(5, (60, F)).astype(float)
    other = {
        "fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "readonly": X.copy(),
        "integers": X.astype(np.int32),
        "list": X.tolist(),
    }[layout]
    if layout == "readonly":
        other.setflags(write=False)
    np.testing.assert_array_equal(quick().fit(X).components_, quick().fit(other).components_)


def test_works_in_a_pipeline_a_grid_search_clone_pickle_and_joblib(rng, tmp_path):
    X = data(60, rng)
    pipeline = make_pipeline(MaxAbsScaler(), quick())
    search = GridSearchCV(pipeline, {"onlinenmf__n_components": [1, 3]}, cv=2).fit(X)
    assert search.best_params_ == {"onlinenmf__n_components": 3}
    model = quick("beta:1.5").fit(X)
    np.testing.assert_array_equal(clone(model).fit(X).components_, model.components_)
    joblib.dump(model, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):  # noqa: S301
        np.testing.assert_array_equal(copy.transform(X), model.transform(X))
        np.testing.assert_array_equal(copy.partial_fit(X).components_, clone(model).fit(X).partial_fit(X).components_)


def test_feature_names_and_data_frames_come_out(rng):
    X = data(40, rng)
    frame = pd.DataFrame(X, columns=[f"word{i}" for i in range(F)], index=[f"doc{i}" for i in range(40)])
    model = quick().fit(frame)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.get_feature_names_out().tolist() == ["onlinenmf0", "onlinenmf1", "onlinenmf2"]
    out = model.set_output(transform="pandas").transform(frame)
    assert list(out.index) == list(frame.index)
    assert isinstance(model.set_output(transform="polars").transform(frame), pl.DataFrame)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame.rename(columns={"word0": "other"}))


@pytest.mark.parametrize("name", ["is", "alpha:-1", "alpha:0", "beta:-0.5"])
def test_zeros_outside_the_domain_are_raised_with_one_warning(name, rng):
    X = data(60, rng)
    X[3, 4] = X[25, 0] = X[41, 2] = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = quick(name, shuffle=False, max_passes=2).fit(X)
        model.transform(X)
    assert sum(issubclass(warning.category, DomainWarning) for warning in caught) == 1
    raised = X.copy()
    raised[X == 0] = 1e-6 * X[:20].mean()
    np.testing.assert_allclose(model.loss(X), model.loss(raised), rtol=1e-12)


def test_zeros_that_come_with_transform_only_are_told_there(rng):
    X = data(40, rng)
    model = quick("is").fit(X)
    with pytest.warns(DomainWarning, match="outside the domain of is"):
        model.transform(np.where(X.mean() > X, 0.0, X))


@pytest.mark.parametrize("name", ["kl", "hellinger", "huber", "l1", "l2", "squared_l2", "beta:1.5"])
def test_zeros_inside_the_domain_stay(name, rng):
    X = rng.poisson(0.5, (60, F)).astype(float)
    X[5] = 0
    X[:, 3] = 0
    model = quick(name).fit(X)
    assert np.isfinite(model.components_).all()
    assert model.transform(X)[5] == pytest.approx(0, abs=1e-6)


def test_coefficients_short_of_the_tolerance_are_told(rng):
    X = data(30, rng)
    model = quick(transform_max_iter=1).fit(X)
    with pytest.warns(ConvergenceWarning, match=r"of 30 samples did not reach transform_tol=0.0001; raise"):
        model.transform(X)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.nan, r"NaN in the data at row 7, column 2"),
        (np.inf, r"Infinity \(inf\) in the data at row 7, column 2"),
        (-1.5, r"Negative values in data, the first -1.5, at row 7, column 2"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "partial_fit", "transform", "loss", "stationarity"])
def test_a_bad_entry_is_named_by_row_and_column_and_nothing_is_lost(bad, message, call, rng):
    X = data(40, rng)
    model = quick().fit(X)
    before = model.components_.copy(), model.n_samples_seen_, len(model.history_["loss"])
    spoilt = X.copy()
    spoilt[7, 2] = spoilt[9, 1] = bad
    for form in (spoilt, scipy.sparse.csr_matrix(spoilt)):
        with pytest.raises(DataError, match=message):
            getattr(model, call)(form)
    np.testing.assert_array_equal(model.components_, before[0])
    assert (model.n_samples_seen_, len(model.history_["loss"])) == before[1:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components must be at least 1, a whole number"),
        ({"n_components": 2.5}, "n_components must be at least 1, a whole number"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_passes": 0}, "max_passes must be at least 1"),
        ({"divergence": "itakura"}, "unknown divergence 'itakura'; choose one of"),
        ({"method": "magic"}, "unknown method 'magic'; choose one of"),
        ({"solver": "magic"}, "unknown solver 'magic'; choose one of"),
        ({"divergence": "l1", "solver": "armijo"}, "refuses l1"),
        ({"init": "magic"}, "unknown init 'magic'"),
        ({"init": np.ones((2, 2))}, "must have shape"),
        ({"scale": "max"}, "scale must be 'mean' or 'none'"),
        ({"shuffle": "no"}, "shuffle must be True or False"),
        ({"callbacks": print}, "callbacks must be a list of functions"),
        ({"callbacks": [3]}, "callbacks must be a list of functions"),
        ({"random_state": -1}, "random_state must be None, a whole number"),
        ({"divergence": "kl:3"}, "kl takes no parameter; write kl"),
        ({"divergence": "huber:0"}, "huber: delta must be positive"),
        ({"clip": (3, 1)}, "clip must be a pair"),
        ({"ridge": -1}, "ridge must be at least 0"),
        ({"tau": 0}, "tau must be at least 1"),
        ({"power": 0.4}, "breaks the Robbins-Monro conditions"),
        ({"eps": 1.0}, "eps must lie in"),
        ({"eps": 0.0}, "kl is not defined for a fit of zero"),
        ({"eps_prime": 2.0, "U": 1.0}, "eps_prime < U"),
        ({"tol": -1}, "tol must be at least 0"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"divergence": onmf.divergences.Mahalanobis(np.eye(3))}, "A is 3 x 3, but the data have 12 features"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(settings, message, rng):
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(data(30, rng))


def test_an_all_zero_first_batch_is_refused():
    with pytest.raises(DataError, match="The first batch is all zeros"):
        quick().partial_fit(np.zeros((20, F)))


def test_robust_losses_need_no_floor(rng):
    X = data(40, rng)
    X[:, 0] = 0
    for name in ("huber", "l1", "l2", "squared_l2"):
        model = quick(name, eps=0.0, eps_prime=0.0, a=200.0, b=200.0, max_passes=10).fit(X)
        np.testing.assert_array_equal(model.components_[:, 0], 0)


def test_the_users_dictionary_is_brought_in_by_a_change_of_units(rng):
    X = data(40, rng)
    W = rng.gamma(1.0, 5.0, (3, F))
    model = quick(init=W, a=1e-300).fit(X)
    np.testing.assert_allclose(model.components_, W / np.maximum(W.max(axis=1, keepdims=True), 1), rtol=1e-12)
    np.testing.assert_allclose(model.loss(X), quick(init=7 * W, a=1e-300).fit(X).loss(X), rtol=1e-9)


def test_clip_is_the_compact_set_of_the_paper(rng):
    X = data(60, rng)
    high = float(np.quantile(X, 0.8))
    clipped = quick(clip=(0.5, high)).fit(X)
    np.testing.assert_array_equal(clipped.components_, quick().fit(np.clip(X, 0.5, high)).components_)
    assert clipped.loss(X) == pytest.approx(clipped.loss(np.clip(X, 0.5, high)))


def test_the_literal_reading_stays_available_and_fails_as_measured(rng):
    planted = Planted.draw(40, 5, "poisson", rng)
    X = planted.sample(400, rng).V
    steps = {"a": 200, "b": 200, "random_state": 0, "transform_max_iter": 200}
    literal = OnlineNMF(5, scale="none", **steps)
    with pytest.warns(ConvergenceWarning, match="the steps are too long"):
        literal.fit(X)
    ours = OnlineNMF(5, **steps).fit(X)
    assert literal.scale_ == 1.0
    assert ours.scale_ == pytest.approx(X.mean(), rel=0.1)
    assert ours.loss(X) < 0.1 * literal.loss(X)


def test_nothing_depends_on_the_number_of_samples_to_come(rng):
    X = data(200, rng)
    seen = []
    quick(shuffle=False, callbacks=[lambda p: seen.append(p.W)]).fit(X)
    short = quick(shuffle=False).fit(X[:40])
    np.testing.assert_array_equal(seen[1], short.components_)


def test_more_atoms_than_samples_or_features_work(rng):
    X = data(10, rng, n_features=4)
    for init in ("uniform", "samples", "nndsvda"):
        model = quick(n_components=15, init=init).fit(X)
        assert model.transform(X).shape == (10, 15)


def test_one_atom_and_one_feature_and_one_sample_work(rng):
    assert quick(n_components=1).fit(data(20, rng)).transform(data(5, rng)).shape == (5, 1)
    assert quick().fit(data(20, rng, n_features=1)).components_.shape == (3, 1)
    assert quick().fit(data(1, rng)).n_samples_seen_ == 1


def test_a_users_own_divergence_works_with_value_and_derivative_alone(rng):
    X = data(100, rng)
    start, model = (quick(LogCosh(), max_passes=5, a=a, b=200).fit(X) for a in (1e-12, 20))
    assert model.loss(X) < start.loss(X)
    Y = model.inverse_transform(model.transform(X))
    assert model.loss(X) == pytest.approx(np.log(np.cosh(X - Y)).sum(axis=1).mean(), rel=1e-9)


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_partial_fit_is_fit_with_a_generator_too(kind, rng):
    X = data(40, rng)
    whole, pieces = (quick(random_state=kind(5), shuffle=False) for _ in range(2))
    whole.fit(X)
    pieces.partial_fit(X[:20]).partial_fit(X[20:])
    np.testing.assert_array_equal(whole.components_, pieces.components_)


def test_a_fit_that_fails_leaves_the_model_as_it_was(rng):
    X = data(40, rng)
    model = quick().fit(X)
    before = model.transform(X)
    for spoilt, settings in ((-X[:, :5], {}), (X, {"power": 7.0}), (X, {"init": "magic"})):
        with pytest.raises(ValueError, match=r"Negative|Robbins|unknown init"):
            model.set_params(**settings).fit(spoilt)
        model.set_params(power=1.0, init="uniform")
        np.testing.assert_array_equal(model.transform(X), before)


def test_steps_that_are_too_long_are_told_with_the_cure(rng):
    X = data(400, rng)
    with pytest.warns(ConvergenceWarning, match=r"the steps are too long for these data. Take a \(20000\) ten times"):
        quick("kl", a=2e4, b=2e4).fit(X)


def test_the_first_bad_row_is_named_by_its_number_in_a_shuffled_source(rng):
    X = data(60, rng)
    X[3, 1] = X[50, 0] = -1
    for seed in range(5):
        with pytest.raises(DataError, match="row 3, column 1"):
            quick(random_state=seed, batch_size=60).fit(Rows(X))


def test_random_states_of_all_kinds_are_taken(rng):
    X = data(40, rng)
    same = [quick(random_state=np.random.default_rng(5)).fit(X).components_ for _ in range(2)]
    np.testing.assert_array_equal(*same)
    same = [quick(random_state=np.random.RandomState(5)).fit(X).components_ for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(*(quick(random_state=None).fit(X).components_ for _ in range(2)))
