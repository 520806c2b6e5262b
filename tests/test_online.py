from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onmf.dictionary import ProjectedSubgradient, State
from onmf.online import Method, gradient_mapping_norm, learn
from onmf.schedules import StepSize

from onmf.coefficients import CoefficientSolver
from onmf.divergences import Divergence, KullbackLeibler, SquaredL2
from onmf.methods import METHODS, Settings, build, coefficient_solver
from onmf.sets import DictionarySet
from tests.conftest import F, every_divergence

K = 3
danskin = pytest.mark.parametrize("divergence", [KullbackLeibler(), SquaredL2()], ids=lambda d: d.name)


def data(rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.gamma(2, 1, (n, K)) @ rng.random((K, F)) * rng.gamma(20, 0.05, (n, F))
    return X / X.mean()


def dictionary(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.2, 0.8, (K, F))


def method_of(divergence: Divergence, tau: int = 10, **options: float) -> Method:
    return build("paper", divergence, Settings(tau=tau, **{"a": 5.0, "b": 100.0, **options}))


def exact(divergence: Divergence) -> CoefficientSolver:
    return coefficient_solver(divergence, Settings(tol=1e-7, max_iter=2000))


# Algorithm 1


@every_divergence
@pytest.mark.parametrize(("n", "tau", "steps"), [(20, 10, 2), (25, 10, 3), (7, 10, 1), (10, 1, 10), (10, 10, 1)])
def test_a_batch_is_cut_into_chunks(
    divergence: Divergence, n: int, tau: int, steps: int, rng: np.random.Generator
) -> None:
    state = learn(method_of(divergence, tau), divergence, State(dictionary(rng)), data(rng, n)).state
    assert (state.samples, state.steps) == (n, steps)
    assert DictionarySet().contains(state.W)


@every_divergence
def test_two_batches_are_one_batch_cut_at_a_chunk(divergence: Divergence, rng: np.random.Generator) -> None:
    method, X, start = method_of(divergence), data(rng, 30), State(dictionary(rng))
    once = learn(method, divergence, start, X)
    first = learn(method, divergence, start, X[:20])
    second = learn(method, divergence, first.state, X[20:])
    np.testing.assert_array_equal(second.state.W, once.state.W)
    assert (second.state.samples, second.state.steps) == (once.state.samples, once.state.steps) == (30, 3)
    assert (20 * first.loss + 10 * second.loss) / 30 == pytest.approx(once.loss, rel=1e-12)


@every_divergence
def test_a_step_is_the_papers_with_the_samples_seen(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = data(rng, 4), dictionary(rng)
    method = method_of(divergence, tau=10)
    state = learn(method, divergence, State(W, samples=1000, steps=77), X).state
    H = method.coefficients.solve(divergence, X, W).H
    G = sum(np.outer(h, divergence.grad(x[None], (h @ W)[None])[0]) for x, h in zip(X, H, strict=True))
    expected = DictionarySet().project(W - 5.0 / (1000 + 4 + 100.0) * G)
    np.testing.assert_allclose(state.W, expected, rtol=1e-9, atol=1e-12)
    assert (state.samples, state.steps) == (1004, 78)


@every_divergence
def test_the_loss_is_that_before_the_step(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = data(rng, 8), dictionary(rng)
    method = method_of(divergence)
    H = method.coefficients.solve(divergence, X, W).H
    assert learn(method, divergence, State(W), X).loss == pytest.approx(divergence.value(X, H @ W).mean(), rel=1e-12)


@every_divergence
def test_the_order_of_the_samples_in_a_chunk_does_not_matter(divergence: Divergence, rng: np.random.Generator) -> None:
    X, start, method = data(rng, 10), State(dictionary(rng)), method_of(divergence)
    one, other = (learn(method, divergence, start, batch) for batch in (X, X[::-1].copy()))
    np.testing.assert_allclose(other.state.W, one.state.W, rtol=1e-8, atol=1e-10)
    assert other.loss == pytest.approx(one.loss, rel=1e-10)


@every_divergence
def test_the_statistics_of_two_chunks_add_up(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W, H = data(rng, 10), dictionary(rng), rng.gamma(2, 1, (10, K))
    update = method_of(divergence).dictionary
    whole = update.local(divergence, X, H, W)
    parts = [update.local(divergence, X[part], H[part], W) for part in (slice(4), slice(4, None))]
    assert whole.samples == sum(part.samples for part in parts) == 10
    np.testing.assert_allclose(sum(part.parts["gradient"] for part in parts), whole.parts["gradient"], rtol=1e-9)


@every_divergence
def test_learning_lowers_the_loss_of_the_samples_it_sees(divergence: Divergence, rng: np.random.Generator) -> None:
    X, state = data(rng, 20), State(dictionary(rng))
    method = method_of(divergence, tau=5, a=0.2, b=100.0)
    losses = []
    for _ in range(15):
        learnt = learn(method, divergence, state, X)
        state = learnt.state
        losses.append(learnt.loss)
    assert losses[-1] < losses[0]


@every_divergence
def test_single_precision_stays_single(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = data(rng, 20).astype(np.float32), dictionary(rng).astype(np.float32)
    assert learn(method_of(divergence), divergence, State(W), X).state.W.dtype == np.float32


# The state


def test_a_state_is_not_changed_by_learning(rng: np.random.Generator) -> None:
    W = dictionary(rng)
    before = State(W, samples=3)
    copy = W.copy()
    learn(method_of(KullbackLeibler()), KullbackLeibler(), before, data(rng, 20))
    np.testing.assert_array_equal(before.W, copy)
    assert before.samples == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.samples = 4


def test_the_start_is_brought_into_the_set_by_a_change_of_units(rng: np.random.Generator) -> None:
    W = 50 * rng.random((K, F)) + 1
    state = ProjectedSubgradient().start(W)
    assert DictionarySet().contains(state.W)
    np.testing.assert_allclose(state.W * W.max(axis=1, keepdims=True), W, rtol=1e-12)
    assert (state.samples, state.steps, dict(state.memory)) == (0, 0, {})


@pytest.mark.parametrize("tau", [0, -1])
def test_a_chunk_without_samples_is_refused(tau: int) -> None:
    with pytest.raises(ValueError, match="tau must be at least 1"):
        ProjectedSubgradient(tau)


# Methods


def test_the_method_of_the_paper_takes_its_settings() -> None:
    settings = Settings(tau=7, a=3.0, b=4.0, power=0.8, eps=0.1, eps_prime=0.2, U=9.0, ridge=0.5, tol=0.1, max_iter=6)
    method = build("paper", KullbackLeibler(), settings)
    assert isinstance(method.dictionary, ProjectedSubgradient)
    assert method.dictionary == ProjectedSubgradient(7, StepSize(3.0, 4.0, 0.8), DictionarySet(0.1))
    solver = method.coefficients
    assert (solver.box.low, solver.box.high, solver.ridge, solver.tol, solver.max_iter) == (0.2, 9.0, 0.5, 0.1, 6)


def test_an_unknown_method_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match=f"unknown method 'magic'; choose one of auto, {', '.join(METHODS)}"):
        build("magic", KullbackLeibler(), Settings())


def test_a_method_is_refused_where_the_fit_could_be_zero() -> None:
    with pytest.raises(ValueError, match="kl is not defined for a fit of zero"):
        build("paper", KullbackLeibler(), Settings(eps=0.0))
    build("paper", SquaredL2(), Settings(eps=0.0, eps_prime=0.0))


# Stationarity


def mean_loss(divergence: Divergence, X: np.ndarray, W: np.ndarray) -> float:
    H = exact(divergence).solve(divergence, X, W).H
    return float(divergence.value(X, H @ W).mean())


@danskin
def test_gradient_mapping_is_the_gradient_of_the_mean_of_minima_inside_the_set(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    W = np.where(np.arange(F) % K == np.arange(K)[:, None], 0.8, 0.1) + rng.uniform(0, 0.1, (K, F))
    X = rng.uniform(0.5, 1.0, (3, K)) @ W * rng.uniform(0.9, 1.1, (3, F))
    found = exact(divergence).solve(divergence, X, W)
    assert found.converged.all()
    slopes = np.empty_like(W)
    for index in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[index] = 1e-4
        slopes[index] = (mean_loss(divergence, X, W + step) - mean_loss(divergence, X, W - step)) / 2e-4
    assert np.abs(slopes).max() < 0.1  # so that the step stays inside C
    norm = gradient_mapping_norm(divergence, DictionarySet(), W, [(X, found.H)])
    assert norm == pytest.approx(np.linalg.norm(slopes), rel=1e-4)


@every_divergence
def test_gradient_mapping_vanishes_where_the_fit_is_exact_and_only_there(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    W, H = dictionary(rng), rng.gamma(2, 1, (20, K))
    X = H @ W
    C = DictionarySet()
    assert gradient_mapping_norm(divergence, C, W, [(X, H)]) <= 1e-12
    assert gradient_mapping_norm(divergence, C, W, [(X * rng.uniform(0.5, 2, X.shape), H)]) > 1e-3


def test_gradient_mapping_vanishes_at_a_critical_point_on_the_boundary() -> None:
    # The gradient h (hw - x) points out of [0, 1] in both features: up at w = 1, down at w = 0.
    H, X, W = np.array([[1.0]]), np.array([[3.0, 0.0]]), np.array([[1.0, 0.0]])
    C = DictionarySet(0.0)
    assert gradient_mapping_norm(SquaredL2(), C, W, [(X, H)]) == 0
    assert gradient_mapping_norm(SquaredL2(), C, W - [[0.1, -0.1]], [(X, H)]) == pytest.approx(np.sqrt(0.02))


@danskin
def test_gradient_mapping_falls_while_learning(divergence: Divergence, rng: np.random.Generator) -> None:
    X, state, C = data(rng, 30), State(dictionary(rng)), DictionarySet()
    solver = exact(divergence)
    method = method_of(divergence, tau=10, a=1.0, b=100.0)

    def norm(W: np.ndarray) -> float:
        return gradient_mapping_norm(divergence, C, W, [(X, solver.solve(divergence, X, W).H)])

    before = norm(state.W)
    for _ in range(100):
        state = learn(method, divergence, state, X).state
    assert norm(state.W) < 0.3 * before
