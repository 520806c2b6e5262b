"""Damaged and malicious data files: refused in one sentence, before compiled code sees them and without memory."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, OnlineNMF
from onmf.data import (
    Batches,
    Rows,
    Source,
    SourceError,
    h5ad,
    open_source,
    prefetch,
    rebatch,
    repeat,
    scale,
    shuffle,
    take,
)
from onmf.data.base import Numbered, OnBad
from onmf.model.validation import good_rows, require_sound_structure

h5py = pytest.importorskip("h5py")

N, F = 40, 6
X = np.random.default_rng(0).poisson(1.0, (N, F)).astype(float)
X[:, 0] += 1  # no empty row or column


def write_h5ad(path: Path, matrix: Any = None, genes: int = F) -> Path:
    """The parts of an AnnData file that are read, as anndata writes them."""
    with h5py.File(path, "w") as file:
        var = file.create_group("var")
        var.attrs["_index"] = "_index"
        var["_index"] = np.array([f"g{k}" for k in range(genes)], dtype=h5py.string_dtype())
        matrix = scipy.sparse.csr_matrix(X) if matrix is None else matrix
        if not scipy.sparse.issparse(matrix):
            file["X"] = matrix
            return path
        group = file.create_group("X")
        group.attrs["encoding-type"] = f"{matrix.format}_matrix"
        group.attrs["shape"] = matrix.shape
        for name in ("indptr", "indices", "data"):
            group[name] = getattr(matrix, name)
    return path


@pytest.fixture
def without_a_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files that are harmless to their library, no process of their own needs to tell it."""
    monkeypatch.setattr(h5ad, "require_harmless", lambda *_: None)


# Sparse matrices whose structure is broken


def break_indices(value: int) -> Callable[[Any], None]:
    def damage(group: Any) -> None:
        group["indices"][5] = value

    return damage


def break_indptr(place: int, value: int) -> Callable[[Any], None]:
    def damage(group: Any) -> None:
        group["indptr"][place] = value

    return damage


def break_shape(*shape: int) -> Callable[[Any], None]:
    def damage(group: Any) -> None:
        group.attrs["shape"] = shape

    return damage


def shorten(name: str) -> Callable[[Any], None]:
    def damage(group: Any) -> None:
        kept = group[name][:3]
        del group[name]
        group[name] = kept

    return damage


def drop_shape(group: Any) -> None:
    del group.attrs["shape"]


def drop_data(group: Any) -> None:
    del group["data"]


def fold_data(group: Any) -> None:
    del group["data"]
    group["data"] = np.ones((2, 2))


DAMAGE = {
    "an index beyond F": break_indices(F + 1000),
    "a negative index": break_indices(-7),
    "a decreasing indptr": break_indptr(3, 2**20),
    "a huge indptr": break_indptr(-1, 2**30),
    "a negative indptr": break_indptr(4, -5),
    "an indptr that begins late": break_indptr(0, 3),
    "too few columns": break_shape(N, 2),
    "too many rows": break_shape(10**9, F),
    "a negative shape": break_shape(-1, F),
    "three dimensions": break_shape(N, F, 1),
    "no shape": drop_shape,
    "no data": drop_data,
    "data in two dimensions": fold_data,
    "short data": shorten("data"),
    "short indptr": shorten("indptr"),
}


@pytest.mark.usefixtures("without_a_first_look")
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_sparse_h5ad_is_refused_before_compiled_code_sees_it(
    tmp_path: Path, damage: Callable[[Any], None], kind: str
) -> None:
    path = write_h5ad(tmp_path / "x.h5ad", scipy.sparse.csr_matrix(X).asformat(kind))
    with h5py.File(path, "r+") as file:
        damage(file["X"])
    with pytest.raises(SourceError, match=r"damaged|claims") as refused:
        OnlineNMF(2, batch_size=7, random_state=0).fit(open_source(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def broken(kind: str, part: str, place: int, value: int) -> Any:
    matrix = scipy.sparse.csr_matrix(X).asformat(kind)
    array = getattr(matrix, part).copy()
    array[place] = value
    setattr(matrix, part, array)
    return matrix


BROKEN = {
    "csr index": lambda: broken("csr", "indices", 3, F),
    "csr negative": lambda: broken("csr", "indices", 3, -1),
    "csr indptr": lambda: broken("csr", "indptr", 4, 10**6),
    "csr end": lambda: broken("csr", "indptr", -1, 10**6),
    "csc index": lambda: broken("csc", "indices", 3, N),
    "csc indptr": lambda: broken("csc", "indptr", 2, -3),
    "bsr index": lambda: broken("bsr", "indices", 0, 10**6),
    "coo row": lambda: broken("coo", "row", 0, 10**6),
    "coo column": lambda: broken("coo", "col", 0, -1),
}


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN.keys())
def test_no_way_into_the_library_takes_a_broken_sparse_matrix(make: Callable[[], Any]) -> None:
    fitted = OnlineNMF(2, random_state=0).fit(X)
    calls: list[Callable[[Any], Any]] = [
        OnlineNMF(2).fit,
        OnlineNMF(2).partial_fit,
        BatchNMF(2).fit,
        fitted.transform,
        fitted.loss,
        fitted.partial_fit,
        lambda matrix: OnlineNMF(2).fit(Rows(matrix)),
        lambda matrix: OnlineNMF(2).fit(Batches([X, matrix])),
    ]
    for call in calls:
        with pytest.raises((DataError, SourceError), match="The sparse matrix is damaged"):
            call(make())


class Damaged(Source):
    """A user's source whose second batch is broken."""

    n_features = F

    def batches(self, size: int, rng: Any = None, on_bad: OnBad | None = None) -> Numbered:
        for number, matrix in enumerate((scipy.sparse.csr_matrix(X), broken("csr", "indptr", 20, 10**9), X)):
            yield np.arange(N * number, N * (number + 1)), matrix


TOOLS: dict[str, Callable[[Source], Source]] = {
    "none": lambda source: source,
    "shuffle": lambda source: shuffle(source, 5),
    "take": lambda source: take(source, N + N // 2),
    "repeat": lambda source: repeat(source, 1),
    "rebatch": lambda source: rebatch(source, 7),
    "scale": lambda source: scale(source, 2.0),
    "prefetch": prefetch,
}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS.keys())
def test_a_broken_batch_of_a_source_is_refused_or_skipped_as_a_whole(tool: Callable[[Source], Source]) -> None:
    fitted = OnlineNMF(2, random_state=0).fit(X)
    for call in (OnlineNMF(2).fit, lambda source: list(fitted.transform(source))):
        with pytest.raises(SourceError, match="The sparse matrix is damaged"):
            call(tool(Damaged()))
    model = OnlineNMF(2, on_error="skip", random_state=0, batch_size=N, shuffle=False).fit(tool(Damaged()))
    assert model.n_skipped_ == 1
    assert "The sparse matrix is damaged" in model.skipped_[0]
    assert model.n_samples_seen_ == (N + N // 2 if tool is TOOLS["take"] else 2 * N)


def test_no_row_is_cut_out_of_a_broken_matrix() -> None:
    kept, errors = good_rows(broken("csr", "indptr", 20, 10**9), np.arange(N))
    assert kept == []
    assert ["The sparse matrix is damaged" in str(error) for error in errors] == [True]


def test_sound_sparse_matrices_of_every_format_pass_unchanged() -> None:
    for kind in ("csr", "csc", "bsr", "coo", "lil", "dok", "dia"):
        for make in (scipy.sparse.csr_matrix, scipy.sparse.csr_array):
            for content in (X, np.zeros((3, 4)), np.zeros((0, 4))):
                matrix = make(content).asformat(kind)
                require_sound_structure(matrix)
                assert np.array_equal(matrix.toarray(), content)
    roomy = scipy.sparse.csr_matrix(X)
    roomy.indices = np.concatenate([roomy.indices, roomy.indices[:5]])
    roomy.data = np.concatenate([roomy.data, roomy.data[:5]])
    require_sound_structure(roomy)  # room to spare at the end is no fault, and is left
    assert len(roomy.data) == len(scipy.sparse.csr_matrix(X).data) + 5


# AnnData files


def test_an_h5ad_with_fewer_genes_than_columns_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    for genes in (F - 1, F + 2, 0):
        with pytest.raises(SourceError, match=f"has {F} columns but names of {genes} genes"):
            open_source(write_h5ad(tmp_path / f"{genes}.h5ad", genes=genes))


def test_cells_stored_by_columns_are_read_whole_which_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_h5ad(tmp_path / "x.h5ad", scipy.sparse.csc_matrix(X))
    source = open_source(path)
    assert "is stored by columns, so it is read into memory whole" in caplog.text
    assert source.feature_names == [f"g{k}" for k in range(F)]
    assert np.array_equal(np.concatenate([batch.toarray() for _, batch in source.batches(7)]), X)


def test_an_h5ad_that_sends_its_library_round_in_circles_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_h5ad(tmp_path / "x.h5ad")
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")  # where HDF5 keeps texts: one of length nothing is followed by itself
    content[heap + 16 : heap + 32] = bytes(16)
    path.write_bytes(content)
    monkeypatch.setattr(h5ad, "PROBE_SECONDS", 2.0)
    with pytest.raises(SourceError, match=r"x\.h5ad is damaged: reading it did not finish within 2 seconds"):
        open_source(path)


def test_a_file_on_which_its_library_crashes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is damaged: the library that reads it crashes"):
        h5ad.require_harmless(tmp_path, "import os; os.abort()")
    h5ad.require_harmless(tmp_path, "raise ValueError")


def h5ad_without_var(file: Any) -> None:
    del file["var"]


def h5ad_without_index(file: Any) -> None:
    del file["var"].attrs["_index"]


def h5ad_with_dangling_index(file: Any) -> None:
    del file["var/_index"]


def h5ad_with_var_as_data(file: Any) -> None:
    del file["var"]
    file["var"] = np.arange(3)


def h5ad_with_numbers_for_names(file: Any) -> None:
    del file["var/_index"]
    file["var/_index"] = np.arange(F)


def h5ad_of_unknown_encoding(file: Any) -> None:
    file["X"].attrs["encoding-type"] = "dataframe"


def h5ad_without_encoding(file: Any) -> None:
    del file["X"].attrs["encoding-type"]


def h5ad_whose_x_dangles(file: Any) -> None:
    del file["X"]
    file["X"] = h5py.SoftLink("/nowhere")


def h5ad_whose_x_is_empty(file: Any) -> None:
    del file["X"]
    file["X"] = h5py.Empty("f8")


def h5ad_of_texts(file: Any) -> None:
    del file["X/data"]
    file["X/data"] = np.array(["a"] * len(file["X/indices"]), dtype=h5py.string_dtype())


@pytest.mark.usefixtures("without_a_first_look")
@pytest.mark.parametrize(
    "damage",
    [
        h5ad_without_var,
        h5ad_without_index,
        h5ad_with_dangling_index,
        h5ad_with_var_as_data,
        h5ad_with_numbers_for_names,
        h5ad_of_unknown_encoding,
        h5ad_without_encoding,
        h5ad_whose_x_dangles,
        h5ad_whose_x_is_empty,
        h5ad_of_texts,
    ],
)
def test_an_odd_h5ad_is_refused_in_one_sentence(tmp_path: Path, damage: Callable[[Any], None]) -> None:
    path = write_h5ad(tmp_path / "x.h5ad")
    with h5py.File(path, "r+") as file:
        damage(file)
    require_one_sentence(lambda: open_source(path), path)


def require_one_sentence(call: Callable[[], Any], path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        call()
    assert str(path) in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


# HDF5, Parquet, links


def hdf5_dangling(file: Any) -> None:
    file["x"] = h5py.SoftLink("/nowhere")


def hdf5_elsewhere(file: Any) -> None:
    file["x"] = h5py.ExternalLink("absent.h5", "/x")


def hdf5_loop(file: Any) -> None:
    file["x"] = h5py.SoftLink("/y")
    file["y"] = h5py.SoftLink("/x")


def hdf5_empty(file: Any) -> None:
    file["x"] = h5py.Empty("f8")


def hdf5_no_rows(file: Any) -> None:
    file.create_dataset("x", shape=(0, 5), dtype="f4")


def hdf5_scalar(file: Any) -> None:
    file["x"] = 3.0


def hdf5_compound(file: Any) -> None:
    file["x"] = np.zeros((3, 2), dtype=[("a", "f8"), ("b", "i4")])


def hdf5_texts(file: Any) -> None:
    file["x"] = np.array([["a", "b"]], dtype=h5py.string_dtype())


def hdf5_complex(file: Any) -> None:
    file["x"] = np.zeros((3, 2), dtype=complex)


def hdf5_references(file: Any) -> None:
    file.create_dataset("x", shape=(3, 2), dtype=h5py.ref_dtype)


def hdf5_type(file: Any) -> None:
    file["x"] = np.dtype("f8")


def hdf5_group_in_itself(file: Any) -> None:
    file["x"] = file["/"]


@pytest.mark.parametrize(
    "write",
    [
        hdf5_dangling,
        hdf5_elsewhere,
        hdf5_loop,
        hdf5_empty,
        hdf5_no_rows,
        hdf5_scalar,
        hdf5_compound,
        hdf5_texts,
        hdf5_complex,
        hdf5_references,
        hdf5_type,
        hdf5_group_in_itself,
    ],
)
def test_odd_hdf5_is_refused_in_one_sentence(tmp_path: Path, write: Callable[[Any], None]) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        write(file)
    for text in (str(path), f"hdf5:{path}?name=x"):
        require_one_sentence(lambda text=text: open_source(text), path)


@pytest.mark.parametrize(
    "metadata",
    [b"no JSON", b"[]", b"7", b'{"index_columns": 3}', b'{"index_columns": [{"kind": "range"}]}', b"\xff\xfe", b"{}"],
)
def test_odd_metadata_in_parquet_do_not_matter(tmp_path: Path, metadata: bytes) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}).replace_schema_metadata({b"pandas": metadata})
    parquet.write_table(table, tmp_path / "x.parquet")
    [(_, batch)] = open_source(tmp_path / "x.parquet").batches(5)
    assert batch.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table([[1.0], [2.0]], names=["a", "a"]), tmp_path / "x.parquet")
    require_one_sentence(lambda: open_source(tmp_path / "x.parquet"), tmp_path / "x.parquet")


def test_parquet_with_a_damaged_histogram_does_not_end_the_process(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), path)
    content = path.read_bytes()
    if content.count(damaged := b"<)\x06\x19") != 2:  # the sizes of levels, which older versions do not write
        pytest.skip("this version of pyarrow writes no histograms of levels")
    path.write_bytes(content.replace(damaged, b"<)\x46\x19"))
    words = [sys.executable, "-m", "onmf", "fit", path, "-k", "1", "--out", tmp_path / "m"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 2
    assert "cannot be read" in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "parquet", "h5", "h5ad", "zarr", "txt", "wav"])
def test_a_link_that_leads_to_itself_is_no_data(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    path.symlink_to(path)
    require_one_sentence(lambda: open_source(path), path)


@pytest.mark.parametrize("scheme", ["images", "parquet", "audio"])
def test_a_folder_with_a_link_that_leads_to_itself_is_refused(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / {"images": "x.png", "parquet": "x.parquet", "audio": "x.wav"}[scheme]
    path.symlink_to(path)
    require_one_sentence(lambda: open_source(f"{scheme}:{tmp_path}"), tmp_path)


# Zarr


def test_chunks_of_zarr_that_are_not_there_are_said_with_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(100, 8), chunks=(10, 8), dtype="f8", fill_value=0)
    array[:] = 1.0
    open_source(tmp_path / "x.zarr")
    assert not caplog.records
    for chunk in (3, 7):
        (tmp_path / "x.zarr" / "c" / str(chunk) / "0").unlink()
    with caplog.at_level(logging.WARNING, "onmf"):
        open_source(tmp_path / "x.zarr")
    [said] = caplog.messages
    assert "2 of 10 chunks are missing and are read as 0.0" in said
    assert "copy it again" in said


# .npy and .npz


def test_an_array_is_read_although_the_system_hands_over_little_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux does with reads of more than 2 GiB."""

    class Hesitant(io.FileIO):
        def readinto(self, place: Any) -> int:
            return super().readinto(memoryview(place).cast("B")[:30])

    for dtype in ("f8", "f4", "i2", "?"):
        path = tmp_path / "x.npy"
        np.save(path, X.astype(dtype))
        with monkeypatch.context() as patch:
            source = open_source(path)
            patch.setattr(Path, "open", lambda self, *_, **__: Hesitant(self))
            [(_, whole)] = source.batches(N)
            [(rows, drawn)] = source.batches(N, np.random.default_rng(0))
        assert np.array_equal(whole, X.astype(dtype))
        assert np.array_equal(drawn, X.astype(dtype)[rows])


def write_npz(path: Path, **arrays: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            if isinstance(array, bytes):
                content.write(array)
            else:
                np.lib.format.write_array(content, np.asarray(array))
            archive.writestr(f"{name}.npy", content.getvalue())
    return path


def header_alone(*shape: int) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return content.getvalue()


HUGE = 10**9
CLAIMS: dict[str, dict[str, Any]] = {
    "coo": {"format": np.array(b"coo"), "shape": [HUGE, HUGE], "data": np.ones(3), "row": [0, 1, 2], "col": [0, 1, 2]},
    "rows": {"format": np.array(b"coo"), "shape": [HUGE, 3], "data": np.ones(3), "row": [0, 1, 2], "col": [0, 1, 2]},
    "columns": {"format": np.array(b"csr"), "shape": [1, HUGE], "data": np.ones(1), "indices": [3], "indptr": [0, 1]},
    "dia": {"format": np.array(b"dia"), "shape": [HUGE, HUGE], "data": np.ones((1, 3)), "offsets": [0]},
    "header of data": {
        "format": np.array(b"csr"),
        "shape": [3, 3],
        "data": header_alone(HUGE),
        "indices": [0],
        "indptr": [0, 1, 1, 1],
    },
    "header of indptr": {
        "format": np.array(b"csr"),
        "shape": [HUGE, 3],
        "data": np.ones(1),
        "indices": [0],
        "indptr": header_alone(HUGE + 1),
    },
}


@pytest.mark.parametrize("arrays", CLAIMS.values(), ids=CLAIMS.keys())
def test_a_small_npz_that_claims_to_be_huge_is_refused_at_once_and_without_memory(
    tmp_path: Path, arrays: dict[str, Any]
) -> None:
    path = write_npz(tmp_path / "x.npz", **arrays)
    assert path.stat().st_size < 4096
    tracemalloc.start()
    started = time.perf_counter()
    require_one_sentence(lambda: open_source(path), path)
    assert time.perf_counter() - started < 1
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_wide_and_nearly_empty_npz_are_read(tmp_path: Path) -> None:
    wide = scipy.sparse.csr_array(([1.0], ([2], [5])), shape=(4, 2**20))
    for kind in ("csr", "csc", "coo"):
        scipy.sparse.save_npz(tmp_path / "x.npz", wide.asformat(kind))
        assert open_source(tmp_path / "x.npz").n_features == 2**20


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_an_array_that_claims_next_to_nothing_but_absent_chunks_is_refused_at_once(suffix: str, tmp_path: Path) -> None:
    path, how = tmp_path / f"x.{suffix}", {"shape": (10**9, 10**9), "chunks": (40, 6), "dtype": "f8"}
    if suffix == "zarr":
        array = pytest.importorskip("zarr").create_array(str(path), **how)
        array[:40, :6] = 1.0
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", **how)[:40, :6] = 1.0
    started = time.monotonic()
    with pytest.raises(SourceError, match="claims 1000000000 x 1000000000 with only 240 entries"):
        open_source(path)
    assert time.monotonic() - started < 5


def test_chunks_in_shards_are_not_taken_for_absent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(95, 8), chunks=(5, 8), shards=(10, 8), dtype="f8")
    array[:] = 1.0
    open_source(tmp_path / "x.zarr")
    assert not caplog.records
