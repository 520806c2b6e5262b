"""Newton's coefficients: as good as SciPy's, and the same alone as in a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from onmf.coefficients import Newton, Ratios
from onmf.coefficients.base import Coefficients
from onmf.coefficients.problem import Problem, scales
from onmf.divergences import L1, L2, Beta, Divergence, SquaredL2, get
from onmf.model.penalty import Penalty
from onmf.model.sets import Box
from onmf.samples import Samples
from tests.conftest import DISTINCT, F, LogCosh, example_id, examples, spread

EVERY = [*examples(), LogCosh()]
# Newton's model of l1 is a smoothed one; see test_l1.py.
SMOOTH = [d for d in (*DISTINCT, LogCosh()) if not isinstance(d, L1)]
K = 4


def problem(rng: np.random.Generator, n: int = 5) -> tuple[np.ndarray, np.ndarray]:
    W = rng.random((K, F)) + 0.01
    H = rng.gamma(1.0, 1.0, (n, K)) * (rng.random((n, K)) < 0.7) + 0.01
    X = H @ W * rng.gamma(20, 1 / 20, (n, F))
    return X / X.mean(), W


SETTINGS = {
    "plain": (Box(), 0.0),
    "l2": (Box(), 0.2),
    "lower bound": (Box(0.1, 1e8), 0.0),
    "box and l2": (Box(0.1, 0.6), 0.2),
}


def objective(divergence: Divergence, x: np.ndarray, W: np.ndarray, h: np.ndarray, l2: float) -> float:
    return float(divergence.value(x[None], (h @ W)[None])[0] + 0.5 * l2 * h @ h)


def scipys(divergence: Divergence, x: np.ndarray, W: np.ndarray, start: np.ndarray, l2: float, box: Box) -> float:
    """The objective at what L-BFGS-B finds, begun afresh twice where it ended, since its memory may mislead it."""

    def both(h: np.ndarray) -> tuple[float, np.ndarray]:
        slope = W @ divergence.grad(x[None], (h @ W)[None])[0] + l2 * h
        return objective(divergence, x, W, h, l2), slope

    h, values = np.clip(start, box.low, box.high), []
    for _ in range(3):
        options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-12, "maxcor": 30}
        bounds = [(box.low, box.high)] * len(W)
        found = scipy.optimize.minimize(both, h, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        h = found.x
        values.append(float(found.fun))
    return min(values)


@pytest.mark.parametrize(
    ("divergence", "box", "l2"),
    [
        pytest.param(divergence, *SETTINGS[setting], id=f"{example_id(divergence)}-{setting}")
        for divergence, setting in spread(SMOOTH, SETTINGS, 2)
    ],
)
def test_newton_is_as_good_as_scipy_from_a_cold_and_from_a_warm_start(
    divergence: Divergence, box: Box, l2: float, rng: np.random.Generator
) -> None:
    X, W = problem(rng)
    solver, set_and_penalty = Newton(tol=1e-8, max_iter=500), (box, Penalty(l2))
    near = solver.solve(Problem(divergence, X, W * rng.uniform(0.95, 1.05, W.shape), *set_and_penalty)).H
    for found in (solver.solve(Problem(divergence, X, W, *set_and_penalty), start) for start in (None, near)):
        assert found.converged.all()
        assert box.contains(found.H)
        for x, h, h_near in zip(X, found.H, near, strict=True):
            starts = [h]  # from there on SciPy must not gain anything
            if divergence.convex:  # a valley elsewhere may be deeper if there are several
                starts += [h_near, np.full(K, x.sum() / W.sum()), np.full(K, 2.0)]
            best = min(scipys(divergence, x, W, start, l2, box) for start in starts)
            scale = float(divergence.value(x[None], 2 * x[None])[0])
            assert objective(divergence, x, W, h, l2) <= best + 1e-6 * scale


@pytest.mark.parametrize("l2", [0.0, 0.2])
@pytest.mark.parametrize("divergence", EVERY, ids=example_id)
def test_a_sample_alone_has_the_coefficients_that_it_has_among_others_of_all_sizes(
    divergence: Divergence, l2: float, rng: np.random.Generator
) -> None:
    X, W = problem(rng, n=7)
    X *= np.geomspace(1e-2, 1e2, len(X))[:, None]
    solver, penalty = Newton(tol=1e-11, max_iter=60), Penalty(l2)
    together = solver.solve(Problem(divergence, X, W, penalty=penalty)).H
    alone = np.vstack([solver.solve(Problem(divergence, x[None], W, penalty=penalty)).H for x in X])
    unit = X.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(alone / unit, together / unit, rtol=0, atol=1e-10)


@pytest.mark.parametrize("divergence", EVERY, ids=example_id)
def test_a_samples_quadratic_models_do_not_depend_on_its_batch(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, W = problem(rng, n=7)
    X *= np.geomspace(1e-2, 1e2, len(X))[:, None]
    Y = rng.gamma(2.0, 0.5, (len(X), K)) @ W
    Y[::2] = X[::2]
    for newton in (False, True):
        together = divergence.model(np, X, Y, newton)
        alone = [divergence.model(np, X[i : i + 1], Y[i : i + 1], newton) for i in range(len(X))]
        for part, parts in zip(together, zip(*alone, strict=True), strict=True):
            np.testing.assert_allclose(np.vstack(parts), part, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["squared_l2", "l2", "mahalanobis"])
def test_least_squares_at_their_solution_count_as_converged(name: str, rng: np.random.Generator) -> None:
    X, W = problem(rng, n=20)
    for divergence in (d for d in EVERY if d.name == name):
        assert Newton(tol=1e-9).solve(Problem(divergence, X, W)).converged.all()


@pytest.mark.parametrize("divergence", [SquaredL2(), L2()], ids=example_id)
def test_least_squares_in_a_box_are_scipys(divergence: Divergence, rng: np.random.Generator) -> None:
    X, W = problem(rng, n=20)
    found = Newton(tol=1e-12, max_iter=200).solve(Problem(divergence, X, W, Box(0.1, 0.6)))
    expected = [scipy.optimize.lsq_linear(W.T, x, (0.1, 0.6), tol=1e-14).x for x in X]
    assert ((np.abs(found.H - 0.1) < 1e-12).any(axis=1) & (np.abs(found.H - 0.6) < 1e-12).any(axis=1)).any()
    np.testing.assert_allclose(found.H, expected, atol=1e-7)


def test_l2_with_an_l2_penalty_has_the_derivative_of_l2_also_near_an_exact_fit(rng: np.random.Generator) -> None:
    X, _ = problem(rng)
    Y = X * (1 + 1e-7 * rng.normal(size=X.shape))
    slope, weight = L2().model(np, X, Y, newton=True)
    np.testing.assert_allclose(slope, L2().grad(X, Y))
    np.testing.assert_allclose(np.linalg.norm(slope, axis=1), 1.0)
    assert np.isfinite(weight).all()


def test_the_cheapest_of_exact_fits_is_found_in_few_steps_under_l2_with_penalties(rng: np.random.Generator) -> None:
    """A distance has its kink there; Newton's steps alone went on until there were as many as allowed."""
    W, H = rng.random((5, 30)) + 0.02, rng.gamma(1.0, 1.0, (20, 5))
    for penalty in (Penalty(l1=0.1), Penalty(l2=0.1), Penalty(l1=0.1, l2=0.1)):
        problem = Problem(L2(), H @ W, W, penalty=penalty)
        found = Newton(tol=1e-4, max_iter=5000).solve(problem)
        assert found.converged.all()
        assert found.iterations.max() < 100
        objective = problem.objective(found.H, problem.fit(found.H))
        assert (objective <= problem.objective(H, problem.fit(H)) + 1e-4 * problem.scale).all()


@pytest.mark.parametrize("first", [0, 2040], ids=["in the first block", "in the last block"])
def test_exact_fits_in_some_blocks_of_samples_leave_all_slopes_as_they_are_in_one_block(
    first: int, rng: np.random.Generator
) -> None:
    """Blocks without such fits had no slopes, and those of the others were lost, or could not be joined to them."""
    W, exact = rng.random((20, 300)) + 0.02, slice(first, first + 8)
    fits = rng.gamma(1.0, 1.0, (2048, 20)) @ W
    X = fits * rng.gamma(5.0, 0.2, fits.shape)
    X[exact] = fits[exact]
    solver, rows = Newton(tol=1e-3, max_iter=1000), np.r_[exact, 500:508]
    whole, part = (Problem(L2(), some, W, penalty=Penalty(1e-3)) for some in (X, X[rows]))
    assert (len(whole.blocks()), len(part.blocks())) == (2, 1)
    slopes = [each.slopes(solver.solve(each).H @ W) for each in (whole, part)]
    assert (np.linalg.norm(slopes[1], axis=1) < 0.1).sum() == 8  # at the kink, and no derivatives
    np.testing.assert_allclose(slopes[0][rows], slopes[1], rtol=0, atol=1e-10)


def test_slopes_are_those_of_the_coefficients_where_newtons_steps_end_what_was_left(rng: np.random.Generator) -> None:
    X, W = problem(rng)
    posed = Problem(L2(), X, W, penalty=Penalty(0.1))
    begun = replace(Coefficients.untested(posed.start()), slopes=np.zeros_like(X))
    found = Newton(tol=1e-6).finish(posed, begun)
    assert found.converged.all()
    np.testing.assert_allclose(found.slopes, L2().grad(X, found.H @ W))


@pytest.mark.parametrize("divergence", [get("is"), Beta(0.0)], ids=example_id)
def test_ratios_are_near_newtons_minimum_and_never_above_their_start(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    W = rng.gamma(0.5, 1.0, (4, 30)) + 1e-3
    X = (rng.gamma(0.5, 1.0, (50, 4)) @ W) * rng.gamma(5.0, 0.2, (50, 30))
    H0 = rng.gamma(1.0, 1.0, (50, 4))
    problem = Problem(divergence, X, W)
    loose, tight = Ratios().solve(problem, H0).H, Newton(tol=1e-8, max_iter=200).solve(problem).H
    before, after, least = (divergence.value(X, H @ W) for H in (H0, loose, tight))
    assert (after <= before * (1 + 1e-12)).all()
    assert after.mean() <= 1.05 * least.mean()


def test_ratios_raise_an_error_for_other_divergences() -> None:
    with pytest.raises(ValueError, match=r"Ratios cannot solve kl.*use newton"):
        Ratios().solve(Problem(get("kl"), np.ones((2, 3)), np.ones((1, 3))))


@pytest.mark.parametrize("unlike", [1e-4, 1e-6, 1e-8])
def test_components_that_are_almost_combinations_of_each_other_do_not_lead_least_squares_astray(
    unlike: float, rng: np.random.Generator
) -> None:
    base = rng.gamma(1.0, 1.0, (4, F))
    W = rng.random((3 * F, 4)) @ base
    W = W / W.max() + unlike * rng.random(W.shape)
    X = rng.gamma(1.0, 1.0, (50, 4)) @ base + 0.05 * rng.random((50, F))
    found = Newton(tol=1e-4, max_iter=5000).solve(Problem(SquaredL2(), X, W))
    best = np.array([scipy.optimize.nnls(W.T, x)[1] ** 2 / 2 for x in X])
    assert found.converged.all()
    assert (SquaredL2().value(X, found.H @ W) <= best + 1e-4 * scales(SquaredL2(), Samples(X))).all()


@pytest.mark.parametrize("max_iter", [1, 50])
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_fits_and_losses_that_come_along_are_those_of_the_coefficients(
    rng: np.random.Generator, max_iter: int, l2: float
) -> None:
    X, W = problem(rng, 40)
    posed = Problem(get("kl"), X, W, penalty=Penalty(l2))
    found = Newton(tol=1e-12, max_iter=max_iter).solve(posed)
    assert (found.Y is not None) == (max_iter == 1)  # more steps, and some samples end before the others
    assert (found.loss is not None) == (max_iter == 1 and not l2)
    if found.Y is not None:
        np.testing.assert_allclose(found.Y, found.H @ W, rtol=1e-12)
    if found.loss is not None:
        np.testing.assert_allclose(found.loss, get("kl").value(X, found.H @ W), rtol=1e-9)


def test_spectra_of_many_components_creep_past_no_saddle_and_a_loose_tolerance_saves_steps() -> None:
    rng, f, h = np.random.default_rng(0), np.arange(257), np.arange(1, 20)
    pitch = 6 + np.arange(40)
    W = (0.7 ** h[:, None] * np.exp(-np.square((f - h[:, None] * pitch[:, None, None]) / 1.5))).sum(axis=1) + 1e-4
    X = (rng.gamma(0.3, 1, (200, 40)) @ W) * rng.exponential(1, (200, 257))
    posed = Problem(get("is"), X / X.mean(), W)
    found = [Newton(tol=tol, max_iter=100).solve(posed) for tol in (1e-9, 1e-4, 1e-2)]
    least, reached, near = (posed.objective(each.H, posed.fit(each.H)) / posed.scale for each in found)
    _, usual, loose = found
    assert usual.converged.all()
    assert usual.iterations.max() < 40  # 92 by Fisher scoring alone
    assert loose.iterations.mean() < 0.75 * usual.iterations.mean()
    assert (reached - least).max() < 1e-4
    assert (near - least).max() < 1e-2
