"""Sparse input of any format, as scipy can cut and stack it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf.model.validation import DataError, refuse_broken_structure
from onmf.samples import Samples


def native(X: Any) -> Any:
    """A sparse matrix as CSR, its entries of a type that scipy computes with and its indices of one type.

    X itself, if it is that already or is not sparse. Entries in half precision or in the bytes' order of another
    machine become double precision.
    """
    if isinstance(X, Samples):
        return Samples(native(X.matrix), X.entry_weight, X.sample_weight, X.absent)
    if not scipy.sparse.issparse(X):
        return X
    refuse_broken_structure(X)
    try:
        return _csr(X)
    except (ValueError, TypeError, OverflowError, LookupError) as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise DataError(f"The sparse matrix cannot be read as rows: {cause}; make it anew from its entries.") from None


def _csr(X: Any) -> Any:
    if X.format in ("lil", "dok"):  # of Python's numbers
        X = X.tocsr() if X.format == "lil" else X.tocoo()
    if X.dtype.kind == "f" and (X.dtype.itemsize < 4 or not X.dtype.isnative):
        X = X.astype(np.float64)
    elif not X.dtype.isnative:
        X = X.astype(X.dtype.newbyteorder("="))
    if X.format in ("csr", "csc", "bsr") and not _alike(X.indptr.dtype, X.indices.dtype):
        X = type(X)((X.data, X.indices, X.indptr), shape=X.shape)  # scipy finds the type that both fit in
    return X.tocsr()


def _alike(*kinds: np.dtype[Any]) -> bool:
    return len(set(kinds)) == 1 and kinds[0].isnative and kinds[0] in (np.int32, np.int64)
