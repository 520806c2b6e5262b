"""Pictures, sound, texts and iterables as samples; tools that combine sources; schemes, and sources of one's own."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF
from onmf.data import (
    Batches,
    Rows,
    Source,
    SourceError,
    Spec,
    open_source,
    prefetch,
    rebatch,
    register,
    registry,
    repeat,
    scale,
    schemes,
    shuffle,
    take,
)

X = np.random.default_rng(3).integers(0, 9, (23, 4)).astype(float)


def dense(batch: Any) -> np.ndarray:
    return batch.toarray() if scipy.sparse.issparse(batch) else np.asarray(batch)


def whole(source: Source, size: int = 5, **more: Any) -> np.ndarray:
    return np.concatenate([dense(batch) for _, batch in source.batches(size, **more)])


def write_pictures(folder: Path) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 6, 4), dtype=np.uint8)
    for number, each in enumerate(pixels):
        image.fromarray(each).save(folder / f"{number}.png")
    (folder / "notes.txt").write_text("no picture")
    return pixels.reshape(5, -1).astype(np.float32)


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    pixels = write_pictures(tmp_path)
    for name in (f"images:{tmp_path}", f"images:{tmp_path}/*.png", f"images:{tmp_path}?size=4x6"):
        source = open_source(name)
        np.testing.assert_array_equal(whole(source, 2), pixels)
    assert open_source(f"images:{tmp_path}?colour=rgb").n_features == 72
    assert open_source(f"images:{tmp_path}?size=2x3").n_features == 6
    shuffled = list(open_source(f"images:{tmp_path}").batches(2, np.random.default_rng(1)))
    rows = np.concatenate([rows for rows, _ in shuffled])
    assert sorted(rows) == list(range(5))
    np.testing.assert_array_equal(np.concatenate([batch for _, batch in shuffled]), pixels[rows])


def test_bad_pictures_are_named(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    (tmp_path / "3.png").write_bytes(b"nonsense")
    with pytest.raises(SourceError, match=r"3\.png cannot be read as a picture"):
        whole(open_source(f"images:{tmp_path}"))
    (tmp_path / "3.png").unlink()
    (tmp_path / "3.png").symlink_to(tmp_path / "absent.png")
    with pytest.raises(SourceError, match=r"3\.png cannot be read as a picture: .*No such file"):
        whole(open_source(f"images:{tmp_path}"))
    for name, words in (
        (f"images:{tmp_path}?size=32", "WIDTHxHEIGHT"),
        (f"images:{tmp_path}?colour=blue", "grey or rgb"),
        (f"images:{tmp_path}/*.gif", "matches no files"),
    ):
        with pytest.raises(SourceError, match=words):
            open_source(name)


@pytest.mark.parametrize("spoilt", [b"", b"nonsense", None], ids=["empty", "nonsense", "cut"])
def test_a_bad_picture_that_comes_first_costs_only_itself(spoilt: bytes | None, tmp_path: Path) -> None:
    pixels, first = write_pictures(tmp_path), tmp_path / "0.png"
    if spoilt is None:  # a header with another size, and nothing after it
        image = pytest.importorskip("PIL.Image")
        image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 50), dtype=np.uint8)).save(first)
        spoilt = first.read_bytes()[:200]
    first.write_bytes(spoilt)
    for options in ("", "?size=4x6"):
        source, bad = open_source(f"images:{tmp_path}{options}"), []
        found = list(source.batches(2, on_bad=bad.append))
        assert np.concatenate([rows for rows, _ in found]).tolist() == [1, 2, 3, 4]
        np.testing.assert_array_equal(np.concatenate([batch for _, batch in found]), pixels[1:])
        assert (source.n_samples, len(bad)) == (5, 1)
        assert "0.png cannot be read as a picture" in str(bad[0])
        with pytest.raises(SourceError, match=r"0\.png cannot be read as a picture"):
            whole(source)
    for number in range(1, 5):
        (tmp_path / f"{number}.png").write_bytes(b"nonsense")
    with pytest.raises(SourceError, match=r"0\.png cannot be read as a picture"):
        open_source(f"images:{tmp_path}")


def write_sound(folder: Path, channels: int = 1) -> np.ndarray:
    soundfile = pytest.importorskip("soundfile")
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, (5000, channels))
    soundfile.write(folder / "x.wav", sound, 8000, subtype="DOUBLE")
    return sound


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("window", "hop"), [(256, 128), (256, 256), (100, 30)])
def test_a_recording_becomes_the_mean_of_its_channels_power_spectrograms(
    window: int, hop: int, channels: int, tmp_path: Path
) -> None:
    from scipy.signal import get_window

    sound = write_sound(tmp_path, channels)
    source = open_source(f"{tmp_path}/x.wav?window={window}&hop={hop}")
    n = 1 + (len(sound) - window) // hop
    assert (source.n_samples, source.n_features) == (n, window // 2 + 1)
    found = whole(source, 7)
    assert found.shape == (n, window // 2 + 1)
    for frame in (0, 1, n - 1):
        part = sound[frame * hop : frame * hop + window] * get_window("hann", window)[:, None]
        expected = (np.abs(np.fft.rfft(part, axis=0)) ** 2).mean(axis=1)
        np.testing.assert_allclose(found[frame], expected, rtol=1e-9, atol=1e-12)
    assert source.feature_names is not None
    assert source.feature_names[1] == f"{8000 / window:.6g} Hz"


@pytest.mark.parametrize("rate", [4000, 11025, 8000, 7001])
def test_a_rate_resamples_a_recording_block_by_block(rate: int, tmp_path: Path) -> None:
    from scipy.signal import resample_poly

    soundfile = pytest.importorskip("soundfile")
    sound = write_sound(tmp_path, 2)
    soundfile.write(tmp_path / "y.wav", resample_poly(sound, rate, 8000), rate, subtype="DOUBLE")
    expected = open_source(f"{tmp_path}/y.wav?window=64")
    source = open_source(f"{tmp_path}/x.wav?window=64&rate={rate}")
    assert (source.feature_names, source.n_samples) == (expected.feature_names, expected.n_samples)
    for size in (3, 1000):
        np.testing.assert_allclose(whole(source, size), whole(expected), rtol=1e-6, atol=1e-9)


def test_a_table_of_coefficients_has_the_times_of_the_frames_and_a_wrong_rate_says_so(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from onmf.cli import main as cli

    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "songs").mkdir()
    for name, length in (("a", 300), ("b", 500)):
        sound = np.random.default_rng(0).uniform(-0.5, 0.5, length)
        soundfile.write(tmp_path / "songs" / f"{name}.wav", sound, 8000)
    songs, model = f"audio:{tmp_path / 'songs'}", str(tmp_path / "m")

    def command(*arguments: str) -> Any:
        return CliRunner().invoke(cli.app, list(arguments))

    assert command("fit", f"{songs}?window=200", "-k", "2", "-o", model).exit_code == 0
    result = command("transform", model, songs, "-o", str(tmp_path / "h.csv"))
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "h.csv").read_text().splitlines()
    assert lines[0].split(",")[0] == "seconds"
    assert [float(line.split(",")[0]) for line in lines[1:]] == [0.0, 0.0125, 0.0, 0.0125, 0.025, 0.0375]
    soundfile.write(tmp_path / "fast.wav", sound, 16000)
    for given in ("", "?rate=9000"):
        result = command("transform", model, f"{tmp_path / 'fast.wav'}{given}", "-o", str(tmp_path / "no.csv"))
        told = " ".join(f"{result.output} {result.exception}".split())
        rate = given.removeprefix("?rate=") or "16000"
        assert f"fast.wav has {rate} samples per second, but the model was learnt at 8000 samples" in told
        assert "add rate=8000" in told
    result = command("transform", model, f"{tmp_path / 'fast.wav'}?rate=8000", "-o", str(tmp_path / "yes.csv"))
    assert result.exit_code == 0, result.output


def test_bad_recordings_are_named(tmp_path: Path) -> None:
    write_sound(tmp_path)
    (tmp_path / "bad.wav").write_bytes(b"nonsense")
    for name, words in (
        (f"{tmp_path}/bad.wav", "cannot be read as sound"),
        (f"{tmp_path}/x.wav?window=9000", "shorter than one window of 9000 samples; give a smaller window"),
        (f"{tmp_path}/x.wav?window=100&hop=200", "hop from 1 to the window"),
        (f"{tmp_path}/x.wav?window=ten", "must be a whole number"),
        (f"{tmp_path}/x.wav?rate=0", "the rate must be at least one sample per second"),
        (f"{tmp_path}/x.wav?rate=1000003", "has too little in common with rate=1000003"),
    ):
        with pytest.raises(SourceError, match=words):
            open_source(name)


def test_recordings_of_a_folder_follow_each_other(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, 3000)
    (tmp_path / "songs").mkdir()
    for name, part in (("a", sound[:1000]), ("b", sound[1000:])):
        soundfile.write(tmp_path / "songs" / f"{name}.wav", part, 8000, subtype="DOUBLE")
    both = whole(open_source(f"audio:{tmp_path}/songs?window=64"), 11)
    parts = [whole(open_source(f"{tmp_path}/songs/{name}.wav?window=64")) for name in "ab"]
    np.testing.assert_allclose(both, np.concatenate(parts))
    assert open_source(f"audio:{tmp_path}/*/?.wav?window=64").n_samples == len(both)
    soundfile.write(tmp_path / "songs" / "c.wav", sound, 16000)
    with pytest.raises(SourceError, match="resample them"):
        open_source(f"audio:{tmp_path}/songs")


def test_a_recording_that_is_cut_short_is_not_taken_for_whole(tmp_path: Path) -> None:
    write_sound(tmp_path)
    source = open_source(f"{tmp_path}/x.wav?window=100")
    write = pytest.importorskip("soundfile").write
    write(tmp_path / "x.wav", np.zeros(700), 8000, subtype="DOUBLE")
    with pytest.raises(SourceError, match="ends after 13 frames"):
        whole(source)


TEXTS = ["the cat sat", "the dog sat down", "a cat and a dog"]


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "x.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"id": 1, "body": text}) for text in TEXTS))
    (tmp_path / "mail").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "mail" / f"{number}.txt").write_text(text)
    return {
        "lines": f"{tmp_path}/x.txt?",
        "json": f"{tmp_path}/x.jsonl?field=body&",
        "folder": f"text:{tmp_path}/mail?",
        "pattern": f"text:{tmp_path}/mail/*.txt?",
    }


@pytest.mark.parametrize("kind", ["lines", "json", "folder", "pattern"])
def test_texts_become_counts_of_words(kind: str, texts: dict[str, str]) -> None:
    source = open_source(f"{texts[kind]}words=100")
    assert source.feature_names == ["and", "cat", "dog", "down", "sat", "the"]
    expected = [[0, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    np.testing.assert_array_equal(whole(source, 2), expected)
    hashed = open_source(f"{texts[kind]}hashed=64")
    assert hashed.n_features == 64
    assert hashed.n_samples == (None if kind in ("lines", "json") else 3)
    counts = whole(hashed, 2)
    np.testing.assert_array_equal(counts.sum(axis=1), [3, 4, 3])  # words of one letter do not count
    np.testing.assert_array_equal(whole(hashed, 1), counts)


def test_standard_input_can_be_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    source = open_source("-")
    assert not source.rewinds
    assert whole(source).sum() == 10
    with pytest.raises(SourceError, match="only once"):
        source.batches(5)
    with pytest.raises(SourceError, match="no vocabulary can be learnt first"):
        open_source("text:-?words=5")


def test_standard_input_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO(b"some words here\n\xff\xfe\xfa and more\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw, encoding="ascii", errors="surrogateescape"))
    with pytest.raises(SourceError, match=r"standard input: row 1 .* not UTF-8 there; convert the data to UTF-8"):
        whole(open_source("-"))


@pytest.mark.parametrize(
    ("content", "words"),
    [("\n{}\n", "row 0 .* field 'text'"), ('{"text": 5}', "row 0"), ("[" * 9**5, "row 0"), ("nonsense", "row 0")],
)
def test_bad_json_lines_are_named(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(SourceError, match=words):
        whole(open_source(str(tmp_path / "x.jsonl")))


def test_texts_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match="is UTF-16; convert the data to UTF-8"):
        whole(open_source(str(tmp_path / "x.txt")))
    (tmp_path / "empty.txt").write_text("a\n")
    with pytest.raises(SourceError, match="no words to count"):
        open_source(f"{tmp_path}/empty.txt?words=5")
    with pytest.raises(SourceError, match="matches no files"):
        open_source(f"text:{tmp_path}/*.md")
    with pytest.raises(SourceError, match="no such file or folder: "):
        open_source(f"text:{tmp_path}/absent.txt")


# Iterables


@pytest.mark.parametrize("sparse", [False, True])
def test_any_iterable_of_batches(sparse: bool) -> None:
    parts = [scipy.sparse.csr_array(part) if sparse else part for part in np.array_split(X, [3, 4, 15])]
    for batches in (parts, lambda: iter(parts)):
        source = Batches(batches)
        assert source.rewinds
        np.testing.assert_array_equal(whole(source, 4), X)
        np.testing.assert_array_equal(whole(source, 6), X)
    once = Batches(iter(parts))
    assert not once.rewinds
    np.testing.assert_array_equal(whole(once), X)
    with pytest.raises(SourceError, match="only once"):
        once.batches(3)


def test_a_generator_is_learnt_from_and_a_second_pass_is_refused() -> None:
    model = OnlineNMF(2, random_state=0, batch_size=5, shuffle=False).fit(part for part in np.array_split(X, 4))
    expected = OnlineNMF(2, random_state=0, batch_size=5, shuffle=False).fit(X)
    np.testing.assert_array_equal(model.components_, expected.components_)
    with pytest.raises(SourceError, match="only once"):
        OnlineNMF(2, random_state=0, max_passes=2).fit(part for part in np.array_split(X, 4))


def test_bad_batches_are_refused() -> None:
    for batches, words in (
        ([], "no batches in the iterable"),
        ([np.ones(3)], "2-D"),
        ([np.array([["a"]])], "real numbers"),
        ([X, X[:, :2]], "a batch has 2 features, the first had 4"),
    ):
        with pytest.raises(SourceError, match=words):
            whole(Batches(batches))


# Tools


def test_rebatch_keeps_the_rows_in_order() -> None:
    for size in (1, 4, 23, 50):
        source = rebatch(repeat(Batches(np.array_split(X, [0, 1, 9, 9, 20])), 2), size)
        rows, cut = zip(*source.batches(7), strict=True)
        np.testing.assert_array_equal(np.concatenate(cut), np.concatenate([X, X]))
        np.testing.assert_array_equal(np.concatenate(rows), [*range(23), *range(23)])
        assert all(len(batch) == size for batch in cut[:-1])
    np.testing.assert_array_equal(whole(shuffle(rebatch(Rows(X), 4), 100)).sum(axis=0), X.sum(axis=0))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("buffer", [1, 4, 10, 1000])
def test_shuffle_gives_every_row_once(buffer: int, sparse: bool) -> None:
    rows = Rows(scipy.sparse.csr_array(X) if sparse else X)
    source = shuffle(rows, buffer, seed=5)
    found = list(source.batches(3))
    order = np.concatenate([rows for rows, _ in found])
    assert sorted(order) == list(range(len(X)))
    assert (order != np.arange(len(X))).any()
    np.testing.assert_array_equal(np.concatenate([dense(batch) for _, batch in found]), X[order])
    np.testing.assert_array_equal(whole(source, 3), X[order])  # the same seed, the same order
    other = np.concatenate([rows for rows, _ in source.batches(3, np.random.default_rng(8))])
    assert (other != order).any()
    # No row waits longer, or comes earlier, than the buffer allows.
    assert all(row < place + buffer + 2 * 3 for place, row in enumerate(order))


def test_tools_compose() -> None:
    source = scale(take(repeat(Rows(X), 2), 30), 2.0)
    assert source.n_samples == 30
    np.testing.assert_array_equal(whole(prefetch(source), 7), 2 * np.concatenate([X, X])[:30])
    assert repeat(Rows(X), 3).n_samples == 69


def test_what_rewinds_not_is_not_repeated() -> None:
    with pytest.raises(SourceError, match="only once"):
        repeat(Batches(iter([X])), 2)


def test_prefetch_reads_ahead_and_passes_errors_on() -> None:
    read: list[int] = []

    def batches() -> Any:
        for number in range(6):
            read.append(number)
            yield X[:2]
        raise OSError("the disk is gone")

    stream = prefetch(Batches(batches), depth=2).batches(2)
    next(stream)
    deadline = time.monotonic() + 5
    while len(read) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(read) >= 4  # nobody asked for them yet
    with pytest.raises(OSError, match="the disk is gone"):
        list(stream)


def test_a_prefetch_that_is_left_stops_its_thread() -> None:
    before = threading.active_count()
    stream = prefetch(repeat(Rows(X), 1000)).batches(1)
    next(stream)
    stream.close()
    assert threading.active_count() == before


def test_learning_is_the_same_with_prefetch() -> None:
    plain, ahead = (OnlineNMF(2, random_state=0, max_passes=3).fit(source) for source in (Rows(X), prefetch(Rows(X))))
    np.testing.assert_array_equal(plain.components_, ahead.components_)


# Schemes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("absent.npy", "no such file or folder: absent.npy"),
        ("npy:absent", "no such file or folder: absent"),
        ("absent", "no such file or folder: absent"),
        ("absent.dat", "no such file or folder: absent.dat"),
        ("FOLDER/x", "has a suffix that names no known format; put a scheme before it, one of .*npy:, npz:, .*tsv:"),
        ("FOLDER/x", "has a suffix that names no known format"),
        ("FOLDER/x.npy.gz", "has a suffix that names no known format"),
        ("FOLDER", "is a directory; put a scheme"),
        ("FOLDER/folder.csv", "is a directory, which csv does not read"),
        ("npy:FOLDER", "is a directory, which npy does not read; put one of .*images:"),
        ("csv:FOLDER/x.csv?words=5", "csv has no option 'words'; it has header"),
        ("FOLDER/x.wav?words=5", "audio has no option 'words'; it has window, hop"),
        ("FOLDER/x.csv?words", "NAME=VALUE"),
    ],
)
def test_what_cannot_be_opened_says_why(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n")
    for name in ("x.wav", "x", "x.npy.gz"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SourceError, match=words):
        open_source(text.replace("FOLDER", str(tmp_path)))


def test_a_file_with_a_question_mark_or_a_colon_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("what?.npy", "npy:x.npy"):
        np.save(tmp_path / name, X)
        np.testing.assert_array_equal(whole(open_source(name)), X)


def test_a_question_mark_in_a_pattern_is_no_option(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("a1", "a2", "b1"):
        image.fromarray(np.full((3, 2), 7, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    assert open_source(f"images:{tmp_path}/a?.png").n_samples == 2
    assert open_source(f"images:{tmp_path}/a?.png?size=4x4").n_features == 16


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.zarr").mkdir()
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ModuleNotFoundError, match=r"zarr needs zarr; install onmf\[zarr\]"):
        open_source(tmp_path / "x.zarr")


ROOT = Path(__file__).parent.parent


def test_the_readme_lists_every_scheme_with_its_options_and_its_extra() -> None:
    rows = [
        line for line in (ROOT / "docs" / "reference" / "sources.md").read_text().splitlines() if line.startswith("|")
    ]
    assert len(schemes()) >= 13
    for scheme in schemes():
        ways = (f"`{scheme.name}:", *(f"`x{suffix}" for suffix in scheme.suffixes))
        row = next((row for row in rows if any(way in row for way in ways)), None)
        assert row is not None, scheme.name
        assert all(f"{option}=" in row for option in scheme.options), scheme.name
        assert scheme.extra is None or f"`onmf[{scheme.extra}]`" in row, scheme.name


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The source that CONTRIBUTING.md adds, and a file for it."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.chdir(tmp_path)
    codes = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    code = next(code for code in codes if "@register" in code)
    for _ in range(2):  # as a notebook cell that is run again
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})  # noqa: S102
    X.astype(np.float32).tofile(tmp_path / "x.f32")
    return str(tmp_path / "x.f32")


def test_a_source_of_ones_own_is_opened_like_any_other(own: str) -> None:
    assert registry._registry["bin"].options == {"columns": int}
    for text in (f"{own}?columns=4", f"bin:{own}?columns=4"):
        np.testing.assert_array_equal(whole(open_source(text)), X)
    for options, words in (
        ("", r"bin needs the option columns; write bin:PATH\?columns=\.\.\."),
        ("?columns=four", "columns must be a whole number, got 'four'"),
        ("?columns=7", "rows of 7 numbers"),
        ("?rows=7", "bin has no option 'rows'; it has columns"),
    ):
        with pytest.raises(SourceError, match=words):
            open_source(own + options)


def test_a_scheme_or_suffix_that_is_taken_and_options_of_no_type_are_refused(own: str) -> None:
    def opener(path: Path) -> Source:
        return open_source(path)

    def odd(path: Path, factor: complex) -> Source:
        return scale(open_source(path), abs(factor))

    for name, suffixes in (("csv", []), ("mine", [".f32"])):
        with pytest.raises(ValueError, match="already stands for"):
            register(name, suffixes)(opener)
    with pytest.raises(TypeError, match="odd: annotate every option as int, float, str"):
        register("odd")(odd)
    with pytest.raises(TypeError, match="odd: size cannot shape the features: it is not an option"):
        register("odd", feature_options=["size"])(opener)
    register("far", needs="a_library_of_mine")(opener)
    with pytest.raises(ModuleNotFoundError, match=r"far needs a_library_of_mine; install a_library_of_mine\."):
        open_source(f"far:{own}")


# Learning from sources


def test_a_second_pass_over_what_rewinds_not_is_refused_before_the_first() -> None:
    read = []

    def batches() -> Any:
        for part in np.array_split(X, 4):
            read.append(1)
            yield part

    with pytest.raises(SourceError, match="only once"):
        OnlineNMF(2, max_passes=2).fit(batches())
    assert len(read) == 1  # the one that tells the number of features


BAD = {  # a source, the bad sample among those that are good, and how many of them there are
    "pictures": ("images:FOLDER", "3.png cannot be read as a picture", 4),
    "table": ("FOLDER/x.csv", "'NA' is not a number at row 5", 14),
    "json": ("FOLDER/x.jsonl?words=5", "is not a JSON object", 3),
    "files": ("text:FOLDER/?.txt?words=5", "1.txt cannot be read as text", 1),
    "iterable": ("", "a batch has 2 features", 46),
}


@pytest.fixture
def with_bad_samples(tmp_path: Path) -> Callable[[str], Source]:
    write_pictures(tmp_path)
    (tmp_path / "3.png").write_bytes(b"nonsense")
    (tmp_path / "x.csv").write_text("1,2\n" * 5 + "1,NA\n" + "1,2\n" * 9)
    lines = [json.dumps({"text": text}) for text in TEXTS]
    (tmp_path / "x.jsonl").write_text("\n".join([lines[0], "", "{nonsense", *lines[1:]]))
    (tmp_path / "0.txt").write_text(TEXTS[0])
    (tmp_path / "1.txt").write_bytes(b"\xff\xfe\xfa")

    def source(kind: str) -> Source:
        text = BAD[kind][0].replace("FOLDER", str(tmp_path))
        return open_source(text) if text else Batches([X, X[:, :2], X])

    return source


@pytest.mark.parametrize("kind", BAD)
def test_bad_samples_are_left_out_and_reported_in_their_place_through_every_tool(
    kind: str, with_bad_samples: Callable[[str], Source]
) -> None:
    source, (_, words, kept) = with_bad_samples(kind), BAD[kind]

    def events(tool: Source) -> list[Any]:
        found: list[Any] = []
        for rows, _ in tool.batches(5, on_bad=lambda error: found.append(str(error))):
            found.append(rows.tolist())
        return found

    expected = events(source)
    assert sum(len(each) for each in expected if isinstance(each, list)) == kept
    assert [words in each for each in expected if isinstance(each, str)] == [True]
    for tool in (prefetch(source), rebatch(source, 5), scale(source, 2), repeat(source, 1), take(prefetch(source), 99)):
        assert events(tool) == expected
    assert sum(isinstance(each, str) for each in events(shuffle(repeat(source, 2)))) == 2
    for tool in (source, prefetch(source), shuffle(source), repeat(source, 2)):
        with pytest.raises(SourceError, match=words):  # without on_bad, whatever was asked for before
            whole(tool)


def test_on_error_skip_leaves_bad_samples_of_a_source_out(with_bad_samples: Callable[[str], Source]) -> None:
    for kind, source in (("table", with_bad_samples("table")), ("json", prefetch(with_bad_samples("json")))):
        model = OnlineNMF(2, random_state=0, on_error="skip", batch_size=5, method="em").fit(source)
        assert (model.n_samples_seen_, model.n_skipped_) == (BAD[kind][2], 1)
        assert BAD[kind][1] in model.skipped_[0]


def test_a_loader_that_can_be_read_once_but_does_not_say_so_is_found_out() -> None:
    parts = iter(np.array_split(X, 4))
    with pytest.raises(SourceError, match="pass 2 found no batches"):
        OnlineNMF(2, max_passes=2, random_state=0).fit(Batches(lambda: parts))


def test_pictures_of_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.array([[0, 25700], [51400, 65535]], dtype=np.uint16)).save(tmp_path / "x.png")
    np.testing.assert_allclose(whole(open_source(f"images:{tmp_path}")), [[0, 100, 200, 255]])
    image.fromarray(np.full((2, 2), 257, dtype=np.uint16)).save(tmp_path / "x.png")
    np.testing.assert_allclose(whole(open_source(f"images:{tmp_path}")), 1)
    image.fromarray(np.ones((2, 2), dtype=np.float32)).save(tmp_path / "y.tif")
    with pytest.raises(SourceError, match="floating-point"):
        whole(open_source(f"images:{tmp_path}/y.tif"))
    with pytest.raises(SourceError, match="a picture of 99999x99999 takes 240GB of memory"):
        open_source(f"images:{tmp_path}?size=99999x99999")


def test_known_words_are_counted_for_transform(texts: dict[str, str]) -> None:
    for options in ("words=2", ""):
        source = open_source(f"{texts['json']}{options}".rstrip("&"), like=Spec(names=("dog", "sat", "zebra")))
        assert source.feature_names == ["dog", "sat", "zebra"]
        np.testing.assert_array_equal(whole(source), [[0, 1, 0], [1, 1, 0], [1, 0, 0]])
    for bad in ("hashed=0", "words=0"):
        with pytest.raises(SourceError, match="at least 1"):
            open_source(f"{texts['lines']}{bad}")


def test_rows_and_tools_take_what_they_can() -> None:
    for data in (X.tolist(), X + 1j, X[0], np.full((2, 2), "x")):
        with pytest.raises(SourceError, match="Rows must be"):
            Rows(data)
    np.testing.assert_array_equal(whole(Rows(scipy.sparse.coo_matrix(X))), X)
    with pytest.raises(SourceError, match="this takes a source, not ndarray"):
        shuffle(X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size must be"):
        rebatch(Rows(X), 0)
    np.testing.assert_array_equal(whole(scale(Rows(np.full((2, 2), 200, np.uint8)), 2)), 400)
    mixed = Batches([X[:5], scipy.sparse.csr_array(X[5:])])
    np.testing.assert_array_equal(whole(mixed, 9), X)


def test_a_loader_without_length_is_learnt_from() -> None:
    class Loader:
        def __iter__(self) -> Any:
            return iter(np.array_split(X, 4))

    model = OnlineNMF(2, random_state=0, shuffle=False).fit(Loader())
    np.testing.assert_array_equal(model.components_, OnlineNMF(2, random_state=0, shuffle=False).fit(X).components_)
    with pytest.raises(TypeError, match="takes a file name or"):
        model.fit(X, checkpoint=3)
