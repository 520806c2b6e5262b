"""Types of the arrays X (n, F) ~ H (n, K) @ W (K, F), whose rows are samples, and sums and products of them."""

import sys
from array import array
from collections import deque
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]
# What users give as samples, one per row: an array, sparse matrix, data frame, AnnData object, tensor, dask array, list
# of texts, ``Source`` or iterator of batches. Libraries that may not be installed have no types to name here.
Data: TypeAlias = Any
NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic)
ARRAY_LIKE = ("__array__", "__array_interface__", "__dataframe__", "__arrow_c_stream__", "toarray")

# Memory fresh from the system costs as much as the arithmetic on it. glibc returns what is free beyond twice the size
# of the largest block that was ever freed, of those below 32 MiB: one is freed here, and never touched.
np.empty(2**25 - 2**14, dtype=np.uint8)


def row_sums(X: Any) -> Array:
    """Return sum_f x_f per sample, of dense or sparse data."""
    if scipy.sparse.issparse(X):
        return np.asarray(X @ np.ones(X.shape[1], dtype=X.dtype)).ravel()  # faster than its own sum
    return X.sum(axis=1)


def is_finite(array: Any) -> bool:
    """Return whether an array has neither infinite nor NaN entries."""
    return np.count_nonzero(np.isfinite(array)) == array.size  # counting costs a small array less than ``all``


def times_vector(A: Array, v: Array) -> Array:
    """Return A @ v, and leave the warning about invalid numbers to those who look at the result.

    OpenBLAS (0.3.31, AVX-512) multiplies single-precision matrices of five columns and an odd number of rows along with
    whatever lies beyond a buffer on its stack: the product is right, but where that looks like a signalling NaN the
    processor's flag for invalid operations is up.
    """
    if A.itemsize == 8:
        product: Array = A @ v
        return product
    with np.errstate(invalid="ignore"):
        return A @ v


def times(values: Any, weights: Any) -> Any:
    """Return arrays or tensors of values times weights; None stands for weights of one."""
    return values if weights is None else weights * values


def some_of(weights: Any, rows: Any) -> Any:
    """Return the weights of some of the rows; None stands for weights of one."""
    return None if weights is None else weights[rows]


def weight_of(weights: Array | None, number: int) -> float:
    """Return the total weight of a number of samples; None stands for weights of one."""
    return number if weights is None else float(weights.sum(dtype=np.float64))


def dense(batch: Any) -> Array:
    """Return a batch as a C-contiguous array of floats; sparse data are densified by batches, never as a whole."""
    X = batch.toarray() if scipy.sparse.issparse(batch) else batch
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    return np.ascontiguousarray(X, dtype=dtype)


def is_array_like(X: Any) -> bool:
    """Return whether NumPy can take it as a whole; other objects with a length are read entry by entry, for hours."""
    if isinstance(X, (list, tuple, deque, range)):
        kinds = {type(each): each for each in X}  # rows are alike: one of each kind tells
        return all(isinstance(each, NUMBERS) or is_array_like(each) for each in kinds.values())
    if scipy.sparse.issparse(X) or any(hasattr(X, name) for name in ARRAY_LIKE):
        return True
    return isinstance(X, (*NUMBERS, array, memoryview)) or not (hasattr(X, "__getitem__") or hasattr(X, "__len__"))


def is_tensor(X: Any) -> bool:
    """Return whether X is a PyTorch tensor; whoever has one has imported PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array or data frame, by its name: Dask is imported only by those who use it."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "to_delayed") and hasattr(X, "ndim")


def taken(array: Any, places: Counts, axis: int, fill: float = 0.0) -> Any:
    """Return what stands at these places along an axis, or in these columns, and ``fill`` where a place is -1.

    In a sparse matrix, that is a zero which is not stored.
    """
    if scipy.sparse.issparse(array):
        found = array[:, places]
        return found.multiply(places >= 0).tocsr() if (places < 0).any() else found
    found = np.take(np.asarray(array), places, axis=axis)
    np.moveaxis(found, axis, 0)[places < 0] = fill
    return found
