"""``Samples``: sums, means and rows do not depend on how X is stored, and weights count as copies would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse

from onmf.samples import Samples, as_samples, stacked, weighted

N, F = 9, 5
Pair = tuple[Samples, np.ndarray, np.ndarray]  # samples, and the values and weights of all entries


def numbers(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X, weights = rng.gamma(1.0, 1.0, (N, F)), rng.uniform(0.5, 2.0, (N, F))
    X[rng.random(X.shape) < 0.4] = 0
    weights[rng.random(X.shape) < 0.3] = 0
    weights[3] = 0  # a sample without any entry
    return X, weights


def dense(rng: np.random.Generator) -> Pair:
    X, _ = numbers(rng)
    return Samples(X), X, np.ones_like(X)


def sparse(rng: np.random.Generator) -> Pair:
    X, _ = numbers(rng)
    return Samples(scipy.sparse.csr_matrix(X)), X, np.ones_like(X)


def masked(rng: np.random.Generator) -> Pair:
    X, weights = numbers(rng)
    return Samples(X, weights, absent="missing"), X, weights


def stored(rng: np.random.Generator) -> Pair:
    X, weights = numbers(rng)
    places = np.nonzero(weights)
    matrix = scipy.sparse.csr_matrix((X[places], places), shape=X.shape)
    return Samples(matrix, weights[places], absent="missing"), X, weights


every_kind = pytest.mark.parametrize("make", [dense, sparse, masked, stored], ids=lambda make: make.__name__)
every_part = pytest.mark.parametrize(
    "rows", [slice(2, 7), slice(None, None, 2), np.arange(N) % 3 == 1, np.array([5, 0, 3])], ids=str
)


def assert_same(one: Samples, other: Samples) -> None:
    assert (one.shape, one.sparse, one.masked, one.dtype) == (other.shape, other.sparse, other.masked, other.dtype)
    np.testing.assert_array_equal(one.products.toarray() if one.sparse else one.products, _dense(other.products))
    if one.masked:
        np.testing.assert_array_equal(_dense(one.entry_weights), _dense(other.entry_weights))
    assert (one.sample_weight is None) == (other.sample_weight is None)
    if one.sample_weight is not None:
        np.testing.assert_array_equal(one.sample_weight, other.sample_weight)


def _dense(matrix: object) -> np.ndarray:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else matrix


@every_kind
def test_sums_and_means_are_those_of_the_entries_by_weight(make: Callable, rng: np.random.Generator) -> None:
    samples, X, weights = make(rng)
    present = weights > 0
    for axis in (0, 1):
        total, weight = (weights * X).sum(axis=axis), weights.sum(axis=axis)
        np.testing.assert_allclose(samples.sum(axis), total)
        np.testing.assert_allclose(samples.weight_sums(axis), weight)
        np.testing.assert_allclose(samples.mean(axis), np.divide(total, weight, out=0 * total, where=weight > 0))
    assert samples.mean() == pytest.approx((weights * X).sum() / weights.sum())
    assert samples.max() == X[present].max()
    np.testing.assert_allclose(samples.per_sample(samples.values**2), (weights * X**2).sum(axis=1))
    spread = samples.row_mean(samples.values) * np.ones_like(samples.values)
    of_rows = np.divide((weights * X).sum(axis=1), weights.sum(axis=1), out=np.zeros(N), where=weights.any(axis=1))
    np.testing.assert_allclose(
        _dense(samples.like(spread))[present & (X > 0)], np.outer(of_rows, np.ones(F))[present & (X > 0)]
    )


@every_part
@every_kind
def test_rows_of_samples_are_samples_of_the_rows(make: Callable, rows: object, rng: np.random.Generator) -> None:
    samples, X, weights = make(rng)
    counts = rng.uniform(0.5, 2.0, N)
    some = Samples(samples.matrix, samples.entry_weight, counts, samples.absent)[rows]
    assert len(some) == len(X[rows])
    assert some.weight == pytest.approx(counts[rows].sum())
    np.testing.assert_array_equal(some.sample_weight, counts[rows])
    np.testing.assert_allclose(_dense(some.products), (weights * X)[rows])
    if some.masked:
        np.testing.assert_array_equal(_dense(some.entry_weights), weights[rows])


@every_kind
def test_another_form_holds_the_same_entries(make: Callable, rng: np.random.Generator) -> None:
    samples, X, weights = make(rng)
    for other in (samples.densified(), samples.sparsified(), samples.sparsified().densified()):
        assert other.masked == samples.masked
        np.testing.assert_allclose(_dense(other.products), weights * X)
        if other.masked:
            np.testing.assert_array_equal(_dense(other.entry_weights), weights)
    assert not samples.densified().sparse
    assert samples.sparsified().sparse
    single = samples.astype(np.float32)
    assert single.dtype == single.products.dtype == np.float32
    whole = samples.completed()
    np.testing.assert_array_equal(_dense(whole)[weights > 0], X[weights > 0])
    assert np.isfinite(_dense(whole)).all()


@every_kind
def test_blocks_of_rows_are_stacked_as_they_were(make: Callable, rng: np.random.Generator) -> None:
    samples, _, _ = make(rng)
    assert_same(stacked([samples[:4], samples[4:5], samples[5:]]), samples)
    counted = Samples(samples.matrix, samples.entry_weight, rng.uniform(0.5, 2.0, N), samples.absent)
    assert_same(stacked([counted[:4], counted[4:]]), counted)


def test_blocks_of_different_kinds_are_stacked_as_dense_ones(rng: np.random.Generator) -> None:
    (one, X, weights), (other, _, _) = masked(rng), dense(rng)
    both = stacked([one, other, stored(rng)[0]])
    assert not both.sparse
    np.testing.assert_array_equal(both.entry_weights[:N], weights)
    np.testing.assert_array_equal(both.entry_weights[N : 2 * N], 1)
    np.testing.assert_array_equal(both.matrix[:N], X)


@every_kind
def test_the_weights_of_samples_go_into_those_of_their_entries(make: Callable, rng: np.random.Generator) -> None:
    samples, X, weights = make(rng)
    counts = rng.integers(1, 4, N).astype(float)
    counted = Samples(samples.matrix, samples.entry_weight, counts, samples.absent)
    if samples.masked:
        inside = counted.with_sample_weights_in_entries()
        assert inside.sample_weight is None
        np.testing.assert_allclose(_dense(inside.entry_weights), counts[:, None] * weights)
    np.testing.assert_allclose(counted.times_sample_weight(X), counts[:, None] * X)
    found = _dense(counted.matrix_times_sample_weight(counted.values))
    np.testing.assert_allclose(found, counts[:, None] * _dense(samples.matrix))


def test_the_settings_say_what_is_missing(rng: np.random.Generator) -> None:
    X, weights = numbers(rng)
    nan = np.where(weights > 0, X, np.nan)
    assert not as_samples(X).masked
    assert not as_samples(X, "nan").masked  # none is
    assert as_samples(X, "nan", learning=True).masked  # in a later batch some may be
    for given in (as_samples(nan, "nan"), as_samples(scipy.sparse.csr_matrix(nan), "nan")):
        np.testing.assert_array_equal(given.entry_weights, weights > 0)
        np.testing.assert_array_equal(given.products, np.where(weights > 0, X, 0))
        assert np.isfinite(given.matrix).all()
    implicit = as_samples(scipy.sparse.csr_matrix(X), implicit="missing")
    np.testing.assert_array_equal(_dense(implicit.entry_weights), X > 0)
    both = as_samples(scipy.sparse.csr_matrix(nan), "nan", "missing")
    np.testing.assert_array_equal(_dense(both.entry_weights), (X > 0) & (weights > 0))


def test_weights_of_zero_hide_whatever_stands_there(rng: np.random.Generator) -> None:
    X, weights = numbers(rng)
    garbage = np.where(weights > 0, X, rng.choice([-7.0, np.nan, np.inf], X.shape))
    found = weighted(garbage, None, weights, "zero")
    np.testing.assert_array_equal(found.products, weights * X)
    assert np.isfinite(found.matrix).all()
    assert (found.matrix >= 0).all()
