"""Chunked arrays on disk, read by slices of rows: Zarr and HDF5."""

import json
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
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
    require_room,
    require_unchanged,
)
from onmf.data.budget import allowed
from onmf.data.columns import Genes
from onmf.data.compressed import HOW, RATIOS, decompressed
from onmf.data.files import names_below, require_own, require_own_content
from onmf.data.registry import register

log = logging.getLogger("onmf")

SLACK = 2**18  # bytes that a chunk may be longer than it should: a block of zstd, headers
FILTERS = {1: "zlib", 32000: "lzf", 32001: "blosc", 32015: "zstd"}  # of HDF5, the last two with plugins
ATTRIBUTES = ".zattrs"  # which may be of any kind
METADATA = ("zarr.json", ".zarray", ".zmetadata", ".zgroup", ATTRIBUTES)
# Codecs of Zarr that only compute, and that take no more memory than can be told before: pickle would run what a file
# tells it to, and others are not known.
CODECS = (  # noqa: SIM905
    "astype bitround blosc bytes bz2 crc32c delta endian fixedscaleoffset gzip lz4 packbits quantize sharding_indexed "
    "shuffle transpose vlen-utf8 zlib zstd"
).split()


Stored = tuple[int, Callable[[], bytes] | None]  # the length of a chunk as it is stored and, if compressed, a reader


class Chunks(ABC):
    """An array in compressed chunks, read by slices of rows; a chunk that becomes larger than it should is not read."""

    def __init__(self, where: str, X: Any, memory: int, codec: str | None) -> None:
        self.where, self.X, self.memory, self.codec = where, X, memory, codec
        self.shape, self.dtype, self.chunks = X.shape, X.dtype, X.chunks  # None: it is not in chunks
        self.bytes = math.prod(self.chunks or ()) * X.dtype.itemsize  # of a chunk
        if self.chunks:
            require_room(f"one chunk of {where}", 2 * self.bytes, memory)

    def __getitem__(self, rows: slice) -> Any:
        start, stop, _ = rows.indices(self.shape[0])
        self.require_sound(start, stop)
        # Side by side as many chunks as fit: some libraries decompress all that they are asked for at once.
        wide = self.chunks[1] * max(1, self.memory // (4 * self.bytes)) if self.chunks and self.shape[1:] else 0
        if not 0 < wide < self.shape[-1]:
            return self.X[start:stop]
        parts = (self.X[start:stop, first : first + wide] for first in range(0, self.shape[1], wide))
        return np.concatenate(list(parts), axis=1)

    def require_sound(self, start: int, stop: int) -> None:
        """Raise an error if a chunk of these rows takes far more room than it should, stored or decompressed."""
        most, possible = 2 * self.bytes + SLACK, 0
        for size, content in self._stored(start, stop) if self.chunks else ():
            found = size
            if size <= most and content is not None and self.codec is not None:
                possible += RATIOS.get(self.codec, self.memory) * size
                found = 0 if possible <= self.memory // 2 else decompressed(self.codec, content(), most)
            if found > most:
                raise SourceError(
                    f"{self.where} is damaged: one of its chunks becomes larger than the {self.bytes} bytes that it "
                    "should have."
                )

    def _grid(self, start: int, stop: int, parts: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Return where the parts lie that have some of these rows, counted in parts along each axis."""
        along = [range(start // parts[0], -(-stop // parts[0]))]
        along += [range(-(-length // part)) for length, part in zip(self.shape[1:], parts[1:], strict=True)]
        return product(*along)

    @abstractmethod
    def _stored(self, start: int, stop: int) -> Iterator[Stored]:
        """Yield the chunks that have some of these rows."""


class Sliced(Sequential):
    """Slices of the rows of a matrix, read in order, because reading single rows of chunked files is slow.

    ``witness`` is a file that is there, and does not shrink, as long as the matrix is whole. ``genes`` says which
    columns are the features, if not all are. ``names``, the names of the rows, stay in the file and are read with them.
    """

    seeks = True

    def __init__(self, where: str, X: Any, witness: Path, genes: Genes | None = None, names: Any = None) -> None:
        require_matrix(where, X)
        self.where, self.X, self.genes, self.names = where, X, genes, names
        self.witness, self.size = witness, witness.stat().st_size
        self.n_samples, self.n_features = int(X.shape[0]), int(X.shape[1]) if genes is None else len(genes.names)
        self.row_bytes = X.row_bytes if hasattr(X, "row_bytes") else 2 * int(X.shape[1]) * X.dtype.itemsize
        chunks = getattr(X, "chunks", None)  # each of which is read whole
        self.edges = range(0, self.n_samples, chunks[0]) if chunks else None

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        """Read whole chunks as far as they fit into memory: to read one again takes as long as the first time."""
        start, n = first, self.n_samples or 0
        chunk = self.edges.step if isinstance(self.edges, range) else 1
        block = self.fitting(-(-size // chunk) * chunk)
        block -= block % chunk if block > chunk else 0
        while start < n:
            require_unchanged(self.witness, self.size)
            stop = min(n, (start // block + 1) * block)
            with reading(self.where, f"from row {start} onward"):
                batch = self.X[start:stop]
                batch = batch if self.genes is None else self.genes.of_batch(batch)
                rows = np.arange(start, stop)
                if self.names is not None:
                    rows = np.array(self.names.asstr()[start:stop], dtype=object)
            yield rows, batch
            start = stop


@register("zarr", [".zarr"], takes=["folders"], needs="zarr", extra="zarr")
def zarr(path: Path, name: str | None = None) -> Source:
    """Open a Zarr array, or the one called ``name`` in a group."""
    import zarr as library

    inside = path if name is None else path / name.replace("\\", "/").strip("/")
    with reading(path, "as Zarr"):
        require_known_codecs(path, inside)
        found = library.open(path, mode="r")
        X = _array(found if name is None else found[name], path, "zarr")
        witness = next((inside / each for each in ("zarr.json", ".zarray") if (inside / each).exists()), path)
        source = Sliced(str(inside), ZarrChunks(inside, X), witness)
        part = X.shards or X.chunks  # what a file holds
        parts = math.prod(-(-length // step) for length, step in zip(X.shape, part, strict=True))
        files = sum(not each.startswith(".") and each != "zarr.json" for each in names_below(inside, path))
        there = min(files, parts)
        require_filled(inside, X.shape, there * math.prod(part))
    _say_missing(inside, parts - there, parts, X.fill_value, "files are missing: copy it again")
    return source


class ZarrChunks(Chunks):
    """The chunks of an array of Zarr, each in a file of its own or, with others, in a shard."""

    def __init__(self, path: Path, X: Any) -> None:
        names = [each.codec_id if hasattr(each, "codec_id") else each.to_dict()["name"] for each in X.compressors]
        names = [name.removeprefix("numcodecs.") for name in names]
        while names[-1:] == ["crc32c"]:  # which follows what it checks
            names.pop()
        inner = [getattr(each, "codec_id", "") for each in X.filters]
        if len(names) > 1 or not set(names) <= HOW.keys() or HOW.keys() & set(inner):
            raise SourceError(
                f"{path} is compressed by {[*inner, *names]}; onmf reads arrays that are compressed once."
            )
        super().__init__(str(path), X, allowed(), names[0] if names else None)
        self.path, self.inside = path, (1, 1)  # chunks in a file, along each axis
        if X.shards:
            self.inside = tuple(whole // part for whole, part in zip(X.shards, X.chunks, strict=True))
            (shard,) = X.metadata.to_dict()["codecs"]
            facts = shard["configuration"]
            how = [each["name"] for each in facts["index_codecs"]]
            if how not in (["bytes"], ["bytes", "crc32c"]):
                raise SourceError(f"{path} has shards with an index of {how}; onmf reads bytes and crc32c.")
            self.at_end, self.check = facts["index_location"] == "end", 4 * len(how[1:])

    def _stored(self, start: int, stop: int) -> Iterator[Stored]:
        for place in self._grid(start, stop, self.X.shards or self.chunks):
            file = self.path / self.X.metadata.encode_chunk_key(place)
            if not file.is_file():
                continue
            if self.X.shards:
                before = place[0] * self.X.shards[0]
                yield from self._in_shard(file, max(0, start - before), stop - before)
            else:
                yield file.stat().st_size, file.read_bytes

    def _in_shard(self, path: Path, start: int, stop: int) -> Iterator[Stored]:
        """Yield the chunks of a shard by its index, which says where each begins and how long it is."""
        length, index, chunks = path.stat().st_size, 16 * math.prod(self.inside), math.prod(self.inside)
        if length > 2 * chunks * self.bytes + index + SLACK or length < index + self.check:
            raise SourceError(f"{path} is damaged: it is too long or too short for a shard of {chunks} chunks.")
        with path.open("rb") as file:
            file.seek(length - index - self.check if self.at_end else 0)
            places = np.frombuffer(file.read(index), "<u8").reshape(*self.inside, 2)
            for begin, size in places[start // self.chunks[0] : -(-stop // self.chunks[0])].reshape(-1, 2).tolist():
                if begin < length:  # else the chunk is not there
                    yield min(size, length - begin), partial(_read_at, file, begin, size)


def _read_at(file: Any, begin: int, size: int) -> bytes:
    file.seek(begin)
    return bytes(file.read(size))


class HDF5Chunks(Chunks):
    """The chunks of a data set of HDF5."""

    def __init__(self, where: str, X: Any) -> None:
        facts = X.id.get_create_plist()
        filters = [facts.get_filter(number)[0] for number in range(facts.get_nfilters())]
        codecs = [FILTERS[each] for each in filters if each in FILTERS]
        if len(codecs) > 1:
            raise SourceError(f"{where} is compressed by {codecs}; onmf reads data sets that are compressed once.")
        super().__init__(where, X, allowed(), codecs[0] if codecs else None)
        self.filtered, self.largest = bool(filters), 0
        self.left_out = sum(1 << place for place, each in enumerate(filters) if each in FILTERS)

    def require_sound(self, start: int, stop: int) -> None:
        """Look at each chunk only if the largest could become too large, since to find one takes a while."""
        if self.filtered and self.chunks and not self.largest:
            sizes = [0]
            self.X.id.chunk_iter(lambda chunk: sizes.append(chunk.size))
            self.largest = max(1, *sizes)
        if self.largest * (RATIOS.get(self.codec, self.memory) if self.codec else 1) > self.memory // 2:
            super().require_sound(start, stop)

    def _stored(self, start: int, stop: int) -> Iterator[Stored]:
        for place in self._grid(start, stop, self.chunks) if self.filtered else ():
            corner = tuple(number * part for number, part in zip(place, self.chunks, strict=True))
            found = self.X.id.get_chunk_info_by_coord(corner)
            if found.byte_offset is not None:
                compressed = not found.filter_mask & self.left_out
                yield found.size, partial(self._content, corner) if compressed else None

    def _content(self, corner: tuple[int, ...]) -> bytes:
        return bytes(self.X.id.read_direct_chunk(corner)[1])


def require_known_codecs(path: Path, inside: Path) -> None:
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
        members = facts.get("metadata")
        for name, member in members.items() if isinstance(members, dict) else ():
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
        require_matrix(where, X)
        source = Sliced(where, X if X.is_virtual else HDF5Chunks(where, X), path)
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
            "%s: %d of %d chunks are missing and are read as %s; if they did not hold that when they were written, %s.",
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
                    _require_sound_part(f"{found} ({inside})", file[inside], name == ".")
                    continue
        missing.append(f"{name} ({inside})")
    if missing:
        raise SourceError(
            f"{where} is made of parts of which {len(missing)} of {len(names)} are not there, the first {missing[0]}; "
            "copy them to where it expects them."
        )


def _require_sound_part(where: str, X: Any, own: bool) -> None:
    """Raise an error if a data set that a virtual one takes rows from is not what it says; ``own``: of one file."""
    if own and X.is_virtual:
        raise SourceError(f"{where} is itself made of parts; name the data set that holds the numbers.")
    if own:
        HDF5Chunks(where, X).require_sound(0, X.shape[0])


def _array(X: Any, path: Path, scheme: str) -> Any:
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        names = ", ".join(list(X)[:10]) if hasattr(X, "__iter__") else ""
        raise SourceError(f"{path} is a group ({names}), not an array; name one: {scheme}:{path}?name=NAME.")
    return X
