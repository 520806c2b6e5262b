"""Sources beyond arrays and tables: what is read is what was written, whatever the format; tools compose."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF
from onmf.streams import (
    schemes,
    Batches,
    Rows,
    Source,
    SourceError,
    open_source,
    prefetch,
    rebatch,
    repeat,
    scale,
    shuffle,
    take,
)

X = np.random.default_rng(3).integers(0, 9, (23, 4)).astype(float)
NAMES = ["a", "b", "c", "d"]


def dense(batch: Any) -> np.ndarray:
    return batch.toarray() if scipy.sparse.issparse(batch) else np.asarray(batch)


def whole(source: Source, size: int = 5, **more: Any) -> np.ndarray:
    return np.concatenate([dense(batch) for _, batch in source.batches(size, **more)])


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


def write_feather(folder: Path) -> str:
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    feather.write_feather(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / "x.feather")
    return str(folder / "x.feather")


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


WRITERS = {
    "parquet": write_parquet,
    "parquet folder": write_parquet_folder,
    "feather": write_feather,
    "zarr": write_zarr,
    "zarr group": write_zarr_group,
    "hdf5": write_hdf5,
    "h5ad": write_h5ad,
    "sparse h5ad": write_sparse_h5ad,
}
quiet = pytest.mark.filterwarnings("ignore")  # the libraries warn of their own future


@quiet
@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("kind", WRITERS)
def test_batches_in_a_row_are_what_was_written(kind: str, size: int, tmp_path: Path) -> None:
    source = open_source(WRITERS[kind](tmp_path))
    batches = list(source.batches(size))
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches]), np.arange(len(X)))
    np.testing.assert_array_equal(np.concatenate([dense(batch) for _, batch in batches]), X)
    assert all(batch.shape[0] == size for _, batch in batches[:-1])
    assert (source.n_samples, source.n_features) == X.shape
    np.testing.assert_array_equal(whole(source), X)  # once more
    if kind in ("parquet", "feather", "h5ad", "sparse h5ad"):
        assert source.feature_names == NAMES


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
    for name, words in (
        (f"images:{tmp_path}?size=32", "WIDTHxHEIGHT"),
        (f"images:{tmp_path}?colour=blue", "grey or rgb"),
        (f"images:{tmp_path}/*.gif", "matches no files"),
    ):
        with pytest.raises(SourceError, match=words):
            open_source(name)


def write_sound(folder: Path, channels: int = 1) -> np.ndarray:
    soundfile = pytest.importorskip("soundfile")
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, (5000, channels))
    soundfile.write(folder / "x.wav", sound, 8000, subtype="DOUBLE")
    return sound.mean(axis=1)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("window", "hop"), [(256, 128), (256, 256), (100, 30)])
def test_a_recording_becomes_its_power_spectrogram(window: int, hop: int, channels: int, tmp_path: Path) -> None:
    from scipy.signal import get_window

    sound = write_sound(tmp_path, channels)
    source = open_source(f"{tmp_path}/x.wav?window={window}&hop={hop}")
    n = 1 + (len(sound) - window) // hop
    assert (source.n_samples, source.n_features) == (n, window // 2 + 1)
    found = whole(source, 7)
    assert found.shape == (n, window // 2 + 1)
    for frame in (0, 1, n - 1):
        part = sound[frame * hop : frame * hop + window] * get_window("hann", window)
        np.testing.assert_allclose(found[frame], np.abs(np.fft.rfft(part)) ** 2, rtol=1e-9, atol=1e-12)
    assert source.feature_names is not None
    assert source.feature_names[1] == f"{8000 / window:.6g} Hz"


def test_bad_recordings_are_named(tmp_path: Path) -> None:
    write_sound(tmp_path)
    (tmp_path / "bad.wav").write_bytes(b"nonsense")
    for name, words in (
        (f"{tmp_path}/bad.wav", "cannot be read as sound"),
        (f"{tmp_path}/x.wav?window=9000", "shorter than one window of 9000 samples; give a smaller window"),
        (f"{tmp_path}/x.wav?window=100&hop=200", "hop from 1 to the window"),
        (f"{tmp_path}/x.wav?window=ten", "must be a whole number"),
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
    with pytest.raises(SourceError, match="resample one of them"):
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
    (tmp_path / "x.txt").write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
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
    assert hashed.n_samples is None
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
    with pytest.raises(SourceError, match="standard input cannot be read as text: .*; give it as UTF-8"):
        whole(open_source("-"))


@pytest.mark.parametrize(
    ("content", "words"),
    [("\n{}\n", "line 2 .* field 'text'"), ('{"text": 5}', "line 1"), ("[" * 9**5, "line 1"), ("nonsense", "line 1")],
)
def test_bad_json_lines_are_named(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(SourceError, match=words):
        whole(open_source(str(tmp_path / "x.jsonl")))


def test_texts_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match="save it as UTF-8"):
        whole(open_source(str(tmp_path / "x.txt")))
    (tmp_path / "empty.txt").write_text("a\n")
    with pytest.raises(SourceError, match="no words to count"):
        open_source(f"{tmp_path}/empty.txt?words=5")
    with pytest.raises(SourceError, match="matches no files"):
        open_source(f"text:{tmp_path}/*.md")
    with pytest.raises(SourceError, match="does not exist"):
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
        ([], "no batches"),
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
        ("absent.npy", "does not exist"),
        ("npy:absent", "does not exist"),
        ("x.dat", "put a scheme before it"),
        ("FOLDER", "is a directory; put a scheme"),
        ("npy:FOLDER", "is a directory, which npy does not read; put one of .*images:"),
        ("csv:FOLDER/x.csv?words=5", "csv has no option 'words'; it has header"),
        ("FOLDER/x.wav?words=5", "audio has no option 'words'; it has window, hop"),
        ("FOLDER/x.csv?words", "NAME=VALUE"),
    ],
)
def test_what_cannot_be_opened_says_why(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n")
    (tmp_path / "x.wav").write_bytes(b"")
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


def test_every_scheme_has_an_opener() -> None:
    assert {each.name for each in schemes()} >= {"npy", "npz", "csv", "tsv", "parquet", "zarr", "hdf5", "h5ad", "images", "audio", "text"}


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
    with pytest.raises(SourceError, match="the column 'label' is of type string; keep only columns of numbers"):
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


# Sources that break, and data in unusual dress


def test_files_that_shrink_or_vanish_are_not_read_as_zeros(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    stream = open_source(tmp_path / "x.npy").batches(5)
    next(stream)
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(200)
    with pytest.raises(SourceError, match="shrank from"):
        next(stream)


@quiet
@pytest.mark.parametrize("kind", ["hdf5", "zarr"])
def test_arrays_on_disk_that_vanish_are_not_read_as_zeros(kind: str, tmp_path: Path) -> None:
    import shutil

    where = WRITERS[kind](tmp_path)
    stream = open_source(where).batches(5)
    next(stream)
    if kind == "zarr":
        shutil.rmtree(where)
    else:
        with Path(where).open("r+b") as file:
            file.truncate(500)
    with pytest.raises(SourceError, match="while it was being read"):
        next(stream)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float16", ">f8", "int32"])
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_of_every_type_are_learnt_from_as_floats(dtype: str, sparse: bool, tmp_path: Path) -> None:
    counts = (np.random.default_rng(0).random((60, 30)) < 0.08).astype(dtype)
    counts[:, 0] = 1
    if sparse:
        if dtype in ("float16", ">f8"):
            pytest.skip("scipy has no sparse matrices of this type")
        scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_matrix(counts))
    else:
        np.save(tmp_path / "x.npy", counts)
    model = OnlineNMF(2, random_state=0).fit(open_source(tmp_path / ("x.npz" if sparse else "x.npy")))
    assert model.method_ == "em"
    expected = OnlineNMF(2, random_state=0).fit(counts.astype(float))
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-6, atol=1e-12)


def test_a_second_pass_over_what_rewinds_not_is_refused_before_the_first() -> None:
    read = []

    def batches() -> Any:
        for part in np.array_split(X, 4):
            read.append(1)
            yield part

    with pytest.raises(SourceError, match="only once"):
        OnlineNMF(2, max_passes=2).fit(batches())
    assert len(read) == 1  # the one that tells the number of features


def test_bad_samples_of_a_source_are_skipped(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    (tmp_path / "3.png").write_bytes(b"nonsense")
    model = OnlineNMF(2, random_state=0, on_error="skip").fit(prefetch(open_source(f"images:{tmp_path}")))
    assert (model.n_samples_seen_, model.n_skipped_) == (4, 1)
    assert "3.png" in model.skipped_[0]
    (tmp_path / "x.csv").write_text("1,2\n" * 5 + "1,NA\n" * 5 + "1,2\n" * 5)
    model = OnlineNMF(2, random_state=0, on_error="skip", batch_size=5).fit(open_source(tmp_path / "x.csv"))
    assert (model.n_samples_seen_, model.n_skipped_) == (10, 1)
    model = OnlineNMF(2, random_state=0, on_error="skip").fit(Batches([X, X[:, :2], X]))
    assert (model.n_samples_seen_, model.n_skipped_) == (46, 1)
    lines = [json.dumps({"text": text}) for text in TEXTS]
    (tmp_path / "x.jsonl").write_text("\n".join([lines[0], "", "{nonsense", *lines[1:]]))
    (tmp_path / "0.txt").write_text(TEXTS[0])
    (tmp_path / "1.txt").write_bytes(b"\xff\xfe\xfa")
    for name, words, kept in (("x.jsonl", "line 3 is not a JSON", 3), ("?.txt", "1.txt cannot be read as text", 1)):
        source = open_source(f"text:{tmp_path}/{name}?words=5")
        model = OnlineNMF(2, random_state=0, on_error="skip", batch_size=1, method="em").fit(source)
        assert (model.n_samples_seen_, model.n_skipped_) == (kept, 1)
        assert words in model.skipped_[0]
        for wrapped in (source, prefetch(source), take(prefetch(source), 9)):
            OnlineNMF(2, random_state=0, on_error="skip", batch_size=1, method="em").fit(wrapped)
            for each in (source, wrapped):
                with pytest.raises(SourceError, match=words):  # nothing of that policy stays with the source
                    whole(each)


def test_a_loader_that_can_be_read_once_but_does_not_say_so_is_found_out() -> None:
    parts = iter(np.array_split(X, 4))
    with pytest.raises(SourceError, match="pass 2 found no batches"):
        OnlineNMF(2, max_passes=2, random_state=0).fit(Batches(lambda: parts))


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


def test_texts_that_are_cut_while_they_are_read_are_not_taken_for_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("some words in a line\n" * 20_000)
    stream = open_source(path).batches(10)
    next(stream)
    path.write_text("some words\n")
    with pytest.raises(SourceError, match="shrank"):
        list(stream)


def test_names_that_look_like_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("2020,2021\n1,2\n3,4\n")
    assert open_source(tmp_path / "x.csv").n_samples == 3
    source = open_source(f"{tmp_path}/x.csv?header=yes")
    assert source.feature_names == ["2020", "2021"]
    np.testing.assert_array_equal(whole(source), [[1, 2], [3, 4]])
    with pytest.raises(SourceError, match="header must be yes or no"):
        open_source(f"{tmp_path}/x.csv?header=1")


def test_pictures_of_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.array([[0, 25700], [51400, 65535]], dtype=np.uint16)).save(tmp_path / "x.png")
    np.testing.assert_allclose(whole(open_source(f"images:{tmp_path}")), [[0, 100, 200, 255]])
    image.fromarray(np.full((2, 2), 257, dtype=np.uint16)).save(tmp_path / "x.png")
    np.testing.assert_allclose(whole(open_source(f"images:{tmp_path}")), 1)
    image.fromarray(np.ones((2, 2), dtype=np.float32)).save(tmp_path / "y.tif")
    with pytest.raises(SourceError, match="floating-point"):
        whole(open_source(f"images:{tmp_path}/y.tif"))
    with pytest.raises(SourceError, match="more than 50,000,000 pixels"):
        open_source(f"images:{tmp_path}?size=99999x99999")


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


@quiet
def test_a_folder_of_unlike_files_is_refused(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1.0], "b": [1.0]}), tmp_path / "1.parquet")
    with pytest.raises(SourceError, match="other columns"):
        open_source(f"parquet:{tmp_path}")


@quiet
def test_cells_stored_by_columns_are_refused_with_the_cure(tmp_path: Path) -> None:
    path = write_h5ad(tmp_path, scipy.sparse.csc_matrix(X))
    with pytest.raises(SourceError, match="tocsr"):
        open_source(path)


def test_known_words_are_counted_for_transform(texts: dict[str, str]) -> None:
    source = open_source(f"{texts['lines']}words=2", vocabulary=["dog", "sat", "zebra"])
    assert source.feature_names == ["dog", "sat", "zebra"]
    np.testing.assert_array_equal(whole(source), [[0, 1, 0], [1, 1, 0], [1, 0, 0]])
    for bad in ("hashed=0", "words=0"):
        with pytest.raises(SourceError, match="at least 1"):
            open_source(f"{texts['lines']}{bad}")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "f4", ">f8", "u1", "?"])
def test_scattered_rows_of_an_array_in_a_file(order: Any, dtype: str, tmp_path: Path) -> None:
    data = np.asarray(np.random.default_rng(0).integers(0, 2, (23, 4)), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", data)
    for rows, batch in open_source(tmp_path / "x.npy").batches(5, np.random.default_rng(0)):
        np.testing.assert_array_equal(batch, data[rows])
        assert batch.dtype == data.dtype


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


def test_a_loader_without_length_is_learnt_from_and_sources_are_not_transformed() -> None:
    class Loader:
        def __iter__(self) -> Any:
            return iter(np.array_split(X, 4))

    model = OnlineNMF(2, random_state=0, shuffle=False).fit(Loader())
    np.testing.assert_array_equal(model.components_, OnlineNMF(2, random_state=0, shuffle=False).fit(X).components_)
    with pytest.raises(TypeError, match="go over a source's batches"):
        model.transform(Rows(X))
    with pytest.raises(TypeError, match=r"checkpoint=Checkpoint\('run'\)"):
        model.fit(X, checkpoint="run")
