"""A run that is cut short and goes on ends with the same bits; what it learnt is never lost; other data and settings
are noticed; bad batches are skipped.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import onmf
from onmf import Checkpoint, DataError, OnlineNMF, Sets
from onmf._support import atomic
from onmf.cli import main as cli
from onmf.data import Batches, SourceError, open_source, prefetch, shuffle, take
from onmf.divergences import Huber, Mahalanobis
from onmf.learner import Progress, learned
from onmf.methods import EM, Auto, Canonical, Paper, Surrogate
from onmf.methods.base import Growing
from onmf.persistence.checkpoint import Keeper
from onmf.persistence.file import ModelFileError
from reproduction.earlier_methods import Wang
from tests import processes

from .conftest import LogCosh, Soft, limited, require_same_learning, spread

X = np.random.default_rng(0).gamma(2.0, 1.0, (90, 3)) @ np.random.default_rng(1).random((3, 8))
SPARSE = scipy.sparse.csr_matrix(X * (np.quantile(X, 0.9) < X))
SETTINGS: dict[str, Any] = {"n_components": 3, "batch_size": 20, "max_passes": 3, "random_state": 4}
IN_ORDER = SETTINGS | {"max_passes": 1, "shuffle": False}
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "surrogate": ({"method": "surrogate:forgetting=0.1"}, X),
    "huber": ({"divergence": "huber"}, X),
    "reservoir": ({"divergence": "is", "reservoir": 20}, X),
    "sparse surrogate": ({}, SPARSE),
    "em": ({"method": "em"}, SPARSE),
    "paper": ({"method": Paper(step=Canonical(a=100, b=1000))}, X),
    "adaptive step": ({"method": "paper:b=150,trial_samples=50"}, X),
    "lefevre": ({"divergence": "is", "method": "lefevre"}, X),
    "guan": ({"divergence": "squared_l2", "method": "guan"}, X),
    "wang": ({"divergence": "huber:0.5", "method": Wang(eta=0.01, max_iter=20)}, X),
    "float32": ({"init": np.ones((3, 8)), "clip": [0, 9]}, X.astype(np.float32)),
    "own divergence": ({"divergence": LogCosh()}, X),
    "own adaptive divergence": ({"divergence": Soft()}, X),
    "matrix": ({"divergence": Mahalanobis(np.eye(8) + 0.1)}, X),
}


class CrashError(Exception):
    """A process that dies."""


def crashing(after: int, error: type[BaseException] = CrashError) -> Callable[[Progress], None]:
    """A callback that dies after so many batches."""
    calls = iter(range(1, after + 1))

    def crash(_: Progress) -> None:
        if next(calls) == after:
            raise error

    return crash


def cut_short(data: Any, path: Path, after: int, **settings: Any) -> None:
    """A run that dies after so many batches."""
    with pytest.raises(CrashError):
        OnlineNMF(**settings, callbacks=[crashing(after)]).fit(data, checkpoint=path)


def resumed(data: Any, path: Path, **settings: Any) -> OnlineNMF:
    return OnlineNMF(**settings).fit(data, checkpoint=path, resume=True)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The samples seen at every write."""
    written: list[int] = []
    write = Checkpoint.write

    def counted(self: Checkpoint, settings: Any, what: Any) -> bool:
        written.append(what.history.samples)
        return write(self, settings, what)

    monkeypatch.setattr(Checkpoint, "write", counted)
    return written


# Going on


@pytest.mark.parametrize(("case", "batches"), [(case, 5) for case in CASES] + spread(CASES, [1, 14], 2))
def test_a_run_that_goes_on_ends_with_the_same_bits(case: str, batches: int, tmp_path: Path) -> None:
    options, data = CASES[case]
    settings, path = SETTINGS | options, tmp_path / "run"
    whole = resumed(data, path, **settings)  # there is no file: it begins
    path.unlink()
    cut_short(data, path, batches, **settings)
    if batches == 5:  # and once more, from where it had come to
        with pytest.raises(CrashError):
            resumed(data, path, **settings, callbacks=[crashing(4)])
    told: list[int] = []
    again = {"callbacks": [lambda progress: told.append(progress.samples)], "verbose": False, "transform_tol": 1e-3}
    require_same_learning(resumed(data, path, **settings | again), whole)
    assert told == whole.history_["samples"].tolist()[{1: 1, 5: 9, 14: 14}[batches] :]
    require_same_learning(resumed(data, path, **settings), whole)  # finished: nothing is left to do


def test_without_a_seed_a_run_goes_on_with_its_own_random_numbers(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    for seed in (None, np.random.default_rng(1)):
        kept: list[bytes] = []

        def keep_all(_: Progress, kept: list[bytes] = kept) -> None:
            kept += [(tmp_path / "run").read_bytes()] if checkpoint.exists() else []

        settings = SETTINGS | {"random_state": seed}
        whole = OnlineNMF(**settings, callbacks=[keep_all]).fit(X, checkpoint=checkpoint)
        assert len(kept) == 14
        for content in kept[::4]:
            (tmp_path / "run").write_bytes(content)
            require_same_learning(resumed(X, tmp_path / "run", **settings), whole)
        for path in tmp_path.iterdir():
            path.unlink()


def test_streams_with_a_shuffle_buffer_go_on_too(tmp_path: Path) -> None:
    def source() -> Any:
        return shuffle(take(Batches([X[:31], X[31:]]), 80), buffer=30)

    whole = OnlineNMF(**SETTINGS).fit(source())
    cut_short(source(), tmp_path / "run", 6, **SETTINGS)
    require_same_learning(resumed(source(), tmp_path / "run", **SETTINGS), whole)


def test_a_checkpoint_is_a_model_file(tmp_path: Path) -> None:
    cut_short(X, tmp_path / "run", 6, **SETTINGS)
    model = onmf.load(tmp_path / "run")
    assert model.n_samples_seen_ == 110
    assert model.partial_fit(X).transform(X).shape == (90, 3)
    onmf.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="only a fit that was interrupted can be resumed"):
        resumed(X, tmp_path / "model", **SETTINGS)  # partial_fit has no position in X


# What is written, and when


def test_checkpoints_are_written_when_it_is_time_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: list[int]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(Keeper, "_write_in_time", lambda _: None)  # it could be the first when it is time

    def batches() -> Any:
        nonlocal now
        for start in range(0, 80, 10):
            yield X[start : start + 10]
            now += 10

    settings = IN_ORDER | {"batch_size": 10}
    OnlineNMF(**settings).fit(Batches(batches), checkpoint=Checkpoint(tmp_path / "run", every=30))
    assert writes == [40, 70, 80]
    OnlineNMF(**settings).fit(X, checkpoint=tmp_path / "other")
    assert writes[3:] == [90]


def test_what_was_learnt_is_written_in_time_while_a_silent_stream_is_waited_for(tmp_path: Path) -> None:
    run, found = Checkpoint(tmp_path / "run", every=0.2), list[int]()

    def batches() -> Iterator[Any]:
        yield X[:50]
        deadline = time.monotonic() + 20
        while found != [40] and time.monotonic() < deadline:
            time.sleep(0.02)
            found[:] = [run.read()[1].history.samples] if run.exists() else []
        before = last_written(tmp_path / "run")
        time.sleep(0.5)
        assert last_written(tmp_path / "run") == before  # nothing new was learnt

    OnlineNMF(**IN_ORDER).fit(batches(), checkpoint=run)
    assert found == [40]  # ten rows wait for a full batch
    assert run.read()[1].history.samples == 50


@pytest.mark.parametrize("error", [KeyboardInterrupt, CrashError])
@pytest.mark.parametrize("every", [0, 1e6])
def test_ctrl_c_and_errors_write_what_was_learnt_exactly_once(
    error: type[BaseException], every: float, tmp_path: Path, writes: list[int]
) -> None:
    def batches() -> Any:
        yield X[:50]
        raise error

    model, checkpoint = OnlineNMF(**IN_ORDER).fit(X), Checkpoint(tmp_path / "run", every=every)
    with pytest.raises(error):
        model.fit(batches(), checkpoint=checkpoint)
    assert writes == ([20, 40] if every == 0 else [40])
    assert model.n_samples_seen_ == (40 if error is KeyboardInterrupt else 90)  # an error leaves it as it was
    assert checkpoint.read()[1].history.samples == 40
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error):  # nothing new was learnt: nothing is written
        resumed(iter_of(error), tmp_path / "run", **IN_ORDER)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def iter_of(error: type[BaseException]) -> Iterator[Any]:
    yield X[:10]
    raise error


def test_an_error_before_anything_is_learnt_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        OnlineNMF(**SETTINGS).fit(Batches(lambda: iter_of(KeyboardInterrupt)), checkpoint=tmp_path / "run")
    with pytest.raises(DataError):
        OnlineNMF(**SETTINGS).fit(-X, checkpoint=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_settings_changed_by_a_callback_do_not_get_into_the_checkpoint(tmp_path: Path) -> None:
    model = OnlineNMF(**SETTINGS)
    model.set_params(callbacks=[lambda _: model.set_params(n_components=5) and None])
    model.fit(X, checkpoint=tmp_path / "run")
    assert onmf.load(tmp_path / "run").n_components == 3


def test_a_run_is_not_begun_where_it_cannot_be_kept(tmp_path: Path) -> None:
    OnlineNMF(**SETTINGS).fit(X, checkpoint=tmp_path / "run")
    before = (tmp_path / "run").read_bytes()
    unread = iter([X])
    for checkpoint, words in (
        (tmp_path / "run", "holds an earlier run; continue it with resume=True"),
        (tmp_path, "it is a directory"),
        (tmp_path / "absent" / "run", "there is no folder .*absent"),
    ):
        with pytest.raises(ModelFileError, match=words):
            OnlineNMF(**SETTINGS).fit(unread, checkpoint=checkpoint)
    with pytest.raises(TypeError, match=r"checkpoint takes a file name or an onmf\.Checkpoint, got int"):
        OnlineNMF(**SETTINGS).fit(unread, checkpoint=3)
    with pytest.raises(ValueError, match="resume=True continues the run in a checkpoint; pass checkpoint= as well"):
        OnlineNMF(**SETTINGS).fit(unread, resume=True)
    with pytest.raises(ValueError, match=r"every must be .*at least 0"):
        Checkpoint(tmp_path / "run", every=-1)
    with pytest.raises(ModelFileError, match="there is no checkpoint"):
        Checkpoint(tmp_path / "none").read()
    assert next(unread) is X
    assert (tmp_path / "run").read_bytes() == before


def test_the_file_before_the_last_takes_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    whole = OnlineNMF(**SETTINGS).fit(X, checkpoint=Checkpoint(run, every=0))
    last, previous = run.read_bytes(), (tmp_path / "run.previous").read_bytes()
    for damaged in (last[:-100], b"", None):  # None: killed between the two renames
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / "run.previous").write_bytes(previous)
        if damaged is not None:
            run.write_bytes(damaged)
        caplog.clear()
        with pytest.raises(CrashError):
            resumed(X, run, **SETTINGS, callbacks=[crashing(1)])
        assert caplog.text.count("Continuing from the previous one") == 1
        assert (tmp_path / "run.previous").read_bytes() == previous  # not the damaged one
        assert (tmp_path / "run.damaged").exists() == (damaged is not None)
        require_same_learning(resumed(X, run, **SETTINGS), whole)
        assert len(caplog.records) == 1
    run.write_bytes(b"")
    (tmp_path / "run.previous").write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="run is damaged"):
        resumed(X, run, **SETTINGS)


def test_the_command_says_once_that_the_file_before_the_last_takes_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: Callable[..., tuple[int, str]]
) -> None:
    np.save(tmp_path / "x.npy", X)
    run, out = tmp_path / "run", tmp_path / "out"
    arguments = ["fit", tmp_path / "x.npy", "-k", 2, "--seed", 0, "--checkpoint", run, "--every", "0s", "--out", out]
    assert command(*arguments, "--batch-size", 20)[0] == 0
    run.write_bytes(b"")
    assert command(*arguments, "--batch-size", 20, "--resume")[0] == 0
    assert caplog.text.count("Continuing from the previous one") == 1


def test_a_checkpoint_in_which_one_bit_has_changed_gives_way_to_the_one_before_it(
    tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    whole = OnlineNMF(**SETTINGS).fit(X, checkpoint=Checkpoint(run, every=0))
    last, previous = run.read_bytes(), (tmp_path / "run.previous").read_bytes()
    for place in rng.integers(8 * len(last), size=10):
        changed = bytearray(last)
        changed[place // 8] ^= 1 << int(place % 8)
        run.write_bytes(changed)
        (tmp_path / "run.previous").write_bytes(previous)
        caplog.clear()
        require_same_learning(resumed(X, run, **SETTINGS), whole)
        assert "Continuing from the previous one" in caplog.text


def test_a_file_that_is_damaged_during_the_run_does_not_take_the_place_of_the_good_one_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, good = tmp_path / "run", []

    def damage(progress: Progress) -> None:
        if progress.samples == 60:
            good.append((tmp_path / "run.previous").read_bytes())
            run.write_bytes(b"damaged" + run.read_bytes())
        if progress.samples == 80:  # another one has been written meanwhile
            assert (tmp_path / "run.previous").read_bytes() == good[0]
            assert (tmp_path / "run.damaged").read_bytes().startswith(b"damaged")
            onmf.load(run)

    OnlineNMF(**SETTINGS, callbacks=[damage]).fit(X, checkpoint=Checkpoint(run, every=0))
    assert len(good) == 1
    assert f"run is damaged, or not a model of onmf; it is kept as {run}.damaged" in caplog.text
    assert len(caplog.records) == 1


# One run at a time


def test_a_second_run_on_the_same_checkpoint_is_refused_while_the_first_is_at_work(tmp_path: Path) -> None:
    refused: list[str] = []
    (tmp_path / "link").symlink_to(tmp_path / "run")

    def second(_: Progress) -> None:
        for path in (tmp_path / "run", tmp_path / "link"):
            with pytest.raises(ModelFileError) as error:
                resumed(X, path, **SETTINGS)
            refused.append(str(error.value))

    model = OnlineNMF(**SETTINGS | {"max_passes": 1}, callbacks=[second])
    model.fit(X, checkpoint=Checkpoint(tmp_path / "run", every=0))
    words = f"is being written by process {os.getpid()}; wait until it has ended, or give another file."
    assert len(refused) == 10
    assert all(words in message for message in refused)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.previous", "link"}
    resumed(X, tmp_path / "run", **SETTINGS | {"max_passes": 1})


def test_an_error_gives_the_lock_back(tmp_path: Path) -> None:
    cut_short(X, tmp_path / "run", 2, **SETTINGS)
    with pytest.raises(ValueError, match="the input has 7 features"):
        resumed(X[:, :7], tmp_path / "run", **SETTINGS)
    resumed(X, tmp_path / "run", **SETTINGS)


KILLED_WITH_THE_LOCK = """
import os, signal, sys
from pathlib import Path
from onmf.persistence.checkpoint import lock_file
with lock_file(Path(sys.argv[1])):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_a_lock_of_another_process_is_named_and_blocks_nobody_after_a_kill(tmp_path: Path) -> None:
    run = tmp_path / ("run" * 80)  # a name as long as they get
    pipe = subprocess.PIPE
    with processes.start("-c", KILLED_WITH_THE_LOCK, run, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        pid = other.stdout.readline().strip()
        with pytest.raises(ModelFileError, match=f"is being written by process {pid}; wait"):
            OnlineNMF(**SETTINGS).fit(X, checkpoint=run)
        other.kill()
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]  # it is still there
    OnlineNMF(**SETTINGS).fit(X, checkpoint=run)
    assert not list(tmp_path.glob(".*"))


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

    with monkeypatch.context() as context:
        context.setattr(atomic.os, "fsync", full)
        whole = OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    assert checkpoint.failures > 0
    assert "No checkpoint could be written; learning continues" in caplog.text
    assert "No space left on device" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.previous"]  # no litter
    require_same_learning(resumed(X, tmp_path / "run", **SETTINGS), whole)


def test_a_sound_checkpoint_that_cannot_be_opened_is_not_taken_for_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    whole = OnlineNMF(**SETTINGS).fit(X, checkpoint=checkpoint)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert whole._learned is not None
    with limited(resource.RLIMIT_NOFILE, 3):
        written = checkpoint.write(whole.get_params(deep=False), whole._learned)
        with pytest.raises(ModelFileError, match="run: Too many open files"):
            checkpoint.read()
    assert not written
    assert "learning continues: cannot read" in caplog.text
    assert "damaged" not in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_vanishes_does_not_stop_learning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    model = OnlineNMF(**SETTINGS, callbacks=[lambda _: shutil.rmtree(folder, ignore_errors=True)])
    model.fit(X, checkpoint=Checkpoint(folder / "run", every=0))
    assert model.n_samples_seen_ == 270
    assert "cannot write" in caplog.text


def test_a_checkpoint_may_be_a_link_and_only_its_own_litter_is_cleared_away(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "run").symlink_to(far / "run")
    OnlineNMF(**SETTINGS).fit(X, checkpoint=Checkpoint(tmp_path / "run", every=0))
    litter = {".onmf-run-abcdefgh", ".onmf-run-2-abcdefgh", ".onmf-other-abcdefgh"}
    for name in litter:
        (far / name).write_text("half")
    Checkpoint(tmp_path / "run").read()  # a run may be writing
    assert litter < {path.name for path in far.iterdir()}
    resumed(X, tmp_path / "run", **SETTINGS)
    litter.remove(".onmf-run-abcdefgh")
    assert {path.name for path in far.iterdir()} == litter | {"run", "run.previous"}


# Other settings, other data


@pytest.mark.parametrize(
    ("begun", "now", "words"),
    [
        ({}, {"n_components": 4}, "n_components 3, not 4"),
        ({}, {"divergence": "is"}, r"divergence KullbackLeibler\(\), not ItakuraSaito\(\)"),
        (
            {"divergence": "huber"},
            {"divergence": Huber(0.3)},
            r"divergence Huber\(delta=None\), not Huber\(delta=0.3\)",
        ),
        ({"divergence": Mahalanobis(np.eye(8))}, {"divergence": Mahalanobis(2 * np.eye(8))}, r"\(divergence\)"),
        ({"divergence": LogCosh()}, {"divergence": Soft()}, "of your own, LogCosh, not with Soft"),
        ({"divergence": Soft()}, {"divergence": Soft(0.6)}, "parameters .*0.5.*, not .*0.6"),
        ({}, {"method": Auto(tau=5)}, r"method Auto\(\), not Auto\(tau=5\)"),
        ({}, {"method": Surrogate()}, r"method Auto\(\), not Surrogate\(\)"),
        (
            {"method": "paper:step=canonical,a=100"},
            {"method": "paper:step=canonical,a=200"},
            r"method Paper\(step=Canonical\(a=100\)\), not Paper\(step=Canonical\(a=200\)\)",
        ),
        ({}, {"sets": Sets(eps=1e-6)}, r"sets None, not Sets\(eps=1e-06"),
        ({}, {"init": np.ones((3, 8))}, r"\(init\)"),
        ({"init": np.ones((3, 8))}, {"init": np.eye(3, 8)}, r"\(init\)"),
        ({}, {"l2_coefficients": 0.1, "random_state": 5}, "l2_coefficients 0.0, not 0.1, random_state 4, not 5"),
        ({}, {"random_state": None}, "random_state 4, not None"),
        ({}, {"batch_size": 30, "clip": (0, 1)}, r"batch_size 20, not 30, clip None, not \(0, 1\)"),
    ],
)
def test_other_settings_are_refused_by_name(
    begun: dict[str, Any], now: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    OnlineNMF(**IN_ORDER | begun).fit(X, checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=words) as error:
        resumed(X, path, **IN_ORDER | begun | now)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == content
    resumed(X, path, **IN_ORDER | begun | {"transform_max_iter": 10, "transform_tol": 0.1, "verbose": False})


@pytest.mark.parametrize("sparse", [False, True])
def test_other_data_are_not_gone_on_with(sparse: bool, tmp_path: Path) -> None:
    data, path = scipy.sparse.csr_matrix(X) if sparse else X, tmp_path / "run"
    cut_short(data, path, 7, **SETTINGS)
    content = path.read_bytes()
    for other, words in (
        (data[:, :4], "the input has 4 features, but the checkpoint was learnt from 8"),
        (data[:40], "the data have 40 samples, those of the checkpoint 90"),
        (iter([data]), "this source can be read only once"),
        (2 * data, "the data are not those of the checkpoint: batch 2 of pass 2 differs from the one it has learnt"),
        (data[::-1], "the data are not those of the checkpoint"),
    ):
        with pytest.raises(ValueError, match=words):
            resumed(other, path, **SETTINGS)
        assert [p.name for p in tmp_path.iterdir()] == ["run"]
        assert path.read_bytes() == content
    resumed(data, path, **SETTINGS)


def test_data_that_have_become_shorter_are_not_gone_on_with(tmp_path: Path) -> None:
    OnlineNMF(**IN_ORDER).fit(Batches([X]), checkpoint=tmp_path / "run")
    with pytest.raises(SourceError, match="the data end after 2 batches of a pass; the checkpoint has learnt from 5"):
        resumed(Batches([X[:40]]), tmp_path / "run", **IN_ORDER)


def test_data_with_other_names_are_not_gone_on_with(tmp_path: Path) -> None:
    tables = {"one": "a,b", "other": "a,c"}
    for name, header in tables.items():
        (tmp_path / f"{name}.csv").write_text(f"{header}\n" + "1,2\n" * 30)
    kinds: tuple[Callable[[str], Any], ...] = (
        lambda name: open_source(tmp_path / f"{name}.csv"),
        lambda name: pd.read_csv(tmp_path / f"{name}.csv"),
    )
    for number, opened in enumerate(kinds):
        path = tmp_path / f"run{number}"
        OnlineNMF(2, batch_size=10, random_state=0).fit(opened("one"), checkpoint=path)
        with pytest.raises(ValueError, match="the input has a feature 'c' where the checkpoint has 'b'"):
            resumed(opened("other"), path, n_components=2, batch_size=10, random_state=0)
        resumed(opened("one"), path, n_components=2, batch_size=10, random_state=0)


# Bad batches


def bad(kind: str) -> np.ndarray:
    batch = X[:20].copy()
    batch[3, 2] = {"NaN": np.nan, "Infinity": np.inf, "Negative": -1.0}[kind]
    return batch


@pytest.mark.parametrize("kind", ["NaN", "Infinity", "Negative"])
def test_bad_rows_are_skipped_counted_and_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    parts = [X[:20], X[20:40], bad(kind)]
    with pytest.raises(DataError, match=kind):
        OnlineNMF(**IN_ORDER).fit(Batches(parts))
    model = OnlineNMF(**IN_ORDER, on_error="skip").fit(Batches(parts))
    others = np.delete(np.concatenate(parts), 43, axis=0)
    np.testing.assert_array_equal(model.components_, OnlineNMF(**IN_ORDER).fit(others).components_)
    assert (model.n_skipped_, model.n_samples_seen_) == (1, 59)
    assert "at row 43, column 2" in model.skipped_[0]
    assert f"Skipped: {model.skipped_[0]}" in caplog.text
    assert OnlineNMF(**IN_ORDER, on_error="skip").fit(np.concatenate(parts)).n_skipped_ == 1


def test_skipping_in_partial_fit() -> None:
    model = OnlineNMF(2, random_state=0, on_error="skip").partial_fit(bad("NaN"))
    assert model.n_skipped_ == 1
    W = model.partial_fit(X).components_
    model.partial_fit(bad("NaN")).partial_fit(X[:, :3])
    assert model.n_skipped_ == 3
    assert "3 features" in model.skipped_[2]
    np.testing.assert_array_equal(model.components_, W)
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'"):
        OnlineNMF(2, on_error="ignore").fit(X)


def test_a_bad_first_batch_is_skipped_too_but_nothing_else_is_invented() -> None:
    assert OnlineNMF(**IN_ORDER, on_error="skip").fit(Batches([bad("NaN"), X])).n_skipped_ == 1
    with pytest.raises(DataError, match=r"No batch could be learnt from. NaN"):
        OnlineNMF(2, on_error="skip").fit(Batches([bad("NaN")[3:4]]))


def test_skipped_batches_survive_a_resumption(tmp_path: Path) -> None:
    parts = [X[:20], bad("NaN"), X[20:40], bad("Infinity"), X[40:60]]
    settings = IN_ORDER | {"on_error": "skip"}
    whole = OnlineNMF(**settings).fit(Batches(parts))
    assert whole.n_skipped_ == 2
    for crash_at in (1, 2, 3):
        cut_short(Batches(parts), tmp_path / f"run{crash_at}", crash_at, **settings)
        require_same_learning(resumed(Batches(parts), tmp_path / f"run{crash_at}", **settings), whole)


def test_batches_that_grow_are_the_same_after_a_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any pass, after any batch, with batches that had to be left out before it."""
    monkeypatch.setattr(Surrogate, "growing", Growing(30, 0.3, 450))
    data = np.random.default_rng(0).gamma(1.0, 1.0, (1000, 3))
    data[[350, 351, 790], 1] = np.nan
    settings = {"n_components": 2, "random_state": 0, "max_passes": 3, "on_error": "skip", "shuffle": False}
    sizes: list[int] = []
    whole = OnlineNMF(**settings, callbacks=[lambda told: sizes.append(len(told.H))]).fit(data)
    assert max(sizes) > 300
    for crash_at in range(1, len(sizes) + 1):
        path = tmp_path / f"run{crash_at}"
        cut_short(data, path, crash_at, **settings)
        require_same_learning(resumed(data, path, **settings), whole)


@pytest.mark.parametrize("ahead", [False, True])
def test_blocks_that_cannot_be_read_are_counted_once_whenever_the_run_is_cut(ahead: bool, tmp_path: Path) -> None:
    blocks = ["1,2\n" * 5, "1,x\n" * 5, "2,1\n" * 5, "2,y\n" * 5, "z,y\n" * 5, "3,1\n" * 5, "1,1\n" * 5, "1,w\n"]
    (tmp_path / "x.csv").write_text("".join(blocks))

    def source() -> Any:
        found = open_source(tmp_path / "x.csv")
        return prefetch(found) if ahead else found

    settings = {"n_components": 2, "batch_size": 5, "random_state": 0, "on_error": "skip", "max_passes": 2}
    whole = OnlineNMF(**settings).fit(source(), checkpoint=tmp_path / "finished")
    assert whole.n_skipped_ == 2 * 16  # lines
    for _ in range(2):  # after the faults at the end, and gone on from again
        require_same_learning(resumed(source(), tmp_path / "finished", **settings), whole)
    for crash_at in range(1, 8):
        path = tmp_path / f"run{crash_at}"
        cut_short(source(), path, crash_at, **settings)
        require_same_learning(resumed(source(), path, **settings), whole)


def test_a_batch_that_would_make_the_dictionary_infinite_is_refused() -> None:
    model = OnlineNMF(2, divergence="squared_l2", random_state=0).partial_fit(X)
    W = model.components_.copy()
    with np.errstate(all="ignore"), pytest.raises(DataError, match="makes the dictionary infinite or NaN"):
        model.partial_fit(np.full((20, 8), 1e200))
    np.testing.assert_array_equal(model.components_, W)
    model.partial_fit(X)
    assert np.isfinite(model.components_).all()


def test_constants_that_shape_the_statistics_are_not_changed_on_the_way() -> None:
    for options, change in (
        ({"method": Surrogate()}, {"method__max_memory": 0.0}),
        ({"method": "guan", "divergence": "squared_l2"}, {"method__buffer": 30}),
        ({"method": "paper"}, {"method__step": "adaptive:c=1"}),
        ({"method": "paper"}, {"method__step": "canonical"}),
        ({"method": "paper:step=canonical,a=100"}, {"method__step": "canonical:a=10"}),
    ):
        model = OnlineNMF(2, random_state=0, **options).partial_fit(X).set_params(**change)
        with pytest.raises(ValueError, match="cannot be changed while a model learns; keep it, or begin a new model"):
            model.partial_fit(X)
    OnlineNMF(2, method=EM(), random_state=0).partial_fit(X).set_params(method__tau=5).partial_fit(X)


def test_steps_of_any_power_are_numbers() -> None:
    vanishing, growing = (Paper(step=Canonical(power=p, any_power=True), max_iter=5) for p in (100, -100))
    model = OnlineNMF(2, method=vanishing, random_state=0).partial_fit(X)
    np.testing.assert_array_equal(model.components_, model.partial_fit(X).components_)  # steps of length 0
    with np.errstate(all="ignore"), pytest.raises(DataError, match="infinite or NaN"):
        OnlineNMF(2, method=growing, random_state=0).fit(X)


def test_the_history_of_a_long_run_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "LONG_HISTORY", 50)
    model = OnlineNMF(2, batch_size=1, random_state=0, max_passes=10).fit(X)
    samples = model.history_["samples"]
    assert len(samples) <= 50
    assert (samples[0], samples[-1]) == (1, 900)
    assert (np.diff(samples) > 0).all()
    assert (np.diff(model.history_["seconds"]) >= 0).all()


def test_a_history_read_from_a_file_continues_as_the_one_that_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "LONG_HISTORY", 50)
    monkeypatch.setattr(learned, "RECENT", 8)
    through = read = learned.History()
    for n in range(1, 150):
        through, read = through.after(n, 0.5, 1.0 / n), learned.History(read.entries).after(n, 0.5, 1.0 / n)
        assert through.entries == read.entries
        assert through.last == read.last == read.entries[-1]


# The command line

FIT = ["-k", "3", "--divergence", "kl", "--method", "surrogate", "--batch-size", "20", "--passes", "8", "--seed", "4"]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """``onmf`` in this process: its exit status and its words on stderr; what it changes in the process is undone."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("COLUMNS", "500")
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["onmf", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), capsys.readouterr().err

    yield run
    signal.signal(signal.SIGTERM, handler)


def started(*arguments: object, **pipes: Any) -> subprocess.Popen[str]:
    """``onmf`` in a process of its own, which can be killed."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE} | pipes
    return processes.start("-m", "onmf", *arguments, text=True, **pipes)


def last_written(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # between the two renames
        return path.stat().st_mtime_ns
    return 0


def wait_for_another(run: Path, process: subprocess.Popen[str]) -> None:
    """Until the process has written the file anew."""
    before = max(last_written(run), last_written(run.with_name("run.previous")))
    deadline = time.monotonic() + 60
    while last_written(run) <= before:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_run_that_is_killed_and_interrupted_ends_with_the_same_bits(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    rng = np.random.default_rng(0)
    lines = [",".join(map(str, row)) for row in rng.gamma(2.0, 1.0, (1500, 10)).round(3)]
    lines[700] = "not,numbers"
    (tmp_path / "x.csv").write_text("\n".join(lines))
    run = tmp_path / "run"
    fit = ["fit", tmp_path / "x.csv", *FIT, "--shuffle-buffer", "90", "--on-error", "skip"]  # and read ahead
    again = [*fit, "--checkpoint", run, "--resume", "--out", tmp_path / "out"]
    seen = [0]
    for number in (signal.SIGKILL, signal.SIGINT):
        with started(*again, "--every", "0s") as process:
            wait_for_another(run, process)
            time.sleep(rng.uniform(0, 0.15))
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        seen.append(Checkpoint(run).read()[1].history.samples)
        assert seen[-1] > seen[-2]
    assert process.returncode == 130
    words = f"Interrupted after {seen[-1]} samples; the same command with --resume continues from {run}"
    assert words in errors.replace("\n", " ")
    status, errors = command(*again)
    assert status == 0, errors
    assert f"Resuming from {run}" in errors.replace("\n", " ")
    assert command(*fit, "--out", tmp_path / "whole")[0] == 0
    require_same_learning(onmf.load(tmp_path / "out"), onmf.load(tmp_path / "whole"))


def test_texts_come_from_standard_input_and_a_silent_pipe_can_be_interrupted(tmp_path: Path) -> None:
    fit = ["fit", "-", "-k", "2", "--seed", "0", "--batch-size", "20", "--out", tmp_path / "out"]
    run = tmp_path / "run"
    with started(*fit, "--checkpoint", run, "--every", "0s", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write("the cat sat on the mat\ndogs chase cats\n" * 300)
        process.stdin.flush()
        wait_for_another(run, process)
        time.sleep(0.5)  # now it waits
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert f"the same command with --resume continues from {run}" in errors.replace("\n", " ")
    assert onmf.load(tmp_path / "out").n_samples_seen_ >= 20
    with started(*fit, stdin=subprocess.PIPE) as process:
        _, errors = process.communicate("the cat sat on the mat\ndogs chase cats\na theorem has a proof\n" * 20)
    assert process.returncode == 0, errors
    assert onmf.load(tmp_path / "out").n_samples_seen_ == 60


def test_what_cannot_be_resumed_says_so(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> None:
    np.save(tmp_path / "x.npy", X)
    OnlineNMF(3, random_state=4).fit(X, checkpoint=tmp_path / "run")
    base = ["fit", tmp_path / "x.npy", *FIT, "--out", tmp_path / "out"]
    for arguments, words in (
        ([*base, "--resume"], "name it with --checkpoint FILE"),
        ([*base, "--checkpoint", tmp_path / "new", "--every", "soon"], "write a number and ms, s, m or h"),
        (
            [
                "fit",
                "-",
                "--out",
                tmp_path / "out",
                "--checkpoint",
                tmp_path / "new",
                "--resume",
                "--shuffle-buffer",
                9,
            ],
            "--shuffle-buffer mixes the lines of a pipe",
        ),
        ([*base, "--forget-removed"], "--forget-removed is about the files of the run that --resume continues"),
        ([*base, "--checkpoint", tmp_path / "absent" / "run"], "there is no folder"),
        ([*base, "--checkpoint", tmp_path / "run"], "holds an earlier run"),
        (
            [*base, "--checkpoint", tmp_path / "run", "--resume"],
            "batch_size None, not 20, max_passes 1, not 8)",
        ),
        ([*base, "--checkpoint", tmp_path / "x.npy"], "is an input; give --checkpoint another name"),
        (["fit", f"npy:{tmp_path / 'x.npy'}", "--out", tmp_path / "x.npy"], "is an input"),
    ):
        status, errors = command(*arguments)
        assert status == 2
        assert words in errors.replace("\n", " "), errors
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


def test_an_error_midway_leaves_a_last_checkpoint_to_go_on_from(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "x.csv").write_text("1,2,3\n" * 500 + "1,x,3\n")
    fit = ["fit", tmp_path / "x.csv", "-k", "2", "--batch-size", "100", "--out", tmp_path / "out", "--seed", "0"]
    fit += ["--checkpoint", tmp_path / "run", "--no-shuffle"]
    status, errors = command(*fit)
    assert status == 2
    assert "'x' is not a number at row 500" in errors
    assert "what was learnt before the error is in" in errors
    assert onmf.load(tmp_path / "run").n_samples_seen_ == 500
    (tmp_path / "x.csv").write_text("1,2,3\n" * 501)
    assert command(*fit, "--resume")[0] == 0
    assert onmf.load(tmp_path / "out").n_samples_seen_ == 501


def test_a_matrix_of_mahalanobis_is_recognised_on_resumption(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "A.npy", np.eye(8))
    fit = ["fit", tmp_path / "x.npy", "-k", "2", "-d", f"mahalanobis:{tmp_path / 'A.npy'}", "--seed", "0"]
    fit += ["--out", tmp_path / "out", "--checkpoint", tmp_path / "run", "--resume"]
    for _ in range(2):
        assert command(*fit)[0] == 0
    np.save(tmp_path / "A.npy", 2 * np.eye(8))
    assert "was begun with other settings (divergence)" in command(*fit)[1].replace("\n", " ")
