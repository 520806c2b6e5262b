"""The command line, mostly as the user meets it: another process, its files, its words and its exit status."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
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
from onmf.cli import terminal
from onmf.estimators.base import Progress
from onmf.experiments import demo
from onmf.initial import INITS
from onmf.methods import METHODS

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


def onmf_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(ONMF), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, check=False)


def succeed(*arguments: object) -> str:
    done = onmf_command(*arguments)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


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


# In a process of its own


@pytest.fixture(scope="module")
def learnt(folder: Path) -> Path:
    """The model that the command learnt from x.npy."""
    said = succeed("fit", folder / "x.npy", *OPTIONS, "--out", folder / "learnt.safetensors")
    assert f"{folder / 'learnt.safetensors'}: 3 atoms of 8 features from 120 samples" in said
    return folder / "learnt.safetensors"


def require_same_learning(one: OnlineNMF, other: OnlineNMF) -> None:
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.history_["loss"], other.history_["loss"])


def test_fit_learns_from_npy_what_the_library_learns(learnt: Path) -> None:
    require_same_learning(load(learnt), OnlineNMF(3, **SAME_OPTIONS).fit(X))


def test_the_same_seed_gives_the_same_bits(folder: Path, tmp_path: Path, learnt: Path) -> None:
    succeed("fit", folder / "x.npy", *OPTIONS, "--out", tmp_path / "again")
    require_same_learning(load(learnt), load(tmp_path / "again"))
    assert [p.name for p in tmp_path.iterdir()] == ["again"]


@pytest.mark.parametrize(("divergence", "method"), [("huber:0.5", "surrogate"), ("kl", "em")])
def test_fit_learns_from_sparse_npz_what_the_library_learns(
    folder: Path, tmp_path: Path, divergence: str, method: str
) -> None:
    succeed("fit", folder / "x.npz", *OPTIONS, "--divergence", divergence, "--out", tmp_path / "m")
    model = OnlineNMF(3, **(SAME_OPTIONS | {"divergence": divergence})).fit(scipy.sparse.csr_array(SPARSE))
    require_same_learning(load(tmp_path / "m"), model)
    assert load(tmp_path / "m").method_ == method


def test_the_defaults_of_the_command_are_those_of_the_library(folder: Path, tmp_path: Path) -> None:
    invoke("fit", folder / "x.npy", "--out", tmp_path / "m")
    assert load(tmp_path / "m").get_params() == OnlineNMF().get_params()


def test_every_option_reaches_the_model(folder: Path, tmp_path: Path) -> None:
    settings = {"method": "em", "init": "samples", "a": 3.0, "b": 4.0, "forgetting": 0.25, "reservoir": 7}
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    rest = ["-k", 2, "-d", "alpha:0.5", "--batch-size", 11, "--passes", 3, "--no-shuffle", "--seed", 9]
    invoke("fit", folder / "x.npy", *options, *rest, "--out", tmp_path / "m")
    settings |= {"n_components": 2, "divergence": "alpha:0.5", "batch_size": 11, "max_passes": 3, "shuffle": False}
    expected = OnlineNMF(**settings, random_state=9)
    assert load(tmp_path / "m").get_params() == expected.get_params()
    require_same_learning(load(tmp_path / "m"), expected.fit(X))


@pytest.mark.parametrize(("name", "names"), [("x.csv", NAMES), ("x.tsv", None)])
def test_fit_learns_from_a_table_in_its_order_and_keeps_its_names(
    folder: Path, tmp_path: Path, name: str, names: list[str] | None
) -> None:
    succeed("fit", folder / name, *OPTIONS, "--out", tmp_path / "m")
    model = load(tmp_path / "m")
    require_same_learning(model, OnlineNMF(3, **SAME_OPTIONS, shuffle=False).fit(X))
    assert getattr(model, "feature_names_in_", None) is None or model.feature_names_in_.tolist() == names
    assert hasattr(model, "feature_names_in_") == (names is not None)


def test_transform_writes_what_the_loaded_model_gives(folder: Path, tmp_path: Path, learnt: Path) -> None:
    said = succeed("transform", learnt, folder / "x.npz", "--out", tmp_path / "h.npy")
    assert f"{tmp_path / 'h.npy'}: coefficients of 60 samples, 3 each." in said
    assert np.array_equal(np.load(tmp_path / "h.npy"), load(learnt).transform(scipy.sparse.csr_array(SPARSE)))
    assert [p.name for p in tmp_path.iterdir()] == ["h.npy"]


def test_info_says_what_a_model_holds(learnt: Path) -> None:
    said = succeed("info", learnt)
    for fact, value in (("divergence", "huber delta=0.5"), ("atoms", "3"), ("features", "8"), ("samples seen", "120")):
        assert re.search(rf"{fact}\W+{value}\b", said), fact


def require_one_sentence(status: int, output: str, error: str, words: str) -> None:
    """Exit status 2, nothing on stdout, and one sentence on stderr; the progress bar may stand before it."""
    assert status == 2
    assert output == ""
    lines = [line for line in error.splitlines() if line.strip() and "━" not in line]
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
    "missing data": (["fit", "absent.npy", "--out", "new"], "absent.npy does not exist"),
    "directory as data": (["fit", "directory", "--out", "new"], "directory is a directory"),
    "unknown suffix": (["fit", "x.dat", "--out", "new"], "has no suffix that tells its format; put a scheme"),
    "unknown divergence": ([*FIT, "--divergence", "nonsense"], "unknown divergence 'nonsense'; choose one of alpha,"),
    "divergence without its parameter": ([*FIT, "--divergence", "beta"], "write beta:BETA"),
    "divergence with a bad parameter": ([*FIT, "--divergence", "beta:x"], "cannot read beta:x"),
    "divergence with a parameter too many": ([*FIT, "--divergence", "kl:3"], "cannot read kl:3"),
    "mahalanobis without its file": ([*FIT, "--divergence", "mahalanobis:absent.npy"], "absent.npy"),
    "mahalanobis with an empty file": ([*FIT, "--divergence", "mahalanobis:empty.npy"], "empty.npy"),
    "mahalanobis of another shape": ([*FIT, "--divergence", "mahalanobis:x.npy"], "square matrix"),
    "unknown method": ([*FIT, "--method", "nonsense"], "unknown method 'nonsense'; choose one of auto, paper"),
    "forgetting all": ([*FIT, "--forgetting", "1"], "forgetting must lie in [0, 1), got 1.0"),
    "a reservoir of less than nothing": ([*FIT, "--reservoir", "-1"], "--reservoir"),
    "unknown init": ([*FIT, "--init", "nonsense"], "unknown init 'nonsense'; choose one of uniform"),
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
    "output in no directory": (["fit", "x.npy", "--out", "absent/new"], "cannot write absent/new: absent does not"),
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
    "transform to a strange suffix": ([*TRANSFORM[:4], "h.xlsx"], "h.xlsx: coefficients are written as .npy"),
    "transform to no directory": ([*TRANSFORM[:4], "absent/h.npy"], "absent does not exist"),
    "missing model": (["info", "absent.safetensors"], "there is no model file absent.safetensors"),
    "random bytes as model": (["info", "random.safetensors"], "random.safetensors is not a model of onmf"),
    "empty model": (["info", "empty.safetensors"], "empty.safetensors is not a model of onmf"),
    "truncated model": (["info", "cut.safetensors"], "cut.safetensors is not a model of onmf"),
    "somebody else's model": (["info", "foreign.safetensors"], "not a model of onmf"),
    "array as model": (["transform", "x.npy", "x.npy", "--out", "new.npy"], "x.npy is not a model of onmf"),
    "demo to no directory": (["demo", "--out", "absent/demo.png"], "absent does not exist"),
}


@pytest.mark.parametrize("name", ["negative in csv", "truncated model"])
def test_an_error_of_the_process_is_one_sentence_and_exit_status_2(
    trouble: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arguments, words = ERRORS[name]
    monkeypatch.chdir(trouble)
    done = onmf_command(*arguments)
    require_one_sentence(done.returncode, done.stdout, done.stderr, words)


# Stopped from outside


class Running:
    """The command in a process that is learning and would go on for hours."""

    def __init__(self, *arguments: object) -> None:
        environment = ENVIRONMENT | {"FORCE_COLOR": "1"}  # so that the progress line is written to a pipe, too
        self.process = subprocess.Popen(
            [str(ONMF), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # even where pytest ignores it
        )
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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("earlier", [True, False])
def test_a_killed_fit_leaves_an_earlier_model_and_nothing_else(folder: Path, tmp_path: Path, earlier: bool) -> None:
    out = tmp_path / "m.safetensors"
    if earlier:
        out.write_bytes((folder / "model.safetensors").read_bytes())
    before = contents(tmp_path)
    with Running("fit", folder / "x.npy", "-k", "3", "--passes", 10**9, "--out", out) as run:
        status, _ = run.stop(signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert contents(tmp_path) == before
    if earlier:
        assert load(out).n_samples_seen_ == 120


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_interrupted_fit_saves_what_was_learnt_and_says_so(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "m.safetensors"
    with Running("fit", folder / "x.npy", "-k", "3", "--passes", 10**9, "--out", out) as run:
        status, error = run.stop(number)
    assert status == 130
    said = re.search(r"Interrupted after (\d+) samples; what was learnt is in (\S+)\.\s", error)
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
    assert status == 130
    assert "Traceback" not in error
    assert not contents(tmp_path / "out")


# In this process, where every line counts


@pytest.fixture
def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """``main`` with these arguments: its exit status, stdout and stderr; what it changes in the process is undone."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("COLUMNS", "200")
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onmf", *map(str, arguments)])
        status: object = None
        try:
            cli.main()
        except SystemExit as stop:
            status = stop.code
        assert status is None or isinstance(status, int)  # a text would be printed by Python itself
        captured = capsys.readouterr()
        return status or 0, captured.out, captured.err

    yield run
    signal.signal(signal.SIGTERM, handler)


def invoke(*arguments: object) -> str:
    """Stdout of a command that must succeed."""
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_one_sentence_and_exit_status_2(
    trouble: Path, monkeypatch: pytest.MonkeyPatch, run_main: Callable[..., tuple[int, str, str]], name: str
) -> None:
    arguments, words = ERRORS[name]
    monkeypatch.chdir(trouble)
    before = contents_of_files(trouble)
    require_one_sentence(*run_main(*arguments), words)
    assert contents_of_files(trouble) == before


def contents_of_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "MemoryError"), (OSError(28, "No space left on device"), "No space left on device")],
    ids=["memory", "disk"],
)
def test_a_machine_that_is_too_small_is_one_sentence_too(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: Callable[..., tuple[int, str, str]],
    error: Exception,
    words: str,
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(OnlineNMF, "fit", fails)
    require_one_sentence(*run_main("fit", folder / "x.npy", "--out", tmp_path / "m"), words)


def test_a_warning_is_one_line(folder: Path, tmp_path: Path, run_main: Callable[..., tuple[int, str, str]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        status, _, error = run_main("fit", folder / "x.npz", "-k", "3", "-d", "is", "--out", tmp_path / "m")
    assert status == 0
    lines = [line for line in error.splitlines() if "Warning" in line]
    assert len(lines) == 1
    assert lines[0].startswith("onmf: DomainWarning: ")
    assert "outside the domain of is" in lines[0]


def test_main_succeeds_with_exit_status_0(folder: Path, run_main: Callable[..., tuple[int, str, str]]) -> None:
    status, output, error = run_main("info", folder / "model.safetensors")
    assert (status, error) == (0, "")
    assert "huber delta=0.5" in output


def test_sigterm_interrupts_like_ctrl_c(folder: Path, run_main: Callable[..., tuple[int, str, str]]) -> None:
    run_main("info", folder / "model.safetensors")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("command", ["fit", "transform", "info", "demo"])
def test_the_help_of_every_command_shows_an_example(command: str) -> None:
    said = invoke(command, "--help")
    assert re.search(rf"Examples?:\s+onmf {command} ", said)


def test_the_help_names_every_command_and_divergence() -> None:
    assert all(command in invoke("--help") for command in ("fit", "transform", "info", "demo"))
    said = invoke("fit", "--help")
    assert all(name in said for name in (*onmf.divergences.names(), *INITS, *METHODS))
    assert all(f"--{option}" in said for option in ("method", "init", "forgetting", "reservoir"))


def test_version_in_this_process() -> None:
    assert onmf.__version__ in invoke("--version")


@pytest.mark.parametrize("divergence", ["kl", "huber", "beta:1.5", "mahalanobis:A.npy"])
def test_fit_transform_and_info_go_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, divergence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.eye(8) + 0.1)
    said = invoke("fit", folder / "x.tsv", "-k", "3", "-d", divergence, "--init", "samples", "--seed", "1", "-o", "m")
    assert "m: 3 atoms of 8 features from 60 samples" in said
    name = divergence.partition(":")[0]
    said = invoke("info", "m")
    assert name in said
    assert ("matrix (8, 8)" in said) == (name == "mahalanobis")
    expected = load("m").transform(X)
    for out, delimiter in (("h.npy", ""), ("h.csv", ","), ("h.tsv", "\t")):
        assert "coefficients of 60 samples, 3 each" in invoke("transform", "m", folder / "x.csv", "-o", out)
        if out == "h.npy":
            assert np.array_equal(np.load(out), expected)
        else:
            first, *_ = Path(out).read_text().splitlines()
            assert first.split(delimiter) == ["onlinenmf0", "onlinenmf1", "onlinenmf2"]
            assert np.allclose(np.loadtxt(out, delimiter=delimiter, skiprows=1), expected, rtol=1e-8, atol=0)


def test_another_seed_gives_another_dictionary(folder: Path, tmp_path: Path) -> None:
    for seed in (7, 8):
        invoke("fit", folder / "x.npy", "-k", "3", "--seed", seed, "--out", tmp_path / str(seed))
    assert not np.array_equal(load(tmp_path / "7").components_, load(tmp_path / "8").components_)


def test_without_shuffling_the_samples_are_taken_in_their_order(folder: Path, tmp_path: Path) -> None:
    invoke("fit", folder / "x.npy", *OPTIONS, "--no-shuffle", "--out", tmp_path / "m")
    require_same_learning(load(tmp_path / "m"), OnlineNMF(3, **SAME_OPTIONS, shuffle=False).fit(X))


def test_a_table_with_names_is_transformed_by_its_own_model_without_a_warning(folder: Path, tmp_path: Path) -> None:
    invoke("fit", folder / "x.csv", *OPTIONS, "--out", tmp_path / "m")
    invoke("transform", tmp_path / "m", folder / "x.csv", "--out", tmp_path / "h.npy")  # a warning is an error here


def test_a_table_whose_names_are_in_another_order_is_not_transformed(
    folder: Path, tmp_path: Path, run_main: Callable[..., tuple[int, str, str]]
) -> None:
    invoke("fit", folder / "x.csv", *OPTIONS, "--out", tmp_path / "m")
    names = ",".join(reversed(NAMES))
    np.savetxt(tmp_path / "other.csv", X[:, ::-1], delimiter=",", header=names, comments="")
    arguments = ("transform", tmp_path / "m", tmp_path / "other.csv", "--out", tmp_path / "h.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status, _, error = run_main(*arguments)
    assert status == 2
    assert "names" in error


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_too_large_to_square_are_learnt_from_or_refused(
    tmp_path: Path, run_main: Callable[..., tuple[int, str, str]]
) -> None:
    np.save(tmp_path / "x.npy", X * 1e200)
    status, _, _ = run_main("fit", tmp_path / "x.npy", "-k", "2", "-d", "squared_l2", "--out", tmp_path / "m")
    assert status == 0
    assert load(tmp_path / "m").history_["loss"][-1] == np.inf  # beyond the range of doubles, and said so


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


@pytest.mark.parametrize("name", ["topics[k20].safetensors", "[red]m", "a[/b]", "m:x:", "ünïcödé 模型"])
def test_a_file_may_have_any_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    assert name in invoke("fit", folder / "x.npy", "-k", "2", "--out", name)
    assert name in invoke("info", name)
    assert f"{name}.npy" in invoke("transform", name, folder / "x.npy", "--out", f"{name}.npy")


def fit_interrupted(folder: Path, out: Path) -> str:
    result = CliRunner().invoke(cli.app, ["fit", str(folder / "x.npy"), *OPTIONS, "--out", str(out)])
    assert result.exit_code == 130, result.exception
    return result.stderr


def interrupt_at_batch(number: int) -> Callable[..., bool]:
    """For ``OnlineNMF._learn``: Ctrl-C instead of this batch."""
    honest = OnlineNMF._learn
    calls = 0

    def learn(self: OnlineNMF, *arguments: Any, **named: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KeyboardInterrupt
        return honest(self, *arguments, **named)

    return learn


def test_an_interrupt_between_batches_saves_the_batches_before_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnlineNMF, "_learn", interrupt_at_batch(3))
    said = fit_interrupted(folder, tmp_path / "m")
    assert "Interrupted after 50 samples" in said
    expected = OnlineNMF(3, **SAME_OPTIONS, callbacks=[lambda progress: progress.samples == 50])
    monkeypatch.undo()
    assert np.array_equal(load(tmp_path / "m").components_, expected.fit(X).components_)


def test_an_interrupt_before_the_first_batch_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnlineNMF, "_learn", interrupt_at_batch(1))
    assert "before anything was learnt" in fit_interrupted(folder, tmp_path / "m")
    assert not contents(tmp_path)


@pytest.mark.parametrize("call", range(1, 7))
def test_an_interrupt_amid_the_bookkeeping_of_a_batch_leaves_a_whole_model_or_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    calls = 0

    class Clock:
        """``_learn`` looks at the clock twice: when it begins, and amid the lines that take over what was learnt."""

        @staticmethod
        def perf_counter() -> float:
            nonlocal calls
            calls += 1
            if calls == call:
                raise KeyboardInterrupt
            return float(calls)

    monkeypatch.setattr("onmf.learning.time", Clock)
    fit_interrupted(folder, tmp_path / "m")
    if (tmp_path / "m").exists():
        model = load(tmp_path / "m")
        assert model.history_["samples"][-1] == model.n_samples_seen_


@pytest.mark.parametrize("loss", [0.123456789, np.nan])
def test_the_progress_line_shows_samples_and_rate_and_the_loss_where_there_is_one(loss: float) -> None:
    with terminal.errors.capture() as captured, terminal.progress_line("title") as show:
        show(Progress(1500, 3000, 150, 3.0, loss, X))
    said = without_colours(captured.get().encode()).decode()
    assert "title" in said
    assert "1,500 samples · 500/s" in said
    assert ("loss 0.12346" in said) == np.isfinite(loss)


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
    quality = {
        name: float(re.search(rf"{name}\W+([\d.]+)", said)[1]) for name in ("noisy", "huber", "squared_l2", "3x3")
    }
    assert quality["huber"] > quality["squared_l2"] > quality["noisy"]
    assert quality["3x3"] > quality["noisy"]


@pytest.mark.usefixtures("small_photograph")
def test_demo_without_matplotlib_says_what_to_install_before_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(demo, "denoise", lambda *_: pytest.fail("it worked first"))
    require_one_sentence(*run_main("demo", "--out", tmp_path / "demo.png"), "install onmf[plots]")


@pytest.mark.usefixtures("small_photograph")
def test_demo_refuses_a_picture_format_that_it_cannot_write_before_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setattr(demo, "denoise", lambda *_: pytest.fail("it worked first"))
    require_one_sentence(*run_main("demo", "--out", tmp_path / "demo.docx"), "docx")


@pytest.mark.parametrize("command", ["fit", "transform"])
def test_an_input_is_not_overwritten(
    folder: Path, tmp_path: Path, run_main: Callable[..., tuple[int, str, str]], command: str
) -> None:
    np.save(tmp_path / "x.npy", X)
    before = (tmp_path / "x.npy").read_bytes()
    model = [folder / "model.safetensors"] if command == "transform" else []
    result = run_main(command, *model, tmp_path / "x.npy", "--out", tmp_path / "x.npy")
    require_one_sentence(*result, "is read from; give --out another name")
    assert (tmp_path / "x.npy").read_bytes() == before


def test_warnings_of_many_blocks_are_told_once(
    folder: Path, tmp_path: Path, run_main: Callable[..., tuple[int, str, str]]
) -> None:
    np.save(tmp_path / "many.npy", np.tile(SPARSE, (60, 1)))
    run_main("fit", folder / "x.npy", "-k", "2", "-d", "is", "--out", tmp_path / "m")
    status, _, error = run_main("transform", tmp_path / "m", tmp_path / "many.npy", "--out", tmp_path / "h.npy")
    assert status == 0
    assert error.count("DomainWarning") == 1
    assert "more blocks" in error


def test_constants_of_earlier_methods_are_options(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    base = ["fit", folder / "x.npy", "-k", "2", "-d", "is", "--method", "lefevre", "--out", model]
    succeed(*base, "--option", "r=0.9", "--option", "N=30")
    assert onmf.load(model).options == {"r": 0.9, "N": 30}
    for words, said in (("r", "write NAME=NUMBER"), ("r=x", "write NAME=NUMBER"), ("eta=1", "its options are r, N")):
        failed = onmf_command(*base, "--option", words)
        assert failed.returncode == 2
        assert said in failed.stderr
