"""Coordinate descent at the stored entries: as good as Newton's method, and no step raises an objective."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from onmf.coefficients import CoordinateDescent, Newton, precise_solver
from onmf.coefficients.coordinate_descent import MANY
from onmf.coefficients.problem import Problem
from onmf.divergences import get
from onmf.model.penalty import Penalty
from onmf.model.sets import Box, Simplex
from onmf.samples import Samples
from reproduction.earlier_methods import PenaltyByLength
from tests.conftest import covering

ORDERS = ["kl", "hellinger", "alpha:0.3", "alpha:1.5", "alpha:2", "alpha:3"]
PENALTIES = [Penalty(), Penalty(l2=0.5), Penalty(l1=0.2), Penalty(50.0, 0.1), PenaltyByLength(gamma=0.2)]
BOXES = [Box(), Box(0.05, 0.4)]
every_order = pytest.mark.parametrize("name", ORDERS)


def counts(
    rng: np.random.Generator, kind: str = "plain", n: int = 12, K: int = 5, F: int = 40
) -> tuple[Samples, np.ndarray]:
    """Samples of mean one and a dictionary, some of whose weights are next to nothing."""
    K, F = 5, 40
    W = np.maximum(rng.random((K, F)) * (rng.random((K, F)) < 0.5), 1e-8)
    X = scipy.sparse.csr_matrix(rng.poisson(rng.gamma(0.5, 1.0, (n, K)) @ W).astype(float))
    X /= X.mean()
    if kind == "missing":
        return Samples(X, absent="missing"), W
    if kind == "weights":  # some are zero
        weights = rng.integers(0, 3, X.nnz).astype(float)
        return Samples(X, weights, rng.uniform(0.5, 2, n), "missing"), W
    return Samples(X), W


def objective(problem: Problem, H: np.ndarray) -> np.ndarray:
    return problem.objective(H, problem.fit(H))


@pytest.mark.parametrize(
    ("name", "penalty", "kind", "box"), covering(ORDERS, PENALTIES, ["plain", "missing", "weights"], BOXES)
)
def test_coordinate_descent_is_as_good_as_newtons_method(
    name: str, penalty: Penalty, kind: str, box: Box, rng: np.random.Generator
) -> None:
    X, W = counts(rng, kind)
    problem = Problem(get(name), X, W, box, penalty)
    found, best = (solver(1e-9, 4000).solve(problem) for solver in (CoordinateDescent, Newton))
    assert found.converged.all()
    assert box.contains(found.H)
    assert (objective(problem, found.H) <= objective(problem, best.H) + 1e-7 * problem.scale).all()


@every_order
@pytest.mark.parametrize("penalty", [Penalty(), Penalty(l2=20.0)], ids=["plain", "l2"])
def test_no_sweep_raises_an_objective_however_bad_the_start(
    name: str, penalty: Penalty, rng: np.random.Generator
) -> None:
    X, W = counts(rng)
    problem = Problem(get(name), X, W, penalty=penalty)
    H = problem.start() * rng.lognormal(0, 4, (len(X), len(W)))
    for _ in range(12):
        before, H = objective(problem, H), CoordinateDescent(0.0, 1).solve(problem, H).H
        assert (objective(problem, H) <= before * (1 + 1e-12) + 1e-9 * problem.scale).all()


@every_order
def test_coordinate_descent_stops_at_the_tolerance_that_was_asked_for(name: str, rng: np.random.Generator) -> None:
    X, W = counts(rng, n=60)
    problem = Problem(get(name), X, W)
    rough, fine = (CoordinateDescent(tol, 500).solve(problem) for tol in (1e-2, 1e-6))
    for found, tol in ((rough, 1e-2), (fine, 1e-6)):
        assert found.converged.all()
        left = problem.remaining_gain(found.H, problem.gradient(found.H, problem.fit(found.H)))
        assert (left <= problem.tolerance(tol) * (1 + 1e-6)).all()
    assert rough.iterations.sum() < fine.iterations.sum()
    again = CoordinateDescent(1e-2, 500).solve(problem, rough.H)
    assert not again.iterations.any()
    np.testing.assert_array_equal(again.H, rough.H)


@every_order
def test_single_precision_finds_the_same_to_its_own(name: str, rng: np.random.Generator) -> None:
    X, W = counts(rng)
    problem = Problem(get(name), X, W)
    single = CoordinateDescent(1e-4, 500).solve(Problem(get(name), X.astype(np.float32), W.astype(np.float32)))
    assert single.H.dtype == np.float32
    assert single.converged.all()
    best = CoordinateDescent(1e-9, 2000).solve(problem).H
    assert (objective(problem, single.H.astype(float)) <= objective(problem, best) + 1e-4 * problem.scale).all()


def test_entries_of_weight_zero_are_as_if_they_were_missing(rng: np.random.Generator) -> None:
    X, W = counts(rng, "weights")
    weights = (X.entry_weight > 0).astype(float)
    with_zeros = Samples(X.matrix, weights, None, "missing")
    without = X.matrix.copy()
    without.data *= weights
    without.eliminate_zeros()
    one, other = (
        CoordinateDescent(1e-8, 500).solve(Problem(get("kl"), samples, W)).H
        for samples in (with_zeros, Samples(without, absent="missing"))
    )
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_sample_of_zeros_gets_the_lower_bounds_and_a_component_that_it_lacks_gets_its_own(
    rng: np.random.Generator,
) -> None:
    X = scipy.sparse.csr_matrix([[0.0, 0, 0, 0], [3.0, 1, 0, 0]])
    W = np.array([[1.0, 0.5, 1e-9, 1e-9], [0.0, 0.0, 1.0, 0.5]])
    found = CoordinateDescent(1e-6).solve(Problem(get("kl"), X, W))
    assert found.converged.all()
    np.testing.assert_array_equal(found.H[0], Box().low)
    assert found.H[1, 1] == Box().low
    np.testing.assert_allclose(found.H[1, 0], 4 / 1.5, rtol=1e-4)


def test_newtons_method_finishes_where_components_are_much_alike(rng: np.random.Generator) -> None:
    W = rng.gamma(2.0, 1.0, 200) * rng.gamma(200.0, 0.005, (6, 200))
    X = scipy.sparse.csr_matrix(rng.poisson(0.1 * rng.gamma(0.5, 1.0, (20, 6)) @ W).astype(float))
    found = CoordinateDescent(1e-7, 1000).solve(Problem(get("kl"), X / X.mean(), W / W.max()))
    assert found.converged.all()
    assert MANY < found.iterations.max() < 2 * MANY


def test_the_precise_solver_of_sparse_counts_is_coordinate_descent_and_newtons_on_the_simplex() -> None:
    for name in ORDERS:
        solver = precise_solver(get(name), sparse=True)
        assert type(solver) is CoordinateDescent
        assert solver.stopping(1e-5, 77).within(Simplex()) == Newton(1e-5, 77)
    assert type(precise_solver(get("beta:1.5"), sparse=True)) is Newton
    reason = CoordinateDescent().why_not(get("is"))
    assert reason == "CoordinateDescent cannot solve is: its steps are those of alpha > 0; use newton."
