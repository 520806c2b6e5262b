"""Extended Yale B, 2414 photographs of 38 faces under changing light, 32 x 32 pixels, whose cast shadows are outliers.

It comes as a MATLAB file. Such files of versions 5 to 7, plain or compressed, are not read by SciPy: one wrong byte in
the type of an element, or cells nested deep, crash its reader and Python with it, and a damaged file deserves a
sentence. Here only matrices of real numbers, none negative, are read, and every length is checked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.arrays import Array, Counts
from reproduction.datasets.files import PublicSet, damaged, read_bytes, whole

YALEB = PublicSet(
    "Extended Yale B",
    "yaleb_32x32",
    "http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html (D. Cai's 32 x 32 version; A. Georghiades, "
    "P. Belhumeur and D. Kriegman, IEEE PAMI 2001, took the photographs)",
)
SIDE = 32
WHITE = 255
MOST_SUBJECTS = 1000  # a larger number means damage


@dataclass(frozen=True, eq=False)
class YaleB:
    """Images as rows (n x 1024, 0 to 255), and the subject of each, numbered 1 to 38 as in the file."""

    images: Array
    subjects: Counts


def upright(images: Array) -> Array:
    """Turn one or more rows of 1024 pixels into pictures of 32 x 32; MATLAB stores pixels column by column."""
    return images.reshape(*images.shape[:-1], SIDE, SIDE).swapaxes(-1, -2)


def load_yaleb(folder: str | Path | None = None) -> YaleB:
    """Read YaleB_32x32.mat from the folder, by default $ONMF_DATA."""
    path = YALEB.path(folder, "YaleB_32x32.mat")
    images, gnd = read_matrices(path, "fea", "gnd")
    if images.shape[1] != SIDE**2 or images.max() > WHITE:
        raise damaged(path, f"its fea is not rows of {SIDE**2} pixels from 0 to {WHITE}")
    if gnd.size != len(images):
        raise damaged(path, f"it has {len(images)} images, but {gnd.size} subjects' numbers")
    return YaleB(images, whole(path, gnd.ravel(), 1, MOST_SUBJECTS, "subject's number"))


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
