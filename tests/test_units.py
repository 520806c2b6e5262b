from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, OnlineNMF
from onmf.divergences import (
    Alpha,
    Beta,
    Divergence,
    ItakuraSaito,
    KullbackLeibler,
)
from onmf.model.units import FLOOR, Units, checked_clip
from onmf.model.validation import require_valid_entries
from onmf.samples import Samples
from tests.conftest import F, LogCosh, Overdispersed, Soft, every_divergence

LAYOUTS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "csr": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_array,
    "csr_matrix": scipy.sparse.csr_matrix,
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def first_batch(X: Any, clip: tuple[float, float] | None, *, rescale: bool) -> Units:
    return Units.of_first_batch(Samples(X), clip, rescale)


def inside_of(units: Units, X: Any, divergence: Divergence) -> tuple[Any, int]:
    """The matrix in internal units, and how many entries were raised."""
    internal, raised = units.inside(Samples(X), divergence)
    return internal.matrix, raised


# Bad entries


@every_layout
@every_dtype
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "NaN in the data at row 3, column 2 .*fill or drop it, or learn from the rest with missing='nan'"),
        (np.inf, "Infinity .*at row 3, column 2 .*remove it first"),
        (-np.inf, "Infinity .*at row 3, column 2 .*remove it first"),
        (
            -0.25,
            "Negative values in data, the first -0.25, at row 3, column 2 .*z-scores, give the counts instead",
        ),
    ],
)
def test_the_first_bad_entry_is_named_by_row_and_column(layout, dtype: type, value: float, message: str) -> None:
    X = np.arange(30, dtype=dtype).reshape(6, 5)
    X[3, 2] = X[3, 4] = X[4, 0] = X[5, 1] = value
    with pytest.raises(DataError, match=message):
        require_valid_entries(layout(X))


@every_layout
def test_rows_are_named_by_their_number_in_the_data(layout) -> None:
    X = np.ones((3, 4))
    X[1, 3] = -1
    with pytest.raises(DataError, match=r"at row 70, column 3 \(counted from 0\)"):
        require_valid_entries(layout(X), rows=np.array([5, 70, 6]))


@every_layout
def test_of_different_faults_the_first_is_named(layout) -> None:
    X = np.ones((3, 4))
    X[0, 3], X[1, 0], X[2, 0] = np.inf, np.nan, -1
    with pytest.raises(DataError, match=r"Infinity .*row 0, column 3"):
        require_valid_entries(layout(X))


@every_layout
def test_good_data_pass(layout, rng: np.random.Generator) -> None:
    X = rng.random((5, 4)) * (rng.random((5, 4)) < 0.5)
    require_valid_entries(layout(X))
    require_valid_entries(layout(np.zeros((2, 3))))
    require_valid_entries(layout(np.full((2, 3), 1.7e308)))


def test_explicit_zeros_of_a_sparse_matrix_pass() -> None:
    X = scipy.sparse.csr_array((np.array([0.0, 1.0, -0.0]), (np.array([0, 1, 2]), np.array([1, 1, 0]))), shape=(3, 2))
    assert X.nnz == 3
    require_valid_entries(X)


def test_integers_are_checked_as_well() -> None:
    require_valid_entries(np.arange(6).reshape(2, 3))
    with pytest.raises(DataError, match="the first -2, at row 0, column 1"):
        require_valid_entries(np.array([[1, -2]]))


def test_a_data_error_is_a_value_error() -> None:
    assert issubclass(DataError, ValueError)


# Units


@every_dtype
def test_internal_data_have_unit_mean(dtype: type, rng: np.random.Generator) -> None:
    X = (300 * rng.random((20, 7))).astype(dtype)
    units = first_batch(X, None, rescale=True)
    inside, raised = inside_of(units, X, KullbackLeibler())
    assert inside.dtype == dtype
    assert inside.flags.c_contiguous
    assert raised == 0
    assert units.scale == pytest.approx(X.mean(dtype=np.float64), rel=1e-6)
    assert units.mean == pytest.approx(units.scale, rel=1e-12)
    np.testing.assert_allclose(inside * units.scale, X, rtol=1e-6)


def test_without_rescaling_data_stay_as_they_are(rng: np.random.Generator) -> None:
    X = 300 * rng.random((20, 7))
    units = first_batch(X, None, rescale=False)
    inside, _ = inside_of(units, X, KullbackLeibler())
    np.testing.assert_array_equal(inside, X)
    assert inside is not X
    assert units.scale == 1.0
    assert units.mean == pytest.approx(X.mean())


def test_clipping_comes_before_the_mean(rng: np.random.Generator) -> None:
    X = 300 * rng.random((20, 7))
    clipped = np.clip(X, 50, 100)
    units = first_batch(X, (50.0, 100.0), rescale=True)
    assert units.scale == pytest.approx(clipped.mean())
    inside, _ = inside_of(units, X, KullbackLeibler())
    np.testing.assert_allclose(inside, clipped / clipped.mean())


@every_dtype
@pytest.mark.parametrize("divergence", [ItakuraSaito(), Alpha(0.0), Alpha(-1.0), Beta(0.0), Beta(-0.5)])
def test_zeros_outside_the_domain_are_raised_and_counted_and_nothing_else_changes(
    divergence: Divergence, dtype: type, rng: np.random.Generator
) -> None:
    X = (1 + rng.random((20, F))).astype(dtype)
    X[::3, 2] = 0
    before = X.copy()
    units = first_batch(X, None, rescale=True)
    inside, raised = inside_of(units, X, divergence)
    assert raised == 7
    assert inside.dtype == dtype
    means = (X / units.scale).mean(axis=1, dtype=np.float64)
    np.testing.assert_allclose(inside[::3, 2], FLOOR * np.maximum(means, 1)[::3], rtol=1e-6)
    np.testing.assert_allclose(np.delete(inside, 2, axis=1), np.delete(X / units.scale, 2, axis=1), rtol=1e-6)
    np.testing.assert_array_equal(X, before)


@every_dtype
@pytest.mark.parametrize("divergence", [ItakuraSaito(), Alpha(-1.0), Beta(-0.5)])
def test_what_is_negligible_next_to_its_sample_is_raised_like_a_zero_whatever_the_batch_and_the_units(
    divergence: Divergence, dtype: type, rng: np.random.Generator
) -> None:
    X = rng.gamma(1.0, 1.0, (6, F)) + 0.1
    X *= np.array([1e-12, 1e-4, 0.1, 1.0, 10.0, 1e4])[:, None]  # silence, soft and loud samples
    X[:, 0], X[:, 1], X[:, 2] = 1e-24, 0.0, 1e-8 * np.maximum(X.mean(axis=1), 1.0)
    X = X.astype(dtype)
    units = Units(1.0, 1.0, False)
    inside, raised = inside_of(units, X, divergence)
    own = X.mean(axis=1, dtype=np.float64)
    np.testing.assert_allclose(inside[:, :2], FLOOR * np.maximum(own, 1.0)[:, None] * np.ones(2), rtol=1e-6)
    np.testing.assert_allclose(inside[0], np.where(X[0] > FLOOR, X[0], FLOOR), rtol=1e-6)  # silence lies flat
    np.testing.assert_array_equal(inside[1:, 2:], X[1:, 2:])
    assert raised == 2 * 5 + F - 1
    np.testing.assert_array_equal(np.vstack([inside_of(units, x[None], divergence)[0] for x in X]), inside)
    for size in (2.0**-60, 2.0**60):
        others, count = inside_of(Units(size, size, False), X * dtype(size), divergence)
        assert count == raised
        np.testing.assert_array_equal(others, inside)


@every_divergence
def test_zeros_inside_the_domain_stay_zero(divergence: Divergence, rng: np.random.Generator) -> None:
    X = rng.random((5, F))
    X[0] = 0
    inside, raised = inside_of(Units(2.0, 1e-6, False), X, divergence)
    assert (raised == 0) == divergence.domain.x.includes_zero
    assert not divergence.domain.x.outside(inside).any()


def test_zeros_that_the_clip_makes_or_mends_are_counted_rightly() -> None:
    X = np.array([[0.0, 0.5, 3.0]])
    assert inside_of(Units(1.0, 1e-6, False, clip=(0.1, 2.0)), X, ItakuraSaito())[1] == 0
    assert inside_of(Units(1.0, 1e-6, False, clip=(0.0, 2.0)), X, ItakuraSaito())[1] == 1


@every_dtype
def test_entries_that_vanish_in_the_new_units_are_raised_too(dtype: type) -> None:
    X = np.array([[np.finfo(dtype).smallest_subnormal, 20.0]], dtype=dtype)
    inside, _ = inside_of(first_batch(X, None, rescale=True), X, ItakuraSaito())
    assert (inside > 0).all()


@pytest.mark.parametrize("clip", [None, (0.0, 5.0)])
def test_an_all_zero_first_batch_raises_an_error(clip: tuple[float, float] | None) -> None:
    with pytest.raises(DataError, match=r"The samples are all zeros.*begin with some that have positive entries"):
        first_batch(np.zeros((4, 3)), clip, rescale=True)


@pytest.mark.parametrize("size", [1e-323, 1e-318, 1e-310])
def test_a_first_batch_whose_mean_has_lost_its_digits_raises_an_error(size: float) -> None:
    with pytest.raises(DataError, match=r"mean of the first batch is .*, too small to compute with; rescale the data"):
        first_batch(np.full((4, 3), size), None, rescale=True)


@pytest.mark.parametrize("size", [1e-307, 1e-200, 1.0, 1e200, 1e300, 1.7e308])
def test_data_of_any_size_get_their_mean(size: float) -> None:
    X = np.array([[0.0, 0.5], [0.25, 1.0]]) * size
    units = first_batch(X, None, rescale=True)
    tolerance = 1e-12
    assert units.scale / size == pytest.approx(0.4375, rel=tolerance)
    assert units.mean / size == pytest.approx(0.4375, rel=tolerance)
    inside, raised = inside_of(units, X, ItakuraSaito())
    assert raised == 1
    assert (inside > 0).all()
    np.testing.assert_allclose(inside.ravel()[1:], np.array([0.5, 0.25, 1.0]) / 0.4375, rtol=tolerance)


def test_samples_whose_sum_overflows_have_a_mean_all_the_same() -> None:
    X = np.array([[1.7e308, 1.7e308, 0.0, 1.7e308], [1.0, 2.0, 0.0, 1.0]])
    inside, raised = inside_of(Units(scale=1.0, mean=1.0, whole=False), X, ItakuraSaito())
    assert raised == 2
    np.testing.assert_allclose(inside[:, 2], FLOOR * np.array([1.275e308, 1.0]))
    np.testing.assert_array_equal(np.delete(inside, 2, axis=1), np.delete(X, 2, axis=1))


@pytest.mark.parametrize("size", [1e-30, 1e30, 3e38])
def test_single_precision_data_of_any_size_get_their_mean(size: float) -> None:
    X = np.full((50, 40), size, dtype=np.float32)
    units = first_batch(X, None, rescale=True)
    inside, _ = inside_of(units, X, KullbackLeibler())
    assert units.scale == pytest.approx(size, rel=1e-6)
    np.testing.assert_allclose(inside, 1, rtol=1e-6)


@pytest.mark.parametrize("layout", [scipy.sparse.csr_array, scipy.sparse.coo_array])
def test_counts_have_the_same_mean_sparse_and_dense(layout, rng: np.random.Generator) -> None:
    for _ in range(50):
        X = rng.poisson(0.5, (37, 11)).astype(float)
        one, other = (first_batch(Y, None, rescale=True).mean for Y in (X, layout(X)))
        assert one == other


def test_entries_in_parts_are_summed_before_they_are_clipped(rng: np.random.Generator) -> None:
    X = rng.poisson(0.7, (20, F)).astype(float)
    whole = scipy.sparse.csr_matrix(X)
    parts = scipy.sparse.csr_matrix(
        (np.repeat(0.5 * whole.data, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), shape=X.shape
    )
    units = first_batch(parts, (0.0, 1.0), rescale=True)
    assert units.mean == np.minimum(X, 1).mean()
    inside, _ = inside_of(units, parts, KullbackLeibler())
    np.testing.assert_allclose(inside.toarray() * units.scale, np.minimum(X, 1))
    assert inside.has_canonical_format
    assert parts.nnz == 2 * whole.nnz  # the user's matrix is as it was


# Clip


@pytest.mark.parametrize("clip", [(0, 1), [0.5, 2], np.array([0.0, 4000.0])])
def test_a_clip_is_a_pair_of_floats(clip) -> None:
    assert checked_clip(clip) == (float(clip[0]), float(clip[1]))
    assert all(type(bound) is float for bound in checked_clip(clip))


def test_no_clip_is_no_clip() -> None:
    assert checked_clip(None) is None


@pytest.mark.parametrize(
    "clip", [(1, 1), (2, 1), (-1, 1), (np.nan, 1), (0, np.nan), (1,), (0, 1, 2), "ab", 3, (0, "x")]
)
def test_a_clip_that_is_no_interval_raises_an_error(clip) -> None:
    with pytest.raises(ValueError, match=r"clip must be a pair \(low, high\) with 0 <= low < high"):
        checked_clip(clip)


@pytest.mark.parametrize("high", [np.inf, 1e300])
def test_a_clip_without_an_upper_end_suits_single_precision(high: float) -> None:
    X = np.array([[0.0, 2.0], [4.0, 6.0]], dtype=np.float32)
    units = first_batch(X, (1.0, high), rescale=True)
    inside, _ = inside_of(units, X, KullbackLeibler())
    assert inside.dtype == np.float32
    np.testing.assert_allclose(inside, np.maximum(X, 1) / 3.25, rtol=1e-6)


# Divergences without a degree


@pytest.mark.parametrize("divergence", [LogCosh(), Soft(), Overdispersed()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("estimator", [OnlineNMF, BatchNMF])
def test_a_divergence_without_a_degree_learns_from_data_as_they_are(
    estimator: type[OnlineNMF | BatchNMF], divergence: Divergence, rng: np.random.Generator
) -> None:
    X = 40 * rng.random((60, 3)) @ rng.random((3, F)) + 1
    settings = {"tol": 0.1} if estimator is BatchNMF else {}
    model = estimator(3, divergence=divergence, random_state=0, **settings).fit(X)
    assert model.scale_ == 1
    expected = model.divergence_.value(X, model.transform(X) @ model.components_).mean()
    assert model.loss(X) == pytest.approx(expected, rel=1e-9)


def test_an_adaptive_divergence_of_ones_own_is_learnt_with_and_stays_what_it_is(rng: np.random.Generator) -> None:
    X = 40 * rng.random((60, 3)) @ rng.random((3, F))
    model = OnlineNMF(3, divergence=Soft(1e-3), batch_size=20, max_passes=2, random_state=0).fit(X)
    assert type(model.divergence_) is Soft
    expected = model.divergence_.value(X, model.transform(X) @ model.components_).mean()
    assert model.loss(X) == pytest.approx(expected, rel=1e-6)


def test_sparse_data_stay_sparse_under_a_divergence_of_ones_own_that_is_linear_at_zero(
    rng: np.random.Generator,
) -> None:
    X = rng.poisson(20 * rng.random((80, 3)) ** 4 @ rng.random((3, F)) ** 4).astype(float)
    model = OnlineNMF(3, divergence=Overdispersed(), random_state=0, transform_tol=1e-8, max_passes=2).fit(X)
    dense, sparse = (model.transform(data) for data in (X, scipy.sparse.csr_matrix(X)))
    np.testing.assert_allclose(sparse, dense, rtol=1e-3, atol=1e-3 * dense.mean())
