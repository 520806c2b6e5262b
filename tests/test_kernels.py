"""Small problems: this file runs once more without the compiler, for the coverage of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from onmf.kernels import projected_gradient_on_gram

Problem = dict[str, np.ndarray]


def problem(rng: np.random.Generator, n: int = 4, K: int = 5, dtype: type = np.float64) -> Problem:
    W = rng.random((K, 3 * K))
    X = (rng.random((n, K)) * (rng.random((n, K)) < 0.6)) @ W + 0.3 * rng.random((n, 3 * K))
    arrays = {"Q": W @ W.T, "B": X @ W.T, "H": np.full((n, K), 0.2), "reach": X.sum(axis=1)[:, None] / W.sum(axis=1)}
    arrays["tolerance"] = 1e-5 * np.square(X).sum(axis=1) / 2
    return {name: array.astype(dtype) for name, array in arrays.items()} | {"W": W, "X": X}


def solve(p: Problem, low: float = 1e-8, high: float = 1e8, max_iter: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    arrays = (p[name] for name in ("Q", "B", "H", "reach", "tolerance"))
    step = 1 / np.linalg.eigvalsh(p["Q"].astype(float))[-1]
    return projected_gradient_on_gram(*arrays, step=step, low=low, high=high, max_iter=max_iter)


def plain_loop(p: Problem, low: float, high: float, max_iter: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    step = 1 / np.linalg.eigvalsh(p["Q"])[-1]
    H, iterations, converged = p["H"].copy(), [], []
    for i, b in enumerate(p["B"]):
        count, done = 0, False
        for _ in range(max_iter):
            g = H[i] @ p["Q"] - b
            gain = np.where(
                g > 0, g * (H[i] - low), -g * np.minimum(np.maximum(p["reach"][i] - H[i], H[i]), high - H[i])
            ).sum()
            if gain <= p["tolerance"][i]:
                done = True
                break
            count += 1
            H[i] = np.clip(H[i] - step * g, low, high)
        iterations.append(count)
        converged.append(done)
    return H, np.array(iterations), np.array(converged)


@pytest.mark.parametrize(("low", "high"), [(1e-8, 1e8), (0.0, 1e8), (0.1, 0.5)])
@pytest.mark.parametrize("max_iter", [1, 20, 1000])
def test_kernel_does_what_a_plain_loop_does(low: float, high: float, max_iter: int, rng: np.random.Generator) -> None:
    p = problem(rng)
    H, iterations, converged = plain_loop(p, low, high, max_iter)
    found = solve(p, low, high, max_iter)
    np.testing.assert_allclose(p["H"], H, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found[0], iterations)
    np.testing.assert_array_equal(found[1], converged)


def test_kernel_reaches_nonnegative_least_squares(rng: np.random.Generator) -> None:
    p = problem(rng)
    p["tolerance"] *= 1e-7
    iterations, converged = solve(p, low=0.0, max_iter=3000)
    assert converged.all()
    assert (iterations < 3000).all()
    expected = np.array([scipy.optimize.nnls(p["W"].T, x)[0] for x in p["X"]])
    np.testing.assert_allclose(p["H"], expected, atol=1e-5)
    assert (expected == 0).any()


def test_kernel_stays_in_its_bounds(rng: np.random.Generator) -> None:
    p = problem(rng)
    solve(p, low=0.1, high=0.3)
    assert p["H"].min() >= 0.1
    assert p["H"].max() <= 0.3


def test_a_sample_at_its_solution_takes_no_iteration(rng: np.random.Generator) -> None:
    p = problem(rng)
    _, converged = solve(p)
    assert converged.all()
    before = p["H"].copy()
    iterations, converged = solve(p)
    assert converged.all()
    assert not iterations.any()
    np.testing.assert_array_equal(p["H"], before)


def test_single_precision_is_computed_and_stays_single(rng: np.random.Generator) -> None:
    p = problem(rng, dtype=np.float32)
    double = {name: array.astype(float) for name, array in p.items()}
    _, converged = solve(p)
    solve(double)
    assert p["H"].dtype == np.float32
    assert converged.all()
    np.testing.assert_allclose(p["H"], double["H"], atol=1e-3)


def test_arrays_of_another_precision_or_order_are_converted(rng: np.random.Generator) -> None:
    p = problem(rng)
    expected = {name: array.copy() for name, array in p.items()}
    solve(expected)
    for name in ("Q", "B", "reach"):
        p[name] = np.asfortranarray(p[name])
    solve(p)
    np.testing.assert_array_equal(p["H"], expected["H"])
    single = problem(rng) | {"H": np.full((4, 5), 0.2, dtype=np.float32)}
    solve(single)
    assert single["H"].dtype == np.float32


@pytest.mark.parametrize("name", ["Q", "B", "H", "reach", "tolerance"])
def test_shapes_that_do_not_fit_are_refused(name: str, rng: np.random.Generator) -> None:
    p = problem(rng)
    p[name] = p[name][:-1]
    with pytest.raises(ValueError, match="shapes do not fit: Q "):
        solve_unchecked(p)


def solve_unchecked(p: Problem) -> None:
    arrays = (p[name] for name in ("Q", "B", "H", "reach", "tolerance"))
    projected_gradient_on_gram(*arrays, step=0.1, low=0.0, high=1.0, max_iter=3)


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda H: np.repeat(H, 2, axis=1)[:, ::2]], ids=["F", "strided"])
def test_an_array_that_cannot_be_overwritten_row_by_row_is_refused(layout, rng: np.random.Generator) -> None:
    p = problem(rng)
    p["H"] = layout(p["H"])
    with pytest.raises(ValueError, match="H is overwritten and must be C-contiguous"):
        solve_unchecked(p)


def test_no_samples_are_no_trouble(rng: np.random.Generator) -> None:
    p = {name: array[:0] if name != "Q" else array for name, array in problem(rng).items()}
    iterations, converged = solve(p)
    assert iterations.shape == converged.shape == (0,)
