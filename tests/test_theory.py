"""What theory.md proves, seen on the code: identities to rounding, and slopes against finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from onmf.coefficients import CoefficientSolver, InteriorPoint, Newton
from onmf.coefficients.problem import Problem, slopes, unpacked
from onmf.divergences import L1, L2, Divergence, Huber, KullbackLeibler, SquaredL2
from onmf.methods import EM, Surrogate, quadratics
from onmf.model.penalty import Penalty
from onmf.model.sets import Box, DictionarySet
from onmf.samples import Samples

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


@pytest.mark.parametrize(
    ("divergence", "features", "solver", "digits"),
    [(L1(), 60, InteriorPoint(tol=1e-13), 1e-5), (L2(), 5, Newton(tol=1e-6, max_iter=1000), 0.01)],
    ids=["l1", "l2 at exact fits"],
)
def test_at_kinks_the_slopes_that_a_solver_finds_are_those_of_the_least_loss(
    divergence: Divergence, features: int, solver: CoefficientSolver, digits: float, rng: np.random.Generator
) -> None:
    """Lemma 3: h (x) u has the directional derivatives of l(x, .), and the derivative or zero in the place of u not."""
    components, n, step = 12 if features == 60 else 8, 10, 1e-5
    W, direction = rng.uniform(0.1, 1, (components, features)), rng.normal(size=(components, features))
    X = rng.gamma(2, 1, (n, components)) @ W * (rng.gamma(5, 0.2, (n, features)) if features == 60 else 1)

    def solved(at: np.ndarray, solver: CoefficientSolver = solver) -> tuple[Problem, np.ndarray, np.ndarray]:
        problem = Problem(divergence, X, at, penalty=RIDGE)
        H = solver.solve(problem).H
        return problem, H, problem.objective(H, problem.fit(H))

    problem, H, _ = solved(W)
    measured = (solved(W + step * direction)[2] - solved(W - step * direction)[2]) / (2 * step)

    def errors(u: np.ndarray) -> np.ndarray:
        return np.abs(np.einsum("nk,kf,nf->n", H, direction, u) / measured - 1)

    u = problem.slopes(H @ W)
    assert np.median(errors(u)) < digits
    assert np.median(errors(slopes(divergence, problem.X, H @ W))) > 0.1

    # Lemma 2: the gap of a pair, J(h) - D(u), is as small as its tolerance says.
    problem, H, objective = solved(W, replace(solver, tol=1e-3))
    u = problem.slopes(H @ W)
    best = np.clip(-(u @ W.T) / RIDGE.l2, 1e-8, 1e8)
    dual = (u @ W.T * best).sum(axis=1) + RIDGE.l2 / 2 * np.square(best).sum(axis=1) - (u * X).sum(axis=1)
    assert (objective - dual <= 1.001e-3 * problem.scale).all()


@pytest.mark.parametrize("l1", [0.0, 0.01])
@pytest.mark.parametrize("low", [1e-5, 1e-8])
def test_at_exact_fits_under_l2_the_gap_of_a_pair_falls_with_the_tolerance(
    low: float, l1: float, rng: np.random.Generator
) -> None:
    """Lemma 2: what least squares find above the lower bound belongs to the slopes; what is cut to it does not."""
    W, m, high = rng.uniform(0.1, 1, (8, 5)), 1e-3, 1e8
    X = rng.gamma(2, 1, (20, 8)) @ W
    for tol in (1e-4, 1e-5, 1e-6):
        problem = Problem(L2(), X, W, Box(low, high), Penalty(l2=m, l1=l1))
        found = Newton(tol=tol, max_iter=1000).solve(problem)
        u = problem.slopes(found.H @ W)
        pull = u @ W.T + problem.l1
        best = np.clip(-pull / m, low, high)
        dual = (pull * best + m / 2 * np.square(best)).sum(axis=1) - (u * X).sum(axis=1)
        assert found.converged.all()
        assert (problem.objective(found.H, found.H @ W) - dual <= tol * np.linalg.norm(X, axis=1)).all()


@pytest.mark.parametrize("tol", [1e-3, 2e-6])
def test_what_counts_as_solved_under_l2_is_proved_at_bounds_and_near_kinks(
    tol: float, rng: np.random.Generator
) -> None:
    """Lemma 2: Newton's method also stops where rounding hides all progress, and an active set knows no upper bound."""
    m, h, long, wide = 1e-2, rng.random(6), rng.random((8, 5)), rng.random((6, 10))
    # Exact fits are best as long as the least u with Wu = -mh is shorter than one.
    near_one = np.linspace(0.9, 1.02, 50)[:, None] / np.linalg.norm(np.linalg.lstsq(wide, -m * h)[0])
    for X, W, *high in ((0.4 * rng.random((50, 8)) @ long, long, 0.4), (near_one * h @ wide, wide)):
        box = Box(1e-8, *high)
        problem = Problem(L2(), X, W, box, Penalty(l2=m))
        found = Newton(tol=tol, max_iter=1000).solve(problem)
        u = problem.slopes(found.H @ W)
        best = np.clip(-(u @ W.T) / m, box.low, box.high)
        dual = (u @ W.T * best + m / 2 * np.square(best)).sum(axis=1) - (u * X).sum(axis=1)
        gap = problem.objective(found.H, found.H @ W) - dual
        assert (gap <= 1.001 * tol * np.linalg.norm(X, axis=1))[found.converged].all()
        assert found.converged.mean() > (0.8 if high else 0.999)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_missing_entries_under_l2_take_few_steps_with_exact_fits_and_without(
    noise: float, dtype: type, rng: np.random.Generator
) -> None:
    W = rng.random((10, 60)).astype(dtype)
    X = (rng.gamma(1, 1, (50, 10)) @ W).astype(dtype) * rng.uniform(1 - noise, 1 + noise, (50, 60)).astype(dtype)
    known = (rng.random(X.shape) < 0.5).astype(dtype)
    problem = Problem(L2(), Samples(X * known, entry_weight=known), W, penalty=Penalty(l2=1e-3))
    found = Newton(tol=1e-4, max_iter=1000).solve(problem)
    assert found.converged.all()
    assert found.iterations.max() <= 20


def test_what_is_left_to_gain_bounds_the_gap_under_kl_wherever_the_minimum_is(rng: np.random.Generator) -> None:
    """Lemma 7 (3)."""
    W, divergence = rng.uniform(0.1, 1, (K, F)), KullbackLeibler()
    problem, best = posed(divergence, samples(rng, W), W)
    H = best * rng.gamma(0.3, 3, best.shape) + 1e-8
    G = problem.gradient(H, problem.fit(H))
    gap = problem.objective(H, problem.fit(H)) - problem.objective(best, problem.fit(best))
    assert (gap <= problem.remaining_gain(H, G) + 1e-8 * np.maximum(-G, 0).sum(axis=1)).all()


def test_what_is_left_to_gain_bounds_a_gap_where_the_minimum_is_farther_off_than_it_looks() -> None:
    """Lemma 7 (1), at the example of Lemma 7 (3), where it is no bound itself."""
    m = 1e-3
    W, x, h = np.r_[1.0, np.full(100, 0.1)][None], np.eye(101)[:1], np.zeros((1, 1))
    problem = Problem(SquaredL2(), x, W, Box(0.0, 1.0), Penalty(l2=m))
    best = np.array([[1 / 2.001]])
    gap = problem.objective(h, problem.fit(h)) - problem.objective(best, problem.fit(best))
    left = problem.remaining_gain(h, problem.gradient(h, problem.fit(h)))
    assert left == pytest.approx(1 / 11)
    assert left < gap < left + 2 / m * (101 * left) ** 2
