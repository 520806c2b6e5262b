"""lefevre, guan and wang: each descends on a problem of its own kind, and refuses the others'."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onmf.dictionary import Guan, Lefevre, Wang
from sklearn.exceptions import ConvergenceWarning

from onmf import BatchNMF, OnlineNMF
from onmf.divergences import Huber, ItakuraSaito, SquaredL2
from onmf.kernels import averaged_steps, packed_product
from onmf.sets import project_on_simplex

K, F = 8, 40
SERVES = {"lefevre": "is", "guan": "squared_l2", "wang": "huber:0.2"}
# Held-out loss after five passes / that of BatchNMF, from the same start: what each method is held to.
FACTORS = {"lefevre": 2.5, "guan": 1.15, "wang": 1.15}


def problem(name: str, n: int = 2500) -> tuple[np.ndarray, np.ndarray]:
    """Samples with the noise that the method is made for, and an initial dictionary."""
    rng = np.random.default_rng(7)
    Y = rng.gamma(0.5, 1.0, (n, K)) @ rng.gamma(0.5, 1.0, (K, F)) + 0.01
    if name == "lefevre":
        X = Y * rng.gamma(10.0, 0.1, Y.shape)
    elif name == "guan":
        X = np.maximum(Y + 0.2 * rng.standard_normal(Y.shape), 0)
    else:
        X = np.where(rng.random(Y.shape) < 0.2, Y + rng.uniform(0, 20, Y.shape), Y)
    W = X[rng.permutation(n)[:K]] + 0.05 * X.mean(axis=0)
    return X, W / W.max(axis=1, keepdims=True)


@pytest.mark.parametrize("name", SERVES)
def test_each_descends_and_ends_near_batch(name: str) -> None:
    X, W = problem(name)
    train, held_out = X[500:], X[:500]
    settings: dict[str, Any] = {"divergence": SERVES[name], "init": W, "random_state": 0}
    batch = BatchNMF(K, max_iter=300, tol=0.0, **settings).fit(train).loss(held_out)
    start = BatchNMF(K, update_dictionary=False, max_iter=1, tol=0.0, **settings).fit(train).loss(held_out)
    one, five = (OnlineNMF(K, method=name, max_passes=p, **settings).fit(train).loss(held_out) for p in (1, 5))
    assert five < one < start
    assert five <= FACTORS[name] * batch


@pytest.mark.parametrize("name", SERVES)
def test_each_refuses_other_divergences_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} refuses kl: it serves {SERVES[name].partition(':')[0]} alone"):
        OnlineNMF(2, divergence="kl", method=name).fit(np.ones((4, 3)))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("lefevre", {"options": {"r": 0.0}}, "r must lie in (0, 1]"),
        ("lefevre", {"options": {"N": 0}}, "N must be at least 1"),
        ("lefevre", {"options": {"theta": 1}}, "lefevre does not know the option 'theta'; its options are r, N"),
        ("guan", {"options": {"buffer": 0}}, "buffer must be at least 1"),
        ("guan", {"options": {"theta": -1}}, "theta must be at least 0"),
        ("guan", {"options": {"seed": -1}}, "seed must be at least 0"),
        ("wang", {"options": {"rho": 2}}, "rho must lie in [0, 1]"),
        ("wang", {"options": {"gamma": -1}}, "gamma must be at least 0"),
        ("wang", {"ridge": 1.0}, "wang has no ridge"),
        ("guan", {"reservoir": 5}, "guan has no reservoir"),
        ("lefevre", {"options": 3}, "options must be a dictionary"),
        ("surrogate", {"options": {"r": 1}}, "surrogate does not know the option 'r'; it has none"),
    ],
)
def test_constants_are_checked(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        OnlineNMF(2, divergence=SERVES.get(name, "kl"), method=name, **settings).fit(np.ones((4, 3)))


def test_lefevre_takes_n_from_fit_and_asks_for_it_in_a_stream() -> None:
    X, W = problem("lefevre", 300)
    settings: dict[str, Any] = {"divergence": "is", "method": "lefevre", "init": W, "shuffle": False}
    known = OnlineNMF(K, **settings).fit(X)
    given = OnlineNMF(K, **settings, options={"N": 300}).fit(X)
    np.testing.assert_array_equal(known.components_, given.components_)
    other = OnlineNMF(K, **settings, options={"N": 30}).fit(X)
    assert not np.array_equal(known.components_, other.components_)
    with pytest.raises(ValueError, match=r"lefevre needs N.*options=\{'N': \.\.\.\}"):
        OnlineNMF(K, **settings).partial_fit(X)
    known.partial_fit(X[:50])  # it remembers


def test_lefevre_without_forgetting_is_one_batch_update() -> None:
    X, W0 = problem("lefevre", 50)
    update = Lefevre(chunk=50, r=1.0, N=50)
    state = update.start(W0)
    H = np.random.default_rng(0).gamma(1.0, 1.0, (50, K))
    W = update.apply(state, update.local(ItakuraSaito(), X, H, state.W)).W
    Y = H @ state.W
    expected = state.W * np.sqrt((H.T @ (X / Y**2)) / (H.T @ (1 / Y)))
    np.testing.assert_allclose(W, expected / expected.sum(axis=1, keepdims=True), rtol=1e-10)


def test_lefevres_past_weighs_r_after_n_samples() -> None:
    X, W0 = problem("lefevre", 60)
    update = Lefevre(chunk=60, r=0.5, N=60)
    state = update.start(W0)
    H = np.ones((60, K))
    one = update.apply(state, update.local(ItakuraSaito(), X, H, state.W))
    two = update.apply(one, update.local(ItakuraSaito(), X, H, one.W))
    fresh = update.local(ItakuraSaito(), X, H, one.W).parts
    unscaled = 0.5 * one.memory["A"] + fresh["A"]
    np.testing.assert_allclose(two.memory["A"] * two.memory["B"], unscaled * (0.5 * one.memory["B"] + fresh["B"]))


def test_guans_kernel_is_the_algorithm_as_written() -> None:
    rng = np.random.default_rng(3)
    W = rng.dirichlet(np.ones(F), K)
    X, H = rng.gamma(1.0, 1.0, (5, F)), rng.gamma(1.0, 1.0, (5, K))
    H[:, 2] = 0
    drawn = rng.integers(5, size=12)
    V, total, weights = W.copy(), np.zeros_like(W), 0.0
    for k, row in enumerate(drawn, start=1):
        rate = 0.03 / np.sqrt(k)
        V = project_on_simplex((V - rate * np.outer(H[row], H[row] @ V - X[row])).T, 1.0).T
        total, weights = total + rate * V, weights + rate
    np.testing.assert_allclose(averaged_steps(W, X, H, drawn, 0.03), total / weights, rtol=1e-10, atol=1e-14)
    single = [a.astype(np.float32) for a in (W, X, H)]
    np.testing.assert_allclose(averaged_steps(*single, drawn, 0.03), total / weights, rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="shapes or types do not fit"):
        averaged_steps(W, X, H[:, 1:], drawn, 0.03)
    with pytest.raises(ValueError, match="a row was drawn that X does not have"):
        averaged_steps(W, X, H, drawn + 5, 0.03)


def test_guans_buffer_holds_the_last_samples_with_their_coefficients() -> None:
    rng = np.random.default_rng(4)
    update = Guan(chunk=4, buffer=6, steps=3)
    state = update.start(rng.random((K, F)))
    X, H = rng.random((10, F)), rng.random((10, K))
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
        state = update.apply(state, update.local(SquaredL2(), X[rows], H[rows], state.W))
    np.testing.assert_array_equal(state.memory["X"], X[4:])
    np.testing.assert_array_equal(state.memory["H"], H[4:])
    np.testing.assert_allclose(state.W.sum(axis=1), 1.0, rtol=1e-6)


def test_wangs_step_is_the_formula_of_its_paper() -> None:
    rng = np.random.default_rng(5)
    update = Wang(chunk=3, eta=0.1, rho=0.9)
    state = update.start(rng.random((K, F)))
    X, H = rng.random((6, F)) * 5, rng.random((6, K))
    divergence = Huber(0.3)
    A, B, W, unit = np.zeros((F, K, K)), np.zeros((F, K)), state.W, None
    for rows in (slice(0, 3), slice(3, 6)):
        x, h = X[rows], H[rows]
        omega = np.minimum(1.0, 0.3 / np.abs(x - h @ W))
        unit = np.linalg.norm(x, axis=1).mean() if unit is None else unit
        for n in range(3):
            for f in range(F):
                A[f] = 0.9 * A[f] + omega[n, f] * np.outer(h[n], h[n]) / unit**2
                B[f] = 0.9 * B[f] + omega[n, f] * x[n, f] * h[n] / unit**2
        step = np.einsum("fjk,kf->jf", A, W) - B.T
        W = np.maximum(W - 0.1 * step, 0)
        W /= np.maximum(np.linalg.norm(W, axis=1, keepdims=True), 1)
        state = update.apply(state, update.local(divergence, x, h, state.W))
        np.testing.assert_allclose(state.W, W, rtol=1e-9, atol=1e-12)


def test_wang_restores_an_atom_that_would_vanish() -> None:
    update = Wang(chunk=1, eta=1e6)
    state = update.start(np.full((1, 3), 0.5))
    after = update.apply(state, update.local(Huber(1.0), np.full((1, 3), 1e-9), np.full((1, 1), 1.0), state.W))
    np.testing.assert_array_equal(after.W, state.W)


def test_packed_products_check_their_shapes() -> None:
    with pytest.raises(ValueError, match="shapes or types do not fit"):
        packed_product(np.ones((3, 4)), np.ones((3, 4)))


def test_steps_too_long_for_the_data_are_told() -> None:
    rng = np.random.default_rng(0)
    X = rng.gamma(2.0, 1.0, (400, 3)) @ rng.gamma(1.0, 1.0, (3, 12)) + 0.1
    with pytest.warns(ConvergenceWarning, match=r"eta.*\(2\.0\) ten times smaller"):
        OnlineNMF(3, divergence="huber:0.5", method="wang", options={"eta": 2.0}, random_state=0).fit(X)


def test_the_samples_that_guan_draws_depend_on_its_seed_alone() -> None:
    X, W = problem("guan", 200)
    settings: dict[str, Any] = {"divergence": "squared_l2", "method": "guan", "init": W, "shuffle": False}
    first, again, other = (
        OnlineNMF(K, **settings, options={"seed": seed}, random_state=r).fit(X).components_
        for seed, r in ((0, 1), (0, 2), (1, 1))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["guan", "wang"])
def test_samples_of_zeros_say_nothing(name: str) -> None:
    X, W = problem(name, 200)
    settings: dict[str, Any] = {
        "divergence": SERVES[name],
        "method": name,
        "init": W,
        "shuffle": False,
        "scale": "none",
    }
    plain = OnlineNMF(K, **settings, batch_size=200).fit(X)
    silent = OnlineNMF(K, **settings, batch_size=260).fit(np.vstack([np.zeros((20, F)), X, np.zeros((40, F))]))
    np.testing.assert_array_equal(silent.components_, plain.components_)


def test_guans_buffer_may_be_given_another_length_in_mid_stream() -> None:
    X, W = problem("guan", 90)
    model = OnlineNMF(K, divergence="squared_l2", method="guan", init=W).partial_fit(X[:30])
    for buffer in (50, 5):
        model.set_params(options={"buffer": buffer}).partial_fit(X[30:60]).partial_fit(X[60:])
        assert len(model._memory["X"]) == buffer
        assert np.isfinite(model.components_).all()
