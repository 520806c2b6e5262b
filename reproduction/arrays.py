"""Names for arrays, and the few operations that dense and sparse samples share. Samples are rows."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]


def dense(X: Any) -> Array:
    """Return samples as an array of double precision."""
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=np.float64)


def stacked(parts: list[Any]) -> Any:
    """Return blocks of rows as one."""
    if len(parts) == 1:
        return parts[0]
    return scipy.sparse.vstack(parts, format="csr") if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)
