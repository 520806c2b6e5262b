"""The course of learning: batch by batch or in one go, what may change on the way, and what an error leaves behind."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, DomainWarning, OnlineNMF, Progress, Sets
from onmf.data import Rows
from onmf.divergences import Huber, Mahalanobis
from onmf.methods import EM, Canonical, Paper, Surrogate
from onmf.model.sets import DictionarySet
from tests.conftest import F
from tests.small import both_methods, data, quick

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


# partial_fit is fit: test_methods.py has it for every method and divergence


@pytest.mark.parametrize(("name", "method"), [("kl", "em"), ("kl", "auto"), ("squared_l2", "auto")])
@pytest.mark.parametrize("reservoir", [0, 10])
def test_partial_fit_is_fit_on_sparse_data_too(name, method, reservoir, rng):
    X = scipy.sparse.csr_matrix(rng.poisson(0.1, (50, F)).astype(float))
    whole = quick(name, method, shuffle=False, reservoir=reservoir).fit(X)
    pieces = quick(name, method, reservoir=reservoir)
    for first in range(0, 50, 20):
        pieces.partial_fit(X[first : first + 20])
    np.testing.assert_array_equal(whole.components_, pieces.components_)


@both_methods
@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_random_states_of_all_kinds_seed_fit_and_partial_fit_alike(kind, method, rng):
    X = data(40, rng)
    one, other, pieces = (quick(method=method, random_state=kind(5), shuffle=False) for _ in range(3))
    np.testing.assert_array_equal(one.fit(X).components_, other.fit(X).components_)
    pieces.partial_fit(X[:20]).partial_fit(X[20:])
    np.testing.assert_array_equal(one.components_, pieces.components_)


def test_without_a_seed_every_run_is_another(rng):
    X = data(40, rng)
    assert not np.array_equal(*(quick(random_state=None).fit(X).components_ for _ in range(2)))


# What callbacks and history tell


def test_history_has_one_entry_a_batch(rng):
    history = quick(max_passes=2).fit(data(50, rng)).history_
    assert history["samples"].tolist() == [20, 40, 50, 70, 90, 100]
    assert (np.diff(history["seconds"]) > 0).all()
    assert np.isfinite(history["loss"]).all()
    assert {len(column) for column in history.values()} == {6}


def test_callbacks_see_every_batch_and_may_end_the_run(rng):
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return progress.samples >= 60

    model = quick(callbacks=[watch], max_passes=10).fit(data(50, rng))
    assert [p.samples for p in seen] == [20, 40, 50, 70]
    assert seen[-1].total == 500
    assert model.n_iter_ == 2
    np.testing.assert_array_equal(seen[-1].W, model.components_)


# What may change on the way


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"n_components": 4}, "n_components"),
        ({"divergence": "is"}, "divergence"),
        ({"divergence": "alpha:2"}, "divergence"),
        ({"clip": (0.0, 2.0)}, "clip"),
        ({"scale": "none"}, "scale"),
        ({"reservoir": 5}, "reservoir"),
    ],
)
def test_what_cannot_change_while_a_model_learns_is_refused(changed, name, rng):
    X = data(20, rng)
    model = quick().partial_fit(X)
    before = model._learned
    with pytest.raises(
        ValueError,
        match=rf"^{name} cannot be changed while a model learns; keep it, or begin a new model\.$",
    ):
        model.set_params(**changed).partial_fit(X)
    assert model._learned is before
    assert np.isfinite(model.fit(X).components_).all()  # fit takes it


@pytest.mark.parametrize(
    ("given", "changed", "same"),
    [
        ("huber", "huber:3", False),
        ("huber:3", "huber", False),
        ("huber:3", "huber:2", False),
        ("huber:3", Huber(3.0), True),
        ("kl", "beta:1", True),
        (Mahalanobis(np.eye(F)), Mahalanobis(np.eye(F)), True),
        (Mahalanobis(np.eye(F)), Mahalanobis(2 * np.eye(F)), False),
    ],
    ids=str,
)
def test_a_divergence_has_changed_if_its_parameters_have(given, changed, same, rng):
    X = data(20, rng)
    model = quick(given).partial_fit(X).set_params(divergence=changed)
    if same:
        assert model.partial_fit(X).n_samples_seen_ == 40
    else:
        with pytest.raises(ValueError, match="divergence cannot be changed"):
            model.partial_fit(X)


@pytest.mark.parametrize(("before", "after"), [("auto", "paper"), ("paper", "auto"), ("surrogate", "em")])
def test_another_method_is_refused_in_mid_stream(before, after, rng):
    X = data(20, rng)
    model = quick(method=before).partial_fit(X)
    kept = model._learned
    with pytest.raises(ValueError, match=r"begun with method '\w+' and cannot continue with '\w+'; keep it"):
        model.set_params(method=after).partial_fit(X)
    assert model._learned is kept
    assert model.set_params(method=kept.method).partial_fit(X).n_samples_seen_ == 40


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        (Paper(step=Canonical(a=2, b=200)), {"method__solver": "armijo-literal"}),
        (Paper(step=Canonical(a=2, b=200)), {"method": "paper:step=canonical,a=2,b=200,tau=2"}),
        (Paper(), {"method": "paper:tau=2"}),
        (Surrogate(), {"method__max_iter": 20}),
        (EM(), {"method__tau": 3}),
        (Surrogate(), {"sets__eps_prime": 0.5}),
        (EM(), {"sets": Sets(eps_prime=0.5)}),
        ("auto", {"method__tau": 3}),
        ("auto", {"method": Surrogate(max_iter=20)}),
    ],
    ids=str,
)
def test_constants_of_the_method_and_sets_may_change_and_take_effect(method, changed, rng):
    X = data(60, rng)
    as_before, other = (quick(method=method).partial_fit(X[:20]) for _ in range(2))
    other.set_params(**changed)
    for rows in (slice(20, 40), slice(40, 60)):
        as_before.partial_fit(X[rows]), other.partial_fit(X[rows])
    assert not np.array_equal(as_before.components_, other.components_)
    assert DictionarySet(other.get_params()["sets__eps"]).contains(other.components_)


# What an error or an interrupt leaves behind


class SomebodysError(RuntimeError):
    """Not one of the library's."""


def broken(X: np.ndarray, error: BaseException) -> Iterator[np.ndarray]:
    yield X[:20]
    raise error


def fails(error: BaseException, after: int = 1) -> Callable[[Progress], None]:
    calls = []

    def callback(_: Progress) -> None:
        calls.append(1)
        if len(calls) > after:
            raise error

    return callback


def frame(X: np.ndarray, name: str) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"{name}{f}" for f in range(X.shape[1])])


SPOILT: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "negative": lambda model, X: model.fit(-X[:, :5]),
    "other names, then NaN": lambda model, X: model.fit(frame(X, "other") * np.nan),
    "zeros": lambda model, X: model.fit(0 * X),
    "a setting": lambda model, X: model.set_params(init="magic").fit(X),
    "a callback": lambda model, X: model.set_params(callbacks=[fails(SomebodysError())]).fit(X),
    "a source": lambda model, X: model.fit(broken(X, SomebodysError())),
    "a bad batch later": lambda model, X: model.fit(iter([X[:20], -X[20:]])),
    "partial_fit": lambda model, X: model.partial_fit(frame(-X, "word")),
    "partial_fit, other names": lambda model, X: model.partial_fit(frame(X, "other")),
    "partial_fit, fewer features": lambda model, X: model.partial_fit(frame(X[:, :5], "word")),
    "partial_fit, a setting": lambda model, X: model.set_params(n_components=4).partial_fit(frame(X, "word")),
    "partial_fit, a callback": lambda model, X: model.set_params(callbacks=[fails(SomebodysError(), 0)]).partial_fit(
        frame(X, "word")
    ),
}


ONLINE_ONLY = ("partial_fit", "a source", "a bad batch")
BY_MODEL = [(kind, OnlineNMF) for kind in SPOILT] + [
    (kind, BatchNMF) for kind in SPOILT if not kind.startswith(ONLINE_ONLY)
]
every_error = pytest.mark.parametrize(("kind", "Model"), BY_MODEL, ids=[f"{kind}-{M.__name__}" for kind, M in BY_MODEL])


def fresh(Model: type[OnlineNMF | BatchNMF]) -> OnlineNMF | BatchNMF:
    return quick() if Model is OnlineNMF else BatchNMF(3, max_iter=5, tol=0, random_state=0)


@every_error
def test_an_error_leaves_the_model_exactly_as_it_was(kind, Model, rng):
    X = data(60, rng)
    model = fresh(Model).fit(frame(X, "word"))
    before, bytes_before = model._learned, pickle.dumps(model._learned)
    with pytest.raises((ValueError, SomebodysError)):
        SPOILT[kind](model, X)
    assert model._learned is before
    assert pickle.dumps(model._learned) == bytes_before  # nor was anything in it overwritten
    assert model.n_features_in_ == F
    assert model.feature_names_in_[0] == "word0"


@every_error
def test_an_error_leaves_a_model_that_has_learnt_nothing_without_anything(kind, Model, rng):
    if kind in ("partial_fit, other names", "partial_fit, fewer features", "partial_fit, a setting"):
        return  # to such a model these are none
    model = fresh(Model)
    with pytest.raises((ValueError, SomebodysError)):
        SPOILT[kind](model, data(60, rng))
    assert model._learned is None
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
@pytest.mark.filterwarnings("error::onmf.DomainWarning")
def test_a_warning_that_is_an_error_leaves_the_model_as_it_was(call, rng):
    X = data(20, rng)
    X[0, 0] = 0
    model = quick("is")
    with pytest.raises(DomainWarning):
        getattr(model, call)(X)
    assert model._learned is None


@pytest.mark.parametrize("where", ["callback", "source", "partial_fit"])
def test_an_interrupt_keeps_what_was_learnt(where, rng):
    X = data(60, rng)
    model, expected = quick(shuffle=False), quick(shuffle=False)
    learn = {
        "callback": lambda: model.set_params(callbacks=[fails(KeyboardInterrupt())]).fit(X),
        "source": lambda: model.fit(broken(X, KeyboardInterrupt())),
        "partial_fit": lambda: model.set_params(callbacks=[fails(KeyboardInterrupt(), 0)]).partial_fit(X[:20]),
    }
    with pytest.raises(KeyboardInterrupt):
        learn[where]()
    seen = 40 if where == "callback" else 20
    assert model.n_samples_seen_ == seen
    for first in range(0, seen, 20):
        expected.partial_fit(X[first : first + 20])
    np.testing.assert_array_equal(model.components_, expected.components_)
    model.set_params(callbacks=None).partial_fit(X[seen:])  # and learning can go on


def test_an_interrupt_of_a_batch_fit_keeps_the_last_iteration(rng):
    X = data(60, rng)
    model = BatchNMF(3, callbacks=[fails(KeyboardInterrupt(), 4)], random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    expected = BatchNMF(3, max_iter=4, tol=0, random_state=0).fit(X)
    assert model.n_iter_ == 4
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.coefficients_, expected.coefficients_)


def test_an_interrupt_before_anything_is_learnt_leaves_the_model_as_it_was(rng):
    X = data(60, rng)
    model = quick().fit(X)
    before = model._learned

    def batches() -> Iterator[np.ndarray]:
        raise KeyboardInterrupt
        yield X

    with pytest.raises(KeyboardInterrupt):
        model.fit(batches())
    assert model._learned is before


def test_the_first_bad_row_is_named_by_its_number_in_a_shuffled_source(rng):
    X = data(60, rng)
    X[3, 1] = X[50, 0] = -1
    for seed in range(5):
        with pytest.raises(DataError, match="row 3, column 1"):
            quick(random_state=seed, batch_size=60).fit(Rows(X))
