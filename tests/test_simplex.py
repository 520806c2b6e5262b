"""Coefficients on the simplex: those of a sample sum to one, and W is in the data's units."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF, coefficients
from onmf.cli.main import app
from onmf.coefficients import InteriorPoint, Newton
from onmf.coefficients.kernels.simplex import directions_on_simplex, least_squares_on_simplex
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence, get
from onmf.model.penalty import Penalty
from onmf.model.sets import DictionarySet, Sets, Simplex, project_on_simplex
from onmf.model.validation import DataError
from tests.learning import METHODS, PAIRS, F, assert_same_bits, learnt, quick, small, streamed, usual

SHARES = {"coefficients": "simplex"}
ABLE = ("surrogate", "paper", "canonical")
able_pairs = pytest.mark.parametrize(
    ("name", "divergence"), [pytest.param(n, d, id=f"{n}-{label}") for n, label, d in PAIRS if n in ABLE]
)
both_types = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def mixtures(
    n: int, rng: np.random.Generator, K: int = 3, noise: float = 200.0, n_features: int = F
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples X ~ H W with pure ones among them, their shares H, and W."""
    W = rng.gamma(1.0, 1.0, (K, n_features)) + 0.05
    H = rng.dirichlet(np.full(K, 0.4), n)
    return H @ W * rng.gamma(noise, 1 / noise, (n, n_features)), H, W


def matched(W: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The components that are nearest to the true ones, in their order."""
    apart = np.square(W[:, None] - truth[None]).sum(axis=2)
    mine, theirs = scipy.optimize.linear_sum_assignment(apart)
    return mine[np.argsort(theirs)]


# The set


@both_types
def test_the_projection_on_the_simplex_is_that_of_every_row_and_repeats_bit_for_bit(
    dtype: type, rng: np.random.Generator
) -> None:
    H = (rng.normal(0, 1, (50, 6)) * 10.0 ** rng.uniform(-3, 4, (50, 1))).astype(dtype)
    for low in (0.0, 1e-8, 0.1):
        box = Simplex(low)
        P = box.project(H)
        assert P.dtype == dtype
        assert box.contains(P)
        assert not box.contains(1.001 * P)
        np.testing.assert_array_equal(box.project(P), P)
        exact = low + project_on_simplex(H.T.astype(float) - low, 1 - 6 * low).T
        np.testing.assert_allclose(P, exact, atol=1e3 * np.finfo(dtype).eps)


def test_lower_bounds_that_leave_nothing_to_share_raise_an_error() -> None:
    with pytest.raises(ValueError, match=r"4 coefficients of at least eps_prime = 0\.3 sum to one or more"):
        OnlineNMF(4, **SHARES, sets=Sets(eps_prime=0.3)).fit(np.ones((5, 3)))


# The kernels


@both_types
@pytest.mark.parametrize(("K", "n_features"), [(1, 3), (2, 5), (5, 40), (12, 6), (40, 60)])
def test_least_squares_on_the_simplex_have_no_gap(
    K: int, n_features: int, dtype: type, rng: np.random.Generator
) -> None:
    W, X = rng.gamma(1.0, 1.0, (K, n_features)).astype(dtype), rng.gamma(1.0, 1.0, (80, n_features)).astype(dtype)
    Q, B = W @ W.T, X @ W.T
    H = least_squares_on_simplex(Q, B, 1.0)
    assert Simplex(0.0).contains(H)
    gap = Simplex(0.0).gap(H, H @ Q - B) / np.square(X).sum(axis=1)
    assert gap.max() <= (1e-8 if dtype is np.float64 else 1e-3)


def test_a_hessian_that_is_not_positive_definite_still_gives_a_way_down(rng: np.random.Generator) -> None:
    K, n = 5, 30
    full = rng.normal(0, 1, (n, K, K))
    full = full + full.swapaxes(1, 2)
    i, j = np.triu_indices(K)
    H, G = Simplex(0.0).project(rng.normal(0, 1, (n, K))), rng.normal(0, 1, (n, K))
    D, positive = directions_on_simplex(full[:, i, j], G, H, 1.0)
    assert not positive.all()
    assert Simplex(0.0).contains(np.maximum(H + D, 0))
    assert ((G * D).sum(axis=1) <= 1e-12).all()


# The solvers


@pytest.mark.parametrize(
    ("divergence", "dtype"),
    [
        pytest.param(d, dtype, id=f"{label}-{dtype.__name__}")
        for n, label, d in PAIRS
        for dtype in (np.float64, np.float32)
        if n == "surrogate" and (dtype is np.float64 or label in ("kl", "is", "squared_l2", "l1", "huber:2"))
    ],
)
def test_every_solver_that_serves_the_simplex_comes_to_the_same_minimum(
    divergence: Divergence, dtype: type, rng: np.random.Generator
) -> None:
    X, _, W = mixtures(6, rng, K=4, noise=20.0)
    X, W = X.astype(dtype), (W + 0.02).astype(dtype)
    problem = Problem(divergence, X, W, Simplex())
    best = coefficients.precise_solver(divergence).stopping(1e-5, 200).solve(problem)
    assert best.converged.all()
    least = problem.objective(best.H, problem.fit(best.H))
    for name in ("newton", "interior-point", "armijo", "constant", "polyak"):
        solver = coefficients.find(name)()
        if solver.why_not(divergence) is None:
            H = solver.stopping(1e-4, 500).solve(problem).H
            assert problem.box.contains(H)
            value = problem.objective(H, problem.fit(H))
            slack = 2e-2 if name == "polyak" else 2e-3  # of a loss that is off by a factor of two
            off = np.abs(value - least) if divergence.convex else value - least  # there may be several minima
            assert (off <= slack * problem.scale).all(), name


@pytest.mark.parametrize("name", ["kl", "squared_l2", "huber:0.5", "l2", "hellinger", "beta:1.5"])
def test_newton_on_the_simplex_is_as_good_as_scipy(name: str, rng: np.random.Generator) -> None:
    X, _, W = mixtures(5, rng, K=4, noise=10.0)
    for penalty in (Penalty(), Penalty(l2=0.5), Penalty(l1=0.3)):
        problem = Problem(get(name), X, W, Simplex(), penalty)
        found = Newton(1e-8, 200).solve(problem)
        values = problem.objective(found.H, problem.fit(found.H))
        for i, value in enumerate(values):
            one = problem.rows(slice(i, i + 1))

            def objective(h: np.ndarray, one=one) -> float:
                return float(one.objective(h[None], one.fit(h[None]))[0])

            theirs = scipy.optimize.minimize(
                objective,
                np.full(4, 0.25),
                bounds=[(1e-8, 1)] * 4,
                constraints={"type": "eq", "fun": lambda h: h.sum() - 1},
                options={"ftol": 1e-12, "maxiter": 300},
            )
            assert value <= theirs.fun + 1e-6 * max(1.0, abs(theirs.fun))


def test_l1_on_the_simplex_is_linear_programming_dark_and_empty_samples_included(rng: np.random.Generator) -> None:
    K = 4
    X, _, W = mixtures(24, rng, K=K, noise=5.0)
    X[:3] *= 1e-4
    X[3:6] *= 100
    X[6], W[1] = 0, 0
    problem = Problem(get("l1"), X, W, Simplex())
    found = InteriorPoint(1e-8).solve(problem)
    assert found.converged.all()
    assert problem.box.contains(found.H)
    values = problem.objective(found.H, problem.fit(found.H))
    cost = np.r_[np.zeros(K), np.ones(2 * F)]
    equal = np.vstack([np.hstack([W.T, np.eye(F), -np.eye(F)]), np.r_[np.ones(K), np.zeros(2 * F)]])
    for x, value in zip(X, values, strict=True):
        least = scipy.optimize.linprog(cost, A_eq=equal, b_eq=np.r_[x, 1.0]).fun
        assert least - 1e-9 <= value <= least + 1e-6 * (1 + np.abs(x).sum())


def test_sparse_samples_have_the_shares_of_dense_ones(rng: np.random.Generator) -> None:
    X, _, W = mixtures(20, rng, noise=5.0)
    X[X < 0.3] = 0
    for name in ("kl", "hellinger", "squared_l2"):
        both = [
            Newton(1e-8).solve(Problem(get(name), data, W, Simplex())).H for data in (X, scipy.sparse.csr_matrix(X))
        ]
        np.testing.assert_allclose(*both, atol=1e-4)


@pytest.mark.parametrize("name", ["multiplicative", "ratios", "armijo-literal"])
def test_solvers_whose_steps_leave_the_simplex_say_so(name: str, rng: np.random.Generator) -> None:
    X, _, W = mixtures(4, rng)
    with pytest.raises(ValueError, match=r"cannot keep coefficients on the simplex: .*; use newton\."):
        coefficients.find(name)().solve(Problem(get("is"), X, W, Simplex()))


# Learning


@able_pairs
def test_every_method_that_can_learns_shares(name: str, divergence: Divergence, rng: np.random.Generator) -> None:
    X, _, _ = mixtures(150, rng)
    model = quick(name, divergence, **SHARES, batch_size=40).fit(X)
    H = model.transform(X)
    assert Simplex().contains(H)
    np.testing.assert_allclose(model.inverse_transform(H), H @ model.components_, rtol=1e-12)
    alone = divergence.for_data(X.mean(), F)
    fit = np.repeat(X.mean(axis=0, keepdims=True), len(X), axis=0)
    bound = 1.0 if name == "canonical" else 0.8  # whose steps do not suit all of these data
    assert model.loss(X) < bound * alone.value(X, fit).mean()
    assert model.stationarity(X) >= 0
    assert model.score(X) == -model.loss(X)


@pytest.mark.parametrize(
    ("name", "divergence"),
    [pytest.param(n, d, id=f"{n}-{label}") for n, label, d in PAIRS if n in ABLE and d.degree is not None],
)
def test_data_in_other_units_give_the_same_shares_and_a_dictionary_in_these_units(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    X, _, _ = mixtures(80, rng)
    kinds = divergence, divergence.in_units(1 / 1024)
    one, other = (
        quick(name, kind, **SHARES, batch_size=40).fit(c * X) for kind, c in zip(kinds, (1.0, 1024.0), strict=True)
    )
    np.testing.assert_allclose(other.components_, 1024 * one.components_, rtol=1e-9, atol=0)
    np.testing.assert_allclose(other.transform(1024 * X), one.transform(X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["kl", "squared_l2", "is", "huber", "l1", "l2"])
def test_planted_mixtures_with_pure_samples_are_unmixed(name: str) -> None:
    rng = np.random.default_rng(5)
    X, H, W = mixtures(1500, rng, noise=400.0, n_features=30)
    X, W = 50 * X, 50 * W
    model = OnlineNMF(3, divergence=name, **SHARES, max_passes=3, random_state=0).fit(X)
    mine = matched(model.components_, W)
    assert np.sqrt(np.square(model.components_[mine] - W).mean()) < 0.1 * W.mean()
    assert np.sqrt(np.square(model.transform(X)[:, mine] - H).mean()) < 0.05


def test_a_dark_component_takes_up_shade_and_empty_samples_are_learnt_from(rng: np.random.Generator) -> None:
    X, _, W = mixtures(600, rng)
    X *= rng.uniform(0, 1, (600, 1))  # the share of a fourth component, of zeros
    X[::20] = 0
    shade = OnlineNMF(4, divergence="squared_l2", **SHARES, max_passes=5, random_state=0).fit(X)
    without = OnlineNMF(3, divergence="squared_l2", **SHARES, max_passes=5, random_state=0).fit(X)
    assert shade.loss(X) < 0.1 * without.loss(X)
    assert shade.components_.sum(axis=1).min() < 0.05 * W.sum(axis=1).mean()


@pytest.mark.parametrize("init", ["kmeans++", "samples", "uniform", "nndsvda"])
def test_starts_have_the_size_of_the_data(init: str, rng: np.random.Generator) -> None:
    X = 1e3 * mixtures(60, rng)[0]
    W0 = OnlineNMF(5, method="paper:step=canonical,a=1e-12,max_iter=20", init=init, **SHARES, random_state=0).fit(X)
    assert 0.5 * X.mean() < W0.components_.mean() < 2 * X.mean()
    assert W0.components_.shape == (5, F)


def test_a_start_of_the_users_own_is_in_the_datas_units(rng: np.random.Generator) -> None:
    X, _, W = mixtures(60, rng)
    model = OnlineNMF(3, method="paper:step=canonical,a=1e-12", init=70 * W, **SHARES).fit(70 * X)
    np.testing.assert_allclose(model.components_, 70 * W, rtol=1e-6)


def test_more_components_than_samples_are_padded(rng: np.random.Generator) -> None:
    X = mixtures(4, rng)[0]
    model = OnlineNMF(7, **SHARES, random_state=0).partial_fit(X)
    assert Simplex().contains(model.transform(X))
    assert DictionarySet(high=np.inf).contains(model.components_)


@both_types
@pytest.mark.filterwarnings("ignore")
def test_no_number_is_infinite_however_large_or_small_the_data(dtype: type, rng: np.random.Generator) -> None:
    X = mixtures(40, rng)[0]
    top = 1e30 if dtype is np.float32 else 1e290
    for name in ("kl", "alpha:2", "squared_l2", "is", "l1"):
        for first, later in itertools.product((1 / top, 1e-20, 1.0, 1e20, top), (1 / top, 1.0, top)):
            model = quick("surrogate", name, **SHARES, transform_max_iter=20)
            Y = (later * X[:9]).astype(dtype)
            with contextlib.suppress(DataError):
                model.partial_fit((first * X).astype(dtype))
                model.partial_fit(Y)
            for number in (model.transform, model.loss, model.stationarity) if model._learned else ():
                with contextlib.suppress(DataError):
                    assert np.isfinite(number(Y)).all()
            assert model._learned is None or np.isfinite(model.components_).all()


# Refusals


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ABLE])
def test_methods_that_cannot_say_so_before_learning_and_name_one_that_can(name: str, rng: np.random.Generator) -> None:
    X = mixtures(30, rng)[0]
    with pytest.raises(ValueError, match=f"method '{name}' cannot keep coefficients on the simplex.*use method 'auto'"):
        quick(name, usual(name), **SHARES).fit(X)


def test_auto_takes_a_method_that_can_whatever_the_density(rng: np.random.Generator) -> None:
    X = rng.poisson(0.05, (200, 50)).astype(float)
    X[:, 0] = 1
    model = OnlineNMF(3, **SHARES, random_state=0).fit(scipy.sparse.csr_matrix(X))
    assert model.method_.name == "surrogate"
    assert OnlineNMF(3, random_state=0).fit(scipy.sparse.csr_matrix(X)).method_.name != "surrogate"


def test_other_errors_name_the_cure(rng: np.random.Generator) -> None:
    X = mixtures(30, rng)[0]
    with pytest.raises(ValueError, match=r"use OnlineNMF\(coefficients='simplex'\)"):
        BatchNMF(3, **SHARES).fit(X)
    with pytest.raises(ValueError, match="coefficients must be 'nonnegative' or 'simplex', got 'shares'"):
        OnlineNMF(3, coefficients="shares").fit(X)
    with pytest.raises(ValueError, match="Multiplicative cannot keep coefficients on the simplex"):
        OnlineNMF(3, **SHARES, method="paper:solver=multiplicative").fit(X)
    model = OnlineNMF(3, **SHARES, random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match="coefficients cannot be changed while a model learns"):
        model.set_params(coefficients="nonnegative").partial_fit(X)


def test_the_theorem_does_not_cover_a_set_without_bounds(rng: np.random.Generator) -> None:
    model = quick("paper", "kl", **SHARES).fit(mixtures(60, rng)[0])
    assert "the dictionary must lie in a bounded set" in model.guarantee_


# Files and the command line


@pytest.mark.parametrize("name", ABLE)
def test_a_model_goes_on_from_its_file_bit_for_bit(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    X = 3e4 * mixtures(120, rng)[0]
    whole = streamed(quick(name, "kl", **SHARES), X, 30)
    half = streamed(quick(name, "kl", **SHARES), X[:60], 30)
    onmf.save(half, tmp_path / "model")
    again = onmf.load(tmp_path / "model")
    np.testing.assert_array_equal(again.components_, half.components_)
    np.testing.assert_array_equal(again.transform(X), half.transform(X))
    assert again.coefficients == "simplex"
    assert_same_bits(streamed(again, X[60:], 30), whole)


def test_shards_of_shares_add_up(rng: np.random.Generator) -> None:
    for divergence in (get("kl"), get("squared_l2"), get("is")):
        X, _, W = mixtures(200, rng)
        method = small("surrogate")
        C, H = Sets().where("simplex")
        before = learnt(method, divergence, method.start(divergence, W, C), X[:50], box=H).state
        parts = [learnt(method, divergence, before, X[r], box=H).state for r in (slice(50, 120), slice(120, 200))]
        first, second = (method.summary(divergence, before, part) for part in parts)
        merged = method.merged(divergence, before, first + second)
        assert merged.samples == 200
        assert C.contains(merged.W)
        assert (merged.memory["unit"] == 1).all()
        problems = [Problem(divergence, X, state.W, H) for state in (before, merged)]
        losses = [p.loss(h, p.fit(h)).mean() for p, h in ((p, Newton().solve(p).H) for p in problems)]
        assert losses[1] < 1.05 * losses[0]


def test_the_command_line_learns_shares(tmp_path: Path, rng: np.random.Generator) -> None:
    X = mixtures(200, rng)[0]
    np.save(tmp_path / "pixels.npy", X)
    out = tmp_path / "model.safetensors"
    words = [
        "fit",
        str(tmp_path / "pixels.npy"),
        "-k",
        "3",
        "--coefficients",
        "simplex",
        "--seed",
        "0",
        "--out",
        str(out),
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    np.testing.assert_allclose(onmf.load(out).transform(X).sum(axis=1), 1, rtol=1e-12)
    assert "coefficients=simplex" in CliRunner().invoke(app, ["info", str(out)], env={"COLUMNS": "200"}).output
