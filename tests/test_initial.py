"""Initial dictionaries: in the set C, without zeros that could not be left, whatever the first batch looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from onmf.learner.initialise import initial_dictionary
from onmf.model.sets import INITS
from onmf.samples import Samples

every_init = pytest.mark.parametrize("init", INITS)
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def start_of(init: Any, X: Any, K: int, rng: np.random.Generator, ratios: bool = False) -> np.ndarray:
    return initial_dictionary(init, Samples(X), K, rng, ratios)


def require_a_start(W: np.ndarray, shape: tuple[int, int], dtype: type) -> None:
    assert W.shape == shape
    assert W.dtype == dtype
    assert (W > 0).all()
    assert (W <= 1).all()


def batch(rng: np.random.Generator, n: int, F: int, dtype: type = np.float64) -> np.ndarray:
    return rng.gamma(1.0, 1.0, (n, F)).astype(dtype)


def shaped(n: int, F: int) -> Any:
    return lambda rng: batch(rng, n, F)


def mostly_empty(rng: np.random.Generator) -> np.ndarray:
    X = batch(rng, 12, 5)
    X[3:] = 0
    return X


def without_a_feature(rng: np.random.Generator) -> np.ndarray:
    X = batch(rng, 20, 6)
    X[:, 2] = 0
    return X


def counts(rng: np.random.Generator) -> np.ndarray:
    X = rng.poisson(0.1, (60, 15)).astype(np.float64)
    X[0] = 1.0  # every feature occurs
    return X


@every_dtype
@every_init
@pytest.mark.parametrize(
    ("make", "K"),
    [
        *((shaped(n, F), K) for n, F, K in [(30, 8, 4), (30, 8, 8), (3, 8, 5), (30, 4, 9), (1, 1, 3), (2, 3, 7)]),
        (mostly_empty, 6),
        (without_a_feature, 4),
        (counts, 8),
    ],
)
def test_the_dictionary_has_its_shape_and_type_and_entries_between_0_and_1_but_no_zeros(
    rng: np.random.Generator, init: str, make: Any, K: int, dtype: type
) -> None:
    X = make(rng).astype(dtype)
    before = X.copy()
    require_a_start(start_of(init, X, K, rng), (K, X.shape[1]), dtype)
    assert np.array_equal(X, before)


@every_init
def test_a_single_positive_entry_is_enough(rng: np.random.Generator, init: str) -> None:
    X = np.zeros((10, 4))
    X[6, 1] = 3.0
    W = start_of(init, X, 3, rng)
    assert W.shape == (3, 4)
    assert np.isfinite(W).all()
    assert (W[:, 1] > 0).all()


@every_init
def test_the_same_generator_gives_the_same_dictionary_and_another_another(rng: np.random.Generator, init: str) -> None:
    X = batch(rng, 5, 8)
    one, same, other = (start_of(init, X, 12, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert len(np.unique(one, axis=0)) == 12  # no two components are the same


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    F=st.integers(1, 12),
    K=st.integers(1, 15),
    share=st.floats(0.05, 1.0),
    init=st.sampled_from(INITS),
)
def test_any_batch_of_unit_mean_gives_a_dictionary_between_0_and_1(
    seed: int, n: int, F: int, K: int, share: float, init: str
) -> None:
    rng = np.random.default_rng(seed)
    X = batch(rng, n, F) * (rng.random((n, F)) < share)
    X[rng.integers(n), rng.integers(F)] = 1.0
    W = start_of(init, X / X.mean(), K, rng)
    assert W.shape == (K, F)
    assert np.isfinite(W).all()
    assert (W >= 0).all()
    assert (W <= 1).all()
    assert (W.max(axis=1) > 0).all()


def test_samples_are_different_samples_of_the_batch(rng: np.random.Generator) -> None:
    X = np.eye(6) + 1e-3
    W = start_of("samples", X, 6, rng)
    assert sorted(W.argmax(axis=1)) == list(range(6))


both_distances = pytest.mark.parametrize("ratios", [False, True], ids=["differences", "ratios"])
every_form = pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])


@both_distances
def test_kmeans_finds_directions_far_from_each_other(rng: np.random.Generator, ratios: bool) -> None:
    parts = np.kron(np.eye(4), np.ones((1, 3))) + 0.01
    X = rng.gamma(5.0, 1.0, (80, 1)) * parts[np.repeat(np.arange(4), [65, 5, 5, 5])]  # one direction is frequent
    X *= rng.gamma(500, 1 / 500, X.shape)
    W = start_of("kmeans++", X, 4, rng, ratios)
    assert sorted(W.argmax(axis=1) // 3) == [0, 1, 2, 3]


@every_form
def test_kmeans_takes_sparse_samples_as_it_takes_dense_ones(rng: np.random.Generator, form) -> None:
    X = rng.poisson(0.4, (60, 15)).astype(float)
    one, other = (start_of("kmeans++", Y, 8, np.random.default_rng(0)) for Y in (X, form(X)))
    np.testing.assert_allclose(one, other, rtol=1e-12)


@both_distances
@pytest.mark.parametrize("K", [3, 12])
def test_kmeans_takes_a_direction_once_however_often_it_occurs(rng: np.random.Generator, ratios: bool, K: int) -> None:
    X = rng.gamma(5.0, 1.0, (60, 1)) * np.repeat(batch(rng, 3, 8), 20, axis=0)
    W = start_of("kmeans++", X, K, rng, ratios)
    different = W[:3] / np.linalg.norm(W[:3], axis=1, keepdims=True)
    assert (different @ different.T)[np.triu_indices(3, 1)].max() < 0.999
    require_a_start(W, (K, 8), np.float64)
    assert len(np.unique(W.round(6), axis=0)) == K  # equal components would stay equal


@both_distances
def test_rounding_does_not_choose_among_samples_that_are_equally_good_a_start(ratios: bool) -> None:
    # Far from all others lie two samples near each other: whichever is chosen, the other is as near to it.
    rng = np.random.default_rng(0)
    crowd = np.ones(6) + 0.01 * rng.random((30, 6))
    pair = np.array([[9.0, 1, 1, 1, 1, 1], [9.5, 1, 1, 1, 1, 1]])
    X = np.vstack([crowd, pair])
    for seed in range(20):
        starts = [
            start_of("kmeans++", Y, 2, np.random.default_rng(seed), ratios)
            for Y in (X, X / 3.0, X * 1e-9, X.astype(np.float32))
        ]
        for W in starts[1:]:
            np.testing.assert_allclose(W, starts[0], rtol=1e-5)


def test_nndsvda_finds_the_parts_of_block_data(rng: np.random.Generator) -> None:
    parts = np.kron(np.eye(3), np.ones((1, 4)))
    X = np.kron(np.diag([3.0, 2.0, 1.0]), np.ones((10, 1))) @ parts
    W = start_of("nndsvda", X, 3, rng)
    for part in parts:
        similarity = W @ part / np.linalg.norm(W, axis=1) / np.linalg.norm(part)
        assert similarity.max() > 0.8


# The user's own array


@every_dtype
def test_the_users_array_is_copied_in_the_type_of_the_data(rng: np.random.Generator, dtype: type) -> None:
    mine = rng.random((3, 5))
    W = start_of(mine, batch(rng, 9, 5, dtype), 3, rng)
    assert W.dtype == dtype
    assert np.array_equal(W, mine.astype(dtype))
    assert not np.shares_memory(W, mine)
    assert np.array_equal(start_of(mine.tolist(), batch(rng, 9, 5), 3, rng), mine)  # lists are an array


@pytest.mark.parametrize("shape", [(5, 3), (2, 5), (3, 4), (15,), (3, 5, 1), ()])
def test_an_array_of_another_shape_raises_an_error_with_both_shapes(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"\(3, 5\), got") as error:
        start_of(np.ones(shape), batch(rng, 9, 5), 3, rng)
    assert str(shape) in str(error.value)


@pytest.mark.parametrize("bad", [-1e-9, np.nan, np.inf, -np.inf])
def test_an_array_with_a_bad_entry_raises_an_error(rng: np.random.Generator, bad: float) -> None:
    mine = np.ones((3, 5))
    mine[1, 2] = bad
    with pytest.raises(ValueError, match="negative, NaN or infinite"):
        start_of(mine, batch(rng, 9, 5), 3, rng)


@pytest.mark.parametrize(
    "bad",
    [[["a", "b"]], [[1, 2], [3]], object(), {"W": 1}, [[1j, 2]], 1j * np.ones((1, 2)), 10**400],
    ids=lambda bad: type(bad).__name__,
)
def test_what_is_no_array_of_numbers_raises_an_error(rng: np.random.Generator, bad: object) -> None:
    with pytest.raises(ValueError, match="array of numbers"):
        start_of(bad, batch(rng, 9, 2), 1, rng)


def test_an_unknown_name_raises_an_error_with_the_known_ones(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="unknown init 'random'") as error:
        start_of("random", batch(rng, 9, 2), 1, rng)
    assert all(name in str(error.value) for name in INITS)
