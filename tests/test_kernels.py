"""Small problems: this file runs once more without the compiler, for the coverage of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from onmf.kernels import (
    newton_directions,
    nnls_on_gram,
    pack,
    projected_gradient_on_gram,
    sampled_hessians,
    sampled_product,
    sweep,
)

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


# The fast methods' kernels


def unpacked(M: np.ndarray, K: int) -> np.ndarray:
    full = np.zeros((len(M), K, K))
    rows, columns = np.triu_indices(K)
    full[:, rows, columns] = full[:, columns, rows] = M
    return full


def test_packed_products_are_the_upper_triangles_of_outer_products(rng: np.random.Generator) -> None:
    V = rng.random((5, 4))
    np.testing.assert_allclose(unpacked(pack(V), 4), np.einsum("nj,nk->njk", V, V))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_active_set_solves_nonnegative_least_squares(rng: np.random.Generator, dtype: type) -> None:
    W, X = rng.random((6, 9)), rng.normal(0.3, 1.0, (30, 9))
    H = nnls_on_gram((W @ W.T).astype(dtype), (X @ W.T).astype(dtype))
    expected = np.array([scipy.optimize.nnls(W.T, x)[0] for x in X])
    assert H.dtype == dtype
    np.testing.assert_allclose(H, expected, atol=1e-2 if dtype == np.float32 else 1e-7)


def test_the_active_set_bears_equal_atoms_and_zero_data(rng: np.random.Generator) -> None:
    W = np.repeat(rng.random((3, 9)), 2, axis=0)
    X = np.vstack([rng.random((5, 9)), np.zeros(9)])
    H = nnls_on_gram(W @ W.T, X @ W.T)
    best = [scipy.optimize.nnls(W.T, x)[1] for x in X]
    assert (H >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(X - H @ W, axis=1), best, atol=1e-6)


def test_newton_directions_solve_the_free_system_and_leave_the_bound_alone(rng: np.random.Generator) -> None:
    H, G = rng.random((8, 4)) + 1.0, rng.normal(size=(8, 4))
    H[:, 0], G[:, 0] = 1e-8, 1.0  # at its bound, and pushed against it
    V = rng.random((8, 7, 4))
    M = np.einsum("nij,nik->njk", V, V)
    rows, columns = np.triu_indices(4)
    D, decrement = newton_directions(M[:, rows, columns], G, H, 1e-8)
    for n in range(8):
        np.testing.assert_allclose(D[n, 1:], -np.linalg.solve(M[n, 1:, 1:], G[n, 1:]), rtol=1e-5)
        assert D[n, 0] < 0  # projected back on the bound
    np.testing.assert_allclose(decrement, -(D * G).sum(axis=1))


def test_a_hessian_that_is_not_positive_gives_a_scaled_gradient(rng: np.random.Generator) -> None:
    M = np.array([[1.0, 5.0, 1.0]])  # eigenvalues 6 and -4
    D, _ = newton_directions(M, np.array([[1.0, -1.0]]), np.array([[3.0, 3.0]]), 1e-8)
    np.testing.assert_allclose(D, [[-1.0, 1.0]], rtol=1e-5)
    del rng


@pytest.mark.parametrize("shared", [False, True])
def test_sweeps_minimise_each_features_quadratic_above_its_floor(rng: np.random.Generator, shared: bool) -> None:
    V = rng.random((1 if shared else 5, 9, 3))
    A = np.einsum("fij,fik->fjk", V, V)
    b, low = rng.normal(0.5, 1.0, (5, 3)), np.array([0.0, 0.0, 0.1, 0.2, 0.3])
    Wt = np.ones((5, 3))
    rows, columns = np.triu_indices(3)
    sweep(np.ascontiguousarray(A[:, rows, columns]), b, Wt, low, 2000)
    for f in range(5):
        g = A[0 if shared else f] @ Wt[f] - b[f]
        assert (Wt[f] >= low[f]).all()
        np.testing.assert_allclose(np.where(Wt[f] > low[f], g, np.minimum(g, 0)), 0, atol=1e-7)


def test_sampled_products_are_the_dense_ones_at_the_non_zeros(rng: np.random.Generator) -> None:
    X = scipy.sparse.csr_matrix(rng.poisson(0.5, (6, 8)).astype(float))
    H, W = rng.random((6, 3)), rng.random((3, 8))
    Wt = np.ascontiguousarray(W.T)
    entries = X.tocoo()
    np.testing.assert_allclose(sampled_product(X.indptr, X.indices, H, Wt), (H @ W)[entries.row, entries.col])
    M = sampled_hessians(X.indptr, X.indices, X.data, Wt)
    np.testing.assert_allclose(unpacked(M, 3), np.einsum("nf,jf,kf->njk", X.toarray(), W, W), atol=1e-12)


def test_shapes_that_do_not_fit_are_refused_before_the_fast_kernels_run(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="shapes do not fit"):
        nnls_on_gram(np.eye(3), rng.random((4, 2)))
    with pytest.raises(ValueError, match="shapes do not fit"):
        newton_directions(rng.random((4, 5)), rng.random((4, 3)), rng.random((4, 3)), 0.0)
    with pytest.raises(ValueError, match="shapes do not fit"):
        sweep(rng.random((5, 5)), rng.random((5, 3)), rng.random((5, 3)), np.zeros(5), 1)
    with pytest.raises(ValueError, match="shapes do not fit"):
        sampled_product(np.array([0, 1]), np.array([0]), rng.random((2, 3)), rng.random((4, 3)))
    with pytest.raises(ValueError, match="shapes do not fit"):
        sampled_hessians(np.array([0, 1]), np.array([0]), rng.random(2), rng.random((4, 3)))
