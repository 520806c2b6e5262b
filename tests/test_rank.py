"""The number of components: entries that no fit sees, what they say of ranks, and the command that shows it."""

from __future__ import annotations

import json
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF, RankSelection, select_rank
from onmf.cli.main import app
from onmf.data import Batches, Rows, Source, SourceError, shuffle
from onmf.divergences import Mahalanobis
from onmf.methods import EM
from onmf.samples import Samples
from onmf.selection.agreement import stability
from onmf.selection.holdout import HoldoutMask
from onmf.selection.rank import _judged, _suited, _turned, starts
from onmf.selection.runs import FitProgress
from tests.conftest import example_id
from tests.small import EXAMPLES, made_dense

PLANTED = 4
rng_ = np.random.default_rng(0)
W_ = rng_.gamma(0.5, 1.0, (PLANTED, 30))
X = rng_.poisson(rng_.gamma(0.5, 20.0, (400, PLANTED)) @ W_).astype(float)
NEW = rng_.poisson(rng_.gamma(0.5, 20.0, (200, PLANTED)) @ W_).astype(float)
QUICK: dict[str, Any] = {"n_seeds": 2, "max_passes": 4, "random_state": 0}
WEIGHING = [each for each in EXAMPLES if each.weighs_entries]


def held(speckle: HoldoutMask, source: Source, size: int = 64, seed: int | None = None) -> np.ndarray:
    """The mask of all samples, in the order of their numbers."""
    order = None if seed is None else np.random.default_rng(seed)
    mask = np.zeros((400, source.n_features), dtype=bool)
    for rows, batch in source.batches(size, order):
        mask[rows] = speckle.split(rows, batch)[1].entry_weights > 0
    return mask


# The recommendation


@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
def test_the_planted_number_of_components_is_recommended_where_the_loss_takes_the_largest(divergence: str) -> None:
    ranks = range(2, 7)
    found = select_rank(X, ranks, divergence=divergence, **QUICK)
    assert found.recommended == PLANTED
    assert found.stability[found.ranks.index(PLANTED)] > found.stability[found.ranks.index(PLANTED + 1)] + 0.1
    models = [OnlineNMF(K, divergence=divergence, max_passes=4, random_state=0).fit(X) for K in (PLANTED, 6)]
    few, many = (model.loss(NEW) for model in models)
    assert many < few


def test_sparse_data_sources_and_batches_lead_to_the_same_rank_as_arrays() -> None:
    dense = select_rank(X, (3, 4), **QUICK)
    assert np.array_equal(select_rank(sp.csr_matrix(X), (3, 4), **QUICK).losses, dense.losses)
    assert np.array_equal(select_rank(Rows(X), (3, 4), **QUICK).losses, dense.losses)
    assert select_rank(Batches(np.array_split(X.astype(np.float32), 7)), (4, 5), **QUICK).recommended == PLANTED


@pytest.mark.parametrize("kind", ["nan", "implicit"])
def test_entries_that_are_missing_anyway_are_no_part_of_it(kind: str, rng: np.random.Generator) -> None:
    gone = rng.random(X.shape) < 0.3
    if kind == "nan":
        found = select_rank(np.where(gone, np.nan, X), (3, 4, 5), missing="nan", **QUICK)
    else:
        stored = sp.csr_matrix(np.where(gone, 0, X + 1))  # no zero is known
        found = select_rank(stored, (3, 4, 5), implicit="missing", **QUICK)
    assert found.recommended == PLANTED


def test_the_same_seed_gives_the_same_table_and_another_one_other_entries() -> None:
    once, again = (select_rank(X, order, **QUICK) for order in ((3, 4), (4, 3, 4)))
    assert np.array_equal(once.losses, again.losses)
    assert not np.isclose(select_rank(X, (3, 4), **QUICK | {"random_state": 1}).losses, once.losses).any()


def test_ranks_are_no_longer_tried_once_the_loss_rises_for_every_seed() -> None:
    trials: list[FitProgress] = []
    found = select_rank(X, range(4, 31), patience=2, callback=trials.append, **QUICK)
    assert found.ranks == (4, 5, 6)
    assert found.not_tried == tuple(range(7, 31))
    assert [(trial.rank, trial.done, trial.total) for trial in trials[:3]] == [(4, 1, 54), (4, 2, 54), (5, 3, 54)]
    losses = np.array([[3.0, 3.0], [1.0, 2.0], [1.5, 1.9], [1.5, 2.5]])
    assert not _turned(losses, 2)  # one seed still prefers another rank
    assert _turned(losses, 1)
    assert not _turned(losses[:2], 1)


def test_of_a_source_only_a_few_batches_are_in_memory() -> None:
    alive, most = 0, 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def batches() -> Any:
        nonlocal alive, most
        rng = np.random.default_rng(0)
        for _ in range(40):
            batch = rng.gamma(1.0, 1.0, (100, 10))
            alive += 1
            most = max(most, alive)
            weakref.finalize(batch, gone)
            yield batch

    select_rank(Batches(batches), (2, 3), n_seeds=2, max_passes=1, batch_size=100)
    assert most <= 13  # 1024 samples are judged at a time


# What is held out


def test_the_held_out_entries_are_the_same_in_every_pass_order_and_batch_size() -> None:
    speckle = HoldoutMask(0.1, 7)
    mask = held(speckle, Rows(X))
    assert np.array_equal(held(speckle, Rows(X), 13, seed=1), mask)
    assert np.array_equal(held(speckle, shuffle(Batches(np.array_split(X, 9)), 100), 31), mask)
    assert np.array_equal(held(speckle, Rows(sp.csr_matrix(X)), 400), mask)


def test_about_the_share_is_held_out_of_every_row_column_and_of_the_zeros() -> None:
    mask, other = (held(HoldoutMask(0.1, seed), Rows(X)) for seed in (7, 8))
    assert abs(mask.mean() - 0.1) < 0.01
    assert abs(mask[X == 0].mean() - 0.1) < 0.02
    assert 0.02 < mask.mean(axis=0).min() < mask.mean(axis=0).max() < 0.2
    assert mask.mean(axis=1).max() < 0.5
    assert abs(other[mask].mean() - 0.1) < 0.03  # seeds are independent


def test_rows_with_names_are_held_out_by_their_names(tmp_path: Path) -> None:
    names = np.array(["a", "b", "c"] * 20, dtype=object)
    table = np.ones((60, 50))
    mask = HoldoutMask(0.2, 0).split(names, table)[1].entry_weights > 0
    assert np.array_equal(mask[:3], mask[3:6])
    assert not np.array_equal(mask[0], mask[1])
    assert abs(mask.mean() - 0.2) < 0.1


@pytest.mark.parametrize("sparse", [False, True])
def test_neither_dictionary_nor_coefficients_see_what_is_held_out(sparse: bool, rng: np.random.Generator) -> None:
    speckle = HoldoutMask(0.1, 3, implicit="missing" if sparse else "zero")
    full = X + 1
    other = np.where(held(HoldoutMask(0.1, 3), Rows(X)), rng.gamma(1.0, 1e3, X.shape), full)
    given = [sp.csr_matrix(each) if sparse else each for each in (full, other)]
    one, two = (OnlineNMF(3, random_state=0, max_passes=2).fit(speckle.without_held(Rows(each))) for each in given)
    assert np.array_equal(one.components_, two.components_)
    known, entries = zip(*(speckle.split(np.arange(400), each) for each in given), strict=True)
    assert np.array_equal(*map(one._inference().coefficients, known))
    judged = [one._inference().held_out_losses(*both).sum() for both in zip(known, entries, strict=True)]
    assert judged[1] > 10 * judged[0]


@pytest.mark.parametrize("divergence", WEIGHING, ids=example_id)
def test_held_out_entries_are_judged_by_the_divergence_in_the_units_of_the_data(divergence: Any) -> None:
    data = X[:80] + 0.5
    speckle = HoldoutMask(0.2, 5)
    model = OnlineNMF(3, divergence=divergence, random_state=0).fit(speckle.without_held(Rows(data)))
    known, entries = speckle.split(np.arange(80), data)
    mask = entries.entry_weights > 0
    H = model.transform(data, weights=known.entry_weights)
    Y = model.inverse_transform(H)
    expected = [model.divergence_.value(data[[n]][:, mask[n]], Y[[n]][:, mask[n]])[0] for n in range(80)]
    assert model._inference().held_out_losses(known, entries) == pytest.approx(np.array(expected), rel=1e-6)


def test_what_sparse_data_know_is_judged_as_that_of_dense_data_is() -> None:
    stored = sp.csr_matrix(X + 1)
    model = OnlineNMF(3, transform_tol=1e-7, random_state=0).fit(X + 1)
    losses = []
    for implicit in ("zero", "missing"):
        known, entries = HoldoutMask(0.1, 3, implicit=implicit).split(np.arange(400), stored)
        assert known.sparse == (implicit == "missing")
        losses.append(model._inference().held_out_losses(known, entries))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_sparse_counts_are_held_out_learnt_from_and_judged_without_being_made_dense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = sp.random(1500, 3000, 0.01, format="csr", random_state=0, data_rvs=lambda n: rng_.poisson(2, n) + 1.0)
    largest = made_dense(monkeypatch)
    found = select_rank(counts, (2, 3), **QUICK)
    assert max(largest) <= 120 * counts.shape[1]  # of the samples that an exchange of components is made of
    assert found.losses == pytest.approx(select_rank(counts.toarray(), (2, 3), **QUICK).losses, abs=0)


@pytest.mark.parametrize("divergence", ["kl", "hellinger"])
def test_zeros_that_are_not_stored_are_known_or_held_out_as_in_dense_data(divergence: str) -> None:
    counts = sp.csr_matrix(np.where(np.quantile(X, 0.9) < X, X, 0))
    speckle, rows = HoldoutMask(0.2, 3, sparse=True), np.arange(400)
    seen, held_out = speckle.split(rows, counts)
    there = held_out.entry_weights.toarray() > 0
    assert abs(there.mean() - 0.2) < 0.02
    assert np.array_equal(seen.entry_weights.toarray() > 0, ~there)
    assert np.array_equal(held_out.matrix.toarray(), np.where(there, counts.toarray(), 0))
    assert seen.weight_sums(axis=0) == pytest.approx((~there).sum(axis=0))
    assert seen.weight_sums(axis=1) == pytest.approx((~there).sum(axis=1))
    start = rng_.uniform(0.1, 1, (3, 30))
    model = OnlineNMF(3, divergence=divergence, method="em", init=start, random_state=0, max_passes=2)
    dense = [Samples(counts.toarray(), 1.0 * part, None, "missing") for part in (~there, there)]
    found = []
    for one, other in ([seen, held_out], dense):

        class Given(Batches):
            def _numbered(self, size: int, on_bad: Any, first: int, batch: Samples = one) -> Any:
                yield rows, batch

        model.fit(Given([X]))
        found.append((model.components_, model._inference().coefficients(one)))
        found[-1] += (model._inference().held_out_losses(one, other),)
    for sparse, whole in zip(*found, strict=True):
        assert sparse == pytest.approx(whole, rel=1e-3, abs=1e-4 * float(whole.max()))


def test_samples_count_by_their_weights_and_those_of_which_nothing_is_known_do_not() -> None:
    speckle, model = HoldoutMask(0.1, 0), OnlineNMF(3, random_state=0).fit(X)
    twice = [np.arange(400), np.arange(100)]

    class Given(Batches):
        weighted = True

        def _numbered(self, size: int, on_bad: Any, first: int) -> Any:
            yield np.arange(400), Samples(X, sample_weight=np.where(np.arange(400) < 100, 2.0, 1.0))

    class Repeated(Batches):
        def _numbered(self, size: int, on_bad: Any, first: int) -> Any:
            return ((rows, X[rows]) for rows in twice)

    assert _judged(model, Given([X]), speckle) == pytest.approx(_judged(model, Repeated([X]), speckle))
    assert speckle.without_held(Given([X])).weighted
    known, _ = speckle.split(np.arange(400), Samples(X, sample_weight=np.ones(400)))
    assert known.masked
    assert known.sample_weight is not None
    bare = np.where(np.arange(400)[:, None] < 200, X, np.nan)
    half = HoldoutMask(0.1, 0, missing="nan")
    assert _judged(model, Rows(bare), half) == pytest.approx(_judged(model, Rows(X[:200]), speckle))


def test_sparse_counts_are_learnt_by_em_and_huber_has_one_delta_for_all_ranks() -> None:
    few = sp.random(300, 40, 0.05, random_state=0, format="csr")
    speckle, settings = HoldoutMask(0.1, 0), {"method": "auto:tau=50"}
    assert _suited(settings, [2, 3], Rows(few), speckle) == ({"method": EM(tau=50)}, True)
    assert _suited(settings, [2, 3], Rows(X + 1), speckle) == ({}, False)
    assert _suited({"method": "surrogate"}, [2, 3], Rows(few), speckle) == ({}, False)
    assert _suited({"method": "em"}, [2, 3], Rows(few.toarray()), speckle) == ({}, True)
    found = _suited({"divergence": "huber"}, [2, 3], Rows(X), speckle)[0]["divergence"]
    assert not found.adaptive
    assert found.delta > 0
    assert _suited({"divergence": "huber:0.5"}, [2, 3], Rows(X), speckle) == ({}, False)


# What is said of it


def selection(losses: list[list[float]], stable: list[float], **more: Any) -> RankSelection:
    return RankSelection(tuple(range(2, 2 + len(losses))), np.array(losses), np.array(stable), **more)


def test_the_smallest_rank_within_one_standard_error_of_the_lowest_loss_is_recommended() -> None:
    clear = selection([[2.0, 3.0], [1.0, 2.0], [1.2, 2.2]], [1.0, 1.0, 0.5])
    assert (clear.best, clear.recommended) == (3, 3)  # seeds differ, but alike at every rank
    assert clear.error == pytest.approx(0)
    assert "Rank 3 predicts held-out entries best" in clear.reason
    close = selection([[2.0, 2.0], [1.05, 0.97], [1.0, 1.0], [1.1, 1.1]], [1.0, 1.0, 1.0, 0.5])
    assert (close.best, close.recommended) == (4, 3)
    assert "Rank 3 is the smallest within one standard error of the lowest held-out loss, at 4" in close.reason


def test_the_reason_says_what_speaks_against_the_rank() -> None:
    falling = selection([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]], [0.9, 0.95, 0.6])
    assert "still falling at the largest rank" in falling.reason
    assert "stability of 0.60: they depend on the start" in falling.reason
    assert "They depend on it least at rank 3 (0.95)." in falling.reason
    one = RankSelection((1, 2, 3), falling.losses, np.array([1.0, 0.8, 0.6]))
    assert "They depend on it least at rank 2 (0.80)." in one.reason
    assert "least" not in selection([[3.0, 3.0], [1.0, 1.0]], [0.5, 0.6]).reason
    flat = selection([[1.1, 1.0], [1.05, 1.0], [0.9, 1.1], [2.0, 2.0]], [1.0, 1.0, 1.0, 1.0])
    assert "Ranks 2 to 4 can hardly be told apart" in flat.reason
    assert "told apart" not in falling.reason
    rising = selection([[1.0, 1.0], [2.0, 2.0]], [1.0, 0.95], not_tried=(4, 5))
    assert "the right one may be below" in rising.reason
    assert "Ranks 4 to 5 were not tried" in rising.reason
    assert "Rank 9 was not tried" in selection([[1.0, 1.0], [2.0, 2.0]], [1.0, 0.9], not_tried=(9,)).reason


def test_a_selection_prints_as_a_table_becomes_a_data_frame_and_a_picture(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    found = selection([[2.0, 3.0], [1.0, 2.0], [1.2, 2.3]], [1.0, 0.98, 0.5])
    lines = str(found).splitlines()
    assert lines[2].split()[:2] == ["3", "1.5"]
    assert lines[2].endswith("<- recommended")
    assert lines[-1] == found.reason
    frame = pandas.DataFrame(found.table)
    assert list(frame["rank"]) == [2, 3, 4]
    assert list(frame["loss"]) == [2.5, 1.5, 1.75]
    pytest.importorskip("matplotlib")
    figure = found.plot()
    (above,) = figure.axes
    assert [list(axes.lines[-2].get_ydata()) for axes in (above, *above.child_axes)] == [
        [2.5, 1.5, 1.75],
        [1.0, 0.98, 0.5],
    ]
    figure.savefig(tmp_path / "ranks.png")


def test_stability_is_one_for_the_same_components_in_any_order_and_size_and_less_for_others(
    rng: np.random.Generator,
) -> None:
    W = rng.gamma(0.3, 1.0, (5, 40))
    assert stability([W, (W * rng.uniform(1, 9, (5, 1)))[rng.permutation(5)]]) == pytest.approx(1)
    other = np.r_[W[:4], rng.gamma(0.3, 1.0, (1, 40))]
    assert 0.6 < stability([W, other[::-1]]) < 0.97
    assert stability([np.eye(4)[:2], np.eye(4)[2:]]) < 0.2
    assert np.isfinite(stability([np.zeros((2, 4)), np.ones((2, 4))]))


# What is refused, and the command


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ranks": [4]}, "at least two"),
        ({"ranks": 4}, "at least two"),
        ({"ranks": [0, 3]}, "ranks must be a whole number of at least 1"),
        ({"held_out": 0.0}, "held_out is a share of the entries"),
        ({"held_out": 0.9}, "held_out is a share of the entries"),
        ({"n_seeds": 1}, "n_seeds must be a whole number of at least 2"),
        ({"patience": 0}, "patience must be a whole number of at least 1"),
        ({"divergence": Mahalanobis(np.eye(30))}, "none can be held out; use squared_l2"),
        ({"method": "guan", "divergence": "squared_l2"}, "use 'auto'"),
        ({"on_error": "skip"}, "leave on_error out"),
        ({"X": np.where(X == 0, np.nan, X)}, "missing='nan'"),
        ({"X": iter([X])}, "can be read only once"),
        ({"X": "counts.npz"}, "open_source"),
        ({"X": np.ones((3, 4)), "held_out": 1e-6}, "no entry was held out"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_cure(changed: dict[str, Any], message: str) -> None:
    given = {"X": X, "ranks": [2, 3], **QUICK} | changed
    with pytest.raises((ValueError, TypeError), match=message):
        select_rank(given.pop("X"), given.pop("ranks"), **given)


def test_settings_that_models_do_not_take_are_refused() -> None:
    with pytest.raises(TypeError, match="takes no n_components"):
        select_rank(X, [2, 3], n_components=3)
    with pytest.raises(TypeError, match="colour"):
        select_rank(X, [2, 3], colour="red")


def test_a_source_without_samples_is_refused() -> None:
    with pytest.raises(SourceError, match="no samples"):
        select_rank(Rows(np.empty((0, 4))), [2, 3])


def test_a_warning_about_the_data_is_shown_once_not_by_every_fit() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        select_rank(np.where(np.eye(60, 30), 0, X[:60] + 1), [2, 3], divergence="is", **QUICK)
    assert [each.category for each in shown].count(onmf.DomainWarning) == 1


def test_verbose_prints_a_line_after_every_fit(capsys: pytest.CaptureFixture[str]) -> None:
    select_rank(X, [2, 3], verbose=1, **QUICK)
    assert len(capsys.readouterr().out.splitlines()) == 4


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["rank", *map(str, arguments)], env={"COLUMNS": "200"})


def test_the_command_shows_table_reason_and_picture_of_what_select_rank_finds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "x.npy", X)
    options = ["--ranks", "3..4,8,12", "--seeds", 2, "--passes", 4, "--seed", 0, "--patience", 1]
    result = invoke(tmp_path / "x.npy", *options, "--json", "--plot", tmp_path / "ranks.png")
    assert result.exit_code == 0, result.output
    assert "fit 6 of 8: rank 8" in result.stderr
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
    said = json.loads(result.stdout)
    found = select_rank(X, (3, 4, 8, 12), patience=1, **QUICK)
    assert said["recommended"] == found.recommended == PLANTED
    assert said["loss"] == found.table["loss"]
    assert said["not_tried"] == [12]
    shown = " ".join(invoke(tmp_path / "x.npy", *options).stdout.split())
    assert found.reason in shown
    assert f"{said['loss'][1]:.6g}" in shown


def test_rows_of_a_table_that_come_in_time_are_learnt_in_random_order(tmp_path: Path) -> None:
    course = np.clip(np.sin(np.arange(300)[:, None] / [17, 23, 31, 41]), 0, None)
    rows = np.random.default_rng(0).poisson(200 * course @ W_)
    np.savetxt(tmp_path / "x.csv", rows, "%d", ",", header=",".join(map(str, range(30))), comments="")
    options = ("--ranks", "3,4", "--seeds", "2", "--divergence", "kl", "--seed", "0", "--json")
    found = json.loads(invoke(tmp_path / "x.csv", *options).stdout)
    shuffled = select_rank(rows, [3, 4], n_seeds=2, divergence="kl", random_state=0)
    assert found["loss"][1] == pytest.approx(shuffled.table["loss"][1], rel=0.05)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ("2-30", "write 2..30"),
        ("7", "name at least two"),
        ("0..3", "at least 1 upwards"),
        ("9..3", "at least 1 upwards"),
        ("2..99999999", "name fewer"),
    ],
)
def test_ranks_that_mean_nothing_are_refused_on_the_command_line(ranks: str, message: str) -> None:
    result = invoke("x.npy", "--ranks", ranks)
    assert result.exit_code == 2
    assert message in result.stderr


# Many fits


COUNTS = sp.csr_matrix(onmf.data.examples.cells(300, 600, 3, depth=60).counts)  # float32, and few are not zero


def test_counts_in_single_precision_are_judged_sparse_and_warm_starts_find_the_planted_number() -> None:
    found = select_rank(COUNTS, range(2, 7), n_seeds=2, random_state=0)
    assert found.recommended == 3
    assert found.stability[1] > found.stability[2] + 0.1


def test_a_smaller_rank_begins_with_different_components_that_are_used_or_with_merged_ones() -> None:
    W = np.array([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    merged, leading = starts(W, np.array([0.4, 0.35, 0.2, 0.05]), 2)
    np.testing.assert_array_equal(leading, W[[0, 2]])  # not the second, which is like the first
    assert merged.shape == (2, 3)
    merged, leading = starts(W, np.array([0.4, 0.35, 0.2, 0.05]), 3)
    np.testing.assert_array_equal(leading, W[[0, 2, 3]])
    second = 0.35 / 1.1 / (0.4 + 0.35 / 1.1)  # its share by use: coefficients, whatever the size of a component
    assert sum(np.allclose(row, (1 - second) * W[0] + second * W[1], atol=1e-6) for row in merged) == 1
    assert [each.tolist() for each in starts(W, np.ones(4), 4)] == [W.tolist()]


def test_fewer_components_than_are_fixed_raise_an_error() -> None:
    with pytest.raises(ValueError, match="fixed"):
        select_rank(X, (1, 4), fixed=np.ones((2, 30)), **QUICK)


def test_fits_at_the_same_time_and_those_that_are_resumed_give_the_same_table(tmp_path: Path) -> None:
    once = select_rank(X, (2, 4, 5), **QUICK)
    assert np.array_equal(select_rank(X, (2, 4, 5), n_jobs=2, **QUICK).losses, once.losses)

    def stop(told: FitProgress) -> None:
        if told.done == 3:
            raise KeyboardInterrupt

    kept: dict[str, Any] = {"checkpoint": tmp_path / "ranks"} | QUICK
    with pytest.raises(KeyboardInterrupt):
        select_rank(X, (2, 4, 5), callback=stop, **kept)
    with pytest.raises(ValueError, match="ranks exists already; continue it with resume=True"):
        select_rank(X, (2, 4, 5), **kept)
    with pytest.raises(ValueError, match="holds fits with other data; name another checkpoint"):
        select_rank(X + 1, (2, 4, 5), resume=True, **kept)
    with pytest.raises(ValueError, match="holds fits with other settings"):
        select_rank(X, (2, 5), resume=True, **kept)
    told: list[FitProgress] = []
    again = select_rank(X, (2, 4, 5), resume=True, callback=told.append, **kept)
    assert [each.done for each in told] == [3, 4, 5, 6]  # not the first rank again
    assert np.array_equal(again.losses, once.losses)
    assert np.array_equal(again.stability, once.stability)
    with pytest.raises(ValueError, match="pass checkpoint= as well"):
        select_rank(X, (2, 4), resume=True, **QUICK)


def test_without_a_seed_ranks_are_resumed_by_the_seeds_of_their_file(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "ranks"} | QUICK | {"random_state": None}
    first = select_rank(X, (2, 4), **kept)
    told: list[FitProgress] = []
    again = select_rank(X, (2, 4), resume=True, callback=told.append, **kept)
    assert not told
    assert np.array_equal(again.losses, first.losses)
    with pytest.raises(ValueError, match="holds fits with another seed; leave the seed out"):
        select_rank(X, (2, 4), resume=True, **kept | {"random_state": 0})
