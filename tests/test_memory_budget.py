"""One budget of memory per batch: small files that stand for much raise an error before, and honest ones are cut."""

from __future__ import annotations

import os
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF
from onmf.data import SourceError, budget, h5ad, open_source, register
from onmf.data.budget import parsed
from onmf.data.text import WordCounts
from tests.processes import run

for library in ("anndata", "h5py", "PIL", "pyarrow", "soundfile", "zarr"):
    pytest.importorskip(library)

MUCH = 3 * 10**7  # bytes that each bomb becomes, at least
MEMORY = "6MB"
ROOM = 15e6  # bytes that a process may grow by: the budget, and what libraries take for themselves
ZEROS = bytes(MUCH)
Bomb = Callable[[Path], str]  # writes it, and returns what to open


def feather(path: Path, stream: bool = False) -> str:
    import pyarrow.ipc

    table = pyarrow.record_batch({"a": np.zeros(MUCH // 8)})
    new = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with new(path, table.schema, options=pyarrow.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(table)
    return f"arrow:{path}"


def parquet(path: Path) -> str:
    import pyarrow.parquet

    table = pyarrow.table({"a": np.zeros(MUCH // 8)})
    large = {"row_group_size": MUCH, "data_page_size": 2**30, "write_batch_size": MUCH, "max_rows_per_page": MUCH}
    pyarrow.parquet.write_table(table, path, use_dictionary=False, compression="zstd", **large)
    return f"parquet:{path}"


def parquet_that_lies(path: Path) -> str:
    """Its footer claims little, its page does not."""
    import pyarrow.parquet

    parquet(path)
    content, honest = path.read_bytes(), pyarrow.parquet.read_metadata(path).row_group(0).column(0)
    number, small = (_varint(2 * size) for size in (honest.total_uncompressed_size, 1000))
    place = content.rindex(number)
    small = bytes([*(byte | 128 for byte in small), 128, 0][: len(number)])
    path.write_bytes(content[:place] + small + content[place + len(number) :])
    return f"parquet:{path}"


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        number, found = number >> 7, found + bytes([number & 127 | 128])
    return found + bytes([number])


def npz(path: Path) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        parts = {"format": b"csr", "shape": (1, MUCH), "indptr": (0, MUCH // 8)}
        for name, part in {**parts, "indices": np.zeros(MUCH // 8, np.int8), "data": np.zeros(MUCH // 8)}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(part))
    return f"npz:{path}"


def row_of_an_array(path: Path) -> str:
    with path.open("wb") as file:
        facts = {"descr": "<f8", "fortran_order": False, "shape": (3, MUCH // 8)}
        np.lib.format.write_array_header_1_0(file, facts)
        file.truncate(file.tell() + 3 * MUCH)
    return f"npy:{path}"


def hdf5(path: Path) -> str:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((MUCH // 80, 10)), chunks=(MUCH // 80, 10), compression=1)
    return f"hdf5:{path}"


def hdf5_that_lies(path: Path, compression: str = "gzip") -> str:
    import h5py

    packed = zlib.compress(ZEROS, 1) if compression == "gzip" else b"\x00\x00" + b"\xe0\xff\x00" * (MUCH // 264)
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("x", (40, 5), chunks=(40, 5), dtype="f8", compression=compression)
        stored.id.write_direct_chunk((0, 0), packed)
    return f"hdf5:{path}"


def zarr_that_lies(path: Path, codec: str, zarr_format: int = 3, shards: tuple[int, int] | None = None) -> str:
    import numcodecs
    import zarr

    codecs = {"gzip": "GZip", "zlib": "Zlib", "bz2": "BZ2", "lz4": "LZ4", "zstd": "Zstd", "blosc": "Blosc"}
    own = getattr(numcodecs, codecs[codec])()
    how = own if zarr_format == 2 else getattr(zarr.codecs, f"{codec.title()}Codec")()
    array = zarr.create_array(
        str(path), shape=(40, 5), chunks=(20, 5), shards=shards, dtype="f8", compressors=how, zarr_format=zarr_format
    )
    array[:] = 1.0
    chunk = path / ("0.0" if zarr_format == 2 else "c/0/0")
    content = bytes(own.encode(ZEROS))
    if shards is not None:
        index = np.array([[0, len(content)], [0, len(content)]], "<u8").tobytes()
        import google_crc32c

        content += index + google_crc32c.value(index).to_bytes(4, "little")
    chunk.write_bytes(content)
    return f"zarr:{path}"


def chunk_that_is_too_long(path: Path) -> str:
    import zarr

    zarr.create_array(str(path), shape=(40, 5), chunks=(40, 5), dtype="f8", compressors=None)[:] = 1.0
    os.truncate(path / "c/0/0", MUCH)
    return f"zarr:{path}"


def picture(path: Path) -> str:
    from PIL import Image

    Image.fromarray(np.zeros((1500, 1000), np.uint16)).save(path, format="PNG", compress_level=1)
    return f"images:{path}"


def tile(path: Path) -> str:
    """A TIFF of 16 x 16 in one tile of 5000 x 5000."""
    pixels = zlib.compress(bytes(5000 * 5000), 1)
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: 5000, 323: 5000, 324: 8, 325: len(pixels)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    place = 8 + len(pixels)
    path.write_bytes(b"II*\0" + struct.pack("<I", place) + pixels + struct.pack("<H", len(tags)) + entries + bytes(4))
    return f"images:{path}"


def sound(path: Path) -> str:
    import soundfile

    soundfile.write(path, np.zeros(500_000), 8000, format="WAV", subtype="PCM_U8")
    return f"audio:{path}?window=500000"


def line(path: Path, start: bytes, again: bytes, scheme: str) -> str:
    path.write_bytes(start + again * (MUCH // 20 // len(again)))
    return f"{scheme}:{path}"


def words(path: Path) -> str:
    """Two hundred thousand of them, each of which occurs once."""
    path.write_text("".join(f"a{number} b{number}\n" for number in range(100_000)))
    return f"text:{path}"


def folder(path: Path) -> str:
    path.mkdir()
    line(path / "a.txt", b"", b"ab cd ", "text")
    return f"text:{path}"


def cells(path: Path, kind: str) -> str:
    import h5py

    wide = MUCH // 12
    with h5py.File(path, "w") as file:
        file.create_group("var").attrs["_index"] = "names"
        names = np.arange(1000 if kind == "csc_matrix" else wide).astype("S8")
        if kind == "dense":
            names = np.full(5, b"x" * (MUCH // 5))
            file["X"] = np.ones((3, 5))
        else:
            entries = wide // 2
            file.create_group("X").attrs.update({"encoding-type": kind, "shape": (entries, 1000)})
            packed: Any = {"compression": 1, "chunks": (1000,)}
            file["X"].create_dataset("data", data=np.ones(entries), **packed)
            file["X"].create_dataset("indices", data=np.arange(entries, dtype=np.int32), **packed)
            file["X"]["indptr"] = np.r_[0, np.full(1000, entries)]
        file["var"].create_dataset("names", data=names, compression=1, chunks=(len(names),))
    return f"h5ad:{path}"


def names(path: Path, kind: str) -> str:
    """A long name, stored once, of every row."""
    import pyarrow.feather
    import pyarrow.parquet

    index = pyarrow.DictionaryArray.from_arrays(np.zeros(200, np.int32), ["x" * (MUCH // 100)])
    table = pyarrow.table({"a": np.ones(200), "name": index})
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    return f"{kind}:{path}?index=name"


CHARACTERS = "of more than 93750 characters, takes more memory than memory=6MB allows"
BOMBS: dict[str, tuple[Bomb, str]] = {  # and what is said of them
    "a record batch": (feather, "a record batch of .* takes 31MB"),
    "a record batch of a stream": (lambda path: feather(path, stream=True), "a record batch of .* takes 31MB"),
    "a page of Parquet": (parquet, "a row group of .* takes 61MB"),
    "a page of Parquet that its footer denies": (parquet_that_lies, "a row group of .* takes 61MB"),
    "an archive": (npz, "takes 68MB"),
    "a row of an array": (row_of_an_array, "one row of .* takes 60MB"),
    "a chunk of HDF5": (hdf5, "one chunk of .* takes 60MB"),
    "a chunk of HDF5 that denies it": (hdf5_that_lies, "larger than the 1600 bytes"),
    "the same, lzf": (lambda path: hdf5_that_lies(path, "lzf"), "larger than the 1600 bytes"),
    "a chunk of Zarr, zstd": (lambda path: zarr_that_lies(path, "zstd"), "larger than the 800 bytes"),
    "a chunk of Zarr, blosc": (lambda path: zarr_that_lies(path, "blosc"), "larger than the 800 bytes"),
    "a chunk of Zarr, gzip": (lambda path: zarr_that_lies(path, "gzip"), "larger than the 800 bytes"),
    "a chunk of Zarr 2, zlib": (lambda path: zarr_that_lies(path, "zlib", 2), "larger than the 800 bytes"),
    "a chunk of Zarr 2, lz4": (lambda path: zarr_that_lies(path, "lz4", 2), "larger than the 800 bytes"),
    "a chunk of Zarr 2, bz2": (lambda path: zarr_that_lies(path, "bz2", 2), "larger than the 800 bytes"),
    "a shard of Zarr": (lambda path: zarr_that_lies(path, "zstd", shards=(40, 5)), "larger than the 800 bytes"),
    "a long chunk of Zarr": (chunk_that_is_too_long, "larger than the 1600 bytes"),
    "a picture": (picture, "takes 36MB"),
    "a tile of a picture": (tile, "takes 600MB"),
    "a frame of sound": (sound, "one row of .* takes 40MB"),
    "a header": (lambda path: line(path, b"", b"name,", "csv"), f"row 0, {CHARACTERS}"),
    "a line of numbers": (lambda path: line(path, b"1,2\n", b"1.5,", "csv"), f"row 1, {CHARACTERS}"),
    "a line of words": (lambda path: line(path, b"", b"ab cd ", "text"), f"row 0, {CHARACTERS}"),
    "a line of JSON": (lambda path: line(path, b'{"a": [1', b", 1", "jsonl") + "?features=a", f"row 0, {CHARACTERS}"),
    "a file of words": (folder, f"row 0, {CHARACTERS}"),
    "the names of genes": (lambda path: cells(path, "dense"), "the list of names in .* takes more memory"),
    "cells by columns": (lambda path: cells(path, "csc_matrix"), "stored by columns, takes 30MB"),
    "the names of rows of Parquet": (lambda path: names(path, "parquet"), "the list of names in .* takes more memory"),
    "the names of rows of Feather": (lambda path: names(path, "feather"), "the list of names in .* takes more memory"),
    "many words": (words, "nothing"),
}
READ = """
import sys
import h5py, PIL.Image, pyarrow.dataset, pyarrow.parquet, sklearn.feature_extraction.text, soundfile, zarr
from onmf.data import SourceError, open_source

def memory(name):
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith(name)).split()[1]) * 1024

def read(text):
    for _ in open_source(text).batches(200):
        pass

for text in sys.stdin.read().splitlines():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is counted from now on
    before = memory("VmRSS")
    try:
        read(text)
        said = "nothing"
    except SourceError as error:
        said = str(error)
    print(memory("VmHWM") - before, said, sep="\\t", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell the peak of memory")
def test_a_small_file_that_stands_for_much_raises_an_error_before_it_takes_memory(tmp_path: Path) -> None:
    texts = []
    for name, (write, _) in BOMBS.items():
        (tmp_path / name).mkdir()
        texts.append(write(tmp_path / name / "x"))
        assert sum(file.stat().st_blocks for file in (tmp_path / name).rglob("*")) * 512 < MUCH / 10
    asked = [f"{text}{'&' if '?' in text else '?'}memory={MEMORY}" for text in texts]
    done = run("-c", READ, given="\n".join(asked), text=True)
    assert done.returncode == 0, done.stderr
    for (name, (_, said)), found in zip(BOMBS.items(), done.stdout.splitlines(), strict=True):
        peak, error = found.split("\t")
        assert re.search(said, error), (name, error)
        assert float(peak) < ROOM, (name, peak)


# Honest files


N, F = 60, 40
X = np.random.default_rng(0).integers(0, 9, (N, F)).astype(float)


def write_csv(path: Path) -> None:
    np.savetxt(path, X, delimiter=",", fmt="%g")


def write_npz(path: Path) -> None:
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(X))


def write_hdf5(path: Path, how: Any = "gzip") -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=X, chunks=(25, 7), compression=how, shuffle=True)


def write_zarr(path: Path, **how: Any) -> None:
    import zarr

    zarr.create_array(str(path), shape=X.shape, chunks=(25, 7), dtype="f8", **how)[:] = X


def write_h5ad(path: Path, kind: Any = scipy.sparse.csr_matrix) -> None:
    import anndata

    anndata.AnnData(kind(X)).write_h5ad(path, compression="gzip")


def write_arrow(path: Path) -> None:
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.table({f"f{k:02}": column for k, column in enumerate(X.T)})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=25)
    else:
        pyarrow.feather.write_feather(table, str(path), compression="zstd", chunksize=25)


def write_pictures(path: Path) -> None:
    from PIL import Image

    path.mkdir()
    for number, row in enumerate(X.astype(np.uint8)):
        Image.fromarray(row.reshape(5, 8)).save(path / f"{number:02}.png")


HONEST: dict[str, Callable[[Path], None]] = {
    "x.csv": write_csv,
    "x.npy": lambda path: np.save(path, X),
    "x.npz": write_npz,
    "x.h5": write_hdf5,
    "lzf.h5": lambda path: write_hdf5(path, "lzf"),
    "plain.h5": lambda path: write_hdf5(path, None),
    "x.zarr": write_zarr,
    "shards.zarr": lambda path: write_zarr(path, shards=(50, 14)),
    "v2.zarr": lambda path: write_zarr(path, zarr_format=2),
    "plain.zarr": lambda path: write_zarr(path, compressors=None),
    "x.h5ad": write_h5ad,
    "csc.h5ad": lambda path: write_h5ad(path, scipy.sparse.csc_matrix),
    "dense.h5ad": lambda path: write_h5ad(path, np.asarray),
    "x.parquet": write_arrow,
    "x.feather": write_arrow,
    "images:x": write_pictures,
}


@pytest.mark.parametrize("name", HONEST)
def test_batches_are_cut_to_fit_and_what_cannot_be_cut_is_read_with_the_memory_that_the_error_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h5ad, "require_harmless", lambda *_: 0)  # a process of its own, which takes a while
    path = tmp_path / name.rpartition(":")[2]
    HONEST[name](path)
    text, memory = f"{name.partition(':')[0]}:{path}" if ":" in name else str(path), "6kB"
    for _ in range(4):
        try:
            found = [batch for _, batch in open_source(f"{text}?memory={memory}").batches(N)]
            break
        except SourceError as error:
            memory = re.findall(r"\?memory=([\d.]+\w+)", str(error))[-1]
    cut = np.concatenate([batch.toarray() if scipy.sparse.issparse(batch) else batch for batch in found])
    assert np.array_equal(cut, X)
    if not scipy.sparse.issparse(found[0]):
        assert max(batch.nbytes for batch in found) <= parsed(memory)
    if parsed(memory) < X.nbytes:
        assert len(found) > 1


@pytest.mark.parametrize("name", ["x.h5", "x.zarr", "x.h5ad"])
def test_a_chunk_is_decompressed_once_however_many_batches_it_makes(name: str, tmp_path: Path) -> None:
    path, many = tmp_path / name, np.tile(X, (20, 1))
    if name == "x.zarr":
        import zarr

        zarr.create_array(str(path), shape=many.shape, chunks=many.shape, dtype="f8")[:] = many
    elif name == "x.h5":
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=many, chunks=many.shape, compression="gzip")
    else:
        import anndata

        large: Any = {"compression": "gzip", "chunks": (np.count_nonzero(many),)}
        anndata.AnnData(scipy.sparse.csr_matrix(many)).write_h5ad(path)
        import h5py

        with h5py.File(path, "r+") as file:
            for part in ("data", "indices"):
                values = file["X"][part][:]
                del file["X"][part]
                file["X"].create_dataset(part, data=values, **large)
    source: Any = open_source(path)
    stored = source.X.data if name == "x.h5ad" else source.X
    reads = []
    read = type(stored).__getitem__

    class Counted(type(stored)):  # type: ignore[misc]
        def __getitem__(self, rows: slice) -> Any:
            reads.append(rows)
            return read(self, rows)

    stored.__class__ = Counted
    assert sum(len(rows) for rows, _ in source.batches(10)) == len(many)
    assert len(reads) <= 2  # the rows of a chunk of a sparse matrix are counted on average


def test_a_line_that_is_too_long_costs_nothing_but_itself(tmp_path: Path) -> None:
    for name, good, long in (("x.csv", "1,2\n", "1," * 999 + "\n"), ("x.txt", "ab cd\n", "ab " * 999 + "\n")):
        (tmp_path / name).write_text(good * 20 + long + good * 10)
        source = open_source(f"{tmp_path / name}?memory=64kB")
        with pytest.raises(SourceError, match=r"row 20, of more than 1000 characters, takes more memory"):
            list(source.batches(7))
        model = OnlineNMF(1, on_error="skip", random_state=0).fit(source)
        assert (model.n_samples_seen_, model.n_skipped_) == (30, 1)


def test_a_fit_whose_batches_do_not_fit_is_one_with_smaller_batches(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    cut = OnlineNMF(3, batch_size=50, random_state=0).fit(open_source(f"{tmp_path / 'x.npy'}?memory=8kB"))
    smaller = OnlineNMF(3, batch_size=12, random_state=0).fit(open_source(tmp_path / "x.npy"))
    assert np.array_equal(cut.components_, smaller.components_)


def test_cells_that_are_far_denser_than_the_others_raise_an_error(tmp_path: Path) -> None:
    write_h5ad(tmp_path / "x.h5ad", lambda X: scipy.sparse.csr_matrix(np.vstack([X, np.zeros((4000, F))])))
    source = open_source(f"{tmp_path / 'x.h5ad'}?memory=40kB")
    with pytest.raises(SourceError, match=r"rows 0 to \d+ of .* takes \d+kB of memory, more than memory=40kB allows"):
        next(source.batches(400))


def test_words_are_forgotten_by_their_length_too() -> None:
    counts = WordCounts(most=100)
    for row in range(500):
        counts.add(["often", f"{row}" * 200])
        assert sum(map(len, counts.total)) <= 3200
    assert counts.total["often"] == 500


# The setting


def test_memory_is_an_option_of_every_scheme_or_a_variable_and_of_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", X)
    text = str(tmp_path / "x.npy")
    assert open_source(text).memory == 2 * 10**9
    source = open_source(f"{text}?memory=1.5MiB")
    assert source.memory == 3 * 2**19
    assert source.spec is not None
    assert "memory" not in source.spec.options
    assert open_source(str(source.opened)).memory == source.memory  # as workers open it
    monkeypatch.setenv("ONMF_MEMORY", "7MB")
    assert open_source(text).memory == 7 * 10**6
    assert open_source(f"{text}?memory=8000").memory == 8000
    for wrong in ("much", "-1", "0", "3 apples", "1e9", "nan"):
        with pytest.raises(ValueError, match=r"memory, or the variable ONMF_MEMORY, must be a size such as 500MB"):
            open_source(f"{text}?memory={wrong}")

    def opener(path: Path, memory: str) -> Any: ...

    with pytest.raises(TypeError, match="every scheme has an option memory"):
        register("remembering")(opener)


def test_no_more_than_half_of_the_free_memory_is_taken_for_what_cannot_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = picture(tmp_path / "x.png")
    monkeypatch.setattr(budget, "free_memory", lambda: 50 * 10**6)
    with pytest.raises(SourceError, match=r"x\.png takes 36MB of memory, more than half of the 50MB that are free\."):
        open_source(text)
    monkeypatch.setattr(budget, "free_memory", lambda: 100 * 10**6)
    assert open_source(text).n_features == 1500 * 1000


def test_memory_is_free_within_the_limit_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "CGROUP", tmp_path)
    free = budget.free_memory()
    if free is None:
        pytest.skip("this system does not tell")
    (tmp_path / "memory.stat").write_text("file 90000\nanon 1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (budget.free_memory() or 0) > 10**6
    (tmp_path / "memory.max").write_text("5000\n")
    assert budget.free_memory() == 4000
