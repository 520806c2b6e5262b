"""The command line when paths, streams and signals are not what they should be: one sentence, or none, and never a
traceback.
"""

from __future__ import annotations

import csv
import logging
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf.cli import main as cli
from onmf.cli import terminal
from tests import processes
from tests.conftest import Run

X = np.random.default_rng(0).gamma(1.0, 1.0, (60, 6)) + 0.1
Command = Callable[..., tuple[int, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Data, a model, and whatever a careless user may name instead.

    The device is a terminal: nothing can be replaced where it lies, whatever the code under test does.
    """
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    scipy.sparse.save_npz("x.npz", scipy.sparse.csr_matrix(X * (X > 2)))
    onmf.save(onmf.OnlineNMF(3, random_state=0).fit(X), "model")
    Path("circle.npy").symlink_to("circle.npy")
    os.mkfifo("pipe.npy")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.npy")
    ends = os.openpty()
    Path("device.npy").symlink_to(os.ttyname(ends[1]))
    yield tmp_path
    for end in ends:
        os.close(end)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """``main`` with these arguments: its exit status and what it says on stderr, without the progress bar."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["onmf", *map(str, arguments)])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as left:  # noqa: PT012
            warnings.simplefilter("default")
            cli.main()
        error = capsys.readouterr().err
        return int(left.value.code or 0), "\n".join(line for line in error.splitlines() if line and "━" not in line)

    yield run
    signal.signal(signal.SIGTERM, handler)


REFUSED = {
    "a model to a device": (["fit", "x.npy", "-o", "device.npy"], "cannot write device.npy: it is a device"),
    "a model to a pipe": (["fit", "x.npy", "-o", "pipe.npy"], "cannot write pipe.npy: it is a named pipe"),
    "a model to a socket": (["fit", "x.npy", "-o", "socket.npy"], "cannot write socket.npy: it is a socket"),
    "a model to a circle": (["fit", "x.npy", "-o", "circle.npy"], "cannot write circle.npy: "),
    "a checkpoint to a pipe": (["fit", "x.npy", "-o", "m", "--checkpoint", "pipe.npy"], "it is a named pipe"),
    "a checkpoint to a circle": (["fit", "x.npy", "-o", "m", "--checkpoint", "circle.npy"], "cannot write circle.npy"),
    "coefficients to a pipe": (["transform", "model", "x.npy", "-o", "pipe.npy"], "it is a named pipe"),
    "coefficients to a device": (["transform", "model", "x.npy", "-o", "device.npy"], "it is a device"),
    "coefficients to a circle": (["transform", "model", "x.npy", "-o", "circle.npy"], "cannot write circle.npy"),
    "data that are a circle": (["fit", "circle.npy", "-o", "m"], "no such file or folder: circle.npy"),
    "a model that is a circle": (["info", "circle.npy"], "no such file: circle.npy"),
    "nobody's home": (["fit", "~nobody-of-that-name/x.npy", "-o", "m"], "there is no such home directory"),
    "em under is": (["fit", "x.npz", "-k", "3", "-d", "is", "--method", "em", "-o", "m"], "use method 'surrogate'"),
    "a huge beta": (["fit", "x.npy", "-d", "beta:1e308", "-o", "m"], "beta must lie between -100 and 100"),
    "an infinite alpha": (["fit", "x.npy", "-d", "alpha:1e999", "-o", "m"], "alpha must be a finite number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(name: str, folder: Path, command: Command) -> None:
    arguments, words = REFUSED[name]
    before = {path.name: path.lstat().st_mode for path in folder.iterdir()}
    status, error = command(*arguments)
    assert status == 2
    assert len(error.splitlines()) == 1
    assert error.startswith("onmf: ")
    assert words in error
    assert {path.name: path.lstat().st_mode for path in folder.iterdir()} == before


# Names that others have chosen

STEERS = "\x1b]0;owned\x07\x1b[31mred\x9b2J"
SHOWN = "\\x1b]0;owned\\x07\\x1b[31mred\\x9b2J"


def named_model(*names: str) -> None:
    rows = [",".join(f'"{name}"' for name in names), *(",".join(map(str, row[: len(names)])) for row in X)]
    Path("named.csv").write_text("\n".join(rows) + "\n")
    assert CliRunner().invoke(cli.app, ["fit", "named.csv", "-k", "2", "--seed", "0", "-o", "n"]).exit_code == 0


@pytest.mark.parametrize("arguments", [["topics", "n"], ["fit", "named.csv?weight=other", "-o", "o"]])
def test_names_of_features_do_not_steer_the_terminal(folder: Path, run_main: Run, arguments: list[str]) -> None:
    named_model(STEERS, "b", "c")
    _, out, error = run_main(*arguments)
    assert SHOWN in out + error
    assert not set(out + error) & set(STEERS) - set(SHOWN)


def test_names_of_files_do_not_steer_the_terminal(folder: Path, run_main: Run) -> None:
    Path("model").rename(STEERS)
    transform = ["transform", STEERS, "x.npy", "-o", f"{STEERS}.csv"]
    for arguments in (["info", STEERS], ["info", f"{STEERS}.absent"], transform):
        _, out, error = run_main(*arguments)
        assert SHOWN in out + error
        assert not set(out + error) & set(STEERS) - set(SHOWN)
    record = logging.LogRecord("onmf", logging.WARNING, "", 0, "Skipped: %s", (STEERS,), None)
    with terminal.errors.capture() as said:
        terminal.LogLines().handle(record)
    assert said.get() == f"Skipped: {SHOWN}\n"


@pytest.mark.parametrize("end", ["csv", "tsv"])
def test_names_that_a_spreadsheet_would_compute_are_quoted_if_asked_for(folder: Path, end: str) -> None:
    named_model("=1+1", "@b", "plain")
    rows = ["name,=1+1,@b,plain", "-x,1,2,3", '"=HYPERLINK(""a"")",4,5,6', "fine,7,8,9"]
    Path("rows.csv").write_text("\n".join(rows) + "\n")
    columns = {  # of names: with the option, and without it
        "inverse n rows.csv?index=name": ["name", "'-x", '\'=HYPERLINK("a")', "fine"],
        "transform n rows.csv?index=name": ["name", "'-x", '\'=HYPERLINK("a")', "fine"],
        "convert n": ["component_name", "component_0", "component_1"],
    }
    for words, safe in columns.items():
        command, *rest = words.split()
        out = [f"h.{end}"] if command == "convert" else ["-o", f"h.{end}"]
        for options, names in ((["--safe-csv"], safe), ([], [name.removeprefix("'") for name in safe])):
            assert CliRunner().invoke(cli.app, [command, *rest, *out, *options]).exit_code == 0
            with open(f"h.{end}", newline="") as file:
                found = list(csv.reader(file, delimiter="," if end == "csv" else "\t"))
            assert [row[0] for row in found] == names
            if command != "transform":
                assert found[0][1:] == (["'=1+1", "'@b", "plain"] if options else ["=1+1", "@b", "plain"])


def test_names_that_are_not_utf8_raise_an_error_before_the_work(folder: Path, run_main: Run) -> None:
    pytest.importorskip("PIL.Image")
    odd = os.fsdecode(b"odd\xff.png")
    Path("pictures").mkdir()
    Path("pictures", odd).write_bytes(b"")
    before = sorted(os.listdir())
    said = "onmf: the name 'odd\\udcff.png' in pictures is not UTF-8; rename the file.\n"
    assert run_main("fit", "images:pictures", "-o", "n") == (2, "", said)
    for arguments in (["fit", "x.npy", "-o", odd], ["fit", odd, "-o", "n"], ["transform", "model", "x.npy", "-o", odd]):
        assert run_main(*arguments) == (2, "", "onmf: odd\\udcff.png is not UTF-8; rename the file.\n")
    assert sorted(os.listdir()) == before


ABSURD = ("1e308", "-1e308", "1e-308", "5e-324", "0", "nan", "-inf", "1e16", "100", "-100", "1" + 30 * "0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["alpha", "beta", "huber"])
def test_an_absurd_parameter_is_refused_or_learnt_with(family: str) -> None:
    for value in ABSURD:
        for estimator in (onmf.OnlineNMF(2, batch_size=30), onmf.BatchNMF(2, max_iter=3)):
            estimator.set_params(divergence=f"{family}:{value}", transform_max_iter=10, random_state=0)
            try:
                with np.errstate(all="ignore"):
                    estimator.fit(X)
                    found = [estimator.components_, estimator.history_["loss"], estimator.loss(X[:3])]
            except ValueError as error:
                assert len(str(error)) < 300  # noqa: PT017
                continue
            assert all(np.isfinite(each).all() for each in found), value


# In a process of its own


ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1", "FORCE_COLOR": "1", "COLUMNS": "200"}
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def process(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """Python from its very beginning, as its streams and its imports matter here."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, **PIPES | options)  # type: ignore[call-overload]


def test_nobody_needs_to_read_what_is_printed(folder: Path) -> None:
    for arguments in (["info", "model"], ["--help"]):
        read, write = os.pipe()
        os.close(read)  # as `| head -0` does
        with process("-m", "onmf", *arguments, stdout=write) as run:
            os.close(write)
            _, error = run.communicate(timeout=60)
        assert (run.returncode, error) == (141, b"")


def test_closed_standard_input_is_empty(folder: Path) -> None:
    with process("-m", "onmf", "fit", "-", "--out", "m", preexec_fn=lambda: os.close(0)) as run:
        _, error = run.communicate(timeout=60)
    assert run.returncode == 2
    assert b"Traceback" not in error
    assert error.count(b"onmf: ") == 1


INTERRUPTED_IMPORTS = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupt():
    while sys.argv[1] not in sys.modules:
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
from onmf.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["rich", "numpy.linalg"])
def test_ctrl_c_during_imports_says_nothing(module: str) -> None:
    with process("-c", INTERRUPTED_IMPORTS, module) as run:
        output = run.communicate(timeout=60)
    assert (run.returncode, *output) == (-signal.SIGINT, b"", b"")


def test_a_second_ctrl_c_is_no_traceback_either(folder: Path) -> None:
    fit = ["-m", "onmf", "fit", "x.npy", "-k", "3", "--passes", 10**9, "--out", "m", "--checkpoint", "run"]
    with processes.start(*fit, env=ENVIRONMENT, **PIPES) as run:
        assert run.stderr is not None
        while b"/s" not in run.stderr.readline(300):
            assert run.poll() is None
        for _ in range(3):
            run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=60)
    assert run.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in error
    assert b"Exception" not in error
