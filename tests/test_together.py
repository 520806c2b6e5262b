"""Missing values, weights, penalties, shares and known atoms together, and with the ways in which data come."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from onmf import OnlineNMF

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
