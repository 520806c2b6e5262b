"""The ends of things: streams that are interrupted, messages that lead on, and what nobody can read any more."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onmf
from onmf.cli import main as cli
from onmf.cli.interrupting import uninterrupted
from onmf.streams import Source, open_source, register, registry
from onmf.streams.base import Numbered, OnBad, Sequential

K, F = 2, 4
X = np.random.default_rng(0).gamma(2.0, 1.0, (60, F)) + 0.1
NAMES = ["a", "b", "c", "d"]
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "", "COLUMNS": "200"}


def lines(rows: np.ndarray) -> str:
    return "".join(",".join(f"{x:.17g}" for x in row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and its data."""
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text(lines(X))
    onmf.save(onmf.OnlineNMF(K, random_state=0).fit(X), "m")
    return tmp_path


def started(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(
        [sys.executable, "-m", "onmf", *map(str, arguments)],
        text=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # even where pytest ignores it
        **pipes,
    )


# Interrupted streams


def rows_of(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".parquet":
        pandas = pytest.importorskip("pandas")
        return pandas.read_parquet(path).to_numpy()
    if path.suffix == ".jsonl":
        return np.array([list(json.loads(line).values()) for line in path.read_text().splitlines()])
    return np.loadtxt(path, delimiter="\t" if path.suffix == ".tsv" else ",", skiprows=1)


@pytest.mark.parametrize("out", ["h.csv", "h.tsv", "h.jsonl", "h.parquet", "h.npy"])
def test_what_was_written_of_a_stream_is_kept_when_it_is_interrupted(folder: Path, out: str, endless: Source) -> None:
    Path(out).write_text("what was there before")
    result = CliRunner().invoke(cli.app, ["transform", "m", "endless:x.csv", "--batch-size", "5", "--out", out])
    assert result.exit_code == 130
    assert f"Interrupted after 20 samples; their coefficients are in {out}." in result.stderr
    np.testing.assert_allclose(rows_of(Path(out)), onmf.load("m").transform(X[:20]), rtol=1e-6)
    assert sorted(os.listdir()) == sorted(["m", "x.csv", out])


def test_nothing_is_kept_of_what_can_be_read_again(folder: Path, endless: Source) -> None:
    endless.rewinds = True
    result = CliRunner().invoke(cli.app, ["transform", "m", "endless:x.csv", "--batch-size", "5", "--out", "h.csv"])
    assert result.exit_code == 130
    assert sorted(os.listdir()) == ["m", "x.csv"]


@pytest.fixture
def endless() -> Iterator[Source]:
    """What ``endless:PATH`` opens: a stream that falls silent after 23 rows, until Ctrl-C is pressed."""

    class Endless(Sequential):
        where, n_features, rewinds = "a stream", F, False

        def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
            yield np.arange(23), X[:23]
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)

    source, before = Endless(), signal.getsignal(signal.SIGINT)

    @register("endless")
    def opened(path: Path) -> Source:
        return source

    yield source
    registry._registry.pop("endless")
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_process_keep_what_came_through_a_pipe(folder: Path, stop: signal.Signals) -> None:
    with started("transform", "m", "csv:-", "--batch-size", 20, "--log-json", "log", "--out", "h.csv") as run:
        assert run.stdin is not None
        run.stdin.write(lines(X[:23]))
        run.stdin.flush()
        wait_for_a_batch(Path("log"))
        run.send_signal(stop)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 128 + stop
    assert "Interrupted after 20 samples; their coefficients are in h.csv." in error
    assert "Traceback" not in error
    assert len(rows_of(Path("h.csv"))) == 20


def wait_for_a_batch(log: Path) -> None:
    deadline = time.monotonic() + 60
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_signals_wait_for_the_end_of_a_block_and_then_have_their_effect() -> None:
    done = []

    def handler(*_: object) -> None:
        done.append("stopped")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            done.append("written")
        assert done == ["written", "stopped"]
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
