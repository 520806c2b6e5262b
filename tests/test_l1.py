"""Least absolute deviations: the interior-point method against linear programming. Small: also runs uncompiled."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from onmf.coefficients import InteriorPoint
from onmf.coefficients.kernels import interior
from onmf.coefficients.problem import Problem
from onmf.divergences import L1
from onmf.model.penalty import Penalty
from onmf.model.sets import Box
from reproduction.earlier_methods import PenaltyByLength
from tests.conftest import example_id, examples

F, K = 12, 4
DEFAULT = Box()


def problem(rng: np.random.Generator, n: int = 4, outliers: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    W = 1 - rng.random((K, F))
    X = (rng.gamma(1, 1, (n, K)) * (rng.random((n, K)) < 0.7)) @ W * rng.gamma(20, 1 / 20, (n, F)) + 0.01
    X = np.where(rng.random(X.shape) < outliers, rng.uniform(0, 3 * X.max(), X.shape), X)
    return X / X.mean(), W


def programme(x: np.ndarray, W: np.ndarray, box: Box = DEFAULT) -> float:
    """min sum |x - hW|, by HiGHS, in the sample's own units."""
    n_components, n_features = W.shape
    unit = float(x.max()) or 1.0
    eye = np.eye(n_features)
    result = scipy.optimize.linprog(
        np.r_[np.zeros(n_components), np.ones(2 * n_features)],
        A_eq=np.hstack([W.T, eye, -eye]),
        b_eq=x / unit,
        bounds=[(box.low / unit, box.high / unit)] * n_components + [(0, None)] * (2 * n_features),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float(np.abs(x - unit * result.x[:n_components] @ W).sum())


def excess(X: np.ndarray, W: np.ndarray, H: np.ndarray, box: Box = DEFAULT) -> np.ndarray:
    """Of the loss over its minimum, in units of d(x || 2x) or, where the fit is worse than none, of the minimum."""
    best = np.array([programme(x, W, box) for x in X])
    return (np.abs(X - H @ W).sum(axis=1) - best) / np.maximum(X.sum(axis=1), best)


def special(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Box]:
    """Problems of which each has something that a solver may stumble over."""
    X, W = problem(rng)
    box = DEFAULT
    if name == "clean":
        X, W = problem(rng, outliers=0.0)
    elif name == "exact":
        X = (rng.gamma(1, 1, (4, K)) * (rng.random((4, K)) < 0.7)) @ W + 1e-3
    elif name == "zeros in the data":
        X *= rng.random(X.shape) < 0.5
    elif name == "sparse components":
        W *= rng.random(W.shape) < 0.4
    elif name == "a component of zeros":
        W[1] = 0
    elif name == "no components but zeros":
        W[:] = 0
    elif name == "a feature of zeros":
        W[:, 2] = 0
    elif name == "collinear components":
        W[1], W[3] = W[0], 0.5 * W[2]
    elif name == "more components than features":
        W = 1 - rng.random((2 * F, F))
    elif name == "one feature":
        X, W = X[:, :1], W[:, :1]
    elif name == "one component":
        W = W[:1]
    elif name == "whole numbers":
        X, W = np.floor(3 * X), np.floor(3 * W)
    elif name == "components of unequal size":
        W *= np.geomspace(1e-4, 1e4, K)[:, None]
    elif name == "one huge entry":
        X[:, 0] = 1e6
    elif name == "small data":
        X *= 1e-6
    elif name == "large data":
        X *= 1e6
    elif name == "tight box":
        box = Box(0.1, 0.6)
    elif name == "no bounds but zero":
        box = Box(0.0, np.inf)
    elif name == "lower bounds above the data":
        box = Box(5.0, 10.0)
    return X, W, box


SPECIAL = (
    "outliers",
    "clean",
    "exact",
    "zeros in the data",
    "sparse components",
    "a component of zeros",
    "no components but zeros",
    "a feature of zeros",
    "collinear components",
    "more components than features",
    "one feature",
    "one component",
    "whole numbers",
    "components of unequal size",
    "one huge entry",
    "small data",
    "large data",
    "tight box",
    "no bounds but zero",
    "lower bounds above the data",
)
every_special = pytest.mark.parametrize("name", SPECIAL)


@every_special
def test_the_answer_is_the_linear_programmes_and_proved_to_be(name: str, rng: np.random.Generator) -> None:
    X, W, box = special(name, rng)
    found = InteriorPoint(tol=1e-9).solve(Problem(L1(), X, W, box))
    assert found.converged.all()
    assert box.contains(found.H)
    assert (found.iterations <= 20).all()
    assert (excess(X, W, found.H, box) <= 1.1e-9).all()


@every_special
def test_single_precision_stays_single_and_proves_four_digits(name: str, rng: np.random.Generator) -> None:
    X, W, box = special(name, rng)
    found = InteriorPoint(tol=1e-4).solve(Problem(L1(), X.astype(np.float32), W.astype(np.float32), box))
    assert found.H.dtype == np.float32
    assert box.contains(found.H)
    assert found.converged.all()
    assert (excess(X, W, found.H.astype(float), box) <= 1.1e-4).all()


@pytest.mark.parametrize("l2", [1e-6, 0.1, 10.0, 1e6])
def test_with_an_l2_penalty_the_answer_is_scipys(l2: float, rng: np.random.Generator) -> None:
    X, W = problem(rng)
    found = InteriorPoint(tol=1e-9).solve(Problem(L1(), X, W, penalty=Penalty(l2)))
    assert found.converged.all()
    for x, h in zip(X, found.H, strict=True):
        start = np.maximum(h * rng.uniform(0.9, 1.1, K), DEFAULT.low)
        result = scipy.optimize.minimize(
            lambda y: y[K:].sum() + 0.5 * l2 * y[:K] @ y[:K],
            np.r_[start, np.abs(x - start @ W)],
            jac=lambda y: np.r_[l2 * y[:K], np.ones(F)],
            bounds=[(DEFAULT.low, None)] * K + [(0, None)] * F,
            constraints=[
                {"type": "ineq", "fun": lambda y, x=x: y[K:] - x + y[:K] @ W, "jac": lambda _: np.c_[W.T, np.eye(F)]},
                {"type": "ineq", "fun": lambda y, x=x: y[K:] + x - y[:K] @ W, "jac": lambda _: np.c_[-W.T, np.eye(F)]},
            ],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-13},
        )
        candidates = (h, np.maximum(result.x[:K], DEFAULT.low), np.full(K, DEFAULT.low))
        own, *others = (np.abs(x - g @ W).sum() + 0.5 * l2 * g @ g for g in candidates)
        assert own <= min(others) + 1e-7 * x.sum()


def test_an_l2_penalty_makes_the_answer_shorter_until_it_is_at_its_bounds(rng: np.random.Generator) -> None:
    X, W = problem(rng)
    problems = [Problem(L1(), X, W, penalty=Penalty(m)) for m in (0.0, 0.1, 10.0, 1e6, 1e12)]
    sizes = [np.linalg.norm(InteriorPoint(tol=1e-9).solve(problem).H) for problem in problems]
    assert (np.diff(sizes) < 0).all()
    assert sizes[-1] < 1e-6


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("max_iter", [1, 2, 3, 5, 8])
def test_what_counts_as_converged_is_within_the_tolerance_of_the_minimum(
    max_iter: int, l2: float, rng: np.random.Generator
) -> None:
    X, W = problem(rng, n=12)
    reference = InteriorPoint(tol=1e-11).solve(Problem(L1(), X, W, penalty=Penalty(l2))).H

    def value(H: np.ndarray) -> np.ndarray:
        return np.abs(X - H @ W).sum(axis=1) + 0.5 * l2 * np.square(H).sum(axis=1)

    for tol in (1e-1, 1e-2, 1e-3, 1e-5):
        found = InteriorPoint(tol=tol, max_iter=max_iter).solve(Problem(L1(), X, W, penalty=Penalty(l2)))
        assert (found.iterations <= max_iter).all()
        over = (value(found.H) - value(reference)) / X.sum(axis=1)
        assert (over[found.converged] <= tol).all()
        if max_iter == 1:
            assert not found.converged.all()


def test_more_steps_give_better_answers(rng: np.random.Generator) -> None:
    X, W = problem(rng, n=8)
    over = [
        excess(X, W, InteriorPoint(max_iter=n, tol=0.0).solve(Problem(L1(), X, W)).H).mean() for n in (1, 3, 5, 7, 9)
    ]
    assert (np.diff(over) < 0).all()
    assert over[-1] < 1e-6


def test_a_sample_of_zeros_and_a_component_of_zeros_have_coefficients_at_the_lower_bound(
    rng: np.random.Generator,
) -> None:
    X, W = problem(rng)
    X[1], W[2] = 0, 0
    found = InteriorPoint().solve(Problem(L1(), X, W))
    np.testing.assert_array_equal(found.H[1], DEFAULT.low)
    np.testing.assert_array_equal(found.H[:, 2], DEFAULT.low)
    assert found.converged.all()


def test_slopes_are_derivatives_where_all_components_are_zeros(rng: np.random.Generator) -> None:
    X, W = problem(rng)
    posed = Problem(L1(), X + 0.01, np.zeros_like(W))
    found = InteriorPoint().solve(posed)
    assert found.converged.all()
    np.testing.assert_array_equal(posed.slopes(posed.fit(found.H)), -1.0)


def test_answers_at_the_bounds_are_exactly_there_if_it_costs_nothing(rng: np.random.Generator) -> None:
    X, W = problem(rng, n=20)
    low = InteriorPoint().solve(Problem(L1(), X, W + 1, Box(2.0)))
    np.testing.assert_array_equal(low.H, 2.0)
    assert low.converged.all()
    high = InteriorPoint().solve(Problem(L1(), X + 1, W, Box(0.0, 0.01)))
    np.testing.assert_array_equal(high.H, 0.01)
    assert high.converged.all()


@pytest.mark.parametrize(("l2", "atol"), [(0.0, 1e-10), (0.2, 1e-8)])  # an l2 penalty curves little: rounding shows
def test_a_sample_alone_has_the_answer_that_it_has_in_a_batch(l2: float, atol: float, rng: np.random.Generator) -> None:
    X, W = problem(rng, n=9)
    X *= np.geomspace(1e-3, 1e3, 9)[:, None]
    solver, penalty = InteriorPoint(tol=1e-11), Penalty(l2)
    together = solver.solve(Problem(L1(), X, W, penalty=penalty))
    alone = [solver.solve(Problem(L1(), x[None], W, penalty=penalty)) for x in X]
    assert together.converged.all()
    unit = X.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(np.vstack([a.H for a in alone]) / unit, together.H / unit, rtol=0, atol=atol)
    np.testing.assert_array_equal([a.iterations[0] for a in alone], together.iterations)


def test_many_samples_are_solved_as_few_are(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X, W = problem(rng, n=20)
    whole = InteriorPoint(tol=1e-10).solve(Problem(L1(), X, W))
    monkeypatch.setattr("onmf.coefficients.interior_point.ENTRIES", 1)
    monkeypatch.setattr("onmf.coefficients.interior_point.FEWEST", 3)
    blocks = InteriorPoint(tol=1e-10).solve(Problem(L1(), X, W))
    np.testing.assert_allclose(blocks.H, whole.H, rtol=0, atol=1e-10)


@pytest.mark.parametrize("c", [1e-6, 1e6])
def test_scaling_the_data_scales_the_answer(c: float, rng: np.random.Generator) -> None:
    X, W = problem(rng)
    plain = InteriorPoint(tol=1e-9).solve(Problem(L1(), X, W, Box(0.0)))
    scaled = InteriorPoint(tol=1e-9).solve(Problem(L1(), c * X, W, Box(0.0)))
    np.testing.assert_allclose(scaled.H / c, plain.H, rtol=0, atol=1e-9)


@pytest.mark.parametrize("max_iter", [1, 50])
def test_the_answer_is_never_worse_than_the_start(max_iter: int, rng: np.random.Generator) -> None:
    X, W = problem(rng)
    best = InteriorPoint(tol=1e-9).solve(Problem(L1(), X, W)).H
    for start in (best, 1.01 * best, np.full_like(best, 0.2), np.full_like(best, 50.0)):
        before = start.copy()
        found = InteriorPoint(max_iter=max_iter).solve(Problem(L1(), X, W), start)
        np.testing.assert_array_equal(start, before)
        assert (L1().value(X, found.H @ W) <= L1().value(X, start @ W) * (1 + 1e-12)).all()


def test_a_good_start_saves_steps(rng: np.random.Generator) -> None:
    X, W = problem(rng, n=20)
    near = InteriorPoint(tol=1e-6).solve(Problem(L1(), X, W * rng.uniform(0.98, 1.02, W.shape))).H
    cold, warm = (InteriorPoint(tol=1e-4).solve(Problem(L1(), X, W), H0) for H0 in (None, near))
    assert warm.iterations.mean() < cold.iterations.mean()


def test_the_arguments_are_left_as_they_were(rng: np.random.Generator) -> None:
    X, W = problem(rng)
    before = X.copy(), W.copy()
    InteriorPoint().solve(Problem(L1(), X, W))
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(W, before[1])


@pytest.mark.parametrize("divergence", [d for d in examples() if d.name != "l1"], ids=example_id)
def test_other_losses_raise_an_error_by_name_with_the_cure(divergence, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=f"InteriorPoint cannot solve {divergence.name}: .* l1 alone; use armijo"):
        InteriorPoint().solve(Problem(divergence, *problem(rng)))


@pytest.mark.parametrize(
    "penalty", [Penalty(0.0, 0.7), Penalty(0.0, 5.0), PenaltyByLength(gamma=0.3), PenaltyByLength(0.2, 0.7, 0.1)]
)
def test_with_penalties_the_answer_is_that_of_linear_programming(penalty: Penalty, rng: np.random.Generator) -> None:
    X, W = problem(rng)
    posed = Problem(L1(), X, W, penalty=penalty)
    found = InteriorPoint(tol=1e-8).solve(posed)
    assert found.converged.all()
    (K, F), low = W.shape, posed.box.low
    for x, h, l1 in zip(X, found.H, posed.l1[:, 0], strict=True):
        # h, u, v >= 0 with x = hW + u - v: the sum of u + v are the deviations. l2 by its tangent at the answer.
        cost = np.r_[l1 + penalty.l2 * h, np.ones(2 * F)]
        equations = np.hstack([W.T, np.eye(F), -np.eye(F)])
        best = scipy.optimize.linprog(cost, A_eq=equations, b_eq=x, bounds=[(low, None)] * K + [(0, None)] * 2 * F)
        own = np.abs(x - h @ W).sum() + (l1 + penalty.l2 * h) @ h
        assert own <= best.fun + 1e-6 * x.sum()


# The kernels


def test_factors_solve_their_systems_and_leave_dependent_components_where_they_are(rng: np.random.Generator) -> None:
    n, size = 3, 7
    A = rng.random((n, size, 3 * size))
    A[2, 4] = A[2, 1]
    Q = A @ A.transpose(0, 2, 1)
    upper = np.triu_indices(size)
    bounds, l2 = rng.random((n, 4, size)) + 0.5, np.full((n, size), 0.3)
    bounds[2, 2:], l2[2] = 1e-30, 0.0
    Q[:, range(size), range(size)] += bounds[:, 2] / bounds[:, 0] + bounds[:, 3] / bounds[:, 1] + l2
    M = np.ascontiguousarray((A @ A.transpose(0, 2, 1))[:, upper[0], upper[1]])
    B = rng.random((n, size))
    x = B.copy()
    interior.factor(M, bounds, l2, 1e-14)
    interior.solve_factored(M, x)
    np.testing.assert_allclose(np.einsum("njk,nk->nj", Q[:2], x[:2]), B[:2], rtol=1e-9)
    assert x[2, 4] == 0
    assert np.isfinite(x).all()


def test_kernels_raise_an_error_for_shapes_that_do_not_fit() -> None:
    X, state, bounds, work = np.ones((2, 3)), np.ones((2, 4, 3)), np.ones((2, 4, 5)), np.ones((5, 2, 3))
    dq, extra = np.ones((2, 5)), np.ones((2, 2, 5))
    calls = (
        lambda: interior.measure(X, X[:1], state, work, extra[0, :, :2]),
        lambda: interior.factor(np.ones((2, 14)), bounds, dq, 0.0),
        lambda: interior.solve_factored(np.ones((2, 14)), dq),
        lambda: interior.predict(X, work[:4], state, bounds, dq, extra, False),
        lambda: interior.advance(X, work, state, bounds, dq, extra[:, :, :4], False, 0.0),
    )
    for call in calls:
        with pytest.raises(ValueError, match="shapes or types do not fit"):
            call()
