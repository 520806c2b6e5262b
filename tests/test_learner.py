"""How a model learns from batches, whatever the method: slicing, adaptation, reservoir, silence, changes on the way."""

from __future__ import annotations

import gc
import importlib
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

from onmf import OnlineNMF, Sets, load, save
from onmf.data import Rows, rebatch
from onmf.divergences import Divergence, Huber
from onmf.learner.reservoir import PER_NEW_SAMPLE, Reservoir
from onmf.methods import EM, Canonical, Method, Paper, Surrogate
from onmf.methods.base import Averaging, Growing
from onmf.model.sets import DictionarySet
from onmf.model.state import State
from onmf.model.validation import DataError
from onmf.samples import Samples
from tests.conftest import mahalanobis
from tests.learning import (
    METHODS,
    F,
    K,
    LogCosh,
    assert_same_bits,
    assert_sound,
    begun,
    both_kinds,
    data,
    divergence_id,
    every_method,
    learnt,
    memory,
    mixed,
    quick,
    small,
    sparse_counts,
    streamed,
    usual,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::onmf.DomainWarning"),
]


# The state


def misaligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at an odd address, as arrays that come over a wire may lie."""
    buffer = bytearray(array.nbytes + 1)
    found = np.frombuffer(buffer, array.dtype, array.size, offset=1).reshape(array.shape)
    found[...] = array
    assert not found.flags.aligned
    return found


@pytest.mark.parametrize("layout", ["C", "F"])
def test_a_copy_of_a_state_is_aligned_and_has_a_memory_of_its_own(layout: Any, rng: np.random.Generator) -> None:
    W, b = rng.random((K, F)), rng.random((K, F))
    state = State(misaligned(W), DictionarySet(), 7, 3.5, 2, {"b": misaligned(b)})
    copy = state.copy(layout)
    assert all(array.flags.aligned for array in (copy.W, *copy.memory.values()))
    assert copy.W.flags[f"{layout}_CONTIGUOUS"]
    assert (copy.samples, copy.clock, copy.steps, copy.C) == (7, 3.5, 2, state.C)
    np.testing.assert_array_equal(copy.W, W)
    copy.memory["b"][...] = 0
    np.testing.assert_array_equal(state.memory["b"], b)


@every_method
def test_a_misaligned_state_learns_to_the_same_bits(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    method, X = small(name, tau=20), mixed(60, rng.gamma(1.0, 1.0, (K, 101)), rng) / 4
    start = begun(method, divergence, rng.random((K, 101)) + 0.1)
    state = learnt(method, divergence, start, X[:40]).state
    kept = {key: misaligned(array) for key, array in state.memory.items()}
    odd = State(misaligned(state.W), state.C, state.samples, state.clock, state.steps, kept)
    one, other = (learnt(method, divergence, before, X[40:]).state for before in (state, odd))
    np.testing.assert_array_equal(one.W, other.W)
    for key, array in one.memory.items():
        np.testing.assert_array_equal(array, other.memory[key])


@pytest.mark.parametrize("numbers", [{"samples": -1}, {"steps": 0.5}, {"clock": -0.1}, {"clock": np.nan}])
def test_a_state_of_impossible_counts_is_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(numbers))} must be .*at least 0"):
        State(np.ones((K, F)), DictionarySet(), **numbers).require_counts()


@every_method
def test_weights_go_by_the_clock_not_by_the_samples(
    name: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    """A shard counts its share of the samples alone; guan and lefevre and wang go by neither."""
    method, X = small(name, tau=20), data(60, rng) / 4
    state = learnt(method, divergence, begun(method, divergence, rng.random((K, F)) + 0.1), X[:40]).state
    slow = State(state.W, state.C, state.samples, 4000.0, state.steps, state.memory)
    found = [learnt(method, divergence, before, X[40:]).state for before in (state, slow)]
    assert [one.clock for one in found] == [60, 4020]
    moved = [np.linalg.norm(one.W - state.W) for one in found]
    if name == "sparse_surrogate":  # its damping goes by the clock, too: what the samples weigh shows in the averages
        past = state.memory["unit"] * state.memory["D"]
        moved = [np.linalg.norm(one.memory["D"] - past) for one in found]
    if name in ("guan", "lefevre", "wang"):
        assert moved[0] == moved[1]
    else:
        assert moved[1] < moved[0]


# Slicing of streams


def _counts(n: int, W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(3 * rng.gamma(0.5, 1.0, (n, len(W))) @ W).astype(float)


def _positive(n: int, W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.gamma(1.0, 1.0, (n, len(W))) @ W * rng.gamma(4.0, 0.25, (n, W.shape[1])) + 0.01


@pytest.mark.parametrize(
    ("method", "name", "draw"),
    [
        ("surrogate", "kl", _counts),
        ("surrogate", "squared_l2", _counts),
        ("surrogate", "is", _positive),
        ("em", "kl", _counts),
    ],
)
def test_how_a_stream_is_cut_hardly_matters(
    method: str, name: str, draw: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    W = rng.gamma(0.3, 1.0, (5, 40))
    first, X, held_out = (draw(n, W, rng) for n in (200, 4000, 300))
    if method == "em":
        first, X, held_out = (scipy.sparse.csr_matrix(V) for V in (first, X, held_out))
    losses = []
    for size in (4000, 100, 7):
        model = streamed(quick(method, name, n_components=5).partial_fit(first), X, size)
        assert model.n_samples_seen_ == 4200
        losses.append(model.loss(held_out))
    assert max(losses) <= 1.05 * min(losses)


SLICED = ["kl", "is", "squared_l2", "huber", "l1", "l2", "hellinger", mahalanobis()[0]]


@pytest.mark.parametrize("divergence", SLICED, ids=divergence_id)
@both_kinds
def test_batches_of_any_size_are_fit_with_that_batch_size_to_the_bit(
    stored: Callable[..., Any], divergence: Divergence | str, rng: np.random.Generator
) -> None:
    V = stored(sparse_counts(150, rng))
    for size in (7, 64):
        whole = quick("auto", divergence, batch_size=size, shuffle=False).fit(V)
        pieces = streamed(quick("auto", divergence), V, size)
        assert_same_bits(whole, pieces)
        assert whole.divergence_.parameters().keys() == pieces.divergence_.parameters().keys()


@pytest.mark.parametrize("divergence", [d for d in SLICED if d != "l1"] + [LogCosh()], ids=divergence_id)
def test_a_samples_transform_does_not_depend_on_its_batch(
    divergence: Divergence | str, rng: np.random.Generator
) -> None:
    X = data(40, rng)
    model = quick("auto", divergence, transform_tol=1e-13, transform_max_iter=2000).fit(X)
    together = model.transform(X)
    alone = np.vstack([model.transform(x[None]) for x in X[:15]])
    np.testing.assert_allclose(alone, together[:15], rtol=0, atol=1e-10 * together.max())


def test_short_chunks_weigh_less() -> None:
    rho = Averaging()
    assert rho(30, 30, 30) == 1.0
    assert rho(10, 5, 30) == 0.5
    assert rho(3003, 3, 30) == pytest.approx(1 - (1 - rho(3003, 30, 30)) ** 0.1)
    assert Averaging(forgetting=0.3)(3_000_000, 1000, 30) == pytest.approx(0.3)
    assert Averaging(forgetting=0.3)(3_000_000, 200, 200) == pytest.approx(1 - 0.7**0.2)  # whatever the chunks
    assert Averaging(forgetting=0.3)(3_000, 30, 30) == Averaging()(3_000, 30, 30)
    with pytest.raises(ValueError, match="exponent"):
        Averaging(exponent=0.5)
    with pytest.raises(ValueError, match=r"forgetting must lie in \[0, 1\)"):
        Averaging(forgetting=1.0)


def test_what_is_remembered_depends_on_samples_not_on_how_they_are_cut() -> None:
    """The same past weighs the same after 6,000 more samples, in chunks of 30, of 600, or growing."""
    rho, growing = Averaging(exponent=0.75), Growing(30, 0.01, 600)

    def half_lives(size: Callable[[float], int]) -> float:
        share, seen = 1.0, 20_000
        while seen < 26_000:
            n = min(size(seen), 26_000 - seen)
            seen += n
            share *= 1 - rho(seen, n, 30)
        return float(-np.log2(share))

    usual = half_lives(lambda seen: 30)
    assert usual > 2
    assert half_lives(lambda seen: 600) == pytest.approx(usual, rel=0.02)
    assert half_lives(growing) == pytest.approx(usual, rel=0.02)


# Chunks and batches that grow


def test_chunks_grow_with_the_samples_seen_within_bounds() -> None:
    growing = Growing(30, 0.01, 300)
    assert [growing(seen) for seen in (0, 2999, 10_000, 25_050, 30_000, 1e9)] == [30, 30, 100, 250, 300, 300]
    method = Surrogate()
    assert [method.usual_chunk(seen) for seen in (0, 10_000)] == [30, 100]
    assert [Surrogate(tau=7).usual_chunk(seen) for seen in (0, 10_000)] == [7, 7]


@pytest.mark.parametrize(("left", "sizes"), [(200, [29, 29, 29, 29, 28, 28, 28]), (44, [44]), (46, [23, 23]), (3, [3])])
def test_growing_chunks_share_out_a_batch_evenly(left: int, sizes: list[int]) -> None:
    found = []
    while left:
        found.append(Surrogate().chunk(0, left))
        left -= found[-1]
    assert found == sizes


def batches_of(n: int, **settings: Any) -> list[int]:
    """The sizes of the batches that ``fit`` reads."""
    ends: list[int] = [0]
    X = np.random.default_rng(0).gamma(1.0, 1.0, (n, 3))
    OnlineNMF(1, random_state=0, callbacks=[lambda told: ends.append(told.samples)], **settings).fit(X)
    return np.diff(ends).tolist()


def test_fit_reads_larger_batches_once_chunks_are_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Surrogate, "growing", Growing(30, 0.25, 500))
    assert batches_of(4000) == [200, 200, 200, 200, 200, 250, 312, 390, 488, 500, 500, 500, 60]
    assert batches_of(1000, max_passes=2) == [200] * 5 + [250, 312, 390, 48]
    assert set(batches_of(2000, batch_size=100)) == {100}
    assert set(batches_of(2000, method="auto:tau=50")) == {200}
    assert batches_of(2000, method="auto:tau=500")[:3] == [200, 500, 500]


def test_a_source_with_batches_of_its_own_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Surrogate, "growing", Growing(30, 0.25, 500))
    sizes: list[int] = []
    source = rebatch(Rows(np.random.default_rng(0).gamma(1.0, 1.0, (2000, 3))), 70)
    model = OnlineNMF(1, random_state=0, callbacks=[lambda told: sizes.append(len(told.H))])
    model.fit(source)
    assert set(sizes[:-1]) == {70}


def test_growing_batches_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Surrogate, "growing", Growing(30, 0.25, 5000))
    monkeypatch.setattr(importlib.import_module("onmf.learner.batching"), "MOST_BYTES", 300 * 3 * 8)
    assert max(batches_of(4000)) == 300


def test_bad_entries_do_not_spoil_the_larger_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Surrogate, "growing", Growing(30, 1.0, 1000))
    X = np.random.default_rng(0).gamma(1.0, 1.0, (3000, 3))
    X[1500, 1] = np.nan  # in the eighth batch of 200
    model = OnlineNMF(1, random_state=0, shuffle=False, on_error="skip").fit(X)
    assert model.n_skipped_ == 1
    assert model.n_samples_seen_ == 2999
    assert "row 1500, column 1" in model.skipped_[0]


# Samples of zeros


@pytest.mark.parametrize("name", [name for name in METHODS if small(name).skips_empty])
@both_kinds
def test_samples_of_zeros_say_nothing(stored: Callable[..., Any], name: str, rng: np.random.Generator) -> None:
    X = data(200, rng)
    silence = np.vstack([np.zeros((20, F)), X[:70], np.zeros((1, F)), X[70:], np.zeros((40, F))])
    settings = {"shuffle": False, "scale": "none"}
    plain = quick(name, usual(name), **settings, batch_size=200).fit(stored(X))
    silent = quick(name, usual(name), **settings, batch_size=261).fit(stored(silence))
    np.testing.assert_array_equal(silent.components_, plain.components_)
    assert (silent.n_steps_, silent._learned.state.samples) == (plain.n_steps_, 200)
    assert silent.n_samples_seen_ == 261
    assert silent.history_["loss"][0] == pytest.approx(plain.history_["loss"][0] * 200 / 261)


@both_kinds
@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber", "l1", "l2", "hellinger"])
@pytest.mark.parametrize("forgetting", [0.0, 0.3])
def test_a_long_silence_changes_nothing(
    divergence: str, stored: Callable[..., Any], forgetting: float, rng: np.random.Generator
) -> None:
    X = data(120, rng)
    model = quick(f"auto:forgetting={forgetting}", divergence).partial_fit(stored(X[:100]))
    W, steps = model.components_.copy(), model.n_steps_
    model.partial_fit(stored(np.zeros((4000, F))))
    np.testing.assert_array_equal(model.components_, W)
    assert (model.n_samples_seen_, model.n_steps_) == (4100, steps)
    assert model.history_["loss"][-1] == 0
    assert_sound(model.partial_fit(stored(X[100:])), stored(X))


@pytest.mark.parametrize("name", METHODS)
def test_learning_begins_after_batches_of_zeros_as_if_they_were_not_there(name: str, rng: np.random.Generator) -> None:
    X, settings = data(120, rng), {"batch_size": 40, "shuffle": False}
    for zeros in (np.zeros((80, F)), scipy.sparse.csr_matrix((80, F))):
        after = scipy.sparse.vstack([zeros, X]).tocsr() if scipy.sparse.issparse(zeros) else np.vstack([zeros, X])
        same = scipy.sparse.csr_matrix(X) if scipy.sparse.issparse(zeros) else X
        model = quick(name, usual(name), **settings).fit(after)
        np.testing.assert_array_equal(model.components_, quick(name, usual(name), **settings).fit(same).components_)
        assert (model.n_samples_seen_, model.n_skipped_) == (120, 0)


@pytest.mark.parametrize("name", METHODS)
def test_a_first_batch_of_zeros_is_refused_by_name(name: str) -> None:
    for V in (np.zeros((5, F)), scipy.sparse.csr_matrix((5, F))):
        with pytest.raises(DataError, match="The samples are all zeros"):
            quick(name, usual(name)).partial_fit(V)


# Huber's delta


def noisy(rng: np.random.Generator, sigma: float, n: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """Samples with Gaussian noise, a fifth of their entries replaced by anything; and the noise."""
    clean = rng.gamma(2.0, 1.0, (n, 4)) @ rng.gamma(1.0, 1.0, (4, 30)) + 5
    noise = sigma * rng.normal(size=clean.shape)
    outliers = rng.uniform(0.0, 3 * clean.mean(), clean.shape)
    return np.where(rng.random(clean.shape) < 0.2, outliers, np.maximum(clean + noise, 0.0)), noise


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_delta_follows_the_noise_not_the_outliers(sigma: float, rng: np.random.Generator) -> None:
    X, noise = noisy(rng, sigma)
    model = quick("auto", "huber", n_components=5).fit(X)
    wanted = 1.345 * np.median(np.abs(noise))
    assert wanted / 2 < model.delta_ < 2 * wanted
    residual = X - model.inverse_transform(model.transform(X))
    assert model.delta_ == pytest.approx(1.345 * np.median(np.abs(residual)), rel=0.3)
    assert model.divergence_ == Huber(model.delta_)


def test_a_given_delta_stays_and_the_papers_is_a_tenth_of_the_mean(rng: np.random.Generator) -> None:
    X, _ = noisy(rng, 1.0, n=250)
    assert quick("auto", "huber:0.7").fit(X).delta_ == pytest.approx(0.7, rel=1e-12)
    assert quick("auto", Huber(3.0)).fit(X).delta_ == pytest.approx(3.0, rel=1e-12)
    for name in ("paper", "canonical", "wang"):  # methods that let nothing follow the residuals
        model = quick(name, "huber", shuffle=False).fit(X)
        assert model.delta_ == pytest.approx(0.1 * X[:200].mean(), rel=1e-12)


def test_delta_is_in_the_datas_units(rng: np.random.Generator) -> None:
    X, _ = noisy(rng, 1.0, n=250)
    delta = quick("auto", "huber").fit(X).delta_
    for c in (1e-12, 1e-3, 1e12):
        assert quick("auto", "huber").fit(c * X).delta_ == pytest.approx(c * delta, rel=1e-6)


def test_delta_is_there_for_huber_only(rng: np.random.Generator) -> None:
    with pytest.raises(AttributeError, match="delta_ is available only after a fit with the divergence huber"):
        _ = quick("auto", "huber").delta_
    for divergence in ("kl", "l1", LogCosh()):
        assert not hasattr(quick("auto", divergence).fit(data(30, rng)), "delta_")


@both_kinds
def test_a_saved_huber_model_goes_on_to_the_bit(
    stored: Callable[..., Any], rng: np.random.Generator, tmp_path: Path
) -> None:
    X, _ = noisy(rng, 1.0, n=250)
    V = stored(X)
    model = quick("auto", "huber").partial_fit(V[:150])
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.delta_ == model.delta_
    for one in (model, loaded):
        one.partial_fit(V[150:])
    assert loaded.delta_ == model.delta_
    np.testing.assert_array_equal(loaded.components_, model.components_)


def test_a_method_of_ones_own_lets_a_parameter_follow_the_plain_mean(rng: np.random.Generator) -> None:
    class Follows(Paper):
        adapts = True

    @dataclass(frozen=True)
    class Mean(LogCosh):
        seen: float = -1.0

        def adapted(self, residuals: Any, weights: Any, mean: float, share: float) -> Mean:
            return replace(self, seen=(1 - share) * self.seen + share * mean)

    method, X = Follows(tau=20), data(47, rng)
    start = begun(method, Mean(), rng.random((K, F)) + 0.1)
    assert learnt(method, Mean(), start, X, adapt=True).divergence.seen == pytest.approx(X.mean(), rel=1e-12)


# The reservoir


def ordered(rng: np.random.Generator, counts: bool, n: int = 2400) -> tuple[Any, Any, Any]:
    """A shuffled stream, the same sorted by the components its samples use (two of six each), and held-out samples."""
    W = rng.gamma(0.5, 1.0, (6, 40)) + 0.02

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        first = rng.integers(6, size=n)
        H = np.zeros((n, 6))
        H[np.arange(n), first] = rng.gamma(2.0, 1.0, n) + 0.2
        H[np.arange(n), (first + 1) % 6] = rng.gamma(2.0, 1.0, n) + 0.2
        Y = H @ W
        return (rng.poisson(Y).astype(float) if counts else Y * rng.gamma(2.0, 0.5, Y.shape) + 0.01), first

    (X, first), (held_out, _) = draw(n), draw(300)
    return X, X[np.argsort(first, kind="stable")], held_out


@pytest.mark.parametrize("name", ["kl", "squared_l2", "is"])
def test_a_reservoir_makes_an_ordered_stream_nearly_a_shuffled_one(name: str) -> None:
    with_one, without = [], []
    for seed in range(2):
        X, sorted_X, held_out = ordered(np.random.default_rng(seed), counts=name == "kl")

        def loss(V: np.ndarray, size: int, held_out: np.ndarray = held_out) -> float:
            return quick("surrogate", name, n_components=6, reservoir=size, shuffle=False).fit(V).loss(held_out)

        shuffled = loss(X, 0)
        with_one.append(loss(sorted_X, 200) / shuffled)
        without.append(loss(sorted_X, 0) / shuffled)
    assert (np.array(with_one) < without).all()
    assert np.median(with_one) < 1.15


def test_a_reservoir_helps_em_with_an_ordered_stream() -> None:
    for seed in range(2):
        _, X, held_out = ordered(np.random.default_rng(seed), counts=True)
        with_one, without = (
            quick("em", "kl", n_components=6, reservoir=size, shuffle=False).fit(scipy.sparse.csr_matrix(X))
            for size in (200, 0)
        )
        assert with_one.loss(held_out) < without.loss(held_out)


@pytest.mark.parametrize(
    ("method", "divergence", "sparse"),
    [("auto", "kl", True), ("auto", "squared_l2", True), ("auto", "huber", False)]
    + [(name, usual(name), False) for name in METHODS],
)
def test_batches_with_a_reservoir_are_fit_to_the_bit_also_across_a_file(
    method: str, divergence: Divergence | str, sparse: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    X = sparse_counts(140, rng)
    V = scipy.sparse.csr_matrix(X) if sparse else X
    whole = quick(method, divergence, reservoir=25, batch_size=32, shuffle=False).fit(V)
    pieces = streamed(quick(method, divergence, reservoir=25), V[:64], 32)
    save(pieces, tmp_path / "m")
    loaded = load(tmp_path / "m")
    for model in (streamed(pieces, V[64:], 32), streamed(loaded, V[64:], 32)):
        assert_same_bits(model, whole)
    np.testing.assert_array_equal(whole.history_["samples"], [32, 64, 96, 128, 140])


@both_kinds
def test_a_reservoir_keeps_samples_as_they_came(stored: Callable[..., Any], rng: np.random.Generator) -> None:
    X = sparse_counts(300, rng)
    model = quick("auto", "kl", reservoir=20).fit(stored(X))
    known = {tuple(np.round(x / model.scale_, 6)) for x in X}
    assert {tuple(np.round(x, 6)) for x in memory(model)["kept"]} <= known
    assert memory(model)["kept_of"][0] == (X.sum(axis=1) > 0).sum()


@pytest.mark.parametrize("batch", [1, 7, 30, 1000])
def test_every_sample_is_equally_likely_to_be_kept(batch: int) -> None:
    n, size, bins = 10_000, 400, 20
    reservoir = Reservoir(size)
    kept = reservoir.start(np.zeros((1, 1)))
    numbers = np.arange(n, dtype=float)[:, None]
    for first in range(0, n, batch):
        reservoir.keep(kept, Samples(numbers[first : first + batch]))
    places = kept["kept"].ravel()
    assert len(np.unique(places)) == size
    counts = np.histogram(places, bins=bins, range=(0, n))[0]
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_old_samples_are_drawn_evenly_from_those_kept() -> None:
    reservoir = Reservoir(10)
    kept = reservoir.start(np.zeros((1, 1)))
    V = Samples(np.arange(100, 110, dtype=float)[:, None])
    assert reservoir.mixed(kept, V) is V
    reservoir.keep(kept, Samples(np.arange(10, dtype=float)[:, None]))
    counts = np.zeros(10)
    for seen in range(10, 410):
        kept["kept_of"][0] = seen
        mixed = reservoir.mixed(kept, V)
        assert mixed.shape == (PER_NEW_SAMPLE * 10, 1)
        np.testing.assert_array_equal(mixed[:10].matrix, V.matrix)
        counts += np.bincount(mixed[10:].matrix.ravel().astype(int), minlength=10)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


# Streams that drift


@pytest.mark.parametrize("f", [0.95, 0.99])
@pytest.mark.parametrize("name", ["kl", "squared_l2"])
def test_old_data_weigh_as_documented_after_forgetting(name: str, f: float, rng: np.random.Generator) -> None:
    old, new = (np.where(np.arange(F) % 2 == side, data(3000, rng), 0.0) for side in (0, 1))
    model = quick(Surrogate(forgetting=f), name).partial_fit(old)
    before = memory(model)["size"][0]
    for m in range(1, 8):
        model.partial_fit(new[30 * m - 30 : 30 * m])
        assert memory(model)["size"][0] / before <= (1 - f) ** (0.03 * m) * (1 + 1e-9)
    model.partial_fit(new)
    late = memory(model)["size"][0]
    model.partial_fit(new[:30])  # by now the floor is what counts
    assert memory(model)["size"][0] == pytest.approx((1 - f) ** 0.03 * late, rel=1e-9)


@pytest.mark.parametrize(
    ("method", "name", "thousands"),
    [
        (Surrogate(tau=30), "kl", 2),
        (Surrogate(tau=30), "squared_l2", 2),
        (EM(tau=100), "kl", 10),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else None,
)
def test_new_components_are_learnt_within_a_few_horizons(method: Method, name: str, thousands: int) -> None:
    """All components change at once; the past weighs a hundredth after 1,000 samples."""
    f, components = 0.99, 4
    forgetful, faithful = [], []
    for seed in range(2):
        rng = np.random.default_rng(seed)

        def draw(W: np.ndarray, n: int, rng: np.random.Generator = rng) -> Any:
            Y = rng.gamma(1.0, 1.0, (n, components)) @ W
            X = rng.poisson(Y).astype(float) if name == "kl" else Y * rng.gamma(4.0, 0.25, Y.shape) + 0.01
            return scipy.sparse.csr_matrix(X) if isinstance(method, EM) else X

        before, after = rng.gamma(0.5, 1.0, (2, components, 40)) + 0.02
        old, new = draw(before, 50 * method.tau), draw(after, 1000 * thousands)
        held_out = draw(after, 300)
        fresh = quick(method, name, n_components=components).partial_fit(new).loss(held_out)
        for losses, forgetting in ((forgetful, f), (faithful, 0.0)):
            model = quick(method.with_constants(forgetting=forgetting), name, n_components=components)
            losses.append(model.partial_fit(old).partial_fit(new).loss(held_out) / fresh)
    assert np.median(forgetful) < 1.1
    assert (np.array(forgetful) < faithful).all()


# Changes on the way

FIXED = {
    "n_components": 4,
    "divergence": "huber:0.3",
    "clip": (0.0, 5.0),
    "scale": "none",
    "reservoir": 10,
}


@pytest.mark.parametrize("setting", FIXED)
@pytest.mark.parametrize("name", METHODS)
def test_what_cannot_be_changed_in_mid_stream_is_refused(name: str, setting: str, rng: np.random.Generator) -> None:
    X = data(40, rng)
    model = quick(name, usual(name)).partial_fit(X)
    W = model.components_.copy()
    with pytest.raises(
        ValueError, match=f"{setting} cannot be changed while a model learns; keep it, or begin a new model"
    ):
        model.set_params(**{setting: FIXED[setting]}).partial_fit(X)
    np.testing.assert_array_equal(model.components_, W)


@pytest.mark.parametrize("name", METHODS)
def test_another_method_in_mid_stream_is_refused(name: str, rng: np.random.Generator) -> None:
    X = data(40, rng)
    model = quick(name, usual(name)).partial_fit(X)
    begun = small(name).name
    other = "paper" if begun != "paper" else "surrogate"
    with pytest.raises(ValueError, match=f"begun with method '{begun}' and cannot continue with '{other}'; keep it"):
        model.set_params(method=other).partial_fit(X)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("change", ["tau", "sets"])
def test_what_may_be_changed_in_mid_stream_takes_effect(name: str, change: str, rng: np.random.Generator) -> None:
    X = data(60, rng)
    new = {"tau": {"method__tau": 7}, "sets": {"sets__U": 0.05}}[change]
    going_on, changed = (quick(small(name, tau=20), usual(name)).partial_fit(X) for _ in range(2))
    changed.set_params(**new).partial_fit(X)
    going_on.partial_fit(X)
    assert not np.array_equal(changed.components_, going_on.components_)
    assert changed.n_steps_ == 3 + (9 if change == "tau" else 3)
    assert DictionarySet((changed.sets or Sets()).eps).contains(changed.components_)
    assert changed.method_ == changed.method


def test_what_a_changed_setting_no_longer_serves_is_refused_in_mid_stream(rng: np.random.Generator) -> None:
    X = data(40, rng)
    model = quick("surrogate", "kl").partial_fit(X)
    with pytest.raises(ValueError, match="kl is not defined for a fit of zero"):
        model.set_params(sets=Sets(eps_prime=0.0)).partial_fit(X)
    paper = quick("paper", "kl").partial_fit(X)
    with pytest.raises(ValueError, match="delta_tol belongs to Polyak's step"):
        paper.set_params(method__delta_tol=0.1).partial_fit(X)


@pytest.mark.parametrize("name", METHODS)
def test_constants_that_shape_the_statistics_are_refused_in_mid_stream_and_all_others_taken(
    name: str, rng: np.random.Generator
) -> None:
    X = data(60, rng)
    constants = small(name).constants()
    assert set(small(name).frozen_constants) <= constants.keys()
    # Another value for each: most take a small number, others have to be named.
    values = dict.fromkeys(constants, 3) | {"step": Canonical(a=3), "solver": "armijo", "sparse": True}
    values |= dict.fromkeys(("forgetting", "r", "rho", "theta", "eta", "gamma", "tol", "delta_tol"), 0.6)
    for constant in constants.keys() - {"delta_tol"}:  # which belongs to l1
        model = quick(name, usual(name)).partial_fit(X[:30])
        model.set_params(method=small(name, **{constant: values[constant]}))
        if constant in small(name).frozen_constants:
            with pytest.raises(ValueError, match=f"{constant} cannot be changed while a model learns"):
                model.partial_fit(X[30:])
        else:
            model.partial_fit(X[30:])
            assert getattr(model.method_, constant) == values[constant]
            assert_sound(model, X)


def test_an_adapted_delta_goes_on_and_a_given_one_is_compared(rng: np.random.Generator) -> None:
    X, _ = noisy(rng, 1.0, n=200)
    model = quick("surrogate", "huber").partial_fit(X[:100])
    delta = model.delta_
    assert model.partial_fit(X[100:]).delta_ != delta
    given = quick("surrogate", "huber:0.7").partial_fit(X[:100])
    with pytest.raises(ValueError, match="divergence cannot be changed"):
        given.set_params(divergence=Huber(0.8)).partial_fit(X[100:])
    assert given.set_params(divergence=Huber(0.7)).partial_fit(X[100:]).delta_ == pytest.approx(0.7)


# Memory


@pytest.mark.parametrize(("name", "density"), [("surrogate", 1.0), ("sparse_surrogate", 0.05), ("em", 0.05)])
def test_ten_times_the_samples_take_no_more_memory(name: str, density: float, rng: np.random.Generator) -> None:
    """In what Python and NumPy allocate; test_never_grows measures whole processes."""
    X = mixed(400, rng.gamma(1.0, 1.0, (K, 400)), rng) * (rng.random((400, 400)) < density)
    V = X if density == 1 else scipy.sparse.csr_matrix(X)
    model, held, peaks, sizes = quick(f"{name}:tau=50", reservoir=40), [], [], []
    gc.collect()
    gc.freeze()  # all that lives already, of which a session has much, is looked through once
    tracemalloc.start()
    try:
        for number in range(20):
            gc.collect()  # garbage from before is not part of a peak
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            model.partial_fit(V[100 * (number % 4) : 100 * (number % 4 + 1)])
            held.append(before)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            sizes.append(sum(array.nbytes for array in (model.components_, *memory(model).values())))
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert model.method_.name == name
    assert len(set(sizes)) == 1
    samples = 17 * 100 * 400 * density * 8
    assert held[-1] - held[2] < samples / 10
    assert max(peaks[10:]) < 1.5 * max(peaks[1:10])  # not twice as much for twice the samples
