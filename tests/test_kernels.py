"""Small problems: this file runs once more without the compiler, for the coverage of the kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from onmf.coefficients import InteriorPoint
from onmf.coefficients.kernels.coordinate_descent import coordinate_descent, coordinate_sweep
from onmf.coefficients.kernels.dictionary import blend, sweep
from onmf.coefficients.kernels.gram import (
    newton_directions,
    nnls_on_gram,
    nnls_on_grams,
    pack,
    projected_gradient_on_gram,
    remaining_gains,
    sampled_hessians,
    sampled_product,
)
from onmf.coefficients.kernels.multiplicative import (
    accumulate,
    divide,
    gather,
    multiplicative_iteration,
    multiplicative_steps,
)
from onmf.coefficients.problem import Problem
from onmf.divergences import L1
from onmf.model.penalty import Penalty

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
every_order = pytest.mark.parametrize("order", [1, 0.5, 2, 0.3])

Arrays = dict[str, np.ndarray]


def problem(rng: np.random.Generator, n: int = 4, K: int = 5, dtype: type = np.float64) -> Arrays:
    W = rng.random((K, 3 * K))
    X = (rng.random((n, K)) * (rng.random((n, K)) < 0.6)) @ W + 0.3 * rng.random((n, 3 * K))
    arrays = {"Q": W @ W.T, "B": X @ W.T, "H": np.full((n, K), 0.2), "reach": X.sum(axis=1)[:, None] / W.sum(axis=1)}
    arrays["tolerance"] = 1e-5 * np.square(X).sum(axis=1) / 2
    return {name: array.astype(dtype) for name, array in arrays.items()} | {"W": W, "X": X}


def solve(p: Arrays, low: float = 1e-8, high: float = 1e8, max_iter: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    arrays = (p[name] for name in ("Q", "B", "H", "reach", "tolerance"))
    iterations, converged = np.zeros(len(p["B"]), dtype=np.int64), np.zeros(len(p["B"]), dtype=bool)
    step = 1 / max(np.linalg.norm(p["Q"], 2), 1e-9)
    projected_gradient_on_gram(*arrays, iterations, converged, step, low, high, max_iter)
    return iterations, converged


def plain_loop(p: Arrays, low: float, high: float, max_iter: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def test_arrays_in_another_order_are_converted(rng: np.random.Generator) -> None:
    p = problem(rng)
    expected = {name: array.copy() for name, array in p.items()}
    solve(expected)
    for name in ("Q", "B", "reach"):
        p[name] = np.asfortranarray(p[name])
    solve(p)
    np.testing.assert_array_equal(p["H"], expected["H"])


@pytest.mark.parametrize("name", ["Q", "B", "H", "reach", "tolerance"])
def test_shapes_that_do_not_fit_raise_an_error(name: str, rng: np.random.Generator) -> None:
    whole = problem(rng)
    for wrong in (whole[name][:-1], whole[name].astype(np.float32)):
        with pytest.raises(ValueError, match="projected_gradient_on_gram: shapes or types do not fit: Q "):
            solve(whole | {name: wrong})


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "layout",
    [np.asfortranarray, lambda H: np.repeat(H, 2, axis=1)[:, ::2], read_only],
    ids=["F", "strided", "read-only"],
)
def test_an_array_that_cannot_be_overwritten_row_by_row_raises_an_error(layout, rng: np.random.Generator) -> None:
    p = problem(rng)
    p["H"] = layout(p["H"])
    with pytest.raises(ValueError, match=r"projected_gradient_on_gram overwrites H, .* writeable and C-contiguous"):
        solve(p)


def test_no_samples_are_no_trouble(rng: np.random.Generator) -> None:
    p = {name: array[:0] if name != "Q" else array for name, array in problem(rng).items()}
    iterations, converged = solve(p)
    assert iterations.shape == converged.shape == (0,)


# The fast methods' kernels


def digits(dtype: type) -> float:
    return 1e-4 if dtype == np.float32 else 1e-10


def unpacked(M: np.ndarray, K: int) -> np.ndarray:
    """(n, K, K) from packed rows (n, P)."""
    full = np.zeros((len(M), K, K))
    rows, columns = np.triu_indices(K)
    full[:, rows, columns] = full[:, columns, rows] = M
    return full


def packed(A: np.ndarray) -> np.ndarray:
    """(P, F) from matrices (F, K, K)."""
    rows, columns = np.triu_indices(A.shape[1])
    return np.ascontiguousarray(A[:, rows, columns].T)


# pack, blend, sweep


@every_dtype
@pytest.mark.parametrize(("K", "m"), [(1, 1), (4, 5), (3, 1), (5, 2), (2, 0)])
def test_packed_products_are_the_upper_triangles_of_outer_products(
    rng: np.random.Generator, K: int, m: int, dtype: type
) -> None:
    V = rng.random((K, m)).astype(dtype)
    M = pack(V)
    assert M.dtype == dtype
    assert M.shape == (K * (K + 1) // 2, m)
    np.testing.assert_allclose(unpacked(M.T, K), np.einsum("jf,kf->fjk", V, V), rtol=1e-6)
    np.testing.assert_array_equal(pack(np.asfortranarray(V)), M)


@every_dtype
def test_blending_averages_some_columns_in_both_arrays_and_leaves_the_others(
    rng: np.random.Generator, dtype: type
) -> None:
    A, news = rng.random((3, 10)).astype(dtype), rng.random((3, 4)).astype(dtype)
    expected = A.copy()
    expected[:, 5:9] = 0.75 * A[:, 5:9] + 2.0 * news
    blend(A, news, 5, 0.75, 2.0)
    np.testing.assert_allclose(A, expected, rtol=1e-6)
    np.testing.assert_array_equal(news, A[:, 5:9])
    assert A.dtype == news.dtype == dtype


@dataclass
class Quadratics:
    """w A_f w' / 2 - b_f w' over w_k >= unit_k low_f, for F features of which a kernel sees B."""

    V: np.ndarray  # (B, m, K) with A_f = V_f' V_f
    b: np.ndarray  # (K, B)
    low: np.ndarray  # (F,)
    unit: np.ndarray  # (K,)
    first: int
    shared: bool

    @classmethod
    def draw(cls, rng: np.random.Generator, K: int, B: int, shared: bool) -> Quadratics:
        V = rng.random((B, K + 4, K))
        if shared:
            V[:] = V[0]
        low = rng.random(B + 3) * (rng.random(B + 3) < 0.6)
        return cls(V, rng.normal(0.5, 1.0, (K, B)), low, rng.random(K) + 0.5, 2, shared)

    @property
    def A(self) -> np.ndarray:
        return np.einsum("fij,fik->fjk", self.V, self.V)

    @property
    def least(self) -> np.ndarray:
        """(K, B)"""
        return self.unit[:, None] * self.low[self.first :][: self.b.shape[1]]

    def sweep(self, W: np.ndarray, sweeps: int, A: np.ndarray | None = None) -> np.ndarray:
        """The columns that the kernel has worked on; the others must be as they were."""
        A = self.A if A is None else A
        arrays = (A[0] if self.shared else packed(A), self.b, W, self.low, self.unit)
        A, b, W, low, unit = (np.ascontiguousarray(a, dtype=W.dtype) for a in arrays)
        before, B = W.copy(), b.shape[1]
        sweep(A, b, W, low, unit, np.inf, self.first, sweeps)
        columns = np.r_[self.first : self.first + B]
        np.testing.assert_array_equal(np.delete(W, columns, axis=1), np.delete(before, columns, axis=1))
        return W[:, columns]


@every_dtype
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("K", "B"), [(1, 1), (1, 4), (2, 3), (3, 2), (3, 5), (4, 7)])
def test_sweeps_find_nonnegative_least_squares_above_the_floor(
    rng: np.random.Generator, K: int, B: int, shared: bool, dtype: type
) -> None:
    q = Quadratics.draw(rng, K, B, shared)
    W = q.sweep(np.ones((K, B + 3), dtype=dtype), 3000)
    for f in range(B):
        # w = least + v with v >= 0: least squares in v.
        target = np.linalg.lstsq(q.V[f].T, q.b[:, f] - q.A[f] @ q.least[:, f], rcond=None)[0]
        expected = q.least[:, f] + scipy.optimize.nnls(q.V[f], target)[0]
        np.testing.assert_allclose(W[:, f], expected, atol=2e-2 if dtype == np.float32 else 1e-7)
    assert (q.least * (1 - 1e-6) <= W).all()


@pytest.mark.parametrize("shared", [False, True])
def test_a_sweep_is_exact_coordinate_descent_in_order(rng: np.random.Generator, shared: bool) -> None:
    q = Quadratics.draw(rng, 3, 4, shared)
    W = rng.random((3, 7))
    expected = W[:, 2:6].copy()
    for _ in range(2):
        for f, k in np.ndindex(4, 3):  # features do not see each other
            slope = q.A[f, k] @ expected[:, f] - q.b[k, f]
            expected[k, f] = max(expected[k, f] - slope / q.A[f, k, k], q.least[k, f])
    np.testing.assert_allclose(q.sweep(W, 2), expected, rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_a_weight_without_curvature_stays(rng: np.random.Generator, shared: bool) -> None:
    q = Quadratics.draw(rng, 3, 4, shared)
    q.low[:] = 0.1
    A = q.A
    A[:, 1, :] = A[:, :, 1] = 0  # nothing has been seen of component 1
    q.b[1] = 0
    np.testing.assert_array_equal(q.sweep(np.full((3, 7), 0.5), 5, A)[1], 0.5)


@pytest.mark.parametrize(("K", "B"), [(1, 1), (2, 2), (3, 2)])
def test_one_matrix_for_all_is_not_mistaken_for_packed_ones(rng: np.random.Generator, K: int, B: int) -> None:
    q = Quadratics.draw(rng, K, B, True)
    one, other = (replace(q, shared=shared).sweep(np.ones((K, B + 3)), 50) for shared in (True, False))
    np.testing.assert_allclose(one, other, rtol=1e-9)


# Active set, Newton


@every_dtype
def test_the_active_set_solves_nonnegative_least_squares(rng: np.random.Generator, dtype: type) -> None:
    W, X = rng.random((6, 9)), rng.normal(0.3, 1.0, (30, 9))
    H = nnls_on_gram((W @ W.T).astype(dtype), (X @ W.T).astype(dtype))
    expected = np.array([scipy.optimize.nnls(W.T, x)[0] for x in X])
    assert H.dtype == dtype
    np.testing.assert_allclose(H, expected, atol=1e-3 if dtype == np.float32 else 1e-7)


@every_dtype
def test_the_active_set_of_samples_with_matrices_of_their_own_solves_weighted_least_squares(
    rng: np.random.Generator, dtype: type
) -> None:
    W, X, weights = rng.random((6, 20)), rng.normal(0.3, 1.0, (30, 20)), rng.random((30, 20))
    M = (weights @ pack(W).T).astype(dtype)
    H = nnls_on_grams(M, ((weights * X) @ W.T).astype(dtype))
    pairs = zip(np.sqrt(weights), X, strict=True)
    expected = np.array([scipy.optimize.nnls((root * W).T, root * x)[0] for root, x in pairs])
    assert H.dtype == dtype
    np.testing.assert_allclose(H, expected, atol=1e-3 if dtype == np.float32 else 1e-7)


@every_dtype
@pytest.mark.parametrize("K", [6, 30])
def test_the_active_set_bears_equal_components_and_zero_data(rng: np.random.Generator, dtype: type, K: int) -> None:
    W = np.repeat(rng.random((3, 9)), K // 3, axis=0)
    X = np.vstack([rng.random((5, 9)), np.zeros(9)])
    H = nnls_on_gram((W @ W.T).astype(dtype), (X @ W.T).astype(dtype))
    best = [scipy.optimize.nnls(W.T, x)[1] for x in X]
    assert (H >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(X - H @ W, axis=1), best, atol=1e-4 if dtype == np.float32 else 1e-6)


def test_the_active_set_ends_even_where_whole_blocks_change_sides_in_circles() -> None:
    rng = np.random.default_rng(0)
    V = rng.normal(size=(14, 3)) + 0.1 * rng.normal(size=(14, 1))
    Q = V @ V.T + 1e-3 * np.eye(14)
    B = rng.normal(size=(200, 14))
    H = nnls_on_gram(Q, B, max_iter=500)
    G = H @ Q - B
    np.testing.assert_allclose(np.where(H > 0, G, np.minimum(G, 0)), 0, atol=1e-6)


@every_dtype
def test_a_lift_raises_the_coefficients_that_are_far_below_the_mean_of_their_sample(
    rng: np.random.Generator, dtype: type
) -> None:
    W, X = rng.random((6, 9)), rng.normal(0.3, 1.0, (30, 9))
    Q, B = (W @ W.T).astype(dtype), (X @ W.T).astype(dtype)
    H = nnls_on_gram(Q, B)
    expected = np.maximum(H, 0.1 * H.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(nnls_on_gram(Q, B, lift=0.1), expected, rtol=1e-6)


@every_dtype
def test_what_is_left_to_gain_is_bounded_by_the_slopes_and_how_far_a_coefficient_may_go(
    rng: np.random.Generator, dtype: type
) -> None:
    H, G, reach = (array.astype(dtype) for array in (rng.random((7, 5)), rng.normal(size=(7, 5)), rng.random((7, 5))))
    down, up = np.maximum(G, 0) * (H - 0.01), np.maximum(-G, 0) * np.minimum(np.maximum(reach - H, H), 0.9 - H)
    gains = remaining_gains(H, G, reach, 0.01, 0.9)
    assert gains.dtype == dtype
    np.testing.assert_allclose(gains, (down + up).sum(axis=1), rtol=1e-4)


def test_an_active_set_stopped_early_is_still_nonnegative(rng: np.random.Generator) -> None:
    W = rng.random((6, 9))
    assert (nnls_on_gram(W @ W.T, rng.normal(size=(30, 9)) @ W.T, max_iter=1) >= 0).all()


def test_a_system_that_is_not_positive_leaves_the_active_set_at_its_start() -> None:
    Q = np.array([[1.0, 5.0], [5.0, 1.0]])  # eigenvalues 6 and -4: no least squares
    H = nnls_on_gram(Q, np.array([[6.0, 6.0]]))
    np.testing.assert_allclose(H, [[1.0, 1.0]], rtol=1e-6)


def test_newton_directions_solve_the_free_system_and_leave_the_bound_alone(rng: np.random.Generator) -> None:
    H, G = rng.random((8, 4)) + 1.0, rng.normal(size=(8, 4))
    H[:, 0], G[:, 0] = 1e-8, 1.0  # at its bound, and pushed against it
    V = rng.random((8, 7, 4))
    M = np.einsum("nij,nik->njk", V, V)
    H[:, 1], G[:, 1] = 50.0, -1e4  # its own step would pass the upper one
    D, positive = newton_directions(packed(M).T, G, H, 1e-8, 100.0)
    assert positive.all()
    for n in range(8):
        np.testing.assert_allclose(D[n, 2:], -np.linalg.solve(M[n, 2:, 2:], G[n, 2:]), rtol=1e-5)
    np.testing.assert_array_equal(D[:, :2], [[0.0, 50.0]] * 8)


def test_free_coefficients_move_alike_in_all_units_of_the_components(rng: np.random.Generator) -> None:
    H, G, V = rng.random((8, 4)) + 1, rng.normal(size=(8, 4)), rng.random((8, 7, 4))
    unit = np.array([1e-9, 1.0, 1e3, 1e8])
    M = np.einsum("nij,nik->njk", V, V)
    G[:, 0] = 1e-3  # in the second call near its bound, but its own step does not reach it
    D, _ = newton_directions(packed(M).T, G, H, 0.0, 1e12)
    other, _ = newton_directions(packed(M / unit / unit[:, None]).T, G / unit, H * unit, 0.0, 1e20)
    np.testing.assert_allclose(other / unit, D, rtol=1e-9)


@every_dtype
def test_newton_directions_are_hardly_damped(rng: np.random.Generator, dtype: type) -> None:
    V = rng.random((4, 40, 5))
    M = np.einsum("nij,nik->njk", V, V)
    G = rng.normal(size=(4, 5))
    H = np.full((4, 5), 100.0, dtype=dtype)
    D, _ = newton_directions(packed(M).T.astype(dtype), G.astype(dtype), H, 0.0, 1e8)
    assert D.dtype == dtype
    expected = -np.linalg.solve(M, G[:, :, None])[:, :, 0]
    np.testing.assert_allclose(D, expected, rtol=1e-3 if dtype == np.float32 else 1e-9, atol=1e-6)


def test_a_hessian_that_is_not_positive_gives_a_scaled_gradient() -> None:
    M = np.array([[1.0, 5.0, 1.0]])  # eigenvalues 6 and -4
    D, positive = newton_directions(M, np.array([[1.0, -1.0]]), np.array([[3.0, 3.0]]), 1e-8, 1e8)
    assert not positive.any()
    np.testing.assert_allclose(D, [[-1.0, 1.0]], rtol=1e-5)


# Sparse samples


def counts(rng: np.random.Generator, n: int, F: int, dtype: type = np.float64) -> scipy.sparse.csr_matrix:
    X = rng.poisson(0.8, (n, F)).astype(dtype)
    X[0] = 0  # a sample without words
    return scipy.sparse.csr_matrix(X)


def test_sampled_products_are_the_dense_ones_at_the_non_zeros(rng: np.random.Generator) -> None:
    X = counts(rng, 6, 8)
    H, W = rng.random((6, 3)), rng.random((3, 8))
    Wt = np.ascontiguousarray(W.T)
    entries = X.tocoo()
    Y, M = np.empty(X.nnz), np.zeros((6, 6))
    sampled_product(X, H, Wt, Y, 0, 3)
    sampled_product(X, H, Wt, Y, 3, len(H))
    np.testing.assert_allclose(Y, (H @ W)[entries.row, entries.col])
    sampled_hessians(X, X.data, Wt, M)
    np.testing.assert_allclose(unpacked(M, 3), np.einsum("nf,jf,kf->njk", X.toarray(), W, W), atol=1e-12)


@every_dtype
@every_order
@pytest.mark.parametrize("l2", [0.0, 2.0])
@pytest.mark.parametrize("K", [1, 4])
def test_multiplicative_steps_are_those_of_the_formula_and_have_their_fits(
    rng: np.random.Generator, order: float, K: int, l2: float, dtype: type
) -> None:
    X = counts(rng, 7, 9, dtype)
    W, H = rng.random((K, 9)) + 0.05, rng.random((7, K)) + 0.1
    low, high, expected, penalties = 0.02, 1.5, H.copy(), l2 * rng.random(7)
    for _ in range(3):
        ratio = (X.toarray() / (expected @ W)) ** order
        below = W.sum(axis=1) + l2 * expected + penalties[:, None]
        exponent = 1 / (order + l2 * expected / below)
        expected = np.clip(expected * (ratio @ W.T / below) ** exponent, low, high)
    found = H.astype(dtype)
    Wt, mass = np.ascontiguousarray(W.T).astype(dtype), W.sum(axis=1).astype(dtype)
    fits, entries = np.empty(X.nnz, dtype), X.tocoo()
    multiplicative_steps(X, found, Wt, mass[None], penalties.astype(dtype), fits, order, l2, low, high, 3, 0, 7)
    assert found.dtype == dtype
    np.testing.assert_allclose(fits, (expected @ W)[entries.row, entries.col], rtol=digits(dtype))
    np.testing.assert_allclose(found, expected, rtol=digits(dtype))
    assert (found == dtype(low)).any()  # the sample without words


@every_order
def test_multiplicative_steps_never_raise_the_divergence(rng: np.random.Generator, order: float) -> None:
    from onmf.divergences import Alpha

    X, W, H = counts(rng, 7, 9), rng.random((4, 9)) + 0.05, rng.random((7, 4)) + 0.1
    losses = []
    for _ in range(6):
        losses.append(Alpha(float(order)).value(X.toarray(), H @ W))
        arrays = X, H, np.ascontiguousarray(W.T), W.sum(axis=1)[None], np.zeros(7), np.empty(X.nnz)
        multiplicative_steps(*arrays, order, 0.0, 1e-8, 1e8, 1, 0, 7)
    assert (np.diff(losses, axis=0) <= 1e-12).all()
    assert losses[-1].sum() < losses[0].sum()


def test_multiplicative_steps_change_the_rows_they_are_given_and_no_others(rng: np.random.Generator) -> None:
    X, Wt, H = counts(rng, 7, 9), rng.random((9, 4)), rng.random((7, 4)) + 0.1
    whole, some = H.copy(), H.copy()
    numbers = Wt.sum(axis=0)[None], rng.random(7), np.empty(X.nnz), 1.0, 0.3, 1e-8, 1e8, 2
    multiplicative_steps(X, whole, Wt, *numbers, 0, 7)
    multiplicative_steps(X, some, Wt, *numbers, 2, 5)
    np.testing.assert_array_equal(some[2:5], whole[2:5])
    np.testing.assert_array_equal(some[[0, 1, 5, 6]], H[[0, 1, 5, 6]])


@every_order
def test_a_step_gives_the_fits_before_it_and_the_ratios_after_it(rng: np.random.Generator, order: float) -> None:
    X, Wt, H = counts(rng, 7, 9), rng.random((9, 4)), rng.random((7, 4)) + 0.1
    entries, new, fits, ratios = X.tocoo(), H.copy(), np.empty(X.nnz), np.empty(X.nnz)
    fits[:], ratios[:] = np.nan, np.nan
    for rows in ((0, 3), (3, 7)):
        multiplicative_iteration(X, new, Wt, Wt.sum(axis=0), fits, ratios, order, 1.0, *rows)
    ratio = (X.toarray() / np.maximum(H @ Wt.T, 1.0)) ** order
    np.testing.assert_allclose(new, H * (ratio @ Wt / Wt.sum(axis=0)) ** (1 / order))
    before, after = (np.maximum(C @ Wt.T, 1.0)[entries.row, entries.col] for C in (H, new))
    np.testing.assert_allclose(fits, before)
    np.testing.assert_allclose(ratios, (X.data / after) ** order)
    assert (fits == 1.0).any()


@every_dtype
def test_accumulating_adds_the_transposed_product_for_some_features(rng: np.random.Generator, dtype: type) -> None:
    X, H = counts(rng, 7, 9, dtype), rng.random((7, 4)).astype(dtype)
    entries = rng.random(X.nnz).astype(dtype)
    E = scipy.sparse.csr_matrix((entries, X.indices, X.indptr), shape=X.shape).toarray()
    whole, some = np.ones((9, 4), dtype=dtype), np.zeros((3, 4), dtype=dtype)
    accumulate(X, entries, H, whole, 0)
    accumulate(X, entries, np.asfortranarray(H), some, 5)
    np.testing.assert_allclose(whole, 1 + E.T @ H, rtol=digits(dtype))
    np.testing.assert_allclose(some, (E.T @ H)[5:8], rtol=digits(dtype))
    columns = scipy.sparse.csr_matrix((np.arange(X.nnz), X.indices, X.indptr), shape=X.shape).tocsc().T
    for features in ((0, 4), (4, 9)):
        gather(columns, entries, H, whole, *features)
    np.testing.assert_allclose(whole, E.T @ H, rtol=digits(dtype))


@every_dtype
@every_order
def test_dividing_averages_divides_and_keeps_the_floor(rng: np.random.Generator, order: float, dtype: type) -> None:
    F, K, rows = 8, 3, slice(2, 6)
    N, Wt, news = rng.random((F, K)), rng.random((F, K)), rng.random((4, K))
    D, low = rng.random(K) + 0.5, np.full(F, 0.2)
    averaged = 0.7 * N[rows] + 0.4 * Wt[rows] ** order * news
    expected = np.maximum((averaged / D) ** (1 / order), 0.2)
    out = np.full((2, 4, K), -1, dtype=dtype)
    out[0] = news
    arrays = (a.astype(dtype) for a in (N[rows], Wt[rows], D, low[rows]))
    largest = np.full(K, 9, dtype=dtype)
    divide(*arrays, *out, largest, 0.7, 0.4, order)
    np.testing.assert_allclose(out[0], averaged, rtol=digits(dtype))
    np.testing.assert_allclose(out[1], expected, rtol=digits(dtype))
    np.testing.assert_array_equal(largest, out[1].max(axis=0))


# Least absolute deviations


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_interior_points_kernels_find_least_absolute_deviations(rng: np.random.Generator, l2: float) -> None:
    W = rng.random((5, 7)) + 0.05  # more components than a block of the factor has rows
    X = rng.gamma(1.0, 1.0, (3, 5)) @ W + 0.2 * rng.random((3, 7))
    found = InteriorPoint(tol=1e-6).solve(Problem(L1(), X, W, penalty=Penalty(l2)))
    assert found.converged.all()

    def value(h: np.ndarray, x: np.ndarray) -> float:
        return float(np.abs(x - h @ W).sum() + 0.5 * l2 * h @ h)

    for x, h in zip(X, found.H, strict=True):
        # u - t = x - hW with u, t >= 0: a linear programme, and with l2 the best of many starts near its solution.
        costs = np.r_[np.zeros(5), np.ones(14)]
        equations = np.hstack([W.T, np.eye(7), -np.eye(7)])
        linear = scipy.optimize.linprog(costs, A_eq=equations, b_eq=x).x[:5]
        best = value(linear, x)
        if l2:
            for _ in range(300):
                best = min(best, value(np.maximum(h + 0.05 * rng.normal(size=5), 0), x))
        assert value(h, x) <= best + 1e-5 * np.abs(x).sum()


# Refusals


def misfits() -> dict[str, tuple[object, str]]:
    """Calls with arrays that do not fit, and words of the reason."""
    f = np.random.default_rng(0).random
    X = counts(np.random.default_rng(0), 4, 6)
    entries = X.data

    def single(*shape: int) -> np.ndarray:
        return f(shape).astype(np.float32)

    # What fits, by name: arrays first. Each reason replaces some of it.
    fitting = {
        nnls_on_gram: {"Q": np.eye(3), "B": f((4, 3))},
        nnls_on_grams: {"M": f((4, 6)), "B": f((4, 3))},
        newton_directions: {"M": f((4, 6)), "G": f((4, 3)), "H": f((4, 3)), "low": 0.0, "high": 1e8},
        sampled_product: {"X": X, "H": f((4, 3)), "Wt": f((6, 3)), "out": f(X.nnz), "first": 0, "last": 4},
        sampled_hessians: {"X": X, "C": entries, "Wt": f((6, 3)), "out": f((4, 6))},
        blend: {"A": f((3, 5)), "news": f((3, 2)), "first": 0, "keep": 1, "gain": 1},
        sweep: {"A": f((6, 5)), "b": f((3, 5)), "W": f((3, 9)), "low": f(9), "unit": f(3), "high": np.inf}
        | {"first": 4, "sweeps": 1},
        multiplicative_steps: {"X": X, "H": f((4, 3)), "Wt": f((6, 3)), "mass": f((1, 3)), "l1": f(4)}
        | {"fits": f(X.nnz), "order": 1.0, "l2": 0.0, "low": 0.0, "high": 1.0, "steps": 1}
        | {"first": 0, "last": 4},
        multiplicative_iteration: {"X": X, "H": f((4, 3)), "Wt": f((6, 3)), "mass": f(3), "fits": f(X.nnz)}
        | {"ratios": f(X.nnz), "order": 1.0, "least": 0.0, "first": 0, "last": 4},
        coordinate_descent: {"X": X, "H": f((4, 3)), "Wt": f((6, 3)), "mass": f((1, 3)), "high": f((4, 3))}
        | {"reach": f((4, 3)), "tolerance": f(4), "noise": f(4), "iterations": np.zeros(4, int)}
        | {"converged": np.zeros(4, bool), "order": 1.0, "l2": 0.0, "low": 0.0, "max_iter": 1, "first": 0, "last": 4},
        coordinate_sweep: {"X": X, "H": f((4, 3)), "Wt": f((6, 3)), "mass": f(3), "fits": f(X.nnz), "order": 1.0}
        | {"low": 0.0, "high": 1.0, "prior": 0.0, "fixed": 0, "first": 0, "last": 4},
        accumulate: {"X": X, "entries": entries, "H": f((4, 3)), "out": f((6, 3)), "first": 0},
        gather: {"columns": X.tocsc().T, "entries": entries, "H": f((4, 3)), "out": f((6, 3)), "first": 0, "last": 6},
        divide: {"N": f((6, 3)), "Wt": f((6, 3)), "D": f(3), "low": f(6), "averaged": f((6, 3))}
        | {"weights": f((6, 3)), "largest": f(3), "keep": 1.0, "gain": 1.0, "order": 1.0},
    }
    fitting[gather]["columns"].data = np.arange(X.nnz)

    def call(kernel: object, changed: dict[str, object]) -> object:
        for case in ({}, changed):
            arguments = {
                name: value.copy() if hasattr(value, "copy") else value for name, value in fitting[kernel].items()
            }
            arguments |= case
            kernel(*arguments.values())

    wrong = [
        (nnls_on_gram, {"B": f((4, 2))}, {"Q": f((3, 2))}, {"B": f(3)}),
        (nnls_on_grams, {"M": f((4, 5))}, {"M": f((3, 6))}, {"B": single(4, 3)}),
        (newton_directions, {"M": f((4, 5))}, {"G": f((4, 2))}, {"G": single(4, 3)}),
        (
            sampled_product,
            {"H": f((3, 3))},
            {"Wt": f((6, 2))},
            {"Wt": f((5, 3))},
            {"out": f(X.nnz - 1)},
            {"last": 5},
            {"first": -1},
        ),
        (sampled_hessians, {"C": entries[:-1]}, {"out": f((4, 5))}),
        (blend, {"news": f((2, 2))}, {"first": 4}, {"first": -1}, {"news": single(3, 2)}),
        (sweep, {"A": f((5, 5))}, {"b": f((2, 5))}, {"W": f((3, 8))}, {"low": f(5)}, {"unit": f((3, 1))}),
        (sweep, {"first": 5}, {"first": -1}, {"low": single(9)}),
        (sweep, {"A": f((3, 3)), "first": 5}, {"A": f((3, 3)), "first": -1}),
        (multiplicative_steps, {"H": f((5, 3))}, {"Wt": f((6, 2))}, {"mass": f((2, 3))}, {"H": single(4, 3)}),
        (multiplicative_steps, {"l1": f(3)}, {"fits": f(3)}, {"first": -1}, {"last": 5}),
        (multiplicative_iteration, {"H": f((5, 3))}, {"fits": f(2)}, {"ratios": f(2)}, {"first": -1}, {"last": 5}),
        (coordinate_descent, {"H": f((5, 3))}, {"Wt": f((6, 2))}, {"mass": f((2, 3))}, {"high": f((3, 3))}),
        (coordinate_descent, {"reach": f((3, 3))}, {"tolerance": f(3)}, {"converged": np.zeros(3, bool)}, {"last": 5}),
        (coordinate_sweep, {"H": f((5, 3))}, {"mass": f(2)}, {"fits": f(2)}, {"first": -1}, {"last": 5}),
        (accumulate, {"H": f((3, 3))}, {"out": f((6, 2))}, {"out": f((3, 3)), "first": 4}, {"first": -1}),
        (accumulate, {"entries": single(X.nnz)}, {"entries": entries[1:]}),
        (gather, {"H": f((3, 3))}, {"out": f((5, 3))}, {"entries": entries[1:]}, {"first": -1}, {"last": 7}),
        (divide, {"N": f((5, 3))}, {"Wt": f((6, 2))}, {"weights": f((5, 3))}, {"D": f(6)}, {"low": f(3)}),
    ]
    cases = {
        f"{kernel.__name__}, {' '.join(f'{name} {np.shape(value) or value}' for name, value in changed.items())}": (
            partial(call, kernel, changed),
            "do not fit",
        )
        for kernel, *changes in wrong
        for changed in changes
    }
    crooked = {blend: {"A": np.asfortranarray(f((3, 5)))}, sweep: {"W": np.asfortranarray(f((3, 9)))}}
    crooked[multiplicative_steps] = {"H": f((3, 4)).T}
    return cases | {
        f"{kernel.__name__}, order": (partial(call, kernel, changed), "C-contiguous")
        for kernel, changed in crooked.items()
    }


@pytest.mark.parametrize("name", misfits())
def test_arrays_that_do_not_fit_raise_an_error_before_a_kernel_runs(name: str) -> None:
    call, words = misfits()[name]
    with pytest.raises(ValueError, match=words), np.errstate(all="ignore"):  # plain Python warns of what is divided
        call()
