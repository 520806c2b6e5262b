"""Files of samples: what is read is what was written, in any batch size, and what cannot be read is said plainly."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onmf.streams import Rows, SourceError, open_source

SIZES = (1, 3, 7, 23, 1000)
quiet = pytest.mark.filterwarnings(  # NumPy, and Python's own parser beneath it, doubt some headers aloud
    "ignore::UserWarning", "ignore::SyntaxWarning", "ignore::DeprecationWarning"
)
FORMATS = ("npy", "npz", "csv", "csv without names", "tsv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For Hypothesis, which wants no fixture of a single test."""
    return tmp_path_factory.mktemp("streams")


def write(folder: Path, kind: str, X: np.ndarray) -> Path:
    suffix = kind.split()[0]
    path = folder / f"data.{suffix}"
    if kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(X))
    else:
        delimiter = "\t" if suffix == "tsv" else ","
        names = delimiter.join(f"f{i}" for i in range(X.shape[1])) if kind == "csv" else ""
        np.savetxt(path, X, fmt="%.17g", delimiter=delimiter, header=names, comments="")
        if not names:
            path.write_text(path.read_text().lstrip("\n"))
    return path


def written(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def whole(path: Path, size: int = 2) -> np.ndarray:
    return np.vstack([as_dense(batch) for _, batch in open_source(path).batches(size)])


def as_dense(batch: Any) -> np.ndarray:
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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", FORMATS)
def test_batches_in_a_row_are_the_source_with_its_row_numbers(
    tmp_path: Path, rng: np.random.Generator, kind: str, size: int
) -> None:
    X = rng.gamma(1.0, 1.0, (23, 5)) * (rng.random((23, 5)) < 0.6)
    source = open_source(write(tmp_path, kind, X))
    assert (source.n_samples, source.n_features) == (23, 5)
    for _ in range(2):  # a source can be passed over again
        rows, batches = zip(*source.batches(size), strict=True)
        assert np.array_equal(np.concatenate(rows), np.arange(23))
        assert np.array_equal(np.vstack([as_dense(b) for b in batches]), X)
        assert all(b.shape[0] == len(r) <= size for r, b in zip(rows, batches, strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_shuffled_pass_is_a_permutation_whose_row_numbers_are_right(
    tmp_path: Path, rng: np.random.Generator, kind: str, size: int
) -> None:
    X = rng.random((23, 4))
    source = open_source(write(tmp_path, kind, X))
    assert source.any_order
    rows, batches = zip(*source.batches(size, rng), strict=True)
    order = np.concatenate(rows)
    assert np.array_equal(np.sort(order), np.arange(23))
    assert not np.array_equal(order, np.arange(23))
    assert np.array_equal(np.vstack([as_dense(b) for b in batches]), X[order])


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_table_refuses_to_be_shuffled(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    source = open_source(write(tmp_path, kind, rng.random((5, 2))))
    assert not source.any_order
    with pytest.raises(SourceError, match="cannot be shuffled"):
        next(iter(source.batches(2, rng)))


def test_an_npy_file_is_memory_mapped(tmp_path: Path, rng: np.random.Generator) -> None:
    source = open_source(write(tmp_path, "npy", rng.random((5, 2))))
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


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", ">f8", "<f8"])
def test_an_npy_file_may_hold_any_real_type(tmp_path: Path, dtype: str) -> None:
    X = np.arange(12).reshape(4, 3).astype(dtype)
    np.save(tmp_path / "x.npy", X)
    assert np.array_equal(whole(tmp_path / "x.npy"), X)


def test_an_npy_file_may_be_in_fortran_order(tmp_path: Path, rng: np.random.Generator) -> None:
    X = np.asfortranarray(rng.random((7, 3)))
    np.save(tmp_path / "x.npy", X)
    assert np.array_equal(whole(tmp_path / "x.npy"), X)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_an_npz_file_may_hold_any_sparse_format(tmp_path: Path, form: str, dtype: str) -> None:
    X = (np.arange(20).reshape(5, 4) % 3).astype(dtype)
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.coo_array(X).asformat(form))
    source = open_source(tmp_path / "x.npz")
    assert all(scipy.sparse.issparse(batch) for _, batch in source.batches(2))
    assert np.array_equal(whole(tmp_path / "x.npz"), X)


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


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent.npy")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert "is a directory" in refusal(tmp_path / "folder.csv")


@pytest.mark.parametrize("name", ["data.dat", "data", "data.npy.gz"])
def test_an_unknown_suffix_is_refused_with_the_known_schemes(tmp_path: Path, name: str) -> None:
    message = refusal(written(tmp_path, "1,2\n", name))
    assert all(suffix in message for suffix in ("npy:", "npz:", "csv:", "tsv:"))


@pytest.mark.parametrize(
    "X",
    [
        np.zeros(3),
        np.zeros((2, 2, 2)),
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


def test_a_zip_named_npy_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.ones((3, 2)))
    refusal(written(tmp_path, (tmp_path / "x.npz").read_bytes(), "x.npy"))


def test_an_array_named_npz_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    refusal(written(tmp_path, (tmp_path / "x.npy").read_bytes(), "x.npz"))


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
@pytest.mark.parametrize("compressed", [True, False])
def test_a_damaged_npz_file_is_read_or_refused_and_never_anything_else(
    tmp_path: Path, rng: np.random.Generator, compressed: bool
) -> None:
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(np.eye(5)), compressed=compressed)
    mutate_and_open(tmp_path / "x.npz", rng, 800)


@quiet
def test_a_damaged_npy_file_is_read_or_refused_and_never_anything_else(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    np.save(tmp_path / "x.npy", np.eye(3))
    mutate_and_open(tmp_path / "x.npy", rng, 800)


def mutate_and_open(path: Path, rng: np.random.Generator, times: int) -> None:
    content = path.read_bytes()
    for _ in range(times):
        mutated = bytearray(content)
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            mutated[place] = rng.integers(256)
        path.write_bytes(mutated)
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
    assert "cannot be read as text" in refusal(written(tmp_path, content))


@pytest.mark.parametrize("bad", ["1,2", "1,2,3,4", "1,two,3", "1,,3", "1;2;3"])
def test_a_line_that_is_not_numbers_of_the_right_count_is_refused_by_its_row(tmp_path: Path, bad: str) -> None:
    lines = ["a,b,c", *["1,2,3"] * 7]
    lines[5] = bad  # row 4, the second of its block of three
    message = refusal(written(tmp_path, "\n".join(lines)))
    assert "row 4" in message
    assert "row 1" not in message  # not by its place in the block


def test_a_whole_block_of_another_width_is_refused_by_its_row(tmp_path: Path) -> None:
    assert "row 3 has 2 values" in refusal(written(tmp_path, "a,b,c\n" + "1,2,3\n" * 3 + "1,2\n" * 3))


def test_a_gap_in_the_first_line_does_not_make_it_a_line_of_names(tmp_path: Path) -> None:
    refusal(written(tmp_path, "1,,3\n4,5,6\n"))


def test_a_line_of_gaps_in_a_tsv_is_a_row_of_missing_values_and_not_a_blank_line(tmp_path: Path) -> None:
    refusal(written(tmp_path, "1\t2\n\t\n3\t4\n", "data.tsv"))


def test_a_table_that_vanishes_between_passes_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "1,2\n3,4\n")
    source = open_source(path)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read from row 0 onward"):
        list(source.batches(1))
