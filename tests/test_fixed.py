"""Fixed components stay, bit for bit, whatever learns the others beside them, and wherever a run is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from typer.testing import CliRunner

from benchmarks.separation import planted as planted_mixture
from benchmarks.separation import share_of_known
from onmf import BatchNMF, OnlineNMF, load, save
from onmf.cli import main as cli
from onmf.divergences import Divergence
from onmf.learner.initialise import initial_dictionary
from onmf.methods import Paper, exchange
from onmf.model.sets import INITS, DictionaryBox, DictionarySet, aligned
from onmf.samples import Samples
from tests.learning import (
    METHODS,
    PAIRS,
    F,
    assert_same_bits,
    assert_sound,
    data,
    learnt,
    quick,
    sparse_counts,
    streamed,
    usual,
)
from tests.test_sets import exact_projection
from tests.test_shards import ADDITIVE, additive, samples, total

FIXED = np.random.default_rng(5).random((2, F))
FIXED[0, :3] = 0  # a zero is fixed too
DIVERGENCES = ("kl", "is", "squared_l2", "huber:0.3", "l1", "l2", "hellinger", "beta:1.5")
every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES)


def planted(rng: np.random.Generator, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Samples of three components with little noise, and the components at maximum 1."""
    W = rng.gamma(0.5, 1.0, (3, F)) + 0.01
    W /= W.max(axis=1, keepdims=True)
    Y = rng.gamma(1.0, 1.0, (n, 3)) @ W
    return Y * rng.gamma(400.0, 1 / 400, Y.shape) + 1e-3, W


# They stay


@pytest.mark.parametrize(
    ("name", "divergence", "K"),
    [pytest.param(name, each, 4, id=f"{name}-{label}-some") for name, label, each in PAIRS]
    + [pytest.param(name, usual(name), 2, id=f"{name}-all") for name in METHODS],
)
def test_fixed_components_stay_bit_for_bit_under_every_method_and_divergence(
    name: str, divergence: Divergence, K: int, rng: np.random.Generator
) -> None:
    X = data(60, rng)
    model = streamed(quick(name, divergence, n_components=K, fixed=FIXED, transform_max_iter=5000), X, 20)
    np.testing.assert_array_equal(model.components_[:2], FIXED)
    assert_sound(model, X)
    if K > 2:
        start = quick(name, divergence, n_components=K, fixed=FIXED, callbacks=[lambda _: True], batch_size=20).fit(X)
        assert not np.array_equal(model.components_[2:], start.components_[2:])


@pytest.mark.parametrize("stored", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("method", ["em", "sparse_surrogate", "surrogate", "surrogate:max_memory=0", "auto"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_stay_in_every_form_of_memory_and_precision(
    method: str, stored: Any, dtype: type, rng: np.random.Generator
) -> None:
    X = stored(sparse_counts(400, rng).astype(dtype))
    model = quick(method, "kl", n_components=5, fixed=FIXED, max_passes=2).fit(X)
    np.testing.assert_array_equal(model.components_[:2], FIXED.astype(dtype))
    assert_sound(model, X)


def test_a_component_with_entries_above_one_is_divided_by_its_largest(rng: np.random.Generator) -> None:
    X, large = data(100, rng), FIXED * [[3.0], [1.0]]
    for kind in (OnlineNMF, BatchNMF):
        model = kind(3, fixed=large, random_state=0).fit(X)
        np.testing.assert_array_equal(model.components_[0], large[0] / large[0].max())
        np.testing.assert_array_equal(model.components_[1], FIXED[1])


@additive
def test_they_stay_where_shards_are_merged(case: str) -> None:
    method, divergence = ADDITIVE[case]
    W = np.random.default_rng(1).random((4, 24)) + 0.1
    W /= np.maximum(W.max(axis=1, keepdims=True), 1.0)
    before = method.start(divergence, W, DictionarySet(fixed=2))
    before = learnt(method, divergence, before, samples(300, 2)).state
    parts = [learnt(method, divergence, replace(before, clock=150.0), samples(300, seed)).state for seed in (3, 4)]
    merged = method.merged(divergence, before, total([method.summary(divergence, before, part) for part in parts]))
    np.testing.assert_array_equal(merged.W[:2], W[:2])
    assert not np.array_equal(merged.W[2:], before.W[2:])


def test_only_components_that_are_learnt_are_exchanged(rng: np.random.Generator) -> None:
    H, W = rng.gamma(0.5, 1.0, (200, 5)), rng.gamma(0.5, 1.0, (5, 10))
    W[1] = W[0]  # nothing would cost less to merge
    S, Q = H.T @ H / 200, W @ W.T
    assert exchange._cheapest_merger(S, Q, W, 0)[0] == [0, 1]
    pair, _, _, T = exchange._cheapest_merger(S, Q, W, 2)
    assert min(pair) >= 2
    np.testing.assert_array_equal(T[:2], np.eye(5)[:2])
    doubled = np.stack([FIXED[1], FIXED[1], FIXED[0]])
    model = OnlineNMF(5, fixed=doubled, random_state=0, divergence="squared_l2").fit(planted(rng, 2000)[0])
    np.testing.assert_array_equal(model.components_[:3], doubled)


@dataclass(frozen=True, repr=False)
class Moving(Paper):
    """A method that has not been told of fixed components."""

    keeps_fixed = False


def test_a_method_that_cannot_keep_them_raises_an_error_before_learning(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"cannot learn beside fixed components; use method 'auto'"):
        OnlineNMF(3, method=Moving(), fixed=FIXED).fit(data(50, rng))


# The set


@pytest.mark.parametrize("eps", [1e-8, 0.3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decades", [0, 6])
def test_the_others_are_projected_exactly_given_what_the_fixed_ones_contribute(
    eps: float, dtype: type, decades: int, rng: np.random.Generator
) -> None:
    V = (rng.standard_normal((5, 40)) - 0.7).astype(dtype)
    V[:2] = eps * rng.random((2, 40)) * rng.integers(0, 2, (2, 40))
    V[:, 0] = 0
    metric = 10 ** rng.uniform(-decades, decades, V.shape)
    C = DictionarySet(eps, fixed=2)
    W = C.project(V, metric) if decades else C.project(V)
    np.testing.assert_array_equal(W[:2], V[:2])
    assert C.contains(W)
    for f in range(40):
        lacking = max(eps - float(V[:2, f].sum(dtype=np.float64)), 0.0)
        expected = exact_projection(V[2:, f], metric[2:, f], lacking)
        np.testing.assert_allclose(W[2:, f], expected, rtol=1e-4, atol=1e-5 * eps + 1e-14)


def test_a_set_in_which_all_components_are_fixed_asks_nothing_of_them(rng: np.random.Generator) -> None:
    V = rng.random((3, 6)) * (rng.random(6) < 0.5)
    np.testing.assert_array_equal(DictionarySet(0.1, 3).project(V), V)
    assert DictionarySet(0.1, 3).contains(V)
    assert not DictionarySet(0.1, 2).contains(V)
    assert not DictionarySet(0.1, 4).contains(V)
    np.testing.assert_array_equal(
        DictionaryBox(np.full(6, 0.2), 1).project(V - 1), np.vstack([V[0] - 1, [[0.2] * 6] * 2])
    )


# The others are learnt beside them


@every_divergence
@pytest.mark.parametrize("kind", [OnlineNMF, BatchNMF])
def test_the_component_that_is_missing_is_found(kind: Any, divergence: str) -> None:
    X, W = planted(np.random.default_rng(0), 300)
    settings: dict[str, Any] = {"max_passes": 5} if kind is OnlineNMF else {"max_iter": 100, "tol": 0.0}
    losses = [
        kind(3, divergence=divergence, fixed=fixed, random_state=0, **settings).fit(X).loss(X)
        for fixed in (W, W[:2], None, np.vstack([W[:2], W.mean(axis=0)]))
    ]
    truth, found, free, wrong = losses
    assert found < 1.2 * max(truth, free)  # without fixed components, l1 is far from the truth too
    assert found < 0.8 * wrong


@every_divergence
def test_batch_updates_beside_fixed_components_never_raise_the_loss(divergence: str, rng: np.random.Generator) -> None:
    for X in (planted(rng, 100)[0], scipy.sparse.csr_matrix(sparse_counts(100, rng) + (divergence == "is"))):
        model = BatchNMF(4, divergence=divergence, fixed=FIXED, max_iter=40, tol=0.0, random_state=0).fit(X)
        losses = model.history_["loss"]
        np.testing.assert_array_equal(model.components_[:2], FIXED)
        assert (np.diff(losses) <= 1e-9 * losses[0] + 1e-3 * losses[:-1] * (divergence == "l1")).all()
        assert losses[-1] < losses[0]


def test_k_means_begins_far_from_the_fixed_components() -> None:
    clusters = np.array([[1.0, 0.9, 0.0, 0.1], [0.0, 0.1, 1.0, 0.8]])
    rng = np.random.default_rng(0)
    X = np.repeat(clusters, [95, 5], axis=0) * rng.gamma(50.0, 1 / 50, (100, 1)) + 0.001
    for ratios in (False, True):
        for seed in range(20):
            W = initial_dictionary("kmeans++", Samples(X), 1, np.random.default_rng(seed), ratios, fixed=clusters[:1])
            assert W.shape == (1, 4)
            assert W[0, 2] > 2 * W[0, 0]
    only = initial_dictionary("kmeans++", Samples(np.repeat(clusters[:1], 5, axis=0)), 2, rng, fixed=clusters[:1])
    assert only.shape == (2, 4)  # no sample is left to begin with: copies of the mean


@pytest.mark.parametrize("init", INITS)
def test_every_start_serves_beside_fixed_components(init: str, rng: np.random.Generator) -> None:
    model = quick("auto", "kl", n_components=4, fixed=FIXED, init=init).fit(data(60, rng))
    np.testing.assert_array_equal(model.components_[:2], FIXED)


@pytest.mark.parametrize("kind", [OnlineNMF, BatchNMF])
def test_a_start_of_the_users_is_that_of_the_others(kind: Any, rng: np.random.Generator) -> None:
    X, init = data(60, rng), rng.random((2, F)) + 0.1
    kind(4, fixed=FIXED, init=init).fit(X)
    with pytest.raises(ValueError, match=r"shape \(n_components - 2 fixed, n_features\) = \(2, 12\), got \(4, 12\)"):
        kind(4, fixed=FIXED, init=rng.random((4, F))).fit(X)


# All components fixed


@every_divergence
def test_with_all_components_fixed_fit_only_learns_the_scale(divergence: str, rng: np.random.Generator) -> None:
    X, W = planted(rng, 300)
    model = OnlineNMF(3, divergence=divergence, fixed=W, random_state=0).fit(X)
    np.testing.assert_array_equal(model.components_, W)
    assert model.scale_ == pytest.approx(X[model.n_samples_seen_ - 300 :].mean(), rel=0.2)
    assert model.n_samples_seen_ == 300
    assert model.stationarity(X) == 0
    free = OnlineNMF(3, divergence=divergence, random_state=0, max_passes=5).fit(X)
    assert model.loss(X) < 2 * free.loss(X)
    with pytest.raises(ValueError, match="NaN in the data"):
        OnlineNMF(3, divergence=divergence, fixed=W).fit(np.where(X.max() > X, X, np.nan))


@pytest.mark.parametrize("kind", [OnlineNMF, BatchNMF])
def test_a_feature_that_no_component_can_fit_raises_an_error_where_fits_must_be_positive(
    kind: Any, rng: np.random.Generator
) -> None:
    X, lacking = data(60, rng), FIXED * (np.arange(F) != 4)
    with pytest.raises(ValueError, match=r"no weight at feature 4 .* kl is not defined .* raise n_components"):
        kind(2, fixed=lacking, divergence="kl").fit(X)
    for settings in ({"divergence": "squared_l2"}, {"n_components": 3}):
        model = kind(2, random_state=0).set_params(fixed=lacking, **settings).fit(X)
        np.testing.assert_array_equal(model.components_[:2], lacking)
        assert np.isfinite(model.loss(X))


# What cannot be


@pytest.mark.parametrize("kind", [OnlineNMF, BatchNMF])
@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        (np.ones((4, F)), "fixed has 4 components, and n_components=3 includes them; raise it to 4"),
        (-FIXED, "fixed has negative, NaN or infinite entries"),
        (np.full((1, F), np.nan), "fixed has negative, NaN or infinite entries"),
        (np.vstack([FIXED[0], np.zeros(F)]), "component 1 of fixed is all zeros"),
        (
            FIXED[0],
            r"fixed must be an array \(J, n_features\) of fixed components, .*; got an array of shape \(12,\)",
        ),
        (FIXED[:, 1:], "the fixed components have 11 features, the data 12"),
    ],
)
def test_arrays_that_are_no_components_raise_an_error(
    kind: Any, fixed: Any, words: str, rng: np.random.Generator
) -> None:
    with pytest.raises(ValueError, match=words):
        kind(3, fixed=fixed).fit(data(30, rng))


@pytest.mark.parametrize("other", [None, FIXED[:1], FIXED[::-1], FIXED * 0.5], ids=["none", "one", "order", "half"])
def test_fixed_components_cannot_be_changed_while_a_model_learns(other: Any, rng: np.random.Generator) -> None:
    X = data(60, rng)
    model = quick("auto", "kl", n_components=4, fixed=FIXED).fit(X)
    with pytest.raises(ValueError, match="fixed cannot be changed while a model learns"):
        model.set_params(fixed=other).partial_fit(X)
    with pytest.raises(ValueError, match="fixed cannot be changed while a model learns"):
        quick("auto", "kl", n_components=4, fixed=other).fit(X, resume_from=model)


# Files and runs that are cut


@pytest.mark.parametrize("method", ["surrogate", "em", "paper"])
def test_a_model_with_fixed_components_resumes_from_its_file_bit_for_bit(
    method: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    X, large = data(200, rng).astype(np.float32), FIXED * 3.0
    model = quick(method, "kl", n_components=4, fixed=large).partial_fit(X[:100])
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.fixed, large)
    assert_same_bits(loaded.partial_fit(X[100:]), model.partial_fit(X[100:]))


def test_a_run_with_fixed_components_is_resumed_bit_for_bit_and_with_no_others(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    X, settings = data(200, rng), {"n_components": 4, "batch_size": 50}
    quick("auto", "kl", **settings, fixed=FIXED, callbacks=[lambda p: p.samples >= 100]).fit(
        X, checkpoint=tmp_path / "c"
    )
    with pytest.raises(ValueError, match=r"begun with other settings \(fixed\)"):
        quick("auto", "kl", **settings, fixed=FIXED[::-1]).fit(X, checkpoint=tmp_path / "c", resume=True)
    resumed = quick("auto", "kl", **settings, fixed=FIXED).fit(X, checkpoint=tmp_path / "c", resume=True)
    assert_same_bits(resumed, quick("auto", "kl", **settings, fixed=FIXED).fit(X))


# The command line


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, result.output + str(result.exception or "")


@pytest.fixture
def notes(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A model of two components, learnt from a table, and the table of a mixture."""
    X, W = planted(rng)
    names = [f"f{i}" for i in range(F)]
    pd.DataFrame(rng.gamma(1.0, 1.0, (300, 2)) @ W[:2] + 1e-3, columns=names).to_csv(tmp_path / "solo.csv", index=False)
    pd.DataFrame(X, columns=names).to_csv(tmp_path / "mixture.csv", index=False)
    assert invoke("fit", tmp_path / "solo.csv", "-k", 2, "--seed", 0, "-o", tmp_path / "notes")[0] == 0
    return tmp_path


def test_the_components_of_a_model_file_are_kept_beside_new_ones(notes: Path) -> None:
    status, said = invoke(
        *("fit", notes / "mixture.csv", "-k", 3, "--seed", 0, "--no-shuffle"),
        *("--fixed", notes / "notes", "-o", notes / "both"),
    )
    assert status == 0, said
    known, both = load(notes / "notes"), load(notes / "both")
    np.testing.assert_array_equal(both.components_[:2], known.components_)
    expected = OnlineNMF(3, fixed=known.components_, random_state=0, shuffle=False)
    expected.fit(pd.read_csv(notes / "mixture.csv"))
    np.testing.assert_allclose(both.components_, expected.components_, rtol=1e-9)
    assert "fixed components" in invoke("info", notes / "both")[1]
    assert '"fixed_components": 2' in invoke("info", notes / "both", "--json")[1]
    assert invoke("fit", notes / "mixture.csv", "--from", notes / "both", "-o", notes / "more")[0] == 0
    np.testing.assert_array_equal(load(notes / "more").components_[:2], known.components_)


def test_their_features_are_those_of_the_data_by_name(notes: Path) -> None:
    frame, known = pd.read_csv(notes / "mixture.csv"), load(notes / "notes")
    frame[frame.columns[::-1]].to_csv(notes / "turned.csv", index=False)
    status, said = invoke("fit", notes / "turned.csv", "-k", 3, "--fixed", notes / "notes", "-o", notes / "both")
    assert status == 0, said
    both = load(notes / "both")
    mine, theirs = (dict(zip(m.feature_names_in_, m.components_.T[:, :2].tolist(), strict=True)) for m in (both, known))
    assert mine == theirs
    names = [f"f{i}" for i in range(F)]
    np.testing.assert_array_equal(aligned(FIXED, names, names[::-1]), FIXED[:, ::-1])
    np.testing.assert_array_equal(aligned(FIXED, None, names), FIXED)
    for other in ("extra", "f0"):
        with pytest.raises(ValueError, match=r"feature .* that the .* lack; read both with the same columns"):
            aligned(FIXED, names, [*names[1:], other] if other != "f0" else names[1:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="f3"), "f3"),
        (lambda frame: frame.rename(columns={"f3": "other"}), "f3"),
    ],
)
def test_a_table_without_their_features_raises_an_error(notes: Path, change: Any, words: str) -> None:
    change(pd.read_csv(notes / "mixture.csv")).to_csv(notes / "other.csv", index=False)
    status, said = invoke("fit", notes / "other.csv", "-k", 3, "--fixed", notes / "notes", "-o", notes / "both")
    assert status
    assert words in said
    assert not (notes / "both").exists()


def test_an_array_with_other_features_and_a_fixed_file_as_output_raise_an_error(notes: Path) -> None:
    np.save(notes / "x.npy", np.ones((20, 5)))
    status, said = invoke("fit", notes / "x.npy", "-k", 3, "--fixed", notes / "notes", "-o", notes / "both")
    assert status == 2
    assert "the components of --fixed have 12 features, the data 5; read the data as that model's were read" in said
    status, said = invoke("fit", notes / "mixture.csv", "-k", 3, "--fixed", notes / "notes", "-o", notes / "notes")
    assert status == 2
    assert "is an input; give --out another name" in said


# What it is for


@pytest.mark.parametrize("divergence", ["is", "kl"])
def test_a_source_whose_components_are_known_is_heard_six_decibels_better(divergence: str) -> None:
    mixed = planted_mixture(seed=0, frames=600)
    assert mixed.ratio(share_of_known(mixed, divergence)) > mixed.ratio_before + 6


def test_the_components_of_several_model_files_add_up(notes: Path, rng: np.random.Generator) -> None:
    _, W = planted(rng)
    names = [f"f{i}" for i in range(F)]
    alone = pd.DataFrame(rng.gamma(1.0, 1.0, (300, 1)) @ W[2:3] + 1e-3, columns=names)
    alone.to_csv(notes / "other.csv", index=False)
    assert invoke("fit", notes / "other.csv", "-k", 1, "-o", notes / "third")[0] == 0
    given = "--fixed", notes / "notes", "--fixed", notes / "third"
    status, said = invoke("fit", notes / "mixture.csv", "-k", 3, *given, "-o", notes / "all")
    assert status == 0, said
    W = np.concatenate([load(notes / name).components_ for name in ("notes", "third")])
    np.testing.assert_array_equal(load(notes / "all").components_, W)
    status, said = invoke("fit", notes / "mixture.csv", "-k", 2, *given, "-o", notes / "few")
    assert (status, "fixed has 3 components, and n_components=2 includes them" in said) == (1, True)
    alone.iloc[:, 1:].to_csv(notes / "other.csv", index=False)
    assert invoke("fit", notes / "other.csv", "-k", 1, "-o", notes / "narrow")[0] == 0
    given = "--fixed", notes / "notes", "--fixed", notes / "narrow"
    status, said = invoke("fit", notes / "mixture.csv", "-k", 4, *given, "-o", notes / "all")
    assert (status, "the models of --fixed have 11 and 12 features" in said) == (2, True)
