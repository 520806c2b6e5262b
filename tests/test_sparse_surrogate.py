"""The sparse surrogate: its statistics and its step against dense loops, and that it gets where em is still going."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from onmf.coefficients.problem import Problem
from onmf.divergences import get
from onmf.methods import EM, SparseSurrogate, sparse_surrogate
from onmf.model.sets import DictionarySet
from onmf.model.state import State
from tests.learning import F, K, learnt, mixed, quick, updated
from tests.test_em import texts, zipf_topics

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")

orders = pytest.mark.parametrize(("name", "order"), [("kl", 1.0), ("hellinger", 0.5), ("alpha:2", 2.0)])


def begun(name: str, rng: np.random.Generator) -> tuple[State, np.ndarray]:
    """A start, and samples with zeros among them, in internal units."""
    X = mixed(47, rng.gamma(1.0, 1.0, (K, F)), rng) * (rng.random((47, F)) < 0.5)
    W = rng.random((K, F)) + 0.1
    return SparseSurrogate().start(get(name), W / W.max(axis=1, keepdims=True), DictionarySet()), X / X.mean()


@orders
def test_three_chunks_are_those_of_dense_loops(
    name: str, order: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onmf.methods.em.MOST_VISITS", 1)
    divergence, method = get(name), SparseSurrogate(tau=20)
    state, X = begun(name, rng)
    W = state.W
    after = learnt(method, divergence, state, X).state

    A, b, D = np.zeros((F, K, K)), np.zeros((F, K)), np.zeros(K)
    unit, seen = np.ones(K), 0
    solver = method.coefficient_solver(divergence)
    sixth = 1 - (1 - (3 / (47 / 20 + 2)) ** 0.75) ** (7 / 20)
    for chunk, rho, full in zip(
        np.split(X, [20, 40]), (1.0, 0.75**0.75, sixth), (1.0, 0.75**0.75, 0.6**0.75), strict=True
    ):
        n = len(chunk)
        H = solver.solve(Problem(divergence, scipy.sparse.csr_matrix(chunk), W)).H
        Y = H @ W
        ratio = (chunk / Y) ** order
        A = (1 - rho) * A * np.outer(unit, unit) + rho / n * order * np.einsum("nf,nj,nk->fjk", ratio / Y, H, H)
        b = (1 - rho) * b * unit + rho / n * (1 + order) * ratio.T @ H
        D = (1 - rho) * D * unit + rho / n * H.sum(axis=0)
        seen += n
        low = 0.01 * X[:seen].mean(axis=0) + 0.3 * X[:seen].sum() / np.count_nonzero(X[:seen]) / seen
        V, low = W.T.copy(), low / D.sum()
        for f in range(F):
            v = np.maximum(V[f], low[f])
            M, target = A[f] + np.diag(max(0.3, 2 * full) * D / v), b[f] - D + max(0.3, 2 * full) * D
            for _ in range(sparse_surrogate.SWEEPS):
                for k in range(K):
                    v[k] = max(v[k] + (target[k] - M[k] @ v) / M[k, k], low[f])
            V[f] = v
        unit = V.max(axis=0)
        W = (V / unit).T
    np.testing.assert_allclose(after.W, W, rtol=1e-8, atol=1e-12)
    j, k = np.triu_indices(K)
    np.testing.assert_allclose(after.memory["A"], A[:, j, k], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(after.memory["b"], b, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(after.memory["D"], D, rtol=1e-9)
    np.testing.assert_allclose(after.memory["unit"], unit, rtol=1e-9)


@orders
def test_the_model_has_the_slope_and_the_curvature_of_the_loss(
    name: str, order: float, rng: np.random.Generator
) -> None:
    divergence, method = get(name), SparseSurrogate(tau=100)
    state, X = begun(name, rng)
    X = scipy.sparse.csr_matrix(X)
    problem = Problem(divergence, X, state.W)
    H = method.coefficient_solver(divergence).solve(problem).H
    memory = updated(method, state, problem, H).memory

    def loss(V: np.ndarray) -> float:
        at = Problem(divergence, X, V)
        return order * float(at.loss(H, at.fit(H)).mean())

    step, (k, f) = 1e-4, (1, 2)
    up, down = state.W.copy(), state.W.copy()
    up[k, f] += step
    down[k, f] -= step
    A = np.zeros((K, K))
    A[np.triu_indices(K)] = memory["A"][f]
    A = np.triu(A) + np.triu(A, 1).T
    slope = A[k] @ state.W[:, f] - (memory["b"][f, k] - memory["D"][k])
    assert slope == pytest.approx((loss(up) - loss(down)) / (2 * step), rel=1e-5, abs=1e-8)
    assert A[k, k] == pytest.approx((loss(up) - 2 * loss(state.W) + loss(down)) / step**2, rel=1e-3)


def test_a_few_passes_come_nearer_to_the_minimum_than_those_of_em(rng: np.random.Generator) -> None:
    topics = zipf_topics(8, 150, rng)
    X = texts(1500, topics, rng)
    W0 = rng.random((8, 150))
    losses = {
        method.name: quick(method, "kl", n_components=8, init=W0, max_passes=5).fit(X).loss(X)
        for method in (EM(), SparseSurrogate())
    }
    best = quick(EM(), "kl", n_components=8, init=W0, max_passes=100).fit(X).loss(X)
    assert losses["sparse_surrogate"] - best < 0.7 * (losses["em"] - best)
