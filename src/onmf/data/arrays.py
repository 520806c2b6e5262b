"""Arrays in files: .npy (memory-mapped) and .npz (scipy sparse)."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from onmf.data.base import Source, SourceError, reading, require_filled, require_matrix
from onmf.data.native import native
from onmf.data.npy_stream import ArraysFromPipe, header
from onmf.data.pipes import is_pipe
from onmf.data.registry import register
from onmf.data.rows import MappedRows, Rows

MOST_DEFLATED = 1100  # bytes that one byte of a zip file can stand for: 1032 at most, and the header


@register("npy", [".npy"], takes=["standard input"])
def npy(path: Path) -> Source:
    """An array of which only the rows in use are read; from a pipe, one array after the other."""
    if is_pipe(path):
        return ArraysFromPipe(path)
    with reading(path, "as an array of numbers"):
        X = np.lib.format.open_memmap(path, mode="r")
    require_matrix(path, X)
    return MappedRows(path, X)


@register("npz", [".npz"])
def npz(path: Path) -> Source:
    """A scipy sparse matrix as ``scipy.sparse.save_npz`` writes it."""
    cure = "write it with scipy.sparse.save_npz, or save a dense array as .npy"
    with reading(path, "as a sparse matrix", cure), path.open("rb") as file:
        _require_plausible(path, file)
        X = scipy.sparse.load_npz(file)  # from our own handle: NumPy leaves its own open when the file is broken
        X = native(X)
    require_matrix(path, X)
    return Rows(X)


def _require_plausible(path: Path, file: Any) -> None:
    """Refuse by the headers, before anything is allocated, what claims far more than the file can hold."""
    with zipfile.ZipFile(file) as archive:
        sizes = {}
        for member in archive.infolist():
            with archive.open(member) as content:
                shape, _, dtype = header(content.read(np.lib.format.MAGIC_LEN), content)
            sizes[member.filename] = math.prod(shape)
            if math.prod(shape) * dtype.itemsize > min(member.file_size, MOST_DEFLATED * member.compress_size):
                raise SourceError(f"{path} is damaged: {member.filename} is shorter than its header says.")
        if not {"shape.npy", "data.npy"} <= sizes.keys():
            file.seek(0)
            return  # scipy says what is missing
        if sizes["shape.npy"] != 2:
            raise SourceError(f"{path} is damaged: its shape is {sizes['shape.npy']} numbers, not two.")
        with archive.open("shape.npy") as content:
            rows, columns = (int(length) for length in np.lib.format.read_array(content, allow_pickle=False))
    require_filled(path, (rows, columns), sizes["data.npy"])
    file.seek(0)
