"""l1 and l2 penalties on coefficients and dictionary: one objective, wherever it is minimised."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from click.testing import Result
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF, coefficients
from onmf.cli import main as cli
from onmf.coefficients.problem import Problem
from onmf.divergences import L2, Divergence, Mahalanobis
from onmf.methods import Method
from onmf.model.penalty import Penalties, Penalty, falling, resized
from onmf.samples import Samples
from tests.conftest import DISTINCT, covering, example_id, spread
from tests.learning import (
    METHODS,
    F,
    K,
    LogCosh,
    assert_same_bits,
    begun,
    data,
    every_method,
    every_pair,
    get,
    learnt,
    pairs,
    quick,
    small,
    streamed,
    usual,
)

NAMES = ("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary")
ALL = dict(zip(NAMES, (0.2, 0.1, 0.05, 0.05), strict=True))
KINDS: dict[str, dict[str, float]] = {
    "l1 of coefficients": {"l1_coefficients": 0.3},
    "l2 of coefficients": {"l2_coefficients": 0.5},
    "l1 of both": {"l1_coefficients": 0.2, "l1_dictionary": 0.05},
    "all": ALL,
}
every_kind = pytest.mark.parametrize("penalties", KINDS.values(), ids=KINDS)
every_divergence = pytest.mark.parametrize(
    "divergence", [*DISTINCT, LogCosh()], ids=lambda each: example_id(each) or "logcosh"
)
FIXED_SIZE = ("lefevre", "guan", "wang")
MATRIX = Mahalanobis(np.eye(F) + 0.2)


def objective(divergence: Divergence, X: np.ndarray, H: np.ndarray, W: np.ndarray, penalties: Penalties) -> float:
    """By its definition."""
    p = penalties
    of_samples = p.l1_coefficients * H.sum(axis=1) + p.l2_coefficients / 2 * np.square(H).sum(axis=1)
    of_dictionary = p.l1_dictionary * W.sum() + p.l2_dictionary / 2 * np.square(W).sum()
    return float((divergence.value(X, H @ W) + of_samples).mean() + of_dictionary)


def of_model(model: OnlineNMF | BatchNMF, X: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The objective of a model and what it is made of, in internal units."""
    V, H, W = X / model.scale_, model.transform(X) / model.scale_, model.components_
    return objective(model._fitted.inside, V, H, W, model._fitted.state.penalties), H, W


def scipys(divergence: Divergence, X: np.ndarray, H: np.ndarray, W: np.ndarray, penalties: Penalties) -> float:
    """The objective after a joint descent in H and W from there, by L-BFGS-B."""
    (n, size), p = H.shape, penalties
    low = 0.0 if divergence.domain.y.includes_zero else 1e-9

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        H, W = z[: n * size].reshape(n, size), z[n * size :].reshape(size, -1)
        G = divergence.grad(X, H @ W) / n
        of_H = G @ W.T + (p.l1_coefficients + p.l2_coefficients * H) / n
        of_W = H.T @ G + p.l1_dictionary + p.l2_dictionary * W
        return objective(divergence, X, H, W, p), np.r_[of_H.ravel(), of_W.ravel()]

    start = np.r_[np.maximum(H, 1e-8).ravel(), np.maximum(W, low).ravel()]
    bounds = [(1e-8, None)] * H.size + [(low, 1)] * W.size
    return float(scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds).fun)


def samples(rng: np.random.Generator, n: int = 100) -> np.ndarray:
    X = rng.gamma(1.0, 1.0, (n, K)) @ rng.gamma(0.7, 1.0, (K, F))
    return X * rng.gamma(20, 1 / 20, X.shape) + 0.02


# The coefficients


@every_divergence
@pytest.mark.parametrize("name", [name for name in coefficients.names() if name != "armijo-literal"])  # it stalls
def test_coefficients_are_at_a_minimum_of_loss_and_penalties_in_every_solver(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    """The conditions of Karush, Kuhn and Tucker: no derivative is negative, or positive where h is not at its bound."""
    penalty = Penalty(l2=0.1, l1=0.4)
    solver = coefficients.find(name)()
    if solver.why_not(divergence, penalty) is not None:
        return  # it says why and what to use
    X, W = samples(rng, 3), rng.random((K, F)) + 0.05
    problem = Problem(divergence, X / X.mean(), W, penalty=penalty)
    solver = solver.stopping(1e-7, {"newton": 200, "interior-point": 50, "polyak": 1000}.get(name, 2000))
    H = solver.solve(problem).H
    if not divergence.smooth_unless_exact or name in ("ratios", "polyak"):  # no derivative, or near enough by purpose
        best = coefficients.precise_solver(divergence).stopping(1e-7, 1000).solve(problem, H).H
        values = [problem.objective(each, problem.fit(each)) for each in (H, best)]
        assert (values[0] <= values[1] + 0.05 * problem.scale).all()
        return
    G = divergence.grad(problem.X.matrix, H @ W) @ W.T + 0.4 + 0.1 * H
    scale = problem.scale.mean() / problem.reach.mean()
    assert (-1e-2 * scale <= G).all()
    assert (np.abs(G * H) <= 1e-2 * problem.scale[:, None]).all()
    assert H.sum() < solver.solve(Problem(divergence, problem.X, W)).H.sum()


def test_distances_to_samples_of_few_entries_are_traded_against_penalties_even_where_fits_are_exact(
    rng: np.random.Generator,
) -> None:
    """Every sample has many exact fits: at a small penalty, the cheapest of them is the answer, a linear program."""
    W, present = rng.random((12, 20)), np.zeros((40, 20))
    for row in present:
        row[rng.choice(20, 4, replace=False)] = rng.uniform(0.5, 1.0, 4)
    X = rng.gamma(0.5, 1.0, (40, 12)) @ W
    problem = Problem(L2(), Samples(X, present, absent="missing"), W, penalty=Penalty(l1=0.01))
    found = coefficients.Newton(tol=1e-5).solve(problem)
    assert found.converged.all()
    cheapest = [
        scipy.optimize.linprog(np.full(12, 0.01), A_eq=W[:, row > 0].T, b_eq=x[row > 0]).fun
        for x, row in zip(X, present, strict=True)
    ]
    values = problem.objective(found.H, problem.fit(found.H))
    np.testing.assert_allclose(values, cheapest, atol=1e-5 * problem.scale.max())


def test_rows_that_are_all_the_same_are_solved_under_l2_with_a_penalty(rng: np.random.Generator) -> None:
    X = np.tile(rng.random(30) + 0.1, (50, 1))
    OnlineNMF(5, divergence="l2", l1_coefficients=0.1, random_state=0).fit(X).transform(X)


@every_divergence
def test_transform_minimises_loss_and_penalties(divergence: Divergence, rng: np.random.Generator) -> None:
    X = samples(rng, 60)
    settings = {"l1_coefficients": 0.5, "transform_tol": 1e-6, "transform_max_iter": 2000}
    model = quick("surrogate", divergence, **settings).fit(X)
    H, W, inside = model.transform(X) / model.scale_, model.components_, model._fitted.inside
    now = objective(inside, X / model.scale_, H, W, Penalties(0.5))
    for factor in (0.97, 1.03):
        assert now <= objective(inside, X / model.scale_, factor * H, W, Penalties(0.5)) + 1e-9


@every_method
def test_larger_penalties_make_smaller_coefficients(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    X = samples(rng)
    state = begun(small(name, tau=50), divergence, rng.random((K, F)) + 0.05)
    sums = []
    for l1 in (0.1, 0.5, 2.0):
        penalised = dataclasses.replace(state, penalties=Penalties(l1_coefficients=l1))
        sums.append(learnt(small(name, tau=100), divergence, penalised, X / X.mean()).H.sum())
    assert (np.diff(sums) < 0).all()


def test_larger_penalties_make_sparser_coefficients(rng: np.random.Generator) -> None:
    X = samples(rng)
    models = [quick("surrogate", "squared_l2", l1_coefficients=l1).fit(X) for l1 in (0.0, 0.3, 3.0)]
    zeros = [(model.transform(X) < 1e-6).mean() for model in models]
    assert (np.diff(zeros) > 0).all()


# The dictionary


CASES: dict[str, tuple[str, Any]] = {
    "full kl": ("surrogate", "kl"),
    "full is": ("surrogate", "is"),
    "full huber": ("surrogate", "huber:0.3"),
    "full beta": ("surrogate", "beta:1.5"),
    "shared squared_l2": ("surrogate", "squared_l2"),
    "shared l2": ("surrogate", "l2"),
    "diagonal kl": ("surrogate:max_memory=0", "kl"),
    "coupled": ("surrogate", MATRIX),
    "sparse_surrogate": ("sparse_surrogate", "kl"),
    "em": ("em", "kl"),
    "em of order 1/2": ("em", "hellinger"),
    "paper": ("paper", "squared_l2"),
    "canonical": ("paper:step=canonical,a=20,b=200", "squared_l2"),
}
SLOW = {"em": 1.08, "em of order 1/2": 1.08, "sparse_surrogate": 1.06}  # without penalties they are 5 to 10 % off here


@pytest.mark.parametrize(
    ("case", "penalties"),
    [(case, ALL) for case in CASES] + [(case, KINDS["l1 of coefficients"]) for case in ("full kl", "em", "paper")],
)
def test_a_joint_descent_finds_next_to_nothing_better(case: str, penalties: dict[str, float]) -> None:
    method, divergence = CASES[case]
    X = samples(np.random.default_rng(0))
    settings = {"max_passes": 40 if method.startswith("paper") else 20, "transform_tol": 1e-7}
    model = OnlineNMF(K, divergence=divergence, method=method, random_state=0, **settings, **penalties).fit(X)
    found, H, W = of_model(model, X)
    best = scipys(model._fitted.inside, X / model.scale_, H, W, Penalties(**penalties))
    assert found <= SLOW.get(case, 1.02) * best
    assert W.max() <= 1
    if "l1_dictionary" not in penalties:  # a larger component is then cheaper
        np.testing.assert_allclose(W.max(axis=1), 1)


@pytest.mark.parametrize(
    ("name", "stored", "penalties"),
    covering(
        ["kl", "is", "squared_l2", "huber:0.3", "hellinger"],
        [np.asarray, scipy.sparse.csr_matrix],
        [KINDS["l1 of coefficients"], ALL],
    ),
)
def test_batch_updates_never_raise_the_objective_and_end_at_its_minimum(
    name: str, stored: Any, penalties: dict[str, float]
) -> None:
    X, given = samples(np.random.default_rng(0), 60), Penalties(**penalties)

    def after(iterations: int) -> tuple[float, BatchNMF]:
        settings = {"max_iter": iterations, "tol": 0, "random_state": 0}
        model = BatchNMF(K, divergence=name, **settings, **penalties).fit(stored(X))
        H = model.coefficients_ / model.scale_
        return objective(model._fitted.inside, X / model.scale_, H, model.components_, given), model

    course = [after(iterations)[0] for iterations in (1, 2, 3, 20, 21)]
    assert (np.diff(course) <= 1e-9).all()
    found, model = after(100)
    H, W = model.coefficients_ / model.scale_, model.components_
    assert found <= 1.05 * scipys(model._fitted.inside, X / model.scale_, H, W, given)
    assert W.max() <= 1


def test_batch_updates_raise_an_error_where_their_parts_are_not_the_derivatives() -> None:
    with pytest.raises(ValueError, match="BatchNMF has no penalties under alpha with its parameter; use OnlineNMF"):
        BatchNMF(2, divergence="alpha:-1", l1_coefficients=1.0).fit(np.ones((5, 4)))


@pytest.mark.parametrize(
    ("case", "kind"),
    spread([name for name in CASES if name not in (*SLOW, "canonical")], ["l1_dictionary", "l2_dictionary"], 2),
)
def test_larger_penalties_make_smaller_dictionaries(case: str, kind: str) -> None:
    method, divergence = CASES[case]
    X, sums = samples(np.random.default_rng(0)), []
    for penalty in (0.0, 0.1, 1.0):
        settings = {"max_passes": 5, "random_state": 0, "l1_coefficients": 0.1, kind: penalty}
        model = OnlineNMF(K, divergence=divergence, method=method, **settings).fit(X)
        sums.append(model.components_.sum())
    assert (np.diff(sums) < 0).all()


@every_pair
def test_data_times_a_constant_have_the_same_dictionary(name: str, divergence: Divergence) -> None:
    if divergence.degree is None or getattr(divergence, "delta", None) is not None:  # constants in the data's units
        return
    X = samples(np.random.default_rng(1), 60)
    penalties = {"l1_coefficients": 0.2} if name in FIXED_SIZE else ALL
    one, other = (quick(name, divergence, **penalties).fit(c * X) for c in (1.0, 2.0**12))
    np.testing.assert_allclose(other.components_, one.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.transform(2.0**12 * X), 2.0**12 * one.transform(X), rtol=1e-5, atol=1e-5)


@every_method
def test_penalties_of_zero_change_no_bit(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(60, rng)
    zero = dict.fromkeys(NAMES, 0)
    assert_same_bits(quick(name, divergence).fit(X), quick(name, divergence, **zero).fit(X))


# The size of components


def test_the_size_of_a_component_is_the_one_that_costs_least(rng: np.random.Generator) -> None:
    W = 0.4 * rng.random((6, 9))
    m, m2 = rng.random(6) + 0.1, rng.random(6) + 0.1
    penalties = Penalties(*(rng.random(4) + 0.2))
    s = resized(penalties, W, (m, m2), falling(np.zeros(6), np.zeros(6)))
    for k in range(6):

        def cost(s: float, k: int = k) -> float:
            w = W[k] / s
            of_h = penalties.l1_coefficients * m[k] * s + penalties.l2_coefficients * m2[k] * s**2 / 2
            return of_h + penalties.l1_dictionary * w.sum() + penalties.l2_dictionary * np.square(w).sum() / 2

        best = scipy.optimize.minimize_scalar(cost, bounds=(W[k].max(), 2.0), method="bounded", options={"xatol": 1e-9})
        assert cost(float(s[k])) <= best.fun * (1 + 1e-6)
        assert W[k].max() / s[k] <= 1 + 1e-6


def test_without_a_penalty_on_the_dictionary_components_are_as_large_as_they_may_be(rng: np.random.Generator) -> None:
    W = 0.9 * rng.random((4, 7))
    for penalties in (Penalties(l1_coefficients=0.3), Penalties(l2_coefficients=0.3)):
        s = resized(penalties, W, (np.ones(4), np.ones(4)), falling(np.zeros(4), np.zeros(4)))
        np.testing.assert_allclose((W / s[:, None]).max(axis=1), 1, rtol=1e-6)


# What raises an error


@pytest.mark.parametrize("kind", ["l1_dictionary", "l2_dictionary"])
def test_a_penalty_on_the_dictionary_alone_has_no_effect_and_raises_an_error(kind: str) -> None:
    for model in (OnlineNMF(2, **{kind: 0.1}), BatchNMF(2, **{kind: 0.1})):
        with pytest.raises(
            ValueError, match=r"no effect alone: W / c with c H fits as well and costs less; give l1_coef.*simplex"
        ):
            model.fit(np.ones((30, 5)))
    Penalties(**{kind: 0.1}).require_effect(coefficients_bounded=True)  # they cannot grow
    OnlineNMF(2, **{kind: 0.1}, l2_coefficients=0.1).fit(np.random.default_rng(0).random((30, 5)) + 0.1)


@pytest.mark.parametrize("name", FIXED_SIZE)
def test_methods_with_components_of_fixed_size_take_no_penalty_on_them(name: str) -> None:
    with pytest.raises(ValueError, match=f"method '{name}' takes no l1_dictionary or l2_dictionary: it fixes the size"):
        quick(name, usual(name), **ALL).fit(np.ones((30, F)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-0.1, np.inf, np.nan, "much", None])
def test_values_that_are_no_penalties_raise_an_error_by_name(name: str, value: Any) -> None:
    for model in (OnlineNMF(2, **{name: value}), BatchNMF(2, **{name: value})):
        with pytest.raises(ValueError, match=f"{name} must be a finite number of at least 0"):
            model.fit(np.ones((30, 5)))
    with pytest.raises(ValueError, match=rf"{name} must be at most 1e\+09, got 1e\+30: .* leave nothing"):
        OnlineNMF(2, **{name: 1e30}).fit(np.ones((30, 5)))


def test_every_method_serves_them_or_says_why_not() -> None:
    for name in METHODS:
        method = small(name)
        assert isinstance(method, Method)
        reason = method.why_not(usual(name), Penalties(**ALL))
        assert (reason is not None) == (name in FIXED_SIZE)
        assert method.why_not(usual(name), Penalties(0.1, 0.1)) is None


# They belong to what was learnt


@pairs(without=FIXED_SIZE)
def test_a_stream_in_parts_and_through_files_resumes_bit_for_bit(
    name: str, divergence: Divergence, tmp_path: Path
) -> None:
    if not divergence.name or type(divergence).__name__ == "LogCosh":
        return
    X = samples(np.random.default_rng(2), 60)
    whole = streamed(quick(name, divergence, **ALL), X, 20)
    first = streamed(quick(name, divergence, **ALL), X[:20], 20)
    onmf.save(first, tmp_path / "model")
    again = onmf.load(tmp_path / "model")
    assert {name: getattr(again, name) for name in NAMES} == ALL
    assert again._fitted.state.penalties == Penalties(**ALL)
    assert_same_bits(streamed(again, X[20:], 20), whole)


@pytest.mark.parametrize("name", NAMES)
def test_they_cannot_be_changed_while_a_model_learns(name: str, tmp_path: Path) -> None:
    X = samples(np.random.default_rng(2), 60)
    model = quick("auto", "kl", **ALL).fit(X)
    words = f"{name} cannot be changed while a model learns; keep it, or begin a new model"
    with pytest.raises(ValueError, match=words):
        model.set_params(**{name: 0.7}).partial_fit(X)
    with pytest.raises(ValueError, match=words):
        quick("auto", "kl", **ALL | {name: 0.7}).fit(X, resume_from=model)


@pytest.mark.parametrize("case", ["full kl", "diagonal kl", "shared squared_l2", "coupled", "em", "sparse_surrogate"])
def test_shards_with_penalties_merge_to_what_a_sequence_learns(case: str) -> None:
    text, name = CASES[case]
    method, divergence = onmf.methods.get(text).with_constants(tau=50), get(name)
    assert isinstance(method, Method)
    penalties = Penalties(**ALL)
    X = samples(np.random.default_rng(3), 900)
    X /= X.mean()
    start = method.start(divergence, np.random.default_rng(1).random((K, F)) + 0.1, onmf.Sets().dictionaries)
    before = learnt(method, divergence, dataclasses.replace(start, penalties=penalties), X[:500]).state
    half = dataclasses.replace(before, clock=before.clock / 2)
    shards = [learnt(method, divergence, half, part).state for part in (X[500:700], X[700:])]
    one, other = (method.summary(divergence, half, after) for after in shards)
    merged, sequence = method.merged(divergence, before, one + other), learnt(method, divergence, before, X[500:]).state
    assert merged.penalties == penalties
    held_out, objectives = X[:100], []
    for state in (merged, sequence):
        problem = Problem(divergence, held_out, state.W, penalty=penalties.of_coefficients)
        H = coefficients.precise_solver(divergence).stopping(1e-6, 500).solve(problem).H
        objectives.append(objective(divergence, held_out, H, state.W, penalties))
    assert objectives[0] <= 1.03 * objectives[1]
    assert merged.memory.keys() == sequence.memory.keys()


def test_the_command_line_has_them_and_resumes_with_them(tmp_path: Path) -> None:
    X = samples(np.random.default_rng(0))
    np.save(tmp_path / "x.npy", X)
    options = [f"--{name.replace('_', '-')}={penalty}" for name, penalty in ALL.items()]
    command = ["fit", str(tmp_path / "x.npy"), "-k", str(K), "--seed", "0"]

    def invoked(*more: str) -> Result:
        return CliRunner().invoke(cli.app, [*command, *more])

    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert invoked(*options, "--out", first).exit_code == 0
    model = onmf.load(first)
    np.testing.assert_array_equal(model.components_, OnlineNMF(K, random_state=0, **ALL).fit(X).components_)
    assert invoked("--from", first, "--out", second).exit_code == 0
    assert onmf.load(second)._fitted.state.penalties == Penalties(**ALL)
    failed = invoked("--l1-dictionary", "0.1", "--out", second)
    assert "no effect alone" in str(failed.exception)


def test_loss_is_the_divergence_alone(rng: np.random.Generator) -> None:
    X = samples(rng)
    model = quick("auto", "kl", l1_coefficients=1.0).fit(X)
    expected = get("kl").value(X, model.transform(X) @ model.components_).mean()
    assert model.loss(X) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", ["surrogate", "paper"])
def test_stationarity_is_that_of_the_penalised_problem(method: str) -> None:
    X = samples(np.random.default_rng(0))
    settings = {"divergence": "squared_l2", "method": method, "random_state": 0, "transform_tol": 1e-8}
    model = OnlineNMF(K, max_passes=100, **settings, **ALL).fit(X)
    start = OnlineNMF(K, **settings, **ALL).fit(X[:20])
    assert model.stationarity(X) < 0.1 * start.stationarity(X)


def test_a_penalty_that_is_the_same_for_all_shares_raises_an_error() -> None:
    with pytest.raises(ValueError, match="l1_coefficients has no effect on the simplex"):
        OnlineNMF(2, coefficients="simplex", l1_coefficients=0.1).fit(np.ones((20, 5)))
