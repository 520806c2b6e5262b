"""What can be wrong with the arrays, lists or keys that a scipy sparse matrix is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

LISTS = "there are not as many lists of indices and of entries as rows, or they are not of equal length"


def fault_of_structure(X: Any) -> str | None:
    """Why compiled code would follow this sparse matrix into foreign memory; None if it would not.

    Unlike scipy's ``check_format`` this changes nothing in X, and knows all formats.
    """
    if not scipy.sparse.issparse(X):
        return None
    return {
        "csr": _of_compressed,
        "csc": _of_compressed,
        "bsr": _of_compressed,
        "coo": _of_coordinates,
        "dia": _of_diagonals,
        "lil": _of_lists,
        "dok": _of_keys,
    }.get(X.format, _nothing)(X)


def _nothing(X: Any) -> str | None:
    """Is known of a format that somebody else has made."""


def _of_compressed(X: Any) -> str | None:
    indptr, indices, data = X.indptr, X.indices, X.data
    if reason := _of_indices(indptr, indices):
        return reason
    if not isinstance(data, np.ndarray) or data.ndim != (3 if X.format == "bsr" else 1):
        return "its entries are not an array of one dimension"
    rows, columns = X.shape[-2:] if X.ndim > 1 else (1, X.shape[0])
    height, width = data.shape[1:] if X.format == "bsr" else (1, 1)
    if not (height and width) or rows % height or columns % width:
        return f"blocks of {height} x {width} do not fill {rows} x {columns}"
    starts, ends = (columns, rows) if X.format == "csc" else (rows // height, columns // width)
    if len(indptr) != starts + 1:
        return f"indptr has {indptr.size} entries where {starts + 1} belong"
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        return "indptr decreases, or does not begin with 0"
    entries = min(len(data), len(indices))
    if entries < indptr[-1]:
        return f"indptr announces {indptr[-1]} entries, but there are {entries}"
    return _of_range(indices, ends)


def _of_coordinates(X: Any) -> str | None:
    coordinates = X.coords if hasattr(X, "coords") else (X.row, X.col)
    if reason := _of_indices(*coordinates):
        return reason
    if len(coordinates) != len(X.shape) or any(len(each) != len(X.data) for each in coordinates):
        return "there are not as many indices as entries"
    return next(filter(None, map(_of_range, coordinates, X.shape)), None)


def _of_diagonals(X: Any) -> str | None:
    if reason := _of_indices(X.offsets):
        return reason
    if not isinstance(X.data, np.ndarray) or X.data.ndim != 2 or len(X.data) != len(X.offsets):
        return f"there are not as many diagonals as the {len(X.offsets)} offsets"
    if len(np.unique(X.offsets)) < len(X.offsets):
        return "it has two diagonals of one offset"
    return None


def _of_lists(X: Any) -> str | None:
    if not all(isinstance(each, np.ndarray) and each.shape == X.shape[:1] for each in (X.rows, X.data)):
        return LISTS
    for indices, entries in zip(X.rows, X.data, strict=True):
        if not (isinstance(indices, list) and isinstance(entries, list) and len(indices) == len(entries)):
            return LISTS
        if reason := _of_each(indices, X.shape[1]):
            return reason
    return None


def _of_keys(X: Any) -> str | None:
    keys = [key if isinstance(key, tuple) else (key,) for key in X.keys()]  # noqa: SIM118 (it iterates over no keys)
    if any(len(key) != len(X.shape) for key in keys):
        return "a key does not say where its entry belongs"
    return next(filter(None, map(_of_each, zip(*keys, strict=True), X.shape)), None)


def _of_indices(*arrays: Any) -> str | None:
    for each in arrays:
        if not isinstance(each, np.ndarray):
            return f"its indices are of type {type(each).__name__}"
        if each.ndim != 1 or each.dtype.kind not in "iu":
            return f"its indices are {each.ndim}-dimensional and of type {each.dtype}, not whole numbers in a row"
    return None


def _of_range(indices: Any, length: int) -> str | None:
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < length:
        return f"an index lies outside of 0 to {length - 1}"
    return None


def _of_each(indices: Any, length: int) -> str | None:
    if not all(isinstance(index, (int, np.integer)) and 0 <= index < length for index in indices):
        return f"an index is no whole number, or lies outside of 0 to {length - 1}"
    return None
