"""Samples of which not every entry is known, or not every entry counts alike."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, row_sums


class Known:
    """X (n, F) with a weight for every entry: zero where nothing is known.

    Dense X have their weights as an array of their shape, and any admissible number where the weight is zero. Sparse X
    (CSR) are known where they store an entry, be it a zero; ``weights`` has a number for each of these, or is None if
    all count alike.
    """

    def __init__(self, X: Any, weights: Array | None) -> None:
        self.X, self.weights = X, weights

    @property
    def sparse(self) -> bool:
        return bool(scipy.sparse.issparse(self.X))

    @property
    def shape(self) -> tuple[int, int]:
        n, F = self.X.shape
        return int(n), int(F)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.X.dtype
        return dtype

    @property
    def nbytes(self) -> int:
        """Of the numbers that are stored."""
        values = self.X.data.nbytes + self.X.indices.nbytes if self.sparse else self.X.nbytes
        return int(values) + (0 if self.weights is None else self.weights.nbytes)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Known:
        if self.weights is None or not self.sparse:
            return Known(self.X[rows], None if self.weights is None else self.weights[rows])
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, last, _ = rows.indices(len(self))
            return Known(self.X[rows], self.weights[self.X.indptr[first] : self.X.indptr[last]])
        return Known(self.X[rows], self.like(self.weights)[rows].data)

    def astype(self, dtype: Any, copy: bool = True) -> Known:
        weights = None if self.weights is None else self.weights.astype(dtype, copy=copy)
        return Known(self.X.astype(dtype, copy=copy), weights)

    @property
    def values(self) -> Array:
        """The numbers that are stored: (n, F), or one per entry of a sparse X."""
        values: Array = self.X.data if self.sparse else self.X
        return values

    def weighted(self, values: Array) -> Array:
        """Numbers like ``values``, each times its weight."""
        return values if self.weights is None else self.weights * values

    def like(self, values: Array) -> Any:
        """Numbers like ``values`` as a matrix of the shape of X."""
        if not self.sparse:
            return values
        return scipy.sparse.csr_matrix((values, self.X.indices, self.X.indptr), shape=self.X.shape)

    @cached_property
    def present(self) -> Any:
        """The weights as a matrix, dense or CSR."""
        return self.like(np.ones_like(self.X.data) if self.weights is None else self.weights)

    @cached_property
    def products(self) -> Any:
        """The entries times their weights as a matrix, dense or CSR."""
        return self.like(self.weighted(self.values))

    def sum(self, axis: int) -> Array:
        """Sums of the entries times their weights: per feature (0) or per sample (1)."""
        return row_sums(self.products) if axis == 1 else np.asarray(self.products.sum(axis=0)).ravel()

    def weight(self, axis: int) -> Array:
        """Sums of the weights: per feature (0) or per sample (1)."""
        return row_sums(self.present) if axis == 1 else np.asarray(self.present.sum(axis=0)).ravel()

    def mean(self, axis: int | None = None) -> Any:
        """The weighted mean of all entries, of each feature (0) or each sample (1); zero where nothing is known."""
        total, weight = self.sum(axis or 0), self.weight(axis or 0)
        if axis is None:
            return self.dtype.type(total.sum() / max(float(weight.sum()), float(np.finfo(self.dtype).tiny)))
        return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)

    def densified(self) -> Known:
        """The same with dense arrays; the mean of a sample stands where nothing is known."""
        if not self.sparse:
            return self
        weights = self.present.toarray()
        X = self.X.toarray()
        return Known(np.where(weights > 0, X, self.mean(axis=1)[:, None]).astype(X.dtype), weights)

    def completed(self) -> Array:
        """Dense X whose holes have what a fit of rank one would give: the sample's size times the feature's profile."""
        dense = self.densified()
        size = dense.mean(axis=1)
        share = size[:, None] * dense.weights
        total = share.sum(axis=0)
        profile = np.divide(dense.sum(axis=0), total, out=np.ones_like(total), where=total > 0)
        return np.where(dense.weights > 0, dense.X, size[:, None] * profile).astype(self.dtype)


def without_holes(X: Any) -> Any:
    """X as it is; of ``Known`` samples, completed."""
    return X.completed() if isinstance(X, Known) else X


def stacked(parts: list[Known]) -> Known:
    """Blocks of samples as one."""
    sparse = parts[0].sparse
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([part.present.data if sparse else part.present for part in parts])
    X = [part.X for part in parts]
    return Known(scipy.sparse.vstack(X, format="csr") if sparse else np.concatenate(X), weights)
