"""Streams that go on after a kill: the checkpoint tells where, and nothing is lost or learnt twice."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onmf
from onmf import Checkpoint, OnlineNMF
from onmf.data import Rows, Source, open_source, prefetch, scale, shuffle, take
from onmf.methods import Surrogate
from onmf.methods.base import Growing

from .conftest import require_same_learning
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


@pytest.mark.parametrize("size", [60, None], ids=["fixed", "growing"])
@pytest.mark.parametrize(
    "kind", ["csv:-", "csv:- with names", OBJECTS, f"{OBJECTS}&index=id", "text:-?hashed=16", "npy:-", "arrow:-"]
)
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
    for number in range(3):
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
