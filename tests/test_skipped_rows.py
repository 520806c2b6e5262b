"""Under ``on_error="skip"`` a row that cannot be read costs itself alone: bytes, names, and streams in Python."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from click.testing import Result
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf._support.skipping import Unread
from onmf.cli import main as cli
from onmf.data import Batches, Rows, SourceError, open_source, prefetch, rebatch, scale, shuffle, take
from onmf.data.in_memory import count_rows
from tests import processes

from .conftest import require_same_learning
from .test_checkpoints import cut_short, resumed

N, BAD = 40, 11
X = np.random.default_rng(0).integers(1, 9, (N, 3)).astype(float)
IDS = [f"cell {row}" for row in range(N)]
WORDS = np.random.default_rng(1).choice(["cat", "dog", "horse", "cow"], (N, 6))
SPOILT = b"\xff\xe4"  # text in Latin-1, say


def table(delimiter: str) -> list[bytes]:
    rows = [[name, *map(str, row)] for name, row in zip(IDS, X, strict=True)]
    return [delimiter.join(row).encode() for row in (["id", "a", "b", "c"], *rows)]


def objects(texts: bool) -> list[bytes]:
    if texts:
        named = zip(IDS, WORDS, strict=True)
        return [json.dumps({"id": name, "body": " ".join(words)}).encode() for name, words in named]
    rows = zip(IDS, X.tolist(), strict=True)
    return [json.dumps({"id": name, "a": a, "b": b, "c": c}).encode() for name, (a, b, c) in rows]


def texts() -> list[bytes]:
    return [" ".join(words).encode() for words in WORDS]


# How the data are spelt, their lines, and how many of these are no samples.
KINDS: dict[str, tuple[str, Callable[[], list[bytes]], int]] = {
    "csv": ("csv:PATH?drop=id", lambda: table(","), 1),
    "tsv": ("tsv:PATH?drop=id", lambda: table("\t"), 1),
    "numbers": ("jsonl:PATH?features=a,b,c", lambda: objects(texts=False), 0),
    "fields": ("jsonl:PATH?field=body&hashed=64", lambda: objects(texts=True), 0),
    "texts": ("text:PATH?hashed=64", texts, 0),
}
NAMED = {
    "csv": ("csv:PATH?index=id", KINDS["csv"][1], 1),
    "tsv": ("tsv:PATH?index=id", KINDS["tsv"][1], 1),
    "numbers": ("jsonl:PATH?features=a,b,c&index=id", KINDS["numbers"][1], 0),
}
FIT = ["--components", "2", "--seed", "0", "--no-shuffle", "--batch-size", "7", "--out"]


def spoilt(line: bytes) -> bytes:
    """With two bytes in the middle of what it says."""
    middle = len(line) // 2
    return line[:middle] + SPOILT + line[middle:]


def onmf_command(command: str, spelling: str, content: list[bytes], piped: bool, *arguments: object) -> Result:
    """The result of a command on these lines, from a file or from standard input."""
    whole = b"\n".join(content) + b"\n"
    Path("data").write_bytes(whole)
    model = ["m"] if command == "transform" else []
    words = [command, *model, spelling.replace("PATH", "-" if piped else "data"), *map(str, arguments)]
    return CliRunner().invoke(cli.app, words, input=whole if piped else None, env={"COLUMNS": "200"})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# Bytes


@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_that_is_not_utf8_costs_its_row(kind: str, piped: bool) -> None:
    spelling, lines, header = KINDS[kind]
    good, content = lines(), lines()
    content[header + BAD] = spoilt(content[header + BAD])
    without = good[: header + BAD] + good[header + BAD + 1 :]
    assert onmf_command("fit", spelling, without, piped, *FIT, "expected").exit_code == 0
    result = onmf_command("fit", spelling, content, piped, *FIT, "m", "--on-error", "skip")
    assert result.exit_code == 0, result.output
    model = onmf.load("m")
    assert (model.n_skipped_, model.n_samples_seen_) == (1, N - 1)
    assert "holds the byte 0xff, which is not UTF-8" in model.skipped_[0]
    np.testing.assert_array_equal(model.components_, onmf.load("expected").components_)

    spelling = spelling.partition("&hashed")[0].partition("?hashed")[0]
    assert onmf_command("transform", spelling, good, piped, "--out", "good.npy").exit_code == 0
    result = onmf_command("transform", spelling, content, piped, "--out", "h.npy", "--on-error", "skip")
    assert f"1 of the {N} rows is NaN; the first reason: " in result.stderr
    H, expected = np.load("h.npy"), np.load("good.npy")
    assert np.isnan(H[BAD]).all()
    np.testing.assert_allclose(np.delete(H, BAD, axis=0), np.delete(expected, BAD, axis=0), rtol=1e-6)


@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
@pytest.mark.parametrize("kind", KINDS)
def test_otherwise_it_is_named_by_source_and_row_with_the_cure(kind: str, piped: bool) -> None:
    spelling, lines, header = KINDS[kind]
    content = lines()
    assert onmf_command("fit", spelling, content, piped, *FIT, "m").exit_code == 0
    content[header + BAD] = spoilt(content[header + BAD])
    where = "standard input" if piped else "data"
    row = f"row {BAD} "
    for command, arguments in (("fit", [*FIT, "m2"]), ("transform", ["--out", "h.npy"])):
        result = onmf_command(command, spelling, content, piped, *arguments)
        assert isinstance(result.exception, SourceError)
        said = str(result.exception)
        assert said.startswith(f"{where}: {row}")
        assert said.endswith(
            "holds the byte 0xff, which is not UTF-8 there; convert the data to UTF-8, with iconv for example."
        )


def test_a_pipe_of_the_system_goes_on_after_such_a_byte() -> None:
    command = ["-m", "onmf", "fit", "text:-?hashed=64", *FIT, "m", "--on-error", "skip"]
    content = texts()
    content[BAD] = spoilt(content[BAD])
    result = processes.run(*command, given=b"\n".join(content))
    assert result.returncode == 0, result.stderr
    assert onmf.load("m").n_samples_seen_ == N - 1


@pytest.mark.parametrize("skip", [[], ["--on-error", "skip"]], ids=["raise", "skip"])
@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
def test_names_of_columns_that_are_not_utf8_and_utf16_are_always_refused(piped: bool, skip: list[str]) -> None:
    content = table(",")
    content[0] = "id,Größe,b,c".encode("latin-1")
    result = onmf_command("fit", "csv:PATH?drop=id", content, piped, *FIT, "m", *skip)
    assert "the line that names the columns holds the byte 0xf6, which is not UTF-8 there; " in str(result.exception)
    wide = "\n".join(["id,a", "1,2"]).encode("utf-16")
    for spelling in ("text:PATH?hashed=64", "csv:PATH", "jsonl:PATH?field=body"):
        result = onmf_command("fit", spelling, [wide], piped, *FIT, "m", *skip)
        assert " is UTF-16; convert the data to UTF-8" in str(result.exception)


def test_a_vocabulary_is_learnt_from_the_texts_that_can_be_read() -> None:
    content = texts()
    content[BAD] = SPOILT + b" zebra"
    content[BAD + 1] += " größer".encode()
    Path("x.txt").write_bytes(b"\n".join(content))
    source = open_source("x.txt?words=9")
    assert (source.n_samples, source.feature_names) == (N, ["cat", "cow", "dog", "größer", "horse"])
    assert OnlineNMF(2, random_state=0, on_error="skip").fit(source).n_skipped_ == 1
    with pytest.raises(SourceError, match=rf"x.txt: row {BAD} holds the byte 0xff"):
        OnlineNMF(2, random_state=0).fit(source)


def test_a_byte_in_a_column_that_is_not_asked_for_costs_its_row_too() -> None:
    Path("x.csv").write_bytes(b"a,b,by\n1,2,me\n3,4,M\xfcller\n5,6,\xc3\xbc\n")
    said: list[str] = []
    found = list(open_source("x.csv?drop=by").batches(9, on_bad=lambda error: said.append(str(error))))
    assert [rows.tolist() for rows, _ in found] == [[0, 2]]
    assert "row 1 holds the byte 0xfc" in said[0]


# Names


@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
@pytest.mark.parametrize("kind", NAMED)
def test_rows_with_names_are_nan_under_their_names(kind: str, piped: bool) -> None:
    spelling, lines, header = NAMED[kind]
    good, content = lines(), lines()
    assert onmf_command("fit", spelling, good, piped, *FIT, "m").exit_code == 0
    lost = {0: IDS[0], 5: "row 5", 20: IDS[20], N - 1: IDS[N - 1]}  # of the second, the name itself is spoilt
    content[header] = content[header].replace(str(X[0, 2]).encode(), b"n/a" if header else b'"n/a"')
    content[header + 5] = content[header + 5].replace(b"cell", b"c" + SPOILT)
    content[header + 20] = content[header + 20].replace(
        str(X[20, 0]).encode(), SPOILT if header else b'"' + SPOILT + b'"'
    )
    content[header + N - 1] = content[header + N - 1].replace(str(X[N - 1, 1]).encode(), b"-1")
    result = onmf_command("transform", spelling, content, piped, "--out", "h.csv", "--on-error", "skip")
    assert f"{len(lost)} of the {N} rows are NaN; the first reason: " in result.stderr
    assert "n/a" in result.stderr
    with Path("h.csv").open(encoding="utf-8") as file:
        (index, *_), *rows = csv.reader(file)
    assert index == "id"
    assert [name for name, *_ in rows] == [lost.get(row, name) for row, name in enumerate(IDS)]
    H = np.array([row[1:] for row in rows], dtype=float)
    assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == sorted(lost)
    kept = np.setdiff1d(np.arange(N), sorted(lost))
    np.testing.assert_allclose(H[kept], next(onmf.load("m").transform(Rows(X[kept]))), rtol=1e-6)

    result = onmf_command("fit", spelling, content, piped, *FIT, "m", "--on-error", "skip")
    assert result.exit_code == 0, result.output
    model: Any = onmf.load("m")
    assert (model.n_skipped_, model.n_samples_seen_) == (len(lost), N - len(lost))
    assert ["n/a" in model.skipped_[0], "row 5 " in model.skipped_[1], "row cell 39" in model.skipped_[3]] == [True] * 3
    expected = OnlineNMF(2, random_state=0, shuffle=False, batch_size=7).fit(X[kept])
    np.testing.assert_array_equal(model.components_, expected.components_)


def test_a_gap_in_parquet_is_nan_under_the_name_of_its_row() -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    a = [None if row == BAD else value for row, value in enumerate(X[:, 0].tolist())]
    parquet.write_table(pa.table({"id": IDS, "a": a, "b": X[:, 1], "c": X[:, 2]}), "x.parquet")
    onmf.save(OnlineNMF(2, random_state=0).fit(X), "m")
    result = CliRunner().invoke(
        cli.app, ["transform", "m", "x.parquet?index=id", "--out", "h.csv", "--on-error", "skip"]
    )
    assert result.exit_code == 0, result.output
    lines = Path("h.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == IDS
    assert lines[BAD] == f"{IDS[BAD]},nan,nan"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("x,1", "x"),  # breaks off after its name
        ("x,1,2,3", "x"),
        ("x", "row 1"),  # perhaps breaks off within its name
        ('"x,1,2', "row 1"),
        ("x,1,oh", "x"),
        (",1,oh", "row 1"),
    ],
)
def test_the_name_of_a_bad_line_is_told_only_if_it_is_known(line: str, name: str) -> None:
    Path("x.csv").write_text(f"id,a,b\nfirst,1,2\n{line}\nlast,3,4\n")
    for size in (1, 2, 9):
        found = list(open_source("x.csv?index=id").batches(size, on_bad=pytest.fail))
        rows, numbers = (np.concatenate(parts) for parts in zip(*found, strict=True))
        assert rows.tolist() == ["first", name, "last"]
        assert isinstance(rows[1], Unread)
        np.testing.assert_array_equal(numbers, [[1, 2], [np.nan, np.nan], [3, 4]])


def test_where_the_name_does_not_come_first_a_ragged_line_does_not_tell_it() -> None:
    Path("x.csv").write_text("a,id,b\n1,first,2\n1,5,second,3\n")
    ((rows, _),) = open_source("x.csv?index=id").batches(9, on_bad=pytest.fail)
    assert rows.tolist() == ["first", "row 1"]


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ('{"id": "x", "a": "n/a"}', "x", "is not a number at row x"),
        ('{"id": 7}', "7", "row 7 has no field 'a'"),
        ('{"a": 5}', "row 1", "has no field 'id'"),
        ("{nonsense", "row 1", "is not a JSON object"),
        (r'{"id": "\ud800", "a": 5}', "row 1", r"is named '\\ud800', which is not valid Unicode"),
    ],
)
def test_the_name_of_a_bad_object_is_told_only_if_it_is_known(line: str, name: str, words: str) -> None:
    Path("x.jsonl").write_text('{"id": "first", "a": 1}\n' + line + '\n{"id": "last", "a": 3}\n')
    source = open_source("x.jsonl?features=a&index=id")
    ((rows, numbers),) = source.batches(9, on_bad=pytest.fail)
    assert rows.tolist() == ["first", name, "last"]
    np.testing.assert_array_equal(numbers, [[1], [np.nan], [3]])
    with pytest.raises(SourceError, match=words):
        list(source.batches(9))


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ('{"id": "x", "body": 5}', "x", r"row 1 .* has no text in the field 'body'"),
        (
            '{"id": 7, "title": "t"}',
            "7",
            r"row 1 .* has no field 'body'; its fields are id, title: choose",
        ),
        ('{"body": "a cat"}', "row 1", r"row 1 .* has no field 'id', which names the rows; its fields are body"),
        ("{nonsense", "row 1", r"row 1 .* is not a JSON object"),
        (r'{"id": "\ud800", "body": "a"}', "row 1", r"row 1 .* is named '\\ud800', which is not valid Unicode"),
    ],
)
def test_the_name_of_a_bad_text_is_told_only_if_it_is_known(line: str, name: str, words: str) -> None:
    Path("x.jsonl").write_text('{"id": "first", "body": "a cat"}\n' + line + '\n{"id": "last", "body": "dogs"}\n')
    with pytest.raises(SourceError, match=words):
        list(open_source("x.jsonl?field=body&index=id&hashed=8").batches(9))
    source = open_source("x.jsonl?field=body&index=id")  # a vocabulary of the texts that can be read
    ((rows, counts),) = source.batches(9, on_bad=pytest.fail)
    assert (rows.tolist(), source.index_name, source.n_samples) == (["first", name, "last"], "id", 3)
    assert np.isnan(counts.toarray()).any(axis=1).tolist() == [False, True, False]
    assert source.feature_names == ["cat", "dogs"]


@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
def test_coefficients_of_texts_are_under_the_names_of_their_objects(piped: bool) -> None:
    content, spelling = objects(texts=True), "jsonl:PATH?field=body&index=id"
    assert onmf_command("fit", spelling, content, False, *FIT, "m").exit_code == 0
    content[5] = b'{"id": "gone"}'
    result = onmf_command("transform", "jsonl:PATH?index=id", content, piped, "--out", "h.csv", "--on-error", "skip")
    assert "1 of the 40 rows is NaN; the first reason: " in result.stderr
    head, *lines = Path("h.csv").read_text().splitlines()
    assert head == "id,component_0,component_1"
    assert [line.split(",")[0] for line in lines] == [*IDS[:5], "gone", *IDS[6:]]
    assert lines[5] == "gone,nan,nan"


@pytest.mark.parametrize(
    "tool",
    [prefetch, lambda source: rebatch(source, 3), lambda source: take(source, N), lambda source: scale(source, 2.0)],
    ids=["prefetch", "rebatch", "take", "scale"],
)
def test_every_tool_keeps_a_row_that_could_not_be_read_at_its_place(tool: Callable[[Any], Any]) -> None:
    content = table(",")
    content[1 + BAD] = spoilt(content[1 + BAD])
    Path("x.csv").write_bytes(b"\n".join(content))
    model = OnlineNMF(2, random_state=0, on_error="skip").fit(X)
    H = np.concatenate(list(model.transform(tool(nameless("x.csv?index=id")))))
    assert np.flatnonzero(np.isnan(H[:, 0])).tolist() == [BAD]
    shuffled = OnlineNMF(2, random_state=0, on_error="skip").fit(shuffle(tool(nameless("x.csv?index=id")), 9))
    assert (shuffled.n_samples_seen_, shuffled.n_skipped_) == (N - 1, 1)
    assert "0xff" in shuffled.skipped_[0]


def nameless(text: str) -> Any:
    """A source whose features have no names, as those of the array that the model was learnt from."""
    source = open_source(text)
    source.feature_names = None
    return source


@pytest.mark.parametrize("index", ["drop=id", "index=id"])
def test_a_table_without_one_good_row_is_an_error_with_and_without_names(index: str) -> None:
    onmf.save(OnlineNMF(2, random_state=0).fit(X), "m")
    content = [table(",")[0], *(line[:-3] + b"n/a" for line in table(",")[1:])]
    result = onmf_command("transform", f"csv:PATH?{index}", content, False, "--out", "h.csv", "--on-error", "skip")
    assert result.exit_code == 2
    assert "has no sample that could be read. data: 'n/a' is not a number" in result.stderr
    assert not Path("h.csv").exists()


# Batches


@pytest.mark.parametrize("cell", ["n/a", "nan", "-1", "inf", "", "1,5"])
@pytest.mark.parametrize("index", ["drop=id", "index=id"])
@pytest.mark.parametrize("size", [5, 12])
def test_batches_of_a_fixed_size_are_those_of_the_table_without_the_row(cell: str, index: str, size: int) -> None:
    rows = [[name, *map(str, row)] for name, row in zip(IDS, X, strict=True)]
    rows[BAD][2] = cell
    Path("x.csv").write_text("\n".join(map(",".join, [["id", "a", "b", "c"], *rows])))
    settings: dict[str, Any] = {"n_components": 2, "random_state": 0, "batch_size": size, "shuffle": False}
    model = OnlineNMF(**settings, on_error="skip").fit(open_source(f"x.csv?{index}"))
    assert (model.n_skipped_, model.n_samples_seen_) == (1, N - 1)
    expected = OnlineNMF(**settings).fit(np.delete(X, BAD, axis=0))
    np.testing.assert_array_equal(model.components_, expected.components_)


@pytest.mark.parametrize("kind", ["array", "shuffled", "table"])
def test_such_batches_are_the_same_after_a_resumption(kind: str) -> None:
    data = X.copy()
    data[[3, *range(14, 21), 33, N - 1], 1] = np.nan
    rows = [[name, *map(str, row)] for name, row in zip(IDS, data, strict=True)]
    rows[22][3] = "n/a" if kind == "table" else "1"
    Path("x.csv").write_text("\n".join(map(",".join, [["id", "a", "b", "c"], *rows])))

    def source() -> Any:
        return open_source("x.csv?index=id") if kind == "table" else Rows(data)

    settings: dict[str, Any] = {"n_components": 2, "random_state": 0, "batch_size": 5, "max_passes": 2}
    settings |= {"on_error": "skip", "shuffle": kind == "shuffled"}
    told: list[int] = []
    whole = OnlineNMF(**settings, callbacks=[lambda progress: told.append(len(progress.H))]).fit(source())
    lost = 11 if kind == "table" else 10
    assert (whole.n_skipped_, sum(told)) == (2 * lost, 2 * (N - lost))
    assert set(told) <= {5, (N - lost) % 5}
    for batches in range(1, len(told) + 1):
        cut_short(source(), Path(f"run{batches}"), batches, **settings)
        require_same_learning(resumed(source(), Path(f"run{batches}"), **settings), whole)


# Python


@pytest.fixture(scope="module")
def model() -> OnlineNMF:
    return OnlineNMF(2, random_state=0, on_error="skip").fit(X)


def test_transform_of_a_source_leaves_nan_where_rows_cannot_be_read_or_transformed(
    model: OnlineNMF, caplog: pytest.LogCaptureFixture
) -> None:
    content = table(",")
    content[1 + BAD] = spoilt(content[1 + BAD])
    content[1 + 3] = content[1 + 3].replace(b".0", b"e300")
    Path("x.csv").write_bytes(b"\n".join(content))
    for index in ("drop=id", "index=id"):
        caplog.clear()
        H = np.concatenate(list(model.transform(nameless(f"x.csv?{index}"))))
        assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == [3, BAD]
        np.testing.assert_allclose(H[12:], model.transform(X[12:]), rtol=1e-6)
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
        assert "Skipped: x.csv: row 11 holds the byte 0xff" in caplog.text
        assert f"2 of the {N} rows are NaN." in caplog.text
    strict = OnlineNMF(2, random_state=0).fit(X)
    with pytest.raises(SourceError, match="row 11"):
        list(strict.transform(nameless("x.csv?drop=id")))


def test_transform_of_an_iterator_gives_an_array_per_batch_with_nan_where_rows_are_bad(model: OnlineNMF) -> None:
    bad = X[:10].copy()
    bad[4, 1] = np.nan
    broken = scipy.sparse.csr_matrix(X[:6])
    broken.indptr[2] = 10**9
    batches = [X[:5], bad, X[:7, :2], broken, "no batch", [[1.0], [2.0, 3.0]], scipy.sparse.csr_matrix(X[:3]), object()]
    found = list(model.transform(iter(batches)))
    assert [H.shape for H in found] == [(rows, 2) for rows in (5, 10, 7, 6, 0, 2, 3, 0)]
    H = np.concatenate(found)
    assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == [9, *range(15, 30)]
    np.testing.assert_allclose(found[0], model.transform(X[:5]), rtol=1e-6)
    np.testing.assert_allclose(np.delete(found[1], 4, axis=0), model.transform(np.delete(X[:10], 4, axis=0)), rtol=1e-6)
    strict = OnlineNMF(2, random_state=0).fit(X)
    with pytest.raises(onmf.DataError, match="row 4"):
        list(strict.transform(iter([X, bad])))
    with pytest.raises(onmf.DataError, match="row 4"):  # an array is no stream: its caller sees which rows are bad
        model.transform(bad)


def test_a_source_of_nothing_but_bad_rows_is_nothing_but_nan(model: OnlineNMF) -> None:
    Path("x.csv").write_text("a,b,c\n" + "1,2,n/a\n" * 9)
    H = np.concatenate(list(model.transform(nameless("x.csv"))))
    assert H.shape == (9, 2)
    assert np.isnan(H).all()


def test_a_long_log_counts_what_it_does_not_name(model: OnlineNMF, caplog: pytest.LogCaptureFixture) -> None:
    list(model.transform(iter([np.full((50, 3), np.nan), X])))
    assert caplog.text.count("Skipped: ") == 20
    assert "counted, not named" in caplog.text
    assert "50 of the 90 rows are NaN." in caplog.text


def test_a_model_without_on_error_refuses_bad_rows_of_streams() -> None:
    batch = BatchNMF(2, random_state=0, max_iter=3, tol=0).fit(X)
    bad = X.copy()
    bad[4, 1] = np.nan
    for given in (Batches([bad]), iter([bad])):
        with pytest.raises(onmf.DataError, match="row 4"):
            list(batch.transform(given))


def test_the_rows_of_an_object_that_is_no_array_are_not_asked_for_one_by_one() -> None:
    class Endless:
        def __getitem__(self, row: int) -> float:
            pytest.fail("asked for an entry")

        def __len__(self) -> int:
            return 10**9

    assert count_rows(Endless()) == 0
