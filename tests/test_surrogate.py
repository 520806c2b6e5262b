"""The surrogate: its statistics and sweeps against dense loops, its diagonals, its units, and what it is ahead of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from onmf import OnlineNMF
from onmf.coefficients.problem import Problem
from onmf.data.examples import NOISE_OF, Planted
from onmf.divergences import L1, Divergence, Huber, Mahalanobis, get
from onmf.methods import Surrogate, coupled, quadratics, surrogate
from onmf.methods.quadratics import Floor
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionarySet
from tests.conftest import DISTINCT, example_id, mahalanobis
from tests.learning import (
    F,
    K,
    LogCosh,
    assert_sound,
    data,
    learnt,
    memory,
    mixed,
    parted,
    quick,
    updated,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The loss:sklearn.exceptions.ConvergenceWarning"),
]
MAHALANOBIS = mahalanobis(F)
C = DictionarySet()


# The statistics and the sweeps, against dense loops


def weights(p: float) -> tuple[float, float, float]:
    """Of chunks of 20, 20 and 7 samples."""
    return 1.0, (3 / 4) ** p, 1 - (1 - (3 / (47 / 20 + 2)) ** p) ** (7 / 20)


@pytest.mark.parametrize("name", ["kl", "squared_l2"])
def test_with_penalties_squares_of_coefficients_are_averaged_too(name: str, rng: np.random.Generator) -> None:
    divergence, method = get(name), Surrogate(tau=20)
    X = mixed(40, rng.gamma(1.0, 1.0, (K, F)), rng)
    X /= X.mean()
    state = replace(method.start(divergence, rng.random((K, F)), C), penalties=Penalties(l2_coefficients=0.1))
    found, squares = state, np.zeros(K)
    for chunk, rho in zip(np.split(X, [20]), weights(divergence.averaging_exponent), strict=False):
        unit = found.memory["unit"]
        after = learnt(method, divergence, found, chunk)
        squares = (1 - rho) * squares + rho * np.square(after.H / unit).mean(axis=0)
        found = after.state
    power = np.exp2(found.memory["base"])
    np.testing.assert_allclose(found.memory["squares"], squares * np.square(power), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "features"),
    [(name, F) for name in ("kl", "is", "beta:1.5", "huber:0.3", "l1", "l2", "squared_l2", "alpha:2")]
    + [("kl", 600), ("squared_l2", 600)],  # more than one block
)
def test_three_chunks_are_those_of_dense_loops(name: str, features: int, rng: np.random.Generator) -> None:
    divergence, method = get(name), Surrogate(tau=20)
    X = mixed(47, rng.gamma(1.0, 1.0, (K, features)), rng)
    X /= X.mean()
    W = rng.random((K, features))
    state = learnt(method, divergence, method.start(divergence, W, C), X).state
    shared = divergence.curvature_per_sample
    assert set(state.memory) == {"b", "size", "mass", "squares", "unit", "base", "S" if shared else "A"}

    closed = divergence.domain.x.includes_zero
    floor = Floor(1e-4, geometric=True) if not closed else Floor(0.0 if divergence.domain.y.includes_zero else 1e-3)
    A, b, size = np.zeros((features, K, K)), np.zeros((K, features)), np.zeros(features)
    mass, unit = np.zeros(K), np.ones(K)
    for chunk, rho in zip(np.split(X, [20, 40]), weights(divergence.averaging_exponent), strict=True):
        H = method.coefficient_solver(divergence).solve(Problem(divergence, chunk, W)).H
        Y = H @ W
        G, curvature = divergence.model(np, chunk, Y)
        h, old, news = H / unit, 1 - rho, rho / len(chunk)
        for f in range(features):
            A[f] = old * A[f] + news * np.einsum("n,nj,nk->jk", curvature[:, f], h, h)
            b[:, f] = old * b[:, f] + news * (curvature[:, f] * Y[:, f] - G[:, f]) @ h
        size = old * size + news * (np.log(chunk) if floor.geometric else chunk).sum(axis=0)
        mass = old * mass + news * h.sum(axis=0)
        typical = np.exp(size) if floor.geometric else size + 0.01 * size.mean()
        low = floor.share * typical / (mass @ unit)
        before = W * unit[:, None]
        V = before.copy()
        for _ in range(quadratics.sweeps(state.memory, len(chunk))):
            for k in range(K):
                residual = np.einsum("fj,jf->f", A[:, k], V) - b[k]
                V[k] = np.maximum(V[k] - residual / A[:, k, k], unit[k] * low)
        V = np.maximum(V, 0.0 if closed else 0.5 * before)
        unit = V.max(axis=1)
        W = V / unit[:, None]

    assert (np.abs(np.log(unit)) > 0.1).any()  # or the change of units would not be tested
    assert state.W.max() == 1
    np.testing.assert_allclose(state.W, W, rtol=1e-8, atol=1e-10)
    # In the units of W: those of the statistics may have been changed by powers of two.
    known, both = state.memory["unit"], np.outer(unit, unit)
    np.testing.assert_allclose(state.memory["b"] * known[:, None], b * unit[:, None], rtol=1e-9, atol=1e-12)
    assert not state.memory["squares"].any()  # which only penalties look at
    if shared:
        np.testing.assert_allclose(state.memory["S"] * np.outer(known, known), A[0] * both, rtol=1e-9)
        np.testing.assert_allclose(A, np.broadcast_to(A[0], A.shape))
    elif features == F:  # more features lie block by block
        upper = np.triu_indices(K)
        packed = state.memory["A"].reshape(-1, F).T * np.outer(known, known)[upper]
        np.testing.assert_allclose(packed, (A * both)[:, *upper], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["kl", "is", "huber:0.3"])
def test_long_sweeps_end_at_the_minimum_of_the_model(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quadratics, "sweeps", lambda memory, n: 500)
    monkeypatch.setattr(surrogate, "floor_of", lambda divergence, masked: Floor(0.0))
    divergence, method = get(name), Surrogate(tau=25)
    W, X, H = rng.random((3, F)) + 0.4, rng.random((25, F)) + 0.1, rng.random((25, 3)) + 0.1
    start = method.start(divergence, W, C)
    state = updated(method, start, Problem(divergence, X, start.W), H)
    Y = H @ start.W
    G, curvature = divergence.model(np, X, Y)
    found = state.W * (state.memory["unit"] * np.exp2(state.memory["base"]))[:, None]
    for f in range(F):
        A = np.einsum("n,nj,nk->jk", curvature[:, f], H, H)
        root = np.linalg.cholesky(A)
        w = scipy.optimize.nnls(root.T, np.linalg.solve(root, (curvature[:, f] * Y[:, f] - G[:, f]) @ H))[0]
        if not divergence.domain.x.includes_zero:
            w = np.maximum(w, 0.5 * start.W[:, f])
        np.testing.assert_allclose(found[:, f], w, rtol=1e-4, atol=1e-6)


def coupled_objective(A: np.ndarray, S: np.ndarray, R: np.ndarray) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        W = w.reshape(R.shape)
        gradient = (S @ W - R) @ A
        return float(np.trace(W.T @ S @ W @ A) / 2 - np.trace(R.T @ W @ A)), gradient.ravel()

    return value


@pytest.mark.parametrize("divergence", MAHALANOBIS, ids=["correlated", "unequal"])
def test_three_coupled_chunks_are_those_of_dense_loops(divergence: Mahalanobis, rng: np.random.Generator) -> None:
    method = Surrogate(tau=20)
    X = data(47, rng)
    X /= X.mean()
    W = rng.random((K, F))
    state = learnt(method, divergence, method.start(divergence, W, C), X).state

    A = divergence.A
    S, R, unit = np.zeros((K, K)), np.zeros((K, F)), np.ones(K)  # of V = unit W, which nothing rescales
    for chunk, rho in zip(np.split(X, [20, 40]), weights(divergence.averaging_exponent), strict=True):
        h = method.coefficient_solver(divergence).solve(Problem(divergence, chunk, W)).H / unit
        S = (1 - rho) * S + rho / len(chunk) * sum(np.outer(v, v) for v in h)
        R = (1 - rho) * R + rho / len(chunk) * sum(np.outer(v, x) for v, x in zip(h, chunk, strict=True))
        V = W * unit[:, None]
        for _ in range(coupled.SWEEPS):
            for k in range(K):
                slope = ((S @ V - R) @ A)[k]
                V[k] = np.maximum(V[k] - slope / (S[k, k] * np.abs(A).sum(axis=1)), 0)
        unit = unit * np.maximum((V / unit[:, None]).max(axis=1), 1)
        W = V / unit[:, None]

    assert (unit > 1).any()
    assert state.W.max() <= 1
    np.testing.assert_allclose(state.W, W, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(state.memory["S"], S * np.outer(unit, unit), rtol=1e-9)
    np.testing.assert_allclose(state.memory["R"], R * unit[:, None], rtol=1e-9)
    np.testing.assert_allclose(state.memory["log_unit"], np.log(unit), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divergence", MAHALANOBIS, ids=["correlated", "unequal"])
def test_long_coupled_sweeps_end_at_the_minimum(
    divergence: Mahalanobis, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coupled, "SWEEPS", 3000)
    method = Surrogate(tau=60)
    X = data(60, rng) * (rng.random((60, F)) < 0.3)
    start = method.start(divergence, rng.random((K, F)), C)
    problem = Problem(divergence, X, start.W)
    state = updated(method, start, problem, rng.gamma(1.0, 1.0, (60, K)))
    value = coupled_objective(divergence.A, state.memory["S"], state.memory["R"])
    best = scipy.optimize.minimize(
        value, start.W.ravel(), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (K * F), tol=1e-14
    )
    assert (best.x == 0).any()  # the bound is met somewhere
    assert value(state.W.ravel())[0] <= best.fun + 1e-9 * abs(best.fun)
    np.testing.assert_allclose(state.W, best.x.reshape(K, F), atol=1e-4)


# The diagonal model, where full statistics would take too much memory

FULL = [d for d in (*DISTINCT, LogCosh()) if not (d.metric is not None or d.curvature_per_sample)]


@pytest.mark.parametrize("divergence", FULL, ids=lambda each: example_id(each) or "logcosh")
def test_beyond_the_memory_allowed_diagonals_do_nearly_as_well(divergence: Divergence) -> None:
    ratios = []
    for seed in range(3):  # any one pair may end in different valleys
        X, held_out = parted((400, 100), np.random.default_rng(seed), noise=20.0)
        full, diagonal = (quick(Surrogate(max_memory=m), divergence).fit(X) for m in (2**30, 0))
        assert {"A", "a", "S"} & set(memory(full)) == {"A"}
        assert {"A", "a", "S"} & set(memory(diagonal)) == {"a", "S"}
        assert memory(diagonal)["a"].shape == (K, F)
        assert_sound(diagonal, held_out)
        ratios.append(diagonal.loss(held_out) / full.loss(held_out))
    # Weights that differ much from sample to sample are what one correlation for all features models worst.
    small_delta = isinstance(divergence, L1) or divergence == Huber(0.1)
    assert np.median(ratios) < (1.15 if small_delta else 1.04)


def test_the_memory_allowed_is_that_of_two_copies_of_the_statistics(rng: np.random.Generator) -> None:
    X = data(50, rng)
    needed = 2 * 8 * F * K * (K + 1) // 2
    assert "A" in memory(quick(Surrogate(max_memory=needed)).fit(X))
    assert "a" in memory(quick(Surrogate(max_memory=needed - 1)).fit(X))
    assert "A" in memory(quick(Surrogate(max_memory=needed // 2)).fit(X.astype(np.float32)))


# Against the paper's step


@pytest.mark.parametrize("name", list(NOISE_OF))
def test_full_and_diagonal_models_are_ahead_of_the_papers_step_after_as_many_samples(
    name: str, rng: np.random.Generator
) -> None:
    planted = Planted.draw(60, 8, NOISE_OF[name], rng)
    X, held_out = planted.sample(600, rng).V, planted.sample(100, rng).V
    methods = ["surrogate", "surrogate:max_memory=0", "paper:step=canonical,a=200,b=200"]
    full, diagonal, paper = (
        quick(method, name, n_components=8, init="uniform", transform_max_iter=100).fit(X) for method in methods
    )
    assert full.loss(held_out) < paper.loss(held_out)
    if "a" in memory(diagonal):
        assert diagonal.loss(held_out) < paper.loss(held_out)


def test_a_users_own_divergence_works_without_curvature(rng: np.random.Generator) -> None:
    X = data(200, rng)
    start = quick("paper:step=canonical,a=1e-12,max_iter=1", LogCosh(), init="uniform", batch_size=20).fit(X)
    model = quick("surrogate", LogCosh(), init="uniform", max_passes=3, batch_size=20).fit(X)
    assert model.loss(X) < 0.5 * start.loss(X)


def test_huber_withstands_outliers() -> None:
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        clean = data(600, rng)
        X = np.where(rng.random(clean.shape) < 0.1, 10 * clean.max(), clean)
        models = [
            quick("surrogate", divergence, max_passes=3, batch_size=20).fit(X)
            for divergence in (Huber(0.5), "squared_l2")
        ]
        errors = [np.abs(model.inverse_transform(model.transform(X)) - clean).mean() for model in models]
        ratios.append(errors[0] / errors[1])
    assert np.median(ratios) < 0.25


# Units of components


@pytest.mark.parametrize(
    ("name", "max_memory"), [("kl", 0), ("kl", 2**30), ("is", 2**30), ("squared_l2", 0), ("huber:0.5", 0)]
)
def test_units_of_components_out_of_use_stay_in_range(name: str, max_memory: float, rng: np.random.Generator) -> None:
    """Each time a component is forgotten and found again its unit grows; in single precision that may not go on."""
    W = rng.gamma(0.5, 1.0, (2, F))
    model = quick(Surrogate(tau=5, forgetting=0.5, max_memory=max_memory), name, n_components=6)
    for turn in range(30):
        H = rng.gamma(0.5, 1.0, (60, 2))
        H[:, turn // 5 % 2] = 0
        X = (H @ W * rng.gamma(20.0, 0.05, (60, F)) + 1e-3).astype(np.float32)
        model.partial_fit(X)
        assert (np.abs(np.log2(memory(model)["unit"])) <= 17).all()
    assert_sound(model, X)
    assert (model.components_.max(axis=1) > 0.99).all()


def test_more_components_than_features_fit_better_than_few() -> None:
    """Least squares, where Newton's steps begin, and the Hessians are then singular."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.3, 1.0, (600, 12)) @ rng.gamma(0.3, 2.0, (12, 24)) + 0.05).astype(float)
    losses, last = {}, {}
    for components in (8, 36):
        model = OnlineNMF(components, divergence="kl", max_passes=3, random_state=0).fit(X)
        losses[components], last[components] = (
            model.loss(X),
            model.history_["loss"][-3:].mean(),
        )  # and every sample is solved
    assert losses[36] < losses[8]
    assert last[36] < last[8]  # while it learns, too


@pytest.mark.parametrize("seed", range(3))
def test_samples_that_are_fitted_exactly_do_not_hold_the_components_where_they_are(seed: int) -> None:
    X = np.random.default_rng(seed).random((50, 3))  # three components fit it exactly, such as the identity
    model = OnlineNMF(3, divergence="l1", max_passes=100, random_state=0).fit(X)
    assert model.loss(X) < 0.05 * X.sum(axis=1).mean()  # 0.10 to 0.19 once, however many the passes
