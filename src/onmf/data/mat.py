"""MATLAB files: one variable, a matrix or cube of real numbers, whose samples are pixels and whose features are bands.

SciPy's reader of versions 5 to 7 is not used: one wrong byte can crash it, and Python with it. Version 7.3 is HDF5.
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
MATRIX, COMPRESSED = 14, 15  # types of elements
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMBERS = range(6, 16)  # classes of variables, from double to uint64; others are cells, structures, text, sparse
COMPLEX = 0x0800  # a flag beside the class


@register("mat", [".mat"])
def mat(path: Path, variable: str | None = None, bands: str | None = None) -> Source:
    """Open a matrix or cube of a MATLAB file; ``variable`` can be left out where there is only one.

    A matrix has more pixels than bands, which are its shorter side. A cube is (rows, columns, bands), and its pixels
    come row by row. ``bands``, first or last, says it where that is wrong.
    """
    if bands not in (None, "first", "last"):
        raise SourceError(f"bands must be first or last, got {bands!r}.")
    with reading(path, "as a MATLAB file"):
        with path.open("rb") as file:
            newest = file.read(10) == b"MATLAB 7.3"
        found = dict(_datasets(path) if newest else _matrices(path))
        matrices = [name for name, X in found.items() if min(X.shape) > 1]
        name = matrices[0] if variable is None and len(matrices) == 1 else variable
        if name not in found:
            raise SourceError(f"{path} has the matrices {matrices[:10]}; name one of them: mat:{path}?variable=NAME.")
        X = found[name]
    if bands == "first" or (bands is None and X.ndim == 2 and X.shape[0] < X.shape[1]):
        X = np.moveaxis(X, 0, -1)
    X = X.reshape(-1, X.shape[-1])
    require_matrix(path, X)
    return Rows(X)


def _datasets(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the matrices and cubes of real numbers of version 7.3, whose axes are in reverse order."""
    room = allowed() // 2
    for name, item in open_hdf5(path).items():
        if len(getattr(item, "shape", None) or ()) in (2, 3) and item.dtype.kind in "iuf":
            room -= math.prod(item.shape) * item.dtype.itemsize
            require_room(path, None if room < 0 else 0, allowed())
            HDF5Chunks(str(path), item).require_sound(0, item.shape[0])
            yield name, item[()].T


def _matrices(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the matrices and cubes of real numbers of versions 5 to 7."""
    require_room(path, 2 * path.stat().st_size, allowed())
    data, room = memoryview(path.read_bytes()), allowed() // 2
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[HEADER - 2 : HEADER]))
    if order is None or struct.unpack_from(f"{order}H", data, HEADER - 4) != (0x0100,):
        raise SourceError(f"{path} is not a MATLAB file of version 5 to 7.3; save it with -v7.")
    for kind, content in _elements(data[HEADER:], order):
        if kind == COMPRESSED:
            content = memoryview(zlib.decompressobj().decompress(content, room + 1))
            room -= len(content)
            require_room(path, None if room < 0 else 0, allowed())
            kind, content = next(_elements(content, order), (0, content))
        parts = _elements(content, order)
        flags = struct.unpack_from(f"{order}I", next(parts)[1])[0] if kind == MATRIX else 0
        if flags & 0xFF not in NUMBERS or flags & COMPLEX:
            continue
        (_, sides), (_, name), (stored, values) = parts
        shape = np.frombuffer(sides, f"{order}i4").tolist()
        if len(shape) in (2, 3) and min(shape) > 0:
            yield bytes(name).decode("latin-1"), np.frombuffer(values, order + STORED[stored]).reshape(shape, order="F")


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and content of each element; one that is not compressed fills whole groups of eight bytes."""
    place = 0
    while place < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, place)
        start, short = place + 8, kind >> 16
        if short:  # up to four bytes, within the element's own tag
            kind, size, start = kind & 0xFFFF, short, place + 4
        if short > 4 or start + size > len(data):
            raise ValueError("an element is longer than the space for it")
        yield kind, data[start : start + size]
        place = place + 8 if short else start + size + (0 if kind == COMPRESSED else -size % 8)
