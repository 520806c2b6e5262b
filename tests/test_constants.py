"""The constants of methods, as text, objects and parameters; and no setting is silently without effect."""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from onmf import OnlineNMF, Sets, coefficients, methods
from onmf.divergences import Divergence, Huber
from onmf.methods import EM, Adaptive, Auto, Canonical, Choice, Paper, Surrogate
from onmf.methods.steps import Step
from reproduction import earlier_methods
from reproduction.earlier_methods import Guan, Lefevre, Wang
from tests.learning import F, data, quick, small, sparse_counts

pytestmark = [
    pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::onmf.DomainWarning"),
    pytest.mark.filterwarnings("ignore:The loss:sklearn.exceptions.ConvergenceWarning"),
]
every_name = pytest.mark.parametrize("name", methods.names())


# Text and objects


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("paper", Paper()),
        ("Paper", Paper()),
        ("paper:tau=5,solver=armijo", Paper(tau=5, solver="armijo")),
        ("paper:step=canonical", Paper(step=Canonical())),
        (
            "paper: tau = 5 , a=2e2,any_power=True,power=2,step=Canonical",
            Paper(tau=5, step=Canonical(a=200, any_power=True, power=2)),
        ),
        ("paper:c=0.5,b=200,trial_samples=100", Paper(step=Adaptive(b=200, c=0.5, trial_samples=100))),
        ("paper:trial_samples=100,step=adaptive,tau=5,c=none", Paper(tau=5, step=Adaptive(trial_samples=100))),
        ("paper:max_iter=none,delta_tol=0.5,solver=polyak", Paper(delta_tol=0.5, solver="polyak")),
        ("auto:forgetting=0.1", Auto(forgetting=0.1)),
        ("em:tau=1e2", EM(tau=100)),
        ("surrogate:max_memory=0", Surrogate(max_memory=0)),
        ("lefevre:r=.5,N=30", Lefevre(r=0.5, N=30)),
        ("guan:seed=3", Guan(seed=3)),
        ("wang:gamma=1e-3", Wang(gamma=0.001)),
    ],
)
def test_constants_are_written_after_the_name(text: str, meant: Choice) -> None:
    assert methods.get(text) == meant
    assert methods.get(meant) is meant


@pytest.mark.parametrize("text", ["paper:", "paper:tau", "paper:tau=", "paper:tau=5,", "paper:5"])
def test_text_that_is_no_list_of_constants_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(ValueError, match="write constants as NAME=VALUE with commas between"):
        methods.get(text)


@every_name
def test_an_unknown_constant_is_refused_by_name_with_the_list(name: str) -> None:
    known = ", ".join(field.name for field in dataclasses.fields(methods.find(name)))
    message = f"method '{name}' has no constant 'magic'; its constants are {known}"
    for attempt in (
        lambda: methods.get(f"{name}:magic=1"),
        lambda: methods.find(name).make({"magic": 1}),
        lambda: methods.get(name).with_constants(magic=1),
        lambda: OnlineNMF(method=name).set_params(method__magic=1),
    ):
        with pytest.raises(ValueError, match=message):
            attempt()


def test_the_constants_of_the_step_can_be_set_like_the_methods() -> None:
    model = OnlineNMF(method="paper").set_params(method__b=200, method__tau=5)
    assert model.method == Paper(tau=5, step=Adaptive(b=200))
    model.set_params(method__step="canonical", method__a=30)
    assert model.method == Paper(tau=5, step=Canonical(a=30))
    assert model.set_params(method__a=40).method == Paper(tau=5, step=Canonical(a=40))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("paper:tau=0", "tau must be .*at least 1"),
        ("paper:tau=2.5", "tau must be a whole number of at least 1"),
        ("paper:step=magic", "unknown step 'magic'; choose one of adaptive, canonical"),
        ("paper:step=3", "step must be one of adaptive, canonical, got 3"),
        ("paper:a=1", "a is a constant of step=canonical; write paper:step=canonical,a="),
        ("paper:step=canonical,a=-1", "needs a > 0"),
        ("paper:step=canonical,b=0", "needs b > 0"),
        ("paper:step=canonical,c=1", "c is a constant of step=adaptive; write paper:step=adaptive,c="),
        ("paper:taw=1", "method 'paper' has no constant 'taw'; its constants are tau, step, .*, b, c, trial_samples"),
        ("paper:step=canonical,power=2", "or set any_power=True"),
        ("paper:step=canonical,any_power=3", "any_power must be True or False"),
        ("paper:b=0", "needs b > 0"),
        ("paper:c=-1", "needs c > 0"),
        ("paper:c=word", "needs c > 0"),
        ("paper:trial_samples=0", "trial_samples must be .*at least 1"),
        ("paper:trial_samples=2.5", "trial_samples must be a whole number"),
        ("paper:solver=magic", "unknown solver 'magic'; choose one of auto, paper, armijo, "),
        ("paper:tol=-1", "tol must be .*at least 0"),
        ("paper:max_iter=0", "max_iter must be .*at least 1"),
        ("paper:delta_tol=-1", "needs delta_tol > 0"),
        ("surrogate:forgetting=1.5", r"forgetting must lie in \[0, 1\)"),
        ("surrogate:max_memory=-1", "max_memory must be .*at least 0"),
        ("surrogate:tol=nan", "tol must be .*at least 0"),
        ("em:forgetting=1", r"forgetting must lie in \[0, 1\)"),
        ("em:max_iter=0", "max_iter must be .*at least 1"),
        ("auto:tau=0", "tau must be .*at least 1"),
        ("auto:forgetting=-1", r"forgetting must lie in \[0, 1\)"),
        ("lefevre:r=0", r"r must lie in \(0, 1\]"),
        ("lefevre:N=0", "N must be .*at least 1"),
        ("guan:buffer=0", "buffer must be .*at least 1"),
        ("guan:theta=-1", "theta must be .*at least 0"),
        ("guan:seed=-1", "seed must be .*at least 0"),
        ("wang:rho=2", r"rho must lie in \[0, 1\]"),
        ("wang:gamma=-1", "gamma must be .*at least 0"),
        ("wang:eta=inf", "eta must be .*at least 0"),
    ],
)
def test_constants_that_cannot_work_are_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OnlineNMF(2, method=text).fit(np.ones((4, 3)))


@every_name
def test_every_constant_refuses_text_that_means_nothing(name: str) -> None:
    for field in dataclasses.fields(methods.find(name)):
        with pytest.raises(ValueError, match=rf"{field.name}|solver|Robbins-Monro"):
            methods.get(f"{name}:{field.name}=word")


@every_name
def test_methods_are_values(name: str) -> None:
    one, other = small(name, tau=7), small(name, tau=8)
    assert one == small(name, tau=7)
    assert hash(one) == hash(small(name, tau=7))
    assert one != other
    assert len({one, small(name, tau=7), other}) == 2
    assert eval(repr(one), vars(methods) | vars(earlier_methods)) == one  # noqa: S307
    assert repr(methods.find(name)()) == f"{methods.find(name).__name__}()"
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    assert one.with_constants(tau=8) == other
    assert one.constants()["tau"] == 7
    assert type(one).make(one.constants()) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.tau = 1


def test_a_class_in_place_of_an_object_is_refused_with_the_cure() -> None:
    with pytest.raises(TypeError, match=r"method is the class Paper; write Paper\(\)"):
        methods.get(Paper)
    with pytest.raises(TypeError, match="method must be a name or a Choice"):
        methods.get(3)


# Parameters


@every_name
def test_constants_are_parameters_of_the_estimator(name: str) -> None:
    model = OnlineNMF(method=name)
    shown = {key: value for key, value in model.get_params().items() if key.startswith("method__")}
    assert shown == {f"method__{key}": value for key, value in methods.get(name).constants().items()}
    model.set_params(method__tau=7)
    assert model.method == methods.get(f"{name}:tau=7")
    model.set_params(method="paper", method__tau=3)
    assert model.method == Paper(tau=3)
    assert clone(model).method == Paper(tau=3)
    assert pickle.loads(pickle.dumps(model)).method == Paper(tau=3)  # noqa: S301


def test_divergences_and_sets_have_parameters_too() -> None:
    model = OnlineNMF(divergence="huber:0.5", sets=Sets(eps=1e-6))
    assert model.get_params()["divergence__delta"] == 0.5
    assert model.get_params()["sets__eps"] == 1e-6
    model.set_params(divergence__delta=0.7, sets__U=10.0)
    assert model.divergence == Huber(0.7)
    assert model.sets == Sets(eps=1e-6, U=10.0)
    with pytest.raises(ValueError, match="has no constant 'magic'; it has eps, eps_prime, U"):
        model.set_params(sets__magic=1)
    with pytest.raises(ValueError, match="l2_coefficients has no constants"):
        model.set_params(l2_coefficients__magic=1)
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(magic__tau=1)


@pytest.mark.parametrize(
    "grid",
    [{"method": [Paper(tau=5), Surrogate(), "em:tau=50"]}, {"method__tau": [1, 10], "method__max_iter": [1, 20]}],
    ids=["objects", "constants"],
)
def test_a_grid_search_goes_over_methods_and_over_their_constants(grid: Any, rng: np.random.Generator) -> None:
    X = data(120, rng)
    search = GridSearchCV(quick(), grid, cv=2).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == len(scores) == np.prod([len(values) for values in grid.values()])
    assert search.score(X) == search.best_estimator_.score(X)
    if "method" in grid:
        assert search.best_estimator_.method == search.best_params_["method"]
    else:
        assert search.best_estimator_.method.tau == search.best_params_["method__tau"]


# Refused, or of effect


def others(value: Any) -> Iterator[Any]:
    """Other values that a constant might have, whatever it means."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        yield from ("auto", "paper", *coefficients.names())
    elif isinstance(value, Step):
        yield from Step.names()
    else:
        yield from (1, 2, 5, 0.5, 1.5, 0.01, 1e-6, 0, 0.9, 1 - 1e-9, 100, 10_000)
        if value is None:
            yield from (True, False)


def settings_of(name: str, constant: str = "") -> Iterator[tuple[Choice, Divergence, np.ndarray]]:
    """What a constant may be tried on: divergences that the method serves, dense and nearly empty data, and more."""
    rng = np.random.default_rng(0)
    dense, few = data(60, rng), sparse_counts(60, rng, mean=0.02)
    longer = data(400, rng), sparse_counts(400, rng, mean=0.02)  # what is to be forgotten must be past
    bases = [small(name), small(name, tau=10)]
    if name == "paper":
        bases.append(small("canonical"))
    names = ["kl", "is", "squared_l2", "huber:0.3", "l1"]
    for X in longer if constant == "forgetting" else (dense, few, *longer):
        for base in bases:
            for divergence in names:
                if name == "auto" or base.why_not(methods.base.Divergence.get(divergence)) is None:
                    yield base, divergence, X


def result(method: Choice, divergence: Any, X: np.ndarray, **settings: Any) -> list[np.ndarray]:
    model = quick(method, divergence, batch_size=50, shuffle=False, **settings).fit(X)
    return [model.components_, model.transform(X)]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(one, other, strict=True))


CONSTANTS = [(name, field.name) for name in methods.names() for field in dataclasses.fields(methods.find(name))]
OF_STEPS = [(name, field.name) for name in Step.names() for field in dataclasses.fields(Step.find(name))]


@pytest.mark.parametrize(("name", "constant"), CONSTANTS)
def test_every_constant_has_an_effect(name: str, constant: str) -> None:
    require_an_effect(constant, settings_of(name, constant), lambda base: base, lambda base, changed: changed)


@pytest.mark.parametrize(("name", "constant"), OF_STEPS)
def test_every_constant_of_a_step_has_an_effect(name: str, constant: str) -> None:
    # A permission shows its effect only where it is needed.
    steps = {
        "canonical": [Canonical(2, 200), Canonical(2, 200, 2, True)],
        "adaptive": [Adaptive(40, trial_samples=20)],
    }[name]
    short = [(divergence, X) for _, divergence, X in settings_of("paper") if len(X) < 100]
    settings = ((Paper(step=step), divergence, X) for step in steps for divergence, X in short)
    require_an_effect(constant, settings, lambda base: base.step, lambda base, step: replace(base, step=step))


def require_an_effect(constant: str, settings: Any, part: Any, with_part: Any) -> None:
    """Some value of a constant of a part gives another result than the usual one, in one of the settings."""
    more = {"l2_coefficients": 1e-3} if constant == "certified" else {}  # which it asks for
    for base, divergence, X in settings:
        usual = None
        for value in others(getattr(part(base), constant)):
            try:
                changed = with_part(base, part(base).with_constants(**{constant: value}))
                if changed == base:
                    continue
                found = result(changed, divergence, X, **more)
            except ValueError as error:
                if not any(word in str(error) for word in (constant, "Robbins-Monro", "refuses")):
                    raise
                if isinstance(getattr(part(base), constant), bool):
                    return  # a permission that is needed
                continue
            usual = result(base, divergence, X, **more) if usual is None else usual
            if not same(found, usual):
                return
    pytest.fail(f"{constant} changes nothing")


# Another value for every parameter of the estimator, one that no method can pass over on the data below.
CHANGES: dict[str, Any] = {
    "n_components": 2,
    "divergence": None,  # another one that the method serves, or one that it refuses
    "method": None,  # another one
    "batch_size": 20,
    "max_passes": 2,
    "shuffle": False,
    "init": "uniform",
    "scale": "none",
    "clip": (0.5, 3.0),
    "l1_coefficients": 1.0,
    "l2_coefficients": 1.0,
    "l1_dictionary": 1.0,
    "l2_dictionary": 1.0,
    "sets": Sets(eps=0.9),
    "reservoir": 10,
    "transform_tol": 0.5,
    "transform_max_iter": 1,
    "random_state": 1,
}
SAID = {"on_error": "skip", "callbacks": [print], "verbose": 2}  # what has an effect, but not on the numbers
ELSEWHERE = {
    "fixed",
    "missing",
    "implicit",
    "coefficients",
    "shards",
    "device",
    "features",
    "max_features",
    "n_init",
}  # tested over the registry in files of their own


def test_every_parameter_is_tried_below() -> None:
    assert CHANGES.keys() | SAID.keys() | ELSEWHERE == OnlineNMF().get_params(deep=False).keys()


@pytest.fixture(scope="module")
def plain() -> dict[str, list[np.ndarray]]:
    """What every method gives without a change, once it has been asked for."""
    return {}


def served_by(name: str) -> str:
    return {"lefevre": "is", "guan": "squared_l2", "wang": "huber:0.3"}.get(name, "kl")


@every_name
@pytest.mark.parametrize("parameter", CHANGES)
def test_every_parameter_has_an_effect_or_is_refused(
    name: str, parameter: str, plain: dict[str, list[np.ndarray]]
) -> None:
    X = data(60, np.random.default_rng(1))
    given = {"method": small(name), "divergence": served_by(name), "batch_size": 30}
    if name == "guan":  # least squares take steps, which may stop early, only where they meet an upper bound
        given["sets"] = Sets(U=5.0)
    if name not in plain:
        model = quick(**given).fit(X)
        plain[name] = [model.components_, model.transform(X)]
    value = CHANGES[parameter]
    if parameter == "divergence":
        value = "alpha:2" if name in ("auto", "surrogate", "sparse_surrogate", "em", "paper") else "kl"
    if parameter == "method":
        value = "paper" if name != "paper" else "surrogate"
    changed = quick(**(given | {parameter: value}))
    if parameter in ("l1_dictionary", "l2_dictionary"):  # test_penalties.py sees their effect beside another
        with pytest.raises(ValueError, match=f"{parameter}.* no effect alone"):
            changed.fit(X)
    elif value == "kl":
        with pytest.raises(ValueError, match=f"method '{name}' supports only .*, not 'kl'"):
            changed.fit(X)
    else:
        changed.fit(X)
        assert not same([changed.components_, changed.transform(X)], plain[name])


@every_name
def test_what_is_said_and_skipped_goes_by_the_parameters(name: str) -> None:
    X = data(60, np.random.default_rng(1))
    given = {"method": small(name), "divergence": served_by(name), "batch_size": 30, "shuffle": False}
    told, printed = [], io.StringIO()
    with redirect_stdout(printed):
        quick(**given, callbacks=[told.append], verbose=2).fit(X)
    assert len(told) == len(printed.getvalue().splitlines()) == 2
    X[40, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        quick(**given).fit(X)
    assert quick(**given, on_error="skip").fit(X).n_skipped_ == 1


@every_name
def test_constants_of_the_sets_have_an_effect(name: str) -> None:
    X = data(60, np.random.default_rng(1))
    assert X.shape[1] == F
    usual = quick(small(name), served_by(name)).fit(X).transform(X)
    for sets in (Sets(eps=0.9), Sets(eps_prime=0.3), Sets(U=0.3)):
        assert not np.array_equal(quick(small(name), served_by(name), sets=sets).fit(X).transform(X), usual)
