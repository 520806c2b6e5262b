"""Missing values, weights, penalties, shares and fixed components together, and with the ways in which data come."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from onmf import BatchNMF, OnlineNMF

K = 3


def planted(n: int = 60, F: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    counts = rng.poisson(3 * rng.gamma(1, 1, (n, K)) @ rng.gamma(1, 1, (K, F)))
    return counts * (rng.random((n, F)) < 0.5) + 0.0


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sparse_stream_may_have_its_first_nan_in_any_batch(weighted: bool) -> None:
    X = planted()
    X[-1, 0] = np.nan
    settings = {"n_components": K, "missing": "nan", "batch_size": 20, "shuffle": False, "random_state": 0}
    weight = np.r_[2.0, np.ones(len(X) - 1)] if weighted else None
    sparse = OnlineNMF(**settings).fit(scipy.sparse.csr_matrix(X), sample_weight=weight)
    dense = OnlineNMF(**settings).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(sparse.components_, dense.components_)

    batches = OnlineNMF(**settings)
    for first in range(0, len(X), 20):
        some = slice(first, first + 20)
        batches.partial_fit(scipy.sparse.csr_matrix(X[some]), sample_weight=None if weight is None else weight[some])
    np.testing.assert_array_equal(batches.components_, sparse.components_)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber", "is"])
@pytest.mark.parametrize("fixed_weights", [False, True])
def test_a_sample_with_holes_and_weight_w_is_the_sample_w_times(
    divergence: str, sparse: bool, fixed_weights: bool
) -> None:
    X, rng = planted() + 1.0, np.random.default_rng(1)
    X[rng.random(X.shape) < 0.3] = np.nan
    counts = rng.integers(0, 4, len(X))
    if sparse:
        X = scipy.sparse.csr_matrix(np.nan_to_num(X))
    settings = {"divergence": divergence, "max_iter": 30, "tol": 0, "random_state": 0, "missing": "nan"}
    settings |= {"implicit": "missing", "fixed": np.linspace(0.1, 1, X.shape[1])[None] if fixed_weights else None}
    weighted = BatchNMF(K, **settings).fit(X, sample_weight=counts)
    repeated = BatchNMF(K, **settings).fit(X[np.repeat(np.arange(len(counts)), counts)])
    np.testing.assert_allclose(weighted.components_, repeated.components_, rtol=1e-5, atol=1e-7)
