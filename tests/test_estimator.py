from __future__ import annotations

import itertools
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
from onmf import BatchNMF, DataError, DomainWarning, OnlineNMF
from onmf.datasets.synthetic import NOISE_OF, Planted
from onmf.divergences import Divergence, get
from onmf.initial import INITS
from onmf.sets import DictionarySet
from onmf.streams import Rows
from tests.conftest import F, LogCosh, example_id, examples

# Precision is not what these tests are about: the coefficient step may stop at its limit.
pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


def data(n: int, rng: np.random.Generator, n_features: int = F, rank: int = 3) -> np.ndarray:
    return rng.gamma(2.0, 1.0, (n, rank)) @ rng.gamma(1.0, 1.0, (rank, n_features)) + 0.1


both_methods = pytest.mark.parametrize("method", ["auto", "paper"])
EARLIER = {"lefevre": get("is"), "guan": get("squared_l2"), "wang": get("huber:0.5")}
PAIRS = [
    *itertools.product(examples(), ["auto", "paper"]),
    *((divergence, name) for name, divergence in EARLIER.items()),
]
every_pair = pytest.mark.parametrize(
    ("divergence", "method"), PAIRS, ids=[f"{example_id(divergence)}-{method}" for divergence, method in PAIRS]
)


def quick(divergence: Divergence | str = "kl", method: str = "auto", **settings: object) -> OnlineNMF:
    given = {"n_components": 3, "random_state": 0, "batch_size": 20, "transform_max_iter": 300}
    if method == "paper":
        given |= {"a": 2.0, "b": 200.0, "max_iter": 20}  # steps that suit such small data
    if method == "lefevre":
        given |= {"options": {"N": 50}}
    if method == "wang":
        given |= {"options": {"eta": 0.02}}  # for three atoms
    return OnlineNMF(divergence=divergence, method=method, **(given | settings))


def start(divergence: Divergence | str, **settings: object) -> OnlineNMF:
    """A model whose dictionary is the initial one, but for steps too short to see."""
    return quick(divergence, "paper", a=1e-12, **settings)


@parametrize_with_checks(
    [
        OnlineNMF(),
        quick("huber"),
        quick("is"),
        quick("l1"),
        quick("squared_l2", init="nndsvda"),
        quick("kl", reservoir=10, max_memory=0.0),
        quick("kl", "paper"),
        quick("huber", "paper", init="uniform"),
        quick("l1", "paper"),
        quick("l2", "paper", tau=3),
        quick("is", "lefevre"),
        quick("squared_l2", "guan"),
        quick("huber", "wang"),
        BatchNMF(3, max_iter=20),
        BatchNMF(3, divergence="is", max_iter=20),
        BatchNMF(3, divergence="l1", max_iter=20, init="uniform"),
    ]
)
def test_scikit_learn_contract_holds(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@every_pair
def test_partial_fit_over_the_batches_is_fit_to_the_bit(divergence, method, rng):
    X = data(50, rng)  # the last batch has 10 samples, and its last chunk 2
    whole = quick(divergence, method, shuffle=False, tau=4).fit(X)
    pieces = quick(divergence, method, tau=4)
    for first in range(0, 50, 20):
        pieces.partial_fit(X[first : first + 20].copy())
    np.testing.assert_array_equal(whole.components_, pieces.components_)
    assert whole.n_samples_seen_ == pieces.n_samples_seen_ == 50
    assert whole.n_steps_ == pieces.n_steps_ == 5 + 5 + 3


@every_pair
def test_the_same_seed_gives_the_same_bits(divergence, method, rng):
    X = data(60, rng)
    first, second = (quick(divergence, method, max_passes=2).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert not np.array_equal(first.components_, quick(divergence, method, random_state=1).fit(X).components_)


@every_pair
@pytest.mark.parametrize("c", [1e-3, 1e3])
def test_scaling_the_data_scales_the_coefficients_only(divergence, c, method, rng):
    X = data(60, rng)
    scaled_divergence = divergence.in_units(1 / c)  # the same, but for parameters in the data's units
    factor = 1 / divergence.loss_unit(1 / c)
    a = 2 / max(divergence.lipschitz or 1, 1)  # where the loss falls, rounding stays rounding
    model, scaled = quick(divergence, method, a=a).fit(X), quick(scaled_divergence, method, a=a).fit(c * X)
    np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(scaled.transform(c * X) / c, model.transform(X), rtol=1e-5, atol=1e-7)
    assert scaled.loss(c * X) == pytest.approx(factor * model.loss(X), rel=1e-6)
    np.testing.assert_allclose(scaled.history_["loss"], factor * model.history_["loss"], rtol=1e-6, atol=0)


@every_pair
def test_learning_lowers_the_loss_and_stays_in_the_sets(divergence, method, rng):
    X = data(400, rng)
    train, held_out = X[:300], X[300:]
    before = start(divergence).fit(train)
    model = quick(divergence, method, a=5.0, max_passes=5).fit(train)
    assert model.loss(held_out) < before.loss(held_out)
    assert DictionarySet(model.eps).contains(model.components_)
    assert (model.transform(held_out) >= 0).all()


@both_methods
@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber:15"])
def test_stationarity_falls_along_a_run(name, method, rng):
    planted = Planted.draw(30, 4, NOISE_OF[name.partition(":")[0]], rng)
    X = planted.sample(600, rng).V
    settings = {"divergence": name, "method": method, "init": "uniform", "ridge": 1e-6, "random_state": 0}
    if method == "paper":
        settings |= {"a": 200, "b": 200}
        early = OnlineNMF(4, **settings).partial_fit(X[:50])
        late = OnlineNMF(4, max_passes=5, **settings).fit(X)
    else:
        early, late = (OnlineNMF(4, max_passes=passes, **settings).fit(X) for passes in (1, 20))
    assert late.stationarity(X) < 0.5 * early.stationarity(X)


@both_methods
@pytest.mark.parametrize("init", ["samples", "kmeans++"])
def test_a_planted_dictionary_is_recovered(method, init, rng):
    W = np.kron(np.eye(4), np.ones(5)) + 0.01
    X = rng.exponential(1.0, (2000, 4)) @ W
    settings = {"method": method, "init": init, "a": 100, "b": 1000, "max_passes": 3, "random_state": 0}
    model = OnlineNMF(4, divergence="squared_l2", **settings).fit(X)
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


@both_methods
@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber", "l1", "l2"])
def test_float32_stays_float32(name, method, rng):
    X = data(60, rng).astype(np.float32)
    model = quick(name, method).fit(X)
    assert model.components_.dtype == np.float32
    assert model.transform(X).dtype == np.float32
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
    if method == "paper" or name != "kl":  # Newton's method takes sparse counts as they are
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


@both_methods
@pytest.mark.parametrize("layout", ["fortran", "strided", "readonly", "integers", "list"])
def test_the_layout_of_the_data_does_not_matter(layout, method, rng):
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
    one, same = (quick(method=method).fit(form).components_ for form in (X, other))
    np.testing.assert_array_equal(one, same)


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
    raised = X.copy()
    raised[X == 0] = 1e-6 * X[:20].mean()
    np.testing.assert_allclose(model.loss(X), model.loss(raised), rtol=1e-12)


def test_zeros_that_come_with_transform_only_are_told_there(rng):
    X = data(40, rng)
    model = quick("is").fit(X)
    with pytest.warns(DomainWarning, match="outside the domain of is"):
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


@both_methods
def test_coefficients_short_of_the_tolerance_are_told(method, rng):
    X = data(30, rng)
    model = quick(method=method, transform_max_iter=1).fit(X)
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
        ({"divergence": "itakura"}, r"unknown divergence 'itakura' \(did you mean 'itakura-saito'\?\); choose one of"),
        ({"method": "magic"}, "unknown method 'magic'; choose one of"),
        ({"solver": "magic"}, "unknown solver 'magic'; choose one of"),
        ({"method": "paper", "divergence": "l1", "solver": "armijo"}, "refuses l1"),
        ({"method": "em", "divergence": "is"}, "em refuses is"),
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
        ({"forgetting": 1.0}, "forgetting must lie in"),
        ({"reservoir": -1}, "reservoir must be at least 0, a whole number"),
        ({"reservoir": 2.5}, "reservoir must be at least 0, a whole number"),
        ({"max_memory": -1}, "max_memory must be at least 0"),
        ({"divergence": onmf.divergences.Mahalanobis(np.eye(3))}, "A is 3 x 3, but the data have 12 features"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(settings, message, rng):
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(data(30, rng))


def test_an_all_zero_first_batch_is_refused():
    with pytest.raises(DataError, match="The first batch is all zeros"):
        quick().partial_fit(np.zeros((20, F)))


@both_methods
def test_robust_losses_need_no_floor(method, rng):
    X = data(40, rng)
    X[:, 0] = 0
    for name in ("huber", "l1", "l2", "squared_l2"):
        settings = {"eps": 0.0, "eps_prime": 0.0, "init": "uniform", "a": 200.0, "b": 200.0, "max_passes": 10}
        model = quick(name, method, **settings).fit(X)
        np.testing.assert_allclose(model.components_[:, 0], 0, atol=0 if method == "paper" else 1e-15)


def test_the_users_dictionary_is_brought_in_by_a_change_of_units(rng):
    X = data(40, rng)
    W = rng.gamma(1.0, 5.0, (3, F))
    model = start("kl", init=W).fit(X)
    np.testing.assert_allclose(model.components_, W / np.maximum(W.max(axis=1, keepdims=True), 1), rtol=1e-9)
    for method in ("auto", "paper"):
        losses = [quick(method=method, init=c * W).fit(X).loss(X) for c in (1, 7)]
        np.testing.assert_allclose(*losses, rtol=1e-9)


@pytest.mark.parametrize(("method", "name"), [("auto", "kl"), ("auto", "huber"), ("em", "kl"), ("paper", "kl")])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
def test_an_atom_of_zeros_is_a_start_like_any_other(method, name, form, rng):
    X = form(rng.poisson(0.7, (100, F)).astype(float))
    W = rng.random((3, F))
    W[1] = 0
    model = quick(name, method, init=W).fit(X)
    assert np.isfinite(model.components_).all()
    assert model.components_[1].max() > 0.01


@both_methods
def test_clip_is_the_compact_set_of_the_paper(method, rng):
    X = data(60, rng)
    high = float(np.quantile(X, 0.8))
    clipped = quick(method=method, clip=(0.5, high)).fit(X)
    np.testing.assert_array_equal(clipped.components_, quick(method=method).fit(np.clip(X, 0.5, high)).components_)
    assert clipped.loss(X) == pytest.approx(clipped.loss(np.clip(X, 0.5, high)))


def test_the_literal_reading_stays_available_and_fails_as_measured(rng):
    planted = Planted.draw(40, 5, "poisson", rng)
    X = planted.sample(400, rng).V
    steps = {"method": "paper", "init": "uniform", "a": 200, "b": 200, "random_state": 0, "transform_max_iter": 200}
    literal = OnlineNMF(5, scale="none", **steps)
    with pytest.warns(ConvergenceWarning, match="the steps are too long"):
        literal.fit(X)
    ours = OnlineNMF(5, **steps).fit(X)
    assert literal.scale_ == 1.0
    assert ours.scale_ == pytest.approx(X.mean(), rel=0.1)
    assert ours.loss(X) < 0.1 * literal.loss(X)


@both_methods
def test_nothing_depends_on_the_number_of_samples_to_come(method, rng):
    X = data(200, rng)
    seen = []
    quick(method=method, shuffle=False, callbacks=[lambda p: seen.append(p.W)]).fit(X)
    short = quick(method=method, shuffle=False).fit(X[:40])
    np.testing.assert_array_equal(seen[1], short.components_)


@both_methods
@pytest.mark.parametrize("init", INITS)
def test_more_atoms_than_samples_or_features_work(init, method, rng):
    X = data(10, rng, n_features=4)
    for form in (X, scipy.sparse.csr_matrix(X)):
        model = quick(method=method, n_components=15, init=init).fit(form)
        assert model.transform(X).shape == (10, 15)


@both_methods
@pytest.mark.parametrize("name", ["kl", "is", "squared_l2", "huber", "l1"])
def test_one_atom_and_one_feature_and_one_sample_work(name, method, rng):
    assert quick(name, method, n_components=1).fit(data(20, rng)).transform(data(5, rng)).shape == (5, 1)
    assert quick(name, method).fit(data(20, rng, n_features=1)).components_.shape == (3, 1)
    assert quick(name, method).fit(data(1, rng)).n_samples_seen_ == 1


@both_methods
def test_a_users_own_divergence_works_with_value_and_derivative_alone(method, rng):
    X = data(100, rng)
    model = quick(LogCosh(), method, init="uniform", max_passes=5, a=20, b=200).fit(X)
    assert model.loss(X) < start(LogCosh(), init="uniform").fit(X).loss(X)
    Y = model.inverse_transform(model.transform(X))
    assert model.loss(X) == pytest.approx(np.log(np.cosh(X - Y)).sum(axis=1).mean(), rel=1e-9)


@both_methods
@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_partial_fit_is_fit_with_a_generator_too(kind, method, rng):
    X = data(40, rng)
    whole, pieces = (quick(method=method, random_state=kind(5), shuffle=False) for _ in range(2))
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
        model.set_params(power=1.0, init="kmeans++")
        np.testing.assert_array_equal(model.transform(X), before)


@pytest.mark.parametrize("init", ["uniform", "kmeans++"])
def test_steps_that_are_too_long_are_told_with_the_cure(init, rng):
    X = data(400, rng)
    with pytest.warns(ConvergenceWarning, match=r"the steps are too long for these data. Take a \(20000\) ten times"):
        quick("kl", "paper", init=init, a=2e4, b=2e4).fit(X)


def test_the_fast_methods_have_no_step_that_could_be_too_long(rng):
    X = data(400, rng)
    one, other = (quick("kl", a=a, b=b).fit(X).components_ for a, b in ((2e4, 2e4), (2.0, 200.0)))
    np.testing.assert_array_equal(one, other)


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
