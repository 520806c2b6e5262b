from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from onmf.coefficients import (
    Armijo,
    Coefficients,
    CoefficientSolver,
    ConstantStep,
    CoordinateDescent,
    InteriorPoint,
    Multiplicative,
    Newton,
    Polyak,
    Ratios,
    precise_solver,
)
from onmf.coefficients.problem import Problem
from onmf.data.examples import Planted
from onmf.divergences import L1, L2, Beta, Divergence, Huber, KullbackLeibler, SquaredL2, get
from onmf.methods import Paper
from onmf.methods.base import PATIENCE, TOL
from onmf.model.penalty import Penalty
from onmf.model.sets import Box, DictionarySet
from tests.conftest import DISTINCT, F, LogCosh, every_distinct_divergence, example_id, examples

LOW, HIGH = 1e-8, 1e8
DELTA_TOL = 1e-2


def every(divergences: Iterable[Divergence]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("divergence", list(divergences), ids=example_id)


every_divergence = every_distinct_divergence
every_certified_divergence = every(d for d in DISTINCT if d.smooth_unless_exact)
every_convex_certified_divergence = every(d for d in DISTINCT if d.smooth_unless_exact and d.convex)
every_divergence_with_zeros = every(d for d in DISTINCT if d.domain.x.includes_zero)


def problem(rng: np.random.Generator, n: int = 3, K: int = 4, zeros: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Samples of unit mean, not quite of the dictionary, some of whose components they do not use."""
    W = 1 - rng.random((K, F))
    H = rng.gamma(1, 1, (n, K)) * (rng.random((n, K)) < 0.7)
    X = (H @ W) * rng.gamma(5, 0.2, (n, F)) + 0.01
    if zeros:
        X *= rng.random(X.shape) < 0.6
    return X / X.mean(), W


def problem_for(divergence: Divergence, rng: np.random.Generator, **options: int) -> tuple[np.ndarray, np.ndarray]:
    return problem(rng, zeros=divergence.domain.x.includes_zero and divergence.convex, **options)


def solver_of(divergence: Divergence, **options: float) -> CoefficientSolver:
    solver = Paper(solver="paper", **{"tol": 1e-5, "max_iter": 20_000, **options}).coefficient_solver(divergence)
    if isinstance(solver, Polyak):  # it takes all the time that it is given
        return replace(solver, delta_tol=DELTA_TOL, max_iter=min(solver.max_iter, 4000))
    return solver


def objective(divergence: Divergence, x: np.ndarray, W: np.ndarray, h: np.ndarray, l2: float = 0.0) -> float:
    return float(divergence.value(x[None], (h @ W)[None])[0] + 0.5 * l2 * h @ h)


def slope(divergence: Divergence, x: np.ndarray, W: np.ndarray, h: np.ndarray, l2: float = 0.0) -> np.ndarray:
    return W @ divergence.grad(x[None], (h @ W)[None])[0] + l2 * h


def twice_too_large(divergence: Divergence, x: np.ndarray) -> float:
    """d(x || 2x), where 0 || 0 counts as nothing."""
    return float(divergence.value(x[None], np.maximum(2 * x, 1e-30)[None])[0])


def tolerance(solver: CoefficientSolver, divergence: Divergence, x: np.ndarray) -> float:
    if isinstance(solver, Polyak):
        return 3 * solver.delta_tol * float(x.mean())
    return solver.tol * twice_too_large(divergence, x)


def descend(
    divergence: Divergence,
    x: np.ndarray,
    W: np.ndarray,
    starts: Iterable[np.ndarray],
    l2: float = 0.0,
    box: tuple[float, float] = (LOW, HIGH),
) -> tuple[float, np.ndarray]:
    """The best of scipy's L-BFGS-B from several starts."""
    found = [
        scipy.optimize.minimize(
            lambda h: (objective(divergence, x, W, h, l2), slope(divergence, x, W, h, l2)),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[box] * len(W),
            options={"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-12},
        )
        for start in starts
    ]
    best = min(found, key=lambda result: result.fun)
    return float(best.fun), best.x


def least_absolute(x: np.ndarray, W: np.ndarray) -> tuple[float, np.ndarray]:
    """min sum |x - hW| as a linear programme in (h, r) with |x - hW| <= r."""
    K, n_features = W.shape
    eye = np.eye(n_features)
    result = scipy.optimize.linprog(
        np.r_[np.zeros(K), np.ones(n_features)],
        A_ub=np.block([[W.T, -eye], [-W.T, -eye]]),
        b_ub=np.r_[x, -x],
        bounds=[(LOW, HIGH)] * K + [(0, None)] * n_features,
    )
    return float(result.fun), result.x[:K]


def optimum(
    divergence: Divergence, x: np.ndarray, W: np.ndarray, h: np.ndarray, l2: float = 0.0
) -> tuple[float, np.ndarray]:
    """An independent solution; for a divergence that is not convex, what is left to gain from h."""
    if isinstance(divergence, L1) and not l2:
        return least_absolute(x, W)
    K = len(W)
    starts = [h]
    if divergence.convex:
        starts += [np.full(K, 0.3), np.full(K, 2.0)]
    return descend(divergence, x, W, starts, l2)


# Optimality


def assert_solved(divergence: Divergence, X: np.ndarray, W: np.ndarray) -> None:
    solver = solver_of(divergence)
    found = solver.solve(Problem(divergence, X, W))
    assert found.converged.all()
    assert Box().contains(found.H)
    for x, h in zip(X, found.H, strict=True):
        best, _ = optimum(divergence, x, W, h)
        assert objective(divergence, x, W, h) <= best + tolerance(solver, divergence, x)


@every_divergence
def test_solution_is_as_good_as_scipys(divergence: Divergence, rng: np.random.Generator) -> None:
    assert_solved(divergence, *problem(rng))


@every_divergence_with_zeros
def test_solution_of_data_with_zeros_is_as_good_as_scipys(divergence: Divergence, rng: np.random.Generator) -> None:
    assert_solved(divergence, *problem(rng, zeros=True))


@every(d for d in examples(60) if d.name in {"kl", "hellinger", "squared_l2", "huber", "l2"})
def test_counts_are_explained_by_a_sparse_dictionary(divergence: Divergence, rng: np.random.Generator) -> None:
    W = DictionarySet().project(rng.random((8, 60)) * (rng.random((8, 60)) < 0.2))
    X = rng.poisson(5 * rng.gamma(0.3, 1, (30, 8)) @ W).astype(float)
    X /= X.mean()
    found = (
        Paper(solver="paper", tol=1e-3, max_iter=5000).coefficient_solver(divergence).solve(Problem(divergence, X, W))
    )
    best = np.array([optimum(divergence, x, W, h)[0] for x, h in zip(X, found.H, strict=True)])
    limits = np.array([1e-3 * twice_too_large(divergence, x) for x in X])
    assert (divergence.value(X, found.H @ W) <= best + limits).all()


def test_squared_l2_is_nonnegative_least_squares(rng: np.random.Generator) -> None:
    X, W = problem(rng, n=8, zeros=True)
    found = (
        Paper(solver="paper", tol=1e-12, max_iter=100_000)
        .coefficient_solver(SquaredL2())
        .solve(Problem(SquaredL2(), X, W))
    )
    expected = np.array([scipy.optimize.nnls(W.T, x)[0] for x in X])
    np.testing.assert_allclose(found.H, expected, atol=1e-5)


@every_divergence
def test_solution_with_an_l2_penalty_is_as_good_as_scipys_and_shorter(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, W = problem_for(divergence, rng)
    l2 = 0.5
    solver = solver_of(divergence)
    plain, found = (solver.solve(Problem(divergence, X, W, penalty=Penalty(m))) for m in (0.0, l2))
    assert found.converged.all()
    assert np.linalg.norm(found.H, axis=1).sum() < np.linalg.norm(plain.H, axis=1).sum()
    for x, h in zip(X, found.H, strict=True):
        best, _ = optimum(divergence, x, W, h, l2)
        if isinstance(divergence, L1):  # L-BFGS-B needs derivatives; SLSQP gets the programme of least_absolute
            best = min(best, _least_absolute_with_l2(x, W, l2))
        assert objective(divergence, x, W, h, l2) <= best + tolerance(solver, divergence, x)


def _least_absolute_with_l2(x: np.ndarray, W: np.ndarray, l2: float) -> float:
    K = len(W)
    result = scipy.optimize.minimize(
        lambda z: z[K:].sum() + 0.5 * l2 * z[:K] @ z[:K],
        np.r_[np.full(K, 0.3), np.abs(x - 0.3 * W.sum(axis=0))],
        jac=lambda z: np.r_[l2 * z[:K], np.ones(F)],
        bounds=[(LOW, HIGH)] * K + [(0, None)] * F,
        constraints=[
            {"type": "ineq", "fun": lambda z: z[K:] - x + z[:K] @ W, "jac": lambda _: np.c_[W.T, np.eye(F)]},
            {"type": "ineq", "fun": lambda z: z[K:] + x - z[:K] @ W, "jac": lambda _: np.c_[-W.T, np.eye(F)]},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return objective(L1(), x, W, np.clip(result.x[:K], LOW, HIGH), l2)


@every_divergence
def test_solution_in_a_tight_box_is_as_good_as_scipys(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng)
    low, high = 0.1, 0.6
    solver = solver_of(divergence, max_iter=1000)
    found = solver.solve(Problem(divergence, X, W, Box(low, high)))
    assert Box(low, high).contains(found.H)
    for x, h in zip(X, found.H, strict=True):
        best, _ = descend(divergence, x, W, [h], box=(low, high))
        assert objective(divergence, x, W, h) <= best + tolerance(solver, divergence, x)


@pytest.mark.parametrize("name", ["kl", "is", "l2", "squared_l2", "huber:0.1"])
def test_a_solution_at_the_upper_bound_counts_as_found(name: str, rng: np.random.Generator) -> None:
    X, W = rng.uniform(1, 2, (4, F)), rng.uniform(0.2, 1, (4, F))
    found = solver_of(get(name), max_iter=500).solve(Problem(get(name), X, W, Box(LOW, 0.01)))
    np.testing.assert_array_equal(found.H, 0.01)
    assert found.converged.all()


@every_divergence
def test_exact_data_are_fitted_and_said_to_be(divergence: Divergence, rng: np.random.Generator) -> None:
    _, W = problem(rng)
    X = rng.gamma(2, 0.5, (4, len(W))) @ W
    solver = solver_of(divergence, tol=1e-3, max_iter=5000)
    found = solver.solve(Problem(divergence, X, W))
    for x, h in zip(X, found.H, strict=True):
        assert objective(divergence, x, W, h) <= tolerance(solver, divergence, x)
    assert found.converged.all()


@every_certified_divergence
def test_a_tight_tolerance_is_reached(divergence: Divergence, rng: np.random.Generator) -> None:
    W = np.where(np.arange(F) % 3 == np.arange(3)[:, None], 0.8, 0.1) + rng.uniform(0, 0.1, (3, F))
    X = rng.uniform(0.5, 1.0, (8, 3)) @ W * rng.uniform(0.8, 1.2, (8, F))
    found = solver_of(divergence, tol=1e-10, max_iter=2000).solve(Problem(divergence, X, W))
    assert found.converged.all()


# Honesty


def bound_by_hand(divergence: Divergence, x: np.ndarray, W: np.ndarray, h: np.ndarray, l2: float) -> float:
    """What is left to gain, as the documentation of the test for convergence writes it."""
    bound = 0.0
    for k, g in enumerate(slope(divergence, x, W, h, l2)):
        reach = x.sum() / W[k].sum()
        bound += g * (h[k] - LOW) if g > 0 else -g * min(max(reach - h[k], h[k]), HIGH - h[k])
    return bound


@pytest.mark.parametrize("l2", [0.0, 0.3])
@every_certified_divergence
def test_converged_samples_satisfy_the_documented_bound(
    divergence: Divergence, l2: float, rng: np.random.Generator
) -> None:
    X, W = problem_for(divergence, rng, n=4)
    for tol, max_iter in [(1e-1, 3), (1e-2, 20), (1e-4, 2000)]:
        solver = solver_of(divergence, tol=tol, max_iter=max_iter)
        found = solver.solve(Problem(divergence, X, W, penalty=Penalty(l2)))
        assert (found.iterations <= max_iter).all()
        for x, h in zip(X[found.converged], found.H[found.converged], strict=True):
            limit = tol * twice_too_large(divergence, x)
            left = min(bound_by_hand(divergence, x, W, h, l2), objective(divergence, x, W, h, l2))
            assert left <= limit * (1 + 1e-6)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@every_convex_certified_divergence
def test_converged_samples_of_a_convex_divergence_are_within_the_tolerance_of_the_minimum(
    divergence: Divergence, tol: float, rng: np.random.Generator
) -> None:
    solver = solver_of(divergence, tol=tol)
    X, W = problem_for(divergence, rng, n=5)
    found = solver.solve(Problem(divergence, X, W))
    certified = 0
    for x, h, converged in zip(X, found.H, found.converged, strict=True):
        best, h_best = optimum(divergence, x, W, h)
        reachable = (h_best <= np.maximum(x.sum() / W.sum(axis=1), 2 * h)).all()  # what the documentation assumes
        if converged and reachable:
            certified += 1
            assert objective(divergence, x, W, h) - best <= tol * twice_too_large(divergence, x)
    assert certified >= 3


@every_divergence
def test_one_iteration_is_not_enough_and_said_not_to_be(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng)
    found = solver_of(divergence, max_iter=1).solve(Problem(divergence, X, W))
    assert not found.converged.any()
    assert (found.iterations == 1).all()
    assert Box().contains(found.H)


def test_polyaks_answer_improves_with_its_tolerance_and_its_limit(rng: np.random.Generator) -> None:
    X, W = problem(rng, n=6)
    excess = []
    for delta_tol, max_iter in [(0.1, 200), (1e-2, 2000), (2e-3, 8000)]:
        found = Polyak(max_iter=max_iter, delta_tol=delta_tol).solve(Problem(L1(), X, W))
        best = np.array([least_absolute(x, W)[0] for x in X])
        excess.append(L1().value(X, found.H @ W) - best)
        assert (excess[-1][found.converged] <= 3 * delta_tol * X[found.converged].mean(axis=1)).all()
    assert excess[0].max() > excess[1].max() > excess[2].max()


# Batches and starts


@every_divergence
def test_a_samples_answer_does_not_depend_on_its_batch(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng, n=6)
    solver = Paper(solver="paper").coefficient_solver(divergence)
    together = solver.solve(Problem(divergence, X, W))
    shuffled = solver.solve(Problem(divergence, X[::-1].copy(), W))
    np.testing.assert_allclose(shuffled.H[::-1], together.H, atol=1e-10)
    for i in range(len(X)):
        alone = solver.solve(Problem(divergence, X[i : i + 1], W))
        np.testing.assert_allclose(alone.H[0], together.H[i], atol=1e-10)
        assert alone.iterations[0] == together.iterations[i]
        assert alone.converged[0] == together.converged[i]


@every_divergence
def test_a_warm_start_at_the_solution_stays_there(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng)
    solver = solver_of(divergence, max_iter=5000)
    cold = solver.solve(Problem(divergence, X, W))
    start = cold.H.copy()
    warm = solver.solve(Problem(divergence, X, W), start)
    np.testing.assert_array_equal(start, cold.H)
    assert (divergence.value(X, warm.H @ W) <= divergence.value(X, cold.H @ W) * (1 + 1e-12)).all()
    if not isinstance(solver, Polyak):
        assert (warm.iterations[cold.converged] == 0).all()
        np.testing.assert_array_equal(warm.H[cold.converged], cold.H[cold.converged])


@every_divergence
def test_a_start_outside_the_box_is_brought_in(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem(rng)
    solver = solver_of(divergence, max_iter=20)
    found = solver.solve(Problem(divergence, X, W), np.tile([-3.0, 1e9, 1.0, 0.0], (len(X), 1)))
    assert Box().contains(found.H)


@every(d for d in DISTINCT if d.convex or not d.domain.y.includes_zero)  # beta > 2: a fit of zero is a critical point
def test_a_start_at_the_lower_bound_leads_to_the_solution(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem(rng)
    solver = solver_of(divergence, tol=1e-3)
    found = solver.solve(Problem(divergence, X, W), np.zeros((len(X), len(W))))
    assert found.converged.all()
    for x, h in zip(X, found.H, strict=True):
        assert objective(divergence, x, W, h) <= optimum(divergence, x, W, h)[0] + tolerance(solver, divergence, x)


@every_divergence_with_zeros
def test_a_sample_of_zeros_has_coefficients_at_the_lower_bound(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, W = problem(rng)
    X[1] = 0
    found = solver_of(divergence, tol=1e-3).solve(Problem(divergence, X, W))
    np.testing.assert_array_equal(found.H[1], LOW)
    assert found.converged.all()


@every_divergence
def test_the_arguments_are_left_as_they_were(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng)
    start = rng.random((len(X), len(W)))
    before = X.copy(), W.copy(), start.copy()
    solver_of(divergence, max_iter=20).solve(Problem(divergence, X, W), start)
    for array, copy in zip((X, W, start), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@every_divergence
def test_single_precision_stays_single(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng)
    solver = solver_of(divergence, tol=1e-3, delta_tol=1e-2, max_iter=5000)
    found = solver.solve(
        Problem(divergence, X.astype(np.float32), W.astype(np.float32)), np.full((len(X), len(W)), 0.5)
    )
    double = solver.solve(Problem(divergence, X, W))
    assert found.H.dtype == np.float32
    assert Box().contains(found.H)
    if divergence.convex:
        limits = np.array([tolerance(solver, divergence, x) for x in X])
        difference = divergence.value(X, found.H.astype(float) @ W) - divergence.value(X, double.H @ W)
        assert (np.abs(difference) <= limits).all()


@every_divergence
def test_single_precision_converges_at_the_default_tolerances(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng, n=12)
    solver = Paper(solver="paper", tol=1e-4, max_iter=5000).coefficient_solver(divergence)  # those of transform
    single = solver.solve(Problem(divergence, X.astype(np.float32), W.astype(np.float32)))
    double = solver.solve(Problem(divergence, X, W))
    assert single.converged.sum() >= double.converged.sum() - 1


def test_more_components_than_features_and_one_component_alone_are_solved(rng: np.random.Generator) -> None:
    for K in (1, 2 * F):
        X, W = problem(rng, K=K)
        for name in ("kl", "squared_l2", "huber:0.5", "l2"):
            found = solver_of(get(name), tol=1e-2).solve(Problem(get(name), X, W))
            assert found.H.shape == (len(X), K)
            for x, h in zip(X, found.H, strict=True):
                best, _ = optimum(get(name), x, W, h)
                assert objective(get(name), x, W, h) <= best + 0.01 * twice_too_large(get(name), x)


def test_a_users_own_divergence_is_solved_by_the_armijo_rule(rng: np.random.Generator) -> None:
    X, W = problem(rng)
    solver = solver_of(LogCosh())
    assert isinstance(solver, Armijo)
    found = solver.solve(Problem(LogCosh(), X, W))
    assert found.converged.all()
    for x, h in zip(X, found.H, strict=True):
        assert objective(LogCosh(), x, W, h) <= optimum(LogCosh(), x, W, h)[0] + tolerance(solver, LogCosh(), x)


# The choice of a solver


@every_divergence
def test_the_papers_choice_and_the_fast_one(divergence: Divergence) -> None:
    expected = {"huber": ConstantStep, "squared_l2": ConstantStep, "mahalanobis": ConstantStep, "l1": Polyak}
    assert type(Paper(solver="paper").coefficient_solver(divergence)) is expected.get(divergence.name, Armijo)
    assert Paper().coefficient_solver(divergence) == precise_solver(divergence).stopping(TOL, PATIENCE)


@every_divergence
@pytest.mark.parametrize("name", ["armijo", "armijo-literal", "constant", "polyak"])
def test_a_solver_serves_a_divergence_or_says_by_name_why_not_with_the_cure(
    divergence: Divergence, name: str, rng: np.random.Generator
) -> None:
    serves = {
        "armijo": divergence.name != "l1",
        "armijo-literal": divergence.name != "l1",
        "constant": divergence.name in {"huber", "squared_l2", "mahalanobis"},
        "polyak": divergence.convex,
    }[name]
    cure = "polyak" if divergence.name == "l1" else "armijo"
    if serves:
        X, W = problem_for(divergence, rng)
        solver = Paper(solver=name).coefficient_solver(divergence)
        start = np.full((len(X), len(W)), 0.4)
        found = solver.solve(Problem(divergence, X, W), start)
        assert Box().contains(found.H)
        if name != "armijo-literal":  # which need not descend
            assert (divergence.value(X, found.H @ W) <= divergence.value(X, start @ W)).all()
    else:
        reason = Paper(solver=name).why_not(divergence)
        assert re.search(f" cannot solve {divergence.name}: .*; use {cure}", reason or "")


@pytest.mark.parametrize(
    ("solver", "divergence", "message"),
    [
        (Armijo(), L1(), "Armijo cannot solve l1: it is not smooth.*use polyak"),
        (ConstantStep(), KullbackLeibler(), "ConstantStep cannot solve kl: .*no global Lipschitz constant; use armijo"),
        (ConstantStep(), L1(), "ConstantStep cannot solve l1: .*use polyak"),
        (ConstantStep(), L2(), "ConstantStep cannot solve l2: .*use armijo"),
        (Polyak(), get("is"), "Polyak cannot solve is: it is not convex.*use armijo"),
        (Polyak(), Beta(3.0), "Polyak cannot solve beta: it is not convex.*use armijo"),
    ],
)
def test_a_solver_raises_an_error_for_what_it_cannot_serve(
    solver: CoefficientSolver, divergence: Divergence, message: str, rng: np.random.Generator
) -> None:
    with pytest.raises(ValueError, match=message):
        solver.solve(Problem(divergence, *problem(rng)))


def test_an_unknown_solver_raises_an_error_with_the_list() -> None:
    with pytest.raises(ValueError, match=r"unknown solver 'newten' \(did you mean 'newton'\?\); choose one of"):
        Paper(solver="newten")


@pytest.mark.parametrize(
    "solver", [Armijo, ConstantStep, CoordinateDescent, InteriorPoint, Multiplicative, Newton, Polyak, Ratios]
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": -1e-9}, "tol must be .*at least 0"),
        ({"tol": np.nan}, "tol must be .*at least 0"),
        ({"max_iter": 0}, "max_iter must be .*at least 1"),
    ],
)
def test_constants_that_make_no_sense_raise_an_error(solver: type, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solver(**options)


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 0.5}, {"gamma": 0.0}, {"gamma": 1.0}, {"q": 0}])
def test_armijo_raises_an_error_for_constants_outside_their_ranges(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"Armijo needs 0 < alpha < 0\.5, 0 < gamma < 1, q >= 1"):
        Armijo(**options)


@pytest.mark.parametrize("options", [{"delta_tol": 0.0}, {"delta_tol": np.nan}, {"patience": 0}])
def test_polyak_raises_an_error_for_constants_outside_their_ranges(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Polyak needs delta_tol > 0 and patience >= 1"):
        Polyak(**options)


@pytest.mark.parametrize("size", [-1e-9, np.nan])
@pytest.mark.parametrize("name", ["l2", "l1"])
def test_penalties_that_make_no_sense_raise_an_error(name: str, size: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .*at least 0"):
        Penalty(**{name: size})


def test_a_solver_that_stops_elsewhere_is_the_same_otherwise() -> None:
    rough = Armijo(gamma=0.5)
    fine = rough.stopping(tol=1e-9, max_iter=77)
    assert (fine.tol, fine.max_iter) == (1e-9, 77)
    assert dataclasses.replace(fine, tol=rough.tol, max_iter=rough.max_iter) == rough


# The printed Armijo rule


def test_the_printed_armijo_rule_stalls_at_the_boundary_and_the_projected_one_does_not() -> None:
    kl = KullbackLeibler()
    W, X = np.array([[0.1, 0.5], [1.0, 1.0]]), np.array([[1.0, 0.1]])  # the first component is not needed

    def solve(literal: bool) -> tuple[Coefficients, float]:
        found = Armijo(tol=1e-6, max_iter=1000, literal=literal).solve(Problem(kl, X, W))
        return found, objective(kl, X[0], W, found.H[0])

    (projected, reached), (printed, stalled) = solve(False), solve(True)
    best, h_best = descend(kl, X[0], W, [projected.H[0], np.ones(2)])
    np.testing.assert_allclose(h_best, [LOW, 0.55], rtol=1e-5)
    assert projected.converged[0]
    assert not printed.converged[0]
    assert reached - best <= 1e-6 * twice_too_large(kl, X[0])
    assert stalled - best > 0.01 * twice_too_large(kl, X[0])


@every_convex_certified_divergence
def test_the_printed_armijo_rule_is_never_better(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem_for(divergence, rng)
    projected = Armijo(tol=1e-4, max_iter=300).solve(Problem(divergence, X, W))
    printed = Armijo(tol=1e-4, max_iter=300, literal=True).solve(Problem(divergence, X, W))
    limits = np.array([1e-4 * twice_too_large(divergence, x) for x in X])
    assert projected.converged.sum() >= printed.converged.sum()
    assert (divergence.value(X, printed.H @ W) >= divergence.value(X, projected.H @ W) - limits).all()


def test_huber_and_squared_l2_agree_where_no_residual_is_cut(rng: np.random.Generator) -> None:
    X, W = problem(rng)
    found = solver_of(Huber(100.0), tol=1e-10).solve(Problem(Huber(100.0), X, W))
    np.testing.assert_allclose(
        found.H, solver_of(SquaredL2(), tol=1e-10).solve(Problem(SquaredL2(), X, W)).H, atol=1e-4
    )


def test_the_printed_rule_takes_no_fit_outside_the_domain_for_a_good_one(rng: np.random.Generator) -> None:
    planted = Planted.draw(100, 20, "poisson", rng)
    X = planted.sample(40, rng).V / 1000
    W = 0.5 * planted.W / planted.W.max() + 0.25 * rng.random(planted.W.shape)
    kl = get("kl")
    start, found = (
        Paper(solver="armijo-literal", max_iter=n).coefficient_solver(kl).solve(Problem(kl, X, W)).H for n in (1, 30)
    )
    assert kl.value(X, found @ W).max() < 2 * kl.value(X, start @ W).max()
