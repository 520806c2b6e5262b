"""Data sets in MATLAB files (versions 5 to 7, plain or compressed): matrices of nonnegative numbers.

- Piano: it plays 'Mary had a little lamb', 586 short-time spectra of three notes, 4.7 s at 16 kHz.
- Samson: a hyperspectral image of 95 x 95 pixels in 156 bands, with the spectra of the three materials in it.
- Extended Yale B: 2414 photographs of 38 faces under changing light, 32 x 32 pixels; cast shadows are the outliers.

They are not read by SciPy: one wrong byte in the type of an element, or cells nested deep, crash its reader and Python
with it, and a damaged file deserves a sentence. Here only matrices of real numbers are read, and every length is
checked.
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

PIANO = PublicSet(
    "piano (Mary had a little lamb)",
    "piano_mary",
    "https://gitlab.com/ngillis/nmfbook (folder 'data sets'; N. Gillis, Nonnegative Matrix Factorization, SIAM 2020)",
)
N_FREQUENCIES = 129  # of a window of 256 samples


def load_piano(folder: str | Path | None = None) -> Array:
    """Read the power spectrogram (frames x 129), strictly positive: the data that Itakura-Saito is made for.

    It is in piano_Mary.mat in the folder, by default $ONMF_DATA. The file holds magnitudes (frequencies x frames); the
    noise model of Itakura-Saito is about their squares.
    """
    path = PIANO.path(folder, "piano_Mary.mat")
    (magnitude,) = read_matrices(path, "X")
    if len(magnitude) != N_FREQUENCIES:
        raise damaged(path, f"its X has {len(magnitude)} rows instead of {N_FREQUENCIES} frequencies")
    return np.ascontiguousarray(magnitude.T) ** 2


SAMSON = PublicSet(
    "Samson",
    "samson",
    "https://gitlab.com/ngillis/nmfbook (folder 'data sets'; F. Zhu, arXiv 1708.05125, made the ground truth)",
)
MATERIALS = ("rock", "tree", "water")  # in the order of the ground truth, whose own list is a cell array
LONGEST_SIDE = 10_000


@dataclass(frozen=True, eq=False)
class Samson:
    """A scene: pixels (9025 x 156, in [0, 1]) ~ abundances (9025 x 3) @ endmembers (3 x 156), up to spectra's scales.

    Each endmember is scaled to a maximum near 1, so compare spectra by their angle; abundances of a pixel sum to 1.
    """

    pixels: Array
    endmembers: Array
    abundances: Array
    shape: tuple[int, int]
    names: tuple[str, ...] = MATERIALS

    def image(self, values: Array) -> Array:
        """Return one value per pixel as a picture (rows x columns); MATLAB stores pixels column by column."""
        return values.reshape(self.shape, order="F")


def load_samson(folder: str | Path | None = None) -> Samson:
    """Read samson_1.mat and end3.mat from the folder, by default $ONMF_DATA."""
    path, truth = SAMSON.path(folder, "samson_1.mat"), SAMSON.path(folder, "end3.mat")
    V, *sides = read_matrices(path, "V", "nRow", "nCol")
    rows, columns = (int(whole(path, side.ravel(), 1, LONGEST_SIDE, "side of an image")[0]) for side in sides)
    if V.shape[1] != rows * columns:
        raise damaged(path, f"its V has {V.shape[1]} columns instead of {rows} x {columns} pixels")
    if V.max() > 1:
        raise damaged(path, "its V has entries above 1")
    M, A = read_matrices(truth, "M", "A")
    if M.shape != (len(V), len(MATERIALS)) or A.shape != (len(MATERIALS), V.shape[1]):
        raise damaged(truth, f"it does not hold {len(MATERIALS)} materials for the image in {path.name}")
    pixels, endmembers, abundances = (np.ascontiguousarray(matrix.T) for matrix in (V, M, A))
    return Samson(pixels, endmembers, abundances, (rows, columns))


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
