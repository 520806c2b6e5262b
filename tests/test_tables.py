"""Tables as people have them: columns chosen and aligned by name, names of rows, and bad cells that cost their row."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import onmf
from onmf import OnlineNMF
from onmf.data import Batches, Numbered, Source, SourceError, open_source, prefetch, rebatch, scale, shuffle, take
from onmf.data.arrow import ArrowFiles
from onmf.data.columns import TableOptions, choose
from onmf.data.tables import Table
from onmf.model.validation import DataError, good_rows, require_valid_entries

N = 23
X = np.random.default_rng(3).integers(0, 9, (N, 3)).astype(float)
IDS = [f"cell {row}" for row in range(N)]
TIMES = [f"2020-01-{row + 1:02}" for row in range(N)]
NAMES = ["id", "a", "time", "b", "c"]


def rows_of_texts() -> list[list[str]]:
    return [
        [name, f"{a:.17g}", time, f"{b:.17g}", f"{c:.17g}"] for name, time, (a, b, c) in zip(IDS, TIMES, X, strict=True)
    ]


def write_text(folder: Path, suffix: str) -> str:
    delimiter = "," if suffix == "csv" else "\t"
    (folder / f"x.{suffix}").write_text("\n".join(map(delimiter.join, [NAMES, *rows_of_texts()])))
    return str(folder / f"x.{suffix}")


def arrow_table() -> Any:
    a, b, c = X.T
    return pytest.importorskip("pyarrow").table(dict(zip(NAMES, (IDS, a, TIMES, b, c), strict=True)))


def write_parquet(folder: Path) -> str:
    pytest.importorskip("pyarrow.parquet").write_table(arrow_table(), folder / "x.parquet", row_group_size=7)
    return str(folder / "x.parquet")


def write_arrow(folder: Path, stream: bool) -> str:
    table = arrow_table()
    ipc = pytest.importorskip("pyarrow.ipc")
    with (ipc.new_stream if stream else ipc.new_file)(str(folder / "x.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return str(folder / "x.arrow")


TABLES: dict[str, Callable[[Path], str]] = {
    "csv": lambda folder: write_text(folder, "csv"),
    "tsv": lambda folder: write_text(folder, "tsv"),
    "parquet": write_parquet,
    "arrow": lambda folder: write_arrow(folder, stream=False),
    "arrow stream": lambda folder: write_arrow(folder, stream=True),
}


def collected(batches: Numbered) -> tuple[list[Any], np.ndarray]:
    rows, parts = zip(*batches, strict=True)
    return np.concatenate(rows).tolist(), np.concatenate(parts)


@pytest.mark.parametrize("kind", TABLES)
def test_columns_are_chosen_and_ordered_by_name(kind: str, tmp_path: Path) -> None:
    path = TABLES[kind](tmp_path)
    for options, names, expected in (
        ("columns=a,b,c", ["a", "b", "c"], X),
        ("columns=c,a", ["c", "a"], X[:, [2, 0]]),
        ("drop=time,id", ["a", "b", "c"], X),
        ("drop=time&index=id", ["a", "b", "c"], X),
        ("index=id&columns=b", ["b"], X[:, [1]]),
    ):
        source = open_source(f"{path}?{options}")
        assert (source.feature_names, source.n_features) == (names, len(names))
        for size in (1, 5, 100):
            rows, found = collected(source.batches(size))
            np.testing.assert_array_equal(found, expected)
            assert rows == (IDS if "index" in options else list(range(N)))


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_is_missing_or_asked_for_twice_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = TABLES[kind](tmp_path)
    for options, words in (
        ("columns=a,z", "has no column 'z'; its columns are id, a, time, b, c"),
        ("drop=z", "has no column 'z'"),
        ("index=z", "has no column 'z'"),
        ("columns=a,a", "the column 'a' is asked for 2 times"),
        ("drop=id,a,time,b,c", "has no columns left"),
    ):
        with pytest.raises(SourceError, match=words):
            open_source(f"{path}?{options}")
    with pytest.raises(SourceError, match="has no columns left"):
        choose(path, ["a", "b"], [])
    with pytest.raises(SourceError, match=r"\?index=time takes this column .* \?drop=time leaves it out"):
        collected(open_source(f"{path}?drop=id").batches(5))  # the time is no number


def test_columns_in_another_order_are_aligned_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("c,a,b\n" + "\n".join(f"{c},{a},{b}" for a, b, c in X))
    source = Table(tmp_path / "x.csv", ",", None, TableOptions(columns=["a", "b", "c"]))
    assert source.feature_names == ["a", "b", "c"]
    np.testing.assert_array_equal(collected(source.batches(4))[1], X)
    source = ArrowFiles(Path(write_parquet(tmp_path)), "parquet", TableOptions(columns=["b", "a"]))
    np.testing.assert_array_equal(collected(source.batches(4))[1], X[:, [1, 0]])


def test_names_with_commas_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"length, cm",b,c\n1,2,3\n')
    source = open_source(f'{tmp_path}/x.csv?columns=c,"length, cm"')
    assert source.feature_names == ["c", "length, cm"]
    assert collected(source.batches(1))[1].tolist() == [[3, 1]]


def test_columns_without_names_are_chosen_by_number_or_take_the_names(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x,1,2,3\ny,4,5,6\n")
    for options, rows, expected, names in (
        ("columns=3,1", [0, 1], [[3, 1], [6, 4]], None),
        ("drop=2&index=0", ["x", "y"], [[1, 3], [4, 6]], None),
        ("index=0&columns=a,b,c", ["x", "y"], [[1, 2, 3], [4, 5, 6]], ["a", "b", "c"]),
    ):
        source = open_source(f"{tmp_path}/x.csv?{options}")
        found, numbers = collected(source.batches(5))
        assert (found, numbers.tolist(), source.feature_names) == (rows, expected, names)
    with pytest.raises(SourceError, match="has no column 'a'; its columns are 0, 1, 2, 3"):
        open_source(f"{tmp_path}/x.csv?columns=a,b")


def test_equal_names_are_fine_as_long_as_none_of_them_is_asked_for(tmp_path: Path) -> None:
    assert choose("x", ["a", "a", "b"], columns=["a", "a", "b"]) == ([0, 1, 2], None, None)
    assert choose("x", ["a", "a", "b"], columns=["b"]) == ([2], None, None)
    with pytest.raises(SourceError, match="has 2 columns named 'a'"):
        choose("x", ["a", "a", "b"], columns=["a"])


def test_record_batches_that_are_damaged_are_refused_before_they_are_used(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pa.ipc.new_stream(str(tmp_path / "twice.arrow"), twice.schema) as writer:
        writer.write_table(twice)
    with pytest.raises(SourceError, match="several columns named 'a'"):
        open_source(tmp_path / "twice.arrow")
    whole = Path(write_arrow(tmp_path, stream=True)).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(0, len(content), 3):
            content[place] = rng.integers(0, 256)
        (tmp_path / "x.arrow").write_bytes(content)
        try:
            rows, found = collected(open_source(f"{tmp_path}/x.arrow?index=id&drop=time").batches(5))
        except SourceError:
            refused += 1
        else:
            assert found.shape == (len(rows), 3)
    assert refused > 50


@pytest.mark.parametrize("again", [False, True])
def test_an_index_of_pandas_names_the_rows_and_is_said(
    again: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"], index=IDS)
    frame.to_csv(tmp_path / "x.csv")
    if again:  # read and written without a thought of the index
        pandas.read_csv(tmp_path / "x.csv").to_csv(tmp_path / "x.csv", index=False)
    source = open_source(tmp_path / "x.csv")
    assert source.feature_names == ["a", "b", "c"]
    rows, found = collected(source.batches(5))
    assert rows == IDS
    np.testing.assert_array_equal(found, X)
    assert [record.name for record in caplog.records] == ["onmf"]
    assert "the first column has no name, as pandas writes row names" in caplog.text
    caplog.clear()
    name = "Unnamed: 0" if again else ""
    assert open_source(f"{tmp_path}/x.csv?drop={name},b").feature_names == ["a", "c"]
    assert not caplog.records


def test_every_tool_and_message_copes_with_names_of_rows(tmp_path: Path) -> None:
    path = f"{write_text(tmp_path, 'csv')}?index=id&drop=time"
    for tool in (
        lambda source: prefetch(source),
        lambda source: rebatch(source, 4),
        lambda source: take(source, 100),
        lambda source: scale(source, 1.0),
        lambda source: shuffle(source, 4),
    ):
        rows, found = collected(tool(open_source(path)).batches(6))
        assert sorted(rows) == sorted(IDS)
        np.testing.assert_array_equal(found, X[[IDS.index(row) for row in rows]])
    OnlineNMF(2, random_state=0).fit(shuffle(open_source(path), 10))
    names = np.array(IDS, dtype=object)
    spoilt = X.copy()
    spoilt[[7, 3], [1, 2]] = np.nan
    with pytest.raises(DataError, match="NaN in the data at row cell 3, column 2"):
        require_valid_entries(spoilt, names)
    huge = Named(np.full((N, 3), 1e200), names)
    with np.errstate(all="ignore"), pytest.raises(DataError, match="rows cell 0 to cell 22, makes"):
        OnlineNMF(2, divergence="squared_l2", random_state=0, shuffle=False, batch_size=N).fit(huge)


class Named(Source):
    """Two batches: ordinary ones, then these."""

    def __init__(self, X: np.ndarray, names: np.ndarray) -> None:
        self.X, self.names, self.n_features = X, names, X.shape[1]

    def batches(self, size: int, rng: Any = None, on_bad: Any = None) -> Numbered:
        return iter([(self.names, X), (self.names, self.X)])


# Bad cells


def with_a_bad_cell(kind: str, folder: Path, cell: str = "n/a") -> str:
    rows = rows_of_texts()
    rows[11][3] = cell
    if kind == "jsonl":
        a, b, c = X.T.tolist()
        objects = [
            {"id": name, "a": one, "b": two, "c": three} for name, one, two, three in zip(IDS, a, b, c, strict=True)
        ]
        objects[11]["b"] = cell
        (folder / "x.jsonl").write_text("\n".join(map(json.dumps, objects)))
        return f"{folder}/x.jsonl?features=a,b,c"
    delimiter = "," if kind == "csv" else "\t"
    (folder / f"x.{kind}").write_text("\n".join(map(delimiter.join, [NAMES, *rows])))
    return f"{folder}/x.{kind}?drop=time" + ("" if kind == "tsv" else ",id")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_bad_cell_costs_its_row_and_the_others_keep_their_numbers(kind: str, tmp_path: Path) -> None:
    text = with_a_bad_cell(kind, tmp_path)
    said: list[str] = []
    for size in (1, 4, 23, 100):
        rows, found = collected(open_source(text).batches(size, on_bad=lambda error: said.append(str(error))))
        assert rows == [row for row in range(N) if row != 11]
        np.testing.assert_array_equal(found, np.delete(X, 11, axis=0))
    assert len(said) == 4
    assert all("n/a" in each and "row 11" in each for each in said)
    with pytest.raises(SourceError, match="row 11"):
        collected(open_source(text).batches(5))
    named, separator = text.replace("drop=time,id", "drop=time"), "&index=id"
    with pytest.raises(SourceError, match="row cell 11"):
        collected(open_source(named + separator).batches(5))


@pytest.mark.parametrize("cell", ["n/a", "nan", "-1", "inf", "", "1,5"])
@pytest.mark.parametrize("settings", [{}, {"batch_size": 23, "method": "paper"}], ids=["growing", "fixed"])
def test_skipping_learns_what_the_table_without_the_row_teaches(
    cell: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    text = with_a_bad_cell("csv", tmp_path, cell)
    settings = {"n_components": 2, "random_state": 0} | settings
    model = OnlineNMF(**settings, on_error="skip").fit(open_source(text))
    assert (model.n_skipped_, model.n_samples_seen_) == (1, N - 1)
    assert "row 11" in model.skipped_[0]
    settings |= {"shuffle": False}
    expected = OnlineNMF(**settings).fit(np.delete(X, 11, axis=0))
    np.testing.assert_array_equal(model.components_, expected.components_)


def test_all_rows_that_are_ragged_are_left_out_even_where_their_columns_are_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b,c\n1,2,3\n4,5\n6,7,8,9\n"1,0",5,5\n10,11,12\n"x,y",2,3\n')
    said: list[str] = []
    source = open_source(f"{tmp_path}/x.csv?columns=b")
    rows, found = collected(source.batches(10, on_bad=lambda error: said.append(str(error))))
    assert rows == [0, 3, 4, 5]  # a delimiter in quotes is none
    assert found.ravel().tolist() == [2, 5, 11, 2]
    assert ["row 1 has 2 values" in said[0], "row 2 has 4 values" in said[1]] == [True, True]


@pytest.mark.parametrize("sparse", [False, True])
def test_good_rows_are_those_without_bad_entries(sparse: bool) -> None:
    spoilt = X.copy()
    spoilt[2, 1], spoilt[5, 0], spoilt[9, 2] = np.nan, -1.0, np.inf
    data = scipy.sparse.csr_matrix(spoilt) if sparse else spoilt
    kept, errors = good_rows(data, np.arange(100, 100 + N))
    assert kept == [row for row in range(N) if row not in (2, 5, 9)]
    assert [f"row {row}" in str(error) for row, error in zip((102, 105, 109), errors, strict=True)] == [True] * 3
    kept, errors = good_rows(data[2:3], np.array(["Anna"], dtype=object))
    assert (kept, len(errors)) == ([], 1)
    assert "row Anna" in str(errors[0])
    assert good_rows(X, np.arange(N)) == (list(range(N)), [])


def test_one_bad_row_of_an_iterator_or_an_array_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    data = np.random.default_rng(0).gamma(1.0, 1.0, (900, 5))
    data[[3, 450]] = np.nan
    with caplog.at_level(logging.WARNING, "onmf"):
        for given in (data, Batches(np.array_split(data, 7))):
            model = OnlineNMF(2, random_state=0, on_error="skip").fit(given)
            assert (model.n_samples_seen_, model.n_skipped_) == (898, 2)


def test_a_cell_that_is_too_long_costs_its_row_alone(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3," + "x" * 200_000 + "\n5,6\n")
    said: list[str] = []
    rows, found = collected(open_source(tmp_path / "x.csv").batches(5, on_bad=lambda error: said.append(str(error))))
    assert (rows, found.tolist()) == ([0, 2], [[1, 2], [5, 6]])
    assert ["row 1 cannot be read: field larger than field limit (131072)." in each for each in said] == [True]


# JSON Lines


QUOTED = {
    "a text that is no feature": ('id,text,a,b\n0,x,1,2\n1,"foo\nbar, baz",2,3\n', "?columns=a,b", "row 1 has"),
    "in the last column": ('a,b,text\n1,2,x\n1,2,"foo\nbar"\n', "?drop=text", "row 1 has"),
    "a name of a row": ('id,a,b\n"x\ny",1,2\n', "?index=id", "row 0 has"),
    "a number": ('a,b\n1,2\n3,"4\n"\n', "", "row 1 has"),
    "a name of a column": ('"a\nb",c\n1,2\n', "", "its first line has"),
}


@pytest.mark.parametrize("case", QUOTED)
def test_a_line_break_within_quotes_is_refused_with_the_cure(case: str, tmp_path: Path) -> None:
    content, options, where = QUOTED[case]
    (tmp_path / "x.csv").write_text(content)
    words = f"{where} a quoted text that continues in the next line; write the table without line breaks"
    with pytest.raises(SourceError, match=words):
        list(open_source(f"{tmp_path}/x.csv{options}").batches(10))


def test_quotes_within_a_line_are_fine_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('id,a,b\n\n5" pipe,1,2\n  \n"6"" pipe",3,"4"\n\n')
    ((rows, X),) = open_source(f"{tmp_path}/x.csv?index=id").batches(10)
    assert rows.tolist() == ['5" pipe', '6" pipe']
    assert X.tolist() == [[1, 2], [3, 4]]


def test_json_lines_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1, "b": true, "id": 7}\n\n{"b": 2.5, "a": 3e2, "id": "x"}\n')
    source = open_source(f"{tmp_path}/x.jsonl?features=b,a")
    assert (source.feature_names, source.rewinds) == (["b", "a"], True)
    for _ in range(2):
        assert collected(source.batches(5))[1].tolist() == [[1, 1], [2.5, 300]]
    assert collected(open_source(f"{tmp_path}/x.jsonl?features=a&index=id").batches(1))[0] == ["7", "x"]
    for options, words in (
        ("features=a,z", "row 0 has no field 'z'; its fields are "),
        ("features=a,a", "asked for twice"),
        ("features=a&field=b", "give one of them"),
        ("index=id", "choose those of numbers by features="),
        ("features=a&index=name", r"row 0 \(counted from 0\) has no field 'name', which names the rows"),
    ):
        with pytest.raises(SourceError, match=words):
            collected(open_source(f"{tmp_path}/x.jsonl?{options}").batches(5))
    (tmp_path / "x.jsonl").write_text('{"a": 1' + "0" * 400 + "}\n{nonsense\n" + "[" * 9**5)
    said: list[str] = []
    rows, found = collected(
        open_source(f"{tmp_path}/x.jsonl?features=a").batches(5, on_bad=lambda error: said.append(str(error)))
    )
    assert (rows, found.tolist()) == ([0], [[np.inf]])  # which the learner refuses by its row
    assert ["row 1 " in said[0], "row 2 " in said[1]] == [True, True]


# Headers of numbers

PIVOTS = {
    "ids above ids": ("movieId,1,2,5\n1,4,,3\n7,2,5,1\n", ["1", "7"]),
    "ids in any order": ("movieId,5,1,2\n1,4,,3\n7,2,5,1\n", ["1", "7"]),
    "texts above texts": ("title,1,2,5\nJaws,4,,3\nHeat,2,5,1\n", ["Jaws", "Heat"]),
    "a first row without gaps": ("title,1,2,5\nJaws,4,1,3\nHeat,2,5,1\n", ["Jaws", "Heat"]),
    "one column of numbers": ("movieId,1\n1,4\n7,2\n", ["1", "7"]),
    "years and zeros": ("country,1990,1995\nMali,0,0\nPeru,1,0\n", ["Mali", "Peru"]),
    "pandas without a name": (",10,20\nJaws,4,2\nHeat,2,5\n", ["Jaws", "Heat"]),
    "pandas without any names": (",0,1\n0,4,2\n1,2,5\n", ["0", "1"]),
    "pandas, read and written again": ("Unnamed: 0,10,20\n3,4,2\n5,2,5\n", ["3", "5"]),
}


@pytest.mark.parametrize("case", PIVOTS)
def test_a_header_of_a_name_and_numbers_is_a_header_and_its_first_column_names_the_rows(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content, rows = PIVOTS[case]
    (tmp_path / "x.csv").write_text(content)
    names = content.split("\n", 1)[0].split(",")
    source = open_source(tmp_path / "x.csv")
    assert (source.feature_names, source.n_samples, source.named) == (names[1:], 2, True)
    found, numbers = collected(source.batches(5))
    assert found == rows
    expected = [[float(cell or "nan") for cell in line.split(",")[1:]] for line in content.splitlines()[1:]]
    np.testing.assert_array_equal(numbers, expected)
    assert "names the rows and is no feature" in caplog.text
    again = open_source(tmp_path / "x.csv", like=source.spec)
    assert (again.feature_names, again.n_samples) == (names[1:], 2)


SAMPLES_FIRST = {
    "rows that look like the first": "x,1,2,3\ny,4,5,6\n",
    "a first row out of order": "x,3,1,2\ny,4,5,6\n",
    "a first row with a gap": "x,1,,2\ny,4,5,6\n",
    "a missing first cell": ",2,3\n4,5,6\n",
    "a missing first cell as R writes it": "NA,2,3\n4,5,6\n",
    "one number": "x,1\ny,2\n",
}


@pytest.mark.parametrize("case", SAMPLES_FIRST)
def test_a_sample_that_begins_with_a_text_or_a_gap_is_no_header(case: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(SAMPLES_FIRST[case])
    source = open_source(f"{tmp_path}/x.csv?drop=0")
    assert (source.feature_names, source.n_samples) == (None, 2)
    if "x" in SAMPLES_FIRST[case]:
        with pytest.raises(SourceError, match=r"'x' is not a number .*\?header=yes if this line names the columns"):
            collected(open_source(tmp_path / "x.csv").batches(5))


def test_options_decide_where_a_first_line_may_be_either(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x,1,2\ny,4,3\n")
    assert open_source(tmp_path / "x.csv").feature_names == ["1", "2"]
    for options in ("index=0", "header=no&drop=0"):
        assert open_source(f"{tmp_path}/x.csv?{options}").n_samples == 2
    (tmp_path / "x.csv").write_text("total,1990,1995\n1,2,3\n4,5,6\n")
    assert open_source(f"{tmp_path}/x.csv?columns=total,1990,1995").n_features == 3
    assert open_source(f"{tmp_path}/x.csv?index=1990").feature_names == ["total", "1995"]


def test_a_pivot_table_of_pandas_is_learnt_from_and_transformed_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: Callable[..., Any]
) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    triples = pandas.DataFrame({"user": rng.integers(0, 30, 900), "movieId": rng.integers(0, 12, 900), "n": 1})
    pivot = triples.pivot_table(index="user", columns="movieId", values="n", aggfunc="sum", fill_value=0)
    pivot.to_csv(tmp_path / "x.csv")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "x.csv").open("rb") as file:
        monkeypatch.setattr("sys.stdin", __import__("io").TextIOWrapper(file))
        assert run_main("fit", "csv:-", "-k", 2, "--out", "m.safetensors")[0] == 0
    assert onmf.load("m.safetensors").feature_names_in_.tolist() == [str(name) for name in pivot.columns]
    assert run_main("transform", "m.safetensors", "x.csv", "--out", "H.csv")[0] == 0
    assert pandas.read_csv("H.csv", index_col="user").index.tolist() == pivot.index.tolist()
