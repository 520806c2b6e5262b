"""Arrays in files: .npy (memory-mapped) and .npz (scipy sparse)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from onmf.streams.base import Source, SourceError
from onmf.streams.rows import MappedRows, Rows


def npy(path: Path) -> Source:
    """Memory-mapped: only the rows in use are read."""
    try:
        X = np.lib.format.open_memmap(path, mode="r")
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # whatever NumPy's reader trips over, the file is at fault
        raise SourceError(f"{path} is not a readable .npy array of numbers: {error}") from None
    require_numbers(path, X.shape, X.dtype)
    return MappedRows(path, X)


def npz(path: Path) -> Source:
    """A scipy sparse matrix as ``scipy.sparse.save_npz`` writes it."""
    try:
        with path.open("rb") as file:  # our own handle: NumPy leaves its own open when the file is broken
            X = scipy.sparse.load_npz(file)
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)  # indices outside the shape would be read from foreign memory
        X = X.tocsr()
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # whatever the readers trip over, the file is at fault
        raise SourceError(
            f"{path} is not a sparse matrix as scipy.sparse.save_npz writes it; save a dense array as .npy."
        ) from error
    require_numbers(path, X.shape, X.dtype)
    return Rows(X)


def require_numbers(where: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse what is no matrix of real numbers with something in it."""
    if len(shape) == 2 and 0 in shape:
        raise SourceError(f"{where} has no samples or no features: its shape is {shape}.")
    if len(shape) != 2 or np.dtype(dtype).kind not in "buif":
        raise SourceError(
            f"{where} must hold a 2-D array of real numbers, samples as rows; it has shape {shape}, type {dtype}."
        )
