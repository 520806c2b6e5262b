"""The paper's Algorithm 1: its step, its step sizes, and stationarity, the measure of its theorem."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

from onmf import OnlineNMF, Sets, coefficients
from onmf.coefficients import Armijo, ConstantStep, Polyak, precise_solver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence, KullbackLeibler, SquaredL2, get
from onmf.methods import Canonical, Paper
from onmf.methods.steps import Slopes
from onmf.model.penalty import NO_PENALTIES
from onmf.model.sets import DictionarySet
from onmf.model.state import State
from tests.conftest import F, every_divergence
from tests.learning import DIVERGENCES, K, learnt

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")
C = DictionarySet()
danskin = pytest.mark.parametrize("divergence", [KullbackLeibler(), SquaredL2()], ids=lambda d: d.name)


def data(rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.gamma(2, 1, (n, K)) @ rng.random((K, F)) * rng.gamma(20, 0.05, (n, F))
    return X / X.mean()


def dictionary(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.2, 0.8, (K, F))


# The step


@every_divergence
def test_a_step_is_the_papers_with_the_samples_seen(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = data(rng, 4), dictionary(rng)
    method = Paper(step=Canonical(a=5.0, b=100.0), solver="paper")
    state = learnt(method, divergence, State(W, C, samples=1000, clock=1000, steps=77), X).state
    H = method.coefficient_solver(divergence).solve(Problem(divergence, X, W)).H
    G = sum(np.outer(h, divergence.grad(x[None], (h @ W)[None])[0]) for x, h in zip(X, H, strict=True))
    np.testing.assert_allclose(state.W, C.project(W - 5.0 / (1000 + 4 + 100.0) * G), rtol=1e-9, atol=1e-12)
    assert (state.samples, state.steps) == (1004, 78)


@every_divergence
def test_gradients_and_losses_of_two_chunks_add_up(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W, H = data(rng, 10), dictionary(rng), rng.gamma(2, 1, (10, K))
    halves = slice(4), slice(4, None)
    whole, *parts = (Slopes.of(Problem(divergence, X[rows], W), H[rows]) for rows in (slice(None), *halves))
    assert whole.weight == sum(part.weight for part in parts) == 10
    np.testing.assert_allclose(
        sum(part.objective(NO_PENALTIES) for part in parts), whole.objective(NO_PENALTIES), rtol=1e-12
    )
    G, *Gs = (each.penalised(NO_PENALTIES, 0) for each in (whole, *parts))
    np.testing.assert_allclose(sum(Gs), G, rtol=1e-9, atol=1e-12 * np.abs(G).max())


def test_the_start_is_brought_into_the_set_by_a_change_of_units(rng: np.random.Generator) -> None:
    W = 50 * rng.random((K, F)) + 1
    state = Paper().start(get("kl"), W, C)
    assert C.contains(state.W)
    np.testing.assert_allclose(state.W * W.max(axis=1, keepdims=True), W, rtol=1e-12)
    assert (state.samples, state.clock, state.steps, state.memory) == (0, 0, 0, {})


def test_a_state_is_frozen(rng: np.random.Generator) -> None:
    state = State(dictionary(rng), C, samples=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.samples = 4


def test_the_solver_is_the_fastest_the_papers_or_the_one_asked_for() -> None:
    paper = partial(Paper, solver="paper")
    assert paper().coefficient_solver(get("kl")) == Armijo(1e-3, 100)
    assert paper().coefficient_solver(get("l2")) == Armijo(1e-3, 100)
    assert paper().coefficient_solver(get("squared_l2")) == ConstantStep(1e-3, 300)
    assert paper().coefficient_solver(get("huber:0.1")) == ConstantStep(1e-3, 300)
    assert paper().coefficient_solver(get("l1")) == Polyak(1e-3, 100, delta_tol=0.01)
    assert paper(tol=0.1, max_iter=6).coefficient_solver(get("kl")) == Armijo(0.1, 6)
    for name in ("kl", "l1", "l2", "squared_l2", "is"):
        assert type(Paper().coefficient_solver(get(name))) is type(precise_solver(get(name)))
        assert Paper(tol=0.1, max_iter=6).coefficient_solver(get(name)) == precise_solver(get(name)).stopping(0.1, 6)
    for name in coefficients.names():
        assert type(Paper(solver=name).coefficient_solver(get("is"))) is coefficients.find(name)
    assert paper(delta_tol=0.5).coefficient_solver(get("l1")) == Polyak(1e-3, 100, delta_tol=0.5)
    assert "delta_tol belongs to Polyak's step" in paper(delta_tol=0.5).why_not(get("kl"))
    assert "delta_tol belongs to Polyak's step" in Paper(delta_tol=0.5).why_not(get("l1"))
    assert Paper(solver="constant").why_not(get("kl")) is not None


# Step sizes


@pytest.mark.parametrize(
    ("step", "samples", "expected"),
    [
        (Canonical(), 0, 1.0),
        (Canonical(), 20_000, 0.5),
        (Canonical(a=3.0, b=5.0), 10, 0.2),
        (Canonical(a=1.0, b=1.0, power=0.75), 15, 0.125),
    ],
)
def test_the_step_size_is_the_printed_formula_counted_in_samples(
    step: Canonical, samples: int, expected: float
) -> None:
    assert step.eta(samples) == pytest.approx(expected, rel=1e-15)
    assert type(step.eta(samples)) is float


@pytest.mark.parametrize("power", [0.51, 0.75, 1.0])
def test_powers_that_satisfy_robbins_monro_are_accepted_and_fall(power: float) -> None:
    values = [Canonical(power=power).eta(samples) for samples in range(0, 10**6, 10**5)]
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("power", [0.5, 0.0, -1.0, 1.01, 2.0])
def test_powers_that_break_robbins_monro_are_refused_unless_asked_for(power: float) -> None:
    for make in (lambda: Canonical(power=power), lambda: Paper(step=f"canonical:power={power}")):
        with pytest.raises(ValueError, match=r"breaks the Robbins-Monro conditions.*or set any_power=True"):
            make()
    assert Canonical(a=2.0, b=3.0, power=power, any_power=True).eta(1) == pytest.approx(2.0 / 4.0**power)


@pytest.mark.parametrize("power", [np.nan, np.inf, -np.inf])
def test_a_power_that_is_no_number_is_always_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power = "):
        Canonical(power=power, any_power=True)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_constants_that_are_not_positive_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"needs {name} > 0"):
        Canonical(**{name: value})


# Stationarity


def model_with(W: np.ndarray, divergence: Divergence, X: np.ndarray, **settings: Any) -> OnlineNMF:
    """A model whose dictionary is W, in the units of the data."""
    given = {"scale": "none", "init": W, "transform_tol": 1e-7, "transform_max_iter": 2000, "method": "paper"}
    model = OnlineNMF(len(W), divergence=divergence, **(given | settings)).partial_fit(X)
    learned = model._learned
    model._learned = dataclasses.replace(learned, state=dataclasses.replace(learned.state, W=W))
    return model


def mean_loss(divergence: Divergence, X: np.ndarray, W: np.ndarray) -> float:
    H = precise_solver(divergence).stopping(1e-7, 2000).solve(Problem(divergence, X, W)).H
    return float(divergence.value(X, H @ W).mean())


@danskin
def test_stationarity_is_the_gradient_of_the_mean_of_minima_inside_the_set(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    W = np.where(np.arange(F) % K == np.arange(K)[:, None], 0.8, 0.1) + rng.uniform(0, 0.1, (K, F))
    X = rng.uniform(0.5, 1.0, (3, K)) @ W * rng.uniform(0.9, 1.1, (3, F))
    slopes = np.empty_like(W)
    for index in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[index] = 1e-4
        slopes[index] = (mean_loss(divergence, X, W + step) - mean_loss(divergence, X, W - step)) / 2e-4
    assert np.abs(slopes).max() < 0.1  # so that the step stays inside C
    assert model_with(W, divergence, X).stationarity(X) == pytest.approx(np.linalg.norm(slopes), rel=1e-4)


# At an exact fit l1 and l2 have a kink, on which no coefficients that were found by steps lie.
@pytest.mark.parametrize("divergence", [pytest.param(d, id=label) for label, d in DIVERGENCES if d.smooth])
def test_stationarity_vanishes_where_the_fit_is_exact_and_only_there(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    W, H = dictionary(rng), rng.gamma(2, 1, (20, K)) + 0.1
    X = H @ W
    other = X * rng.uniform(0.5, 2, X.shape)
    model = model_with(W, divergence, X, transform_tol=1e-12)
    assert model.stationarity(X) < 1e-3 < 1e-2 < model.stationarity(other)


def test_stationarity_vanishes_at_a_critical_point_on_the_boundary() -> None:
    # h = 1 by its bound, and the gradient h (hw - x) points out of [0, 1] in both features: up at w = 1, down at w = 0.
    X, W = np.array([[3.0, 0.0]]), np.array([[1.0, 0.0]])
    sets = Sets(eps=0.0, eps_prime=0.0, U=1.0)
    assert model_with(W, SquaredL2(), X, sets=sets).stationarity(X) == 0
    away = W - [[0.1, -0.1]]
    assert model_with(away, SquaredL2(), X, sets=sets).stationarity(X) == pytest.approx(np.sqrt(0.02))


@danskin
def test_stationarity_falls_while_learning(divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(rng, 30)
    method = Paper(step=Canonical(a=1.0, b=100.0), solver="paper")
    model = OnlineNMF(K, divergence=divergence, method=method, init=dictionary(rng), scale="none")
    model.partial_fit(X)
    before = model.stationarity(X)
    for _ in range(60):
        model.partial_fit(X)
    assert model.stationarity(X) < 0.3 * before
