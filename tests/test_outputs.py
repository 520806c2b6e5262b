"""``onmf transform`` and ``transform`` of streams: rows go out as they come in, aligned and in bounded memory."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf.cli import main as cli
from onmf.data import (
    Batches,
    Rows,
    Source,
    SourceError,
    arrow,
    open_source,
    outputs,
    register,
    registry,
    repeat,
    shuffle,
)
from onmf.data.base import Numbered, OnBad
from tests import processes

K, F, N = 3, 7, 250
X = np.random.default_rng(0).gamma(2.0, 1.0, (N, K)) @ np.random.default_rng(1).random((K, F))
COLUMNS = [f"component_{k}" for k in range(K)]
TEXTS = ["apples and pears", "pears", "plums or apples", "plums and pears and plums"] * 60


@pytest.fixture(scope="module")
def model() -> OnlineNMF:
    return OnlineNMF(K, random_state=0).fit(X)


@pytest.fixture
def place(tmp_path: Path, model: OnlineNMF, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and its data."""
    onmf.save(model, tmp_path / "m")
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Told(Source):
    """Rows in blocks, numbered or named, some of which cannot be read; and how many blocks were asked for so far."""

    n_features, rewinds = F, False

    def __init__(self, names: bool = False, bad: tuple[int, ...] = (), known: bool = False) -> None:
        self.names, self.bad, self.asked, self.index_name = names, bad, 0, "who"
        self.n_samples = N if known else None

    def batches(self, size: int, rng: Any = None, on_bad: OnBad | None = None) -> Numbered:
        for first in range(0, N, size):
            self.asked += 1
            rows = [row for row in range(first, min(first + size, N)) if row not in self.bad]
            for row in sorted({*self.bad} & {*range(first, first + size)}):
                if on_bad is None:
                    raise SourceError(f"row {row} is bad.")
                on_bad(SourceError(f"row {row} is bad."))
            if rows:
                named = np.array([f"sample {row}, {row % 7}" for row in rows], dtype=object)
                yield (named if self.names else np.asarray(rows)), X[rows]


@pytest.fixture
def options() -> Iterator[dict[str, Any]]:
    """Of the source that ``told:PATH`` opens."""

    @register("told")
    def told(path: Path) -> Source:
        return Told(**given)

    given: dict[str, Any] = {}
    yield given
    registry._registry.pop("told")


def transform(*arguments: object) -> tuple[str, str]:
    """Standard output and error of ``onmf transform m``, which must succeed."""
    result = CliRunner().invoke(cli.app, ["transform", "m", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    return result.stdout, result.stderr


def read(path: Path | str) -> tuple[np.ndarray, list[str] | None, str | None]:
    """The coefficients in a file, the names of their rows, and what these are called."""
    path = Path(path)
    if path.suffix == ".npy":
        return np.load(path), None, None
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(path).to_pydict()
        index = next((key for key in table if key not in COLUMNS), None)
        return np.array([table[column] for column in COLUMNS]).T, table[index] if index else None, index
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        index = next((key for key in lines[0] if key not in COLUMNS), None)
        H = np.array([[line[column] for column in COLUMNS] for line in lines], dtype=float)
        return H, [line[index] for line in lines] if index else None, index
    with path.open(newline="") as file:
        header, *lines = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
    index = header[0] if header[0] not in COLUMNS else None
    assert header[bool(index) :] == COLUMNS
    H = np.array([[float(value) for value in line[bool(index) :]] for line in lines])
    return H, [line[0] for line in lines] if index else None, index


FILES = ["h.csv", "h.tsv", "h.jsonl", "h.parquet", "h.npy"]


# Python


def test_a_source_and_an_iterator_give_the_arrays_of_their_batches(model: OnlineNMF) -> None:
    expected = model.transform(X)
    for given in (Rows(X), Batches(np.array_split(X, 9)), iter(np.array_split(X, 9)), Told()):
        H = model.transform(given)
        assert not hasattr(H, "shape")
        assert np.allclose(np.concatenate(list(H)), expected, rtol=1e-9)
    assert [len(H) for H in model.transform(iter([X[:10], X[10:13]]))] == [10, 3]
    sparse = scipy.sparse.csr_array(X[:20])
    assert np.allclose(next(iter(model.transform(iter([sparse])))), model.transform(sparse))
    batch = BatchNMF(2, random_state=0, max_iter=5, tol=0).fit(X)
    assert np.allclose(np.concatenate(list(batch.transform(Rows(X)))), batch.transform(X))
    shares = model.proportions(Told())
    assert not hasattr(shares, "shape")
    assert np.allclose(np.concatenate(list(shares)), model.proportions(X), rtol=1e-9)


def test_a_batch_is_read_when_it_is_asked_for(model: OnlineNMF) -> None:
    source = Told()
    H = model.transform(source)
    assert source.asked == 0
    assert len(next(H)) == 100  # few of a stream that cannot be read again
    assert source.asked == 1


def test_streams_are_refused_before_the_first_batch_is_asked_for(model: OnlineNMF) -> None:
    with pytest.raises(ValueError, match="the source has 4 features, but the model was learnt from 7"):
        model.transform(Rows(X[:, :4]))
    with pytest.raises(Exception, match="not fitted yet"):
        OnlineNMF().transform(iter([X]))
    with pytest.raises(Exception, match="not fitted yet"):
        OnlineNMF().transform(Rows(X))


def test_bad_rows_of_a_stream_are_named_by_their_number_in_it(model: OnlineNMF) -> None:
    bad = X.copy()
    bad[130, 2] = np.nan
    with pytest.raises(onmf.DataError, match="row 130, column 2"):
        list(model.transform(Batches(iter([bad]))))


def test_data_frames_on_demand_are_those_of_arrays_only(model: OnlineNMF) -> None:
    pytest.importorskip("pandas")
    framed = OnlineNMF(K, random_state=0).fit(X).set_output(transform="pandas")
    assert list(framed.transform(X).columns) == COLUMNS
    assert isinstance(next(framed.transform(Rows(X))), np.ndarray)
    assert np.allclose(framed.proportions(X), model.proportions(X))


# Files


@pytest.mark.parametrize("out", FILES)
@pytest.mark.parametrize("data", ["x.npy", "told:m"])
@pytest.mark.usefixtures("options")
def test_every_output_holds_all_rows_whether_their_number_is_known_or_not(
    place: Path, model: OnlineNMF, out: str, data: str
) -> None:
    said, _ = transform(data, "--out", out, "--batch-size", 37)
    assert said == f"{out}: coefficients of {N} samples, {K} each.\n"
    H, names, _ = read(out)
    assert np.allclose(H, model.transform(X), rtol=1e-8, atol=1e-12)
    assert names is None
    assert sorted(path.name for path in place.iterdir()) == sorted({"m", "x.npy", out})


@pytest.mark.parametrize("out", FILES)
def test_names_of_rows_are_kept(place: Path, model: OnlineNMF, options: dict[str, Any], out: str) -> None:
    options["names"] = True
    transform("told:m", "--out", out)
    H, names, index = read(out)
    assert np.allclose(H, model.transform(X), rtol=1e-8, atol=1e-12)
    if out != "h.npy":
        assert index == "who"
        assert names == [f"sample {row}, {row % 7}" for row in range(N)]


@pytest.mark.parametrize("out", FILES)
@pytest.mark.parametrize("known", [True, False])
def test_rows_that_are_skipped_leave_nan_where_they_were(
    place: Path, model: OnlineNMF, options: dict[str, Any], out: str, known: bool
) -> None:
    lost = (0, 1, 5, 77, *range(90, 180), N - 2, N - 1)
    options.update(bad=lost, known=known)
    _, error = transform("told:m", "--out", out, "--batch-size", 30, "--on-error", "skip")
    H, _, _ = read(out)
    assert np.flatnonzero(np.isnan(H).all(axis=1)).tolist() == list(lost)
    kept = np.setdiff1d(np.arange(N), lost)
    assert np.allclose(H[kept], model.transform(X)[kept], rtol=1e-8, atol=1e-12)
    assert f"{len(lost)} of the {N} rows are NaN; the first reason: row " in error


def test_a_bad_entry_costs_its_row_alone(place: Path, model: OnlineNMF) -> None:
    bad = X.copy()
    bad[17, 2], bad[18, 0], bad[200, 6] = np.nan, -1, np.inf
    np.save("bad.npy", bad)
    _, error = transform("bad.npy", "--out", "h.npy", "--on-error", "skip")
    H = np.load("h.npy")
    assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == [17, 18, 200]
    kept = np.setdiff1d(np.arange(N), [17, 18, 200])
    assert np.allclose(H[kept], model.transform(X[kept]), rtol=1e-6)
    assert "3 of the 250 rows are NaN; the first reason: NaN in the data at row 17, column 2" in error
    result = CliRunner().invoke(cli.app, ["transform", "m", "bad.npy", "--out", "h2.npy"])
    assert "row 17" in str(result.exception)
    assert not Path("h2.npy").exists()


def test_names_tell_which_rows_were_left_out(place: Path, options: dict[str, Any]) -> None:
    options.update(names=True, bad=(3, 8))
    _, error = transform("told:m", "--out", "h.csv", "--on-error", "skip")
    _, names, _ = read("h.csv")
    assert names == [f"sample {row}, {row % 7}" for row in range(N) if row not in (3, 8)]
    assert "0 of the 248 rows are NaN, and 2 could not be read; the first reason: row 3 is bad." in error


def test_a_source_without_one_good_row_is_an_error(place: Path, options: dict[str, Any]) -> None:
    options["bad"] = tuple(range(N))
    result = CliRunner().invoke(cli.app, ["transform", "m", "told:m", "--out", "h.csv", "--on-error", "skip"])
    assert result.exit_code == 2
    assert "has no sample that could be read. row " in result.stderr
    assert not Path("h.csv").exists()


def test_the_coefficients_of_cells_are_written_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anndata = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    obs = pandas.DataFrame({"batch": range(N)}, index=[f"cell {row}" for row in range(N)])
    genes = pandas.DataFrame(index=[f"gene {k}" for k in range(F)])
    cells = anndata.AnnData(scipy.sparse.csr_matrix(X), obs=obs, var=genes, obsm={"X_pca": X[:, :2]})
    cells.write_h5ad("x.h5ad")
    before = Path("x.h5ad").read_bytes()
    model = OnlineNMF(K, random_state=0).fit(cells)
    onmf.save(model, "m")
    for _ in range(2):  # the second time from a file that has some already
        transform("x.h5ad", "--out", "y.h5ad", "--batch-size", 40)
        written = anndata.read_h5ad("y.h5ad")
        assert np.allclose(written.obsm["X_onmf"], model.transform(cells), rtol=1e-6)
        assert np.array_equal(written.obsm["X_pca"], X[:, :2])
        assert written.obs_names.tolist() == obs.index.tolist()
        assert (written.X != cells.X).nnz == 0
        assert Path("x.h5ad").read_bytes() == before
        Path("y.h5ad").replace("x.h5ad")
        before = Path("x.h5ad").read_bytes()
    Path("y.h5ad").unlink(missing_ok=True)
    cells.varm["loadings"] = np.ones((F, F))
    cells.write_h5ad("x.h5ad")
    result = CliRunner().invoke(cli.app, ["transform", "m", "hdf5:x.h5ad?name=varm/loadings", "--out", "y.h5ad"])
    assert f"x.h5ad has {N} cells, but {F} samples were read from it" in str(result.exception)
    assert not Path("y.h5ad").exists()
    np.save("x.npy", X)
    result = CliRunner().invoke(cli.app, ["transform", "m", "x.npy", "--out", "y.h5ad"])
    assert "x.npy is not an .h5ad file" in str(result.exception)
    result = CliRunner().invoke(cli.app, ["transform", "m", "x.npy", "--out", "x.npy"])
    assert "x.npy is an input" in result.stderr


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_no_output_holds_the_rows_that_it_was_given(tmp_path: Path, suffix: str) -> None:
    kind = outputs.kind_of(Path(f"h{suffix}"))
    assert kind is not None
    block = np.random.default_rng(0).random((500, 40))
    heading = outputs.Heading(tuple(f"c{k}" for k in range(40)), block.dtype, None, tmp_path)
    output = kind(tmp_path / f"h{suffix}", heading)
    output.write(block, None)
    tracemalloc.start()
    for _ in range(25):
        output.write(block, None)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()
    output.close()
    assert (tmp_path / f"h{suffix}").stat().st_size > 4e6


def test_parquet_is_written_in_groups_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(arrow, "GROUP", 2**16)
    block = np.random.default_rng(0).random((500, 4), dtype=np.float32)
    output = arrow.Parquet(tmp_path / "h.parquet", outputs.Heading(("a", "b", "c", "d"), block.dtype, None, tmp_path))
    for _ in range(50):
        output.write(block, None)
    output.close()
    found = parquet.read_metadata(tmp_path / "h.parquet")
    assert found.num_rows == 25_000
    assert found.num_row_groups == 50 // 9 + 1
    assert str(parquet.read_schema(tmp_path / "h.parquet").field("a").type) == "float"


# Standard output


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_standard_output_gets_the_rows_and_nothing_else(place: Path, model: OnlineNMF, out: str) -> None:
    said, error = transform("x.npy", "--out", out)
    header, *lines = csv.reader(io.StringIO(said))
    assert header == COLUMNS
    assert np.allclose(np.array(lines, dtype=float), model.transform(X), rtol=1e-8)
    assert f"standard output: coefficients of {N} samples, {K} each." in error


def command(*arguments: str) -> Any:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
    pipe = subprocess.PIPE
    return processes.start("-m", "onmf", *arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of texts."""
    monkeypatch.chdir(tmp_path)
    Path("x.txt").write_text("\n".join(TEXTS) + "\n")
    onmf.save(OnlineNMF(2, random_state=0).fit(open_source("text:x.txt?words=5")), "m")
    return tmp_path


@pytest.mark.usefixtures("texts")
def test_a_pipe_sees_the_rows_of_a_batch_before_the_next_comes() -> None:
    with command("transform", "m", "text:-", "--out", "-", "--batch-size", "2") as run:
        for _ in range(2):
            run.stdin.write("apples and pears\nplums\n")
            run.stdin.flush()
            lines = [run.stdout.readline() for _ in range(3 if _ == 0 else 2)]
            assert len(lines[-1].split(",")) == 2  # while standard input is still open
        out, error = run.communicate(timeout=60)
        assert (run.returncode, out) == (0, "")
    assert "standard output: coefficients of 4 samples, 2 each." in error


@pytest.mark.usefixtures("texts")
def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word() -> None:
    with command("transform", "m", "x.txt", "--out", "-", "--batch-size", "1") as run:
        assert run.stdout.readline().startswith("component_0")
        run.stdout.close()
        error = run.stderr.read()
        assert run.wait(timeout=60) == 141
    assert "Traceback" not in error
    assert "Broken" not in error
    assert "Exception" not in error


def test_shuffled_rows_stay_as_they_come(model: OnlineNMF) -> None:
    """Rows in another order than their numbers' have no places to be kept at."""
    source = shuffle(Told(), buffer=50, seed=1)
    H = np.concatenate([block for _, block in model.served(source, 20, on_bad=lambda _: None)])
    order = np.concatenate([rows for rows, _ in shuffle(Told(), buffer=50, seed=1).batches(20)])
    assert np.allclose(H, model.transform(X)[order], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 20])
def test_no_rows_are_made_up_where_the_source_is_out_of_order(model: OnlineNMF, size: int) -> None:
    for source in (repeat(Rows(X[:50]), 2), shuffle(Rows(X[:50])), shuffle(repeat(Rows(X[:50]), 2), buffer=10)):
        parts = [block for _, block in model.served(source, size, on_bad=lambda _: None)]
        assert not np.isnan(np.concatenate(parts)).any()
        assert sum(map(len, parts)) == source.n_samples


def test_a_batch_that_is_skipped_leaves_as_many_rows_of_nan_as_it_has(model: OnlineNMF) -> None:
    broken = scipy.sparse.csr_matrix(X[:30])
    broken.indptr[5] = 10**9
    batches = [X[:20], X[:7, :3], X[20:60], broken, X[60:70], "none", X[:4].tolist(), [[1.0], [2.0, 3.0]]]
    said: list[str] = []
    found = list(model.served(Batches(batches), 25, on_bad=lambda error: said.append(str(error))))
    H, expected = np.concatenate([block for _, block in found]), model.transform(X)
    assert np.concatenate([rows for rows, _ in found]).tolist() == list(range(len(H)))
    lost = [*range(20, 27), *range(67, 97), 111, 112]
    assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == lost
    assert len(said) == 4
    kept = np.delete(np.arange(113), lost)
    assert np.allclose(H[kept], expected[[*range(70), *range(4)]], rtol=1e-6)
