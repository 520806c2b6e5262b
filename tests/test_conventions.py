"""scikit-learn's conventions, for both estimators: parameters, fitted attributes, output, copies, searches."""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.decomposition
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from onmf import BatchNMF, OnlineNMF, Sets
from onmf.divergences import Huber, Separable
from onmf.methods import Auto, Paper, SparseSurrogate, Surrogate
from reproduction.earlier_methods import Wang
from tests.conftest import F, require_scikit_learns_check, spread
from tests.small import data, quick, small

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def batch(divergence: str = "kl", **settings: Any) -> BatchNMF:
    return BatchNMF(3, divergence=divergence, **({"max_iter": 20, "random_state": 0} | settings))


both = pytest.mark.parametrize("make", [quick, batch])


# All of them for the two defaults, half for others, which are of their own kind; other methods: test_methods.py.
CHECKS = [list(estimator_checks_generator(each)) for each in (OnlineNMF(), batch())]
OTHERS = [list(estimator_checks_generator(each)) for each in (quick("l2", small("paper", tau=3)), quick("huber"))]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for checks in CHECKS for pair in checks]
    + [checks[place] for checks, place in spread(OTHERS, range(len(OTHERS[0])), 2)],
    ids=lambda part: type(part).__name__ if isinstance(part, BaseEstimator) else part.func.__name__,
)
def test_scikit_learns_checks_pass(estimator, check):
    require_scikit_learns_check(estimator, check)


# Parameters


def test_the_constants_of_method_divergence_and_sets_are_parameters_too():
    deep = quick("huber:2", Paper(tau=5)).get_params(deep=True)
    assert (deep["method__tau"], deep["divergence__delta"], deep["sets__eps"]) == (5, 2.0, 1e-8)
    assert quick("kl", "em:tau=200").get_params()["method__tau"] == 200
    assert not [name for name in quick().get_params(deep=False) if "__" in name]
    assert batch().get_params()["sets__U"] == 1e8
    assert not [name for name in batch().get_params() if name.startswith("method")]


def test_setting_a_constant_replaces_the_part_and_leaves_that_of_others_alone():
    method, sets = Paper(tau=5, tol=0.1), Sets(eps=1e-3)
    model = OnlineNMF(3, method=method, divergence="huber", sets=sets)
    model.set_params(method__tau=9, divergence__delta=2.0, sets__eps=1e-2)
    assert (model.method, model.divergence, model.sets) == (Paper(tau=9, tol=0.1), Huber(2.0), Sets(eps=1e-2))
    assert (method, sets) == (Paper(tau=5, tol=0.1), Sets(eps=1e-3))
    assert model.set_params(method="paper", method__tau=5).method == Paper(tau=5)
    assert model.set_params(method__tau=6, method="auto").method == Auto(tau=6)  # in any order
    assert batch().set_params(sets__eps=1e-2).sets == Sets(eps=1e-2)


@pytest.mark.parametrize("backwards", [False, True])
def test_constants_that_allow_each_other_can_be_set_together_in_any_order(backwards):
    together = {"sets__eps_prime": 1e9, "sets__U": 1e10}
    order = list(together.items())
    model = OnlineNMF(3).set_params(**dict(order[::-1] if backwards else order))
    assert {name: model.get_params()[name] for name in together} == together


@pytest.mark.parametrize(
    ("model", "params", "words"),
    [
        (
            quick("kl", "em"),
            {"method__a": 5},
            r"method 'em' has no constant 'a'; its constants are tau, forgetting, max_iter, certified\.",
        ),
        (quick("huber"), {"divergence__alpha": 5}, r"divergence Huber.* has no constant 'alpha'; it has delta\."),
        (quick("kl"), {"divergence__delta": 5}, r"has no constant 'delta'; it has none\."),
        (quick(), {"sets__V": 5}, r"sets Sets\(.*\) has no constant 'V'; it has eps, eps_prime, U\."),
        (quick(), {"init__x": 5}, r"init has no constants to set\."),
        (quick(), {"divergence": "magic", "divergence__delta": 5}, r"divergence has no constants to set\."),
        (quick(), {"tau": 5}, "Invalid parameter 'tau'"),
        (quick(), {"magic__tau": 5}, "Invalid parameter 'magic'"),
        (batch(), {"method__tau": 5}, "Invalid parameter 'method'"),
        (quick(), {"method__tau": 0}, "tau must be .*at least 1"),
        (quick(), {"sets__eps": 1.0}, "eps must lie in"),
    ],
    ids=str,
)
def test_unknown_parameters_and_constants_are_refused_by_name_with_the_list(model, params, words):
    with pytest.raises(ValueError, match=words):
        clone(model).set_params(**params)


def test_a_divergence_that_is_no_dataclass_has_no_constants():
    class Own(Separable):
        def d(self, xp, x, y):
            return (x - y) ** 2

        def dy(self, xp, x, y):
            return 2 * (y - x)

    model = OnlineNMF(3, divergence=Own())
    assert not [name for name in model.get_params() if name.startswith("divergence__")]
    with pytest.raises(ValueError, match="divergence has no constants to set"):
        model.set_params(divergence__x=1)


@pytest.mark.parametrize(
    "text", ["paper:b", "paper:b=", "paper:magic=3", "paper:tau=0", "paper:,", "em:forgetting=x", "magic:tau=3"]
)
def test_a_method_written_wrongly_is_refused(text, rng):
    with pytest.raises(ValueError, match=r"NAME=VALUE|no constant 'magic'; its constants are tau, step|must|unknown"):
        quick(method=text).fit(data(30, rng))


def test_a_search_goes_over_the_constants_of_a_method_in_a_pipeline(rng):
    X = data(60, rng)
    pipeline = Pipeline([("scale", MaxAbsScaler()), ("nmf", quick())])
    search = GridSearchCV(pipeline, {"nmf__n_components": [1, 3], "nmf__method__tau": [5, 10]}, cv=2).fit(X)
    assert search.best_params_["nmf__n_components"] == 3
    assert search.best_estimator_["nmf"].method_.tau == search.best_params_["nmf__method__tau"]


# Copies


@both
def test_clones_pickles_and_joblib_files_are_the_model(make, rng, tmp_path):
    X = data(60, rng)
    model = make("beta:1.5", sets=Sets(eps=1e-3)).fit(X)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "components_")
    np.testing.assert_array_equal(clone(model).fit(X).components_, model.components_)
    joblib.dump(model, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):  # noqa: S301
        np.testing.assert_array_equal(copy.transform(X), model.transform(X))
        if make is quick:
            copy.partial_fit(X)
            np.testing.assert_array_equal(copy.components_, clone(model).fit(X).partial_fit(X).components_)


def test_an_unfitted_model_can_be_copied_too():
    model = pickle.loads(pickle.dumps(quick("huber", "paper")))  # noqa: S301
    assert model.get_params() == quick("huber", "paper").get_params()


def test_a_model_shows_what_is_not_default():
    assert repr(OnlineNMF(3, method=Paper(tau=5))) == "OnlineNMF(method=Paper(tau=5), n_components=3)"
    assert repr(BatchNMF(3, tol=0)) == "BatchNMF(n_components=3, tol=0)"
    assert "Paper(tau=5)" in OnlineNMF(3, method=Paper(tau=5))._repr_html_()


# Fitted attributes

SHARED = ["components_", "n_components_", "divergence_", "scale_", "n_samples_seen_", "history_", "delta_", "n_iter_",
          "reconstruction_err_", "n_features_in_", "feature_names_in_"]  # fmt: skip
ATTRIBUTES = [
    *((quick, name) for name in [*SHARED, "method_", "n_steps_"]),
    *((batch, name) for name in [*SHARED, "coefficients_", "converged_"]),
]


@pytest.mark.parametrize(("make", "name"), ATTRIBUTES)
def test_a_fitted_attribute_is_there_after_fit_only_and_cannot_be_set(make, name, rng):
    model = make("huber")
    with pytest.raises(AttributeError, match=f"^{name} is available only after "):
        getattr(model, name)
    model.fit(pd.DataFrame(data(40, rng), columns=[f"word{f}" for f in range(F)]))
    assert getattr(model, name) is not None
    with pytest.raises(AttributeError):
        setattr(model, name, 1)


@both
def test_attributes_that_the_data_do_not_give_are_not_there(make, rng):
    model = make("kl").fit(data(40, rng))
    with pytest.raises(AttributeError, match="delta_ is available only after a fit with the divergence huber"):
        model.delta_  # noqa: B018
    with pytest.raises(AttributeError, match="feature_names_in_ is available only after a fit on data with names"):
        model.feature_names_in_  # noqa: B018


@both
@pytest.mark.parametrize("call", ["transform", "inverse_transform", "loss", "score", "stationarity", "proportions"])
def test_a_model_that_has_learnt_nothing_can_do_nothing(make, call, rng):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(make(), call)(data(5, rng))
    with pytest.raises(NotFittedError):
        make().get_feature_names_out()


@both
def test_the_attributes_are_what_they_say(make, rng):
    X = data(50, rng)
    model = make().fit(X)
    assert model.n_components_ == 3
    assert model.components_.shape == (3, F)
    assert model.n_features_in_ == F
    assert model.n_samples_seen_ == (50 if make is quick else 50 * model.n_iter_)
    assert make("huber:2").fit(X).delta_ == pytest.approx(2.0)
    assert make("huber").fit(X).delta_ > 0


def test_the_method_in_use_is_known():
    dense, sparse = np.ones((40, F)), np.eye(40, F) + np.eye(40, F, -F)
    assert quick().fit(dense).method_ == Surrogate()
    assert quick().fit(sparse).method_ == SparseSurrogate()
    assert quick("huber").fit(sparse).method_ == Surrogate()
    assert quick("huber", Wang(eta=0.02)).fit(dense).method_ == Wang(eta=0.02)


# The error of reconstruction


@pytest.mark.parametrize(("name", "loss"), [("kl", "kullback-leibler"), ("squared_l2", "frobenius")])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
def test_the_error_of_reconstruction_is_scikit_learns(name, loss, form, rng):
    X = form(data(40, rng))
    W = rng.random((3, F))
    settings = {"init": W, "tol": 0, "solver": "multiplicative"}
    ours = batch(name, max_iter=10, **settings).fit(X)
    start = batch(name, max_iter=1, callbacks=[lambda _: True], **settings).fit(X)
    theirs = sklearn.decomposition.NMF(3, init="custom", solver="mu", beta_loss=loss, max_iter=10, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit_transform(X, W=start.coefficients_.copy(), H=start.components_.copy())
    assert ours.reconstruction_err_ == pytest.approx(theirs.reconstruction_err_, rel=1e-6)


@both
@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber:2"])
def test_after_several_passes_the_error_of_reconstruction_is_that_of_the_loss(make, name, rng):
    X = data(130, rng)  # the last batch is a short one
    X[-10:] *= 5
    model = make(name, **({"max_passes": 30, "shuffle": False} if make is quick else {"max_iter": 2000})).fit(X)
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * len(X) * model.loss(X)), rel=0.1)


# Output


@both
def test_data_frames_come_out_with_components_as_columns(make, rng):
    X = data(40, rng)
    frame = pd.DataFrame(X, columns=[f"word{f}" for f in range(F)], index=[f"doc{n}" for n in range(40)])
    model = make().fit(frame)
    H = model.transform(frame)
    columns = ["component_0", "component_1", "component_2"]
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.get_feature_names_out().tolist() == columns
    out = model.set_output(transform="pandas").transform(frame)
    assert (list(out.index), list(out.columns)) == (list(frame.index), columns)
    np.testing.assert_array_equal(out.to_numpy(), H)
    parts = model.proportions(frame)  # these are an array in any case
    np.testing.assert_allclose(parts.sum(axis=1), 1)
    np.testing.assert_allclose(model.inverse_transform(out), H @ model.components_)
    other = model.set_output(transform="polars").transform(frame)
    assert isinstance(other, pl.DataFrame)
    assert other.columns == columns
    np.testing.assert_array_equal(model.proportions(frame), parts)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame.rename(columns={"word0": "other"}))


@both
@pytest.mark.parametrize("name", ["kl", "squared_l2"])
def test_proportions_sum_to_one_whatever_the_units_of_the_components(make, name, rng):
    X = data(40, rng)
    model = make(name, transform_tol=1e-10).fit(X)
    parts = model.proportions(X)
    assert (parts >= 0).all()
    np.testing.assert_allclose(parts.sum(axis=1), 1)
    learned = model._learned
    W = learned.state.W * np.array([[0.5], [0.1], [1.0]])
    model._learned = replace(learned, state=replace(learned.state, W=W))
    np.testing.assert_allclose(model.proportions(X), parts, atol=1e-4)
    np.testing.assert_allclose(model.proportions(7 * X), parts, atol=1e-4)


@both
@pytest.mark.parametrize("sets", [Sets(), Sets(eps=0.0, eps_prime=0.0)], ids=str)
def test_proportions_of_samples_of_zeros_are_nan_and_those_of_others_sum_to_one(make, sets, rng):
    X = data(40, rng)
    X[3] = 0
    with pytest.warns(UserWarning, match="1 of 40 samples have no entry above zero"):
        sums = make("squared_l2", sets=sets).fit(X).proportions(X).sum(axis=1)
    assert np.flatnonzero(np.isnan(sums)).tolist() == [3]
    np.testing.assert_allclose(np.delete(sums, 3), 1)


# What it prints


@both
def test_nothing_is_printed_unless_verbose(make, rng, capsys):
    make().fit(data(40, rng))
    assert capsys.readouterr() == ("", "")


@both
@pytest.mark.parametrize("verbose", [1, True, 2])
def test_verbose_prints_lines_of_progress(make, verbose, rng, capsys):
    model = make(verbose=verbose).fit(data(40, rng))
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[onmf] ") and "samples" in line and "loss" in line for line in lines)
    steps = len(model.history_["loss"])
    assert len(lines) == steps if verbose == 2 else 2 <= len(lines) <= steps  # else: the first and the last, at least
    total = 40 if make is quick else 40 * 20
    assert f"{total:,} of {total:,} samples" in lines[-1]


def test_verbose_goes_with_callbacks_and_partial_fit(rng, monkeypatch):
    out, seen = io.StringIO(), []
    monkeypatch.setattr("sys.stdout", out)
    quick(verbose=2, callbacks=[seen.append]).partial_fit(data(20, rng))
    assert len(seen) == len(out.getvalue().splitlines()) == 1
    assert "20 samples" in out.getvalue()
