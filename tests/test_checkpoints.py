"""A run that is killed and goes on ends with the same bits; a failing disk loses nothing; bad batches are skipped."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import scipy.sparse

import onmf
from onmf import Checkpoint, DataError, OnlineNMF, learning
from onmf.estimators.base import Progress
from onmf.persistence import file as model_file
from onmf.persistence.file import ModelFileError
from onmf.streams import Batches, Rows, SourceError, open_source, prefetch, shuffle, take

from .conftest import LogCosh

ONMF = Path(sys.executable).with_name("onmf")
X = np.random.default_rng(0).gamma(2.0, 1.0, (90, 3)) @ np.random.default_rng(1).random((3, 8))
SPARSE = scipy.sparse.csr_matrix(X * (np.quantile(X, 0.9) < X))

CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "surrogate": ({"divergence": "kl", "method": "surrogate"}, X),
    "huber": ({"divergence": "huber"}, X),
    "is": ({"divergence": "is", "reservoir": 20}, X),
    "em": ({"divergence": "kl"}, SPARSE),
    "paper": ({"divergence": "kl", "method": "paper", "a": 100, "b": 1000}, X),
    "lefevre": ({"divergence": "is", "method": "lefevre"}, X),
    "guan": ({"divergence": "squared_l2", "method": "guan"}, X),
    "wang": ({"divergence": "huber:0.5", "method": "wang", "options": {"eta": 0.01}}, X),
    "float32": ({"divergence": "kl"}, X.astype(np.float32)),
}
SETTINGS: dict[str, Any] = {"n_components": 3, "batch_size": 20, "max_passes": 3, "random_state": 4}


class CrashError(Exception):
    """A process that dies."""


def crashing(checkpoint: Checkpoint, after: int) -> Callable[[OnlineNMF], None]:
    """Keeps every batch, and dies after so many."""
    left = after

    def crash(model: OnlineNMF) -> None:
        nonlocal left
        checkpoint(model)
        left -= 1
        if not left:
            raise CrashError

    return crash


def same(one: OnlineNMF, other: OnlineNMF) -> None:
    assert one.n_samples_seen_ == other.n_samples_seen_
    np.testing.assert_array_equal(one.components_, other.components_)
    assert one._memory.keys() == other._memory.keys()
    for name, array in one._memory.items():
        np.testing.assert_array_equal(array, other._memory[name])
    for name in ("samples", "loss"):
        np.testing.assert_array_equal(one.history_[name], other.history_[name])
    assert one.n_iter_ == other.n_iter_
    assert one.divergence_.parameters() == other.divergence_.parameters()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batches", [1, 5, 14])
def test_a_run_that_goes_on_ends_with_the_same_bits(case: str, batches: int, tmp_path: Path) -> None:
    settings, data = CASES[case]
    whole = OnlineNMF(**SETTINGS, **settings).fit(data)
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    with pytest.raises(CrashError):
        OnlineNMF(**SETTINGS, **settings).fit(data, checkpoint=crashing(checkpoint, batches))
    model = checkpoint.read()
    assert model.n_samples_seen_ < whole.n_samples_seen_
    same(model.fit(data, resume=True), whole)
    same(checkpoint.read().fit(data, resume=True, checkpoint=checkpoint), whole)
    same(checkpoint.read().fit(data, resume=True), whole)  # finished: nothing is left to do


def test_without_a_seed_a_run_goes_on_with_its_own_random_numbers(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    kept: list[Path] = []

    def keep_all(model: OnlineNMF) -> None:
        checkpoint(model)
        kept.append(tmp_path / f"{len(kept)}")
        kept[-1].write_bytes((tmp_path / "run").read_bytes())

    settings = SETTINGS | {"random_state": None}
    whole = OnlineNMF(**settings).fit(X, checkpoint=keep_all)
    for path in kept:
        same(Checkpoint(path).read().fit(X, resume=True), whole)


def test_streams_with_a_shuffle_buffer_go_on_too(tmp_path: Path) -> None:
    def source() -> Any:
        return shuffle(take(Batches([X[:31], X[31:]]), 80), buffer=30)

    whole = OnlineNMF(**SETTINGS).fit(source())
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    with pytest.raises(CrashError):
        OnlineNMF(**SETTINGS).fit(source(), checkpoint=crashing(checkpoint, 6))
    same(checkpoint.read().fit(source(), resume=True), whole)


def test_resuming_what_was_never_interrupted_is_refused(tmp_path: Path) -> None:
    model = OnlineNMF(2).partial_fit(X)
    with pytest.raises(ValueError, match="not read from its checkpoint"):
        model.fit(X, resume=True)
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="the data have 4 features, those of the checkpoint 8"):
        checkpoint.read().fit(Rows(X[:, :4]), resume=True)
    with pytest.raises(ModelFileError, match="there is no checkpoint"):
        Checkpoint(tmp_path / "absent").read()


# The file


def test_checkpoints_are_written_when_it_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    written: list[float] = []
    checkpoint = Checkpoint(tmp_path / "run", every=30)
    monkeypatch.setattr(Checkpoint, "write", lambda self, _: written.append(now) or setattr(self, "_last", now))

    def batches() -> Any:
        nonlocal now
        for start in range(0, 80, 10):
            yield X[start : start + 10]
            now += 10

    OnlineNMF(2, batch_size=10, random_state=0, shuffle=False).fit(Batches(batches), checkpoint=checkpoint)
    assert written == [30.0, 60.0]


def test_the_file_before_the_last_takes_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    whole = OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    assert checkpoint.previous.name == "run.previous"
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes()[:-100])
    same(checkpoint.read().fit(X, resume=True), whole)
    assert "The one before it" in caplog.text
    (tmp_path / "run").unlink()  # killed between the two renames
    same(checkpoint.read().fit(X, resume=True), whole)
    checkpoint.previous.unlink()
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(ModelFileError):
        checkpoint.read()


def test_a_disk_that_fails_does_not_stop_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    calls = 0
    sync = os.fsync

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(model_file.os, "fsync", full)
    whole = OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    assert checkpoint.failures > 0
    assert "No checkpoint could be written, learning goes on" in caplog.text
    assert "No space left on device" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.previous"]  # no litter
    same(checkpoint.read().fit(X, resume=True), whole)


def test_a_folder_that_vanishes_does_not_stop_learning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint(tmp_path / "gone" / "run", every=0)
    model = OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    assert model.n_samples_seen_ == 270
    assert "cannot write" in caplog.text


def test_files_of_the_first_format_are_read(tmp_path: Path) -> None:
    """As version 1 wrote them: without positions, reasons, options and on_error."""
    model = OnlineNMF(**SETTINGS).fit(X)
    onmf.save(model, tmp_path / "new")
    with safetensors.safe_open(tmp_path / "new", "numpy") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts = json.loads(metadata["facts"])
    for name in ("position", "skipped", "loss_to_beat"):
        del facts[name]
    for name in ("on_error", "options"):
        del facts["settings"][name]
    del facts["divergence"]["class"]
    metadata |= {"version": "1", "facts": json.dumps(facts)}
    safetensors.numpy.save_file(arrays, tmp_path / "old", metadata)
    old = onmf.load(tmp_path / "old")
    np.testing.assert_array_equal(old.transform(X), model.transform(X))
    np.testing.assert_array_equal(old.partial_fit(X).components_, model.partial_fit(X).components_)
    metadata["version"] = "3"
    safetensors.numpy.save_file(arrays, tmp_path / "newer", metadata)
    with pytest.raises(ModelFileError, match=r"model format '3', written by onmf \S+; onmf \S+ reads up to 2: install"):
        onmf.load(tmp_path / "newer")


def test_a_divergence_of_ones_own_is_given_again(tmp_path: Path) -> None:
    model = OnlineNMF(2, divergence=LogCosh(), random_state=0).fit(X)
    onmf.save(model, tmp_path / "own")
    with pytest.raises(ModelFileError, match=r"of your own, LogCosh; give it: load\(path, divergence=LogCosh"):
        onmf.load(tmp_path / "own")
    with pytest.raises(ModelFileError, match="not with Huber"):
        onmf.load(tmp_path / "own", divergence=onmf.divergences.Huber(1.0))
    loaded = onmf.load(tmp_path / "own", divergence=LogCosh())
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(loaded.partial_fit(X).components_, model.partial_fit(X).components_)
    onmf.save(OnlineNMF(2).fit(X), tmp_path / "named")
    with pytest.raises(ModelFileError, match="leave out divergence="):
        onmf.load(tmp_path / "named", divergence=LogCosh())


# Bad batches


def bad(kind: str) -> np.ndarray:
    batch = X[:20].copy()
    batch[3, 2] = {"NaN": np.nan, "Infinity": np.inf, "Negative": -1.0}[kind]
    return batch


@pytest.mark.parametrize("kind", ["NaN", "Infinity", "Negative"])
def test_bad_batches_are_skipped_counted_and_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = SETTINGS | {"max_passes": 1, "shuffle": False}
    parts = [X[:20], bad(kind), X[20:40]]
    with pytest.raises(DataError, match=kind):
        OnlineNMF(**settings).fit(Batches(parts))
    model = OnlineNMF(**settings, on_error="skip").fit(Batches(parts))
    np.testing.assert_array_equal(model.components_, OnlineNMF(**settings).fit(X[:40]).components_)
    assert model.n_skipped_ == 1
    assert "at row 23, column 2" in model.skipped_[0]
    assert "A batch is left out" in caplog.text
    assert OnlineNMF(**settings, on_error="skip").fit(np.concatenate(parts)).n_skipped_ == 1


def test_skipping_in_partial_fit() -> None:
    model = OnlineNMF(2, random_state=0, on_error="skip").partial_fit(X)
    W = model.components_
    model.partial_fit(bad("NaN")).partial_fit(X[:, :3])
    assert model.n_skipped_ == 2
    assert "3 features" in model.skipped_[1]
    np.testing.assert_array_equal(model.components_, W)
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'"):
        OnlineNMF(2, on_error="ignore").fit(X)


def test_a_bad_first_batch_is_skipped_too_but_nothing_else_is_invented() -> None:
    model = OnlineNMF(**SETTINGS | {"shuffle": False, "max_passes": 1}, on_error="skip").fit(Batches([bad("NaN"), X]))
    assert model.n_skipped_ == 1
    with pytest.raises(DataError, match=r"No batch could be learnt from. NaN"):
        OnlineNMF(2, on_error="skip").fit(Batches([bad("NaN")]))


def test_skipped_batches_survive_a_resumption(tmp_path: Path) -> None:
    parts = [X[:20], bad("NaN"), X[20:40], bad("Infinity"), X[40:60]]
    settings = SETTINGS | {"max_passes": 1, "shuffle": False, "on_error": "skip"}
    whole = OnlineNMF(**settings).fit(Batches(parts))
    for crash_at in (1, 2, 3, 4):
        checkpoint = Checkpoint(tmp_path / f"run{crash_at}", every=0)
        with pytest.raises(CrashError):
            OnlineNMF(**settings).fit(Batches(parts), checkpoint=crashing(checkpoint, crash_at))
        resumed = checkpoint.read().fit(Batches(parts), resume=True)
        same(resumed, whole)
        assert resumed.skipped_ == whole.skipped_


def test_a_batch_that_would_make_the_dictionary_infinite_is_refused() -> None:
    model = OnlineNMF(2, divergence="squared_l2", random_state=0).partial_fit(X)
    W = model.components_.copy()
    with np.errstate(all="ignore"), pytest.raises(DataError, match="makes the dictionary infinite or NaN"):
        model.partial_fit(np.full((20, 8), 1e200))
    np.testing.assert_array_equal(model.components_, W)
    model.partial_fit(X)
    assert np.isfinite(model.components_).all()


def test_the_history_of_a_long_run_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "LONG_HISTORY", 50)
    model = OnlineNMF(2, batch_size=1, random_state=0, max_passes=10).fit(X)
    samples = model.history_["samples"]
    assert len(samples) <= 50
    assert samples[0] == 1
    assert samples[-1] == 900
    assert (np.diff(samples) > 0).all()
    assert (np.diff(model.history_["seconds"]) >= 0).all()


# The command line

FIT = ["-k", "3", "--divergence", "kl", "--method", "surrogate", "--batch-size", "20", "--passes", "20", "--seed", "4"]
BUFFERED = ["--shuffle-buffer", "90", "--on-error", "skip"]  # and read ahead


def onmf_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(ONMF), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.gamma(2.0, 1.0, (2000, 3)) @ rng.random((3, 60)))
    done = onmf_command("fit", folder / "x.npy", *FIT, "--out", folder / "whole")
    assert done.returncode == 0, done.stderr
    lines = [",".join(map(str, row)) for row in rng.gamma(2.0, 1.0, (1500, 10)).round(3)]
    lines[700] = "not,numbers"
    (folder / "x.csv").write_text("\n".join(lines))
    done = onmf_command("fit", folder / "x.csv", *FIT, *BUFFERED, "--out", folder / "whole csv")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("data", "options", "expected"), [("x.npy", [], "whole"), ("x.csv", BUFFERED, "whole csv")], ids=["npy", "csv"]
)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    data: str, options: list[str], expected: str, folder: Path, tmp_path: Path
) -> None:
    pauses = np.random.default_rng(1)
    run = tmp_path / "run"
    command = [str(ONMF), "fit", str(folder / data), *FIT, *options, "--out", str(tmp_path / "out")]
    command += ["--checkpoint", str(run), "--every", "0s", "--resume"]
    seen = []
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stamp = run.stat().st_mtime_ns if run.exists() else 0
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:  # until it writes again, and a little longer
            if run.exists() and run.stat().st_mtime_ns != stamp:
                time.sleep(pauses.uniform(0, 0.15))
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(Checkpoint(run).read().n_samples_seen_)
    assert seen == sorted(seen)
    assert len(set(seen)) > 1  # it moved on between the kills
    done = onmf_command(*command[1:])
    assert done.returncode == 0, done.stderr
    assert "Going on after" in done.stderr
    found, whole = onmf.load(tmp_path / "out"), onmf.load(folder / expected)
    same(found, whole)
    assert found.skipped_ == whole.skipped_


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_says_how_to_go_on(number: int, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [str(ONMF), "fit", str(folder / "x.npy"), *FIT, "--out", str(tmp_path / "out"), "--checkpoint", str(run)]
    process = subprocess.Popen(
        [*command, "--every", "0s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not run.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command with --resume goes on from" in errors.replace("\n", " ")
    done = onmf_command(*command[1:], "--resume")
    assert done.returncode == 0, done.stderr
    same(onmf.load(tmp_path / "out"), onmf.load(folder / "whole"))


def test_what_cannot_be_resumed_says_so(folder: Path, tmp_path: Path) -> None:
    base = ["fit", folder / "x.npy", *FIT, "--out", tmp_path / "out"]
    for arguments, words in (
        ([*base, "--resume"], "name it with --checkpoint FILE"),
        ([*base, "--checkpoint", tmp_path / "run", "--every", "soon"], "write a number and s, m or h"),
        (
            ["fit", "-", "--out", tmp_path / "out", "--checkpoint", tmp_path / "run", "--resume"],
            "standard input cannot",
        ),
        ([*base, "--checkpoint", tmp_path / "absent" / "run"], "absent does not exist"),
    ):
        done = onmf_command(*arguments)
        assert done.returncode == 2
        assert words in done.stderr, done.stderr
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(3, random_state=4).fit(X, checkpoint=checkpoint)
    done = onmf_command(*base, "--checkpoint", tmp_path / "run", "--resume")
    assert done.returncode == 2
    assert "was begun with other options (batch_size None, not 20, max_passes 1, not 20, method" in done.stderr


def test_texts_from_standard_input(tmp_path: Path) -> None:
    lines = "\n".join(["the cat sat on the mat", "dogs chase cats", "a theorem has a proof"] * 20)
    command = [str(ONMF), "fit", "-", "-k", "2", "--seed", "0", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert onmf.load(tmp_path / "out").n_samples_seen_ == 60


def test_a_pipe_that_is_silent_can_be_interrupted(tmp_path: Path) -> None:
    command = [str(ONMF), "fit", "-", "-k", "2", "--seed", "0", "--batch-size", "20", "--out", str(tmp_path / "out")]
    command += ["--checkpoint", str(tmp_path / "run"), "--every", "0s"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write("the cat sat on the mat\ndogs chase cats\n" * 300)
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (tmp_path / "run").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)  # now it waits
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "what was learnt is in" in errors
    assert onmf.load(tmp_path / "out").n_samples_seen_ >= 20


def test_progress_of_a_resumed_run_goes_on(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(**SETTINGS | {"max_passes": 1}).fit(X, checkpoint=checkpoint)
    told: list[Progress] = []
    model = checkpoint.read().set_params(max_passes=2, callbacks=[told.append])
    model.fit(X, resume=True)
    assert [progress.samples for progress in told] == [110, 130, 150, 170, 180]
    assert logging.getLogger("onmf") is learning.log


def test_a_source_that_ends_in_an_error_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    def batches() -> Any:
        yield X
        raise SourceError("the network is gone")

    checkpoint = Checkpoint(tmp_path / "run", every=0)
    model = OnlineNMF(**SETTINGS)
    with pytest.raises(SourceError):
        model.fit(Batches(batches), checkpoint=checkpoint)
    assert not hasattr(model, "components_")
    assert checkpoint.read().n_samples_seen_ == 80  # what was learnt is not lost


def test_an_error_midway_leaves_a_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2,3\n" * 500 + "1,x,3\n")
    command = ["fit", tmp_path / "x.csv", "-k", "2", "--batch-size", "100", "--out", tmp_path / "out"]
    done = onmf_command(*command, "--checkpoint", tmp_path / "run", "--seed", "0")
    assert done.returncode == 2
    assert "'x' is not a number at row 500" in done.stderr
    assert "what was learnt before the error is in" in done.stderr
    assert Checkpoint(tmp_path / "run").read().n_samples_seen_ == 500
    again = onmf_command(*command, "--checkpoint", tmp_path / "run", "--seed", "0")
    assert "holds a run that was begun before" in again.stderr
    (tmp_path / "x.csv").write_text("1,2,3\n" * 501)
    done = onmf_command(*command, "--checkpoint", tmp_path / "run", "--seed", "0", "--resume")
    assert done.returncode == 0, done.stderr


def test_other_data_are_not_gone_on_with(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="the data have 40 samples, those of the checkpoint 90"):
        checkpoint.read().fit(X[:40], resume=True)


@pytest.mark.parametrize("sparse", [False, True])
def test_data_of_the_same_shape_but_other_numbers_are_not_gone_on_with(sparse: bool, tmp_path: Path) -> None:
    data = scipy.sparse.csr_matrix(X) if sparse else X
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(**SETTINGS).fit(data, checkpoint=checkpoint)
    for other in (2 * data, data[::-1]):
        with pytest.raises(SourceError, match="the data are not those of the checkpoint"):
            checkpoint.read().fit(other, resume=True)
    checkpoint.read().fit(data, resume=True)


def test_data_that_have_become_shorter_are_not_gone_on_with(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    settings = SETTINGS | {"max_passes": 1}
    OnlineNMF(**settings).fit(Batches([X]), checkpoint=checkpoint)
    with pytest.raises(SourceError, match="the data end after 2 batches of a pass; the checkpoint has learnt from 5"):
        checkpoint.read().fit(Batches([X[:40]]), resume=True)


def test_a_run_is_not_begun_anew_over_an_older_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    with pytest.raises(ModelFileError, match="holds a run that was begun before"):
        OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    assert checkpoint.read().n_samples_seen_ == 270


def test_another_try_in_the_same_process_leaves_files_that_can_be_read(tmp_path: Path) -> None:
    whole = OnlineNMF(**SETTINGS).fit(X)
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    with pytest.raises(CrashError):
        OnlineNMF(**SETTINGS).fit(X, checkpoint=crashing(checkpoint, 2))
    model = checkpoint.read()
    before = model.history_["samples"].copy()
    with pytest.raises(CrashError):
        model.fit(X, resume=True, checkpoint=crashing(checkpoint, 4))
    np.testing.assert_array_equal(model.history_["samples"], before)
    same(model.fit(X, resume=True, checkpoint=checkpoint), whole)
    same(checkpoint.read().fit(X, resume=True), whole)


def test_an_interrupt_in_python_leaves_a_last_checkpoint(tmp_path: Path) -> None:
    def batches() -> Any:
        yield X
        raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path / "run", every=1e6)
    with pytest.raises(KeyboardInterrupt):
        OnlineNMF(**SETTINGS | {"max_passes": 1}).fit(batches(), checkpoint=checkpoint)
    assert checkpoint.read().n_samples_seen_ == 80


def test_a_checkpoint_may_be_a_link_and_litter_of_the_killed_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "far" / "run")
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    (tmp_path / "far" / ".onmf-run-abc").write_text("half")
    (tmp_path / "far" / ".onmf-other-abc").write_text("not ours")
    checkpoint.read()
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == [".onmf-other-abc", "run", "run.previous"]


@pytest.mark.parametrize("ahead", [False, True])
def test_blocks_that_cannot_be_read_are_counted_once_whenever_the_run_is_cut(ahead: bool, tmp_path: Path) -> None:
    blocks = ["1,2\n" * 5, "1,x\n" * 5, "2,1\n" * 5, "2,y\n" * 5, "z,y\n" * 5, "3,1\n" * 5, "1,1\n" * 5, "1,w\n"]
    (tmp_path / "x.csv").write_text("".join(blocks))

    def source() -> Any:
        found = open_source(tmp_path / "x.csv")
        return prefetch(found) if ahead else found

    settings: dict[str, Any] = {"n_components": 2, "batch_size": 5, "random_state": 0, "on_error": "skip"}
    whole = OnlineNMF(**settings, max_passes=2).fit(source())
    assert whole.n_skipped_ == 8
    finished = Checkpoint(tmp_path / "finished")
    finished.write(whole)  # after the faults at the end, and gone on from again
    for _ in range(2):
        again = finished.read().fit(source(), resume=True)
        assert again.skipped_ == whole.skipped_
        finished.write(again)
    for crash_at in range(1, 8):
        checkpoint = Checkpoint(tmp_path / f"run{crash_at}", every=0)
        with pytest.raises(CrashError):
            OnlineNMF(**settings, max_passes=2).fit(source(), checkpoint=crashing(checkpoint, crash_at))
        resumed = checkpoint.read().fit(source(), resume=True)
        same(resumed, whole)
        assert resumed.skipped_ == whole.skipped_


def test_data_with_other_names_are_not_gone_on_with(tmp_path: Path) -> None:
    for name, header in (("one", "a,b"), ("other", "a,c")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\n" + "1,2\n" * 30)
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    OnlineNMF(2, batch_size=10, random_state=0).fit(open_source(tmp_path / "one.csv"), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="a feature 'c' where those of the checkpoint have 'b'"):
        checkpoint.read().fit(open_source(tmp_path / "other.csv"), resume=True)


def test_data_are_never_overwritten(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    for arguments in (
        ["fit", f"npy:{tmp_path / 'x.npy'}", "--out", tmp_path / "x.npy"],
        ["fit", tmp_path / "x.npy", "--out", tmp_path / "m", "--checkpoint", tmp_path / "x.npy"],
    ):
        done = onmf_command(*arguments)
        assert done.returncode == 2
        assert "is read from" in done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


def test_a_matrix_of_mahalanobis_is_recognised_on_resumption(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "A.npy", np.eye(8))
    command = ["fit", tmp_path / "x.npy", "-k", "2", "-d", f"mahalanobis:{tmp_path / 'A.npy'}", "--seed", "0"]
    command += ["--out", tmp_path / "out", "--checkpoint", tmp_path / "run", "--resume"]
    for _ in range(2):
        done = onmf_command(*command)
        assert done.returncode == 0, done.stderr
    np.save(tmp_path / "A.npy", 2 * np.eye(8))
    assert "was begun with other options (divergence" in onmf_command(*command).stderr
