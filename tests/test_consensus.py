"""What several runs agree on: planted programmes are found, a wrong number of them shows, and the result is a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF, consensus
from onmf.cli.main import app
from onmf.data import Batches, SourceError, examples, open_source
from onmf.insight.features import directions
from onmf.selection.agreement import clustered, neighbour_distances, stability
from onmf.selection.runs import FitProgress
from tests.small import made_dense

PLANTED = 5
CELLS = examples.cells(300, 120, PLANTED, depth=500)
SMALL = sp.csr_matrix(examples.cells(150, 40, 3, depth=300).counts)
QUICK: dict[str, Any] = {"seeds": 4, "max_passes": 2, "random_state": 0}


def likeness(W: Any, truth: Any) -> float:
    """The mean cosine of the planted programmes with the components that are matched with them."""
    cosines = directions(np.asarray(W)) @ directions(truth).T
    return float(cosines[linear_sum_assignment(cosines, maximize=True)].mean())


# What is found


def test_stability_falls_for_a_wrong_number_of_components() -> None:
    few, right, many = (consensus(CELLS.counts, K, 6, random_state=0) for K in (PLANTED - 1, PLANTED, PLANTED + 1))
    assert right.stability > 0.9
    assert max(few.stability, many.stability) < right.stability - 0.1
    assert right.kept == 1 > many.kept
    assert likeness(right.components, CELLS.programmes) > 0.97


def test_where_single_runs_differ_the_consensus_is_closer_to_the_truth_than_their_median() -> None:
    noisy = examples.cells(300, 120, 8, depth=100)
    runs = [OnlineNMF(8, max_passes=5, random_state=seed).fit(noisy.counts) for seed in range(8)]
    single = np.median([likeness(run.components_, noisy.programmes) for run in runs])
    found = consensus(noisy.counts, 8, 8, random_state=0)
    assert likeness(found.components, noisy.programmes) > single + 0.01
    assert found.model.loss(noisy.counts) < np.median([run.loss(noisy.counts) for run in runs])


def test_the_largest_share_of_the_consensus_tells_populations_of_cells_as_well_as_cnmf_does() -> None:
    """On these cells cNMF's way reaches 0.89 (``python -m benchmarks.cells``), and raw coefficients 0.69."""
    cells = examples.cells(500, 200, 8, depth=500)
    model = consensus(cells.counts, 8, 10, random_state=0).model
    top, populations = model.proportions(cells.counts).argmax(axis=1), cells.usages.argmax(axis=1)
    assert sum(np.bincount(populations[top == k]).max() for k in np.unique(top)) > 0.9 * len(top)


def test_the_steadiest_component_comes_first_and_the_scores_are_of_all_components() -> None:
    found = consensus(CELLS.counts, PLANTED + 1, 5, random_state=0)
    assert (np.diff(found.stabilities) <= 0).all()
    assert found.distances.shape == (5, PLANTED + 1)
    assert found.sizes.sum() == round(found.kept * 5 * (PLANTED + 1))
    assert found.stabilities[-1] < 0.5 < found.stabilities[0]
    assert found.stabilities.min() <= found.stability <= found.stabilities.max()


def test_sparse_counts_are_not_made_dense(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    counts = sp.random(600, 2000, 0.02, format="csr", random_state=0, data_rvs=lambda n: rng.poisson(2, n) + 1.0)
    sizes = made_dense(monkeypatch)
    consensus(counts, 2, 2, threshold=2.0, random_state=0)
    assert max(sizes) <= 120 * counts.shape[1]  # of the samples that an exchange of components is made of


def test_a_seed_makes_the_consensus_repeatable() -> None:
    one, same, other = (consensus(SMALL, 3, **QUICK | {"random_state": seed}) for seed in (0, 0, 1))
    assert np.array_equal(one.components, same.components)
    assert one.stability == same.stability != other.stability


# Components in groups


def test_a_component_that_no_other_run_has_found_is_left_out_and_lowers_the_score() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(3, 6)
    components = np.concatenate([centres + 0.01 * rng.random((3, 6)) for _ in range(5)]) * rng.uniform(0.5, 2, (15, 1))
    kept = neighbour_distances(components, 5) <= 0.5
    assert kept.all()
    labels, widths = clustered(components, kept, 3, 0)
    assert widths.mean() > 0.95
    assert len(set(labels[:3])) == 3
    assert (labels.reshape(5, 3) == labels[:3]).all()
    components[4] = [0, 0, 0, 0, 1, 0]
    kept = neighbour_distances(components, 5) <= 0.5
    assert np.flatnonzero(~kept).tolist() == [4]
    assert clustered(components, kept, 3, 0)[1].mean() < widths.mean() - 0.05


def test_runs_that_agree_on_too_little_are_an_error_with_the_cure() -> None:
    noise = np.random.default_rng(0).random((60, 30))
    with pytest.raises(ValueError, match=r"agree on fewer than 6 .* lower n_components, or raise threshold"):
        consensus(noise, 6, threshold=1e-6, **QUICK)
    assert consensus(noise, 6, threshold=2, **QUICK).kept == 1


# The model


def test_the_model_has_the_consensus_as_its_dictionary_and_is_used_and_stored_like_any(tmp_path: Path) -> None:
    found = consensus(SMALL, 3, **QUICK)
    assert np.array_equal(found.model.components_, found.components)
    assert found.components.dtype == SMALL.dtype
    assert found.model.n_samples_seen_ == SMALL.shape[0]
    onmf.save(found.model, tmp_path / "m")
    again = onmf.load(tmp_path / "m")
    assert np.array_equal(again.components_, found.components)
    assert np.array_equal(again.transform(SMALL), found.model.transform(SMALL))
    single = OnlineNMF(3, max_passes=2, random_state=0).fit(SMALL)
    assert found.model.loss(SMALL) < 1.02 * single.loss(SMALL)


@pytest.mark.parametrize("divergence", ["kl", "is", "squared_l2", "huber"])
def test_features_that_are_zero_everywhere_are_no_obstacle(divergence: str) -> None:
    X = np.concatenate([SMALL.toarray() + (0.1 if divergence == "is" else 0), np.zeros((150, 2))], axis=1)
    X = np.maximum(X, 1e-6) if divergence == "is" else X
    found = consensus(X, 2, divergence=divergence, **QUICK | {"seeds": 3})
    assert np.isfinite(found.model.loss(X))
    if divergence != "is":
        assert found.components[:, -2:].max() < 1e-4


def test_coefficients_on_the_simplex_keep_the_units_of_their_components() -> None:
    rng = np.random.default_rng(0)
    truth = 1e6 * np.eye(3, 8) + 2e5
    X = rng.dirichlet(np.full(3, 0.2), 200) @ truth * rng.normal(1, 0.01, (200, 8))
    settings: dict[str, Any] = {"divergence": "squared_l2", "coefficients": "simplex"}
    found = consensus(X, 3, **settings, **QUICK)
    assert found.components.max() == pytest.approx(1.2e6, rel=0.1)
    np.testing.assert_allclose(found.model.transform(X).sum(axis=1), 1, rtol=1e-6)


# Data


def test_data_that_can_be_read_again_are_taken_and_others_raise_an_error(tmp_path: Path) -> None:
    X = SMALL.toarray()
    in_lists = consensus(Batches([X[:80], X[80:]]), 3, **QUICK)
    assert in_lists.model.n_samples_seen_ == 150
    np.save(tmp_path / "x.npy", X)
    from_file = consensus(open_source(tmp_path / "x.npy"), 3, **QUICK)
    assert np.array_equal(from_file.components, consensus(X, 3, **QUICK).components)
    with pytest.raises(SourceError, match="can be read only once, but every fit learns from all of it"):
        consensus(iter([X[:80], X[80:]]), 3, **QUICK)


def test_the_names_of_genes_are_kept() -> None:
    anndata = pytest.importorskip("anndata")
    genes = [f"gene{k}" for k in range(40)]
    cells = anndata.AnnData(SMALL, obs={"obs_names": [str(k) for k in range(150)]}, var={"var_names": genes})
    found = consensus(cells, 3, **QUICK)
    assert found.model.feature_names_in_.tolist() == genes
    assert found.model.annotate(cells).varm["onmf"].shape == (40, 3)


# Settings


def test_every_run_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[FitProgress] = []
    consensus(SMALL, 3, callback=told.append, verbose=1, **QUICK)
    assert [(run.done, run.total) for run in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"[onmf] run {run.done} of 4: loss {run.loss:.6g}" for run in told]


def test_the_result_can_be_read() -> None:
    found = consensus(SMALL, 3, **QUICK)
    assert repr(found).startswith("Consensus(3 components of 4 runs: stability 0.")
    assert len(str(found).splitlines()) == 6
    assert f"{found.stability:.3f}" in str(found)
    with pytest.raises(AttributeError):
        found.stability = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_components": 1}, "consensus compares components with each other"),
        ({"n_components": 0}, "n_components must be a whole number of at least 1"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2"),
        ({"threshold": 0}, "threshold is a distance between components of length 1, above 0; got 0"),
        ({"random_state": "x"}, "random_state must be None, a whole number"),
        ({"divergence": "magic"}, "unknown divergence 'magic'"),
    ],
)
def test_bad_settings_raise_an_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        consensus(SMALL, **{"n_components": 3} | settings)


@pytest.mark.parametrize(
    ("name", "said"), [("fixed", "consensus sets fixed itself"), ("callbacks", "pass callback, not callbacks")]
)
def test_what_a_run_must_not_be_given_is_refused(name: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        consensus(SMALL, 3, **{name: [print]})


# Many runs


def test_runs_at_the_same_time_and_those_that_are_resumed_give_the_same_consensus(tmp_path: Path) -> None:
    once = consensus(SMALL, 3, **QUICK)
    assert np.array_equal(consensus(SMALL, 3, n_jobs=2, **QUICK).components, once.components)

    def stop(told: FitProgress) -> None:
        if told.done == 2:
            raise KeyboardInterrupt

    kept: dict[str, Any] = {"checkpoint": tmp_path / "runs"} | QUICK
    with pytest.raises(KeyboardInterrupt):
        consensus(SMALL, 3, callback=stop, **kept)
    told: list[FitProgress] = []
    again = consensus(SMALL, 3, resume=True, callback=told.append, **kept)
    assert [each.done for each in told] == [3, 4]
    assert np.array_equal(again.components, once.components)
    with pytest.raises(ValueError, match="holds fits with other settings"):
        consensus(SMALL, 4, resume=True, **kept)


def test_without_a_seed_runs_are_resumed_by_the_seeds_of_their_file_and_more_can_be_added(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "runs", "max_passes": 2}
    told: list[FitProgress] = []
    first = consensus(SMALL, 3, 2, **kept)
    again = consensus(SMALL, 3, 2, resume=True, callback=told.append, **kept)
    assert not told
    assert np.array_equal(again.components, first.components)
    more = consensus(SMALL, 3, 4, resume=True, callback=told.append, **kept)
    assert [each.done for each in told] == [3, 4]
    assert np.array_equal(more.runs[:6], first.runs)
    with pytest.raises(ValueError, match="holds fits with another seed; leave the seed out"):
        consensus(SMALL, 3, 4, resume=True, random_state=0, **kept)


def test_more_runs_of_a_seed_are_those_that_a_longer_consensus_makes(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "runs"} | QUICK
    consensus(SMALL, 3, **kept | {"seeds": 2})
    assert np.array_equal(consensus(SMALL, 3, resume=True, **kept).components, consensus(SMALL, 3, **QUICK).components)


def test_stability_means_the_same_for_a_consensus_and_for_a_rank() -> None:
    found = consensus(CELLS.counts, PLANTED, 4, random_state=0)
    dictionaries = np.split(found.runs, 4)
    assert stability(dictionaries) == pytest.approx(found.stability, abs=0.02)  # by other starts of k-means


def test_the_clustergram_shows_the_distances_of_what_was_kept(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = consensus(CELLS.counts, PLANTED + 1, 5, random_state=0, max_passes=3)
    figure = found.plot()
    drawn = figure.axes[0].images[0].get_array()
    kept = round(found.kept * 5 * (PLANTED + 1))
    assert drawn.shape == (kept, kept) < (5 * (PLANTED + 1),) * 2
    assert drawn.diagonal().max() < 1e-3 < 0.5 < drawn.max()
    figure.savefig(tmp_path / "runs.png")


def test_the_command_writes_a_model_and_a_clustergram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    sp.save_npz("x.npz", SMALL)
    options = ["-k", 3, "--runs", 3, "--passes", 2, "--seed", 0, "--checkpoint", "runs", "--jobs", 2]
    arguments = ["consensus", "x.npz", *options, "--plot", "runs.png", "--out", "m"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert "run 3 of 3" in result.stderr or "fit 3 of 3" in result.stderr
    expected = consensus(SMALL, 3, 3, max_passes=2, random_state=0)
    assert np.array_equal(onmf.load("m").components_, expected.components)
    assert f"The stability of 3 components over 3 runs is {expected.stability:.3f}" in result.stdout
    assert Path("runs.png").stat().st_size > 1000
    again = CliRunner().invoke(app, [*map(str, arguments[:-1]), "again", "--resume", "--json"])
    assert json.loads(again.stdout)["stability"] == pytest.approx(expected.stability)
