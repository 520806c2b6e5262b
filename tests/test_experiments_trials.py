"""Trials: what contestants learn, and how they are judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF, Progress, divergences
from onmf.data import Rows
from onmf.methods import Canonical, Paper
from reproduction import contest
from reproduction.contest import ExactOL, MeanOL, Task, canonical
from reproduction.judge import Scorer
from reproduction.synthetic import Data
from reproduction.trial import Benchmark, Copies, Result, Trial, empirical_losses


def small_problem(divergence: str = "kl", n: int = 400, judged: int = 20) -> Benchmark:
    return Data.draw(divergence, n, 8, K=3, judged=judged, seed=2)


@pytest.fixture(autouse=True)
def _few_iterations(monkeypatch):
    monkeypatch.setattr(contest, "MOST_ITERATIONS", 60)


@pytest.fixture
def compete(tmp_path):
    def run(name: str, problem: Benchmark, passes: int = 1, variant: dict | None = None) -> Result:
        return Trial(problem, name, 0, passes, variant or {}).run(tmp_path)

    return run


def test_the_canonical_parameters_are_the_papers():
    assert canonical(100_000) == Paper(tau=10, step=Canonical(a=2e4, b=2e4), solver="paper")
    assert canonical(1000) == Paper(tau=10, step=Canonical(a=200.0, b=200.0), solver="paper")


def test_each_reading_of_the_paper_differs_from_the_last_in_one_thing():
    task = Trial(small_problem(), "ol", 0).task
    exact, mean = (kind(task).settings.method for kind in (ExactOL, MeanOL))
    assert exact == replace(canonical(400), solver="auto")
    assert mean == replace(exact, step=Canonical(a=8.0, b=80.0))  # a tenth of 0.2 N, since tau is 10


@pytest.mark.parametrize("sparse", [False, True])
def test_empirical_losses_are_those_of_the_papers_formula(rng, sparse):
    divergence = divergences.get("kl")
    X = rng.poisson(3.0, (450, 5)).astype(float)
    H, W, other = rng.random((450, 2)), rng.random((2, 5)) + 0.1, rng.random((2, 5)) + 0.1
    task = Task(Rows(scipy.sparse.csr_matrix(X) if sparse else X), "kl", 2, None, 0)
    found = empirical_losses(task, 1, H, [(130, W), (450, other)])
    expected = [
        divergence.value(X[:130], H[:130] @ W).mean(),
        divergence.value(X, H @ other).mean(),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["ol", "ours"])
def test_the_objective_uses_the_coefficients_of_their_time(name, compete):
    """With W kept where it is, the coefficients of their time are the best ones: both measures agree."""
    problem = small_problem("squared_l2")
    still = {"method__step": Canonical(a=1e-9), "method__tol": 1e-9, "method__max_iter": 5000}
    variant = still if name == "ol" else {}
    result = compete(name, problem, variant=variant)
    last = result.facts["points"][-1]
    assert result.H.shape == (400, 3)
    if name == "ol":
        X = Trial(problem, name, 0).task.gathered()
        exact = Scorer("squared_l2", X.mean(axis=0), X).best(result.W).loss
        assert last["objective"] == pytest.approx(exact, rel=1e-4)
    else:  # components have unit mass, whatever unit they were learnt in
        np.testing.assert_allclose(result.W.sum(axis=1), 1.0)
        assert last["objective"] >= last["train"]  # early coefficients belong to a worse dictionary


@pytest.mark.parametrize(
    ("name", "divergence", "method"),
    [("ol-lef", "is", "lefevre"), ("ol-guan", "squared_l2", "guan"), ("ol-wang", "huber", "wang")],
)
def test_earlier_methods_take_part(name, divergence, method, compete):
    result = compete(name, small_problem(divergence))
    assert result.facts["method"] == method
    assert np.isfinite([point["train"] for point in result.facts["points"]]).all()
    assert np.isfinite(result.facts["held_out"])


def test_batch_reports_its_own_objective_and_its_end(tmp_path):
    shares: list[float] = []
    problem = small_problem(n=200, judged=200)  # judged on all it learnt from
    result = Trial(problem, "batch", 0).run(tmp_path, shares.append)
    points = result.facts["points"]
    objectives = [point["objective"] for point in points]
    assert objectives == sorted(objectives, reverse=True)
    assert result.facts["converged"] == (result.facts["iterations"] < contest.MOST_ITERATIONS)
    assert points[-1]["seconds"] == result.facts["seconds"]
    assert points[-1]["samples"] == 200 * result.facts["iterations"]
    assert 0.5 * points[-1]["objective"] <= points[-1]["train"] <= points[-1]["objective"]
    assert shares[-1] <= 1


def test_batch_gets_what_fits(monkeypatch, compete):
    monkeypatch.setattr(contest, "MOST_BYTES", 250 * 8 * 8)
    assert compete("batch", small_problem()).facts["n"] == 200


@pytest.mark.parametrize("sparse", [False, True])
def test_batch_on_equal_copies_is_batch_on_one_at_their_cost(sparse, rng, compete):
    X = rng.poisson(5.0, (30, 8)).astype(float) + 1
    order = rng.permutation(np.tile(np.arange(5, 25), 40))
    V = scipy.sparse.csr_matrix(X) if sparse else X
    scorer = Scorer("kl", X.mean(axis=0), X)
    quick, whole = (
        compete("batch", Benchmark(source, "kl", 2, scorer, scorer)) for source in (Copies(V, order), Rows(V[order]))
    )
    np.testing.assert_allclose(quick.W, whole.W, rtol=1e-6)
    np.testing.assert_allclose(quick.H, whole.H, rtol=1e-6)
    assert quick.facts["iterations"] == whole.facts["iterations"]
    assert quick.facts["n"] == 800
    assert quick.facts["points"][-1]["objective"] == pytest.approx(whole.facts["points"][-1]["objective"])
    assert 0.1 < quick.facts["seconds"] / whole.facts["seconds"] < 10


def test_a_long_chunk_is_read_at_once(compete):
    result = compete("ol", small_problem(n=1000), variant={"method__tau": 400})
    assert [point["samples"] for point in result.facts["points"]] == [400, 800, 1000]


def test_passes_of_a_trial_are_learnt_from_and_told(compete):
    problem = small_problem()
    points = compete("ours", problem, passes=2).facts["points"]
    assert [point["samples"] for point in points] == [200, 400, 600, 800]
    once = compete("ours", problem).facts["points"]
    assert [point["train"] for point in points[:2]] == [point["train"] for point in once]


def test_callbacks_are_told_the_coefficients_of_the_batch(rng):
    X = rng.random((60, 6)) + 0.1
    X[7] = 0  # left out while learning
    told: list[Progress] = []
    OnlineNMF(2, divergence="squared_l2", random_state=0, callbacks=[told.append]).fit(X)
    (progress,) = told
    assert progress.H is not None
    assert progress.H.shape == (60, 2)
    assert (progress.H.sum(axis=1) > 0).sum() == 59


def test_solved_coefficients_are_in_the_units_of_the_data(rng):
    W = rng.random((2, 30)) + 0.05
    H = rng.random((20, 2)) * 50
    scorer = Scorer("squared_l2", (H @ W).mean(axis=0), H @ W)
    found, components = scorer.solved(5 * W)
    np.testing.assert_allclose(found @ components, H @ W, rtol=1e-4)
    np.testing.assert_allclose(components.max(axis=1), 1.0)
