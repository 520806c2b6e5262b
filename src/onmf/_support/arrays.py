"""Names for the arrays that travel through the library. X (n, F) ~ H (n, K) @ W (K, F): samples are rows."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]
FEW_ENTRIES = 0.15  # the density below which a batch counts as sparse, however it is stored


def row_sums(X: Any) -> Array:
    """sum_f x_f per sample, of dense or sparse data."""
    if scipy.sparse.issparse(X):
        return np.asarray(X @ np.ones(X.shape[1], dtype=X.dtype)).ravel()  # faster than its own sum
    return X.sum(axis=1)


def dense(batch: Any) -> Array:
    """A batch as a C-contiguous array of floats; sparse data are densified batch by batch, never as a whole."""
    X = batch.toarray() if scipy.sparse.issparse(batch) else batch
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    return np.ascontiguousarray(X, dtype=dtype)


def density(batch: Any) -> float:
    """The share of entries that are not zero."""
    entries = batch.data if scipy.sparse.issparse(batch) else batch
    return float(np.count_nonzero(entries)) / max(batch.shape[0] * batch.shape[1], 1)
