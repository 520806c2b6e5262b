"""The table "The same bits" of reliability.md: what repeats a result bit for bit, and what only to rounding."""

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, OnlineNMF

X = np.random.default_rng(0).poisson(0.4, (300, 20)).astype(float)
SAME_FORMS = {
    "by columns in memory": np.asfortranarray(X),
    "every second row of an array": np.repeat(X, 2, axis=0)[::2],
    "whole numbers": X.astype(np.int64),
    "twice as large": 2 * X,
}


def learnt(data, **settings):
    return OnlineNMF(4, random_state=0, **settings).fit(data)


@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber"])
@pytest.mark.parametrize("form", SAME_FORMS)
def test_the_form_of_an_array_and_a_power_of_two_do_not_change_a_bit(form, divergence):
    usual, other = (learnt(data, divergence=divergence) for data in (X, SAME_FORMS[form]))
    np.testing.assert_array_equal(other.components_, usual.components_)


@pytest.mark.parametrize("method", ["surrogate", "sparse_surrogate", "em", "paper"])
def test_the_format_of_a_sparse_matrix_does_not_change_a_bit(method):
    rows, columns = (learnt(make(X), method=method) for make in (scipy.sparse.csr_matrix, scipy.sparse.coo_array))
    np.testing.assert_array_equal(columns.components_, rows.components_)


@pytest.mark.parametrize("method", ["surrogate", "sparse_surrogate", "paper"])
def test_dense_and_sparse_counts_are_learnt_to_the_same_bits(method):
    dense, sparse = (learnt(data, method=method) for data in (X, scipy.sparse.csr_matrix(X)))
    np.testing.assert_array_equal(sparse.components_, dense.components_)


@pytest.mark.parametrize("settings", [{"method": "em"}, {"divergence": "squared_l2"}], ids=["em", "squared_l2"])
def test_dense_and_sparse_data_differ_by_rounding_under_em_and_squared_l2(settings):
    dense, sparse = (learnt(data, **settings) for data in (X, scipy.sparse.csr_matrix(X)))
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-9, atol=1e-12)


def test_dense_and_sparse_data_differ_by_rounding_in_batch_updates():
    dense, sparse = (BatchNMF(4, random_state=0, tol=1e-3).fit(data) for data in (X, scipy.sparse.csr_matrix(X)))
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber"])
def test_coefficients_of_rows_taken_together_or_apart_differ_by_rounding(divergence):
    model = learnt(X, divergence=divergence)
    apart = np.vstack([model.transform(X[first : first + 7]) for first in range(0, len(X), 7)])
    np.testing.assert_allclose(apart, model.transform(X), rtol=1e-9, atol=1e-9)


def test_coefficients_of_dense_and_sparse_counts_agree_to_the_tolerance_that_is_asked_for():
    model = learnt(X, transform_tol=1e-8)
    loose = OnlineNMF(4, random_state=0).fit(X)
    for each, within in ((model, 1e-6), (loose, 1e-2)):
        dense, sparse = each.transform(X), each.transform(scipy.sparse.csr_matrix(X))
        np.testing.assert_allclose(sparse, dense, atol=within * dense.max())


def test_other_batch_sizes_seeds_and_precisions_are_other_runs():
    usual = learnt(X).components_
    for other in (learnt(X, batch_size=100), learnt(X.astype(np.float32)), OnlineNMF(4, random_state=1).fit(X)):
        assert not np.array_equal(other.components_, usual)
