"""Samples that come through pipes: standard input with a format, FIFOs, process substitution, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import onmf
from onmf.data import Source, SourceError, open_source
from tests import processes

X = np.random.default_rng(3).integers(0, 9, (23, 4)).astype(float)
NAMES = ["a", "b", "c", "d"]
TEXTS = ["the cat sat", "the dog sat down", "a cat and a dog"]


def table(delimiter: str) -> bytes:
    lines = [NAMES, *([f"{number:.17g}" for number in row] for row in X)]
    return "\n".join(map(delimiter.join, lines)).encode()


def objects() -> bytes:
    return "\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in X.tolist()).encode()


def arrays() -> bytes:
    file = io.BytesIO()
    for part in (X[:9], X[9:10].astype(np.float32), X[10:]):
        np.save(file, part)
    return file.getvalue()


def record_batches() -> bytes:
    pa = pytest.importorskip("pyarrow")
    whole = pa.table(dict(zip(NAMES, X.T, strict=True)))
    file = io.BytesIO()
    with pa.ipc.new_stream(file, whole.schema) as writer:
        for part in whole.to_batches(max_chunksize=9):
            writer.write_batch(part)
    return file.getvalue()


CONTENT: dict[str, Callable[[], bytes]] = {
    "csv:PATH": lambda: table(","),
    "tsv:PATH": lambda: table("\t"),
    "jsonl:PATH?features=a,b,c,d": objects,
    "npy:PATH": arrays,
    "arrow:PATH": record_batches,
}
Piped = Callable[[bytes], int]


@pytest.fixture
def piped() -> Iterator[Piped]:
    """A function that feeds a pipe, a few bytes at a time, and gives the descriptor to read from."""
    threads = []

    def feed(content: bytes) -> int:
        reading, writing = os.pipe()

        def write() -> None:
            # Whoever reads may have seen enough.
            with os.fdopen(writing, "wb", buffering=0) as file, contextlib.suppress(BrokenPipeError):
                for first in range(0, len(content), 50):
                    file.write(content[first : first + 50])

        threads.append(threading.Thread(target=write))
        threads[-1].start()
        return reading

    yield feed
    for thread in threads:
        thread.join(timeout=10)


@pytest.fixture
def standard_input(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """A function that puts a pipe with these bytes in the place of standard input."""
    opened = []

    def replace(content: bytes) -> None:
        opened.append(os.fdopen(piped(content), encoding="ascii", errors="surrogateescape"))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield replace
    for each in opened:
        each.close()


def whole(source: Source, size: int = 5) -> np.ndarray:
    found = list(source.batches(size))
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in found]), np.arange(sum(len(r) for r, _ in found)))
    assert all(len(rows) == size for rows, _ in found[:-1])
    return np.concatenate([b.toarray() if scipy.sparse.issparse(b) else b for _, b in found])


@pytest.mark.parametrize("spelling", CONTENT)
def test_standard_input_is_read_in_the_format_that_is_named(
    spelling: str, standard_input: Callable[[bytes], None]
) -> None:
    standard_input(CONTENT[spelling]())
    source = open_source(spelling.replace("PATH", "-"))
    assert (source.rewinds, source.n_samples, source.n_features) == (False, None, 4)
    assert source.feature_names == (None if spelling.startswith("npy") else NAMES)
    np.testing.assert_array_equal(whole(source), X)
    with pytest.raises(SourceError, match="standard input can be read only once"):
        source.batches(5)


@pytest.mark.parametrize("spelling", CONTENT)
def test_a_descriptor_of_the_process_is_read_like_standard_input(spelling: str, piped: Piped) -> None:
    descriptor = piped(CONTENT[spelling]())
    try:
        source = open_source(spelling.replace("PATH", f"/dev/fd/{descriptor}"))
        assert (source.rewinds, source.n_samples) == (False, None)
        np.testing.assert_array_equal(whole(source), X)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("spelling", ["csv:PATH", "npy:PATH", "arrow:PATH"])
def test_a_fifo_is_a_stream(spelling: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    content = CONTENT[spelling]()
    writer = threading.Thread(target=lambda: (tmp_path / "fifo").write_bytes(content))
    writer.start()
    np.testing.assert_array_equal(whole(open_source(spelling.replace("PATH", f"{tmp_path}/fifo"))), X)
    writer.join(timeout=10)


@pytest.mark.parametrize(
    ("spelling", "content"),
    [
        ("jsonl:-?field=body", "\n".join(json.dumps({"body": text}) for text in TEXTS)),
        ("text:-", "\n".join(TEXTS)),
        ("-", "\n".join(TEXTS)),
    ],
)
def test_texts_come_from_standard_input(spelling: str, content: str, standard_input: Callable[[bytes], None]) -> None:
    standard_input(content.encode())
    np.testing.assert_array_equal(whole(open_source(spelling)).sum(axis=1), [3, 4, 3])


def test_texts_that_were_looked_at_are_all_read(standard_input: Callable[[bytes], None]) -> None:
    texts = [f"größe number {row}" for row in range(40)]
    standard_input("\n".join(["\ufeffbegun", *texts]).encode())
    counts = whole(open_source("-?hashed=4096"), 7)
    assert counts.shape == (41, 4096)
    np.testing.assert_array_equal(counts.sum(axis=1)[:6], [1, 2, 2, 2, 2, 2])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1,2,3\n4,5,6\n", "write csv:- to read it"),
        (b"a,b,c\n4,5,6\n7,8,9\n", "write csv:- to read it"),
        (b"time,a,b\n2020-01-01,5,6\n2020-01-02,,9\n", "write csv:- to read it"),
        (b"1\t2\n", "write tsv:- to read it"),
        (b"5\n6\n7\n", "write csv:- to read it"),
        (b"1 2 3\n4 5 6\n", "write csv:- with commas to read it"),
        (
            b'{"id": 7, "body": "the cat sat", "by": "me"}\n',
            r"write jsonl:-\?features=id \(its numbers\) or jsonl:-\?field=body ",
        ),
        (b'{"body": "the cat sat", "by": "me"}\n', r"write jsonl:-\?field=body to read it"),
        (b'{"time": "12:30", "a": 7, "b, c": 1}\n', r'write jsonl:-\?features=a,"b, c" \(its numbers\) or '),
        (b'{"a": 7, "b": 2.5}\n', r"write jsonl:-\?features=a,b to read it"),
        (b'{\n  "a": 7\n}\n', r"jsonl:-\?field=NAME with one object per line"),
        (arrays()[:300], "holds a NumPy array, not texts; write npy:-"),
        (b"\xff\xff\xff\xff\x88\x00\x00\x00", "holds an Arrow stream, not texts; write arrow:-"),
        (b"PAR1\x15\x04\x15", "holds Parquet, which no pipe can deliver; write it to a file first"),
        (gzip.compress(b"1,2,3\n", mtime=0), "is compressed by gzip; decompress it first"),
    ],
)
def test_a_bare_dash_never_takes_numbers_for_words(
    content: bytes, words: str, standard_input: Callable[[bytes], None]
) -> None:
    standard_input(content)
    with pytest.raises(SourceError, match=words):
        open_source("-")


@pytest.mark.parametrize("text", ["In 1990, 1991 and 1992\nit rained,\nand rained", "[1] a footnote\nmore", "", "x\ny"])
def test_texts_with_some_numbers_are_texts(text: str, standard_input: Callable[[bytes], None]) -> None:
    standard_input(text.encode())
    assert open_source("-").n_features == 2**14


def test_a_header_that_comes_long_before_its_numbers_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        for part in (b"time,a,b\n", b"1,2", b",3\n4,5,6\n"):
            os.write(writing, part)
            time.sleep(0.05)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading) as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(SourceError, match="csv:-"):
            open_source("-")
    writer.join(timeout=10)


def test_what_has_to_seek_refuses_pipes_without_opening_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.parquet")  # opening it would wait for a writer
    for text in (f"{tmp_path}/x.parquet", "parquet:-", "npz:-"):
        with pytest.raises(SourceError, match=r"only from front to back, .*; write it to a file first, or .*csv:"):
            open_source(text)


def test_a_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for text in ("-", "csv:-", "npy:-", "text:-"):
        with pytest.raises(SourceError, match="standard input is closed"):
            whole(open_source(text))


@pytest.mark.parametrize(
    ("spelling", "content", "words"),
    [
        ("csv:-", b"", "standard input is empty"),
        ("csv:-", b"a,b\n1,x\n", "standard input: 'x' is not a number at row 0, column 1"),
        ("csv:-", b"a,b\n1,\xff\n", "standard input: row 0 holds the byte 0xff, which is not UTF-8"),
        ("npy:-", b"", "standard input is empty"),
        ("npy:-", b"\0 no array at all", "standard input cannot be read as an array of numbers"),
        ("npy:-", b"a,b\n1,2\n", "standard input holds text, not a NumPy array; write csv:-, tsv:- or jsonl:-"),
        ("npy:-", b"\xff\xff\xff\xff\x88\0\0\0", "standard input holds an Arrow stream, not a NumPy .*; write arrow:-"),
        ("npy:-", arrays()[:400], "standard input ends within the .* rows from row 5"),
        ("arrow:-", b"\0 no stream", "standard input cannot be read as an Arrow stream"),
        ("arrow:-", b"a,b\n1,2\n", "standard input holds text, not an Arrow stream; write csv:-, tsv:- or jsonl:-"),
        ("arrow:-", arrays(), "standard input holds a NumPy array, not an Arrow stream; write npy:-"),
        ("arrow:-", b"ARROW1\0\0", "standard input holds an Arrow file, which no pipe can deliver; write it to a file"),
        ("jsonl:-?features=x,a", b'{"a": 1, "b": 2}\n', "row 0 has no field 'x'; its fields are a, b: choose among"),
        ("jsonl:-?features=a", b'{"a": "x"}\n', r"\"x\" is not a number at row 0, field 'a'"),
        ("jsonl:-?features=a", b"[1]\n", "row 0 .* is not a JSON object"),
    ],
)
def test_streams_that_are_broken_are_refused_in_one_sentence(
    spelling: str, content: bytes, words: str, standard_input: Callable[[bytes], None]
) -> None:
    if spelling.startswith("arrow"):
        pytest.importorskip("pyarrow")
    standard_input(content)
    with pytest.raises(SourceError, match=words) as error:
        whole(open_source(spelling))
    assert "\n" not in str(error.value)


def saved(*parts: np.ndarray) -> bytes:
    file = io.BytesIO()
    for part in parts:
        np.save(file, part)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (saved(np.asfortranarray(X)), "stored by columns"),
        (saved(X, X[:, :2]), "an array has 2 columns, the first had 4"),
        (saved(X[0]), "2-D array"),
        (saved(np.array([["x"]])), "real numbers"),
        (saved(X)[:-8], "ends within"),
        (saved(X).replace(b"(23, 4)", b"(23, 99999999999)"), "one row of standard input takes 1600GB of memory"),
    ],
)
def test_arrays_that_cannot_be_streamed_are_refused(
    content: bytes, words: str, standard_input: Callable[[bytes], None]
) -> None:
    standard_input(content)
    with pytest.raises(SourceError, match=words):
        whole(open_source("npy:-"))


@pytest.mark.parametrize(("version", "fine"), [((1, 0), True), ((2, 0), True), ((3, 0), True), ((4, 0), False)])
def test_headers_of_arrays_are_read_alike_from_pipes_and_archives(
    tmp_path: Path, standard_input: Callable[[bytes], None], version: tuple[int, int], fine: bool
) -> None:
    content = saved(X) if version == (1, 0) else of_version(X, version)
    standard_input(content)
    with contextlib.nullcontext() if fine else pytest.raises(SourceError, match=r"of version \(4, 0\)"):
        np.testing.assert_array_equal(whole(open_source("npy:-")), X)
    matrix = scipy.sparse.csr_matrix(X)
    parts = {"format": np.array(b"csr"), "shape": np.array(X.shape), "indices": matrix.indices, "indptr": matrix.indptr}
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name, part in parts.items():
            archive.writestr(f"{name}.npy", saved(part))
        archive.writestr("data.npy", saved(matrix.data) if version == (1, 0) else of_version(matrix.data, version))
    with contextlib.nullcontext() if fine else pytest.raises(SourceError, match=r"of version \(4, 0\)"):
        np.testing.assert_array_equal(whole(open_source(tmp_path / "x.npz")), X)


def of_version(array: np.ndarray, version: tuple[int, int]) -> bytes:
    """As NumPy writes it: from version 2 on the length of the header takes four bytes."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, (2, 0))
    return file.getvalue().replace(bytes((2, 0)), bytes(version), 1)


def test_the_cure_for_a_broken_arrow_stream_is_about_pipes_for_pipes_alone(
    tmp_path: Path, standard_input: Callable[[bytes], None]
) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x.arrow").write_bytes(b"\0 no stream")
    standard_input(b"\0 no stream")
    for spelling, told in ((f"{tmp_path}/x.arrow", False), ("arrow:-", True)):
        with pytest.raises(SourceError, match="cannot be read as an Arrow stream") as error:
            open_source(spelling)
        assert ("a pipe takes" in str(error.value)) == told


def test_an_arrow_stream_in_a_file_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(record_batches())
    source = open_source(tmp_path / "x.arrow")
    assert source.rewinds
    for _ in range(2):
        np.testing.assert_array_equal(whole(source), X)


@pytest.mark.parametrize("spelling", CONTENT)
def test_full_batches_are_handed_on_while_the_pipe_is_silent(spelling: str) -> None:
    content = CONTENT[spelling]()
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
        batches = open_source(spelling.replace("PATH", f"/dev/fd/{reading}")).batches(9)
        np.testing.assert_array_equal(np.concatenate([next(batches)[1], next(batches)[1]]), X[:18])
        batches.close()  # type: ignore[attr-defined]
    finally:
        os.close(writing)
        os.close(reading)


@pytest.mark.parametrize("bad", ["{broken", '{"a": -1, "b": 2}'])
def test_a_full_batch_is_learnt_while_the_pipe_is_silent_even_where_a_sample_is_bad(bad: str) -> None:
    learnt = threading.Event()
    reading, writing = os.pipe()
    model = onmf.OnlineNMF(2, on_error="skip", batch_size=20, random_state=0, callbacks=[lambda _: learnt.set()])

    def fit() -> None:
        with contextlib.closing(os.fdopen(reading)):
            model.fit(open_source(f"jsonl:/dev/fd/{reading}?features=a,b"))

    learning = threading.Thread(target=fit)
    learning.start()
    with os.fdopen(writing, "w") as pipe:
        pipe.writelines(bad + "\n" if row == 9 else f'{{"a": {row}, "b": 2}}\n' for row in range(23))
        pipe.flush()
        assert learnt.wait(60)
    learning.join()
    assert (model.n_samples_seen_, model.n_skipped_) == (22, 1)


def test_numbers_through_a_pipe_are_learnt_as_numbers_or_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(table(","))
    fit = ["-k", 2, "--seed", 0, "--batch-size", 10, "-o", "m"]

    def run(path: str) -> subprocess.CompletedProcess[str]:
        """``cat x.csv | onmf fit PATH ...``"""
        cat = ["cat", "x.csv"]
        with subprocess.Popen(cat, cwd=tmp_path, stdout=subprocess.PIPE) as content:
            return processes.run("-m", "onmf", "fit", path, *fit, cwd=tmp_path, stdin=content.stdout, text=True)

    refused = run("-")
    assert refused.returncode == 2
    assert refused.stderr.startswith("onmf: standard input does not hold texts; write csv:- to read it")
    assert (refused.stdout, refused.stderr.count("\n")) == ("", 1)  # an error of the process is one sentence
    assert not (tmp_path / "m").exists()
    assert run("csv:/dev/stdin").returncode == 0
    expected = onmf.OnlineNMF(2, random_state=0, batch_size=10, shuffle=False).fit(X)
    model: Any = onmf.load(tmp_path / "m")
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == NAMES
