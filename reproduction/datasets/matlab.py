"""Matrices of nonnegative numbers from a MATLAB file (versions 5 to 7, plain or compressed).

Not by SciPy's reader: one wrong byte in the type of an element, or cells nested deep, crash it and Python with it, and
a damaged file deserves a sentence. Here nothing but matrices of real numbers is read, and every length is checked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from reproduction.arrays import Array
from reproduction.datasets.files import damaged, read_bytes

HEADER = 128  # bytes; the last four are version and byte order
VERSION = 0x0100
MATRIX, COMPRESSED = 14, 15  # types of elements
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMBERS = range(6, 16)  # classes of matrices, from double to uint64; below are cells, structures, text, sparse
COMPLEX = 0x0800  # a flag beside the class


def read_matrices(path: Path, *names: str) -> list[Array]:
    """Read the variables of these names as float64, in this order."""
    content = read_bytes(path)
    order = {b"IM": "<", b"MI": ">"}.get(content[HEADER - 2 : HEADER])
    if order is None or struct.unpack_from(f"{order}H", content, HEADER - 4) != (VERSION,):
        raise damaged(path, "it is not a MATLAB file of version 5 to 7 (from a newer one, save with -v7)")
    try:
        found = dict(_matrices(content[HEADER:], order, names))
    except (ValueError, struct.error, zlib.error) as error:
        raise damaged(path, f"its elements do not fit together: {error}") from None
    for name in names:
        if name not in found:
            raise damaged(path, f"it has no matrix {name} of real numbers")
        if not (np.isfinite(found[name]) & (found[name] >= 0)).all():
            raise damaged(path, f"its {name} has entries that are negative or not finite")
    return [found[name] for name in names]


def _matrices(data: bytes, order: str, names: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Yield names and values of the wanted matrices of real numbers; other variables are passed over."""
    for kind, content in _elements(data, order):
        if kind == COMPRESSED:
            kind, content = next(_elements(zlib.decompress(content), order), (0, b""))
        if kind != MATRIX:
            continue
        parts = _elements(content, order)
        (flags,) = struct.unpack_from(f"{order}I", next(parts, (0, b""))[1])
        if flags & 0xFF not in NUMBERS or flags & COMPLEX:
            continue
        (_, shape), (_, name), (stored, values) = parts
        if name.decode("latin-1") in names:
            yield name.decode("latin-1"), _matrix(order, shape, stored, values)


def _matrix(order: str, shape: bytes, stored: int, values: bytes) -> Array:
    """Return a matrix, whose numbers may be stored in a shorter type than its own, to save space."""
    rows, columns = np.frombuffer(shape, f"{order}i4").tolist()
    if rows < 1 or columns < 1 or stored not in STORED:
        raise ValueError(f"a matrix of {rows} x {columns} with numbers of type {stored}")
    return np.frombuffer(values, order + STORED[stored]).reshape((rows, columns), order="F").astype(np.float64)


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each element; those that are not compressed fill up whole groups of eight bytes."""
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
