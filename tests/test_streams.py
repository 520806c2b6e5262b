"""Files of samples: what is read is what was written, in any batch size, and what cannot be read is said plainly."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onmf import OnlineNMF
from onmf.data import Rows, Source, SourceError, open_source

SIZES = (1, 3, 7, 23, 1000)
X = np.random.default_rng(3).integers(0, 9, (23, 4)).astype(float)  # many zeros among them
NAMES = ["a", "b", "c", "d"]
quiet = pytest.mark.filterwarnings("ignore")  # the libraries warn of odd headers and of their own future


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For Hypothesis, which wants no fixture of a single test."""
    return tmp_path_factory.mktemp("streams")


def write_npy(folder: Path) -> str:
    np.save(folder / "x.npy", X)
    return str(folder / "x.npy")


def write_npz(folder: Path) -> str:
    scipy.sparse.save_npz(folder / "x.npz", scipy.sparse.csr_array(X))
    return str(folder / "x.npz")


def write_table(folder: Path, suffix: str, header: str = "") -> str:
    lines = [",".join(f"{number:.17g}" for number in row) for row in X]
    text = "\n".join([header, *lines] if header else lines)
    return str(written(folder, text.replace(",", "\t") if suffix == "tsv" else text, f"x.{suffix}"))


def written(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_parquet(folder: Path) -> str:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table(dict(zip(NAMES, X.T, strict=True)))
    pq.write_table(table, folder / "x.parquet", row_group_size=7)
    return str(folder / "x.parquet")


def write_parquet_folder(folder: Path) -> str:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "set").mkdir()
    for number, part in enumerate(np.array_split(X, 3)):
        pq.write_table(pa.table(dict(zip(NAMES, part.T, strict=True))), folder / "set" / f"{number}.parquet")
    return f"parquet:{folder / 'set'}"


def write_feather(folder: Path, suffix: str = "feather") -> str:
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    feather.write_feather(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / f"x.{suffix}")
    return str(folder / f"x.{suffix}")


def write_zarr(folder: Path) -> str:
    zarr = pytest.importorskip("zarr")
    zarr.save_array(str(folder / "x.zarr"), X)
    return str(folder / "x.zarr")


def write_zarr_group(folder: Path) -> str:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(folder / "g.zarr"), mode="w")
    group.create_array("spectra", data=X, chunks=(6, 4))
    return f"{folder / 'g.zarr'}?name=spectra"


def write_hdf5(folder: Path) -> str:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("deep/spectra", data=X, chunks=(6, 4))
    return str(folder / "x.h5")


def write_h5ad(folder: Path, matrix: Any = None) -> str:
    anndata = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")
    data = anndata.AnnData(X if matrix is None else matrix, var=pandas.DataFrame(index=NAMES))
    data.layers["twice"] = 2 * data.X
    data.write_h5ad(folder / "x.h5ad")
    return str(folder / "x.h5ad")


def write_sparse_h5ad(folder: Path) -> str:
    return write_h5ad(folder, scipy.sparse.csr_matrix(X))


WRITERS: dict[str, Callable[[Path], str]] = {
    "npy": write_npy,
    "npz": write_npz,
    "csv": lambda folder: write_table(folder, "csv", ",".join(NAMES)),
    "csv without names": lambda folder: write_table(folder, "csv"),
    "tsv": lambda folder: write_table(folder, "tsv", ",".join(NAMES)),
    "parquet": write_parquet,
    "parquet folder": write_parquet_folder,
    "feather": write_feather,
    "arrow": lambda folder: write_feather(folder, "arrow"),
    "zarr": write_zarr,
    "zarr group": write_zarr_group,
    "hdf5": write_hdf5,
    "h5ad": write_h5ad,
    "sparse h5ad": write_sparse_h5ad,
}


def whole(source: Any, size: int = 5) -> np.ndarray:
    source = source if isinstance(source, Source) else open_source(source)
    return np.concatenate([dense(batch) for _, batch in source.batches(size)])


def dense(batch: Any) -> np.ndarray:
    return batch.toarray() if scipy.sparse.issparse(batch) else np.asarray(batch)


def refusal(path: Path) -> str:
    """The message with which the file is refused, at the latest when it is read; it names the file, in one line."""
    with pytest.raises(SourceError) as error:
        for _ in open_source(path).batches(3):
            pass
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    return message


# What is read


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_batches_in_a_row_are_what_was_written_with_row_numbers(kind: str, tmp_path: Path) -> None:
    source = open_source(WRITERS[kind](tmp_path))
    assert (source.n_samples, source.n_features) == X.shape
    for size in SIZES:  # a source can be read again
        rows, batches = zip(*source.batches(size), strict=True)
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(len(X)))
        np.testing.assert_array_equal(np.concatenate([dense(batch) for batch in batches]), X)
        assert all(batch.shape[0] == size for batch in batches[:-1])
        assert all(batch.shape[0] == len(numbers) for numbers, batch in zip(rows, batches, strict=True))
    if kind in ("csv", "tsv", "parquet", "feather", "arrow", "h5ad", "sparse h5ad"):
        assert source.feature_names == NAMES


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_a_shuffled_pass_is_a_permutation_with_its_row_numbers_or_is_refused(
    kind: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    source = open_source(WRITERS[kind](tmp_path))
    assert source.any_order == (kind in ("npy", "npz"))
    if not source.any_order:
        with pytest.raises(SourceError, match=r"cannot be shuffled as a whole, .*; use onmf.data.shuffle"):
            next(iter(source.batches(2, rng)))
        return
    for size in SIZES:
        rows, batches = zip(*source.batches(size, rng), strict=True)
        order = np.concatenate(rows)
        assert sorted(order) == list(range(len(X)))
        assert (order != np.arange(len(X))).any()
        np.testing.assert_array_equal(np.concatenate([dense(batch) for batch in batches]), X[order])


def test_an_npy_file_is_memory_mapped(tmp_path: Path) -> None:
    source = open_source(write_npy(tmp_path))
    assert isinstance(source, Rows)
    assert isinstance(source.X, np.memmap)
    assert not any(isinstance(batch, np.memmap) for _, batch in source.batches(2))  # copies: pages are given back


def test_of_an_npy_file_only_the_rows_in_use_are_read(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "forty-gigabytes.npy"
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(10_000, 500_000))  # a hole in the disk
    X[3, 4] = 5.0
    del X
    tracemalloc.start()
    try:
        source = open_source(path)
        _, first = next(iter(source.batches(4)))
        assert first[3, 4] == 5.0
        rows, shuffled = next(iter(source.batches(2, rng)))
        assert shuffled.shape == (len(rows), 500_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        path.unlink()
    assert peak < 30e6  # a batch of four rows is 16 MB


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_an_npz_file_may_hold_any_sparse_format(tmp_path: Path, form: str, dtype: str) -> None:
    X = (np.arange(20).reshape(5, 4) % 3).astype(dtype)
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.coo_array(X).asformat(form))
    source = open_source(tmp_path / "x.npz")
    assert all(scipy.sparse.issparse(batch) for _, batch in source.batches(2))
    assert np.array_equal(whole(tmp_path / "x.npz"), X)


@quiet
def test_a_layer_of_an_anndata_file(tmp_path: Path) -> None:
    path = write_h5ad(tmp_path)
    np.testing.assert_array_equal(whole(open_source(f"{path}?layer=twice")), 2 * X)
    with pytest.raises(SourceError, match=r"has no layer 'thrice'; its layers are twice"):
        open_source(f"{path}?layer=thrice")


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_a_model_learns_from_every_format(kind: str, tmp_path: Path) -> None:
    source = open_source(WRITERS[kind](tmp_path))
    model = OnlineNMF(2, random_state=0, shuffle=False).fit(source)
    expected = OnlineNMF(2, random_state=0, shuffle=False, method=model.method_).fit(X)
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float16", ">f8", "int32"])
def test_numbers_of_every_type_are_learnt_from_as_floats(dtype: str, tmp_path: Path) -> None:
    counts = (np.random.default_rng(0).random((60, 30)) < 0.08).astype(dtype)
    counts[:, 0] = 1
    expected = OnlineNMF(2, random_state=0).fit(counts.astype(float))
    np.save(tmp_path / "x.npy", counts)
    paths = [tmp_path / "x.npy"]
    if dtype not in ("float16", ">f8"):  # scipy has no sparse matrices of these types
        scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_matrix(counts))
        paths.append(tmp_path / "x.npz")
    for path in paths:
        model = OnlineNMF(2, random_state=0).fit(open_source(path))
        assert model.method_.name == "sparse_surrogate"
        np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", ">f8", "<f8"])
def test_an_npy_file_may_hold_any_real_type_in_c_or_fortran_order(order: Any, dtype: str, tmp_path: Path) -> None:
    data = np.asarray(np.random.default_rng(0).integers(0, 9, (23, 4)).astype(dtype), order=order)
    np.save(tmp_path / "x.npy", data)
    for rng in (None, np.random.default_rng(0)):
        for rows, batch in open_source(tmp_path / "x.npy").batches(5, rng):
            np.testing.assert_array_equal(batch, data[rows])
            assert batch.dtype == data.dtype


def test_names_that_look_like_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("2020,2021\n1,2\n3,4\n")
    assert open_source(tmp_path / "x.csv").n_samples == 3
    source = open_source(f"{tmp_path}/x.csv?header=yes")
    assert source.feature_names == ["2020", "2021"]
    np.testing.assert_array_equal(whole(source), [[1, 2], [3, 4]])
    with pytest.raises(SourceError, match="header must be yes or no"):
        open_source(f"{tmp_path}/x.csv?header=1")


@quiet
def test_names_of_pandas_rows_are_no_feature_and_gaps_are_named(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": [1.0, 2, 3], "b": [1.0, 2, 3]}).iloc[[2, 0, 1]]
    frame.to_parquet(tmp_path / "x.parquet")
    assert open_source(tmp_path / "x.parquet").feature_names == ["a", "b"]
    pandas.DataFrame({"a": [True, None]}).to_parquet(tmp_path / "gap.parquet")
    assert np.isnan(whole(open_source(tmp_path / "gap.parquet"))[1, 0])


@quiet
def test_other_files_in_a_folder_of_tables_are_left_alone(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    with pytest.raises(SourceError, match=r"no files that end in \.parquet"):
        open_source(f"parquet:{tmp_path}")
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "year").mkdir()
    for place in ("b.parquet", "year/c.parquet", "_delta_log/0.parquet"):
        pq.write_table(pa.table({"a": [float(len(place))]}), tmp_path / place)
    (tmp_path / "README.md").write_text("notes")
    np.testing.assert_array_equal(whole(open_source(f"parquet:{tmp_path}")), [[9.0], [14.0]])
    np.testing.assert_array_equal(whole(open_source(f"parquet:{tmp_path}/y*/?.parquet")), [[14.0]])


# Tables as people write them


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\n1,2\n3,4",
        "a,b\r\n1,2\r\n3,4\r\n",
        "\ufeffa,b\n1,2\n3,4\n",
        "\n\na,b\n\n1,2\n\n\n3,4\n\n",
        '"a","b"\n1,2\n3,4\n',
        '"a","b"\n"1","2"\n"3","4"\n',
        " a , b \n 1 , 2 \n 3 , 4 \n",
        "a,b\n1e0,+2.0\n0.3E+1,4e-0\n",
    ],
    ids=[
        "plain",
        "no last newline",
        "CRLF",
        "BOM",
        "blank lines",
        "quoted names",
        "all quoted",
        "spaces",
        "scientific",
    ],
)
def test_a_table_with_names_is_read_whatever_its_habits(tmp_path: Path, text: str) -> None:
    source = open_source(written(tmp_path, text))
    assert source.feature_names == ["a", "b"]
    assert source.n_samples == 2
    assert np.array_equal(whole(tmp_path / "data.csv"), [[1, 2], [3, 4]])


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "\ufeff1,2\r\n\r\n3,4", '"1","2"\n"3","4"\n', "1e0,2.\n.3e1,4\n"])
def test_a_table_without_names_is_read_from_its_first_line(tmp_path: Path, text: str) -> None:
    source = open_source(written(tmp_path, text))
    assert source.feature_names is None
    assert source.n_samples == 2
    assert np.array_equal(whole(tmp_path / "data.csv"), [[1, 2], [3, 4]])


def test_a_quoted_name_may_hold_the_delimiter(tmp_path: Path) -> None:
    source = open_source(written(tmp_path, '"length, cm",b\n1,2\n3,4\n'))
    assert source.feature_names == ["length, cm", "b"]
    assert np.array_equal(whole(tmp_path / "data.csv"), [[1, 2], [3, 4]])


def test_names_may_be_in_any_script(tmp_path: Path) -> None:
    assert open_source(written(tmp_path, "größe,長さ\n1,2\n")).feature_names == ["größe", "長さ"]


def test_a_table_may_have_one_column_or_one_row(tmp_path: Path) -> None:
    assert np.array_equal(whole(written(tmp_path, "1\n2\n3\n")), [[1], [2], [3]])
    assert np.array_equal(whole(written(tmp_path, "1,2,3\n")), [[1, 2, 3]])


@given(
    X=hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)),
    named=st.booleans(),
    tabs=st.booleans(),
    size=st.integers(1, 7),
)
def test_every_number_of_a_table_is_read_to_the_bit(
    folder: Path, X: np.ndarray, named: bool, tabs: bool, size: int
) -> None:
    delimiter = "\t" if tabs else ","
    lines = [delimiter.join(repr(float(x)) for x in row) for row in X]
    names = [delimiter.join(f"f{i}" for i in range(X.shape[1]))] if named else []
    path = written(folder, "\n".join([*names, *lines]), "data.tsv" if tabs else "data.csv")
    assert np.array_equal(whole(path, size), X, equal_nan=True)


# What is refused


@pytest.mark.parametrize(
    "X",
    [
        np.zeros(3),
        np.zeros((2, 2, 2, 2)),
        np.float64(1.0),
        np.zeros((0, 3)),
        np.zeros((3, 0)),
        np.zeros((2, 2), dtype=complex),
        np.array([["a", "b"]]),
        np.zeros((2, 2), dtype="datetime64[s]"),
        np.zeros((2, 2), dtype=[("x", float)]),
    ],
    ids=lambda X: f"{X.dtype}{X.shape}",
)
def test_an_npy_file_that_is_no_table_of_real_numbers_is_refused(tmp_path: Path, X: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", X)
    refusal(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"not an array", b"PK\x03\x04 no zip", bytes(range(256)) * 4])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_binary_file_of_something_else_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    refusal(written(tmp_path, content, f"x.{suffix}"))


def test_a_truncated_npy_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((10, 10)))
    content = (tmp_path / "x.npy").read_bytes()
    for length in range(0, len(content), 41):
        refusal(written(tmp_path, content[:length], "cut.npy"))


def test_an_array_with_the_suffix_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    np.savez(tmp_path / "y.npz", X=np.ones((3, 2)))
    refusal(written(tmp_path, (tmp_path / "x.npy").read_bytes(), "x.npz"))
    refusal(written(tmp_path, (tmp_path / "y.npz").read_bytes(), "y.npy"))


def test_an_npz_file_of_dense_arrays_is_refused_with_the_cure(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.ones((3, 2)))
    assert "scipy.sparse.save_npz" in refusal(tmp_path / "x.npz")


@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_a_sparse_matrix_whose_indices_leave_its_shape_is_refused_before_they_are_followed(
    tmp_path: Path, part: str
) -> None:
    X = scipy.sparse.csr_matrix(np.eye(5))
    getattr(X, part)[1] = 10**8  # followed, it would be read or written far outside the array
    scipy.sparse.save_npz(tmp_path / "x.npz", X)
    with pytest.raises(SourceError):
        open_source(tmp_path / "x.npz")


@quiet
@pytest.mark.parametrize("kind", ["npy", "npz", "npz uncompressed"])
def test_a_damaged_array_is_read_or_refused_and_never_anything_else(
    kind: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / f"x.{kind[:3]}"
    if kind == "npy":
        np.save(path, np.eye(3))
    else:
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(np.eye(5)), compressed=kind == "npz")
    content = path.read_bytes()
    for _ in range(800):
        mutated = bytearray(content)
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            mutated[place] = rng.integers(256)
        with path.open("r+b") as file:  # in place, which is quick
            file.write(mutated)
        with contextlib.suppress(SourceError):
            open_source(path)


class Hostile:
    """Unpickled, it would touch a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_pickle_in_a_file_is_refused_and_not_executed(tmp_path: Path, suffix: str) -> None:
    trace = tmp_path / "executed"
    objects = np.array([[Hostile(trace)]], dtype=object)
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, objects, allow_pickle=True)
    else:
        np.savez(path, format=b"csr", shape=(1, 1), data=objects[0], indices=np.zeros(1, int), indptr=np.array([0, 1]))
    refusal(path)
    assert not trace.exists()


def test_a_bare_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    path = tmp_path / "x.npy"
    path.write_bytes(np.array([Hostile(trace)], dtype=object).dumps())
    for name in ("x.npy", "x.npz"):
        refusal(written(tmp_path, path.read_bytes(), name))
    assert not trace.exists()


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_table_is_refused(tmp_path: Path, content: str) -> None:
    assert "is empty" in refusal(written(tmp_path, content))


def test_names_without_samples_are_refused(tmp_path: Path) -> None:
    assert "no samples" in refusal(written(tmp_path, "a,b\n\n"))


@pytest.mark.parametrize("content", [b"a,b\n1,\xff\n", "a,b\n1,2\n".encode("utf-16")])
def test_a_table_in_another_encoding_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "; convert the data to UTF-8" in refusal(written(tmp_path, content))


@pytest.mark.parametrize("bad", ["1,2", "1,2,3,4", "1,two,3", "1;2;3"])
def test_a_line_that_is_not_numbers_of_the_right_count_is_refused_by_its_row(tmp_path: Path, bad: str) -> None:
    lines = ["a,b,c", *["1,2,3"] * 7]
    lines[5] = bad  # row 4, the second of its block of three
    message = refusal(written(tmp_path, "\n".join(lines)))
    assert "row 4" in message
    assert "row 1" not in message  # not by its place in the block


def test_a_whole_block_of_another_width_is_refused_by_its_row(tmp_path: Path) -> None:
    assert "row 3 has 2 values" in refusal(written(tmp_path, "a,b,c\n" + "1,2,3\n" * 3 + "1,2\n" * 3))


def test_a_gap_in_the_first_line_does_not_make_it_a_line_of_names(tmp_path: Path) -> None:
    found = whole(open_source(written(tmp_path, "1,,3\n4,5,6\n")))
    np.testing.assert_array_equal(found, [[1, np.nan, 3], [4, 5, 6]])


def test_a_line_of_gaps_in_a_tsv_is_a_row_of_missing_values_and_not_a_blank_line(tmp_path: Path) -> None:
    found = whole(open_source(written(tmp_path, "1\t2\n\t\n3\t4\n", "data.tsv")))
    np.testing.assert_array_equal(found, [[1, 2], [np.nan, np.nan], [3, 4]])


@quiet
@pytest.mark.parametrize("kind", ["parquet", "zarr", "hdf5", "h5ad"])
def test_broken_files_are_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    pytest.importorskip({"parquet": "pyarrow", "hdf5": "h5py", "h5ad": "anndata"}.get(kind, kind))
    path = tmp_path / f"x.{'h5' if kind == 'hdf5' else kind}"
    path.write_bytes(b"nonsense")
    with pytest.raises(SourceError, match=str(path)) as error:
        open_source(path)
    assert "\n" not in str(error.value).strip()


@quiet
def test_columns_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1.0], "label": ["x"]}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"the column 'label' is of type string; .*drop=label leaves it out"):
        open_source(tmp_path / "x.parquet")


@quiet
def test_one_of_several_data_sets_must_be_named(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"], file["b"] = X, 2 * X
        file["words"] = np.array([b"x"])
    with pytest.raises(SourceError, match=r"holds 3 data sets \(a, b, words\); name one: hdf5:"):
        open_source(tmp_path / "x.h5")
    np.testing.assert_array_equal(whole(open_source(f"{tmp_path}/x.h5?name=b")), 2 * X)
    with pytest.raises(SourceError, match="must be a 2-D array of real numbers, one row per sample"):
        open_source(f"{tmp_path}/x.h5?name=words")
    with pytest.raises(SourceError, match="no data set 'c'"):
        open_source(f"{tmp_path}/x.h5?name=c")


@quiet
def test_a_folder_of_unlike_files_is_refused(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1.0], "b": [1.0]}), tmp_path / "1.parquet")
    with pytest.raises(SourceError, match="other columns"):
        open_source(f"parquet:{tmp_path}")


# Files that change while they are read


def test_a_table_that_vanishes_between_passes_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "1,2\n3,4\n")
    source = open_source(path)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read from row 0 onward"):
        list(source.batches(1))


@quiet
@pytest.mark.parametrize("kind", ["npy", "csv", "hdf5", "zarr", "txt"])
def test_files_that_shrink_or_vanish_are_not_read_as_zeros_nor_taken_for_whole(kind: str, tmp_path: Path) -> None:
    where = Path(written(tmp_path, "words\n" * 99_999, "x.txt") if kind == "txt" else WRITERS[kind](tmp_path))
    source = open_source(where)
    stream = source.batches(5)
    next(stream)
    if kind in ("csv", "zarr"):
        stream = source.batches(5)  # the next pass: this one may have the whole file in its buffer
    if kind == "zarr":
        shutil.rmtree(where)
    else:
        with where.open("r+b") as file:
            file.truncate(96)  # of the table: the end of a line
    with pytest.raises(SourceError, match=r"shrank|disappeared"):
        list(stream)


@quiet
def test_columns_that_are_cut_while_they_are_read_are_named(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"c{k}": np.random.default_rng(k).random(4000) for k in range(20)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    stream = open_source(tmp_path / "x.parquet").batches(50)
    next(stream)
    with (tmp_path / "x.parquet").open("r+b") as file:
        file.truncate(20_000)
    with pytest.raises(SourceError, match="cannot be read to the end"):
        list(stream)


def test_a_batch_from_parquet_passes_at_most_five_generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onmf.data import arrow

    layers: list[list[str]] = []
    numbers = arrow._numbers

    def counted(column: Any) -> Any:
        found, frame = [], inspect.currentframe()
        while frame is not None:
            found += [frame.f_code.co_qualname] if frame.f_code.co_flags & inspect.CO_GENERATOR else []
            frame = frame.f_back
        layers.append(found)
        return numbers(column)

    monkeypatch.setattr(arrow, "_numbers", counted)
    for on_error in ("raise", "skip"):
        OnlineNMF(2, random_state=0, on_error=on_error).fit(open_source(write_parquet(tmp_path)))
    assert layers
    assert max(map(len, layers)) <= 5, max(layers, key=len)
