"""What docs/theory.md proves, seen on the code: identities to rounding, and slopes against finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from onmf.coefficients import InteriorPoint, Newton
from onmf.coefficients.problem import Problem, slopes, unpacked
from onmf.divergences import L1, Divergence, Huber, KullbackLeibler, SquaredL2
from onmf.methods import EM, Surrogate, quadratics
from onmf.model.penalty import Penalties, Penalty
from onmf.model.sets import Box, DictionarySet, Simplex

K, F, N = 3, 8, 40
RIDGE = Penalty(l2=0.01)


def samples(rng: np.random.Generator, W: np.ndarray) -> np.ndarray:
    return np.asarray(rng.gamma(2, 1, (N, K)) @ W * rng.gamma(1000, 0.001, (N, F)))


def posed(divergence: Divergence, X: np.ndarray, W: np.ndarray) -> tuple[Problem, np.ndarray]:
    problem = Problem(divergence, X, W, penalty=RIDGE)
    return problem, Newton(tol=1e-10).solve(problem).H


def minimum(A: np.ndarray, b: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Minimise w A_f w' / 2 - b_f w' over the box for every feature; also return the multipliers of active bounds."""
    W = np.empty_like(b)
    for f, matrix in enumerate(A):
        root = np.linalg.cholesky(matrix)
        target = scipy.linalg.solve_triangular(root, b[:, f], lower=True)
        W[:, f] = scipy.optimize.lsq_linear(root.T, target, (low, high), method="bvls", tol=1e-15).x
    slope = np.einsum("fjk,kf->jf", A, W) - b
    multipliers = np.where(low >= W, np.maximum(slope, 0), np.where(high <= W, np.minimum(slope, 0), 0))
    return W, multipliers


@pytest.mark.parametrize("active", [False, True], ids=["away from the bounds", "at active bounds"])
@pytest.mark.parametrize("divergence", [KullbackLeibler(), SquaredL2(), Huber(0.5)], ids=lambda d: d.name)
def test_an_update_of_averaged_models_is_a_gradient_step_in_their_metric(
    divergence: Divergence, active: bool, rng: np.random.Generator
) -> None:
    """A+ (W+ - W) = -rho G + lambda+ - (1 - rho) lambda: Lemma 12."""
    W = rng.uniform(0.3, 0.9, (K, F))
    low, high = (0.45, 0.75) if active else (0.0, 10.0)
    method = Surrogate(tau=N)
    state = method.start(divergence, W, DictionarySet())
    problem, H = posed(divergence, samples(rng, W), state.W)
    state = method.update(state, problem, H, problem.fit(H), N)
    before = statistics(state.memory)
    V, multipliers = minimum(*before, low, high)
    assert (multipliers != 0).any() == active
    unit = state.memory["unit"].copy()
    state = replace(state, W=V / unit[:, None])

    problem, H = posed(divergence, samples(rng, W), state.W)
    rho = method.weight(divergence, state.clock + N, N)
    after = statistics(method.update(state, problem, H, problem.fit(H), N).memory)
    V_after, multipliers_after = minimum(*after, low, high)
    G = (H / unit).T @ slopes(divergence, problem.X, H @ state.W) / N
    moved = np.einsum("fjk,kf->jf", after[0], V_after - V)
    expected = -rho * G + multipliers_after - (1 - rho) * multipliers
    assert np.abs(V_after - V).max() > 1e-3
    assert np.abs(moved - expected).max() < 1e-12 * np.abs(after[1]).max()


def statistics(memory: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A copy of A, one matrix per feature, and of b."""
    b = memory["b"].copy()
    if "A" not in memory:
        return np.repeat(memory["S"][None], b.shape[1], axis=0), b
    return np.concatenate([unpacked(quadratics.matrices(memory, f).T, K) for f in quadratics.blocks(memory)]), b


def test_an_update_of_em_is_a_gradient_step(rng: np.random.Generator) -> None:
    """W+ = W - rho (W / D+) o G under Kullback-Leibler, before units change: Lemma 19."""
    W = rng.uniform(0.3, 0.9, (K, F))
    method, divergence = EM(tau=N), KullbackLeibler()
    state = method.start(divergence, W, DictionarySet())
    for _ in range(2):
        problem, H = posed(divergence, samples(rng, W), state.W)
        before, rho = state, method.weight(divergence, state.clock + N, N)
        state = method.update(state, problem, H, problem.fit(H), N)
    s = np.exp(state.memory["log_unit"] - before.memory["log_unit"])
    G = H.T @ slopes(divergence, problem.X, H @ before.W) / N
    expected = before.W - rho * before.W / (state.memory["D"] / s)[:, None] * G
    assert np.abs(state.W * s[:, None] - expected).max() < 1e-12
    assert np.abs(expected - before.W).max() > 1e-3


def test_on_the_simplex_a_ridge_bounds_the_weights_of_squared_l2_and_no_unit_changes(rng: np.random.Generator) -> None:
    """The setting that has the form of Theorem B: w <= b / l2_dictionary after every update, whatever W was."""
    method, divergence, penalties = Surrogate(tau=N), SquaredL2(), Penalties(l2_coefficients=0.01, l2_dictionary=0.5)
    W = 100 * rng.uniform(0.3, 0.9, (K, F))
    state = replace(method.start(divergence, W, DictionarySet(eps=0, high=np.inf)), penalties=penalties)
    for _ in range(3):
        X = rng.dirichlet(np.ones(K), N) @ (W / 100)
        problem = Problem(divergence, X, state.W, Simplex(), penalties.of_coefficients)
        H = method.coefficient_solver(divergence).solve(problem).H
        state = method.update(state, problem, H, problem.fit(H), N)
        assert (state.W * penalties.l2_dictionary - state.memory["b"] <= 1e-12).all()
        assert (state.memory["unit"] == 1).all()


def test_the_dual_of_l1_is_the_slope_of_its_least_loss_and_the_sign_is_not(rng: np.random.Generator) -> None:
    """Lemma 3: h (x) u has the directional derivatives of l(x, .); sign(y - x) differs where fits are exact."""
    W, direction = rng.uniform(0.1, 1, (K, F)), rng.normal(size=(K, F))
    x = samples(rng, W)[:1] * rng.choice([0.5, 1.0, 2.0], (1, F))
    solver, box = InteriorPoint(tol=1e-14), Box(0.0)

    def solved(at: np.ndarray) -> tuple[np.ndarray, float]:
        problem = Problem(L1(), x, at, box, RIDGE)
        h = solver.solve(problem).H
        return h[0], float(problem.objective(h, problem.fit(h))[0])

    step = 1e-4
    measured = (solved(W + step * direction)[1] - solved(W - step * direction)[1]) / (2 * step)
    h, _ = solved(W)
    residuals = h @ W - x[0]
    kinks, used = np.abs(residuals) < 1e-7, h > 1e-7
    assert kinks.any()
    u = np.where(kinks, 0.0, np.sign(residuals))
    u[kinks] = scipy.optimize.lsq_linear(W[used][:, kinks], -RIDGE.l2 * h[used] - W[used] @ u, (-1, 1)).x
    assert np.allclose(W[used] @ u, -RIDGE.l2 * h[used], atol=1e-6)  # a dual point: only then it counts
    assert measured == pytest.approx(float(h @ direction @ u), rel=1e-3)
    assert abs(float(h @ direction @ np.sign(residuals)) / measured - 1) > 0.02


def test_what_is_left_to_gain_bounds_the_gap_under_kl_wherever_the_minimum_is(rng: np.random.Generator) -> None:
    """Lemma 7 (3)."""
    W, divergence = rng.uniform(0.1, 1, (K, F)), KullbackLeibler()
    problem, best = posed(divergence, samples(rng, W), W)
    H = best * rng.gamma(0.3, 3, best.shape) + 1e-8
    G = problem.gradient(H, problem.fit(H))
    gap = problem.objective(H, problem.fit(H)) - problem.objective(best, problem.fit(best))
    assert (gap <= problem.remaining_gain(H, G) + 1e-8 * np.maximum(-G, 0).sum(axis=1)).all()


def test_what_is_left_to_gain_bounds_no_gap_where_the_minimum_is_farther_off_than_it_looks() -> None:
    """Lemma 7 (4), and the factor of Lemma 7 (2) that makes a bound of it."""
    W, x, h = np.r_[1.0, np.full(100, 0.1)][None], np.eye(101)[:1], np.zeros((1, 1))
    problem = Problem(SquaredL2(), x, W, Box(0.0, 1.0), Penalty(l2=1e-3))
    best = np.array([[1 / 2.001]])
    gap = problem.objective(h, problem.fit(h)) - problem.objective(best, problem.fit(best))
    left = problem.remaining_gain(h, problem.gradient(h, problem.fit(h)))
    assert left == pytest.approx(1 / 11)
    assert left < gap < left * 2 * 101
