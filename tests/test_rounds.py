"""Data in partitions, learnt from in rounds: what holds whoever computes.

Here that is Dask's scheduler in this process; tests/test_cluster.py has a real cluster.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import onmf
from onmf import BatchNMF, Checkpoint, DataError, OnlineNMF
from onmf.data import Rows, SourceError, open_source
from onmf.distributed import partitioned, worker
from onmf.distributed.cluster import Sealed
from onmf.distributed.driver import START
from onmf.distributed.partitions import starts
from onmf.distributed.window import Open, cuts_of_round, cuts_of_start
from onmf.distributed.worker import Facts
from onmf.learner.config import Recipe
from onmf.learner.rounds import SHARE, RoundStart, finish_round, learn_shard, size_of_round
from onmf.learner.update import learn_batch
from onmf.methods import EM, SparseSurrogate, Surrogate
from onmf.persistence import file
from onmf.samples import Samples
from tests.conftest import mahalanobis, require_same_learning

F, K = 12, 3


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    """Dask computes in this thread."""
    with dask.config.set(scheduler="sync"):
        yield


PLANTED = np.random.default_rng(99).gamma(0.5, 1.0, (K, F)) + 0.05
NEAR = 0.5 * PLANTED + 0.5 * PLANTED.mean(axis=0)  # a start from which all runs come to the same minimum


def samples(n: int, seed: int = 0) -> np.ndarray:
    """Counts of one planted dictionary."""
    rng = np.random.default_rng(seed)
    return rng.poisson(20 * rng.gamma(1.0, 1.0, (n, K)) @ PLANTED).astype(float) + 1.0


X, HELD_OUT = samples(9000), samples(500, 1)
D = da.from_array(X, chunks=(900, F))
FEW = 3600  # where quality is compared in many cases


def quick(**settings: Any) -> OnlineNMF:
    return OnlineNMF(**({"n_components": K, "random_state": 0} | settings))


@cache
def in_sequence() -> OnlineNMF:
    """What one machine learns; not to be changed."""
    return quick().fit(X)


@cache
def in_rounds() -> OnlineNMF:
    """What is learnt from partitions; not to be changed."""
    with dask.config.set(scheduler="sync"):
        return quick().fit(D)


def skipping(model: OnlineNMF) -> OnlineNMF:
    """A model that has learnt the same and leaves out what it cannot read."""
    return copy(model).set_params(on_error="skip")


# How large a round is


@pytest.mark.parametrize("method", [Surrogate(), Surrogate(tau=5), Surrogate(sparse=True), EM(), SparseSurrogate()])
def test_a_round_has_at_most_half_as_many_samples_as_came_before_and_grows_to_all_shards(method: Any) -> None:
    for most in (1, 2, 8, 64):
        before = 0
        for clock in np.geomspace(100, 1e8, 60):
            shards, rows = size_of_round(method, float(clock), most)
            assert 1 <= shards <= most
            assert rows == method.chunks_per_round * method.usual_chunk(clock / shards)
            assert shards == 1 or shards * rows <= SHARE * clock
            assert shards >= before - 1  # as chunks grow, one shard fewer may hold the same
            before = shards
        assert shards == most


lengths = st.lists(st.integers(0, 3000), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(lengths, st.integers(1, 9), st.integers(1, 2000))
def test_every_row_is_learnt_from_once_whatever_the_partitions(rows: list[int], shards: int, size: int) -> None:
    window = [Open(number, None, Facts(n)) for number, n in enumerate(rows)]
    met: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(rows))}
    for cut in cuts_of_start(window, 500):
        met[cut.number].append((cut.first, cut.last))
    while round_of := cuts_of_round(window, shards, size):
        assert len(round_of) <= shards
        for each in round_of:
            number = sum(cut.last - cut.first for cut in each)
            assert number <= 2 * size or number < 2
            for cut in each:
                met[cut.number].append((cut.first, cut.last))
    for number, cuts in met.items():
        assert [place for first, last in sorted(cuts) for place in range(first, last)] == list(range(rows[number]))


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 5000), st.integers(1, 700), st.integers(1, 900), st.lists(st.integers(1, 5000), max_size=20))
def test_ranges_begin_at_edges_and_are_not_too_long(n: int, rows: int, most: int, places: list[int]) -> None:
    edges = sorted({0, *places})
    for given_edges in (None, edges):
        found = starts(n, rows, max(rows, most), given_edges)
        assert found[0] == 0
        assert found == sorted(set(found))
        longest = max(np.diff([*found, n]))
        assert longest <= max(rows, 1.5 * max(rows, most) + 1)


# What is learnt

KINDS: dict[str, tuple[Any, Any]] = {
    "an array": (D, X),
    "columns in pieces": (da.from_array(X, chunks=(900, 5)), X),
    "pieces of all lengths": (da.from_array(X, chunks=((1, 2999, 50, 4000, 1950), (F,))), X),
    "single precision": (D.astype(np.float32), X.astype(np.float32)),
    "whole numbers": (D.astype(np.int64), X),
    "a sparse matrix each": (D.map_blocks(scipy.sparse.csr_matrix, dtype=float), scipy.sparse.csr_matrix(X)),
    "by columns": (D.map_blocks(scipy.sparse.csc_matrix, dtype=float), scipy.sparse.csr_matrix(X)),
    "unknown lengths": (D[D[:, 0] >= 0], X),
    "a data frame": (dd.from_pandas(pd.DataFrame(X, columns=list("abcdefghijkl")), npartitions=7), X),
}


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_dask_are_learnt_from_as_well_as_those_in_memory(kind: str) -> None:
    data, plain = KINDS[kind]
    model, sequence = quick().fit(data), in_sequence() if plain is X else quick().fit(plain)
    assert model.n_samples_seen_ == len(X)
    assert model.components_.dtype == sequence.components_.dtype
    assert model.components_.flags.writeable
    assert model.n_steps_ > 20
    assert type(model.method_) is type(sequence.method_)
    held_out = HELD_OUT.astype(plain.dtype)
    if kind == "a data frame":
        assert list(model.feature_names_in_) == list("abcdefghijkl")
        held_out = pd.DataFrame(HELD_OUT, columns=model.feature_names_in_)
    assert model.loss(held_out) <= 1.01 * sequence.loss(held_out if kind != "a data frame" else HELD_OUT)
    history = model.history_
    assert history["samples"][-1] == len(X)
    assert history["loss"][-1] < history["loss"][0]
    np.testing.assert_allclose(model.usage_.sum(), 1)


LEARNT: dict[str, dict[str, Any]] = {
    "is": {"divergence": "is"},
    "squared_l2": {"divergence": "squared_l2"},
    "l1": {"divergence": "l1"},
    "huber": {"divergence": "huber"},
    "huber:5": {"divergence": "huber:5"},
    "beta": {"divergence": "beta:1.5"},
    "mahalanobis": {"divergence": mahalanobis(F)[0]},
    "em": {"method": "em"},
    "em, alpha": {"method": "em", "divergence": "alpha:2"},
    "sparse_surrogate": {"method": "sparse_surrogate"},
    "diagonals": {"method": "surrogate:max_memory=0"},
    "forgetting": {"method": "auto:forgetting=0.3"},
    "penalties": {"l1_coefficients": 0.05, "l2_dictionary": 0.05},
    "penalties, em": {"method": "em", "l2_coefficients": 0.05, "l1_dictionary": 0.05},
    "simplex": {"coefficients": "simplex", "divergence": "squared_l2"},
    "two passes": {"max_passes": 2},
    "in order": {"shuffle": False},
    "clipped": {"clip": (2.0, 60.0)},
    "uniform": {"init": "uniform"},
}


@pytest.mark.parametrize("case", LEARNT)
def test_shards_learn_whatever_a_sequence_learns(case: str) -> None:
    given = {} if case == "simplex" else {"init": NEAR}
    model, sequence = (quick(**given | LEARNT[case]).fit(data) for data in (D[:FEW], X[:FEW]))
    assert model.loss(HELD_OUT) <= 1.03 * sequence.loss(HELD_OUT)
    assert model.n_samples_seen_ == FEW * model.max_passes
    assert model.n_iter_ == model.max_passes
    if case == "huber":  # it follows the residuals on shards, too
        assert model.delta_ != quick(divergence="huber").fit(X[:200]).delta_
        assert model.delta_ == pytest.approx(sequence.delta_, rel=0.1)
    if case == "simplex":
        np.testing.assert_allclose(model.transform(HELD_OUT).sum(axis=1), 1)


def test_fixed_components_stay_bit_for_bit() -> None:
    known = np.random.default_rng(3).random((2, F)) + 0.1
    model = quick(fixed=known / known.max(axis=1, keepdims=True)).fit(D[:FEW])
    np.testing.assert_array_equal(model.components_[:2], known / known.max(axis=1, keepdims=True))
    for method in ("em", "sparse_surrogate", "surrogate:max_memory=0"):
        model = quick(fixed=known / known.max(axis=1, keepdims=True), method=method).fit(D[:FEW])
        np.testing.assert_array_equal(model.components_[:2], known / known.max(axis=1, keepdims=True))


def test_the_schedulers_of_dask_and_two_runs_give_the_same_bits() -> None:
    first = quick(max_passes=2, shards=4).fit(D)
    with dask.config.set(scheduler="threads"):
        require_same_learning(first, quick(max_passes=2, shards=4).fit(D))
    assert not np.array_equal(first.components_, quick(max_passes=2, shards=4, random_state=1).fit(D).components_)


def test_how_many_shards_there_are_is_a_setting_and_one_is_plain_learning() -> None:
    models = {shards: quick(shards=shards).fit(D) for shards in (1, 2, 10)} | {None: in_rounds()}
    require_same_learning(models[10], models[None])  # ten partitions
    assert len({model.components_.tobytes() for model in models.values()}) == 3
    losses = [model.loss(HELD_OUT) for model in models.values()]
    assert max(losses) <= 1.01 * min(losses)


def test_scaling_the_data_scales_the_answer_and_not_the_quality() -> None:
    one, other = in_rounds(), quick().fit(D * 1024)
    np.testing.assert_array_equal(one.components_, other.components_)
    assert other.loss(HELD_OUT * 1024) == pytest.approx(1024 * one.loss(HELD_OUT))


def test_partitions_that_are_empty_or_short_are_no_hindrance() -> None:
    odd = da.concatenate([D[:0], D[:1], D[1:901], D[:0], D[901:]])
    odd = odd.rechunk({0: (1, 900, 8099)})
    empty = da.from_delayed(dask.delayed(np.zeros)((0, F)), shape=(np.nan, F), dtype=float)
    model = quick().fit(da.concatenate([empty, odd, empty]))
    assert model.n_samples_seen_ == len(X)
    with pytest.raises(DataError, match=r"No batch could be learnt from\. All partitions are empty\."):
        quick().fit(empty)
    few = quick().fit(D[:150])  # fewer than a start
    assert few.n_samples_seen_ == 150


# Weights, missing values


def test_weights_of_samples_are_those_of_one_machine() -> None:
    weights = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
    model = quick().fit(D, sample_weight=weights)
    assert model.n_samples_seen_ == np.count_nonzero(weights)
    for given_weights in (da.from_array(weights, chunks=1234), da.from_array(weights, chunks=900)):
        require_same_learning(model, quick().fit(D, sample_weight=given_weights))
    sequence = quick().fit(X, sample_weight=weights)
    assert model.loss(HELD_OUT) <= 1.01 * sequence.loss(HELD_OUT)
    assert model.loss(D, sample_weight=weights) == pytest.approx(model.loss(X, sample_weight=weights))
    frame = dd.from_pandas(pd.DataFrame(X).assign(w=weights), npartitions=5).rename(columns=str)
    assert quick().fit(frame.drop(columns=["w"]), sample_weight=frame["w"]).n_samples_seen_ == np.count_nonzero(weights)


def test_weights_of_entries_and_missing_values_are_those_of_one_machine() -> None:
    present = (np.random.default_rng(2).random(X.shape) < 0.7).astype(float)
    holes = np.where(present > 0, X, np.nan)
    model = quick().fit(D, weights=da.from_array(present, chunks=(2000, 5)))
    require_same_learning(model, quick().fit(D, weights=present))
    missing = quick(missing="nan", init=NEAR).fit(da.from_array(holes, chunks=(900, F)))
    sequence = quick(missing="nan", init=NEAR).fit(holes)
    assert missing.loss(HELD_OUT) <= 1.03 * sequence.loss(HELD_OUT)
    assert model.loss(D, weights=present) == pytest.approx(model.loss(X, weights=present))
    known = scipy.sparse.csr_matrix(np.where(present > 0, X, 0))
    blocks = [dask.delayed(known[first : first + 900]) for first in range(0, len(X), 900)]
    ratings = da.concatenate([da.from_delayed(each, (900, F), float, meta=known[:0]) for each in blocks])
    assert quick(implicit="missing").fit(ratings).loss(known) < 1.05 * quick(implicit="missing").fit(known).loss(known)


def test_what_is_never_known_is_said_as_on_one_machine() -> None:
    holes = X.copy()
    holes[:, 3] = np.nan
    with pytest.warns(UserWarning, match="Feature .* was missing in every sample"):
        quick(missing="nan").fit(da.from_array(holes, chunks=(900, F)))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"sample_weight": np.ones(5)}, "sample_weight must have one entry per sample, 9000 in all"),
        ({"sample_weight": da.ones(9000, chunks=900) * -1}, "Partition 0: sample_weight must be finite and not neg"),
        ({"weights": np.ones((9000, 5))}, "weights must have the shape of X"),
    ],
)
def test_weights_that_do_not_fit_raise_an_error(weights: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        quick(shuffle=False).fit(D, **weights)


def test_weights_of_unknown_partitions_raise_an_error_unless_they_come_in_the_same() -> None:
    unknown = D[D[:, 0] >= 0]
    with pytest.raises(ValueError, match="how many rows each partition of X has is not known"):
        quick().fit(unknown, sample_weight=np.ones(len(X)))
    with pytest.raises(ValueError, match="sample_weight has 3 partitions and X has 10"):
        quick().fit(unknown, sample_weight=da.ones(9000, chunks=3000))
    assert quick().fit(unknown, sample_weight=da.ones(9000, chunks=900)).n_samples_seen_ == 9000


# What cannot be learnt from


def spoilt() -> np.ndarray:
    bad = X.copy()
    bad[1801, 4] = -1.0
    bad[1900, 0] = np.nan
    bad[7000, 2] = np.inf
    return bad


def test_a_bad_row_is_named_with_its_partition_or_skipped_and_counted() -> None:
    data = da.from_array(spoilt(), chunks=(900, F))
    with pytest.raises(DataError, match=r"^Partition 2: Negative values in data, the first -1, at row 1801, column 4"):
        quick(shuffle=False).fit(data)
    model = quick(on_error="skip").fit(data)
    assert model.n_skipped_ == 3
    assert sorted(reason[:21] for reason in model.skipped_) == [
        *("Partition 2: NaN in t", "Partition 2: Negative", "Partition 7: Infinity"),
    ]
    assert model.n_samples_seen_ == len(X) - 3
    assert model.loss(HELD_OUT) <= 1.01 * in_sequence().loss(HELD_OUT)


def test_a_partition_that_cannot_be_computed_is_named_or_skipped_and_counted() -> None:
    def fail_at(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info and block_info[0]["chunk-location"][0] == 4:
            raise RuntimeError("the disk is on fire")
        return block

    data = D.map_blocks(fail_at, dtype=float)
    with pytest.raises(SourceError, match=r"^Partition 4 cannot be computed: the disk is on fire"):
        quick().fit(data)
    model = quick(on_error="skip").fit(data)
    assert (model.n_skipped_, model.n_samples_seen_) == (1, 8100)
    assert model.skipped_ == ["Partition 4 cannot be computed: the disk is on fire"]


def test_a_partition_with_other_features_is_named() -> None:
    wrong = da.from_delayed(dask.delayed(np.ones)((900, F + 1)), shape=(900, F), dtype=float)
    with pytest.raises(SourceError, match=f"Partition 10: it has {F + 1} features, not {F}"):
        quick(shuffle=False).fit(da.concatenate([D, wrong]))
    assert quick(on_error="skip").fit(da.concatenate([D, wrong])).n_samples_seen_ == 9000


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_a_shard_cannot_compute_with_cost_its_part_of_the_round() -> None:
    large = X.copy()
    large[8500] = 1e300
    model = quick(on_error="skip", shards=3).fit(da.from_array(large, chunks=(900, F)))
    assert model.n_skipped_ == 1
    assert "too large" in model.skipped_[0]
    assert model.n_samples_seen_ < len(X)
    assert model.loss(HELD_OUT) <= 1.02 * in_sequence().loss(HELD_OUT)
    with pytest.raises(DataError, match="too large"):
        quick(shards=3).fit(da.from_array(large, chunks=(900, F)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("row", [700, START - 100], ids=["in the midst", "at the end"])
def test_a_bad_batch_of_the_start_is_an_error_or_costs_itself(row: int) -> None:
    large = X.copy()
    large[row] = 1e300
    data, given = da.from_array(large, chunks=(900, F)), {"shuffle": False, "shards": 1, "batch_size": 500}
    model = quick(on_error="skip", **given).fit(data)
    assert (model.n_skipped_, model.n_samples_seen_) == (1, len(X) - 500)
    with pytest.raises(DataError, match="too large"):
        quick(**given).fit(data)


def test_learning_begins_after_partitions_of_zeros() -> None:
    zeros = da.zeros((4000, F), chunks=(4000, F))
    with pytest.raises(DataError, match="The samples are all zeros"):
        quick(shuffle=False, shards=1).fit(zeros)
    model = quick(shuffle=False, shards=1).fit(da.concatenate([zeros, D]))
    assert model.n_skipped_ == 0
    assert model.loss(HELD_OUT) <= 1.02 * in_sequence().loss(HELD_OUT)


@pytest.mark.parametrize(
    ("settings", "data", "words"),
    [
        ({"method": "paper"}, D, "method 'paper' cannot learn on shards: it learns sample by sample"),
        ({"method": "guan", "divergence": "squared_l2"}, D, "method 'guan' cannot learn on shards"),
        ({"reservoir": 50}, D, "a reservoir mixes the samples of one stream"),
        ({"shards": 0}, D, "shards must be a whole number of at least 1"),
        ({}, D[:, 0], "X must have two dimensions"),
        ({}, D.astype(complex), "X must hold real numbers"),
        ({}, D.astype(str), "X must hold real numbers"),
        ({}, dd.from_pandas(pd.DataFrame({"a": [1.0], "name": ["x"]}), npartitions=1), "the column 'name' of the data"),
    ],
)
def test_what_cannot_be_learnt_on_shards_raises_an_error_before_anything_is_read(
    settings: dict[str, Any], data: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        quick(**settings).fit(data)


def test_every_method_takes_part_or_says_why_not() -> None:
    for name in onmf.methods.names():
        divergence = {"lefevre": "is", "guan": "squared_l2", "wang": "huber"}.get(name, "kl")
        model = quick(method=name, divergence=divergence)
        if getattr(onmf.methods.get(name), "why_not_on_shards", ""):
            with pytest.raises(ValueError, match=f"method '{name}' cannot learn on shards: "):
                model.fit(D)
        else:
            assert model.fit(D).n_samples_seen_ == len(X)


def test_what_takes_arrays_in_memory_says_what_takes_dask() -> None:
    model = in_rounds()
    for call in (model.stationarity, model.complete, BatchNMF(3).fit, lambda data: onmf.select_rank(data, [2, 3])):
        with pytest.raises(TypeError, match=r"not Dask collections; OnlineNMF's fit, .* else pass X.compute\(\)"):
            call(D)


# What is told


def test_callbacks_are_told_of_every_round_and_can_end_the_fit() -> None:
    told: list[onmf.Progress] = []
    model = quick(callbacks=[told.append], max_passes=2).fit(D)
    assert [each.samples for each in told] == model.history_["samples"].tolist()[-len(told) :]
    assert sum(each.new for each in told) == 2 * len(X)
    assert {each.total for each in told} == {2 * len(X)}
    assert all(each.H is None for each in told)
    assert told[0].samples == START
    for before, after in pairwise(told):
        assert after.phases is not None
        assert list(after.phases) == ["read", "learn", "merge"]
        assert all(after.phases[name] >= before.phases[name] >= 0 for name in after.phases)  # type: ignore[index]
        assert after.seconds >= before.seconds
    assert not np.array_equal(told[0].W, told[-1].W)
    ended = quick(callbacks=[lambda progress: progress.samples > 4000]).fit(D)
    assert 4000 < ended.n_samples_seen_ < len(X)


def test_a_stream_that_changes_is_noticed_and_zeros_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    other = np.random.default_rng(5).gamma(0.3, 30.0, (9000, F)) + 1
    data = da.concatenate([D, da.from_array(other, chunks=(900, F))])
    told: list[onmf.Progress] = []
    quick(shuffle=False, shards=2, method="auto:tau=5", callbacks=[told.append]).fit(data)
    assert any(each.drifted for each in told)
    assert "The stream has changed" in caplog.text
    zeros = D.copy()
    zeros[5] = 0
    with pytest.warns(onmf.DomainWarning, match="once per fit"):
        quick(divergence="is").fit(zeros)


# Resuming


def test_partial_fit_learns_in_one_pass_and_an_error_leaves_the_model_as_it_was() -> None:
    model = quick(max_passes=3).partial_fit(D[:4500]).partial_fit(D[4500:])
    assert (model.n_samples_seen_, model.n_iter_) == (len(X), 1)
    assert model.loss(HELD_OUT) <= 1.01 * in_sequence().loss(HELD_OUT)
    model.partial_fit(samples(300, 4))  # and with what is in memory
    assert model.n_samples_seen_ == len(X) + 300
    before = model._learned
    with pytest.raises(DataError, match="Partition 2"):
        model.partial_fit(da.from_array(spoilt(), chunks=(900, F)))
    with pytest.raises(ValueError, match="X has 5 features, but the model was learnt from 12"):
        model.partial_fit(D[:, :5])
    assert model._learned is before
    skipping = quick(on_error="skip").partial_fit(np.full((3, F), np.nan))
    assert skipping.partial_fit(da.from_array(spoilt(), chunks=(900, F))).n_skipped_ == 4


def stopped(after: int) -> Any:
    return lambda progress: progress.samples >= after


def test_a_run_that_stops_after_any_round_and_is_resumed_ends_with_the_same_bits(tmp_path: Path) -> None:
    given = {"max_passes": 2, "divergence": "huber", "on_error": "skip"}
    data = da.from_array(spoilt(), chunks=(900, F))
    keep, kept = tmp_path / "run", list[Path]()

    def keep_checkpoint(progress: onmf.Progress) -> None:
        if keep.exists():
            kept.append(Path(shutil.copy(keep, tmp_path / f"before-{progress.samples}")))

    whole = quick(**given, callbacks=[keep_checkpoint]).fit(data, checkpoint=Checkpoint(keep, every=0))
    seen = [onmf.load(path).n_samples_seen_ for path in kept]
    assert seen[0] == START
    assert any(START < n < 8997 for n in seen)
    assert any(n > 8997 for n in seen)  # in the second pass
    for number, path in enumerate((*kept[::4], keep)):
        verify = number % 2 == 1
        resumed = quick(**given).fit(data, checkpoint=Checkpoint(path, every=0, verify=verify), resume=True)
        require_same_learning(resumed, whole)
        assert (resumed.n_skipped_, resumed.n_iter_) == (whole.n_skipped_, 2)
        np.testing.assert_array_equal(onmf.load(path).components_, whole.components_)


def test_a_run_is_not_resumed_with_other_data_settings_or_without_dask(tmp_path: Path) -> None:
    keep = tmp_path / "run"
    quick(callbacks=[stopped(4000)]).fit(D, checkpoint=keep)
    model = quick()

    def resume(data: Any, verify: bool = False, **settings: Any) -> None:
        quick(**settings).fit(data, checkpoint=Checkpoint(keep, verify=verify), resume=True)

    with pytest.raises(ValueError, match="the data have 5 partitions, those of the checkpoint 10"):
        resume(D.rechunk((1800, F)))
    with pytest.raises(ValueError, match=r"other settings .*shards None, not 2"):
        resume(D, shards=2)
    with pytest.raises(ValueError, match="this run was learnt with Dask"):
        resume(X)
    with pytest.raises(SourceError, match=r"partition \d differs from the one it has learnt from"):
        resume(D + 1)
    plain = tmp_path / "plain"
    model.set_params(callbacks=[stopped(1000)], batch_size=500).fit(X, checkpoint=plain)
    with pytest.raises(ValueError, match="this run was learnt without Dask"):
        quick(batch_size=500).fit(D, checkpoint=plain, resume=True)
    resume(D)


def test_verify_compares_partitions_that_were_finished_too(tmp_path: Path) -> None:
    given = {"shards": 2, "shuffle": False}
    quick(**given, callbacks=[stopped(8500)]).fit(D, checkpoint=tmp_path / "run")
    changed = X.copy()
    changed[3] += 1  # long done with
    other = da.from_array(changed, chunks=(900, F))
    quick(**given, callbacks=[stopped(8500)]).fit(other, checkpoint=tmp_path / "run", resume=True)
    with pytest.raises(SourceError, match="the first 10 partitions of pass 1 differ"):
        quick(**given).fit(other, checkpoint=Checkpoint(tmp_path / "run", verify=True), resume=True)


def test_a_model_learns_from_new_data_of_dask_or_without(tmp_path: Path) -> None:
    model = in_rounds()
    onmf.save(model, tmp_path / "m")
    more = quick().fit(D, resume_from=tmp_path / "m")
    assert more.n_samples_seen_ == 2 * len(X)
    assert quick().fit(X, resume_from=more).n_samples_seen_ == 3 * len(X)
    assert quick().fit(D, resume_from=in_sequence()).n_samples_seen_ == 2 * len(X)
    require_same_learning(onmf.load(tmp_path / "m"), model)


# Files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(F)])
    np.save(folder / "x.npy", X)
    frame.to_parquet(folder / "x.parquet", row_group_size=700)
    for name in ("parquet", "csv", "npy", "npz"):
        (folder / name).mkdir()
    for first in range(0, len(X), 1000):
        part = frame[first : first + 1000]
        part.to_parquet(folder / "parquet" / f"{first:05}.parquet", index=False)
        part.to_csv(folder / "csv" / f"{first:05}.csv", index=False)
        np.save(folder / "npy" / f"{first:05}.npy", part.to_numpy())
        scipy.sparse.save_npz(folder / "npz" / f"{first:05}.npz", scipy.sparse.csr_matrix(part.to_numpy()))
    import h5py
    import zarr

    zarr.create_array(folder / "x.zarr", data=X, chunks=(800, 5))
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(512, F))
    return folder


TEXTS = ["x.npy", "x.parquet", "parquet:parquet", "parquet/*.parquet", "csv:csv/*.csv", "npy:npy", "npz:npz/*.npz"]
TEXTS += ["x.zarr", "x.h5"]


@pytest.mark.parametrize("text", TEXTS)
def test_files_are_read_in_parts_that_together_are_all(text: str, files: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(files)
    data = partitioned(text, rows=1500)
    monkeypatch.chdir("/")  # a worker may be anywhere
    parts = [reader(*inputs, skip=False) for reader, inputs in map(data.read, range(len(data)))]
    together = np.concatenate([part.batch.toarray() if "npz" in text else part.batch for part in parts])
    np.testing.assert_allclose(together, X)
    if data.n_samples is not None:
        assert data.n_samples == len(X)
        np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), np.arange(len(X)))
        assert all(length <= 1500 for length in data.lengths if length)
    model = quick().fit(data)
    assert model.n_samples_seen_ == len(X)
    assert model.source_.scheme == {"h5": "hdf5"}.get(end := text.partition(":")[0].rpartition(".")[2], end)
    H = model.transform(data)
    rows = data.n_samples
    assert H.shape[1] == K
    assert H.shape[0] == rows or (rows is None and np.isnan(H.shape[0]))
    plain = pd.DataFrame(X, columns=data.feature_names) if data.feature_names else X
    plain = scipy.sparse.csr_matrix(X) if "npz" in text else plain
    np.testing.assert_allclose(H.compute(), model.transform(plain), rtol=1e-6)


def test_the_usual_partitions_are_a_64th_of_the_rows_and_begin_where_reading_does(files: Path) -> None:
    assert set(partitioned(files / "x.npy").lengths) == {1000}
    assert set(partitioned(files / "x.parquet").lengths) == {700, 600}
    assert set(partitioned(open_source(files / "x.zarr")).lengths) == {800, 1000}
    assert len(partitioned(files / "x.npy", rows=100)) == 90


def test_weights_and_names_of_rows_come_with_tables(files: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(F)]).assign(name=[f"r{n}" for n in range(len(X))])
    frame["w"] = np.random.default_rng(0).integers(0, 3, len(X))
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=1000)
    model = quick().fit(partitioned(f"{tmp_path}/t.parquet?weight=w&index=name"))
    assert model.n_samples_seen_ == np.count_nonzero(frame["w"])
    assert model.n_features_in_ == F


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Rows(X), "only data that lie in files can be read by workers; give the text .* dask.array.from_array"),
        ("csv/00000.csv", "can be read only from front to back, so that workers cannot share it"),
        ("nothing.npy", "no such file or folder"),
        ("csv:none/*.csv", "matches no files"),
    ],
)
def test_what_cannot_be_read_in_parts_raises_an_error_with_a_cure(
    data: Any, words: str, files: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(files)
    with pytest.raises(SourceError, match=words):
        partitioned(data)
    with pytest.raises(ValueError, match="rows must be a whole number"):
        partitioned(files / "x.npy", rows=0)


def test_texts_of_several_files_need_no_vocabulary(tmp_path: Path) -> None:
    for number in range(3):
        lines = [f'{{"body": "apple pear plum number{number % 7} word{line % 11}"}}' for line in range(200)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    with pytest.raises(SourceError, match="have no vocabulary in common; give hashed="):
        partitioned(f"jsonl:{tmp_path}/*.jsonl?field=body")
    model = quick().fit(partitioned(f"jsonl:{tmp_path}/*.jsonl?field=body&hashed=500"))
    assert (model.n_samples_seen_, model.n_features_in_) == (600, 500)
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:03}.txt").write_text(f"some words and number {number % 5} here")
    data = partitioned(f"text:{folder}", rows=15)
    assert data.lengths == (15, 15, 10)
    assert quick().fit(data).n_samples_seen_ == 40


def test_a_file_that_vanishes_or_is_cut_is_named_or_skipped(files: Path, tmp_path: Path) -> None:
    for part in (files / "npy").iterdir():
        (tmp_path / part.name).write_bytes(part.read_bytes())
    data = partitioned(f"npy:{tmp_path}")
    (tmp_path / "04000.npy").unlink()
    (tmp_path / "05000.npy").write_bytes((tmp_path / "05000.npy").read_bytes()[:2000])
    with pytest.raises(SourceError, match=r"^Partition \d \(0[45]000\.npy\): .*0[45]000.npy"):
        quick().fit(data)
    model = quick(on_error="skip").fit(data)
    assert (model.n_skipped_, model.n_samples_seen_) == (2, 7000)


# Coefficients


def test_coefficients_fits_shares_and_losses_are_computed_when_they_are_asked_for() -> None:
    model = in_rounds()
    counted: list[int] = []

    def count(block: np.ndarray) -> np.ndarray:
        counted.append(len(block))
        return block

    watched = D.map_blocks(count, dtype=float, meta=np.empty((0, F)))
    H = model.transform(watched)
    assert isinstance(H, da.Array)
    assert (H.shape, H.dtype, H.chunks[0]) == ((9000, K), np.float64, D.chunks[0])
    assert counted == []
    np.testing.assert_array_equal(H[900:1800].compute(), model.transform(X[900:1800]))
    assert counted == [900]
    np.testing.assert_array_equal(H.compute(), model.transform(X))
    np.testing.assert_array_equal(model.proportions(D).compute(), model.proportions(X))
    np.testing.assert_allclose(model.inverse_transform(H).compute(), model.inverse_transform(model.transform(X)))
    assert model.loss(D) == pytest.approx(model.loss(X), rel=1e-12)
    assert model.score(D) == -model.loss(D)
    assert quick().fit_transform(D).shape == (9000, K)
    assert model.transform(D.astype(np.float32)).dtype == np.float32
    frame = KINDS["a data frame"][0]
    named = quick().fit(frame)
    assert named.transform(frame).compute().shape == (9000, K)
    with pytest.raises(ValueError, match="X has 5 features, but the model was learnt from 12"):
        model.transform(D[:, :5])
    with pytest.raises(ValueError, match="X has a feature 'b' where the model has 'a'"):
        named.transform(frame[list("bacdefghijkl")])


def test_rows_without_coefficients_are_an_error_or_nan_where_they_belong(files: Path, tmp_path: Path) -> None:
    model = in_rounds()
    bad = da.from_array(spoilt(), chunks=(900, F))
    with pytest.raises(DataError, match=r"Partition [27]: "):
        model.transform(bad).compute()
    H = skipping(model).transform(bad).compute()
    assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == [1801, 1900, 7000]
    kept = ~np.isnan(H).any(axis=1)
    np.testing.assert_allclose(H[kept], model.transform(X[kept]), rtol=1e-12)
    with pytest.raises(DataError, match=r"Partition [27]: "):
        model.loss(bad)


def test_a_batch_model_serves_data_of_dask_too() -> None:
    model = BatchNMF(K, max_iter=20, tol=0.1, random_state=0).fit(X[:500])
    # To rounding: BLAS may sum the last rows of a block in another order than rows inside of it.
    np.testing.assert_allclose(model.transform(D).compute(), model.transform(X), rtol=1e-12)


# On the wire


def misaligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at an odd address, read-only, as they may come over a wire."""
    buffer = bytearray(array.nbytes + 1)
    moved = np.frombuffer(memoryview(buffer)[1:], dtype=array.dtype).reshape(array.shape)
    moved[...] = array
    moved.flags.writeable = False
    assert not moved.flags.aligned
    return moved


@pytest.mark.parametrize("method", ["surrogate", "surrogate:max_memory=0", "em", "sparse_surrogate"])
def test_arrays_at_odd_addresses_give_the_same_bits(method: str) -> None:
    model = quick(method=method).fit(X[:3000])
    recipe, learned = Recipe.of(vars(model)), model._learned
    assert learned is not None
    state = learned.state
    memory = {name: misaligned(array) for name, array in state.memory.items()}
    odd_state = replace(state, W=misaligned(state.W), memory=memory)
    start, odd = (
        RoundStart.of(recipe, replace(learned, state=each), repeated=False, shards=2).received()
        for each in (state, odd_state)
    )
    parts = [Samples(X[3000:4000]), Samples(X[4000:5000])]
    found = [learn_shard(start, part, None) for part in parts]
    moved = []
    for each in (learn_shard(odd, part, None) for part in parts):
        assert each.sums is not None
        arrays = {name: misaligned(array) for name, array in each.sums.arrays.items()}
        moved.append(Sealed(replace(each, sums=replace(each.sums, arrays=arrays))))
    one = finish_round(start, found[0] + found[1]).state
    other = worker.finish(Sealed(odd), worker.merge(*moved)).state
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.W, other.W)
    for name, array in one.memory.items():
        np.testing.assert_array_equal(array, other.memory[name], err_msg=name)


def test_a_shard_is_sent_no_history_and_a_round_of_one_is_plain_learning() -> None:
    model = quick().fit(X[:6000])
    recipe, learned = Recipe.of(vars(model)), model._learned
    assert learned is not None
    start = RoundStart.of(recipe, learned, repeated=False, shards=1)
    assert len(start.learned.history.entries) == 1
    batch = Samples(X[6000:7000])
    result = worker.finish(Sealed(start), Sealed(learn_shard(start, batch, np.arange(1000))))
    assert result.state is not None
    np.testing.assert_array_equal(result.state.W, learn_batch(recipe, learned, batch).state.W)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keep = tmp_path_factory.mktemp("stopped") / "run"
    with dask.config.set(scheduler="sync"):
        quick(callbacks=[stopped(4000)]).fit(D, checkpoint=keep)
    return keep


NONSENSE: dict[str, tuple[Any, ...]] = {
    "kind": ("batches", None, "x", 3),
    "passes": (0, -1, 1.5, None, "x"),
    "seed": (-1, 1.5, None, "x"),
    "partitions": (0, 3, None, "x"),
    "begun": (-1, 11, None, "x"),
    "mark": (None, 3, "x" * 32),
}
OPENED = (
    None,
    3,
    [[1]],
    [[0, -1, "0" * 32]],
    [[99, 0, "0" * 32]],
    [[0, 0, "x" * 32]],
    [[0, 0, 5]],
    [[0, 0, "0" * 32]] * 2,
)


@pytest.mark.parametrize("name", [*NONSENSE, "opened"])
def test_a_position_where_no_run_could_stand_raises_an_error(name: str, stopped_run: Path, tmp_path: Path) -> None:
    arrays, facts = file.read(stopped_run)
    for value in NONSENSE.get(name, OPENED):
        changed, opened = dict(facts["position"]), arrays["position.opened"]
        if name == "opened":
            opened = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
        else:
            changed[name] = value
        file.write(tmp_path / "m", arrays | {"position.opened": opened}, facts | {"position": changed})
        with pytest.raises(file.ModelFileError, match="is damaged"):
            onmf.load(tmp_path / "m")


# Files and arguments at their edges


def test_rows_that_cannot_be_read_keep_their_place_in_files_of_unknown_length(tmp_path: Path) -> None:
    for number in range(3):
        lines = [",".join(f"{value:g}" for value in row) for row in X[100 * number : 100 * number + 100]]
        if number == 1:
            lines[7] = lines[7].replace(",", ",abc", 1)
        (tmp_path / f"{number}.csv").write_text("\n".join(lines) + "\n")
    model = skipping(in_sequence())
    H = model.transform(partitioned(f"csv:{tmp_path}/*.csv")).compute(scheduler="sync")
    assert (H.shape, np.flatnonzero(np.isnan(H[:, 0])).tolist()) == ((300, K), [107])
    np.testing.assert_allclose(np.delete(H, 107, axis=0), np.delete(model.transform(X[:300]), 107, axis=0), rtol=1e-3)


def test_files_of_a_folder_are_cut_into_ranges_of_rows_and_one_that_is_gone_becomes_nan(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", X[1000 * number : 1000 * number + 1000])
    data = partitioned(f"npy:{tmp_path}", rows=250)
    assert (data.lengths, data.n_samples) == ((250,) * 12, 3000)
    model = skipping(in_sequence())
    np.testing.assert_array_equal(model.transform(data).compute(scheduler="sync"), model.transform(X[:3000]))
    (tmp_path / "1.npy").unlink()
    H = model.transform(data).compute(scheduler="sync")
    assert (H.shape, np.flatnonzero(np.isnan(H[:, 0])).tolist()) == ((3000, K), list(range(1000, 2000)))
    with pytest.raises(SourceError, match=r"^Partition [4-7] \(1\.npy\): no such file or folder"):
        model.set_params(on_error="raise").transform(data).compute(scheduler="sync")


def test_what_workers_cannot_share_raises_an_error_with_the_cure() -> None:
    with pytest.raises(SourceError, match="workers cannot share standard input"):
        partitioned("csv:-")
    with pytest.raises(TypeError, match=r"partitioned opens files, and got ndarray; .* dask.array.from_array"):
        partitioned(X)  # type: ignore[arg-type]
    data = da.from_array(X, chunks=(900, F))
    with pytest.raises(ValueError, match="sample_weight must have one entry per sample"):
        quick().fit(data, sample_weight=da.ones(len(X) + 5, chunks=900))
