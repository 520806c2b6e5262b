"""Names for the arrays that travel through the library. X (n, F) ~ H (n, K) @ W (K, F): samples are rows."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]


def row_sums(X: Any) -> Array:
    """sum_f x_f per sample, of dense or sparse data."""
    if scipy.sparse.issparse(X):
        return np.asarray(X @ np.ones(X.shape[1], dtype=X.dtype)).ravel()  # faster than its own sum
    return X.sum(axis=1)
