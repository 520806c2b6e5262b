"""One budget of memory per batch: small files that stand for much raise an error before, and honest ones are cut."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
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
from onmf.data import SourceError, open_source
from tests.processes import run

MUCH = 10**8  # bytes that each bomb becomes
MEMORY = "16MB"
ROOM = 48e6  # bytes that a process may grow by: the budget, and libraries that it loads
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
    pyarrow.parquet.write_table(table, path, use_dictionary=False, compression="zstd", data_page_size=2**30)
    return f"parquet:{path}"


def parquet_that_lies(path: Path) -> str:
    """Its footer claims little, its page does not."""
    import pyarrow.parquet

    parquet(path)
    content, honest = path.read_bytes(), pyarrow.parquet.read_metadata(path).row_group(0).column(0)
    number, small = (_varint(2 * size) for size in (honest.total_uncompressed_size, 1000))
    assert content.count(number) == 1
    path.write_bytes(content.replace(number, small.ljust(len(number), b"\x00")))
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

    Image.fromarray(np.zeros((2500, 2000), np.uint16)).save(path, format="PNG", compress_level=1)
    return f"images:{path}"


def tile(path: Path) -> str:
    from PIL import Image, TiffImagePlugin

    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[322] = tags[323] = 10_000
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(path, format="TIFF", tiffinfo=tags, compression="tiff_lzw")
    return f"images:{path}"


def sound(path: Path) -> str:
    import soundfile

    soundfile.write(path, np.zeros(2_000_000), 8000, format="WAV", subtype="PCM_U8")
    return f"audio:{path}?window=1000000"


def line(path: Path, start: bytes, again: bytes, scheme: str) -> str:
    path.write_bytes(start + again * (MUCH // 20 // len(again)))
    return f"{scheme}:{path}"


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
    import pyarrow.parquet

    index = pyarrow.DictionaryArray.from_arrays(np.zeros(200, np.int32), ["x" * (MUCH // 100)])
    table = pyarrow.table({"a": np.ones(200), "name": index})
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    return f"{kind}:{path}?index=name"
