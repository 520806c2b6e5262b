"""The parts of the paper's experiments: their data, their measures, and what they make of the results."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF, divergences
from onmf.datasets import docstrings
from onmf.datasets.synthetic import Planted
from onmf.datasets.text import Texts
from onmf.estimators.base import Progress
from onmf.experiments import comparison, contestants, sensitivity
from onmf.experiments.contest import Task
from onmf.experiments.contestants import MOST_ITERATIONS, canonical
from onmf.experiments.corpora import documents
from onmf.experiments.experiment import Experiment
from onmf.experiments.faces import Contaminated, Faces
from onmf.experiments.folder import Folder, Result
from onmf.experiments.images import (
    FreshNoise,
    Subject,
    brightness_in_shadow,
    contaminated,
    halved,
    quality,
    stand_ins,
)
from onmf.experiments.judge import Scorer
from onmf.experiments.report import HOLDS, IN_PART, NOT, UNKNOWN, Claim, Report, heading, paragraph, table
from onmf.experiments.sensitivity import Sensitivity
from onmf.experiments.synthetic import NAMES, Data, PlantedSource, Synthetic
from onmf.experiments.topic_quality import cluster, coherence, leading
from onmf.experiments.topics import Topics, corpus_claims
from onmf.experiments.trial import Copies, Problem, Trial, empirical_losses
from onmf.methods import Canonical, Paper
from onmf.streams import Rows

TEXTS = Texts(
    scipy.sparse.csr_array(np.array([[3.0, 1, 0, 0], [2, 0, 1, 0], [0, 0, 4, 2], [0, 1, 2, 5]])),
    ["goal", "team", "vote", "law"],
    np.array([0, 0, 1, 1]),
    ["sport", "politics"],
)


# Data


def test_planted_samples_are_the_same_in_every_pass_and_for_every_size_of_batch(rng):
    source = PlantedSource(Planted.draw(7, 3, "gamma", rng), 900, seed=4)
    once = np.concatenate([batch for _, batch in source.batches(200)])
    assert once.shape == (900, 7)
    for size in (400, 150):
        np.testing.assert_array_equal(once, np.concatenate([batch for _, batch in source.batches(size)]))
    assert len(np.unique(once[:, 0])) == 900  # no block repeats another


@pytest.mark.parametrize("divergence", NAMES)
def test_the_synthetic_data_have_the_papers_ratio_of_signal_to_noise(divergence):
    data = Data.draw(divergence, 400, 60, K=3, judged=300, seed=1)
    expected = 30.0 if divergence in ("is", "kl", "squared_l2") else 5.3  # outliers: no ratio is given in the paper
    assert data.snr == pytest.approx(expected, abs=1.0)
    assert Trial(data, "ol", 0).task.gathered().max() <= 4000


def test_the_judges_samples_are_learnt_from_or_not():
    data = Data.draw("kl", 400, 10, K=3, judged=100, seed=1)
    X = Trial(data, "ol", 0).task.gathered()
    np.testing.assert_allclose(data.train.V * data.train.units[:, None], X[:100], rtol=1e-12)
    others = data.held_out.V * data.held_out.units[:, None]
    assert not (others[:, None] == X).all(axis=2).any()


def test_documents_follow_the_papers_steps():
    found = documents(docstrings.load(), 50, 4000, 600, 40, seed=3)
    V, order, n = found.source.X, found.source.order, len(found.texts.labels)
    assert found.snr == pytest.approx(30, abs=0.3)
    assert V.shape == (n, 50)
    assert len(found.texts.words) == 50
    assert n - len(found.learnt) == pytest.approx(0.1 * n, abs=1)
    assert found.copies == round(4000 / len(found.learnt))
    expected = np.zeros(n)
    expected[found.learnt] = found.copies
    np.testing.assert_array_equal(np.bincount(order, minlength=n), expected)  # the others are held out
    assert (np.diff(order) != 0).mean() > 0.9  # in random order
    assert (V.sum(axis=1) > 0).all()
    np.testing.assert_array_equal(V.data, np.round(V.data))  # Poisson: counts
    assert V.has_sorted_indices
    judged = {tuple(row) for row in (found.held_out.V.toarray() * found.held_out.units[:, None]).round()}
    others = np.setdiff1d(np.arange(n), found.learnt)
    assert judged == {tuple(row) for row in V[others[:40]].toarray()}


def test_documents_keep_words_and_counts_together():
    found = documents(TEXTS, 3, 8, 100, 4, seed=0)
    assert len(found.texts.words) == 3
    columns = [TEXTS.words.index(word) for word in found.texts.words]
    np.testing.assert_array_equal(found.texts.counts.toarray(), TEXTS.counts.toarray()[:, columns])
    assert not (found.source.X.toarray()[found.texts.counts.toarray() == 0]).any()


def test_copies_are_read_in_their_order():
    X = np.arange(6.0).reshape(3, 2)
    source = Copies(X, np.array([2, 0, 0, 1, 2]))
    batches = list(source.batches(2))
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches]), np.arange(5))
    np.testing.assert_array_equal(np.concatenate([batch for _, batch in batches]), X[[2, 0, 0, 1, 2]])


def test_the_standard_librarys_texts_have_five_packages():
    found = docstrings.load()
    assert set(found.labels) == set(range(5))
    assert found.counts.shape == (len(found.labels), len(found.words))
    assert len(found.labels) > 400


def test_without_the_librarys_sources_the_stand_in_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(docstrings.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(FileNotFoundError, match="full installation"):
        docstrings.load()


def test_three_tenths_of_the_pixels_are_noisy(rng):
    images = np.full((40, 100), 128.0)
    noisy = contaminated(images, rng)
    hit = noisy != images
    assert (hit.sum(axis=1) == 30).all()
    assert noisy.min() == 0
    assert noisy.max() == 255
    added = noisy[hit & (noisy > 0) & (noisy < 255)] - 128.0
    assert abs(added.mean()) < 5  # symmetric
    # Of U(-255, 255) added to 128, a quarter falls below 0 and nearly as much beyond 255.
    assert (noisy[hit] == 0).mean() == pytest.approx(0.25, abs=0.04)


def test_fresh_noise_differs_between_copies_and_not_between_passes():
    images = np.full((2, 50), 100.0)
    source = FreshNoise(images, np.array([0, 1, 0, 1]), seed=5)
    first = np.concatenate([batch for _, batch in source.batches(4)])
    again = np.concatenate([batch for _, batch in source.batches(3)])
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[2]).any()


def test_shadows_are_where_good_light_shows_more():
    images = np.full((64, 4), 200.0)
    images[0, :2] = 20.0
    images[:, 3] = 10.0  # dark in every light: no shadow
    subject = Subject("one", images)
    expected = np.zeros((64, 4), dtype=bool)
    expected[0, :2] = True
    np.testing.assert_array_equal(subject.shadows(), expected)
    assert brightness_in_shadow(images, subject) == pytest.approx(0.1)
    assert brightness_in_shadow(np.full_like(images, 200.0), subject) == pytest.approx(1.0)
    assert math.isnan(brightness_in_shadow(images[1:], Subject("no shadow", images[1:])))


def test_stand_in_subjects_have_light_and_shadow(rng):
    subjects = stand_ins(3, rng)
    assert [subject.images.shape for subject in subjects] == [(64, 1024)] * 3
    assert all(subject.shadows().mean() > 0.02 for subject in subjects)
    assert halved(subjects[0]).side == 16
    np.testing.assert_allclose(halved(subjects[0]).images.mean(axis=1), subjects[0].images.mean(axis=1))


def test_psnr_of_known_errors():
    clean = np.full((64, 4), 100.0)
    clean[0, 1:] = 10.0  # in shadow
    subject = Subject("one", clean)
    assert quality(clean + 25.5, subject)["psnr"] == pytest.approx(20.0)
    assert quality(clean, subject)["psnr"] == math.inf
    wrong_in_shadow = clean.copy()
    wrong_in_shadow[0, 1:] += 9
    assert quality(wrong_in_shadow, subject)["psnr"] < math.inf
    assert quality(wrong_in_shadow, subject)["psnr outside shadows"] == math.inf


# Trials


def small_problem(divergence: str = "kl", n: int = 400, judged: int = 60) -> Problem:
    return Data.draw(divergence, n, 8, K=3, judged=judged, seed=2)


@pytest.fixture
def compete(tmp_path):
    def run(name: str, problem: Problem, passes: int = 1, variant: dict | None = None) -> Result:
        return Trial(problem, name, 0, passes, variant or {}).run(tmp_path)

    return run


def test_the_canonical_parameters_are_the_papers():
    assert canonical(100_000) == Paper(tau=10, step=Canonical(a=2e4, b=2e4), solver="paper")
    assert canonical(1000) == Paper(tau=10, step=Canonical(a=200.0, b=200.0), solver="paper")


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
    still = {"method__step": "canonical:a=1e-9", "method__tol": 1e-9, "method__max_iter": 5000}
    variant = still if name == "ol" else {}
    result = compete(name, problem, variant=variant)
    last = result.facts["points"][-1]
    assert result.arrays["H"].shape == (400, 3)
    if name == "ol":
        X = Trial(problem, name, 0).task.gathered()
        exact = Scorer("squared_l2", X.mean(axis=0), X).best(result.arrays["W"]).loss
        assert last["objective"] == pytest.approx(exact, rel=1e-4)
    else:  # atoms have unit mass, whatever unit they were learnt in
        np.testing.assert_allclose(result.arrays["W"].sum(axis=1), 1.0)
        assert last["objective"] >= last["train"]  # early coefficients belong to a worse dictionary


@pytest.mark.parametrize(
    ("name", "divergence", "method"),
    [("ol-lef", "is", "lefevre"), ("ol-guan", "squared_l2", "guan"), ("ol-wang", "huber", "wang")],
)
def test_earlier_methods_take_part(name, divergence, method, compete):
    result = compete(name, small_problem(divergence))
    assert result.facts["method"] == method
    assert np.isfinite([point["held_out"] for point in result.facts["points"]]).all()


def test_batch_reports_its_own_objective_and_its_end(tmp_path):
    shares: list[float] = []
    result = Trial(small_problem(judged=400), "batch", 0).run(tmp_path, shares.append)  # judged on all it learnt from
    points = result.facts["points"]
    objectives = [point["objective"] for point in points]
    assert objectives == sorted(objectives, reverse=True)
    assert result.facts["converged"] == (result.facts["iterations"] < MOST_ITERATIONS)
    assert points[-1]["seconds"] == result.facts["seconds"]
    assert points[-1]["samples"] == 400 * result.facts["iterations"]
    assert 0.5 * points[-1]["objective"] <= points[-1]["train"] <= points[-1]["objective"]
    assert shares[-1] <= 1


def test_batch_gets_what_fits(monkeypatch, compete):
    monkeypatch.setattr(contestants, "MOST_BYTES", 250 * 8 * 8)
    assert compete("batch", small_problem()).facts["n"] == 200


@pytest.mark.parametrize("sparse", [False, True])
def test_batch_on_equal_copies_is_batch_on_one_at_their_cost(sparse, rng, compete):
    X = rng.poisson(5.0, (30, 8)).astype(float) + 1
    order = rng.permutation(np.tile(np.arange(5, 25), 40))
    V = scipy.sparse.csr_matrix(X) if sparse else X
    scorer = Scorer("kl", X.mean(axis=0), X)
    quick, whole = (
        compete("batch", Problem(source, "kl", 2, scorer, scorer)) for source in (Copies(V, order), Rows(V[order]))
    )
    np.testing.assert_allclose(quick.arrays["W"], whole.arrays["W"], rtol=1e-6)
    np.testing.assert_allclose(quick.arrays["H"], whole.arrays["H"], rtol=1e-6)
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
    found, atoms = scorer.solved(5 * W)
    np.testing.assert_allclose(found @ atoms, H @ W, rtol=1e-4)
    np.testing.assert_allclose(atoms.max(axis=1), 1.0)


# Topics


def test_keywords_are_the_largest_weights():
    W = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.3]])
    assert leading(W, 2) == [[1, 2], [0, 2]]


def test_a_perfect_clustering_is_found_whatever_the_topics_order():
    labels = np.array([0, 0, 1, 1, 2, 2])
    masses = np.eye(3)[[2, 2, 0, 0, 1, 1]]
    found = cluster(masses, labels, 3)
    assert found["accuracy"] == 1
    assert found["nmi"] == pytest.approx(1)
    assert found["category"] == [1, 2, 0]
    assert found["majority"] == [1, 2, 0]


def test_topics_without_documents_have_no_majority():
    found = cluster(np.array([[1.0, 0, 0]] * 4), np.array([0, 0, 0, 1]), 2)
    assert found["accuracy"] == 0.75
    assert found["majority"] == [0, -1, -1]
    assert sorted(found["category"]) == [-1, 0, 1]


def test_coherence_of_words_that_always_never_or_independently_meet():
    counts = scipy.sparse.csr_array(np.array([[1, 1, 0, 1], [2, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1]]))
    assert coherence(counts, [[0, 1]]) == pytest.approx(1)
    assert coherence(counts, [[0, 2]]) == -1
    assert coherence(counts, [[0, 3]]) == pytest.approx(0)
    assert coherence(counts, [[0, 1], [0, 2]]) == pytest.approx(0)


# Verdicts


def facts(seconds: float, *course: tuple[float, float], **more: object) -> dict:
    losses = ("train", "held_out", "objective")
    points = [{"seconds": at, "samples": 1, "psnr": 10 * at} | dict.fromkeys(losses, loss) for at, loss in course]
    return {"seconds": seconds, "points": points, "n": 1, **more}


def test_verdicts():
    cases = {(True, True): HOLDS, (True, False): IN_PART, (False,): NOT, (): UNKNOWN}
    assert {successes: Claim("", "", successes).verdict for successes in cases} == cases


def cell(by_method: dict, method: str) -> str:
    return comparison.beside_batch(by_method, method)[comparison.TO_BATCH]


def test_speed_is_judged_by_the_time_to_batchs_final_loss():
    by_method = {
        "batch": [facts(10, (1, 9), (10, 5)), facts(20, (1, 9), (20, 5))],
        "ol": [facts(4, (1, 8), (4, 5)), facts(4, (1, 8), (4, 6))],
        "ours": [facts(1, (0.1, 4.9), (1, 4)), facts(1, (0.1, 5), (1, 4))],
    }
    assert comparison.speedups(by_method, "ol") == [2.5, 0]
    assert cell(by_method, "ol") == "2.5, reached in 1 of 2"
    assert cell(by_method, "ours") == "150 (70.7)"
    assert comparison.faster_than_batch("here", by_method, "ol").verdict == IN_PART
    claim = comparison.faster_than_batch("here", by_method, "ours")
    assert claim.verdict == HOLDS
    assert "not in the paper" in claim.claim
    assert cell(by_method | {"ol": [facts(1, (1, 9))] * 2}, "ol") == "not reached"
    assert comparison.beside_batch(by_method, "batch") == {}
    there = comparison.beside_batch(by_method, "ours")
    assert there["seconds there"] == "0.1 (0)"
    assert there["psnr there"] == "1 (0)"


def test_the_claims_about_figure_2():
    results = {
        NAMES["is"]: {"ol": [facts(4, (1, 8), (4, 4))], "batch": [facts(9, (9, 4))], "ol-lef": [facts(9, (9, 8))]},
        NAMES["kl"]: {"ol": [facts(4, (4, 4.5))], "batch": [facts(9, (9, 4))]},
        NAMES["huber"]: {"ol": [facts(4, (4, 4))], "ol-wang": [facts(2, (2, 4))]},
    }
    first, wang, lef, guan, alike, ours = Synthetic().claims(results)
    assert first.verdict == IN_PART
    assert "Kullback-Leibler not reached" in first.measured
    assert wang.verdict == NOT  # half the time
    assert lef.verdict == HOLDS  # in a ninth of the time
    assert {guan.verdict, ours.verdict, alike.verdict} == {UNKNOWN}


def test_sensitivity_is_the_spread_of_the_final_losses():
    wild = {"tau": {0.1: 2.0, 40: 9.0}, "K": {}, "a": {10: 1.05}}
    by_variant = {}
    for variant in sensitivity.variants("ol"):
        loss = wild[variant.parameter].get(variant.factor, 1.0)
        by_variant[variant] = [facts(1, (0, 3.0), (1, loss))]
    results = {"kl": by_variant}
    rows = {row["parameter"]: row for row in Sensitivity().summary(results)}
    assert rows["tau"]["largest / smallest"] == 9
    assert rows["tau"]["worst on the way"] == 3
    assert rows["K"]["x 2"] == 1
    assert [claim.verdict for claim in Sensitivity().claims(results)] == [NOT, HOLDS, HOLDS]


def test_ours_has_no_step_size_to_vary():
    assert {variant.parameter for variant in sensitivity.variants("ours")} == {"tau", "K"}
    ol = {str(variant): variant for variant in sensitivity.variants("ol")}
    assert ol["ol-a-10"].applied(1000, 40) == (40, {"method__step": "canonical:a=2000,b=200"})
    assert ol["ol-tau-0.1"].applied(100_000, 40) == (40, {"method__tau": 1})
    assert ol["ol-K-2"].applied(1000, 40) == (80, {})
    assert ol["ol"].applied(1000, 40) == (40, {})


def test_the_claims_about_topics():
    good = {"majority": [0, 1], "accuracy": 0.9, "npmi": 0.3}
    bad = {"majority": [0, 0], "accuracy": 0.5, "npmi": 0.1}
    by_method = {
        "ol": [facts(1, (1, 5), **bad)],
        "batch": [facts(9, (9, 4), **good)],
        "ours": [facts(1, (1, 3), **good)],
    }
    found = {claim.claim: claim.verdict for claim in corpus_claims("BBC News", by_method, ["a", "b"])}
    assert found["BBC News: OL learns 2 distinct topics that coincide with the categories"] == NOT
    assert found["BBC News: Batch learns 2 distinct topics that coincide with the categories"] == HOLDS
    assert found["BBC News: OL's topics are of comparable quality to Batch's"] == NOT
    assert found["(not in the paper) BBC News: onmf is significantly faster than Batch"] == HOLDS
    general = [claim for claim in corpus_claims("20 Newsgroups", by_method, ["a.x", "a.y"]) if "general" in claim.claim]
    assert [claim.verdict for claim in general] == [HOLDS] * 3  # a is the only general category
    assert "of 1 general categories" in general[0].measured
    without = {"ol": by_method["ol"]}
    assert len(list(corpus_claims("BBC News", without, ["a", "b"]))) == 1


def test_the_claims_about_faces(monkeypatch):
    images = np.full((64, 4), 200.0)
    images[0] = 20.0
    noisy = images.copy()
    noisy[:, 0] = 0
    scorer = Scorer("huber:1", noisy.mean(axis=0), noisy)
    data = Contaminated(Rows(noisy), "huber:1", 2, scorer, scorer, Subject("A", images), noisy, np.arange(64))
    monkeypatch.setattr(Faces, "sets", {"A": data})
    better = {"psnr": 40.0, "brightness in shadow": 0.9}
    worse = {"psnr": 12.0, "brightness in shadow": 0.1}
    by_method = {"ol": [facts(2, (2, 3), **better)], "ol-wang": [facts(3, (3, 3), **worse)]}
    found = {claim.claim: claim.verdict for claim in Faces().claims({"A": by_method})}
    assert found == {
        "OL removes the salt-and-pepper noise": HOLDS,
        "OL-Wang removes the salt-and-pepper noise": NOT,
        "OL removes shadows": HOLDS,
        "OL-Wang fails to remove shadows (three subjects of four)": HOLDS,
        "OL-Wang runs slightly slower than OL": HOLDS,
    }


# Folder and report


def test_a_finished_part_is_not_found_again(tmp_path):
    calls = []

    def find(scratch) -> Result:
        calls.append(1)
        (scratch / "large").write_text("...")
        return Result({"loss": 1.5, "never": math.inf}, {"W": np.eye(2)})

    for _ in range(2):
        folder = Folder(tmp_path / "run", {"seed": 1})
        assert folder.part("kl-ol", find) == {"loss": 1.5, "never": math.inf}
        np.testing.assert_array_equal(folder.arrays("kl-ol")["W"], np.eye(2))
    assert len(calls) == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["parts", "settings.json"]


def test_a_part_that_fails_leaves_nothing(tmp_path):
    folder = Folder(tmp_path, {})

    def fails(scratch) -> Result:
        (scratch / "large").write_text("...")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        folder.part("x", fails)
    assert not list((tmp_path / "parts").glob("*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "settings.json"]


def test_nothing_is_written_before_there_is_something_to_keep(tmp_path):
    Folder(tmp_path / "run", {"seed": 1})
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    folder = Folder(tmp_path / "run", {"seed": 2})
    (tmp_path / "run" / ".scratch-old").mkdir()  # left by a kill
    folder.table("t", [{"a": 1}])
    assert not (tmp_path / "run" / ".scratch-old").exists()


def test_dictionaries_and_samples_share_no_random_numbers():
    data = Data.draw("kl", 400, 200, K=3, judged=50, seed=0)
    W = data.source.planted.W
    for block in range(2):
        H = 1.0 + np.abs(np.random.default_rng([0, 2, block]).normal(0.0, 5.0, (200, 40)))
        assert not np.isin(H[:5], W).any()


def test_another_run_or_other_files_are_not_mixed_up(tmp_path):
    for _ in range(2):
        Folder(tmp_path / "run", {"seed": 1, "methods": ("ol",)}).table("t", [{"a": 1}])
    with pytest.raises(ValueError, match=r"other settings \(seed 1, not 2\); give --out another folder"):
        Folder(tmp_path / "run", {"seed": 2, "methods": ("ol",)})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not empty"):
        Folder(tmp_path / "mine", {})


def test_tables_have_all_columns(tmp_path):
    folder = Folder(tmp_path, {})
    folder.table("t", [{"a": 1}, {"a": 2, "b": "x, y"}])
    assert (tmp_path / "t.csv").read_text().split() == ["a,b", "1,", '2,"x,', 'y"']


def test_the_report_escapes_and_ends_with_the_claims(tmp_path):
    claim = Claim("OL < Batch", "a | b", [True])
    blocks = [heading("<h>"), paragraph("x < y"), table("caption", [{"a": 1.23456}, {"b": "<td>"}])]
    report = Report("A & B", blocks, [claim])
    page = report.write(tmp_path).read_text()
    assert "<title>A &amp; B</title>" in page
    assert "&lt;td&gt;" in page
    assert "<td>1.235</td>" in page
    assert f'<td class="holds">{HOLDS}</td>' in page
    text = (tmp_path / "report.md").read_text()
    assert "| OL < Batch | a \\| b | holds |" in text


def test_a_report_without_claims_has_no_table_of_them(tmp_path):
    assert "Claims" not in Report("x", [paragraph("y")]).write(tmp_path).read_text()


@pytest.mark.parametrize("experiment", [Synthetic, Sensitivity, Topics, Faces])
def test_settings_are_json(experiment: type[Experiment]):
    json.dumps({key: value for key, value in vars(experiment()).items() if key != "data"})
