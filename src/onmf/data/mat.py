"""MATLAB files: one variable, a matrix or a cube of numbers, whose samples are pixels and whose features are bands.

SciPy's reader of versions 5 to 7 is not used: one wrong byte can crash it, and Python with it. Here only real numbers
are read, every length is checked, and nothing is decompressed that is larger than memory allows. Files of version 7.3
are HDF5.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onmf.data.base import Source, SourceError, reading, require_matrix, require_room
from onmf.data.budget import allowed
from onmf.data.chunked import HDF5Chunks, open_hdf5
from onmf.data.in_memory import Rows
from onmf.data.registry import register

HEADER = 128  # bytes; the last four are version and byte order
HEAD = 2**12  # bytes of an element that surely hold the type, shape and name of a variable
MATRIX, COMPRESSED = 14, 15  # types of elements
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMBERS = range(6, 16)  # classes of variables, from double to uint64; others are cells, structures, text, sparse
COMPLEX = 0x0800  # a flag beside the class
NEWEST = b"MATLAB 7.3"

Variable = tuple[str, tuple[int, ...], Any]  # name, shape, and a function that reads the values


@register("mat", [".mat"])
def mat(path: Path, variable: str | None = None, bands: str | None = None) -> Source:
    """Open a matrix or cube of a MATLAB file; ``variable`` can be left out where there is only one.

    A matrix has more pixels than bands: its shorter side are the bands. A cube is (rows, columns, bands), and its
    pixels come row by row. ``bands``, first or last, says it where that is wrong.
    """
    if bands not in (None, "first", "last"):
        raise SourceError(f"bands must be first or last, got {bands!r}.")
    with reading(path, "as a MATLAB file"), path.open("rb") as file:
        newest = file.read(len(NEWEST)) == NEWEST
        found = list(_hdf5_variables(path) if newest else _variables(path, file))
        chosen = [each for each in found if each[0] == variable or (variable is None and min(each[1]) > 1)]
        if len(chosen) != 1:
            names = ", ".join(f"{name} ({' x '.join(map(str, shape))})" for name, shape, _ in found[:10])
            raise SourceError(
                f"{path} has {'no such' if variable else 'not one'} matrix of numbers; its variables are {names or '-'}: "
                f"name one, mat:{path}?variable=NAME."
            )
        _, shape, values = chosen[0]
        X = values()
        if len(shape) == 2 and (bands == "first" or (bands is None and shape[0] < shape[1])):
            X = X.T
        elif len(shape) == 3:
            X = np.moveaxis(X, 0, -1) if bands == "first" else X
            X = X.reshape(-1, X.shape[-1])
    require_matrix(path, X)
    return Rows(X)


def _hdf5_variables(path: Path) -> Iterator[Variable]:
    """Yield the variables of version 7.3, whose axes are in reverse order."""
    import h5py

    file = open_hdf5(path)
    for name, item in file.items():
        if isinstance(item, h5py.Dataset) and len(item.shape or ()) in (2, 3) and item.dtype.kind in "iuf":

            def values(name: str = name, item: Any = item) -> Any:
                require_room(f"{path} ({name})", 2 * math.prod(item.shape) * item.dtype.itemsize, allowed())
                HDF5Chunks(f"{path} ({name})", item).require_sound(0, item.shape[0])
                return item[()].T

            yield name, item.shape[::-1], values


def _variables(path: Path, file: Any) -> Iterator[Variable]:
    """Yield the variables of versions 5 to 7."""
    file.seek(HEADER - 4)
    tail = file.read(4)
    order = {b"IM": "<", b"MI": ">"}.get(tail[2:])
    if order is None or struct.unpack(f"{order}H", tail[:2]) != (0x0100,):
        raise SourceError(f"{path} is not a MATLAB file of version 5 to 7.3; save it with -v7.")
    place, length = HEADER, path.stat().st_size
    while place + 8 <= length:
        file.seek(place)
        kind, size = struct.unpack(f"{order}II", file.read(8))
        if place + 8 + size > length:
            raise ValueError("an element is longer than the file")
        begin, place = place + 8, place + 8 + size
        if kind == COMPRESSED:
            head = zlib.decompressobj().decompress(file.read(min(size, HEAD)), HEAD)
            kind, head = struct.unpack_from(f"{order}I", head)[0], head[8:]
        else:
            head, size = file.read(min(size, HEAD)), 0
        if kind == MATRIX and (found := _variable(path, file, order, begin, size, head)) is not None:
            yield found


def _variable(path: Path, file: Any, order: str, begin: int, compressed: int, head: bytes) -> Variable | None:
    """Return the variable whose element begins there; None for what is not a matrix or cube of real numbers."""
    (about,) = struct.unpack_from(f"{order}I", head, 8)
    if about & 0xFF not in NUMBERS or about & COMPLEX:
        return None
    place, parts = 0, []
    for _ in range(4):  # flags, shape, name, values
        kind, size = struct.unpack_from(f"{order}II", head, place)
        start, short = place + 8, kind >> 16
        if short:  # up to four bytes, within the element's own tag
            kind, size, start = kind & 0xFFFF, short, place + 4
        parts.append((kind, start, size))
        place = place + 8 if short else start + size + -size % 8
    _, (_, sides, bytes_of_sides), (_, label, letters), (stored, start, size) = parts
    shape = tuple(np.frombuffer(head[sides : sides + bytes_of_sides], f"{order}i4").tolist())
    if len(shape) not in (2, 3) or min(shape) < 1:
        return None
    name = head[label : label + letters].decode("latin-1")
    dtype = np.dtype(order + STORED[stored])
    if size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {size} bytes for {shape} numbers of {dtype.itemsize} bytes")

    def values() -> Any:
        require_room(f"{path} ({name})", 2 * size + compressed, allowed())
        file.seek(begin if compressed else begin + start)
        content = file.read(compressed or size)
        if compressed:
            content = zlib.decompressobj().decompress(content, 8 + start + size)[8 + start :]
        return np.frombuffer(content, dtype).reshape(shape, order="F")

    return name, shape, values
