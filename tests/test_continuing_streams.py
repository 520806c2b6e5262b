"""Streams that go on after a kill: the checkpoint tells where, and nothing is lost or learnt twice."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onmf
from onmf import Checkpoint, OnlineNMF
from onmf.cli import main as cli
from onmf.data import Source, open_source, prefetch, shuffle, take
from onmf.data.pipes import LineCount
from onmf.methods import Surrogate
from onmf.methods.base import Growing

from .conftest import require_same_learning, spread
from .test_checkpoints import command, started
from .test_resuming import Command, Pipe

_ = command  # a fixture
NAMES = ["a", "b", "c", "d"]
OBJECTS = "jsonl:-?features=a,b,c,d"
X = np.random.default_rng(0).gamma(1.0, 1.0, (1000, 4)).round(4) + 0.01
BAD = np.arange(1000) % 17 == 5  # rows that are read and cannot be learnt from


def stream(kind: str) -> list[bytes]:
    """Lines with samples, bad ones among them, blank ones, and ones that cannot be read."""
    lines = []
    for number, row in enumerate(np.where(BAD[:, None], -X, X).tolist()):
        if kind.startswith("csv"):
            lines.append(",".join(map(str, row)))
        elif kind.startswith("text"):
            lines.append(" ".join(f"w{int(abs(value) * 3) % 7}" for value in row))
        else:
            lines.append(json.dumps(dict(zip(NAMES, row, strict=True)) | {"id": f"r{number}"}))
        if not kind.startswith("text"):
            lines += [""] * (number % 7 == 3) + ["nonsense"] * (number % 11 == 4) + [" "] * (number % 11 == 4)
    return [f"{line}\n".encode() for line in lines]


def content(kind: str, consumed: int) -> bytes:
    """What a producer sends that has sent so many lines or rows before."""
    header = b"a,b,c,d\n" if kind.endswith("with names") else b""
    if kind not in ("npy:-", "arrow:-"):
        return b"".join([header, *stream(kind)[consumed:]])
    rows, file = np.where(BAD[:, None], -X, X)[consumed:], io.BytesIO()
    if kind == "npy:-":
        np.save(file, rows)
        return file.getvalue()
    pyarrow = pytest.importorskip("pyarrow")
    batch = pyarrow.record_batch(list(rows.T), names=NAMES)
    with pyarrow.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    return file.getvalue()


class KilledError(BaseException):
    """A kill: nothing is written at the end."""


KINDS = ["csv:- with names", "csv:-", OBJECTS, f"{OBJECTS}&index=id", "text:-?hashed=16", "npy:-", "arrow:-"]


@pytest.mark.parametrize(("kind", "size"), [*spread(KINDS, [60, None], 2), (OBJECTS, None)])
def test_a_producer_that_seeks_to_the_consumed_count_loses_and_repeats_nothing(
    kind: str, size: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the run is killed in the middle of a batch, and rows after it were read already."""
    monkeypatch.setattr(Surrogate, "growing", Growing(90, 0.5, 450))
    settings: dict[str, Any] = {"n_components": 2, "batch_size": size, "random_state": 0, "on_error": "skip"}

    def run(path: Path, after: int = 0) -> OnlineNMF:
        """Learn; die in this batch, when the checkpoint holds what was learnt before it."""
        begun = onmf.load(path) if path.exists() else None
        given = content(kind, 0 if begun is None else begun.n_lines_consumed_)
        source = standard_input(kind, given, monkeypatch, begun)
        left = after

        def die(_: onmf.Progress) -> None:
            nonlocal left
            left -= 1
            if not left:
                patch.setattr(Checkpoint, "write", lambda *_: False)
                raise KilledError

        with monkeypatch.context() as patch:
            model = OnlineNMF(**settings, method="surrogate", callbacks=[die])
            return model.fit(source, checkpoint=Checkpoint(path, every=0), resume=True)

    whole = run(tmp_path / "whole")
    assert whole.n_lines_consumed_ == (1000 if kind in ("npy:-", "arrow:-") else len(stream(kind)))
    for _ in range(3):
        with pytest.raises(KilledError):
            run(tmp_path / "run", 2)
    again = run(tmp_path / "run")
    np.testing.assert_array_equal(again.components_, whole.components_)
    np.testing.assert_array_equal(again.history_["samples"], whole.history_["samples"])
    assert (again.n_skipped_, again.n_lines_consumed_) == (whole.n_skipped_, whole.n_lines_consumed_)


def standard_input(
    kind: str, given: bytes, monkeypatch: pytest.MonkeyPatch, like: OnlineNMF | None = None, interrupted: bool = False
) -> Source:
    pipe = io.TextIOWrapper(io.BufferedReader(Pipe(given, interrupted)))
    monkeypatch.setattr(sys, "stdin", pipe)
    return open_source(kind.removesuffix(" with names"), like=like and like.source_)


def test_one_command_begins_and_continues_and_ends_with_the_bits_of_an_uninterrupted_run(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while lines wait for a full batch, then run again to the end, and once more with nothing new."""
    lines, run = stream(OBJECTS), tmp_path / "run"
    fit = ["fit", OBJECTS, "-k", 2, "--seed", 0, "--batch-size", 50, "--on-error", "skip", "--out"]
    again = [*fit, tmp_path / "m", "--checkpoint", run, "--resume", "--every", "0.1s"]
    standard_input(OBJECTS, b"".join(lines), monkeypatch)
    assert command(*fit, tmp_path / "whole")[0] == 0
    with started(*again, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(lines[:400]).decode())
        process.stdin.flush()
        keep, deadline = Checkpoint(run), time.monotonic() + 60
        while not keep.exists() or keep.read()[1].history.samples < 150:  # it is written while nothing comes
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    consumed = onmf.load(run).n_lines_consumed_
    assert 150 < consumed < 400
    said = CliRunner().invoke(cli.app, ["info", str(run), "--json"]).stdout
    assert json.loads(said)["lines_consumed"] == consumed
    assert "lines consumed" in CliRunner().invoke(cli.app, ["info", str(run)]).stdout
    for left in (lines[consumed:], [], [b"\n", b" \n"]):
        before = onmf.load(run).n_lines_consumed_
        standard_input(OBJECTS, b"".join(left), monkeypatch)
        status, errors = command(*again)
        assert status == 0, errors
        assert f"which has consumed {before:,} lines; what comes now follows them" in errors.replace("\n", " ")
        assert onmf.load(run).n_lines_consumed_ == before + len(left)
        require_same_learning(onmf.load(tmp_path / "m"), onmf.load(run))
    for name in ("components_", "n_samples_seen_", "n_skipped_"):
        np.testing.assert_array_equal(
            getattr(onmf.load(tmp_path / "m"), name), getattr(onmf.load(tmp_path / "whole"), name)
        )


def test_half_a_line_that_a_killed_producer_left_is_not_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, settings = stream(OBJECTS), {"n_components": 2, "random_state": 0, "on_error": "skip"}
    source = standard_input(OBJECTS, b"".join(lines[:101]) + lines[101][:20], monkeypatch)
    assert OnlineNMF(**settings).fit(source).n_lines_consumed_ == 101


def test_readers_ahead_know_what_is_consumed_and_buffers_are_no_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    given, settings = content("csv:-", 0), {"n_components": 2, "on_error": "skip", "batch_size": 50}
    read = OnlineNMF(**settings).fit(prefetch(standard_input("csv:-", given, monkeypatch)))
    assert read.n_lines_consumed_ == len(stream("csv:-"))
    some = OnlineNMF(**settings).fit(take(standard_input("csv:-", given, monkeypatch), 100))
    assert 100 < some.n_lines_consumed_ < 200
    mixed = OnlineNMF(**settings).fit(shuffle(standard_input("csv:-", given, monkeypatch), 100))
    with pytest.raises(AttributeError, match="n_lines_consumed_ is available only after fit of a pipe"):
        _ = mixed.n_lines_consumed_


def test_a_run_of_a_pipe_is_not_resumed_with_a_file_nor_the_reverse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"n_components": 2, "random_state": 0, "on_error": "skip"}
    (tmp_path / "x.csv").write_bytes(content("csv:-", 0))
    sources = {"pipe": lambda: standard_input("csv:-", content("csv:-", 0), monkeypatch)}
    sources["file"] = lambda: open_source(tmp_path / "x.csv")
    for kind, how in (("pipe", "a pipe"), ("file", "other data than a pipe")):
        OnlineNMF(**settings).fit(sources[kind](), checkpoint=tmp_path / kind)
        other = sources["file" if kind == "pipe" else "pipe"]()
        with pytest.raises(ValueError, match=f"this run was learnt from {how}; resume it with the same kind of data"):
            OnlineNMF(**settings).fit(other, checkpoint=tmp_path / kind, resume=True)


def test_memory_for_blank_lines_does_not_grow() -> None:
    count = LineCount()
    assert list(count.counted(iter(["\n"] * 1000 + ["x\n"] + ["\n"] * 5), lambda line: line != "\n")) == ["x\n"]
    assert len(count.blank) == 2
    assert (count.up_to(0), count.all) == (1001, 1006)


@pytest.mark.parametrize(
    ("names", "rows"), [("a,b", ""), ("a,b", "\n1,2\n\n3,4\n"), ("id,2020,2021", "\nx,2,1\ny,4,3\n")]
)
def test_a_line_of_names_is_not_counted_however_far_was_looked_to_know_it(
    names: str, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = standard_input("csv:-", f"\n{names}\n{rows}".encode(), monkeypatch)
    assert sum(len(batch) for _, batch in source.batches(9)) == (2 if rows else 0)
    assert source.pipe is not None
    assert source.pipe.all == rows.count("\n")


@pytest.mark.skipif(shutil.which("jq") is None, reason="the script of the guide needs jq")
def test_the_script_of_the_guide_sends_no_line_twice_whatever_becomes_of_the_checkpoint(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "streams.md").read_text()
    script = re.search(r"```sh\n(#!/bin/sh\n# \S+learn-events\n.*?)```", guide, re.DOTALL)
    assert script is not None
    programs = {
        "learn-events": script[1],
        "consume-events": '#!/bin/sh\necho "$2"\n',
        "onmf": f'#!/bin/sh\n[ "$1" = fit ] && exec cat || exec {sys.executable} -m onmf "$@"\n',
    }
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in programs.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    for name in ("cat", "jq"):
        (place / name).symlink_to(str(shutil.which(name)))
    run, previous = tmp_path / "run.safetensors", tmp_path / "run.safetensors.previous"

    def sent() -> tuple[int, str, str]:
        """Where the producer is told to begin, or the exit status and the error."""
        done = subprocess.run(
            [place / "learn-events"], cwd=tmp_path, env={"PATH": str(place)}, capture_output=True, encoding="utf-8"
        )
        return done.returncode, done.stdout.strip(), done.stderr

    assert sent() == (0, "0", "")
    for _ in range(2):
        standard_input(OBJECTS, b"".join(stream(OBJECTS)[1:4]), monkeypatch)
        fit = ["fit", OBJECTS, "-k", 1, "--seed", 0, "--checkpoint", run, "--resume", "--out", tmp_path / "m"]
        assert command(*fit)[0] == 0
    assert sent() == (0, "6", "")
    (place / "jq").rename(place / "other")
    assert sent()[:2] == (1, "")
    (place / "other").rename(place / "jq")
    run.write_bytes(b"damaged")
    status, first, said = sent()
    assert (status, first) == (0, "3")
    assert "Showing the previous one" in said
    run.unlink()
    assert sent()[:2] == (0, "3")
    previous.write_bytes(b"damaged")
    status, first, said = sent()
    assert (status, first) == (1, "")
    assert "onmf: " in said
