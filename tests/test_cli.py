"""The command line: its files, its words and its exit status; in a process of its own where signals are the promise."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF, load
from onmf.cli import main as cli
from onmf.cli import progress, terminal
from onmf.cli.demo import photograph as demo
from onmf.data import open_source, shuffle
from onmf.learner import Progress
from onmf.methods import Canonical, Paper
from onmf.model.sets import INITS
from tests import processes
from tests.conftest import Run

ONMF = Path(sys.executable).with_name("onmf")
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "NO_COLOR", "PYTHONWARNINGS"}} | {
    "COLUMNS": "200",
    "OPENBLAS_NUM_THREADS": "1",
    "TERM": "xterm",
}
X = (np.random.default_rng(0).gamma(2.0, 1.0, (60, 3)) @ np.random.default_rng(1).random((3, 8))).round(3)
SPARSE = X * (np.quantile(X, 0.9) < X)
NAMES = [f"feature {i}" for i in range(8)]
OPTIONS = ["-k", "3", "--divergence", "huber:0.5", "--batch-size", "25", "--passes", "2", "--seed", "5"]
SAME_OPTIONS: dict[str, Any] = {"divergence": "huber:0.5", "batch_size": 25, "max_passes": 2, "random_state": 5}


def invoke(*arguments: object) -> str:
    """Stdout of a command that must succeed; a warning would be an error here."""
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data in every format, and a model of them."""
    folder = tmp_path_factory.mktemp("cli")
    np.save(folder / "x.npy", X)
    scipy.sparse.save_npz(folder / "x.npz", scipy.sparse.csr_array(SPARSE))
    np.savetxt(folder / "x.csv", X, fmt="%.3f", delimiter=",", header=",".join(NAMES), comments="")
    np.savetxt(folder / "x.tsv", X, fmt="%.3f", delimiter="\t")
    onmf.save(OnlineNMF(3, **SAME_OPTIONS).fit(X), folder / "model.safetensors")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def require_same_learning(one: OnlineNMF, other: OnlineNMF) -> None:
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.history_["loss"], other.history_["loss"])


# Fit


@pytest.mark.parametrize(
    ("data", "options", "settings", "method"),
    [
        ("x.npy", [], {}, "surrogate"),
        ("x.npy", ["--no-shuffle"], {"shuffle": False}, "surrogate"),
        ("x.npz", [], {}, "surrogate"),
        ("x.npz", ["-d", "kl"], {"divergence": "kl"}, "sparse_surrogate"),
        ("x.csv", ["--no-shuffle"], {"shuffle": False}, "surrogate"),
        ("x.tsv", [], {}, "surrogate"),  # through a buffer
        (
            "x.npy",
            ["-d", "kl", "--method", "paper:tau=5,solver=armijo,step=canonical,a=20"],
            {"divergence": "kl", "method": Paper(tau=5, solver="armijo", step=Canonical(a=20))},
            "paper",
        ),
        (
            "x.npy",
            ["-d", "is", "--method", "lefevre:r=0.9,N=30"],
            {"divergence": "is", "method": "lefevre:r=0.9,N=30"},
            "lefevre",
        ),
    ],
    ids=["npy", "in order", "sparse", "sparse counts", "csv", "tsv", "paper", "lefevre"],
)
def test_fit_learns_what_the_library_learns_to_the_bit(
    folder: Path, tmp_path: Path, data: str, options: list[str], settings: dict[str, Any], method: str
) -> None:
    said = invoke("fit", folder / data, *OPTIONS, *options, "--out", tmp_path / "m")
    assert f"{tmp_path / 'm'}: 3 components of 8 features from 2 passes over 60 samples" in said
    model = load(tmp_path / "m")
    expected = OnlineNMF(3, **(SAME_OPTIONS | settings))
    samples = {"x.npz": scipy.sparse.csr_array(SPARSE), "x.tsv": shuffle(open_source(folder / "x.tsv"))}
    require_same_learning(model, expected.fit(samples.get(data, X)))
    assert model.method_ == expected.method_
    assert model.method_.name == method
    assert getattr(model, "feature_names_in_", np.array([])).tolist() == (NAMES if data == "x.csv" else [])
    assert list(contents(tmp_path)) == ["m"]


def test_the_defaults_of_the_command_are_those_of_the_library(folder: Path, tmp_path: Path) -> None:
    invoke("fit", folder / "x.npy", "--out", tmp_path / "m")
    assert load(tmp_path / "m").get_params() == OnlineNMF(method=onmf.methods.Auto()).get_params()


def test_every_option_reaches_the_model(folder: Path, tmp_path: Path) -> None:
    options = ["-k", 2, "-d", "alpha:0.5", "--method", "em:forgetting=0.25", "--init", "samples", "--reservoir", 7]
    rest = ["--batch-size", 11, "--passes", 3, "--no-shuffle", "--on-error", "skip", "--seed", 9]
    invoke("fit", folder / "x.npy", *options, *rest, "--out", tmp_path / "m")
    expected = OnlineNMF(
        2,
        divergence="alpha:0.5",
        method=onmf.methods.EM(forgetting=0.25),
        init="samples",
        reservoir=7,
        batch_size=11,
        max_passes=3,
        shuffle=False,
        on_error="skip",
        random_state=9,
    )
    assert load(tmp_path / "m").get_params() == expected.get_params()
    require_same_learning(load(tmp_path / "m"), expected.fit(X))


def test_another_seed_gives_another_dictionary(folder: Path, tmp_path: Path) -> None:
    for seed in (7, 8):
        invoke("fit", folder / "x.npy", "-k", "3", "--seed", seed, "--out", tmp_path / str(seed))
    assert not np.array_equal(load(tmp_path / "7").components_, load(tmp_path / "8").components_)


def test_a_loss_beyond_the_range_of_doubles_is_refused_with_the_cure_alone(tmp_path: Path, run_main: Run) -> None:
    np.save(tmp_path / "x.npy", X * 1e200)
    status, output, error = run_main("fit", tmp_path / "x.npy", "-k", "2", "-d", "squared_l2", "--out", tmp_path / "m")
    require_one_sentence(status, output, error, "rows 0 to 59, has a loss beyond the range of numbers")
    assert "rescale or clip them" in error


@pytest.mark.parametrize("name", ["topics[k20].safetensors", "[red]m", "a[/b]", "m:x:", "ünïcödé 模型"])
def test_a_file_may_have_any_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    assert name in invoke("fit", folder / "x.npy", "-k", "2", "--out", name)
    assert name in invoke("info", name)
    assert f"{name}.npy" in invoke("transform", name, folder / "x.npy", "--out", f"{name}.npy")


# Transform


@pytest.mark.parametrize("divergence", ["kl", "beta:1.5", "mahalanobis:A.npy"])
def test_transform_writes_what_the_model_gives_in_every_format(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, divergence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.eye(8) + 0.1)
    invoke("fit", folder / "x.csv", "-k", "3", "-d", divergence, "--seed", "1", "-o", "m")
    Path("A.npy").unlink()  # the model has its own
    for data, samples in (("x.csv", X), ("x.npz", scipy.sparse.csr_array(SPARSE))):
        expected = load("m").transform(samples)
        for out, delimiter in (("h.npy", ""), ("h.csv", ","), ("h.tsv", "\t")):
            said = invoke("transform", "m", folder / data, "-o", out)
            assert f"{out}: coefficients of 60 samples, 3 each." in said
            if out == "h.npy":
                assert np.array_equal(np.load(out), expected)
            else:
                first, *_ = Path(out).read_text().splitlines()
                assert first.split(delimiter) == ["component_0", "component_1", "component_2"]
                assert np.allclose(np.loadtxt(out, delimiter=delimiter, skiprows=1), expected, rtol=1e-8, atol=0)
    assert sorted(contents(tmp_path)) == ["h.csv", "h.npy", "h.tsv", "m"]


@pytest.mark.parametrize(("learnt", "seen"), [("float32", "float64"), ("float64", "float32"), ("float32", "float32")])
def test_transform_writes_all_digits_that_the_library_gives(tmp_path: Path, learnt: str, seen: str) -> None:
    np.save(tmp_path / "learnt.npy", X.astype(learnt))
    np.save(tmp_path / "seen.npy", X.astype(seen))
    invoke("fit", tmp_path / "learnt.npy", "-k", "2", "-d", "squared_l2", "--seed", "0", "--out", tmp_path / "m")
    invoke("transform", tmp_path / "m", tmp_path / "seen.npy", "--out", tmp_path / "h.npy")
    assert np.array_equal(np.load(tmp_path / "h.npy"), load(tmp_path / "m").transform(X.astype(seen)))


def test_transform_goes_through_many_blocks_in_order(folder: Path, tmp_path: Path) -> None:
    many = np.tile(X, (40, 1))
    np.save(tmp_path / "many.npy", many)
    invoke("transform", folder / "model.safetensors", tmp_path / "many.npy", "--out", tmp_path / "h.npy")
    assert np.array_equal(np.load(tmp_path / "h.npy"), load(folder / "model.safetensors").transform(many))


def test_a_table_whose_names_are_in_another_order_is_read_by_its_names(
    folder: Path, tmp_path: Path, run_main: Run
) -> None:
    invoke("fit", folder / "x.csv", *OPTIONS, "--out", tmp_path / "m")
    names = ",".join(reversed(NAMES))
    np.savetxt(tmp_path / "other.csv", X[:, ::-1], delimiter=",", header=names, comments="")
    for table in (folder / "x.csv", tmp_path / "other.csv"):
        run_main("transform", tmp_path / "m", table, "--out", tmp_path / f"{table.stem}.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.load(tmp_path / "other.npy"))


def test_entries_that_are_raised_in_many_blocks_are_counted_in_one_warning(
    folder: Path, tmp_path: Path, run_main: Run
) -> None:
    np.save(tmp_path / "many.npy", np.tile(SPARSE, (60, 1)))
    run_main("fit", folder / "x.npy", "-k", "2", "-d", "is", "--out", tmp_path / "m")
    status, _, error = run_main("transform", tmp_path / "m", tmp_path / "many.npy", "--out", tmp_path / "h.npy")
    assert status == 0
    assert error.count("DomainWarning") == 1
    share = f"{100 * (SPARSE == 0).mean():.3g}"
    assert f"{60 * (SPARSE == 0).sum()} entries ({share} %) are zero or nearly zero" in error


# Info and help


def test_info_says_what_a_model_holds(folder: Path) -> None:
    said = re.sub(r"[│\s]+", " ", invoke("info", folder / "model.safetensors"))  # cells may be wrapped
    facts = {"divergence": r"huber delta=0\.5", "method": r"auto \(surrogate\)", "components": "3", "features": "8"}
    facts |= {r"samples seen \(in all passes\)": "120", "passes": "2", "samples or batches skipped": "0"}
    facts |= {"other settings": "batch_size=25, max_passes=2, random_state=5"}
    for fact, value in facts.items():
        assert re.search(rf"{fact}\W+{value}\s", said), (fact, said)


def test_info_shows_the_constants_of_the_method_and_short_forms_of_matrices(tmp_path: Path) -> None:
    divergence = onmf.divergences.Mahalanobis(np.eye(8))
    method, sets = "paper:tau=5,step=canonical,a=20", onmf.Sets(eps=1e-6)
    model = OnlineNMF(2, divergence=divergence, method=method, init=X[:2], sets=sets)
    onmf.save(model.fit(X), tmp_path / "m")
    said = invoke("info", tmp_path / "m")
    assert "paper:tau=5,step=canonical,a=20" in said
    assert "matrix (8, 8)" in said
    assert "init=matrix (2, 8), sets=Sets(eps=1e-06" in said


@pytest.mark.parametrize("command", ["fit", "transform", "info", "rank", "demo"])
def test_the_help_of_every_command_shows_an_example(command: str) -> None:
    assert re.search(rf"Examples?:\s+onmf {command} ", invoke(command, "--help"))


def test_the_help_names_every_command_divergence_method_and_start() -> None:
    assert all(command in invoke("--help") for command in ("fit", "transform", "info", "rank", "demo"))
    said = invoke("fit", "--help")
    assert all(name in said for name in (*onmf.divergences.names(), *INITS, *onmf.methods.names()))


def test_version() -> None:
    assert onmf.__version__ in invoke("--version")


# Errors and warnings


def require_one_sentence(status: int, output: str, error: str, words: str) -> None:
    """Exit status 2, nothing on stdout, and one sentence on stderr; what has begun, or the bar, may stand before it."""
    assert status == 2
    assert output == ""
    before = ("━", "Learning K = ", "Finding coefficients of ")
    lines = [line for line in error.splitlines() if line.strip() and not any(each in line for each in before)]
    assert len(lines) == 1, error
    assert lines[0].startswith("onmf: ")
    assert words in lines[0]
    assert "Traceback" not in error


def spoilt(where: tuple[int, int], value: float) -> np.ndarray:
    Y = X.copy()
    Y[where] = value
    return Y


@pytest.fixture(scope="module")
def trouble(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder full of files that something is wrong with, beside good ones."""
    here = tmp_path_factory.mktemp("trouble")
    model = (folder / "model.safetensors").read_bytes()
    lines = (folder / "x.csv").read_text().splitlines()
    for name in ("x.npy", "x.csv", "model.safetensors"):
        (here / name).write_bytes((folder / name).read_bytes())
    np.save(here / "nan.npy", spoilt((41, 2), np.nan))
    np.save(here / "infinite.npy", spoilt((41, 2), np.inf))
    np.savetxt(here / "negative.csv", spoilt((41, 2), -0.5), delimiter=",", header=",".join(NAMES), comments="")
    np.savetxt(here / "nan.tsv", spoilt((41, 2), np.nan), delimiter="\t")
    scipy.sparse.save_npz(here / "negative.npz", scipy.sparse.csr_array(spoilt((41, 2), -0.5)))
    (here / "ragged.csv").write_text("\n".join([*lines[:42], "1,2,3", *lines[42:]]))
    (here / "text.csv").write_text("\n".join([*lines[:42], "1,2,3,four,5,6,7,8", *lines[42:]]))
    (here / "names.csv").write_text(lines[0])
    for name in ("empty.csv", "empty.npy", "empty.safetensors", "x.dat"):
        (here / name).touch()
    np.save(here / "narrow.npy", X[:, :5])
    np.save(here / "zeros.npy", np.zeros((60, 8)))
    np.save(here / "vector.npy", X[0])
    (here / "random.safetensors").write_bytes(np.random.default_rng(2).bytes(3000))
    (here / "cut.safetensors").write_bytes(model[: len(model) // 2])
    (here / "foreign.safetensors").write_bytes(safetensors.numpy.save({"components": X}))
    (here / "directory").mkdir()
    return here


FIT = ["fit", "x.npy", "-k", "3", "--out", "new"]
TRANSFORM = ["transform", "model.safetensors", "x.npy", "--out", "new.npy"]
ERRORS: dict[str, tuple[list[str], str]] = {
    "missing data": (["fit", "absent.npy", "--out", "new"], "no such file or folder: absent.npy"),
    "directory as data": (["fit", "directory", "--out", "new"], "directory is a directory"),
    "unknown suffix": (
        ["fit", "x.dat", "--out", "new"],
        "has a suffix that names no known format; put a scheme before it",
    ),
    "unknown divergence": ([*FIT, "--divergence", "nonsense"], "unknown divergence 'nonsense'; choose one of alpha,"),
    "divergence without its parameter": ([*FIT, "--divergence", "beta"], "write beta:BETA"),
    "divergence with a bad parameter": ([*FIT, "--divergence", "beta:x"], "cannot read beta:x"),
    "divergence with a parameter too many": ([*FIT, "--divergence", "kl:3"], "cannot read kl:3"),
    "mahalanobis without its file": ([*FIT, "--divergence", "mahalanobis:absent.npy"], "absent.npy"),
    "mahalanobis with an empty file": ([*FIT, "--divergence", "mahalanobis:empty.npy"], "empty.npy"),
    "mahalanobis of another shape": ([*FIT, "--divergence", "mahalanobis:x.npy"], "square matrix"),
    "unknown method": ([*FIT, "--method", "nonsense"], "unknown method 'nonsense'; choose one of auto, em"),
    "constant of another method": (
        [*FIT, "--method", "paper:r=1"],
        "method 'paper' has no constant 'r'; its constants",
    ),
    "constant without a value": ([*FIT, "--method", "paper:tau"], "write constants as NAME=VALUE"),
    "constant out of range": ([*FIT, "--method", "auto:forgetting=1"], "forgetting must lie in [0, 1), got 1"),
    "word for a number": ([*FIT, "--method", "paper:tau=few"], "tau must be a whole number of at least 1, got 'few'"),
    "number for a word": ([*FIT, "--method", "paper:solver=3"], "solver must be the name of a coefficient solver"),
    "unknown solver": ([*FIT, "--method", "paper:solver=armij"], "did you mean 'armijo'?"),
    "solver that refuses the divergence": (
        [*FIT, "-d", "is", "--method", "paper:solver=polyak"],
        "Polyak cannot solve is",
    ),
    "method that refuses the divergence": ([*FIT, "-d", "huber", "--method", "em"], "not 'huber'; use method"),
    "unknown treatment of errors": (
        [*FIT, "--on-error", "ignore"],
        "Invalid value for '--on-error': 'ignore' is not one of 'raise', 'skip'. See onmf fit",
    ),
    "unknown treatment of errors in an inverse": (
        ["inverse", "model.safetensors", "x.npy", "--out", "new.npy", "--on-error", "ignore"],
        "Invalid value for '--on-error': 'ignore' is not one of 'raise', 'skip'. See onmf inverse",
    ),
    "unknown format of sound": (
        ["separate", "model.safetensors", "x.npy", "--out", "new", "--format", "mp3"],
        "Invalid value for '--format': 'mp3' is not one of 'wav', 'flac'. See onmf separate",
    ),
    "unknown order of words": (
        ["topics", "model.safetensors", "--by", "length"],
        "Invalid value for '--by': 'length' is not one of 'relevance', 'weight', 'lift', 'specificity'. "
        "See onmf topics",
    ),
    "a reservoir of less than nothing": ([*FIT, "--reservoir", "-1"], "--reservoir"),
    "unknown init": ([*FIT, "--init", "nonsense"], "'nonsense' is not one of 'kmeans++', 'uniform', 'samples'"),
    "NaN in npy": (["fit", "nan.npy", "--out", "new"], "NaN in the data at row 41, column 2"),
    "infinity in npy": (["fit", "infinite.npy", "--out", "new"], "at row 41, column 2"),
    "negative in csv": (["fit", "negative.csv", "--out", "new"], "the first -0.5, at row 41, column 2"),
    "NaN in tsv": (["fit", "nan.tsv", "--out", "new"], "at row 41, column 2"),
    "negative in npz": (["fit", "negative.npz", "--out", "new"], "at row 41, column 2"),
    "all zeros": (["fit", "zeros.npy", "--out", "new"], "all zeros"),
    "ragged csv": (["fit", "ragged.csv", "--out", "new"], "ragged.csv"),
    "text in csv": (["fit", "text.csv", "--out", "new"], "text.csv"),
    "names without samples": (["fit", "names.csv", "--out", "new"], "no samples"),
    "empty csv": (["fit", "empty.csv", "--out", "new"], "empty.csv is empty"),
    "empty npy": (["fit", "empty.npy", "--out", "new"], "empty.npy cannot be read as an array of numbers"),
    "vector": (["fit", "vector.npy", "--out", "new"], "2-D array"),
    "output in no directory": (
        ["fit", "x.npy", "--out", "absent/new"],
        "cannot write absent/new: there is no folder absent",
    ),
    "output is a directory": (["fit", "x.npy", "--out", "directory"], "it is a directory"),
    "output in no place for files": (["fit", "x.npy", "-k", "3", "--out", "/proc/new"], "cannot write /proc/new"),
    "zero components": (["fit", "x.npy", "-k", "0", "--out", "new"], "--components"),
    "components in words": (["fit", "x.npy", "-k", "three", "--out", "new"], "--components"),
    "no output": (["fit", "x.npy"], "--out"),
    "unknown option": ([*FIT, "--nonsense"], "--nonsense"),
    "unknown command": (["nonsense"], "nonsense"),
    "wrong feature count": ([*TRANSFORM[:2], "narrow.npy", *TRANSFORM[3:]], "narrow.npy has 5 features, but model.saf"),
    "NaN to transform": ([*TRANSFORM[:2], "nan.npy", *TRANSFORM[3:]], "at row 41, column 2"),
    "negative to transform": ([*TRANSFORM[:2], "negative.csv", *TRANSFORM[3:]], "at row 41, column 2"),
    "transform to a strange suffix": (
        [*TRANSFORM[:4], "h.xlsx"],
        "cannot write coefficients to h.xlsx: use .csv, .h5ad, .jsonl, .npy",
    ),
    "transform to no directory": ([*TRANSFORM[:4], "absent/h.npy"], "there is no folder absent"),
    "missing model": (["info", "absent.safetensors"], "no such file: absent.safetensors"),
    "random bytes as model": (["info", "random.safetensors"], "random.safetensors is damaged, or not a model of onmf"),
    "empty model": (["info", "empty.safetensors"], "empty.safetensors is damaged, or not a model of onmf"),
    "truncated model": (["info", "cut.safetensors"], "cut.safetensors is damaged, or not a model of onmf"),
    "somebody else's model": (["info", "foreign.safetensors"], "not a model of onmf"),
    "array as model": (["transform", "x.npy", "x.npy", "--out", "new.npy"], "x.npy is damaged, or not a model of onmf"),
    "overwriting the data": (["fit", "x.npy", "--out", "x.npy"], "x.npy is an input; give --out another name"),
    "overwriting the samples": ([*TRANSFORM[:4], "x.npy"], "x.npy is an input; give --out another name"),
    "resuming without a checkpoint": ([*FIT, "--resume"], "name it with --checkpoint FILE"),
    "saving no checkpoint every so often": (
        [*FIT, "--every", "5m"],
        "--every says how often to save a checkpoint; name",
    ),
    "checkpoint in place of the model": ([*FIT, "--checkpoint", "new"], "give them different names"),
    "demo to no directory": (["demo", "--out", "absent/demo.png"], "there is no folder absent"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_one_sentence_and_exit_status_2_and_changes_no_file(
    trouble: Path, monkeypatch: pytest.MonkeyPatch, run_main: Run, name: str
) -> None:
    arguments, words = ERRORS[name]
    monkeypatch.chdir(trouble)
    before = contents(trouble)
    require_one_sentence(*run_main(*arguments), words)
    assert contents(trouble) == before


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "MemoryError"), (OSError(28, "No space left on device"), "No space left on device")],
    ids=["memory", "disk"],
)
def test_a_machine_that_is_too_small_is_one_sentence_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Run, error: Exception, words: str
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(OnlineNMF, "fit", fails)
    require_one_sentence(*run_main("fit", folder / "x.npy", "--out", tmp_path / "m"), words)


def test_a_refusal_to_resume_does_not_claim_that_anything_was_learnt(
    folder: Path, tmp_path: Path, run_main: Run
) -> None:
    fit = ["fit", folder / "x.npy", *OPTIONS, "--out", tmp_path / "m", "--checkpoint", tmp_path / "run"]
    assert run_main(*fit)[0] == 0
    status, output, error = run_main(*fit, "--resume", "-k", "4")
    said = f"Resuming from {tmp_path / 'run'}."
    assert said in error
    require_one_sentence(
        status, output, error.replace(said, ""), "was begun with other settings (n_components 3, not 4)"
    )


def test_a_warning_is_one_line(folder: Path, tmp_path: Path, run_main: Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        status, _, error = run_main("fit", folder / "x.npz", "-k", "3", "-d", "is", "--out", tmp_path / "m")
    assert status == 0
    lines = [line for line in error.splitlines() if "Warning" in line]
    assert len(lines) == 1
    assert lines[0].startswith("onmf: DomainWarning: ")
    assert "where 'is' is not defined" in lines[0]


def test_main_succeeds_with_exit_status_0(folder: Path, run_main: Run) -> None:
    status, output, error = run_main("info", folder / "model.safetensors")
    assert (status, error) == (0, "")
    assert "huber delta=0.5" in output


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--divergence", "nonsense"], "unknown divergence 'nonsense'"),
        (["--method", "paper:nonsense=1"], "nonsense"),
        (["--l1-dictionary", "0.1"], "l1_dictionary"),
        (["--clip", "2", "1"], "clip"),
        (["--every", "5m"], "name it with --checkpoint FILE"),
        (["--checkpoint", "{folder}/model.safetensors"], "holds an earlier run"),
        (["--fixed", "{folder}/model.safetensors", "-k", "2"], "fixed"),
        (["--from", "{folder}/model.safetensors", "-k", "4"], "n_components cannot be changed"),
        (["--from", "{folder}/model.safetensors", "--init", "samples"], "--init begins a dictionary"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_is_announced_before_the_settings_are_known_to_be_valid(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Run, wrong: list[str], message: str
) -> None:
    monkeypatch.setattr("onmf.cli.fit.announce", lambda *_: pytest.fail("it was announced"))
    given = [each.format(folder=folder) for each in wrong]
    status, _, error = run_main("fit", folder / "x.npy", "--out", tmp_path / "m", *given)
    assert (status, message in error) == (2, True), error


@pytest.mark.parametrize("loss", [0.123456789, np.nan])
def test_the_progress_line_shows_samples_and_rate_and_the_loss_where_there_is_one(loss: float) -> None:
    with terminal.errors.capture() as captured, progress.progress_line("title") as show:
        show(Progress(1500, 3000, 150, 3.0, loss, X))
    said = without_colours(captured.get().encode()).decode()
    assert "title" in said
    assert "1,500 samples · 500/s" in said
    assert ("loss 0.12346" in said) == np.isfinite(loss)


# Interrupted


def fit_interrupted(folder: Path, out: Path) -> str:
    result = CliRunner().invoke(cli.app, ["fit", str(folder / "x.npy"), *OPTIONS, "--out", str(out)])
    assert result.exit_code == 130, result.exception
    return result.stderr


def interrupt_at_call(number: int, honest: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but Ctrl-C at one of its calls."""
    calls = 0

    def function(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return honest(*arguments, **named)

    return function


def test_an_interrupt_between_batches_saves_the_batches_before_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = sys.modules["onmf.learner.run"]
    monkeypatch.setattr(learning, "step", interrupt_at_call(3, learning.step))
    assert "Interrupted after 50 samples" in fit_interrupted(folder, tmp_path / "m")
    monkeypatch.undo()
    expected = OnlineNMF(3, **SAME_OPTIONS, callbacks=[lambda progress: progress.samples == 50])
    assert np.array_equal(load(tmp_path / "m").components_, expected.fit(X).components_)


def test_an_interrupt_before_the_first_batch_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = sys.modules["onmf.learner.run"]
    monkeypatch.setattr(learning, "step", interrupt_at_call(1, learning.step))
    assert "before anything was learnt" in fit_interrupted(folder, tmp_path / "m")
    assert not contents(tmp_path)


@pytest.mark.parametrize("call", range(1, 6))
def test_an_interrupt_amid_a_batch_leaves_a_whole_model_or_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    class Clock:
        """Looked at when a batch begins and when it has been learnt from."""

        perf_counter = staticmethod(interrupt_at_call(call, time.perf_counter))

    monkeypatch.setattr(sys.modules["onmf.learner.update"], "time", Clock)
    fit_interrupted(folder, tmp_path / "m")
    assert (tmp_path / "m").exists() == (call > 2)
    if call > 2:
        model = load(tmp_path / "m")
        assert model.history_["samples"][-1] == model.n_samples_seen_ == 25 * ((call - 1) // 2)


def test_sigterm_interrupts_like_ctrl_c(folder: Path, run_main: Run) -> None:
    run_main("info", folder / "model.safetensors")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


# In a process of its own


def onmf_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(ONMF), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, check=False)


def test_the_installed_command_learns_the_same_bits_in_another_process(folder: Path, tmp_path: Path) -> None:
    done = onmf_command("fit", folder / "x.npy", *OPTIONS, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    require_same_learning(load(tmp_path / "m"), load(folder / "model.safetensors"))


class Running:
    """The command in a process that is learning and would go on for hours."""

    def __init__(self, *arguments: object) -> None:
        environment = ENVIRONMENT | {"FORCE_COLOR": "1"}  # so that the progress line is written to a pipe, too
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = processes.start("-m", "onmf", *arguments, env=environment, **pipes)
        self.error = b""

    def __enter__(self) -> Running:
        assert self.process.stderr is not None
        deadline = time.monotonic() + 60
        while not re.search(rb"[1-9][\d,]* samples", without_colours(self.error)):
            ready, _, _ = select.select([self.process.stderr], [], [], max(deadline - time.monotonic(), 0))
            assert ready, self.error
            piece = os.read(self.process.stderr.fileno(), 65536)
            assert piece, self.error
            self.error += piece
        assert self.process.poll() is None
        return self

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """The exit status, and all that was said on stderr."""
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, without_colours(self.error + rest).decode()

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def without_colours(text: bytes) -> bytes:
    return re.sub(rb"\x1b\[[\d;?]*[a-zA-Z]", b"", text)


def test_a_killed_fit_leaves_an_earlier_model_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    out.write_bytes((folder / "model.safetensors").read_bytes())
    before = contents(tmp_path)
    with Running("fit", folder / "x.npy", "-k", "3", "--passes", 10**9, "--out", out) as run:
        status, _ = run.stop(signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert contents(tmp_path) == before


def test_an_interrupted_fit_saves_what_was_learnt_and_says_so(folder: Path, tmp_path: Path) -> None:
    """SIGTERM does the same: tests/test_checkpoints.py."""
    out = tmp_path / "m.safetensors"
    with Running("fit", folder / "x.npy", "-k", "3", "--passes", 10**9, "--out", out) as run:
        status, error = run.stop(signal.SIGINT)
    assert status == 130
    said = re.search(r"Interrupted after (\d+) samples; what was learnt is in (\S+); --from ", error)
    assert said, error
    assert said[2] == str(out)
    assert load(out).n_samples_seen_ == int(said[1]) > 0
    assert load(out).transform(X).shape == (60, 3)
    assert "Traceback" not in error
    assert list(contents(tmp_path)) == [out.name]


def test_an_interrupted_transform_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    many = np.lib.format.open_memmap(tmp_path / "many.npy", mode="w+", dtype=np.float32, shape=(300_000, 8))
    many[:] = np.tile(X, (5000, 1))
    many.flush()
    onmf.save(OnlineNMF(3, divergence="kl", transform_tol=1e-2, random_state=0).fit(X), tmp_path / "m")
    (tmp_path / "out").mkdir()
    with Running("transform", tmp_path / "m", tmp_path / "many.npy", "--out", tmp_path / "out" / "h.npy") as run:
        status, error = run.stop(signal.SIGTERM)
    assert status == 143
    assert "Traceback" not in error
    assert not contents(tmp_path / "out")


# Demo


@pytest.fixture
def small_photograph(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = demo.photograph()
    monkeypatch.setattr(demo, "photograph", lambda: whole[100:160, 100:180])


@pytest.mark.usefixtures("small_photograph")
def test_demo_writes_a_picture_and_prints_the_table(tmp_path: Path) -> None:
    out = tmp_path / "demo.png"
    said = invoke("demo", "--out", out)
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "80 x 60 pixels" in said
    assert f"Wrote {out}." in said
    assert "PSNR, dB" in said
    names = ("noisy", "Huber's loss", "squared l2", "median filter")
    noisy, huber, squared, median = (float(re.search(rf"{name}\W+([\d.]+)", said)[1]) for name in names)
    assert huber > squared > noisy
    assert median > noisy
    for page in ("topics", "sound"):
        assert (tmp_path / f"demo-{page}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert f"Wrote {tmp_path / f'demo-{page}.png'}." in said


@pytest.mark.usefixtures("small_photograph")
def test_demo_without_matplotlib_says_what_to_install_before_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Run
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(demo, "denoise", lambda *_: pytest.fail("it worked first"))
    require_one_sentence(*run_main("demo", "--out", tmp_path / "demo.png"), "install onmf[plots]")


@pytest.mark.usefixtures("small_photograph")
def test_demo_refuses_a_picture_format_that_it_cannot_write_before_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Run
) -> None:
    monkeypatch.setattr(demo, "denoise", lambda *_: pytest.fail("it worked first"))
    require_one_sentence(*run_main("demo", "--out", tmp_path / "demo.docx"), "docx")
