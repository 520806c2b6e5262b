from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from benchmarks.peers import figures, headlines, report, tables, worker
from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.data import SOURCES, Samples
from benchmarks.peers.programme import plan
from benchmarks.peers.results import MINIBATCH, comparisons
from reproduction.judge import Scorer

LOSSES = {  # with their derivatives in y
    "kl": lambda x, y: ((x * np.log(x / y) - x + y).sum(), 1 - x / y),
    "is": lambda x, y: ((x / y - np.log(x / y) - 1).sum(), 1 / y - x / y**2),
    "squared_l2": lambda x, y: (0.5 * np.square(x - y).sum(), y - x),
}


def problem(rng, n=6, F=15, K=4):
    W = rng.gamma(1.0, 1.0, (K, F)) + 0.01
    return rng.poisson(5 * rng.gamma(1.0, 1.0, (n, K)) @ W) + 1.0, W


def best_loss(name, x, W):
    """The least loss over h >= 0, by SciPy from several starts; by linear programming for l1."""
    K, F = W.shape
    if name == "l1":
        A = np.block([[W.T, -np.eye(F)], [-W.T, -np.eye(F)]])
        cost = np.r_[np.zeros(K), np.ones(F)]
        return scipy.optimize.linprog(cost, A_ub=A, b_ub=np.r_[x, -x], bounds=(0, None)).fun

    def objective(h):
        value, slope = LOSSES[name](x, h @ W)
        return value, W @ slope

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-12}
    starts = [np.full(K, x.sum() / W.sum() * factor) for factor in (0.5, 1.0, 2.0)]
    bounds = [(1e-10, None)] * K
    return min(scipy.optimize.minimize(objective, h, jac=True, bounds=bounds, options=options).fun for h in starts)


@pytest.mark.parametrize("name", [*LOSSES, "l1"])
def test_the_scorer_finds_the_loss_that_scipy_finds(name):
    X, W = problem(np.random.default_rng(0))
    expected = np.mean([best_loss(name, x, W) for x in X])
    scorer = Scorer(name, X.mean(axis=0), X)
    score = scorer.best(W, scorer.floors[:1])  # a higher floor can be better than the dictionary as it is
    assert score.loss == pytest.approx(expected, rel=1e-3 if name == "l1" else 1e-5)
    assert scorer.best(W).loss <= score.loss


@pytest.mark.parametrize("name", ["kl", "is", "squared_l2", "huber:2.5", "hellinger"])
def test_the_units_of_a_dictionary_do_not_change_its_score(name):
    rng = np.random.default_rng(1)
    X, W = problem(rng)
    scorer = Scorer(name, X.mean(axis=0), X)
    units = 10.0 ** rng.uniform(-6, 6, (len(W), 1))
    assert scorer.best(units * W).loss == pytest.approx(scorer.best(W).loss, rel=1e-6)


def test_sparse_and_dense_samples_score_alike():
    rng = np.random.default_rng(2)
    X, W = problem(rng, n=20)
    X *= rng.random(X.shape) < 0.3
    X[:, 0] += 1
    sparse = scipy.sparse.csr_matrix(X)
    mean = X.mean(axis=0)
    assert Scorer("kl", mean, sparse).best(W).loss == pytest.approx(Scorer("kl", mean, X).best(W).loss, rel=1e-5)


def test_exact_zeros_in_a_dictionary_cost_no_infinite_loss():
    X, W = problem(np.random.default_rng(3))
    holes = W.copy()
    holes[:, 3] = 0.0
    score = Scorer("kl", X.mean(axis=0), X).best(holes)
    assert math.isfinite(score.loss)
    assert score.loss > Scorer("kl", X.mean(axis=0), X).best(W).loss


def test_components_of_nothing_and_broken_dictionaries_are_judged_as_such():
    X, W = problem(np.random.default_rng(4))
    scorer = Scorer("kl", X.mean(axis=0), X)
    dead = np.vstack([W, np.zeros((2, W.shape[1]))])
    assert scorer.best(dead).loss == pytest.approx(scorer.best(W).loss, rel=1e-9)
    assert scorer.best(W * np.nan).loss == math.inf
    assert scorer.best(np.zeros_like(W)).loss == math.inf


def test_sparse_samples_come_with_sorted_indices():
    # MiniBatchNMF.partial_fit under KL pairs the entries of X with those of a sorted copy: unsorted ones handicap it.
    X = scipy.sparse.random(30, 20, 0.4, format="csr", random_state=0)[:, np.random.default_rng(0).permutation(20)]
    assert not X.has_sorted_indices
    usable = Samples(X, X, 3, "kl").usable()
    assert all(np.all(np.diff(row.indices) > 0) for part in (usable.X, usable.held_out) for row in part)
    assert abs(usable.X - X[np.asarray(X.sum(axis=1)).ravel() > 0]).max() == 0


def test_samples_of_itakura_saito_have_no_zeros():
    X = np.random.default_rng(5).poisson(1.0, (30, 10)).astype(float)
    usable = Samples(X, X, 3, "is").usable()
    assert (X == 0).any()
    assert usable.X.min() > 0
    np.testing.assert_array_equal(usable.X[usable.X >= 1], X[X.sum(axis=1) > 0][usable.X >= 1])


@pytest.fixture
def once(monkeypatch):
    monkeypatch.setattr(worker, "REPEATS", 1)


def record_of(contestant, samples, **changes):
    outcome = worker.result(CONTESTANTS[contestant], samples, worker.task_of(samples, "uniform", 0, 1), [1, 2], 60.0)
    where = {"data": "synthetic", "divergence": "kl", "start": "uniform", "threads": "1", "seed": 0}
    shape = {"n": samples.X.shape[0], "F": samples.X.shape[1], "K": samples.K}
    return {**where, **shape, "contestant": contestant, "versions": {}, "machine_cores": 1, **outcome, **changes}


@pytest.mark.usefixtures("once")
def test_a_small_benchmark_ends_with_a_record_for_each_and_ours_ahead():
    samples = SOURCES["synthetic"].samples("kl", "small", 0)
    records = [record_of(name, samples) for name in ("onmf", "sklearn-partial_fit", "sklearn-fit")]
    (found,) = comparisons(records)
    for record in records:
        for curve in record["curves"].values():
            assert [point["passes"] for point in curve if point["passes"]] == [1, 2]
            assert all(point["solved"] for point in curve)
        assert record["peak_mib"] >= 0
    assert set(records[1]["curves"]) == {"0.7", "0.9", "0.99"}
    seconds = [point["seconds"] for point in records[0]["curves"][""]]
    assert seconds == sorted(seconds)
    assert max(found.loss_ratios(MINIBATCH, 1)) < 1
    assert max(found.loss_ratios(MINIBATCH, 2)) < 1


@pytest.mark.usefixtures("once")
def test_contestants_start_from_the_given_dictionary_and_leave_the_task_as_it_was():
    whole = SOURCES["synthetic"].samples("squared_l2", "small", 0)
    samples = replace(whole, X=whole.X[:160], held_out=whole.held_out[:20])
    task = worker.task_of(samples, "nndsvda", 0, 1)
    X, W0 = samples.X.copy(), task.W0.copy()
    for name, entry in CONTESTANTS.items():
        if entry.missing() is None and entry.serves("squared_l2", False):
            curves = worker.result(entry, samples, task, [1], 60.0)["curves"]
            assert all([point["passes"] for point in curve].count(1) == 1 for curve in curves.values()), name
            np.testing.assert_array_equal(task.source.X, X, err_msg=name)
            np.testing.assert_array_equal(task.W0, W0, err_msg=name)


@pytest.mark.usefixtures("once")
def test_multiplicative_updates_of_all_libraries_end_at_the_same_loss():
    whole = SOURCES["cells"].samples("kl", "small", 0)
    samples = replace(whole, X=whole.X[:200], held_out=whole.held_out[:50])
    names = ("onmf-multiplicative", "sklearn-batch", "nmf-rs")
    records = [record_of(name, samples) for name in names if CONTESTANTS[name].missing() is None]
    losses = [point["loss"] for record in records for point in record["curves"][""]]
    assert len(losses) >= 2
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-9)


def point(loss, seconds, passes=None):
    place = {"samples": 1, "seconds": seconds, "wall": seconds, "passes": passes}
    return place | {"loss": loss, "floor": 0.0, "solved": True, "psnr": None}


def test_the_report_tells_who_passes_whom_and_where_we_lose(tmp_path):
    where = {"data": "synthetic", "divergence": "kl", "start": "uniform", "threads": "1", "seed": 0}
    rest = {"n": 100, "F": 10, "K": 3, "peak_mib": 1.0, "versions": {"onmf": "0"}, "machine_cores": 2}
    ours = {"": [point(9.0, 0.1), point(5.0, 1.0, 1), point(4.0, 5.0, 5)]}
    theirs = {"0.7": [point(8.0, 2.0, 1), point(3.0, 10.0, 5)], "0.9": [point(9.0, 2.5, 1), point(7.0, 10.0, 5)]}
    (tmp_path / "runs").mkdir()
    for name, curves in (("onmf", ours), ("sklearn-partial_fit", theirs)):
        line = json.dumps({**where, **rest, "contestant": name, "curves": curves})
        (tmp_path / "runs" / f"{name}.json").write_text(line + "\n")
    records = report.load(tmp_path)
    (found,) = comparisons(records)
    assert found.passing_ratios(MINIBATCH) == [0.5]  # 8 is passed at 1 s, against 2 s
    assert found.loss_ratios(MINIBATCH, 5) == [4 / 3]
    rows = {figure.what: figure for figure in figures.all_figures([found])}
    assert not rows["time to MiniBatchNMF's best one-pass loss / its time ≤ 1/10"].reached
    assert rows["loss after one pass / MiniBatchNMF's best < 1"].reached
    assert "loss after five passes / sklearn-partial_fit's | 1.333" in tables.lost([found])
    (tmp_path / "threads.json").write_text(json.dumps({"yaleb": [1.0, 0.6, 1.1]}))
    assert [figure.measured for figure in report.thread_figures(tmp_path)] == ["0.92", "1.67"]
    text = report.page(records, tmp_path, [])
    assert "| uniform | **onmf** | 5 | 1 | 4 | 5 | – | 1 |" in text
    assert list(headlines.results(text)) == [headlines.Result("synthetic", "kl", "uniform", 0.625, 0.5)]
    assert "| uniform | sklearn-partial_fit | 8 | 2 | 3 | 10 | 0.5 / 0.5 / 0.5 | 1 |" in text


def test_real_data_and_peers_that_are_not_there_say_so(monkeypatch):
    monkeypatch.delenv("ONMF_DATA", raising=False)
    assert "ONMF_DATA" in SOURCES["bbc"].missing()
    assert SOURCES["synthetic"].missing() is None
    absent = replace(CONTESTANTS["spams"], package="no_such_package")
    assert absent.missing() == "skipped: install onmf[bench]"


def test_no_two_runs_share_a_file():
    runs = list(plan(list(SOURCES), list(CONTESTANTS), ["uniform", "nndsvda", "own"], ["1", "all"], [0, 1, 2]))
    assert len({run.name for run in runs}) == len(runs)
    assert {run.contestant for run in runs} == set(CONTESTANTS)
    assert {run.seed for run in runs if run.start != "uniform" or run.threads == "all"} == {0}
    fit = [run for run in runs if run.data == "cells" and run.contestant == "sklearn-fit" and run.threads == "1"]
    assert {(run.start, run.seed): run.passes for run in fit} == {
        ("uniform", 0): 5,
        ("uniform", 1): 1,
        ("uniform", 2): 1,
        ("own", 0): 1,
    }


def test_the_first_figures_of_the_readme_and_the_site_are_those_of_the_stored_runs() -> None:
    for path, text in headlines.pages().items():
        assert path.read_text() == text, "run python -m benchmarks.peers.headlines"
