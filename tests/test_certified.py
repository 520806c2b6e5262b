"""The constant ``certified``: the fast methods in the form that Theorem B of theory.md proves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import threadpoolctl

from onmf import Checkpoint, OnlineNMF, load, save
from onmf.coefficients.problem import Problem, slopes, unpacked
from onmf.divergences import Mahalanobis, Separable, get
from onmf.methods import EM, Auto, Paper, Surrogate, quadratics
from onmf.model.state import State
from onmf.samples import Samples
from tests.conftest import Pinball

K, F, SMALL = 3, 8, {"l2_coefficients": 1e-2, "random_state": 0}


@dataclass(frozen=True)
class Chord(Separable):
    """A convex and smooth loss that gives no curvature of its own."""

    convex = smooth_curvature = True

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.cosh(x - y) - 1

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.sinh(y - x)


@dataclass(frozen=True)
class Kinked(Separable):
    """A convex and smooth loss whose curvature jumps."""

    convex = True

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.where(x > y, 2.0, 1.0) * (x - y) ** 2

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return 2 * xp.where(x > y, 2.0, 1.0) * (y - x)


def samples(rng: np.random.Generator, n: int = 300) -> np.ndarray:
    return np.asarray(rng.gamma(1, 1, (n, K)) @ rng.gamma(1, 1, (K, F)) * rng.gamma(50, 0.02, (n, F)))


def learnt(X: Any, method: Any, divergence: Any = "kl", **settings: Any) -> OnlineNMF:
    return OnlineNMF(K, divergence=divergence, method=method, **SMALL | settings).fit(X)


def next_chunk(model: OnlineNMF, X: np.ndarray) -> tuple[State, State, np.ndarray, float]:
    """The states before and after a chunk that is learnt from, the mean of h (x) u over it, and its weight."""
    learned = model._learned
    assert learned is not None
    state, divergence, method = learned.state, learned.inside, learned.method
    chunk = Samples(X / model.scale_)
    problem = Problem(divergence, chunk, state.W, penalty=method.penalty(state.penalties))
    H = method.solver_after(state.clock, True, divergence, chunk).solve(problem).H
    G = H.T @ slopes(divergence, chunk, H @ state.W) / len(X)
    after = method.update(state.copy(method.layout), problem, H, problem.fit(H), len(X))
    return state, after, G, method.weight(divergence, state.clock + len(X), len(X))


def statistics(state: State, divergence: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """The map of A, with b and V, in units of V."""
    memory = state.memory
    if "R" in memory:
        return lambda V: memory["S"] @ V @ divergence.metric, memory["R"] @ divergence.metric, state.W
    V = state.W * memory["unit"][:, None]
    if "A" not in memory:
        return lambda V: memory["S"] @ V, memory["b"], V
    parts = [unpacked(quadratics.matrices(memory, f).T, K) for f in quadratics.blocks(memory)]
    return lambda V: np.einsum("fjk,kf->jf", np.concatenate(parts), V), memory["b"], V


@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber:0.5", "beta:1.5", "mahalanobis"])
def test_an_update_is_a_gradient_step_in_the_averaged_metric(divergence: str, rng: np.random.Generator) -> None:
    """Lemma 12 on the statistics of the certified form, kappa and all."""
    root = rng.normal(size=(F, F))
    given: Any = Mahalanobis(root @ root.T + np.eye(F)) if divergence == "mahalanobis" else divergence
    model = learnt(samples(rng), Surrogate(certified=200), given)
    before, after, G, rho = next_chunk(model, samples(rng, 40))
    inside = model._learned.inside
    (old, b, V), (new, b_new, V_new) = statistics(before, inside), statistics(after, inside)
    G = G / before.memory["unit"][:, None] if "unit" in before.memory else G
    left = new(V_new - V)
    right = -rho * G + (new(V_new) - b_new) - (1 - rho) * (old(V) - b)
    assert np.abs(left - right).max() < 1e-12 * np.abs(b_new).max()
    assert np.abs(V_new - V).max() > 1e-4 * np.abs(V).max()
    eigenvalues = np.linalg.eigvalsh(np.stack([new(np.eye(K)[:, [k]] * np.ones(F))[:, 0] for k in range(K)]))
    assert divergence == "mahalanobis" or eigenvalues.min() >= 0.99 * after.memory["kappa"].min()


@pytest.mark.parametrize("divergence", ["kl", "alpha:2"])
def test_an_update_of_em_is_a_gradient_step(divergence: str, rng: np.random.Generator) -> None:
    """Lemma 19, at the bounds, too."""
    model = learnt(samples(rng), EM(certified=200), divergence)
    before, after, G, rho = next_chunk(model, samples(rng, 40))
    order = get(divergence).alpha_order or 1.0
    W, W_new = before.W**order, after.W**order

    def multipliers(state: State) -> np.ndarray:
        return np.asarray(state.memory["D"][:, None] * state.W**order - state.memory["N"].T)

    left = after.memory["D"][:, None] * (W_new - W)
    right = -rho * order * W * G + multipliers(after) - (1 - rho) * multipliers(before)
    assert np.abs(left - right).max() < 1e-12 * np.abs(after.memory["N"]).max()
    assert (after.memory["low"] <= after.W).all()
    assert after.W.max() <= 1


@pytest.mark.parametrize("method", [Surrogate(certified=200), EM(certified=200)], ids=["surrogate", "em"])
def test_nothing_but_the_dictionary_and_its_averages_changes_after_the_freeze(
    method: Any, rng: np.random.Generator
) -> None:
    X = samples(rng, 2000)
    model = OnlineNMF(K, method=method, divergence="kl", **SMALL).partial_fit(X[:250])
    before = model._learned.state.memory
    frozen = {name: before[name].copy() for name in ("unit", "log_unit", "low", "kappa") if name in before}
    after = model.partial_fit(X[250:])._learned.state
    assert "low" in frozen
    for name, array in frozen.items():
        np.testing.assert_array_equal(after.memory[name], array)
    assert (0.999999 * after.memory["low"] <= after.W).all()
    assert method.visits(1000) == 1


def test_nothing_but_the_box_keeps_a_weight_from_falling_after_the_freeze(rng: np.random.Generator) -> None:
    """Lemma 14: steps go to the minimum over the box, also under alpha <= 0, where they kept half of a weight."""
    model = learnt(samples(rng), Surrogate(certified=200), "alpha:-1")
    X = samples(rng, 4000)
    X[:, 0] *= 1e-3
    before, after, _, _ = next_chunk(model, X)
    assert (after.W < 0.4 * before.W)[:, 0].any()
    assert (0.999999 * after.memory["low"] <= after.W).all()


@pytest.mark.parametrize(
    ("method", "limited"),
    [(Paper(), Paper(max_iter=7)), (Surrogate(certified=1), Surrogate(certified=1, max_iter=7))],
    ids=["paper", "surrogate"],
)
def test_the_limit_on_iterations_grows_as_the_tolerance_falls_unless_it_is_given(method: Any, limited: Any) -> None:
    X, divergence = Samples(np.ones((2, F))), get("kl")
    first, later = (method.solver_after(clock, True, divergence, X) for clock in (1.0, 300_000.0))
    assert (first.tol, later.tol) == (1e-3, 1e-3 / 4)
    assert (first.max_iter, later.max_iter) == (1000, 4000)
    assert limited.solver_after(300_000.0, True, divergence, X).max_iter == 7


def test_hubers_delta_stays_after_the_freeze(rng: np.random.Generator) -> None:
    X = samples(rng, 600)
    model = OnlineNMF(K, method=Surrogate(certified=200), divergence="huber", **SMALL).partial_fit(X[:250])
    delta = model.delta_
    assert model.partial_fit(X[250:]).delta_ == delta


def test_the_guarantee_tells_what_is_still_missing(rng: np.random.Generator) -> None:
    X = samples(rng)
    early = "Not covered by theorem B yet: it has that form from 500 samples on, and has seen 300."
    assert learnt(X, "auto:certified=500").guarantee_ == early
    text = learnt(X, "auto:certified=200").guarantee_
    assert text.startswith("Covered by theorem B: as the number of samples grows, W converges almost surely")
    assert "on the box low <= W <= 1" in text
    assert text.endswith("fill no interval, as they never do for draws from a finite set.")
    assert "tol=1e-06 ends that" in learnt(X, "surrogate:certified=200,tol=1e-6").guarantee_
    assert "there were 2 passes" in learnt(X, "auto:certified=200", max_passes=2).guarantee_
    assert "single precision" in learnt(X.astype(np.float32), "auto:certified=200").guarantee_
    assert learnt(X, "auto").guarantee_.startswith("None: for this divergence the theorems are about")
    assert "of samples whose zeros are raised" in learnt(X, "auto:certified=200", "alpha:-1").guarantee_


def test_sparse_data_are_learnt_by_em(rng: np.random.Generator) -> None:
    X = scipy.sparse.csr_matrix(rng.poisson(0.05 * samples(rng, 400)))
    model = learnt(X, "auto:certified=200")
    assert model.method_ == EM(certified=200)
    assert model.guarantee_.startswith("Covered by theorem B")


UNCOVERED: dict[str, tuple[dict[str, Any], str]] = {
    "penalty": ({"l2_coefficients": 0}, "certified needs coefficients that are unique: give l2_coefficients"),
    "is": ({"divergence": "is"}, "certified needs a loss that is convex in the fit, and 'is' is not"),
    "beta": ({"divergence": "beta:3"}, "certified needs a loss that is convex in the fit"),
    "l1": ({"divergence": "l1"}, "smooth in the fit, and 'l1' is not; use method 'paper', which covers it"),
    "kinked": ({"divergence": Kinked()}, "certified needs a curvature that is Lipschitz in the fit"),
    "chord": ({"divergence": Chord()}, "certified needs a curvature that is Lipschitz in the fit"),
    "pinball": ({"divergence": Pinball()}, "smooth in the fit, and 'Pinball' is not; leave certified out"),
    "forgetting": ({"method": "auto:certified=200,forgetting=0.1"}, "certified needs weights that vanish"),
    "missing": ({"missing": "nan"}, "certified covers no missing or weighted entries"),
    "reservoir": ({"reservoir": 10}, "certified needs independent samples, and a reservoir shows some again"),
    "simplex": ({"coefficients": "simplex"}, "certified needs a bounded dictionary"),
    "memory": (
        {"method": "surrogate:certified=200,max_memory=10"},
        "^certified needs more than max_memory for its statistics; use .surrogate:max_memory=",
    ),
    "em": ({"method": "em:certified=200", "l2_dictionary": 0.1}, "certified covers no penalties on the dictionary"),
    "sparse surrogate": ({"method": "sparse_surrogate:certified=200"}, "has no constant 'certified'"),
    "no number": ({"method": "auto:certified=0"}, "certified must be"),
}


@pytest.mark.parametrize(("settings", "words"), UNCOVERED.values(), ids=UNCOVERED)
def test_what_the_proof_does_not_cover_raises_an_error(
    settings: dict[str, Any], words: str, rng: np.random.Generator
) -> None:
    X = samples(rng)
    X[0, 0] = np.nan if settings.get("missing") else X[0, 0]
    with pytest.raises(ValueError, match=words):
        OnlineNMF(K, **{"method": "auto:certified=200", "divergence": "kl"} | SMALL | settings).fit(X)


@pytest.mark.parametrize("method", ["surrogate:certified=200", "auto:certified=200"])
def test_shards_raise_an_error(method: str, rng: np.random.Generator) -> None:
    da = pytest.importorskip("dask.array")
    with pytest.raises(
        ValueError, match="cannot learn on shards: certified is about one stream of samples; leave it out"
    ):
        learnt(da.from_array(samples(rng), chunks=(100, F)), method)


@pytest.mark.parametrize("method", [Surrogate(certified=200), EM(certified=200), Auto(certified=200)])
def test_a_device_raises_an_error(method: Any) -> None:
    with pytest.raises(ValueError, match="certified learns on the processor only"):
        method.for_device()


@pytest.mark.parametrize("method", ["surrogate:certified=300", "em:certified=300"])
@pytest.mark.parametrize("stopped", [200, 600])
def test_a_run_that_is_stopped_saved_and_resumed_has_the_same_bits(
    method: str, stopped: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    X, settings = samples(rng, 1000), SMALL | {"method": method, "divergence": "kl", "batch_size": 100}
    whole = OnlineNMF(K, shuffle=False, **settings).fit(X)
    parts = OnlineNMF(K, **settings)
    for first in range(0, 1000, 100):
        if first == stopped:
            save(parts, tmp_path / "m.safetensors")
            parts = load(tmp_path / "m.safetensors")
        parts.partial_fit(X[first : first + 100])
    np.testing.assert_array_equal(parts.components_, whole.components_)
    assert parts.guarantee_ == whole.guarantee_

    def stop(progress: Any) -> bool:
        return bool(progress.samples >= stopped)

    keep = Checkpoint(tmp_path / "c.safetensors")
    OnlineNMF(K, shuffle=False, callbacks=[stop], **settings).fit(X, checkpoint=keep)
    resumed = OnlineNMF(K, shuffle=False, **settings).fit(X, checkpoint=keep, resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)


@pytest.mark.parametrize("method", ["surrogate:certified=300", "em:certified=300"])
def test_any_number_of_threads_gives_the_same_bits(method: str, rng: np.random.Generator) -> None:
    X = rng.gamma(1, 1, (1000, K)) @ rng.gamma(1, 1, (K, 1500))  # wide enough for em to hire threads
    found = []
    for number in (1, 2):
        with threadpoolctl.threadpool_limits(number):
            found.append(learnt(X, method).components_)
    np.testing.assert_array_equal(*found)


def test_the_number_of_samples_cannot_be_changed_on_the_way(rng: np.random.Generator) -> None:
    model = learnt(samples(rng), "surrogate:certified=200")
    with pytest.raises(ValueError, match="the method's certified cannot be changed while a model learns"):
        model.set_params(method="surrogate:certified=400").partial_fit(samples(rng))
