"""Checks of data before they are used: sound sparse matrices, finite nonnegative entries, numbers within range."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from onmf._support.arrays import is_finite
from onmf._support.skipping import Unread
from onmf.samples import Samples


class DataError(ValueError):
    """Data that cannot be used: NaN, infinite or negative entries, or numbers far from all that was learnt from.

    Examples
    --------
    >>> OnlineNMF(3).fit(-X)
    Traceback (most recent call last):
    onmf.model.validation.DataError: ...
    """


class BrokenStructureError(DataError):
    """A sparse matrix whose indices point outside of it."""


def require_sound_structure(X: Any) -> None:
    """Raise an error for a sparse matrix whose indices point outside of it: compiled code would follow them."""
    if reason := _fault_of_structure(X):
        raise BrokenStructureError(f"The sparse matrix is damaged: {reason}; make it anew from its entries.")


def require_valid_entries(X: Any, rows: Any = None, names: Sequence[str] | None = None) -> None:
    """Raise an error for NaN, infinite and negative entries that says where the first is.

    ``rows`` are the numbers of the rows, ``names`` those of the features, where they have some.
    """
    if rows is not None and np.asarray(rows).dtype == object:  # what could not be read is not just missing
        for name in rows:
            if isinstance(name, Unread):
                raise DataError(str(name.reason))
    samples = X if isinstance(X, Samples) else None
    if samples is not None and samples.checked:
        return
    X = _matrix(X)
    sparse = scipy.sparse.issparse(X)
    if sparse:
        require_sound_structure(X)
    values = X.data if sparse else X
    with np.errstate(invalid="ignore"):
        # Without temporaries: a NaN survives in both extremes, an infinity in one.
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        if low >= 0 and np.isfinite(high):
            if samples is not None:
                samples.checked = True
            return
        bad = ~np.isfinite(values) | (values < 0)
    if sparse:
        entries = X.tocoo()
        row, column, value = entries.row[bad], entries.col[bad], entries.data[bad]
    else:
        row, column = np.nonzero(bad)
        value = X[row, column]
    number = row if rows is None else np.asarray(rows)[row]
    first = np.lexsort((column, row if number.dtype == object else number))[0]  # names have no order
    number, column, value = number[first], column[first], value[first]
    if np.isnan(value):
        what = "NaN in the data"
        cure = "fill or drop it, or learn from the rest with missing='nan' (--missing nan); a masked entry is NaN, too"
    elif np.isinf(value):
        what, cure = "Infinity (inf) in the data", "remove it first"
    else:
        what = f"Negative values in data, the first {value:.6g},"
        cure = (
            "NMF needs x >= 0. If these are logarithms or z-scores, give the counts instead; if it is noise around "
            "zero, clip it at 0"
        )
    named = "" if names is None else f" named {names[column]!r}"
    raise DataError(f"{what} at row {number}, column {column}{named} (counted from 0); {cure}.")


def require_finite_values(result: Any, X: Any, mean: float, rows: Any = None) -> None:
    """Raise an error that names the first of samples X for which a ``result`` (n, ...) is not finite.

    ``mean`` is that of the data that the model was begun with, ``rows`` are the row numbers.
    """
    if is_finite(result):
        return
    row = int(np.flatnonzero(~np.isfinite(result).reshape(len(result), -1).all(axis=1))[0])
    raise DataError(
        f"The numbers of row {row if rows is None else rows[row]} (counted from 0), the largest "
        f"{_largest(X, row):.3g}, are too large or too unequal to compute with, next to a mean of {mean:.3g} in the "
        "data that this model was begun with; rescale or clip them."
    )


def require_below_bound(H: Any, high: float, X: Any, unit: float, rows: Any = None) -> None:
    """Raise an error for samples so large that the upper bound has cut off their coefficients H, in internal units.

    Such a fit is useless. Where a sample is not large, its components are at fault, and nothing is raised.
    """
    bound = high * (1 - 1e-6)
    if H.max(initial=0) < bound:
        return
    for row in np.flatnonzero(H.max(axis=1, initial=0) >= bound):
        if _largest(X, row) < 1e-3 * high * unit:
            continue
        raise DataError(
            f"Row {row if rows is None else rows[row]} (counted from 0), its largest number {_largest(X, row):.3g}, "
            f"needs coefficients beyond their upper bound, {high:.3g} times the unit of {unit:.3g} that this model was "
            "begun with; rescale the data, or raise the bound: sets=Sets(U=...)."
        )


def good_rows(X: Any, rows: npt.NDArray[Any], names: Sequence[str] | None = None) -> tuple[list[int], list[DataError]]:
    """Return the places of rows without NaN, infinite or negative entries, and the errors of the others."""
    try:
        require_valid_entries(X, rows, names)
    except BrokenStructureError as error:
        return [], [error]  # no row can be cut out of it
    except DataError:
        pass
    else:
        return list(range(X.shape[0])), []
    kept, errors = [], []
    for row in range(X.shape[0]):
        try:
            require_valid_entries(X[row : row + 1], rows[row : row + 1], names)
        except DataError as error:
            errors.append(error)
        else:
            kept.append(row)
    return kept, errors


def _matrix(X: Any) -> Any:
    """Return the array or sparse matrix of samples."""
    return X.matrix if isinstance(X, Samples) else X


def _largest(X: Any, row: Any) -> float:
    return float(_matrix(X)[[row]].max())


def _fault_of_structure(X: Any) -> str | None:
    """Return why compiled code would follow this sparse matrix into foreign memory; None if it would not.

    Unlike scipy's ``check_format`` this changes nothing in X, and knows all formats of scipy's.
    """
    match X.format if scipy.sparse.issparse(X) else None:
        case "csr" | "csc" | "bsr":
            return _fault_of_compressed(X)
        case "coo":
            coordinates = X.coords if hasattr(X, "coords") else (X.row, X.col)
            if reason := _fault_of_indices(*coordinates):
                return reason
            if len(coordinates) != len(X.shape) or any(len(each) != len(X.data) for each in coordinates):
                return "there are not as many indices as entries"
            return next(filter(None, map(_fault_of_range, coordinates, X.shape)), None)
        case "dia":
            if reason := _fault_of_indices(X.offsets):
                return reason
            if not isinstance(X.data, np.ndarray) or X.data.ndim != 2 or len(X.data) != len(X.offsets):
                return f"there are not as many diagonals as the {len(X.offsets)} offsets"
            return "it has two diagonals of one offset" if len(np.unique(X.offsets)) < len(X.offsets) else None
        case "lil":
            lists = X.rows, X.data
            sound = all(isinstance(each, np.ndarray) and each.shape == X.shape[:1] for each in lists)
            sound = sound and all(isinstance(each, list) for each in (*X.rows, *X.data))
            if not sound or any(len(indices) != len(entries) for indices, entries in zip(*lists, strict=True)):
                return "there are not as many lists of indices and of entries as rows, or not of equal length"
            return _fault_of_each(chain.from_iterable(X.rows), X.shape[1])
        case "dok":
            keys = [key if isinstance(key, tuple) else (key,) for key in X.keys()]  # noqa: SIM118 (not iterable)
            if any(len(key) != len(X.shape) for key in keys):
                return "a key does not say where its entry belongs"
            return next(filter(None, map(_fault_of_each, zip(*keys, strict=True), X.shape)), None)
    return None


def _fault_of_compressed(X: Any) -> str | None:
    indptr, indices, data = X.indptr, X.indices, X.data
    if reason := _fault_of_indices(indptr, indices):
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
    return _fault_of_range(indices, ends)


def _fault_of_indices(*arrays: Any) -> str | None:
    for each in arrays:
        if not isinstance(each, np.ndarray):
            return f"its indices are of type {type(each).__name__}"
        if each.ndim != 1 or each.dtype.kind not in "iu":
            return f"its indices are {each.ndim}-dimensional and of type {each.dtype}, not whole numbers in a row"
    return None


def _fault_of_range(indices: Any, length: int) -> str | None:
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < length:
        return f"an index lies outside of 0 to {length - 1}"
    return None


def _fault_of_each(indices: Any, length: int) -> str | None:
    if not all(isinstance(index, (int, np.integer)) and 0 <= index < length for index in indices):
        return f"an index is no whole number, or lies outside of 0 to {length - 1}"
    return None
