"""Online EM: its statistics against dense loops, rare words, and sparse data of every form."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf.coefficients.problem import Problem
from onmf.divergences import get
from onmf.methods import EM, SparseSurrogate, em
from onmf.model.sets import DictionarySet
from tests.learning import F, K, learnt, memory, mixed, quick, sparse_counts

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


# The statistics, against dense loops


@pytest.mark.parametrize(("name", "order"), [("kl", 1.0), ("hellinger", 0.5), ("alpha:2", 2.0), ("alpha:0.3", 0.3)])
def test_three_chunks_are_those_of_dense_loops(
    name: str, order: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(em, "MOST_VISITS", 2)
    divergence, method = get(name), EM(tau=20)
    X = mixed(47, rng.gamma(1.0, 1.0, (K, F)), rng) * (rng.random((47, F)) < 0.7)
    X /= X.mean()
    W = rng.random((K, F)) + 0.1
    W /= W.max(axis=1, keepdims=True)
    state = learnt(method, divergence, method.start(divergence, W, DictionarySet()), X).state

    N, D = np.zeros((F, K)), np.zeros(K)
    solver = method.coefficient_solver(divergence)
    chunk_weights = 1.0, (3 / 4) ** 0.75, 1 - (1 - (3 / (47 / 20 + 2)) ** 0.75) ** (7 / 20)
    seen = 0
    for chunk, rho in zip(np.split(X, [20, 40]), chunk_weights, strict=True):
        n, H, past_N, past_D = len(chunk), None, N, D
        mean, entries = X[: seen + n].mean(axis=0), np.count_nonzero(X[: seen + n])
        floor = 0.01 * mean + 0.3 * X[: seen + n].sum() / entries / (seen + n)
        for _ in range(2):  # each visit replaces the chunk's own share, from the W that the last one has left
            H = solver.solve(Problem(divergence, chunk, W), H).H
            ratio = (chunk / (H @ W)) ** order
            N = (1 - rho) * past_N + rho / n * np.einsum("nf,nk->fk", ratio, H) * W.T**order
            D = (1 - rho) * past_D + rho / n * H.sum(axis=0)
            W = np.maximum((N / D) ** (1 / order), (floor / D.sum())[:, None]).T
            s = W.max(axis=1)
            W, N, D = W / s[:, None], N * s ** (1 - order), D * s
        seen += n
    np.testing.assert_allclose(state.W, W, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(state.memory["N"], N, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(state.memory["D"], D, rtol=1e-9)
    np.testing.assert_allclose(state.memory["size"], X.mean(axis=0), rtol=1e-12)
    assert state.memory["evidence"][0] == 47


def test_chunks_that_weigh_less_are_visited_less_often_and_solved_the_better() -> None:
    for method, most, steps in (
        (EM(), 3, [3, 3, 4]),
        (EM(tau=200), 3, [3, 2, 4]),
        (SparseSurrogate(), 2, [2, 2, 4]),
    ):
        visits = [method.visits(clock) for clock in (0, 2000, 20_000, 200_000)]
        efforts = [method.effort(clock) for clock in (0, 20_000, 200_000)]
        assert visits == sorted(visits, reverse=True)
        assert (visits[0], visits[-1]) == (most, 1)
        assert efforts == sorted(efforts)
        assert [method.visits(clock) * method.effort(clock) for clock in (0, 20_000, 200_000)] == steps
    assert EM(max_iter=7).effort(1e9) == 1
    assert EM(max_iter=7).coefficient_solver(get("kl")).max_iter == 7


def test_evidence_counts_a_sample_once_however_often_it_is_seen(rng: np.random.Generator) -> None:
    X = sparse_counts(100, rng)
    counts = [memory(quick("em", "kl", max_passes=passes).fit(X))["evidence"][0] for passes in (1, 3)]
    assert counts[0] == counts[1] == (X.sum(axis=1) > 0).sum()


# More passes


def texts(n: int, topics: np.ndarray, rng: np.random.Generator, words: float = 60.0) -> scipy.sparse.csr_matrix:
    """Counts of words, about ``words`` a text; the rows of ``topics`` add up to one."""
    mixture = rng.dirichlet(np.full(len(topics), 0.1), n) * rng.gamma(4.0, words / 4.0, (n, 1))
    return scipy.sparse.csr_matrix(rng.poisson(mixture @ topics).astype(float))


def zipf_topics(topics: int, vocabulary: int, rng: np.random.Generator) -> np.ndarray:
    """Words whose frequency falls like one over their rank."""
    W = rng.gamma(0.3, 1.0, (topics, vocabulary)) / np.arange(1, vocabulary + 1)
    return W / W.sum(axis=1, keepdims=True)


RARE = {"rare": (600, 10), "very rare": (200, 20)}  # texts and topics


@pytest.mark.parametrize(
    ("words", "method", "name"),
    [
        *((rare, "auto", "kl") for rare in RARE),
        *(("rare", "auto", name) for name in ("hellinger", "squared_l2")),
        ("very rare", "auto", "alpha:2"),
        *(("very rare", "sparse_surrogate", name) for name in ("kl", "hellinger", "alpha:2")),
        ("rare", "surrogate", "kl"),
    ],
)
def test_passes_over_counts_of_rare_words_do_not_raise_the_held_out_loss(
    words: str, method: str, name: str, rng: np.random.Generator
) -> None:
    (n, topics), vocabulary = RARE[words], 2000
    W = zipf_topics(topics, vocabulary, rng)
    X, held_out = texts(n, W, rng), texts(300, W, rng)
    seen = np.bincount(X.indices, minlength=vocabulary)
    assert (seen <= 1).mean() > 0.15
    model, losses = quick(method, name, n_components=topics, max_passes=10), []

    def measure(progress: Any) -> None:
        if progress.samples in (n, 2 * n, 5 * n, 10 * n):
            losses.append(model.loss(held_out))

    model.set_params(callbacks=[measure]).fit(X)
    assert len(losses) == 4
    for earlier, later in pairwise(losses):
        assert later <= 1.005 * earlier
    assert losses[-1] <= losses[0]


# Sparse data of every form


def _unsorted(X: np.ndarray) -> scipy.sparse.csr_matrix:
    S = scipy.sparse.csr_matrix(X)
    for first, last in pairwise(S.indptr):
        S.indices[first:last] = S.indices[first:last][::-1].copy()
        S.data[first:last] = S.data[first:last][::-1].copy()
    S.has_sorted_indices = False
    return S


def _duplicated(X: np.ndarray) -> scipy.sparse.csr_matrix:
    """Every entry stored twice, as a quarter and three quarters."""
    S = scipy.sparse.csr_matrix(X)
    values = np.stack([0.25 * S.data, 0.75 * S.data], axis=1).ravel()
    return scipy.sparse.csr_matrix((values, np.repeat(S.indices, 2), 2 * S.indptr), shape=X.shape)


def _explicit_zeros(X: np.ndarray) -> scipy.sparse.csr_matrix:
    n, features = X.shape
    return scipy.sparse.csr_matrix((X.ravel(), np.tile(np.arange(features), n), np.arange(n + 1) * features), X.shape)


def _long_indices(X: np.ndarray) -> scipy.sparse.csr_matrix:
    S = scipy.sparse.csr_matrix(X)
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "csr": scipy.sparse.csr_matrix,
    "csr array": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_matrix,
    "coo": scipy.sparse.coo_matrix,
    "lil": scipy.sparse.lil_matrix,
    "whole numbers": lambda X: scipy.sparse.csr_matrix(X.astype(np.int64)),
    "unsorted": _unsorted,
    "duplicates": _duplicated,
    "explicit zeros": _explicit_zeros,
    "long indices": _long_indices,
}
on_non_zeros = pytest.mark.parametrize(
    ("method", "name"),
    [(method, name) for method in ("em", "sparse_surrogate") for name in ("kl", "hellinger", "alpha:2")]
    + [("surrogate", "squared_l2")],
)


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@on_non_zeros
def test_sparse_data_of_every_form_give_what_dense_data_give(
    method: str, name: str, form: Callable[[np.ndarray], Any], rng: np.random.Generator
) -> None:
    X = sparse_counts(120, rng)
    dense = quick(method, name, batch_size=50, transform_tol=1e-8).fit(X)
    S = form(X)
    before = S.copy()
    sparse = quick(method, name, batch_size=50, transform_tol=1e-8).fit(S)
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(sparse.history_["loss"], dense.history_["loss"], rtol=1e-8)
    assert sparse.loss(S) == pytest.approx(dense.loss(X), rel=1e-6)
    assert sparse.n_steps_ == dense.n_steps_
    assert S.nnz == before.nnz
    assert (before != S).nnz == 0  # the user's matrix is left alone


@on_non_zeros
def test_coefficients_of_sparse_and_dense_data_fit_alike(method: str, name: str, rng: np.random.Generator) -> None:
    X = sparse_counts(60, rng)
    model = quick(method, name).fit(X)
    H, h = model.transform(X), model.transform(scipy.sparse.csr_matrix(X))
    values = [get(name).value(X, model.inverse_transform(found)) for found in (H, h)]
    # The coefficients of nearly equal components themselves are not unique.
    np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-6)


@on_non_zeros
def test_sparse_single_precision_is_dense_double_precision_to_rounding(
    method: str, name: str, rng: np.random.Generator
) -> None:
    X = sparse_counts(200, rng)
    S = scipy.sparse.csr_matrix(X.astype(np.float32))
    single, double = quick(method, name).fit(S), quick(method, name).fit(X)
    arrays = [single.components_, single.transform(S), *memory(single).values()]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    assert single.loss(X) == pytest.approx(double.loss(X), rel=1e-3)
    np.testing.assert_allclose(single.components_, double.components_, atol=0.02)


@pytest.mark.parametrize("c", [1e-12, 1e12])
@on_non_zeros
def test_units_of_sparse_data_do_not_matter(method: str, name: str, c: float, rng: np.random.Generator) -> None:
    X = scipy.sparse.csr_matrix(sparse_counts(60, rng))
    model, scaled = quick(method, name).fit(X), quick(method, name).fit(c * X)
    np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-4, atol=1e-4)
    assert scaled.loss(c * X) * get(name).loss_unit(1 / c) == pytest.approx(model.loss(X), rel=1e-6)
