"""Arrays in files: .npy (memory-mapped) and .npz (scipy sparse)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy

from onmf.streams.base import Source, reading, require_matrix
from onmf.streams.npy_stream import ArraysFromPipe
from onmf.streams.pipes import is_pipe
from onmf.streams.registry import register
from onmf.streams.rows import MappedRows, Rows


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
        X = scipy.sparse.load_npz(file)  # from our own handle: NumPy leaves its own open when the file is broken
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)  # indices outside the shape would be read from foreign memory
        X = X.tocsr()
    require_matrix(path, X)
    return Rows(X)
