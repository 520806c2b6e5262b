"""The coefficient problem: dense, sparse and Gram agree, penalties count, and some rows are the same problem."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from onmf.coefficients import Armijo, InteriorPoint, Multiplicative, Newton, Ratios, precise_solver
from onmf.coefficients.problem import Problem, takes_sparse
from onmf.divergences import L1, Alpha, Divergence, Huber, get
from onmf.model.penalty import Penalty
from onmf.model.sets import Box
from reproduction.earlier_methods import PenaltyByLength
from tests.conftest import DISTINCT, F, LogCosh, every_divergence, example_id, examples, spread

K = 4
PENALTIES = [Penalty(), Penalty(l2=0.3), Penalty(l1=0.2), PenaltyByLength(gamma=0.2), PenaltyByLength(0.3, 0.1, 0.2)]
every_penalty = pytest.mark.parametrize("penalty", PENALTIES, ids=["none", "l2", "l1", "by length", "all"])
SOME = [Penalty(0.5), Penalty(100.0), Penalty(0.0, 0.3), Penalty(0.5, 0.3), PenaltyByLength(gamma=0.3)]
every_choice_of_penalties = pytest.mark.parametrize("penalty", SOME, ids=str)
linear_at_zero = pytest.mark.parametrize("name", ["kl", "hellinger", "alpha:2", "alpha:0.3", "squared_l2"])


def data(rng: np.random.Generator, n: int = 9, zeros: bool = False) -> tuple[np.ndarray, np.ndarray]:
    W = rng.random((K, F)) + 0.05
    X = rng.gamma(1.0, 1.0, (n, K)) @ W * rng.gamma(10, 0.1, (n, F))
    return X * (rng.random(X.shape) < 0.5) if zeros else X, W


def unpacked(M: np.ndarray) -> np.ndarray:
    full = np.zeros((len(M), K, K))
    j, k = np.triu_indices(K)
    full[:, j, k] = full[:, k, j] = M
    return full


@every_penalty
@linear_at_zero
def test_sparse_samples_pose_the_dense_problem(name: str, penalty: Penalty, rng: np.random.Generator) -> None:
    X, W = data(rng, zeros=True)
    H = rng.random((len(X), K)) + 0.01
    dense, sparse = (Problem(get(name), V, W, penalty=penalty) for V in (X, scipy.sparse.csr_matrix(X)))
    Y, y = dense.fit(H), sparse.fit(H)
    for part in ("loss", "objective", "gradient"):
        np.testing.assert_allclose(getattr(sparse, part)(H, y), getattr(dense, part)(H, Y), atol=1e-12, err_msg=part)
    for part in ("scale", "reach", "totals", "noise"):
        np.testing.assert_allclose(getattr(sparse, part), getattr(dense, part), err_msg=part)
    np.testing.assert_allclose(sparse.start(0.3 * H), dense.start(0.3 * H))
    G, _ = sparse.newton(H, y)
    np.testing.assert_allclose(G, dense.newton(H, Y)[0], atol=1e-12)


@every_penalty
@pytest.mark.parametrize("divergence", [*examples(), LogCosh()], ids=example_id)
def test_the_gradient_is_the_derivative_of_the_objective(
    divergence: Divergence, penalty: Penalty, rng: np.random.Generator
) -> None:
    X, W = data(rng)
    H, step = rng.random((len(X), K)) + 0.5, 1e-6
    problem = Problem(divergence, X, W, penalty=penalty)
    G = problem.gradient(H, problem.fit(H))
    for k in range(K):
        beyond, before = H + step * np.eye(K)[k], H - step * np.eye(K)[k]
        rise = problem.objective(beyond, problem.fit(beyond)) - problem.objective(before, problem.fit(before))
        np.testing.assert_allclose(rise / (2 * step), G[:, k], rtol=1e-4, atol=1e-5)
    if not divergence.absolute_deviations:  # whose model is a smoothed one
        np.testing.assert_allclose(problem.newton(H, problem.fit(H))[0], G)


def test_hessians_are_weighted_grams_and_the_l2_penalty(rng: np.random.Generator) -> None:
    X, W = data(rng)
    H = rng.random((len(X), K))
    for name in ("kl", "squared_l2"):
        problem = Problem(get(name), X, W, penalty=Penalty(l2=0.3))
        _, curvatures = problem.newton(H, problem.fit(H))
        expected = np.einsum("nf,jf,kf->njk", curvatures, W, W) + 0.3 * np.eye(K)
        np.testing.assert_allclose(unpacked(problem.hessians(curvatures)), expected)
    gram = problem.on_gram()
    assert gram is not None
    np.testing.assert_allclose(unpacked(gram.hessians(np.ones((len(X), 1)))), expected)


@pytest.mark.parametrize("warm", [False, True], ids=["fresh", "after use"])
@pytest.mark.parametrize("keep", [slice(2, 7), np.arange(9) % 3 == 1], ids=["slice", "mask"])
@pytest.mark.parametrize("stored", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["kl", "squared_l2"])
def test_some_rows_of_a_problem_are_the_problem_of_some_rows(name, stored, keep, warm, rng) -> None:
    X, W = data(rng, zeros=True)
    H = rng.random((len(X), K))
    penalty = Penalty(0.1, 0.2)
    problem, expected = (
        Problem(get(name), stored(X), W, penalty=penalty),
        Problem(get(name), stored(X[keep]), W, Box(), penalty),
    )

    def facts(some: Problem, h: np.ndarray, Y: np.ndarray) -> list[np.ndarray]:
        G, curvatures = some.newton(h, Y)
        parts = [some.objective(h, Y), G, some.hessians(curvatures), some.remaining_gain(h, G), some.tolerance(1e-3)]
        return [*parts, some.start(), np.asarray([some.n, some.K])]

    Y = problem.fit(H)
    if warm:
        facts(problem, H, Y)
    found = facts(problem.rows(keep), H[keep], problem.rows_of(Y, keep))
    for a, b in zip(found, facts(expected, H[keep], expected.fit(H[keep])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_sparse_samples_that_must_be_densified_raise_an_error(rng: np.random.Generator) -> None:
    X, W = data(rng)
    for divergence in (d for d in examples() if not takes_sparse(d)):
        with pytest.raises(ValueError, match=f"{divergence.name} is not linear at zero"):
            Problem(divergence, scipy.sparse.csr_matrix(X), W)


@every_divergence
def test_the_precise_solver_is_the_one_with_a_proof(divergence: Divergence) -> None:
    assert type(precise_solver(divergence)) is (InteriorPoint if divergence.name == "l1" else Newton)


# Penalties act alike in every solver


def values(problem: Problem, H: np.ndarray) -> np.ndarray:
    return problem.objective(H, problem.fit(H))


def assert_as_good(problem: Problem, H: np.ndarray, best: np.ndarray, slack: float) -> None:
    assert (values(problem, H) <= values(problem, best) + slack * problem.scale).all()


@pytest.mark.parametrize(
    ("divergence", "penalty"),
    [
        pytest.param(divergence, penalty, id=f"{example_id(divergence)}-{penalty}")
        for divergence, penalty in spread([*DISTINCT, LogCosh(), LogCosh().in_units(3.0)], SOME, 4)
    ],
)
def test_multiplicative_steps_end_at_newtons_penalised_solution(
    divergence: Divergence, penalty: Penalty, rng: np.random.Generator
) -> None:
    X, W = data(rng)
    problem = Problem(divergence, X / X.mean(), W, Box(1e-8), penalty)
    solver = Multiplicative(max_iter=6000)
    if isinstance(divergence, Alpha) and divergence.alpha <= 0:
        with pytest.raises(ValueError, match="Multiplicative takes no penalty under alpha"):
            solver.solve(problem)
        return
    found = solver.solve(problem).H
    if isinstance(divergence, L1):  # smoothed multiplicative steps against exact ones
        assert_as_good(problem, found, InteriorPoint(tol=1e-6).solve(problem).H, 2e-2)
        return
    best = Newton(tol=1e-10, max_iter=1000).solve(problem, found).H
    assert_as_good(problem, found, best, 1e-4)
    unpenalised = Newton(tol=1e-10, max_iter=1000).solve(Problem(divergence, problem.X, W))
    assert found.sum() < unpenalised.H.sum()


@every_choice_of_penalties
@pytest.mark.parametrize("name", ["kl", "hellinger", "alpha:0.3", "alpha:2"])
def test_sparse_multiplicative_steps_are_the_dense_ones_and_end_at_newtons(
    name: str, penalty: Penalty, rng: np.random.Generator
) -> None:
    X, W = data(rng, zeros=True)
    dense, sparse = (Problem(get(name), V, W, Box(1e-8), penalty) for V in (X, scipy.sparse.csr_matrix(X)))
    few, many = Multiplicative(max_iter=7), Multiplicative(max_iter=4000)
    np.testing.assert_allclose(few.solve(sparse).H, few.solve(dense).H, rtol=1e-10)
    assert_as_good(sparse, many.solve(sparse).H, Newton(tol=1e-10, max_iter=1000).solve(sparse).H, 1e-4)


@pytest.mark.parametrize("name", ["kl", "hellinger", "alpha:0.3", "huber:0.2", "squared_l2", "beta:1.5", "is"])
def test_a_multiplicative_step_under_a_strong_penalty_does_not_oscillate(name: str, rng: np.random.Generator) -> None:
    X, W = data(rng)
    for l2 in (1.0, 1e3, 1e6):
        problem = Problem(get(name), X, W, Box(1e-12), Penalty(l2))
        course = [values(problem, Multiplicative(max_iter=n).solve(problem).H) for n in (40, 41, 42, 80, 81)]
        assert (np.diff(course, axis=0) <= 1e-6 * course[0]).all()


@pytest.mark.parametrize("divergence", [Huber(0.2), get("squared_l2"), get("kl"), get("is"), get("l2")], ids=example_id)
def test_newton_with_penalties_is_as_good_as_scipy(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = data(rng)
    box = Box(1e-3, 1e8)
    problem = Problem(divergence, X, W, box, PenaltyByLength(0.1, 0.2, 0.1))
    found = Newton(tol=1e-9, max_iter=500).solve(problem)
    assert found.converged.all()
    for i, h in enumerate(found.H):
        row = problem.rows(slice(i, i + 1))
        best = scipy.optimize.minimize(
            lambda g, row=row: (values(row, g[None])[0], row.gradient(g[None], row.fit(g[None]))[0]),
            h,
            jac=True,
            method="L-BFGS-B",
            bounds=[(box.low, box.high)] * K,
            options={"ftol": 1e-16, "gtol": 1e-12},
        )
        assert values(row, h[None])[0] <= best.fun + 1e-7 * row.scale[0]
    armijo = Armijo(tol=1e-7, max_iter=20_000).solve(problem).H
    if divergence.convex:
        assert_as_good(problem, found.H, armijo, 1e-6)
        assert_as_good(problem, armijo, found.H, 1e-6)


def test_ratios_know_the_l2_penalty(rng: np.random.Generator) -> None:
    X, W = data(rng, n=40)
    problem = Problem(get("is"), X, W, penalty=Penalty(3.0))
    found, best = Ratios().solve(problem).H, Newton(tol=1e-8, max_iter=300).solve(problem).H
    assert values(problem, found).mean() <= 1.05 * values(problem, best).mean()
