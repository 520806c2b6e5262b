"""Exchanges rescue dead and doubled components, and leave good ones alone, bit for bit, wherever a run is cut."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_limits

from onmf import OnlineNMF, load, save
from onmf.methods import exchange, quadratics
from tests.conftest import mahalanobis
from tests.learning import assert_same_bits, get, memory

K, F = 10, 60
COUNTS = ("em", "sparse")  # methods for sparse counts


def planted(rng: np.random.Generator) -> np.ndarray:
    """Components of a fifth of the features each."""
    return rng.gamma(0.7, 1.0, (K, F)) * (rng.random((K, F)) < 0.2) + 0.002


def drawn(case: str, n: int, rng: np.random.Generator, components: np.ndarray) -> Any:
    """Samples of few components each, with much noise: counts where zeros count."""
    Y = (
        100
        * (rng.dirichlet(np.full(K, 0.1), n) * rng.lognormal(0, 0.3, (n, 1)))
        @ (components / components.sum(axis=1, keepdims=True))
    )
    if case in COUNTS:
        return scipy.sparse.csr_matrix(rng.poisson(Y).astype(float))
    return Y * rng.gamma(4.0, 1 / 4, Y.shape) + 0.01


def learner(case: str, W0: np.ndarray | str, **settings: Any) -> OnlineNMF:
    method, divergence = CASES[case]
    return OnlineNMF(len(W0), divergence=divergence, method=method, init=W0, random_state=0, **settings)


CASES = {
    "kl": ("surrogate", "kl"),
    "is": ("surrogate", "is"),
    "squared_l2": ("surrogate", "squared_l2"),
    "huber": ("surrogate", "huber:0.3"),
    "diagonal": ("surrogate:max_memory=0", "kl"),
    "em": ("em", "kl"),
    "sparse": ("sparse_surrogate", "kl"),
}
every_case = pytest.mark.parametrize("case", CASES)


def without_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "due", lambda *_: False)


def in_units(W: np.ndarray) -> np.ndarray:
    return W / W.max(axis=1, keepdims=True)


def spoilt(components: np.ndarray, how: str) -> np.ndarray:
    """The planted dictionary with a component twice, with a useless one, or with two for one part and one for two."""
    W = components.copy()
    if how == "doubled":
        W[0] = W[1]
    elif how == "dead":
        W[0] = np.where(np.arange(F) == components.sum(axis=0).argmin(), 1.0, 1e-9)
    else:
        split = np.random.default_rng(0).random(F) < 0.5
        for k in (0, 4):
            parts = np.where(split, components[k], 1e-3), np.where(split, 1e-3, components[k])
            W[k], W[k + 1], W[k + 2] = *parts, components[k + 1] + components[k + 2]
    return in_units(W)


# em, and Newton's step in its place, exchange components that coincide; in other cases exchanges raised the loss on
# text.
BAD_STARTS = [
    (case, how) for case in CASES for how in ("doubled", "dead", "split") if how == "doubled" or case not in COUNTS
]


@cache
def well_begun(case: str, seed: int) -> tuple[np.ndarray, Any, Any, float]:
    """Planted components, samples of them, others, and their loss after a good start."""
    rng = np.random.default_rng(seed)
    components = planted(rng)
    X, held_out = (drawn(case, n, rng, components) for n in (1500, 300))
    return components, X, held_out, learner(case, in_units(components)).fit(X).loss(held_out)


@pytest.mark.parametrize(("case", "how"), BAD_STARTS)
def test_a_bad_start_ends_like_a_good_one_which_no_small_step_leads_to(
    case: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relative_loss(seed: int) -> float:
        components, X, held_out, good = well_begun(case, seed)
        return learner(case, spoilt(components, how)).fit(X).loss(held_out) / good

    seeds = range(1, 4 if how == "split" else 3)
    assert max(map(relative_loss, seeds)) < 1.05
    if how != "dead":  # a component that nobody uses is free to go where the residuals are
        without_exchanges(monkeypatch)
        assert any(relative_loss(seed) > 1.1 for seed in seeds)


@every_case
def test_a_good_dictionary_is_left_alone_to_the_bit(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    components = planted(rng)
    X = drawn(case, 1200, rng, components)
    W = in_units(components)
    looks = []
    tried = exchange.exchanged
    monkeypatch.setattr(exchange, "exchanged", lambda *given: looks.append(tried(*given)) or looks[-1])
    with_looks = learner(case, W).fit(X)
    assert len(looks) >= 3
    without_exchanges(monkeypatch)
    assert_same_bits(with_looks, learner(case, W).fit(X))


@every_case
def test_a_run_with_exchanges_goes_on_to_the_bit_and_does_not_see_the_threads(case: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    components = planted(rng)
    X = drawn(case, 600, rng, components)
    batches = [X[first : first + 50] for first in range(0, 600, 50)]
    straight, interrupted = (learner(case, spoilt(components, "doubled")) for _ in range(2))
    with threadpool_limits(1):
        for batch in batches:
            straight.partial_fit(batch)
    with threadpool_limits(3):
        for batch in batches:
            interrupted.partial_fit(batch)
            save(interrupted, tmp_path / "model.safetensors")
            interrupted = load(tmp_path / "model.safetensors")
    assert_same_bits(straight, interrupted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale_and_precision_do_not_decide_about_an_exchange(dtype: type) -> None:
    rng = np.random.default_rng(5)
    components = planted(rng)
    X, held_out = (drawn("kl", n, rng, components) for n in (800, 200))
    W = spoilt(components, "doubled")
    losses = [
        learner("kl", W.astype(dtype)).fit((c * X).astype(dtype)).loss((c * held_out).astype(dtype)) / c
        for c in (1.0, 2.0**-20, 2.0**20)
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-3)


@pytest.mark.parametrize(("method", "divergence"), [("paper", "kl"), ("surrogate", mahalanobis(F)[0])])
def test_methods_that_do_not_exchange_components_never_do(
    method: str, divergence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(exchange, "exchanged", forbidden)
    rng = np.random.default_rng(6)
    OnlineNMF(K, divergence=divergence, method=method, random_state=0).fit(drawn("kl", 300, rng, planted(rng)))


@pytest.mark.parametrize(
    ("K", "before", "after", "expected"),
    [(4, 50, 70, False), (4, 64, 127, False), (4, 64, 128, True), (4, 100, 700, True), (100, 250, 300, False)],
)
def test_an_exchange_is_tried_at_every_doubling_once_every_component_can_have_been_learnt(
    K: int, before: float, after: float, expected: bool
) -> None:
    assert exchange.due(K, before, after) is expected


def test_the_cost_of_a_merger_is_that_of_the_best_single_component(rng: np.random.Generator) -> None:
    H, W = rng.gamma(0.5, 1.0, (200, 4)), rng.gamma(0.5, 1.0, (4, 10))
    pair, cost, merged, T = exchange._cheapest_merger(H.T @ H / 200, W @ W.T, W, 0)
    costs = {}
    for j in range(4):
        for k in range(j):
            parts = H[:, [j, k]] @ W[[j, k]]
            costs[k, j] = np.linalg.svd(parts, compute_uv=False)[1]
    assert tuple(pair) == min(costs, key=costs.get)
    assert cost == pytest.approx(costs[tuple(pair)] ** 2 / 200, rel=1e-6)
    parts = H[:, pair] @ W[pair]
    found = np.outer((H @ T.T)[:, pair[0]], merged)
    assert np.linalg.norm(parts - found) == pytest.approx(costs[tuple(pair)], rel=1e-6)
    assert not T[pair[1]].any()


@pytest.mark.parametrize("max_memory", [0, 2.0**30])
@pytest.mark.parametrize("name", ["squared_l2", "kl"])
def test_recombined_statistics_are_those_of_recombined_coefficients(
    name: str, max_memory: float, rng: np.random.Generator
) -> None:
    H, X = rng.gamma(1.0, 1.0, (50, 3)), rng.gamma(1.0, 1.0, (50, 8))
    T = np.array([[0.7, 0.2, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    statistics = quadratics.empty(get(name), rng.random((3, 8)), max_memory, masked=False)
    statistics["unit"] = np.array([1.0, 2.0, 4.0])

    def filled(H: np.ndarray) -> dict[str, np.ndarray]:
        H, found = H / statistics["unit"], dict(statistics)
        upper = np.triu_indices(3)
        S = H.T @ H
        full = {"S": S, "b": H.T @ X, "mass": H.sum(axis=0), "a": np.diag(S)[:, None] * np.ones(8)}
        full["A"] = np.concatenate([np.repeat(S[upper][:, None], 8, axis=1).ravel()])
        return found | {key: full[key] for key in found if key in full}

    expected, found = filled(H @ T.T), quadratics.recombined(filled(H), T)
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-12, atol=1e-12, err_msg=key)


def test_sparse_data_under_squared_l2_are_learnt_alike_however_they_are_stored() -> None:
    rng = np.random.default_rng(7)
    X = rng.poisson(rng.dirichlet(np.full(K, 0.1), 600) @ planted(rng)).astype(float)
    models = [
        OnlineNMF(K, divergence="squared_l2", random_state=0).fit(stored) for stored in (X, scipy.sparse.csr_matrix(X))
    ]
    assert all(model.method_.sparse for model in models)
    np.testing.assert_allclose(models[0].components_, models[1].components_, atol=1e-8)
    assert memory(models[0]).keys() == memory(models[1]).keys()
    again = models[0].partial_fit(X[:50] + 1.0)  # a denser batch changes nothing of what the first has decided
    assert again.method_.sparse


def test_where_the_past_is_forgotten_exchanges_do_not_wait_for_the_stream_to_double() -> None:
    looks = [exchange.due(10, clock, clock + 50, 8000.0) for clock in range(100_000, 120_000, 50)]
    assert sum(looks) == 10  # every 2,000 samples, a quarter of what is remembered
    hasty = [exchange.due(10, clock, clock + 50, 100.0) for clock in range(100_000, 120_000, 50)]
    assert sum(hasty) == 20  # but not more often than every ten times the samples that take part
    assert not any(exchange.due(10, clock, clock + 50) for clock in range(100_000, 120_000, 50))
