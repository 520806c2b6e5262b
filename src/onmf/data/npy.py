"""Arrays in files: .npy, of which only the rows in use are read, and .npz (scipy sparse); .npy also from pipes."""

import io
import math
import mmap
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from onmf._support.arrays import Array
from onmf.data.base import (
    Numbered,
    OnBad,
    Sequential,
    Source,
    SourceError,
    native,
    numbered,
    reading,
    require_filled,
    require_matrix,
    require_room,
    require_unchanged,
)
from onmf.data.budget import allowed
from onmf.data.in_memory import Rows
from onmf.data.outputs import Heading, Output
from onmf.data.pipes import ARRAY, LineCount, bytes_of, is_pipe, name_of, require_format, until_interrupted
from onmf.data.registry import register

PIECE = 2**24  # bytes to ask a pipe for at a time: a header may promise more than there is memory


class MappedRows(Rows):
    """The rows of an array in a file.

    They are read from the file, not through the memory map, which at times brings most of the file into memory when
    rows are scattered. Only arrays stored by columns are read through the map, and their pages are given back.
    """

    def __init__(self, path: Path, X: np.memmap[Any, Any]) -> None:
        super().__init__(X)
        self.where = self.path = path
        self.size, self.row_bytes = path.stat().st_size, 2 * X.dtype.itemsize * self.n_features

    def _read(self, rows: Any) -> Any:
        require_unchanged(self.path, self.size)
        if not self.X.flags.c_contiguous:
            return self._through_the_map(rows)
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows
        batch = np.empty((len(numbers), self.n_features), dtype=self.X.dtype)
        blocks = [(numbers[0], batch)] if isinstance(rows, slice) else zip(numbers, batch, strict=True)
        with self.path.open("rb", buffering=0) as file:
            for row, place in blocks:
                file.seek(self.X.offset + int(row) * batch.strides[0])
                if not _filled(place.reshape(-1).view(np.uint8), file):
                    raise SourceError(f"{self.path} ends within row {row}.")
        return batch

    def _through_the_map(self, rows: Any) -> Any:
        found = self.X[rows]
        batch = np.array(found) if isinstance(rows, slice) else np.asarray(found)  # a copy of its own
        pages = getattr(self.X, "_mmap", None)
        if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)
        return batch


def _filled(place: Any, file: Any) -> bool:
    """Read until the place is full, since systems hand over 2 GiB at most at a time; return whether it is."""
    done = 0
    while done < len(place):
        read = file.readinto(place[done:].data)
        if not read:
            return False
        done += read
    return True


class ArraysFromPipe(Sequential):
    """The rows of arrays that follow each other in a pipe, which may never end."""

    rewinds = False

    def __init__(self, path: Path) -> None:
        self.where, self._path, self.pipe = name_of(path), path, LineCount()
        self._stream = bytes_of(path, self)
        found = self._header()
        if found is None:
            raise SourceError(f"{self.where} is empty.")
        self._first = found
        self.n_features = found[0][1]
        self.row_bytes = 2 * found[1].itemsize * self.n_features

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        return numbered(until_interrupted(self._blocks(size)))

    def _blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        found: tuple[tuple[int, int], np.dtype[Any]] | None = self._first
        before = 0
        while found is not None:
            (n, n_features), dtype = found
            if n_features != self.n_features:
                raise SourceError(f"{self.where}: an array has {n_features} columns, the first had {self.n_features}.")
            for first in range(0, n, size):
                yield self._rows(before + first, min(size, n - first), dtype)
            before += n
            found = self._header()

    def _rows(self, first: int, wanted: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        length = wanted * self.n_features * dtype.itemsize
        content = self._bytes(length)
        if len(content) < length:
            raise SourceError(f"{self.where} ends within the {wanted} rows from row {first} onward.")
        return np.frombuffer(content, dtype=dtype).reshape(wanted, self.n_features)

    def _header(self) -> tuple[tuple[int, int], np.dtype[Any]] | None:
        """Return shape and type of the next array; None at the end."""
        with reading(self.where, "as an array of numbers"):
            start = self._bytes(np.lib.format.MAGIC_LEN)
            if not start:
                return None
            require_format(self._path, bytes(start), ARRAY)
            shape, by_columns, dtype = _read_header(start, self._stream)
        require_matrix(self.where, SimpleNamespace(shape=shape, dtype=dtype))
        if by_columns:
            raise SourceError(
                f"{self.where} holds an array stored by columns, which cannot be read row by row; save "
                "numpy.ascontiguousarray(X)."
            )
        return (shape[0], shape[1]), dtype

    def _bytes(self, wanted: int) -> bytearray:
        """Return this many bytes, or fewer at the end."""
        content = bytearray()
        with reading(self.where, "to the end"):
            while len(content) < wanted:
                piece = self._stream.read(min(PIECE, wanted - len(content)))
                if not piece:
                    break
                content += piece
        return content


def _read_header(start: bytes | bytearray, rest: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether it is stored by columns, and type of an array, from its first bytes and the file after."""
    version = np.lib.format.read_magic(io.BytesIO(start))
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(rest)
    if version not in ((2, 0), (3, 0)):  # which differ in names of fields alone, and numbers have none
        raise ValueError(f"its format is of version {version}")
    return np.lib.format.read_array_header_2_0(rest)


@register("npy", [".npy"], takes=["standard input"])
def npy(path: Path) -> Source:
    """Open an array of which only the rows in use are read; from a pipe, one array after the other."""
    if is_pipe(path):
        return ArraysFromPipe(path)
    with reading(path, "as an array of numbers"):
        X: Any = np.lib.format.open_memmap(path, mode="r")
        X = X.reshape(-1, X.shape[-1]) if X.ndim == 3 and X.flags.c_contiguous and X.size else X  # the pixels of a cube
    require_matrix(path, X)
    return MappedRows(path, X)


@register("npz", [".npz"])
def npz(path: Path) -> Source:
    """Open a scipy sparse matrix as ``scipy.sparse.save_npz`` writes it."""
    cure = "write it with scipy.sparse.save_npz, or save a dense array as .npy"
    with reading(path, "as a sparse matrix", cure), path.open("rb") as file:
        _require_plausible(path, file)
        X = scipy.sparse.load_npz(file)  # from our own handle: NumPy leaves its own open when the file is broken
        X = native(X)
    require_matrix(path, X)
    return Rows(X)


def _require_plausible(path: Path, file: Any) -> None:
    """Raise an error, before anything is allocated, if the headers claim more than there is room for."""
    with zipfile.ZipFile(file) as archive:
        sizes, needed = {}, 0
        for member in archive.infolist():
            with archive.open(member) as content:
                shape, _, dtype = _read_header(content.read(np.lib.format.MAGIC_LEN), content)
            sizes[member.filename] = math.prod(shape)
            needed += math.prod(shape) * dtype.itemsize
        # Twice, since it is checked and becomes rows; diagonals become entries with their places first.
        require_room(path, (4 if "offsets.npy" in sizes else 2) * needed, allowed())
        if not {"shape.npy", "data.npy"} <= sizes.keys():
            file.seek(0)
            return  # scipy says what is missing
        if sizes["shape.npy"] != 2:
            raise SourceError(f"{path} is damaged: its shape is {sizes['shape.npy']} numbers, not two.")
        with archive.open("shape.npy") as content:
            rows, columns = (int(length) for length in np.lib.format.read_array(content, allow_pickle=False))
    require_filled(path, (rows, columns), sizes["data.npy"])
    file.seek(0)


class Npy(Output, suffixes=[".npy"]):
    """An array of any number of rows, without their names."""

    def __init__(self, place: Path, heading: Heading) -> None:
        self.columns, self.dtype, self.rows = len(heading.columns), heading.dtype, 0
        self.file = place.open("wb")
        self._write_header()

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        self.file.write(np.ascontiguousarray(H, self.dtype).data)
        self.rows += len(H)

    def close(self) -> None:
        self.file.seek(0)
        self._write_header()
        self.file.close()

    def _write_header(self) -> None:
        """Write the header, once more when the number of rows is known: NumPy leaves room for it to grow."""
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.rows, self.columns)}
        np.lib.format.write_array_header_1_0(self.file, header)
