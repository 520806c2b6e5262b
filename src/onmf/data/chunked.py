"""Chunked arrays on disk, read by slices of rows: Zarr and HDF5."""

import json
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onmf.data.base import (
    Numbered,
    OnBad,
    Sequential,
    Source,
    SourceError,
    reading,
    require_filled,
    require_matrix,
    require_unchanged,
)
from onmf.data.files import names_below, require_own, require_own_content
from onmf.data.registry import register

log = logging.getLogger("onmf")

MOST_BYTES = 2**30  # of a chunk of Zarr
ATTRIBUTES = ".zattrs"  # which may be of any kind
METADATA = ("zarr.json", ".zarray", ".zmetadata", ".zgroup", ATTRIBUTES)
# Codecs of Zarr that only compute; pickle would run what a file tells it to, and others are not known.
CODECS = (  # noqa: SIM905
    "adler32 astype base64 bitround blosc bytes bz2 categorize crc32 crc32c delta endian fixedscaleoffset fletcher32 "
    "gzip jenkins_lookup3 json2 lz4 lzma msgpack2 packbits pcodec quantize sharding_indexed shuffle transpose "
    "vlen-array vlen-bytes vlen-utf8 zfpy zlib zstd"
).split()


class Sliced(Sequential):
    """Slices of the rows of a matrix, read in order, because reading single rows of chunked files is slow.

    ``witness`` is a file that is there, and does not shrink, as long as the matrix is whole. ``columns`` are the places
    of the features, if not all columns are. ``names``, the names of the rows, stay in the file and are read with them.
    """

    seeks = True

    def __init__(self, where: str, X: Any, witness: Path, columns: list[int] | None = None, names: Any = None) -> None:
        require_matrix(where, X)
        self.where, self.X, self.columns, self.names = where, X, columns, names
        self.witness, self.size = witness, witness.stat().st_size
        self.n_samples, self.n_features = int(X.shape[0]), int(X.shape[1]) if columns is None else len(columns)
        chunks = getattr(X, "chunks", None)  # each of which is read whole
        self.edges = range(0, self.n_samples, chunks[0]) if chunks else None

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        for start in range(first, self.n_samples or 0, size):
            require_unchanged(self.witness, self.size)
            with reading(self.where, f"from row {start} onward"):
                batch = self.X[start : start + size]
                batch = batch if self.columns is None else batch[:, self.columns]
                rows = np.arange(start, start + batch.shape[0])
                if self.names is not None:
                    rows = np.array(self.names.asstr()[start : start + size], dtype=object)
            yield rows, batch


@register("zarr", [".zarr"], takes=["folders"], needs="zarr", extra="zarr")
def zarr(path: Path, name: str | None = None) -> Source:
    """Open a Zarr array, or the one called ``name`` in a group."""
    import zarr as library

    inside = path if name is None else path / name.replace("\\", "/").strip("/")
    with reading(path, "as Zarr"):
        _require_known_codecs(path, inside)
        found = library.open(path, mode="r")
        X = _array(found if name is None else found[name], path, "zarr")
        witness = next((inside / each for each in ("zarr.json", ".zarray") if (inside / each).exists()), path)
        if (bytes_needed := math.prod(X.chunks) * X.dtype.itemsize) > MOST_BYTES:
            raise SourceError(
                f"{inside} has chunks of {bytes_needed / 1e9:.3g} GB, each of which would be read whole; store it in "
                "smaller chunks, unless it is damaged."
            )
        source = Sliced(str(inside), X, witness)
        part = X.shards or X.chunks  # what a file holds
        parts = math.prod(-(-length // step) for length, step in zip(X.shape, part, strict=True))
        files = sum(not each.startswith(".") and each != "zarr.json" for each in names_below(inside, path))
        there = min(files, parts)
        require_filled(inside, X.shape, there * math.prod(part))
    _say_missing(inside, parts - there, parts, X.fill_value, "files are missing: copy it again")
    return source


def _require_known_codecs(path: Path, inside: Path) -> None:
    """Raise an error, before Zarr reads them, if the metadata of an array or of its groups name any other codec."""
    folders = [inside, *(each for each in inside.parents if each.is_relative_to(path))]
    for file in (folder / name for folder in folders for name in METADATA):
        require_own(path, [file])
        if file.name != ATTRIBUTES and file.is_file():
            for codec in _codecs(json.loads(file.read_bytes())):
                if str(codec).removeprefix("numcodecs.") not in CODECS:
                    raise SourceError(
                        f"{file} names the codec {codec!r}, which onmf does not run; write the array with another, "
                        "such as zstd or blosc."
                    )


def _codecs(facts: Any) -> Iterator[Any]:
    """Yield the names of the codecs of an array, or of all arrays that a group's consolidated metadata describe."""
    if isinstance(facts, dict):
        for key in ("compressor", "filters", "codecs"):
            yield from _codec_names(facts.get(key))
        yield from _codecs(facts.get("consolidated_metadata"))
        if isinstance(members := facts.get("metadata"), dict):
            for name, member in members.items():
                if not name.endswith(ATTRIBUTES):
                    yield from _codecs(member)


def _codec_names(codecs: Any) -> Iterator[Any]:
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        if isinstance(codec, dict):
            yield from (codec[key] for key in ("id", "name") if key in codec)  # in formats 2 and 3
            if isinstance(shard := codec.get("configuration"), dict):
                yield from _codec_names(shard.get("codecs"))
                yield from _codec_names(shard.get("index_codecs"))
        elif codec is not None:
            yield codec


def open_hdf5(path: Path) -> Any:
    """Open the file for reading; one that leads to other files, or that is being written to, raises an error."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except BlockingIOError:
        raise SourceError(f"{path} is open for writing in another program; close it there first.") from None
    require_own_content(path, file)
    return file


@register("hdf5", [".h5", ".hdf5"], needs="h5py", extra="hdf5")
def hdf5(path: Path, name: str | None = None) -> Source:
    """Open the data set called ``name`` in an HDF5 file; the name can be left out where there is only one."""
    import h5py

    with reading(path, "as HDF5"):
        file = open_hdf5(path)
        if name is None or name not in file:
            names: list[str] = []
            file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
            if name is not None or len(names) != 1:
                but = f" but no data set {name!r}" if name else ""
                what = f"{len(names)} data sets ({', '.join(names[:10])}){but}"
                raise SourceError(f"{path} holds {what}; name one: hdf5:{path}?name=NAME.")
            name = names[0]
        where, X = f"{path} ({name})", _array(file[name], path, "hdf5")
        source = Sliced(where, X, path)
        if X.is_virtual:
            _require_parts(where, path, X)
        else:
            chunks = math.prod(-(-length // step) for length, step in zip(X.shape, X.chunks or X.shape, strict=True))
            allocated = X.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED
            there = X.id.get_num_chunks() if X.chunks else int(allocated)
            require_filled(where, X.shape, there * math.prod(X.chunks or X.shape))
            _say_missing(where, chunks - there, chunks, X.fillvalue, "it was never finished: write it again")
    return source


def _say_missing(where: str | Path, missing: int, chunks: int, fill: Any, cure: str) -> None:
    """Warn of chunks that are not there, which is no fault if they hold nothing but the fill value."""
    if missing:
        log.warning(
            "%s: %d of %d chunks are not there and are read as %s; if they did not hold that when they were written, "
            "%s.",
            *(where, missing, chunks, fill, cure),
        )


def _require_parts(where: str, path: Path, X: Any) -> None:
    """Raise an error if parts of a virtual data set are not there: HDF5 would read them as zeros."""
    import h5py

    names = {(each.file_name, each.dset_name) for each in X.virtual_sources()}
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(path.parent))
    missing = []
    for name, inside in sorted(names):
        if "%" in name:  # a series of files that may become longer
            continue
        places = path.parent / name, Path(prefix) / name, path.parent / Path(name).name
        found = path if name == "." else next(filter(Path.is_file, places), None)
        if found is not None:
            with h5py.File(found, "r") as file:
                if inside in file:
                    continue
        missing.append(f"{name} ({inside})")
    if missing:
        raise SourceError(
            f"{where} is made of parts of which {len(missing)} of {len(names)} are not there, the first {missing[0]}; "
            "copy them to where it expects them."
        )


def _array(X: Any, path: Path, scheme: str) -> Any:
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        names = ", ".join(list(X)[:10]) if hasattr(X, "__iter__") else ""
        raise SourceError(f"{path} is a group ({names}), not an array; name one: {scheme}:{path}?name=NAME.")
    return X
