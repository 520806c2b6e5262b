"""``suggest_divergence``, ``onmf suggest``: right on planted noise, in any units, and honest where they cannot tell."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from benchmarks.data_sets import load_piano
from onmf import DataError, OnlineNMF, divergences, suggest_divergence
from onmf import data as streams
from onmf._support.arrays import Array
from onmf.cli import main as cli
from onmf.data.examples import Planted
from onmf.selection.divergence import Suggestion
from reproduction.datasets import matlab, texts

Noise = Callable[[Array, np.random.Generator], Array]


def contaminated(noise: Noise, share: float) -> Noise:
    """The same noise, but a share of the entries is anything up to ten times the mean."""

    def noisy(clean: Array, rng: np.random.Generator) -> Array:
        return np.where(
            rng.random(clean.shape) < share, rng.uniform(0, 10 * clean.mean(), clean.shape), noise(clean, rng)
        )

    return noisy


def poisson(clean: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(clean).astype(np.float64)


def gamma(clean: Array, rng: np.random.Generator) -> Array:
    return rng.gamma(10.0, clean / 10.0)


def gaussian(clean: Array, rng: np.random.Generator) -> Array:
    return np.maximum(rng.normal(clean, 0.15 * clean.mean()), 0.0)


def laplace(clean: Array, rng: np.random.Generator) -> Array:
    return np.maximum(rng.laplace(clean, 0.1 * clean.mean()), 0.0)


PLANTED: dict[str, tuple[str, Noise]] = {
    "poisson": ("kl", poisson),
    "gamma": ("is", gamma),
    "gaussian": ("squared_l2", gaussian),
    "laplace": ("l1", laplace),
    "gaussian and 2 % outliers": ("huber", contaminated(gaussian, 0.02)),
    "gaussian and 10 % outliers": ("huber", contaminated(gaussian, 0.1)),
    "poisson and 3 % outliers": ("huber", contaminated(poisson, 0.03)),
    "gamma and 5 % outliers": ("huber", contaminated(gamma, 0.05)),
}


def planted(name: str, n: int, F: int, K: int, seed: int) -> Array:
    """Noise on H W whose entries are unequal, as those of parts-based data are."""
    rng = np.random.default_rng([seed, K])
    return PLANTED[name][1](25 * rng.gamma(1.0, 1.0, (n, K)) @ rng.gamma(0.5, 1.0, (K, F)), rng)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_noise_is_recognised_from_a_hundred_samples_in_any_units(name: str) -> None:
    for seed, (K, unit) in enumerate([(3, 1.0), (10, 1e-6), (6, 1e6)]):
        found = suggest_divergence(unit * planted(name, 100, 30, K, seed % 2))
        assert found.divergence == PLANTED[name][0], f"rank {K}, unit {unit}: {found}"
        assert found.decided


@pytest.mark.parametrize("name", ["poisson", "gaussian and 2 % outliers"])
def test_planted_noise_is_recognised_in_a_sample_of_thousands(name: str) -> None:
    found = suggest_divergence(planted(name, 4000, 300, 5, 0))
    assert found.divergence == PLANTED[name][0]
    assert (found.rows, found.columns) == (500, 150)


@pytest.mark.parametrize(
    ("noise", "expected"),
    [("poisson", {"kl"}), ("gamma", {"is"}), ("gaussian", {"squared_l2"}), ("outliers", {"l1", "huber"})],
)
def test_the_papers_synthetic_data_get_the_divergence_that_the_paper_uses(noise: str, expected: set[str]) -> None:
    rng = np.random.default_rng(0)
    assert suggest_divergence(Planted.draw(80, 10, noise, rng).sample(300, rng).V).divergence in expected


@pytest.mark.parametrize("name", ["poisson", "gamma", "gaussian"])
def test_the_power_is_the_planted_one_within_its_error(name: str) -> None:
    found = suggest_divergence(planted(name, 300, 80, 4, 1))
    assert abs(found.power - {"poisson": 1, "gamma": 2, "gaussian": 0}[name]) < 0.1
    assert 0 < found.power_error < 0.05


def test_a_power_between_suggests_the_beta_divergence_between() -> None:
    rng = np.random.default_rng(0)
    clean = 25 * rng.gamma(1.0, 1.0, (300, 4)) @ rng.gamma(0.5, 1.0, (4, 80))
    sizes = 3.0 * np.sqrt(clean)  # a gamma distribution of this shape has a variance that grows as mean^1.5
    found = suggest_divergence(rng.gamma(sizes, clean / sizes))
    assert found.divergence in {"beta:0.5", "beta:0.4", "beta:0.6"}
    assert "between kl (1) and is (2)" in found.reason


def test_units_do_not_change_a_figure() -> None:
    X = planted("poisson", 100, 30, 3, 0)
    ours, theirs = suggest_divergence(X), suggest_divergence(X * 2.0**-700)
    assert (ours.power, ours.outliers, ours.reason) == (theirs.power, theirs.outliers, theirs.reason)


def test_multiplicative_noise_with_zeros_does_not_get_is() -> None:
    X = planted("gamma", 100, 30, 3, 0)
    X[np.random.default_rng(0).random(X.shape) < 0.002] = 0.0
    found = suggest_divergence(X)
    assert found.divergence == "beta:0.5"
    assert "zero" in found.reason
    assert found.ranking[-1] == "is"


def test_features_in_different_units_are_noticed() -> None:
    rng = np.random.default_rng(0)
    X = gaussian(rng.uniform(1, 10, (200, 4)) @ rng.uniform(1, 10, (4, 40)), rng)
    assert suggest_divergence(X).divergence == "squared_l2"
    found = suggest_divergence(X * 10.0 ** rng.uniform(-3, 3, 40))
    assert (found.divergence, found.decided) == ("kl", False)
    assert "divide each by its mean, and the answer is squared_l2" in found.reason


def unequal() -> Array:
    return np.exp(np.random.default_rng(0).normal(0, 100, (100, 30)))


@pytest.mark.parametrize(
    ("X", "why"),
    [
        (np.ones((50, 20)), "no noise"),
        (np.outer(np.arange(1.0, 51.0), np.arange(1.0, 21.0)), "no noise"),
        (np.zeros((50, 20)), "no entry is above zero"),
        (np.random.default_rng(0).random((5, 400)), "only 5 rows"),
        ([[1.0, 2.0], [3.0, 4.0]], "only 2 rows x 2 columns"),
        (np.eye(100), "too few entries other than zero"),
        (unequal(), "too unequal"),
    ],
)
def test_what_does_not_tell_gets_the_safe_default_and_says_why(X: Any, why: str) -> None:
    found = suggest_divergence(X)
    assert (found.divergence, found.decided) == ("kl", False)
    assert found.reason.startswith("Cannot tell: ")
    assert why in found.reason
    assert np.isnan(found.power)
    with pytest.raises(ValueError, match="no variance to draw"):
        found.plot()


def test_a_power_that_means_hardly_differ_for_is_not_measured() -> None:
    found = suggest_divergence(np.random.default_rng(0).normal(1000.0, 1.0, (200, 30)))
    assert found.reason.startswith("Cannot tell: the means of the entries differ too little to show how the variance")
    assert "power" not in found.reason
    assert np.isnan([found.power, found.power_error]).all()
    assert "variance ~" not in str(found)
    assert "not measured" in found.plot().axes[0].get_title()


@pytest.mark.parametrize("name", list(PLANTED)[::2])
def test_planted_noise_is_recognised_with_half_of_the_entries_unknown(name: str) -> None:
    X = planted(name, 300, 50, 3, 0)
    gone = np.random.default_rng(1).random(X.shape) < 0.5
    assert suggest_divergence(np.where(gone, np.nan, X), missing="nan").divergence == PLANTED[name][0]


def test_what_sparse_data_do_not_store_may_be_unknown_instead_of_zero() -> None:
    X = planted("gaussian", 300, 50, 3, 0) + 1
    seen = scipy.sparse.csr_array(np.where(np.random.default_rng(1).random(X.shape) < 0.5, X, 0))
    found = suggest_divergence(seen, implicit="missing")
    assert (found.divergence, found.zeros) == ("squared_l2", 0)
    assert suggest_divergence(seen).zeros > 0.4


def test_data_without_noise_are_seen_through_holes() -> None:
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, 1.0, (300, 3)) @ rng.gamma(1.0, 1.0, (3, 50))
    found = suggest_divergence(np.where(rng.random(X.shape) < 0.3, np.nan, X), missing="nan")
    assert "no noise" in found.reason


def test_weights_of_samples_change_no_figure(tmp_path: Path) -> None:
    X = planted("poisson", 100, 10, 3, 0)
    table = np.column_stack([X, np.full(len(X), 3)])
    np.savetxt(tmp_path / "x.csv", table, delimiter=",", header=",".join([*"abcdefghij", "count"]), comments="")
    weighted = suggest_divergence(streams.open_source(f"{tmp_path / 'x.csv'}?weight=count"))
    assert str(weighted) == str(suggest_divergence(X))


def test_the_command_takes_holes(tmp_path: Path) -> None:
    X = planted("poisson", 100, 30, 3, 0)
    X[::7, ::5] = np.nan
    np.save(tmp_path / "x.npy", X)
    assert json.loads(invoke(tmp_path / "x.npy", "--missing", "nan", "--json"))["divergence"] == "kl"


def test_empty_rows_and_columns_are_left_out() -> None:
    X = planted("poisson", 100, 30, 3, 0) + 1
    wide = np.zeros((400, 90))
    wide[::4, ::3] = X
    found = suggest_divergence(wide)
    assert (found.divergence, found.rows, found.columns, found.zeros) == ("kl", 100, 30, 0.0)


def test_sparse_data_sources_frames_and_iterators_are_looked_at_alike(tmp_path: Path) -> None:
    import pandas as pd

    X = planted("poisson", 300, 40, 3, 0)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    plain = suggest_divergence(X)
    for same in (scipy.sparse.csc_array(X), pd.DataFrame(X), streams.Rows(X), X.astype(np.int32)):
        assert suggest_divergence(same).power == plain.power
    for ordered in (streams.open_source(tmp_path / "x.csv"), iter([X[:100], X[100:]])):
        assert suggest_divergence(ordered).divergence == "kl"


def test_a_stream_without_an_end_is_looked_at_up_to_a_limit() -> None:
    def batches() -> Any:
        while True:
            yield planted("poisson", 100, 30, 3, 0)

    assert suggest_divergence(batches()).rows == 500
    silent = suggest_divergence(np.zeros((7, 30)) for _ in iter(int, 1))
    assert not silent.decided
    assert silent.rows_read < 20_000


@pytest.mark.parametrize(
    ("X", "error", "why"),
    [
        (np.full((50, 20), np.nan), DataError, "NaN in the data at row"),
        (-np.ones((50, 20)), DataError, "Negative values"),
        (np.ones(20), streams.SourceError, "2-D"),
        (np.ones((0, 5)), streams.SourceError, "no samples"),
        ("x.npy", TypeError, "open_source"),
        ([["a", "b"]], streams.SourceError, "real numbers"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(X: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        suggest_divergence(X)


def test_the_suggestion_is_a_divergence_that_fit_takes_and_prints_its_reason() -> None:
    X = planted("gamma", 100, 30, 3, 0)
    found = suggest_divergence(X)
    OnlineNMF(3, divergence=found.divergence, random_state=0).fit(X)
    assert isinstance(found, Suggestion)
    assert str(found).startswith(f"is: {found.reason}")
    assert repr(found).startswith("Suggestion(divergence='is', decided=True")
    assert found.ranking[0] == "is"
    assert [divergences.get(name).name for name in found.ranking]


def test_the_picture_has_the_measured_variances_and_the_three_powers() -> None:
    found = suggest_divergence(planted("gamma", 100, 30, 3, 0))
    (axes,) = found.plot().axes
    *guides, dots = axes.lines
    assert [line.get_label() for line in guides] == ["0: squared_l2", "1: kl", "2: is"]
    np.testing.assert_array_equal(dots.get_ydata(), found.variances)
    for power, line in enumerate(guides):
        x, y = np.log(line.get_xdata()), np.log(line.get_ydata())
        assert np.polyfit(x, y, 1)[0] == pytest.approx(power, abs=1e-9)


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(cli.app, ["suggest", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    return result.stdout


def test_the_command_prints_a_table_the_reason_and_a_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", planted("poisson", 100, 30, 3, 0))
    said = invoke(tmp_path / "x.npy", "--plot", tmp_path / "noise.png")
    assert "variance ~ mean^" in said
    assert "grows in proportion to the mean" in said
    assert (tmp_path / "noise.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_gives_json_without_nan(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", planted("poisson", 100, 30, 3, 0))
    np.save(tmp_path / "ones.npy", np.ones((50, 20)))
    found, unknown = (json.loads(invoke(tmp_path / name, "--json")) for name in ("x.npy", "ones.npy"))
    assert (found["divergence"], found["decided"], found["whole_numbers"]) == ("kl", True, True)
    assert len(found["means"]) == len(found["variances"]) > 3
    assert (unknown["decided"], unknown["power"]) == (False, None)


def test_the_command_refuses_a_picture_that_cannot_be_written_before_it_reads(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((50, 20)))
    for plot in ("noise.xyz", "nowhere/noise.png", "x.npy"):
        result = CliRunner().invoke(cli.app, ["suggest", str(tmp_path / "x.npy"), "--plot", str(tmp_path / plot)])
        assert result.exception is not None


REAL: dict[str, tuple[str, Callable[[], Any]]] = {
    "BBC": ("kl", lambda: texts.load_bbc().counts),
    "piano": ("is", load_piano),
    "Yale B": ("huber", lambda: matlab.load_yaleb().images),
}


@pytest.mark.skipif("ONMF_DATA" not in os.environ, reason="set ONMF_DATA to a folder with the public data sets")
@pytest.mark.parametrize("name", REAL)
def test_real_data_get_a_sensible_divergence(name: str) -> None:
    expected, load = REAL[name]
    assert suggest_divergence(load()).divergence == expected


def test_a_table_of_few_columns_is_guessed_at_and_said_so() -> None:
    """Three components in eight columns: a fit of rank 2, the most that can be judged, takes the third for noise."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.gamma(1.0, 1.0, (500, 3)) @ rng.gamma(0.6, 3.0, (3, 8)) + np.abs(rng.normal(0, 0.15, (500, 8)))
        found = suggest_divergence(X)
        assert not found.decided
        assert "This is a guess" in found.reason


# Logarithms of counts


@pytest.mark.parametrize(("depth", "total"), [(2500, 500), (3000, 10_000), (8000, 1000)])
def test_logarithms_of_counts_get_squared_l2_and_the_counts_kl(depth: int, total: int) -> None:
    counts = streams.examples.cells(500, 300, 5, depth=depth).counts
    logarithms = counts.multiply(total / counts.sum(axis=1)).tocsr().log1p()
    for X in (logarithms, logarithms / np.log(2)):
        found = suggest_divergence(X)
        assert (found.divergence, found.decided) == ("squared_l2", True)
        assert "logarithms of counts" in found.reason
    assert suggest_divergence(counts).divergence == "kl"
    assert "logarithms" not in suggest_divergence(logarithms.sqrt()).reason


def test_a_file_and_an_array_of_the_same_numbers_get_the_same_answer(tmp_path: Path) -> None:
    """The first 500 of the digits would call for another divergence than 500 at random."""
    X = load_digits().data
    np.savetxt(tmp_path / "digits.csv", X, fmt="%d", delimiter=",")
    array, file = suggest_divergence(X), suggest_divergence(streams.open_source(tmp_path / "digits.csv"))
    assert (array.divergence, array.power, array.ranking) == (file.divergence, file.power, file.ranking)
