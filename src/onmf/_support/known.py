"""Samples of which not every entry is known, or not every entry counts alike."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, dense, row_sums
from onmf._support.device_rows import Resident, joined


class Known:
    """X (n, F) with a weight for every entry: zero where nothing is known.

    Dense X have their weights as an array of their shape, and any admissible number where the weight is zero. Sparse X
    (CSR) are known where they store an entry, be it a zero; ``weights`` has a number for each of these, or is None if
    all count alike.
    """

    def __init__(self, X: Any, weights: Array | None) -> None:
        self.X, self.weights = X, weights
        self.sparse = bool(scipy.sparse.issparse(X))
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype

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

    def spread(self, rows: Array) -> Array:
        """A number per sample, as numbers like ``values`` are computed with."""
        return np.repeat(rows, np.diff(self.X.indptr)) if self.sparse else rows[:, None]

    def like(self, values: Array) -> Any:
        """Numbers like ``values`` as a matrix of the shape of X."""
        if not self.sparse:
            return values
        return scipy.sparse.csr_matrix((values, self.X.indices, self.X.indptr), shape=self.X.shape)

    @property
    def present(self) -> Any:
        """The weights as a matrix, dense or CSR."""
        return self._stored if self.sparse else self.weights

    @cached_property
    def _stored(self) -> Any:
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

    def max(self) -> Any:
        """The largest entry that is known."""
        present = self.values if self.weights is None else np.where(self.weights > 0, self.values, 0)
        return present.max(initial=0.0)

    def times(self, samples: Array) -> Known:
        """The same, each entry's weight times that of its sample."""
        return Known(self.X, (self.spread(samples) * self.weighted(np.ones_like(self.values))).astype(self.dtype))

    def densified(self) -> Known:
        """The same with dense arrays; the mean of a sample stands where nothing is known."""
        if not self.sparse:
            return self
        weights = self.present.toarray()
        X = self.X.toarray()
        return Known(np.where(weights > 0, X, self.mean(axis=1)[:, None]).astype(X.dtype), weights)

    def completed(self, samples: Array | None = None) -> Array:
        """Dense X whose holes have what a fit of rank one would give: the sample's size times the feature's profile.

        A sample counts in the profile as often as its weight among ``samples`` says.
        """
        whole = self.densified()
        size, counted = whole.mean(axis=1), whole if samples is None else whole.times(samples)
        total = (size[:, None] * counted.present).sum(axis=0)
        profile = np.divide(counted.sum(axis=0), total, out=np.ones_like(total), where=total > 0)
        return np.where(whole.present > 0, whole.X, size[:, None] * profile).astype(self.dtype)


class Weighted:
    """Samples X, an array, a sparse matrix or ``Known``, of which each counts as often as its weight says."""

    def __init__(self, X: Any, samples: Array) -> None:
        self.X, self.samples = X, np.ascontiguousarray(samples)  # how they lie in memory must not move a bit of a sum

    @property
    def shape(self) -> tuple[int, int]:
        n, F = self.X.shape
        return int(n), int(F)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.X.dtype
        return dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Weighted:
        return Weighted(self.X[rows], self.samples[rows])

    def astype(self, dtype: Any, copy: bool = True) -> Weighted:
        return Weighted(self.X.astype(dtype, copy=copy), self.samples)


def apart(batch: Any) -> tuple[Any, Array | None]:
    """Samples and their weights; None: all count alike."""
    return (batch.X, batch.samples) if isinstance(batch, Weighted) else (batch, None)


def as_known(batch: Any, missing: str | None, implicit: str) -> Any:
    """A batch as the settings ``missing`` and ``implicit`` mean it: ``Known`` where entries may be unknown."""
    if isinstance(batch, Weighted):
        return Weighted(as_known(batch.X, missing, implicit), batch.samples)
    if isinstance(batch, Known):
        return _without_nan(batch) if missing == "nan" else batch
    if scipy.sparse.issparse(batch):
        if implicit == "missing":
            X = batch.tocsr(copy=not batch.has_canonical_format)
            X.sum_duplicates()  # and sort: the indices are shared with arrays of other entries
            return as_known(Known(X, None), missing, implicit)
        if missing != "nan" or not np.isnan(batch.data).any():
            return batch
        batch = batch.toarray()
    if missing != "nan":
        return batch
    return _without_nan(Known(batch, np.ones(batch.shape, dtype=batch.dtype)))


def as_learnt(batch: Any, missing: str | None, implicit: str) -> Any:
    """The same of a batch to learn from: what may be missing in a later one makes ``Known`` samples of the first, too.

    Sparse samples without NaN become so densified, and hence one batch at a time.
    """
    if isinstance(batch, Weighted):
        return Weighted(as_learnt(batch.X, missing, implicit), batch.samples)
    known = as_known(batch, missing, implicit)
    if missing != "nan" or isinstance(known, Known):
        return known
    return as_known(dense(known), missing, implicit)


def checked_missing(missing: Any, implicit: Any) -> tuple[str | None, str]:
    """The settings, checked."""
    if missing is not None and not (isinstance(missing, str) and missing == "nan"):
        raise ValueError(f"missing must be None or 'nan', got {missing!r}.")
    if not isinstance(implicit, str) or implicit not in ("zero", "missing"):
        raise ValueError(f"implicit must be 'zero' or 'missing', got {implicit!r}.")
    return missing, implicit


def _without_nan(known: Known) -> Known:
    """NaN is unknown."""
    gone = np.isnan(known.values)
    if known.sparse:
        if not gone.any():
            return known
        keep = known.like(np.where(gone, 0.0, 1.0))
        rows = np.repeat(np.arange(len(known)), np.diff(known.X.indptr))[~gone]
        indptr = np.r_[0, np.cumsum(np.bincount(rows, minlength=len(known)))].astype(known.X.indptr.dtype)
        X = scipy.sparse.csr_matrix((known.X.data[~gone], keep.indices[~gone], indptr), shape=known.X.shape)
        return Known(X, None if known.weights is None else known.weights[~gone])
    return filled(Known(known.X, np.where(gone, 0, known.present).astype(known.dtype)))


def filled(known: Known) -> Known:
    """Dense samples with their mean wherever the weight is zero, whatever was there."""
    present = known.present > 0
    if present.all():
        return known
    with np.errstate(invalid="ignore", over="ignore"):  # of infinite and NaN entries, which are refused later
        mean = Known(np.where(present, known.X, 0), known.weights).mean(axis=1)[:, None]
    return Known(np.where(present, known.X, np.where(np.isfinite(mean), mean, 1)).astype(known.dtype), known.weights)


def as_dense(batch: Any) -> Any:
    """A batch with dense arrays: never all of the data at once."""
    return batch.densified() if isinstance(batch, Known) else dense(batch)


def without_holes(X: Any, samples: Array | None = None) -> Any:
    """X as it is; of ``Known`` samples, which may have weights, completed."""
    return X.completed(samples) if isinstance(X, Known) else X


def stacked(parts: list[Any]) -> Any:
    """Blocks of samples of one kind as one."""
    if any(isinstance(part, Weighted) for part in parts):
        X, samples = zip(*map(apart, parts), strict=True)
        return Weighted(stacked(list(X)), np.concatenate(samples))
    if isinstance(parts[0], Resident):
        return joined(parts)
    if not any(isinstance(part, Known) for part in parts):
        sparse = any(map(scipy.sparse.issparse, parts))
        return scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    sparse = all(part.sparse for part in parts)
    parts = parts if sparse else [part.densified() for part in parts]
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([part.present.data if sparse else part.present for part in parts])
    return Known(stacked([part.X for part in parts]), weights)
