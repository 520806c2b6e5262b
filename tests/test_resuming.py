"""A run that goes on: without reading everything again, in folders that grow, and with data that are new to a model."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import soundfile
import zarr
from PIL import Image

import onmf
from onmf import Checkpoint, OnlineNMF, Sets
from onmf.data import Batches, Numbered, Rows, Source, SourceError, open_source, prefetch, rebatch, scale, shuffle
from onmf.learner.resume import digest
from onmf.methods import Surrogate
from onmf.methods.base import Growing
from onmf.persistence import file as model_file
from onmf.persistence.file import ModelFileError
from onmf.samples import Samples

from .conftest import require_same_learning, spread
from .test_checkpoints import CrashError, command, crashing, cut_short, resumed

Command = Callable[..., tuple[int, str]]
_ = command  # a fixture
N = 1000
X = np.random.default_rng(0).gamma(2.0, 1.0, (N, 3)) @ np.random.default_rng(1).random((3, 6)) + 0.01
SPARSE = scipy.sparse.csr_matrix(X * (np.quantile(X, 0.6, axis=1, keepdims=True) < X))
FIXED: dict[str, Any] = {"n_components": 2, "random_state": 0, "batch_size": 40}
GROWING: dict[str, Any] = {"n_components": 2, "random_state": 0}


class Counted(Source):
    """Another source, and the numbers of the rows that it was made to read."""

    def __init__(self, source: Source, read: list[int] | None = None) -> None:
        self.source, self.read = source, [] if read is None else read
        for fact in ("n_features", "n_samples", "any_order", "feature_names", "seeks", "files"):
            setattr(self, fact, getattr(source, fact))

    def batches(self, *how: Any) -> Numbered:
        for rows, batch in self.source.batches(*how):
            self.read += rows.tolist()
            yield rows, batch

    def of_files(self, names: Sequence[str]) -> Source:
        return Counted(self.source.of_files(names), self.read)


def as_npy(folder: Path) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def as_parquet(folder: Path) -> Path:
    pd.DataFrame(X, columns=list("abcdef")).to_parquet(folder / "x.parquet", row_group_size=70)
    return folder / "x.parquet"


def as_folder(folder: Path) -> str:
    (folder / "parts").mkdir()
    for number, part in enumerate(np.array_split(X, [130, 131, 600])):
        pd.DataFrame(part, columns=list("abcdef")).to_parquet(folder / "parts" / f"{number}.parquet", row_group_size=70)
    return f"parquet:{folder / 'parts'}"


def as_feather(folder: Path) -> Path:
    pd.DataFrame(X, columns=list("abcdef")).to_feather(folder / "x.feather", chunksize=70)
    return folder / "x.feather"


def as_zarr(folder: Path) -> Path:
    zarr.save_array(str(folder / "x.zarr"), X)
    return folder / "x.zarr"


def as_hdf5(folder: Path) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = X
    return folder / "x.h5"


def as_h5ad(folder: Path) -> Path:
    anndata.AnnData(SPARSE).write_h5ad(folder / "x.h5ad")
    return folder / "x.h5ad"


STORED: list[Callable[[Path], Any]] = [as_npy, as_parquet, as_folder, as_feather, as_zarr, as_hdf5, as_h5ad]


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that grow within a thousand samples."""
    monkeypatch.setattr(Surrogate, "growing", Growing(30, 0.3, 450))


# Without reading everything again


def test_a_run_that_began_after_zeros_resumes_bit_for_bit(tmp_path: Path) -> None:
    data, settings = np.vstack([np.zeros((90, 6)), X[:400]]), FIXED | {"max_passes": 2, "shuffle": False}
    whole = OnlineNMF(**settings).fit(data)
    for batches in (1, 9, 12):
        run = tmp_path / str(batches)
        cut_short(data, run, batches, **settings)
        require_same_learning(resumed(data, run, **settings), whole)


@pytest.mark.parametrize(("stored", "settings"), spread(STORED, [FIXED, GROWING], 2))
def test_the_time_to_resume_does_not_depend_on_how_far_the_run_was(
    stored: Callable[[Path], Any], settings: dict[str, Any], tmp_path: Path, grown: None
) -> None:
    """The last learnt batch is read again, and what lies with it in one block; the end has the same bits."""
    name = stored(tmp_path)
    sizes: list[int] = []
    whole = OnlineNMF(**settings, callbacks=[lambda told: sizes.append(len(told.H))]).fit(open_source(name))
    block = settings.get("batch_size", 200)
    for batches in (1, len(sizes) // 2, len(sizes)):
        run = tmp_path / f"run{batches}"
        cut_short(open_source(name), run, batches, **settings)
        source = Counted(open_source(name))
        require_same_learning(resumed(prefetch(source), run, **settings), whole)
        assert len(source.read) <= N - sum(sizes[:batches]) + sizes[batches - 1] + block


@pytest.mark.parametrize("data", [X, SPARSE], ids=["dense", "sparse"])
def test_shuffled_passes_with_bad_rows_go_on_from_the_last_batch_with_the_same_bits(
    data: Any, tmp_path: Path, grown: None
) -> None:
    data = data.copy()
    np.ravel(data.data if scipy.sparse.issparse(data) else data)[[700, 705, 1600]] = np.nan
    settings = GROWING | {"max_passes": 2, "on_error": "skip", "method": "surrogate"}
    told: list[int] = []
    whole = OnlineNMF(**settings, callbacks=[lambda progress: told.append(len(progress.H))]).fit(Rows(data))
    assert whole.n_skipped_ > 0
    for batches in range(1, len(told) + 1, 2):
        run = tmp_path / f"run{batches}"
        cut_short(Rows(data), run, batches, **settings)
        require_same_learning(resumed(Rows(data), run, **settings), whole)


def test_batches_limited_by_memory_are_cut_alike_wherever_reading_begins(
    tmp_path: Path, grown: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a batch becomes depends on how dense the block is that it begins in."""
    monkeypatch.setattr(sys.modules["onmf.learner.batching"], "MOST_BYTES", 18_000)
    dense = np.arange(3 * N) // 170 % 2 == 0
    data = scipy.sparse.csr_matrix(np.tile(X, (3, 1)) * (dense[:, None] | (np.arange(6) < 4)))
    settings = GROWING | {"shuffle": False, "method": "surrogate"}
    told: list[int] = []
    whole = OnlineNMF(**settings, callbacks=[lambda progress: told.append(len(progress.H))]).fit(data)
    assert len(set(told)) > 3
    for batches in range(1, len(told) + 1):
        run = tmp_path / f"run{batches}"
        cut_short(data, run, batches, **settings)
        require_same_learning(resumed(data, run, **settings), whole)


def test_sources_that_leave_out_rows_themselves_are_read_again(tmp_path: Path) -> None:
    """Their places in the pass are not known any more; pictures can seek until one of them is broken."""
    rng = np.random.default_rng(0)
    for number in range(30):
        Image.fromarray(rng.integers(1, 255, (4, 4), dtype=np.uint8)).save(tmp_path / f"{number:02}.png")
    (tmp_path / "13.png").write_bytes(b"broken")
    settings = {"n_components": 2, "batch_size": 5, "random_state": 0, "on_error": "skip", "max_passes": 2}
    whole = OnlineNMF(**settings).fit(open_source(f"images:{tmp_path}"))
    assert whole.n_skipped_ == 2
    for batches in range(1, 13):
        run = tmp_path / f"run{batches}"
        cut_short(open_source(f"images:{tmp_path}"), run, batches, **settings)
        require_same_learning(resumed(open_source(f"images:{tmp_path}"), run, **settings), whole)


@pytest.mark.parametrize(
    "tool", [lambda s: shuffle(s, 50), lambda s: rebatch(s, 30), lambda s: scale(prefetch(s), 2.0)]
)
def test_tools_pass_on_whether_a_source_seeks(tool: Callable[[Source], Source], tmp_path: Path) -> None:
    whole = OnlineNMF(**FIXED).fit(tool(open_source(as_parquet(tmp_path))))
    cut_short(tool(open_source(tmp_path / "x.parquet")), tmp_path / "run", 9, **FIXED)
    require_same_learning(resumed(tool(open_source(tmp_path / "x.parquet")), tmp_path / "run", **FIXED), whole)


def test_every_row_is_found_from_any_row_onward(tmp_path: Path) -> None:
    for stored in STORED:
        source = open_source(stored(tmp_path))
        for first in (0, 20, 140, 600, 980):
            rows, batches = zip(*source.batches(20, None, None, first), strict=True)
            np.testing.assert_array_equal(np.concatenate(rows), np.arange(first, N))
            found = scipy.sparse.vstack(batches).toarray() if scipy.sparse.issparse(batches[0]) else np.vstack(batches)
            np.testing.assert_array_equal(found, (SPARSE.toarray() if stored is as_h5ad else X)[first:])
    with pytest.raises(SourceError, match="can be read from its beginning only"):
        Batches([X]).batches(20, None, None, 20)


# Changed data


@pytest.mark.parametrize("sparse", [False, True])
def test_every_entry_of_a_batch_counts(sparse: bool) -> None:
    batch = SPARSE[:30] if sparse else X[:30]
    entries = batch.data if sparse else batch.reshape(-1)
    before = digest(Samples(batch))
    assert digest(Samples(batch.copy())) == before
    for place in (0, 50, entries.size - 1):
        changed = batch.copy()
        np.ravel(changed.data if sparse else changed)[place] += 1e-9
        assert digest(Samples(changed)) != before
    assert digest(Samples(batch.astype(np.float32))) != before
    assert len({digest(Samples(batch[:0])), digest(Samples(batch[:1])), digest(Samples(batch))}) == 3
    if not sparse:
        assert digest(Samples(np.asfortranarray(batch))) == before


@pytest.mark.parametrize("seeks", [True, False])
def test_rows_changed_inside_a_batch_are_noticed(seeks: bool, tmp_path: Path) -> None:
    """In the last batch at once; in an earlier one where the pass is read again, which ``verify`` makes it."""

    def source(data: np.ndarray) -> Any:
        return Rows(data) if seeks else Batches([data])

    settings = FIXED | {"shuffle": False}
    cut_short(source(X), tmp_path / "run", 10, **settings)
    content = (tmp_path / "run").read_bytes()
    late, early = X.copy(), X.copy()
    late[390, 3] += 1e-9
    early[90, 3] += 1e-9
    with pytest.raises(SourceError, match="the data are not those of the checkpoint"):
        resumed(source(late), tmp_path / "run", **settings)
    with pytest.raises(SourceError, match="the first 10 batches of pass 1 differ"):
        resumed(source(early), Checkpoint(tmp_path / "run", verify=True), **settings)
    assert (tmp_path / "run").read_bytes() == content
    if seeks:
        resumed(source(early), tmp_path / "run", **settings)  # documented: only the last batch is read
    else:
        with pytest.raises(SourceError, match="the data are not those of the checkpoint"):
            resumed(source(early), tmp_path / "run", **settings)


def test_verify_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = OnlineNMF(**FIXED).fit(X)
    cut_short(X, tmp_path / "run", 10, **FIXED)
    require_same_learning(resumed(X, Checkpoint(tmp_path / "run", verify=True), **FIXED), whole)


# Folders that grow


def write_part(folder: Path, name: str, rows: slice, kind: str) -> None:
    if kind == "parquet":
        pd.DataFrame(X[rows], columns=list("abcdef")).to_parquet(folder / f"{name}.parquet")
        return
    for number, row in enumerate(X[rows]):
        file = folder / f"{name}{number:03}"
        if kind == "images":
            pixels = np.clip(row * 20, 1, 255).astype(np.uint8).reshape(2, 3)
            Image.fromarray(pixels).save(file.with_suffix(".png"))
        else:
            file.with_suffix(".txt").write_text(" ".join(f"w{np.argsort(row)[k]}" for k in range(3)))


def opened(folder: Path, kind: str) -> Source:
    return open_source(f"text:{folder}?hashed=16" if kind == "text" else f"{kind}:{folder}")


@pytest.mark.parametrize("kind", ["parquet", "images", "text"])
def test_a_finished_run_learns_exactly_the_files_that_are_new(kind: str, tmp_path: Path) -> None:
    folder, run = tmp_path / "data", tmp_path / "run"
    folder.mkdir()
    settings = {"n_components": 2, "batch_size": 8, "random_state": 0}
    write_part(folder, "m", slice(0, 30), kind)
    first = OnlineNMF(**settings).fit(opened(folder, kind), checkpoint=run)
    write_part(folder, "a", slice(30, 55), kind)  # sorts before what is known
    told: list[int] = []
    grown_model = resumed(opened(folder, kind), run, **settings, callbacks=[lambda p: told.append(p.samples)])
    assert told == [38, 46, 54, 55]
    if kind != "images":  # the same as going on with the new ones alone, where they are not shuffled
        only = tmp_path / "only"
        only.mkdir()
        write_part(only, "a", slice(30, 55), kind)
        again = OnlineNMF(**settings).fit(opened(only, kind), resume_from=first)
        np.testing.assert_array_equal(grown_model.components_, again.components_)
    require_same_learning(resumed(opened(folder, kind), run, **settings), grown_model)  # nothing is new


@pytest.mark.parametrize("kind", ["parquet", "images", "text"])
def test_a_run_cut_anywhere_in_a_folder_that_grows_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    """In the files that it knew, in the new ones, and in the pass after, which has them all."""
    folder = tmp_path / "data"
    folder.mkdir()
    settings = {"n_components": 2, "batch_size": 8, "random_state": 0, "max_passes": 3}
    write_part(folder, "m", slice(0, 20), kind)
    begun = tmp_path / "begun"
    cut_short(opened(folder, kind), begun, 5, **settings)  # in its second pass
    write_part(folder, "a", slice(30, 45), kind)
    told: list[int] = []

    def copy_of_begun(name: str) -> Path:
        shutil.copy(begun, tmp_path / name)
        return tmp_path / name

    whole = resumed(
        opened(folder, kind), copy_of_begun("whole"), **settings, callbacks=[lambda p: told.append(p.samples)]
    )
    assert told[-1] == 20 + 35 + 35
    for batches in range(1, len(told)):
        run = copy_of_begun(f"run{batches}")
        with pytest.raises(CrashError):
            resumed(opened(folder, kind), run, **settings, callbacks=[crashing(batches)])
        require_same_learning(resumed(prefetch(opened(folder, kind)), run, **settings), whole)


def test_recordings_and_batches_that_grow_may_come_in_a_folder_that_grows(tmp_path: Path, grown: None) -> None:
    """Several times, with names that sort anywhere."""
    folder, run, other = (tmp_path / name for name in ("data", "run", "other"))
    folder.mkdir()

    def record(name: str, frames: int) -> Source:
        noise = np.random.default_rng(frames).uniform(-0.5, 0.5, 8 * (frames + 1))
        soundfile.write(folder / f"{name}.wav", noise, 8000)
        return open_source(f"audio:{folder}?window=16&hop=8")

    seen = OnlineNMF(**GROWING).fit(record("m", 700), checkpoint=run).n_samples_seen_
    for name, frames in (("z", 450), ("a", 500)):
        source = record(name, frames)
        shutil.copy(run, other)
        with pytest.raises(CrashError):
            resumed(source, run, **GROWING, callbacks=[crashing(2)])
        whole = resumed(source, run, **GROWING)
        require_same_learning(whole, resumed(source, other, **GROWING))
        seen += frames
        assert whole.n_samples_seen_ == seen


@pytest.mark.parametrize("kind", ["parquet", "images", "text"])
def test_a_file_that_vanished_or_changed_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    folder, run = tmp_path / "data", tmp_path / "run"
    folder.mkdir()
    for name, rows in (("m", slice(0, 20)), ("n", slice(20, 40))):
        write_part(folder, name, rows, kind)
    settings = {"n_components": 2, "batch_size": 8, "random_state": 0}
    OnlineNMF(**settings).fit(opened(folder, kind), checkpoint=run)
    content = run.read_bytes()
    moved = shutil.move(folder, tmp_path / "moved")
    require_same_learning(resumed(opened(moved, kind), run, **settings), onmf.load(run))  # names, not places, count
    victim = max(moved.iterdir())
    whole = victim.read_bytes()
    write_part(moved, victim.stem[:1] if kind == "parquet" else "z", slice(0, 3), kind)
    victim.write_bytes((moved / victim.name).read_bytes() + (b"" if kind == "parquet" else whole[-1:]))
    with pytest.raises(ValueError, match=f"{victim.name} has changed since the checkpoint"):
        resumed(opened(moved, kind), run, **settings)
    victim.unlink()
    with pytest.raises(ValueError, match=f"{victim.name} was among the files of the checkpoint and is gone"):
        resumed(opened(moved, kind), run, **settings)
    with pytest.raises(ValueError, match="was among the files of the checkpoint and is gone"):
        resumed(np.ones((40, onmf.load(run).n_features_in_)), run, **settings)
    assert run.read_bytes() == content


# Data that are new to a model


@pytest.mark.parametrize("kind", ["parquet", "images", "text"])
def test_a_half_written_file_is_left_for_the_next_run_under_skip(kind: str, tmp_path: Path) -> None:
    """Also if the run was cut before its end, and the file is whole when it resumes."""
    folder = tmp_path / "data"
    folder.mkdir()
    settings = {"n_components": 2, "batch_size": 8, "random_state": 0, "on_error": "skip"}
    write_part(folder, "m", slice(0, 30), kind)
    write_part(folder, "a", slice(30, 31), kind)
    late = min(folder.iterdir())
    content = late.read_bytes()
    late.write_bytes(content[: len(content) // 2] + b"\xff" * (kind == "text"))
    first = OnlineNMF(**settings).fit(opened(folder, kind), checkpoint=tmp_path / "run")
    cut_short(opened(folder, kind), tmp_path / "cut", 3, **settings)
    assert (first.n_samples_seen_, first.n_skipped_) == (30, 1)
    again = resumed(opened(folder, kind), tmp_path / "run", **settings)  # it has not changed: it is not told again
    assert (again.n_samples_seen_, again.n_skipped_) == (30, 1)
    late.write_bytes(content)
    for name in ("run", "cut"):
        told: list[int] = []
        source, callbacks = opened(folder, kind), [lambda p, told=told: told.append(p.new)]
        model = resumed(source, tmp_path / name, **settings, callbacks=callbacks)
        assert (model.n_samples_seen_, model.n_skipped_, told[-1]) == (31, 1, 1)
    assert told == [6, 1] if kind == "images" else sum(told) == 7
    again = resumed(opened(folder, kind), tmp_path / "run", **settings)
    assert again.n_samples_seen_ == 31


@pytest.mark.parametrize("kind", ["parquet", "images", "text"])
def test_files_that_retention_has_removed_are_forgotten_on_request(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    settings = {"n_components": 2, "batch_size": 8, "random_state": 0}
    keep = Checkpoint(tmp_path / "run", forget_removed=True)
    for number, part in enumerate("mzabc"):
        write_part(folder, part, slice(20 * number, 20 * number + 20), kind)
        model = resumed(opened(folder, kind), keep, **settings)
        assert model.n_samples_seen_ == 20 * (number + 1)
        if number:
            gone = min(folder.iterdir())
            gone.unlink()
            with pytest.raises(ValueError, match=f"{gone.name} was .* is gone; put it back, forget it with"):
                resumed(opened(folder, kind), tmp_path / "run", **settings)
    assert len(onmf.load(tmp_path / "run")._learned.position.files) == len(list(folder.iterdir())) + 1
    cut = {"callbacks": [crashing(1)]}
    write_part(folder, "d", slice(100, 120), kind)
    with pytest.raises(CrashError):
        resumed(opened(folder, kind), keep, **settings, **cut)
    new = next(file for file in folder.iterdir() if file.name.startswith("d"))
    content = new.read_bytes()
    new.unlink()  # it belongs to the part that was cut
    with pytest.raises(ValueError, match="is gone"):
        resumed(opened(folder, kind), keep, **settings)
    new.write_bytes(content)
    assert resumed(opened(folder, kind), keep, **settings).n_samples_seen_ == 120
    keep.verify = True
    with pytest.raises(SourceError, match=r"put back what was removed, or resume without|not those of the checkpoint"):
        resumed(opened(folder, kind), keep, **settings)


def test_a_model_goes_on_with_new_data_as_partial_fit_does(tmp_path: Path) -> None:
    settings = FIXED | {"shuffle": False}
    first = OnlineNMF(**settings).fit(X[:500])
    onmf.save(first, tmp_path / "model")
    W = first.components_.copy()
    stepwise = onmf.load(tmp_path / "model")
    for start in range(500, N, 40):
        stepwise.partial_fit(X[start : start + 40])
    for model in (tmp_path / "model", str(tmp_path / "model"), first, onmf.load(tmp_path / "model")):
        onward = OnlineNMF(**settings).fit(X[500:], resume_from=model)
        np.testing.assert_array_equal(onward.components_, stepwise.components_)
        assert onward.n_samples_seen_ == N
    np.testing.assert_array_equal(first.components_, W)
    np.testing.assert_array_equal(first.fit(X[500:], resume_from=first).components_, stepwise.components_)
    onmf.save(first, tmp_path / "onward")
    require_same_learning(onmf.load(tmp_path / "onward"), first)


def test_going_on_with_new_data_can_be_cut_and_resumed(tmp_path: Path) -> None:
    settings = GROWING | {"max_passes": 2}
    first = OnlineNMF(**settings).fit(X[:300])
    told: list[Any] = []
    whole = OnlineNMF(**settings, callbacks=[told.append]).fit(X[300:], resume_from=first)
    assert whole.n_iter_ == 2
    assert told[-1].samples == told[-1].total == 300 + 300 + 1400
    for batches in (1, len(told) // 2, len(told) - 1):
        run = tmp_path / f"run{batches}"
        with pytest.raises(CrashError):
            OnlineNMF(**settings, callbacks=[crashing(batches)]).fit(X[300:], checkpoint=run, resume_from=first)
        again = OnlineNMF(**settings).fit(X[300:], checkpoint=run, resume=True, resume_from=first)
        require_same_learning(again, whole)


def test_what_goes_on_with_nothing_learnt_is_still_a_model(tmp_path: Path) -> None:
    first = OnlineNMF(**FIXED, on_error="skip").fit(X)
    bad = np.full((80, 6), np.nan)
    onward = OnlineNMF(**FIXED, on_error="skip").fit(bad, checkpoint=tmp_path / "run", resume_from=first)
    assert (onward.n_skipped_, onward.n_samples_seen_, onward.n_iter_) == (80, N, 0)
    require_same_learning(onmf.load(tmp_path / "run"), onward)


def test_what_does_not_fit_the_model_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    first = OnlineNMF(**FIXED).fit(pd.DataFrame(X, columns=list("abcdef")))
    learned = first._learned
    for settings, data, words in (
        ({"n_components": 3}, X, "n_components cannot be changed while a model learns"),
        ({"divergence": "is"}, X, "divergence cannot be changed"),
        ({"method": "paper"}, X, "begun with method 'surrogate'"),
        ({"sets": Sets(eps=0.1)}, X, "eps of sets cannot be changed"),
        ({}, X[:, :5], "the input has 5 features, but the model was learnt from 6"),
        ({}, pd.DataFrame(X, columns=list("abcdeg")), "the input has a feature 'g' where the model has 'f'"),
    ):
        with pytest.raises(ValueError, match=words):
            OnlineNMF(**FIXED | settings).fit(data, resume_from=first)
    for nothing in (OnlineNMF(2), 5, learned):
        with pytest.raises(TypeError, match="resume_from takes the file of a model, or a fitted OnlineNMF"):
            OnlineNMF(**FIXED).fit(X, resume_from=nothing)
    assert first._learned is learned


# The command line


@pytest.fixture
def model(tmp_path: Path, command: Command) -> Path:
    np.save(tmp_path / "old.npy", X[:500])
    np.save(tmp_path / "new.npy", X[500:])
    fit = ["fit", tmp_path / "old.npy", "-k", "2", "--batch-size", "40", "--seed", "0", "--out", tmp_path / "model"]
    assert command(*fit)[0] == 0
    return tmp_path / "model"


def test_from_goes_on_with_the_settings_of_the_model(tmp_path: Path, model: Path, command: Command) -> None:
    fit = ["fit", tmp_path / "new.npy", "--from", model, "--out", tmp_path / "out"]
    status, errors = command(*fit)
    assert (status, f"Continuing {model}, which has learnt from 500 samples" in errors) == (0, True)
    onward = OnlineNMF(**FIXED).fit(Rows(X[500:]), resume_from=model)
    require_same_learning(onmf.load(tmp_path / "out"), onward)
    assert command(*fit, "--passes", "2", "--batch-size", "50", "--method", "surrogate")[0] == 0  # these may change
    assert onmf.load(tmp_path / "out").n_samples_seen_ == 1500
    assert command("fit", tmp_path / "new.npy", "--from", model, "--out", model)[0] == 0  # in its place
    require_same_learning(onmf.load(model), onward)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-k", "3"], "n_components cannot be changed while a model learns"),
        (["-d", "is"], "divergence cannot be changed"),
        (["--reservoir", "5"], "reservoir cannot be changed"),
        (["--clip", "0", "1"], "clip cannot be changed"),
        (["--method", "em"], "begun with method 'surrogate' and cannot continue with 'em'"),
        (["--init", "uniform"], "--init begins a dictionary, and the model of --from has one"),
        (["--verify"], "--verify compares the data with those of the run that --resume continues"),
    ],
)
def test_from_refuses_by_name_what_contradicts_the_model(
    options: list[str], words: str, tmp_path: Path, model: Path, command: Command
) -> None:
    status, errors = command("fit", tmp_path / "new.npy", "--from", model, "--out", tmp_path / "out", *options)
    assert (status, words in errors) == (2, True), errors
    assert not (tmp_path / "out").exists()


def test_verify_is_an_option(tmp_path: Path, command: Command) -> None:
    np.save(tmp_path / "x.npy", X)
    fit = ["fit", tmp_path / "x.npy", "-k", "2", "--batch-size", "20", "--seed", "0", "--no-shuffle"]
    fit += ["--checkpoint", tmp_path / "run", "--resume", "--out", tmp_path / "out"]
    assert command(*fit)[0] == 0
    changed = X.copy()
    changed[90, 3] += 1e-9
    np.save(tmp_path / "x.npy", changed)
    assert command(*fit)[0] == 0
    status, errors = command(*fit, "--verify")
    assert (status, "the first 50 batches of pass 1 differ" in errors) == (2, True), errors


@pytest.mark.parametrize("batches", [["--batch-size", "4000"], []], ids=["fixed", "growing"])
def test_verify_of_a_folder_that_had_grown_compares_all_of_its_files(
    batches: list[str], tmp_path: Path, command: Command
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    fit = ["fit", f"parquet:{folder}", "-k", "1", *batches, "--seed", "0", "--out", tmp_path / "out"]
    fit += ["--checkpoint", tmp_path / "run", "--resume"]
    for name in ("old", "new", "newer"):
        values = pd.DataFrame({"a": np.random.default_rng(0).random(40_000) + 1.0})
        values.to_parquet(folder / f"{name}.parquet", compression=None, use_dictionary=False)
        assert command(*fit)[0] == 0

    def change_the_middle(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    assert command(*fit, "--verify")[0] == 0
    for name in ("old", "new", "newer"):
        change_the_middle(folder / f"{name}.parquet")
        assert command(*fit)[0] == 0
        status, said = command(*fit, "--verify")
        assert status == 2
        assert "the data are not those of the checkpoint" in said
        change_the_middle(folder / f"{name}.parquet")
    assert command(*fit, "--verify")[0] == 0


class Pipe(io.RawIOBase):
    """Standard input: some text, and then its end, or Ctrl-C."""

    def __init__(self, content: str | bytes, interrupted: bool = False) -> None:
        self.left, self.interrupted = content.encode() if isinstance(content, str) else content, interrupted

    def readable(self) -> bool:
        return True

    def readinto(self, place: Any) -> int:
        if not self.left and self.interrupted:
            raise KeyboardInterrupt
        n = min(len(place), len(self.left))
        place[:n], self.left = self.left[:n], self.left[n:]
        return n


def test_a_stream_from_standard_input_goes_on_by_from_and_says_so(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(text: str, *options: object, interrupted: bool = False) -> tuple[int, str]:
        pipe = io.TextIOWrapper(io.BufferedReader(Pipe(text, interrupted)))
        monkeypatch.setattr(sys, "stdin", pipe)
        status, errors = command("fit", "-", "--out", tmp_path / "out", *options)
        return status, errors.replace("\n", " ")

    text, run = "the cat sat on the mat\ndogs chase cats\n" * 30, tmp_path / "run"
    begin = ["-k", "2", "--seed", "0", "--batch-size", "20", "--checkpoint", run]
    status, errors = fit(text, *begin, interrupted=True)
    out = tmp_path / "out"
    assert (status, f"the same command with --resume continues from {run}" in errors) == (130, True), errors
    seen = onmf.load(run).n_samples_seen_
    assert onmf.load(out).n_samples_seen_ == seen  # a service that is stopped leaves its model
    status, errors = fit(text, *begin)
    assert (status, "resume it with --resume, or give --checkpoint another name" in errors) == (2, True)
    status, errors = fit(text, "--from", run)
    assert status == 0, errors
    assert onmf.load(out).n_samples_seen_ == seen + 60


def as_piped(kind: str, rows: np.ndarray) -> bytes:
    """Rows as a pipe brings them, and no end."""
    if kind == "csv:-":
        return "".join(",".join(map(str, row)) + "\n" for row in ["abc", *rows.tolist()]).encode()
    if kind.startswith("jsonl:-"):
        return "".join(json.dumps(dict(zip("abc", row, strict=True))) + "\n" for row in rows.tolist()).encode()
    if kind == "text:-":
        return b"the cat sat on the mat\n" * len(rows)
    file = io.BytesIO()
    if kind == "npy:-":
        for some in np.array_split(rows, 5):
            np.save(file, some)
        return file.getvalue()
    pyarrow = pytest.importorskip("pyarrow")
    some = pyarrow.record_batch(list(rows.T), names=list("abc"))
    with pyarrow.ipc.new_stream(file, some.schema) as stream:
        for first in range(0, len(rows), 50):
            stream.write_batch(some.slice(first, 50))
        return file.getvalue()  # before the end is written


@pytest.mark.parametrize("size", [[], ["--batch-size", 64]], ids=["growing", "fixed"])
@pytest.mark.parametrize("kind", ["csv:-", "jsonl:-?features=a,b,c", "text:-", "npy:-", "arrow:-"])
def test_rows_that_wait_for_a_full_batch_are_learnt_when_a_pipe_is_interrupted(
    kind: str, size: list[object], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = as_piped(kind, np.random.default_rng(0).gamma(1.0, 1.0, (150, 3)))
    said = []
    for name, interrupted in (("whole", False), ("stopped", True)):
        pipe = io.TextIOWrapper(io.BufferedReader(Pipe(content, interrupted)))
        monkeypatch.setattr(sys, "stdin", pipe)
        options = ["-k", 2, "--seed", 0, *size, "--checkpoint", tmp_path / f"run-{name}", "--out", tmp_path / name]
        said.append(command("fit", kind, *options))
    assert [status for status, _ in said] == [0, 130], said
    assert "Interrupted after 150 samples; the same command with --resume" in said[1][1].replace("\n", " ")
    for prefix in ("", "run-"):
        require_same_learning(onmf.load(tmp_path / f"{prefix}stopped"), onmf.load(tmp_path / f"{prefix}whole"))


@pytest.mark.parametrize(("good", "learnt"), [(24, 20), (4, 0)])  # a pipe is read two lines at a time
def test_a_bad_row_that_came_last_does_not_cost_an_interrupted_run_what_was_learnt_before(
    good: int,
    learnt: int,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = as_piped("csv:-", np.random.default_rng(0).gamma(1.0, 1.0, (good, 3))) + b"1,nonsense,3\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(content, interrupted=True))))
    status, errors = command("fit", "csv:-", "-k", 2, "--batch-size", 20, "--out", tmp_path / "out")
    errors = errors.replace("\n", " ")
    assert status == 130, errors
    assert "The last samples were not learnt from: standard input: 'nonsense' is not a number" in caplog.text
    assert (f"Interrupted after {learnt} samples" if learnt else "Interrupted before anything was learnt") in errors
    assert (tmp_path / "out").exists() == bool(learnt)


def test_a_folder_that_grows_is_resumed_on_the_command_line(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_part(folder, "m", slice(0, 30), "parquet")
    fit = ["fit", f"parquet:{folder}", "-k", "2", "--seed", "0", "--batch-size", "8", "--out", tmp_path / "out"]
    fit += ["--checkpoint", tmp_path / "run", "--resume"]
    assert command(*fit)[0] == 0
    write_part(folder, "a", slice(30, 55), "parquet")
    assert command(*fit)[0] == 0
    assert onmf.load(tmp_path / "out").n_samples_seen_ == 55


def test_the_words_of_a_folder_that_grows_stay_those_of_its_beginning(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(12):
        (folder / f"m{number}.txt").write_text("stone river cloud " * (number + 1) + "night")
    fit = ["fit", f"text:{folder}?words=4&tfidf=yes", "-k", "2", "--seed", "0", "--out", tmp_path / "out"]
    fit += ["--checkpoint", tmp_path / "run", "--resume"]
    assert command(*fit)[0] == 0
    before = onmf.load(tmp_path / "out").feature_names_in_.tolist()
    (folder / "a.txt").write_text("piano piano piano piano piano bread " * 50 + "stone")
    status, said = command(*fit)
    assert (status, onmf.load(tmp_path / "out").n_samples_seen_) == (0, 13), said
    assert onmf.load(tmp_path / "out").feature_names_in_.tolist() == before == ["cloud", "night", "river", "stone"]


def test_pictures_that_join_a_folder_take_the_size_of_its_beginning(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    write_part(folder, "m", slice(0, 5), "images")
    fit = ["fit", f"images:{folder}", "-k", "2", "--seed", "0", "--out", tmp_path / "out"]
    fit += ["--checkpoint", tmp_path / "run", "--resume"]
    assert command(*fit)[0] == 0
    before = onmf.load(tmp_path / "out")
    Image.new("L", (33, 44), 7).save(folder / "a.png")  # it comes first
    assert command(*fit)[0] == 0
    after = onmf.load(tmp_path / "out")
    assert (after.n_samples_seen_, after.n_features_in_) == (before.n_samples_seen_ + 1, before.n_features_in_)


@pytest.mark.parametrize("content", [b"", b"3", b'["a"]', b'[["a", "x", 2]]', b'[["a", 1]]', b"\xff", b"[" * 5000])
def test_a_list_of_files_that_makes_no_sense_is_damage(content: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_part(folder, "m", slice(0, 30), "parquet")
    OnlineNMF(**FIXED).fit(opened(folder, "parquet"), checkpoint=tmp_path / "run")
    arrays, facts = model_file.read(tmp_path / "run")
    assert b"m.parquet" in arrays["position.files"].tobytes()
    model_file.write(tmp_path / "run", arrays | {"position.files": np.frombuffer(content, dtype=np.uint8)}, facts)
    with pytest.raises(ModelFileError, match="is damaged"):
        onmf.load(tmp_path / "run")
