"""lefevre, guan and wang: each descends on a problem of its own kind as its paper's formulas say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from onmf import BatchNMF, OnlineNMF, methods
from onmf.coefficients.kernels import packed_product
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence, Huber, ItakuraSaito, SquaredL2
from onmf.methods import Method
from onmf.model.penalty import Penalties, Penalty
from onmf.model.sets import DictionarySet, project_on_simplex
from onmf.model.state import State
from onmf.samples import Samples
from reproduction.earlier_methods import Guan, Lefevre, UntilStill, Wang, averaged_steps
from tests.learning import updated

K, F = 8, 40
C = DictionarySet()
SERVES = {"lefevre": "is", "guan": "squared_l2", "wang": "huber:0.2"}
# Held-out loss after five passes / that of BatchNMF, from the same start: what each method is held to.
FACTORS = {"lefevre": 2.5, "guan": 1.15, "wang": 1.15}


def problem(name: str, n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Samples with the noise that the method is made for, and an initial dictionary."""
    rng = np.random.default_rng(7)
    Y = rng.gamma(0.5, 1.0, (n, K)) @ rng.gamma(0.5, 1.0, (K, F)) + 0.01
    if name == "lefevre":
        X = Y * rng.gamma(10.0, 0.1, Y.shape)
    elif name == "guan":
        X = np.maximum(Y + 0.2 * rng.standard_normal(Y.shape), 0)
    else:
        X = np.where(rng.random(Y.shape) < 0.2, Y + rng.uniform(0, 20, Y.shape), Y)
    W = X[rng.permutation(n)[:K]] + 0.05 * X.mean(axis=0)
    return X, W / W.max(axis=1, keepdims=True)


def after(method: Method, divergence: Divergence, state: State, X: np.ndarray, H: np.ndarray) -> State:
    """One step with given coefficients."""
    return updated(method, state, Problem(divergence, X, state.W), H)


def test_they_are_methods_of_ones_own_and_no_part_of_the_library() -> None:
    own = {name for name in methods.names() if methods.find(name).__module__ == "reproduction.earlier_methods"}
    assert own == set(SERVES)
    assert not any(hasattr(methods, name) for name in ("Lefevre", "Guan", "Wang"))


@pytest.mark.parametrize("name", SERVES)
def test_each_descends_and_ends_near_batch(name: str) -> None:
    X, W = problem(name)
    train, held_out = X[200:], X[:200]
    settings: dict[str, Any] = {"divergence": SERVES[name], "init": W, "random_state": 0}
    batch = BatchNMF(K, max_iter=200, tol=0.0, **settings).fit(train).loss(held_out)
    start = BatchNMF(K, fixed=W, divergence=SERVES[name], max_iter=1, tol=0.0).fit(train).loss(held_out)
    model, losses = OnlineNMF(K, method=name, max_passes=5, **settings), []

    def measure(progress: Any) -> None:
        if progress.samples in (800, 4000):
            losses.append(model.loss(held_out))

    model.set_params(callbacks=[measure]).fit(train)
    one, five = losses
    assert five < one < start
    assert five <= FACTORS[name] * batch


# lefevre


def test_lefevre_without_n_forgets_nothing() -> None:
    X, W = problem("lefevre", 300)
    settings: dict[str, Any] = {"divergence": "is", "init": W, "shuffle": False}
    without, whole, forgetful = (
        OnlineNMF(K, method=method, **settings).fit(X) for method in (Lefevre(), Lefevre(r=1.0, N=30), Lefevre(N=30))
    )
    np.testing.assert_array_equal(without.components_, whole.components_)
    assert not np.array_equal(without.components_, forgetful.components_)


def test_lefevre_without_forgetting_is_one_batch_update() -> None:
    X, W0 = problem("lefevre", 50)
    method = Lefevre(tau=50, r=1.0, N=50)
    state = method.start(ItakuraSaito(), W0, C)
    H = np.random.default_rng(0).gamma(1.0, 1.0, (50, K))
    Y = H @ state.W
    expected = state.W * np.sqrt((H.T @ (X / Y**2)) / (H.T @ (1 / Y)))
    W = after(method, ItakuraSaito(), state, X, H).W
    np.testing.assert_allclose(W, expected / expected.sum(axis=1, keepdims=True), rtol=1e-10)


def test_lefevres_past_weighs_r_after_n_samples() -> None:
    X, W0 = problem("lefevre", 60)
    method = Lefevre(tau=60, r=0.5, N=60)
    H = np.ones((60, K))
    one = after(method, ItakuraSaito(), method.start(ItakuraSaito(), W0, C), X, H)
    two = after(method, ItakuraSaito(), one, X, H)
    Y = H @ one.W
    A = 0.5 * one.memory["A"] + (H.T @ (X / Y**2)) * one.W**2
    B = 0.5 * one.memory["B"] + H.T @ (1 / Y)
    np.testing.assert_allclose(two.memory["A"] * two.memory["B"], A * B)


# guan


def test_guans_kernel_is_the_algorithm_as_written() -> None:
    rng = np.random.default_rng(3)
    W = rng.dirichlet(np.ones(F), K)
    X, H = rng.gamma(1.0, 1.0, (5, F)), rng.gamma(1.0, 1.0, (5, K))
    H[:, 2] = 0
    drawn = rng.integers(5, size=12)
    V, total, weights = W.copy(), np.zeros_like(W), 0.0
    for k, row in enumerate(drawn, start=1):
        rate = 0.03 / np.sqrt(k)
        V = project_on_simplex((V - rate * np.outer(H[row], H[row] @ V - X[row])).T, 1.0).T
        total, weights = total + rate * V, weights + rate
    np.testing.assert_allclose(averaged_steps(W, X, H, drawn, 0.03), total / weights, rtol=1e-10, atol=1e-14)
    single = [a.astype(np.float32) for a in (W, X, H)]
    np.testing.assert_allclose(averaged_steps(*single, drawn, 0.03), total / weights, rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="shapes or types do not fit"):
        averaged_steps(W, X, H[:, 1:], drawn, 0.03)
    with pytest.raises(ValueError, match="a row was drawn that X does not have"):
        averaged_steps(W, X, H, drawn + 5, 0.03)


def test_guans_buffer_holds_the_last_samples_with_their_coefficients() -> None:
    rng = np.random.default_rng(4)
    method = Guan(tau=4, buffer=6, steps=3)
    state = method.start(SquaredL2(), rng.random((K, F)), C)
    X, H = rng.random((10, F)), rng.random((10, K))
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
        state = after(method, SquaredL2(), state, X[rows], H[rows])
    np.testing.assert_array_equal(state.memory["X"], X[4:])
    np.testing.assert_array_equal(state.memory["H"], H[4:])
    np.testing.assert_allclose(state.W.sum(axis=1), 1.0, rtol=1e-6)


def test_the_samples_that_guan_draws_depend_on_its_seed_alone() -> None:
    X, W = problem("guan", 200)
    first, again, other = (
        OnlineNMF(K, divergence="squared_l2", method=Guan(seed=seed), init=W, shuffle=False, random_state=r).fit(X)
        for seed, r in ((0, 1), (0, 2), (1, 1))
    )
    np.testing.assert_array_equal(first.components_, again.components_)
    assert not np.array_equal(first.components_, other.components_)


# wang


def test_wangs_step_is_the_formula_of_its_paper() -> None:
    rng = np.random.default_rng(5)
    method, divergence = Wang(tau=3, eta=0.1, rho=0.9), Huber(0.3)
    state = method.start(divergence, rng.random((K, F)), C)
    X, H = rng.random((6, F)) * 5, rng.random((6, K))
    A, B, W, unit = np.zeros((F, K, K)), np.zeros((F, K)), state.W, None
    for rows in (slice(0, 3), slice(3, 6)):
        x, h = X[rows], H[rows]
        omega = np.minimum(1.0, 0.3 / np.abs(x - h @ W))
        unit = np.linalg.norm(x, axis=1).mean() if unit is None else unit
        for n in range(3):
            for f in range(F):
                A[f] = 0.9 * A[f] + omega[n, f] * np.outer(h[n], h[n]) / unit**2
                B[f] = 0.9 * B[f] + omega[n, f] * x[n, f] * h[n] / unit**2
        step = np.einsum("fjk,kf->jf", A, W) - B.T
        W = np.maximum(W - 0.1 * step, 0)
        W /= np.maximum(np.linalg.norm(W, axis=1, keepdims=True), 1)
        state = after(method, divergence, state, x, h)
        np.testing.assert_allclose(state.W, W, rtol=1e-9, atol=1e-12)


def test_wangs_gamma_is_an_l1_penalty_in_proportion_to_the_length_of_each_sample() -> None:
    X, W = problem("wang", 12)
    penalty = Wang(gamma=0.3).penalty(Penalties(l1_coefficients=0.1, l2_coefficients=0.2))
    posed, H = Problem(Huber(0.2), X, W, penalty=penalty), np.ones((12, K))
    lengths = np.linalg.norm(X, axis=1)
    expected = (0.1 + 0.3 * lengths) * K + 0.5 * 0.2 * K
    np.testing.assert_allclose(posed.objective(H, posed.fit(H)) - posed.loss(H, posed.fit(H)), expected)
    assert Wang().penalty(Penalties()) == Penalty()


def test_wangs_coefficients_stop_sample_by_sample_after_tens_of_steps() -> None:
    X, W = problem("wang", 40)
    solver = Wang().coefficient_solver(Huber(0.2))
    found, alone = (solver.solve(Problem(Huber(0.2), some, W)) for some in (X, X[7:8]))
    assert found.converged.all()
    assert len(set(found.iterations)) > 1
    assert not (found.iterations % 10).any()
    np.testing.assert_allclose(alone.H[0], found.H[7], rtol=1e-10)


@pytest.mark.parametrize("penalty", [Penalty(), Penalty(l2=0.3, l1=0.1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_wangs_steps_are_those_of_reweighted_least_squares(penalty: Penalty, weighted: bool) -> None:
    X, W = problem("wang", 12)
    weights = np.random.default_rng(1).choice([0.0, 0.5, 1.0], X.shape) if weighted else np.ones_like(X)
    posed = Problem(Huber(0.2), Samples(X, weights) if weighted else X, W, penalty=penalty)
    H, steps = posed.start(), 7
    found = UntilStill(max_iter=steps).solve(posed)
    for _ in range(steps):
        c = weights * 0.2 / np.maximum(np.abs(X - H @ W), 0.2)
        below = (c * (H @ W)) @ W.T + penalty.l1 + penalty.l2 * H
        H = H * (((c * X) @ W.T) / below) ** (below / (below + penalty.l2 * H))
    assert posed.upper_bounds is None or (posed.upper_bounds > H).all()
    np.testing.assert_allclose(found.H, H, rtol=1e-10)


def test_wang_restores_a_component_that_would_vanish() -> None:
    method = Wang(tau=1, eta=1e6)
    state = method.start(Huber(1.0), np.full((1, 3), 0.5), C)
    found = after(method, Huber(1.0), state, np.full((1, 3), 1e-9), np.full((1, 1), 1.0))
    np.testing.assert_array_equal(found.W, state.W)


def test_packed_products_check_their_shapes() -> None:
    with pytest.raises(ValueError, match="shapes or types do not fit"):
        packed_product(np.ones((3, 4)), np.ones((3, 4)))


def test_steps_too_long_for_the_data_are_told() -> None:
    rng = np.random.default_rng(0)
    X = rng.gamma(2.0, 1.0, (400, 3)) @ rng.gamma(1.0, 1.0, (3, 12)) + 0.1
    with pytest.warns(ConvergenceWarning, match="Try method='wang:eta=0.2'"):
        OnlineNMF(3, divergence="huber:0.5", method="wang:eta=2", random_state=0).fit(X)
