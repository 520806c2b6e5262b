"""Settings that change while a model learns: they take effect, or are refused by name, and every file can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import onmf
from onmf import OnlineNMF, Sets, divergences, methods
from onmf.divergences import Mahalanobis

from .conftest import require_same_learning

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::onmf.DomainWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numbers out of all proportion
]

X = np.random.default_rng(0).gamma(2.0, 1.0, (24, 3)) @ np.random.default_rng(1).random((3, 8))
SPARSE = scipy.sparse.csr_matrix(X * (np.quantile(X, 0.9) < X))
BEGUN: dict[str, tuple[dict[str, Any], Any]] = {
    "auto": ({}, X),
    "auto, sparse": ({}, SPARSE),
    "em": ({"method": "em:tau=5"}, SPARSE),
    "surrogate, sparse": ({"method": "surrogate", "divergence": "squared_l2"}, SPARSE),
    "sparse surrogate": ({"method": "sparse_surrogate:forgetting=0.1"}, SPARSE),
    "paper": ({"method": "paper"}, X),
    "canonical": ({"method": "paper:step=canonical"}, X),
    "lefevre": ({"divergence": "is", "method": "lefevre:N=60"}, X),
    "guan": ({"divergence": "squared_l2", "method": "guan"}, X),
    "wang": ({"divergence": "huber:.5", "method": "wang:max_iter=20"}, X),
    "huber": ({"divergence": "huber", "sets": Sets(0, 0, 1e3)}, X),
    "matrix": ({"divergence": Mahalanobis(np.eye(8))}, X),
    "reservoir": ({"divergence": "beta:1.5", "reservoir": 5}, X),
    "known": ({"fixed": np.ones((1, 8))}, X),
    "simplex": ({"coefficients": "simplex"}, X),
}
PENALTIES = ("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary")
ODD = (0, 3, 0.5, None, True, 1e300, np.nan, "canonical")
VALUES: dict[str, tuple[Any, ...]] = {
    "n_components": (1, 2, 4, 3.0, True, None, "x", 10**30),
    "divergence": (
        *(f"{name}{tail}" for name in divergences.names() for tail in ("", ":1.5")),
        *(Mahalanobis(2 * np.eye(8)), Mahalanobis(np.eye(5)), 5),
    ),
    "method": (*methods.names(), "em:tau=7", "surrogate:max_memory=0", "surrogate:tau=3", "paper:c=1", 5),
    "scale": ("mean", "none", "x", None),
    "clip": (None, (0, 1), (2, 1), "x", (0, np.inf), [0, 9], (0, 1, 2)),
    "coefficients": ("nonnegative", "simplex", "x", None, 3),
    "missing": (None, "nan", "x", 3),
    "implicit": ("zero", "missing", "x", None),
    **dict.fromkeys(PENALTIES, (0, 1e-3, 1e9, 1e308, -1, np.inf, "x", None, np.float32(1))),
    "sets": (None, Sets(), Sets(eps=0.5), Sets(0, 0, 1), Sets(eps_prime=0.5), Sets(U=1e-3), Sets(eps_prime=1e7), "x"),
    "reservoir": (0, 1, 5, 7, -1, None, "x"),
    "init": ("uniform", "x", None, np.ones((3, 8)), np.ones((2, 2)), np.full((3, 8), np.nan), 7, [[1, 2], [3]]),
    "fixed": (None, np.ones((1, 8)), np.ones((2, 2)), np.ones((4, 8)), np.full((1, 8), np.nan), np.eye(8)[:2], "x", 7),
    "batch_size": (0, 7, None, "x", 1.5, 10**30),
    "max_passes": (0, 7, None, "x", 1.5, 10**30),
    "shuffle": (True, False, None, 1),
    "on_error": ("raise", "skip", "x", None),
    "features": ("auto", "fixed", "grow", "x", None),
    "max_features": (1, 8, 0, "x", None),
    "n_init": (1, 3, 0, "x", None),
    "shards": (None, 1, 8, 0, 1.5, "x"),
    "device": (None, "tpu", 3),
    "transform_tol": (0, 1e-2, -1, np.inf, "x"),
    "transform_max_iter": (0, 7, None, "x"),
    "random_state": (None, 3, -1, "x", np.random.default_rng(0), 2**70),
    "callbacks": (None, [], "x", [3]),
    "verbose": (0, None, "x", 1.5),
}
KEPT = {
    "n_components",
    "divergence",
    "scale",
    "clip",
    "coefficients",
    "reservoir",
    "fixed",
    *PENALTIES,
}  # as learnt with


def changes(begun: OnlineNMF, case: int) -> Iterator[tuple[str, Any]]:
    """Each value in a third of the cases, and all constants of the method in use."""
    for number, (name, value) in enumerate((name, value) for name, values in VALUES.items() for value in values):
        if (number + case) % 3 == 0:
            yield name, value
    constants = [name for name in begun.get_params() if name.startswith("method__")]
    yield from ((name, value) for name in constants for value in ODD)


def test_every_parameter_is_tried() -> None:
    assert VALUES.keys() == OnlineNMF().get_params(deep=False).keys()


@pytest.mark.parametrize("case", BEGUN)
def test_a_setting_that_changes_works_or_is_refused_by_name(case: str, tmp_path: Path) -> None:
    settings, data = BEGUN[case]
    settings = {"n_components": 3, "random_state": 0} | settings
    before = OnlineNMF(**settings).partial_fit(data)
    onmf.save(before, tmp_path / "before")
    learned = before._learned
    for name, value in changes(before, list(BEGUN).index(case)):
        model, part = OnlineNMF(**settings), name.partition("__")[0]
        model._learned = learned
        try:
            model.set_params(**{name: value})
            model.partial_fit(data)
        except (ValueError, TypeError) as error:
            words = str(error)
            assert model._learned is learned
            named = {part, name.partition("__")[2] or part, "eps", *divergences.names(), "batch makes the dictionary"}
            assert any(each in words for each in named), (name, value, words)
        else:
            onmf.save(model, tmp_path / "after")
            assert np.isfinite(onmf.load(tmp_path / "after").transform(data)).all(), (name, value)
            if name in KEPT:
                meant = ({"divergence": divergences.get} | dict.fromkeys(PENALTIES, float)).get(
                    name, lambda given: given
                )
                assert repr(meant(value)) == repr(meant(model.set_params(**settings).get_params()[name])), (name, value)
    require_same_learning(onmf.load(tmp_path / "before"), before)  # whatever went on from it


def test_the_set_of_dictionaries_stays_and_that_of_coefficients_may_change() -> None:
    model = OnlineNMF(3, random_state=0).partial_fit(X)
    with pytest.raises(
        ValueError, match="eps of sets cannot be changed while a model learns; keep it, or begin a new model"
    ):
        model.set_params(sets=Sets(eps=0.5)).partial_fit(X)
    model.set_params(sets=Sets(eps_prime=1e-6)).partial_fit(X)


def test_settings_that_change_before_a_resume_are_refused_by_name(tmp_path: Path) -> None:
    model = OnlineNMF(3, random_state=0).fit(X, checkpoint=tmp_path / "run")
    changes = (
        {"n_components": 4},
        {"method__forgetting": 0.1},
        {"sets__eps": 0.1},
        {"l2_coefficients": 1.0},
        {"init": "x"},
    )
    for change in changes:
        name = next(iter(change)).partition("__")[0]
        with pytest.raises(ValueError, match=name):
            OnlineNMF(3, random_state=0).set_params(**change).fit(X, checkpoint=tmp_path / "run", resume=True)
    model.fit(X, checkpoint=tmp_path / "run", resume=True)
