"""What was found by those who tried to break it: odd input is read, or refused in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import typer

from onmf import DataError, OnlineNMF
from onmf.cli import terminal
from onmf.cli.progress import watched
from onmf.data import Batches, SourceError, open_source
from onmf.data.base import reading
from onmf.persistence.checkpoint import lock_file
from onmf.persistence.file import ModelFileError

X = np.random.default_rng(0).random((40, 6)) * (np.random.default_rng(1).random((40, 6)) > 0.3)
FORMATS = ["csr", "csc", "bsr", "coo", "dia", "lil", "dok"]


def lock_of(path: Path) -> Path:
    with lock_file(path):
        (lock,) = path.parent.glob(".onmf-*.lock")
    return lock


def a_link(place: Path) -> None:
    place.symlink_to(place.with_name("precious"))


def a_second_name(place: Path) -> None:
    place.hardlink_to(place.with_name("precious"))


def somebodys_file(place: Path) -> None:
    place.write_text("somebody has kept something under this name")


@pytest.mark.parametrize("put", [a_link, a_second_name, somebodys_file, os.mkfifo, Path.mkdir])
def test_what_lies_where_a_lock_belongs_is_refused_untouched(tmp_path: Path, put: Callable[[Path], Any]) -> None:
    place = lock_of(tmp_path / "model")
    (tmp_path / "precious").write_text("years of work")
    put(place)
    before = place.read_bytes() if place.is_file() else b""
    with pytest.raises(ModelFileError, match=r"is in the way.*remove it"), lock_file(tmp_path / "model"):
        pass
    assert (tmp_path / "precious").read_text() == "years of work"
    assert not before or place.read_bytes() == before


def damaged(kind: str) -> Any:
    matrix = getattr(sp, f"{kind.split()[0]}_matrix")(X)
    match kind:
        case "lil with fewer rows than lists":
            matrix._shape = (3, 6)
        case "lil with a short list":
            matrix.data[3] = matrix.data[3][:1]
        case "lil with an index beyond":
            matrix.rows[3][-1] = 99
        case "lil with a broken index":
            matrix.rows[3][-1] = 1.5
        case "dok with a key beyond":
            matrix._dict[(3, 99)] = 1.0
        case "dok with half a key":
            matrix._dict[(3,)] = 1.0
        case "dia with two diagonals":
            matrix.data = matrix.data[:2]
        case "dia with one diagonal twice":
            matrix.offsets[:] = 0
        case "csr with a list":
            matrix.indptr = list(matrix.indptr)
        case "csr with nothing":
            matrix.indptr = None
        case "coo with floats":
            matrix.coords = (matrix.row.astype(float), matrix.col)
        case "bsr with blocks that do not fit":
            matrix.data = np.ones((len(matrix.indices), 7, 5))
    return matrix


DAMAGES = [
    "lil with fewer rows than lists",
    "lil with a short list",
    "lil with an index beyond",
    "lil with a broken index",
    "dok with a key beyond",
    "dok with half a key",
    "dia with two diagonals",
    "dia with one diagonal twice",
    "csr with a list",
    "csr with nothing",
    "coo with floats",
    "bsr with blocks that do not fit",
]


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_sparse_matrices_of_all_formats_are_refused_or_skipped(kind: str) -> None:
    with pytest.raises(DataError, match="The sparse matrix is damaged"):
        OnlineNMF(2).fit(damaged(kind))
    model = OnlineNMF(2, on_error="skip", batch_size=40).fit(Batches([X, damaged(kind), X]))
    assert (model.n_samples_seen_, model.n_skipped_) == (80, 1)


def odd(kind: str, dtype: Any) -> Any:
    matrix = getattr(sp, f"{kind}_matrix")(X)
    matrix.data = matrix.data.astype(dtype)
    return matrix


@pytest.mark.parametrize("dtype", [">f8", np.float16])
@pytest.mark.parametrize("kind", FORMATS[:5])
def test_types_that_scipy_does_not_compute_with_are_learnt_from(kind: str, dtype: Any) -> None:
    sound = sp.csr_matrix(X.astype(dtype).astype(float))
    for wrapped in (lambda matrix: matrix, lambda matrix: Batches([matrix])):
        model, expected = (OnlineNMF(2, random_state=0).fit(wrapped(each)) for each in (odd(kind, dtype), sound))
        np.testing.assert_allclose(model.components_, expected.components_)


@pytest.mark.parametrize("kind", FORMATS[:3])
def test_indices_of_two_types_are_sound(kind: str) -> None:
    matrix = getattr(sp, f"{kind}_matrix")(X)
    matrix.indptr = matrix.indptr.astype(np.int64)
    model = OnlineNMF(2).fit(Batches([X, matrix, X]))
    assert model.n_samples_seen_ == 120


def test_npz_in_half_precision_is_read(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "half.npz", odd("csr", np.float16))
    assert OnlineNMF(2).fit(open_source(tmp_path / "half.npz")).n_samples_seen_ == 40


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, before the refusal
@pytest.mark.parametrize("init", ["kmeans++", "nndsvda", "samples"])
@pytest.mark.parametrize("divergence", ["is", "alpha:-2", "kl"])
def test_numbers_that_no_start_can_be_made_of_are_a_fault_of_their_batch(divergence: str, init: str) -> None:
    huge = np.full((8, 6), 1.7e308)
    model = OnlineNMF(2, divergence=divergence, init=init, scale="none", on_error="skip", batch_size=8)
    with pytest.raises(DataError, match=r"No batch could be learnt from.*rescale or clip them"):
        model.fit(huge)
    model.fit(Batches([huge, X + 0.1]))
    assert (model.n_samples_seen_, model.n_skipped_) == (40, 1)


def test_an_initial_dictionary_that_does_not_fit_is_no_fault_of_the_batch() -> None:
    with pytest.raises(ValueError, match="the initial dictionary must have shape") as caught:
        OnlineNMF(2, init=np.ones((2, 5)), on_error="skip").fit(X)
    assert not isinstance(caught.value, DataError)


def test_hdf5_that_was_never_finished_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("some", (40, 6), dtype="f8", chunks=(10, 6))[:20] = X[:20]
        file.create_dataset("none", (40, 6), dtype="f8")
        file.create_dataset("all", data=X, chunks=(7, 4))
    for name in ("some", "none", "all"):
        open_source(f"{tmp_path / 'x.h5'}?name={name}")
    some, none = (record.getMessage() for record in caplog.records)
    assert "(some): 2 of 4 chunks are missing and are read as 0.0" in some
    assert "(none): 1 of 1 chunks are missing" in none
    assert some.endswith("it was never finished: write it again.")


def test_hdf5_made_of_other_files_needs_all_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    h5py = pytest.importorskip("h5py")
    layout = h5py.VirtualLayout((40, 6), dtype="f8")
    for part, rows in (("a", slice(20)), ("b", slice(20, 40))):
        layout[rows] = h5py.VirtualSource(f"{part}.h5", "X", (20, 6))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_virtual_dataset("all", layout)
    for part, name in (("a", "X"), ("b", "other")):
        with h5py.File(tmp_path / f"{part}.h5", "w") as file:
            file[name] = X[:20]
    with pytest.raises(SourceError, match=r"1 of 2 are not there, the first b.h5 \(X\); copy them"):
        open_source(f"{tmp_path / 'x.h5'}?links=follow")
    (tmp_path / "a.h5").unlink()
    with pytest.raises(SourceError, match=r"2 of 2 are not there, the first a.h5 \(X\); copy them"):
        open_source(f"{tmp_path / 'x.h5'}?links=follow")
    for part in "ab":
        with h5py.File(tmp_path / f"{part}.h5", "w") as file:
            file["X"] = X[:20]
    assert OnlineNMF(2).fit(open_source(f"{tmp_path / 'x.h5'}?links=follow")).n_samples_seen_ == 40
    assert not caplog.records


OPTIONS = {
    "columns=\n": "columns must be comma-separated names, on one line, got '\\n'",
    "columns=a\n,b": "columns must be comma-separated names, on one line",
    "columns=a&columns=b": "the option columns is given twice; write it once",
}


@pytest.mark.parametrize("option", OPTIONS)
def test_odd_options_are_refused_in_one_sentence(tmp_path: Path, option: str) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match=re.escape(OPTIONS[option])):
        open_source(f"{tmp_path / 't.csv'}?{option}")


@pytest.mark.parametrize("text", ["", "csv:"])
def test_no_name_is_not_a_directory(text: str) -> None:
    with pytest.raises(SourceError, match="names no file; give a file"):
        open_source(text)


def test_rows_are_compared_with_the_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(SourceError, match="row 0 has 3 values, the header has 2"):
        list(open_source(tmp_path / "t.csv").batches(10))


def test_a_log_in_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        terminal.errors.capture() as captured,
        pytest.raises(typer.Exit),
        watched("never", tmp_path / "pipe", None),
    ):
        pass
    assert "is a pipe that nobody reads; start its reader first." in " ".join(captured.get().split())


def h5ad(path: Path, **changed: Any) -> Path:
    h5py = pytest.importorskip("h5py")
    matrix = sp.csr_matrix(X)
    parts = {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data, "shape": [40, 6]} | changed
    with h5py.File(path, "w") as file:
        file["var/_index"] = [f"gene{number}" for number in range(6)]
        file["var"].attrs["_index"] = "_index"
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", parts.pop("shape")
        for name, part in parts.items():
            group[name] = part
    return path


def test_positions_in_h5ad_are_whole_numbers(tmp_path: Path) -> None:
    matrix = sp.csr_matrix(X)
    assert OnlineNMF(2).fit(open_source(h5ad(tmp_path / "sound.h5ad"))).n_samples_seen_ == 40
    odd_parts = {"indptr": matrix.indptr + 0.0, "indices": matrix.indices + 0.0, "shape": [40.5, 6.0]}
    for name, part in odd_parts.items():
        with pytest.raises(SourceError, match=r"is damaged.*whole numbers"):
            open_source(h5ad(tmp_path / f"{name}.h5ad", **{name: part}))


def test_memory_that_runs_out_is_told_in_one_sentence_and_kept_as_the_cause() -> None:
    what = "it needs more memory than there is; perhaps it is damaged"
    with pytest.raises(SourceError, match=what) as caught, reading("x", "as y"):
        raise MemoryError
    assert isinstance(caught.value.__cause__, MemoryError)


def test_a_text_column_in_a_later_file_is_found_when_opening(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": [1, 2]}), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": ["x", "y"]}), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"2.parquet: the column 'b' is of type string; .index=b takes"):
        open_source(f"parquet:{tmp_path}")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": pa.nulls(2)}), tmp_path / "2.parquet")
    model = OnlineNMF(1, on_error="skip", batch_size=2).fit(open_source(f"parquet:{tmp_path}"))  # gaps: samples' faults
    assert model.n_samples_seen_ == 2


def test_npz_of_three_dimensions_gets_no_advice_about_pickles(tmp_path: Path) -> None:
    matrix = sp.csr_matrix(X)
    parts = {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data}
    np.savez(tmp_path / "x.npz", format=b"csr", shape=[40, 6, 1], **parts)
    with pytest.raises(SourceError, match="is damaged: its shape is 3 numbers, not two"):
        open_source(tmp_path / "x.npz")
    np.savez(tmp_path / "dense.npz", X)
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path / "dense.npz")
    assert "pickle" not in str(caught.value)
