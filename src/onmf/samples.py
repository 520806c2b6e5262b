"""``Samples`` holds X (n, F), dense or sparse, with its weights and missing entries."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy

from onmf._support.arrays import Array, Counts, Mask, row_sums, some_of
from onmf._support.device_rows import Resident, joined
from onmf._support.threads import cached_property

FEW_ENTRIES = 0.15  # the density below which a batch counts as sparse, however it is stored


class KnownZeros:
    """Which entries that a sparse X does not store are zeros; the others are missing.

    Rows and features belong to classes, and ``known`` (Q, Q) says of a class of rows and one of features whether their
    entries are known: a matrix (n, F) of ones and zeros whose products cost what sums over its sides do.
    """

    def __init__(self, rows: Counts, features: Counts, known: Mask) -> None:
        self.rows, self.features, self.known = rows, features, known

    def __getitem__(self, rows: Any) -> KnownZeros:
        part = KnownZeros(self.rows[rows], self.features, self.known)
        part.members = self.members  # which take a while to sort, and are the same for all rows
        return part

    def __matmul__(self, B: Array) -> Array:
        return (self.known.astype(B.dtype) @ (self.members.astype(B.dtype) @ B))[self.rows]

    @cached_property
    def members(self) -> Any:
        """The features of each class, as a matrix (Q, F) of ones."""
        F = len(self.features)
        places = np.argsort(self.features, kind="stable")
        starts = np.r_[0, np.cumsum(np.bincount(self.features, minlength=len(self.known)))]
        return scipy.sparse.csr_matrix((np.ones(F, np.int8), places, starts), (len(self.known), F))

    @cached_property
    def T(self) -> KnownZeros:
        """The transposed matrix."""
        return KnownZeros(self.features, self.rows, self.known.T)

    def sum(self, axis: int) -> Array:
        """Return the number of known entries of each feature (0) or each row (1)."""
        matrix = self if axis == 1 else self.T
        return matrix @ np.ones(len(matrix.features))

    def toarray(self) -> Array:
        """Return all entries, as numbers."""
        return self.known[np.ix_(self.rows, self.features)].astype(np.float64)


class Samples:
    """The values of X, the weights of its entries and of its samples, and what a sparse X leaves out.

    Parameters
    ----------
    matrix : array or CSR matrix (n, F)
        The values.
    entry_weight : array or None
        A weight for each value; zero marks a missing entry, where any admissible number may stand.
    sample_weight : array (n,) or None
        A weight for each row.
    absent : {"zero", "missing"} or KnownZeros
        What a sparse matrix does not store: zeros, missing entries, or both.

    Examples
    --------
    >>> samples = onmf.methods.Samples(X, sample_weight=np.full(60, 2.0))
    >>> samples.shape, samples.weight
    ((60, 30), 120.0)
    """

    def __init__(
        self,
        matrix: Any,
        entry_weight: Array | None = None,
        sample_weight: Array | None = None,
        absent: Literal["zero", "missing"] | KnownZeros = "zero",
    ) -> None:
        self.matrix, self.entry_weight, self.absent = matrix, entry_weight, absent
        # The layout of weights in memory must not move a bit of a sum.
        self.sample_weight = None if sample_weight is None else np.ascontiguousarray(sample_weight)
        self.sparse = not isinstance(matrix, np.ndarray) and bool(scipy.sparse.issparse(matrix))
        # Can entries be missing, or weigh differently?
        self.masked = entry_weight is not None or (self.sparse and absent != "zero")
        self.omits_zeros = self.sparse and (not self.masked or isinstance(absent, KnownZeros))
        self.checked = False  # have its entries been found good? Then they are not checked again
        self.shape: tuple[int, int] = matrix.shape
        self.dtype: np.dtype[Any] = matrix.dtype

    # What there is

    @property
    def values(self) -> Array:
        """The values that are stored: (n, F), or one per stored entry of a sparse X."""
        values: Array = self.matrix.data if self.sparse else self.matrix
        return values

    @property
    def weight(self) -> float:
        """The sum of the weights of the samples."""
        return len(self) if self.sample_weight is None else float(self.sample_weight.sum(dtype=np.float64))

    @property
    def nbytes(self) -> int:
        """The memory that values, indices and weights take."""
        stored = self.values.nbytes + (self.matrix.indices.nbytes if self.sparse else 0)
        return int(stored) + (0 if self.entry_weight is None else self.entry_weight.nbytes)

    @property
    def density(self) -> float:
        """The share of entries that are not zero; of a masked X, the share that is not missing."""
        present = self.values if not self.masked else self.entry_weight
        stored = self.values.size if present is None else int(np.count_nonzero(present))
        return float(stored) / max(self.shape[0] * self.shape[1], 1)

    @property
    def nonzeros(self) -> float:
        """The number of entries that are not zero, each counted by its weight and that of its sample."""
        if not self.masked and self.sample_weight is None:
            return float(self.values.size if self.sparse else np.count_nonzero(self.values))
        return float(self.times_sample_weight(self.per_sample((self.values != 0).astype(self.dtype))).sum())

    def mostly_zeros(self, share: float = FEW_ENTRIES) -> bool:
        """Return whether less than this share of the entries is nonzero; a masked X is never mostly zeros."""
        return not self.masked and self.density < share

    def __len__(self) -> int:
        return int(self.shape[0])

    # Parts and other forms of it

    def __getitem__(self, rows: Any) -> Samples:
        entry_weight = self.entry_weight
        if not self.sparse:
            entry_weight = some_of(entry_weight, rows)
        elif entry_weight is not None:
            entry_weight = self.like(entry_weight)[rows].data
        absent = self.absent if isinstance(self.absent, str) else self.absent[rows]
        part = Samples(self.matrix[rows], entry_weight, some_of(self.sample_weight, rows), absent)
        part.checked = self.checked
        if "totals" in self.__dict__:
            part.__dict__["totals"] = self.totals[rows]
        return part

    def of_features(self, features: Any) -> Samples:
        """Return samples with only these features."""
        weights: Any = None if self.entry_weight is None else self.entry_weights[:, features]
        weights = weights.data if scipy.sparse.issparse(weights) else weights
        return Samples(self.matrix[:, features], weights, self.sample_weight, self.absent)

    def astype(self, dtype: Any, copy: bool = False) -> Samples:
        """Return the same samples with values and weights of entries in another precision."""
        if self.dtype == dtype and not copy:
            return self
        entry_weight = None if self.entry_weight is None else self.entry_weight.astype(dtype, copy=copy)
        return Samples(self.matrix.astype(dtype, copy=copy), entry_weight, self.sample_weight, self.absent)

    def with_sample_weights_in(self, dtype: Any) -> Samples:
        """Return the same samples with their weights in another precision."""
        if self.sample_weight is None:
            return self
        return Samples(self.matrix, self.entry_weight, self.sample_weight.astype(dtype, copy=False), self.absent)

    def on_host(self) -> Samples:
        """Return samples whose matrix lies in the host's memory, not on a device."""
        if not isinstance(self.matrix, Resident):
            return self
        return Samples(self.matrix.host(), self.entry_weight, self.sample_weight, self.absent)

    def with_values(self, values: Array) -> Samples:
        """Return samples with other values at the same places."""
        return Samples(self.like(values), self.entry_weight, self.sample_weight, self.absent)

    def like(self, values: Array) -> Any:
        """Return numbers that lie like ``values`` as a matrix of the shape of X."""
        if not self.sparse:
            return values
        return scipy.sparse.csr_matrix((values, self.matrix.indices, self.matrix.indptr), shape=self.shape)

    def densified(self) -> Samples:
        """Return dense samples; where entries are missing, they have the mean of the sample."""
        if not self.sparse:
            return self
        if not self.masked:
            return Samples(np.ascontiguousarray(self.matrix.toarray()), None, self.sample_weight)
        present, X = self.entry_weights.toarray(), self.matrix.toarray()
        return Samples(
            np.where(present > 0, X, self.mean(axis=1)[:, None]).astype(X.dtype), present, self.sample_weight, "missing"
        )

    def as_masked(self) -> Samples:
        """Return samples whose entries have weights: those that have none are densified, and weigh one."""
        if self.masked:
            return self
        X = self.densified().matrix
        return Samples(X, np.ones_like(X), self.sample_weight, "missing")

    def sparsified(self) -> Samples:
        """Return samples that store their non-zeros, or the entries that are not missing, as a CSR matrix."""
        if self.sparse:
            return self
        if self.entry_weight is None:
            return Samples(scipy.sparse.csr_matrix(self.matrix), None, self.sample_weight)
        rows, columns = np.nonzero(self.entry_weight)
        X = scipy.sparse.csr_matrix((self.matrix[rows, columns], (rows, columns)), shape=self.shape)
        return Samples(X, self.entry_weight[rows, columns], self.sample_weight, "missing")

    def completed(self) -> Any:
        """Return X as a matrix; missing entries have what a fit of rank one gives: the sample's size times a profile.

        A sample counts in the profile as often as its weight says.
        """
        if not self.masked or self.omits_zeros:  # as zeros, where that is what most are
            return self.matrix
        whole = self.densified()
        size = whole.mean(axis=1)
        counted = whole if self.sample_weight is None else whole.with_sample_weights_in_entries()
        total = (size[:, None] * counted.entry_weights).sum(axis=0)
        profile = np.divide(counted.sum(axis=0), total, out=np.ones_like(total), where=total > 0)
        return np.where(whole.entry_weights > 0, whole.matrix, size[:, None] * profile).astype(self.dtype)

    def with_sample_weights_in_entries(self) -> Samples:
        """Return masked samples whose entries have the weights of their samples, too."""
        if self.sample_weight is None:
            return self
        weights = self.spread(self.sample_weight) * self.times_entry_weight(np.ones_like(self.values))
        return Samples(self.matrix, weights.astype(self.dtype), None, "missing")

    # Weights and sums

    def times_entry_weight(self, values: Array) -> Array:
        """Return numbers like ``values``, each times the weight of its entry."""
        return values if self.entry_weight is None else self.entry_weight * values

    def times_sample_weight(self, rows: Array) -> Array:
        """Return numbers of the samples (n, ...), each row times the weight of its sample."""
        if self.sample_weight is None:
            return rows
        weights = self.sample_weight.astype(rows.dtype, copy=False)
        return rows * weights.reshape((-1,) + (1,) * (rows.ndim - 1))

    def entries_times_sample_weight(self, values: Array) -> Array:
        """Return numbers like ``values``, each times the weight of its sample."""
        return values if self.sample_weight is None else values * self.spread(self.sample_weight)

    def sum_of_rows(self, rows: Array) -> Array:
        """Return the sum of rows (n, K) of the samples: (K,), or by the weights of each feature's entries: (F, K)."""
        return np.asarray(self.entry_weights.T @ rows) if self.masked else rows.sum(axis=0)

    def matrix_times_sample_weight(self, values: Array) -> Any:
        """Return numbers like ``values`` as a matrix, each row times the weight of its sample."""
        if not self.sparse or self.sample_weight is None:
            return self.like(values if self.sparse else self.times_sample_weight(values))
        return scipy.sparse.diags_array(self.sample_weight.astype(values.dtype, copy=False)) @ self.like(values)

    def spread(self, rows: Array) -> Array:
        """Return one number per sample in a shape that numbers like ``values`` can be multiplied by."""
        return np.repeat(rows, np.diff(self.matrix.indptr)) if self.sparse else rows[:, None]

    @cached_property
    def entry_weights(self) -> Any:
        """The weights of the entries of a masked X as a matrix: dense, CSR or ``KnownZeros``."""
        if not isinstance(self.absent, str):
            return self.absent
        weights = np.ones_like(self.values) if self.entry_weight is None else self.entry_weight
        return self.like(weights)

    def per_sample(self, values: Array) -> Array:
        """Return the weighted sum over the entries of each sample, of numbers like ``values``."""
        if self.sparse:
            return row_sums(self.like(self.times_entry_weight(values)))
        if self.entry_weight is None:
            return values.sum(axis=1)
        return np.einsum("nf,nf->n", self.entry_weight, values)

    def row_mean(self, values: Array) -> Array:
        """Return the weighted mean of each sample's entries, of numbers like ``values``, spread over them."""
        if not (self.masked or self.sparse):
            return values.mean(axis=1, keepdims=True)
        return self.spread(self.with_values(values).mean(axis=1))

    @cached_property
    def products(self) -> Any:
        """The values times the weights of the entries, as a matrix."""
        return self.matrix if self.entry_weight is None else self.like(self.times_entry_weight(self.values))

    @cached_property
    def totals(self) -> Array:
        """The weighted sum of each sample; do not change it."""
        return row_sums(self.products)

    @cached_property
    def feature_totals(self) -> Array:
        """The sum of each feature, by the weights of entries and samples; do not change it."""
        products = self.matrix_times_sample_weight(self.products.data if self.sparse else self.products)
        if not self.sparse:
            return np.asarray(products.sum(axis=0))
        return np.bincount(products.indices, products.data, self.shape[1]).astype(self.dtype)

    @cached_property
    def places_by_feature(self) -> Any:
        """Where the entries of each feature of a sparse X are in ``values``, as a CSR matrix (F, n)."""
        stored = self.matrix
        places = np.arange(stored.nnz)
        return scipy.sparse.csr_matrix((places, stored.indices, stored.indptr), shape=stored.shape).tocsc().T

    def sum(self, axis: int) -> Array:
        """Return the weighted sum of each feature (0) or each sample (1)."""
        return self.totals if axis == 1 else np.asarray(self.products.sum(axis=0)).ravel()

    def weight_sums(self, axis: int) -> Array:
        """Return the sum of the weights of the entries of each feature (0) or each sample (1)."""
        if not self.masked:
            return np.full(self.shape[1 - axis], float(self.shape[axis]), dtype=self.dtype)
        if axis == 1 and isinstance(self.absent, str):
            return row_sums(self.entry_weights)
        return np.asarray(self.entry_weights.sum(axis=axis)).ravel().astype(self.dtype, copy=False)

    def mean(self, axis: int | None = None) -> Any:
        """Return the weighted mean of all entries, of each feature (0) or each sample (1); zero of nothing."""
        if not self.masked:
            mean = self.matrix.mean(axis=axis)
            return mean if axis is None else np.asarray(mean).ravel()
        total, weight = self.sum(axis or 0), self.weight_sums(axis or 0)
        if axis is None:
            return self.dtype.type(total.sum() / max(float(weight.sum()), float(np.finfo(self.dtype).tiny)))
        return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)

    def max(self) -> float:
        """Return the largest entry that is not missing; zero of none."""
        present = self.values if self.entry_weight is None else np.where(self.entry_weight > 0, self.values, 0)
        return float(present.max(initial=0.0))


# From what users pass as X


def as_samples(X: Any, missing: str | None = None, implicit: str = "zero", *, learning: bool = False) -> Samples:
    """Return X, an array, a sparse matrix or samples, as the settings ``missing`` and ``implicit`` mean it.

    In a batch to learn from (``learning``) entries may be missing if they may be in a later one: sparse samples
    without NaN are then densified, one batch at a time.
    """
    X = X if isinstance(X, Samples) else Samples(X)
    if isinstance(X.matrix, Resident):
        return X
    if X.omits_zeros and implicit == "missing":
        X = Samples(canonical(X.matrix), None, X.sample_weight, "missing")
    if missing != "nan":
        return X
    if X.omits_zeros:
        if not (learning or np.isnan(X.values).any()):
            return X
        X = X.densified()
    if not (X.masked or learning or np.isnan(X.values).any()):
        return X
    return _without_nan(X)


def _without_nan(X: Samples) -> Samples:
    """Return samples whose NaN entries are missing."""
    gone = np.isnan(X.values)
    if not X.sparse:
        weights = np.ones_like(X.values) if X.entry_weight is None else X.entry_weight
        return filled(Samples(X.matrix, np.where(gone, 0, weights).astype(X.dtype), X.sample_weight, "missing"))
    if not gone.any():
        return X
    stored = X.matrix
    rows = np.repeat(np.arange(len(X)), np.diff(stored.indptr))[~gone]
    indptr = np.r_[0, np.cumsum(np.bincount(rows, minlength=len(X)))].astype(stored.indptr.dtype)
    matrix = scipy.sparse.csr_matrix((stored.data[~gone], stored.indices[~gone], indptr), shape=X.shape)
    return Samples(matrix, some_of(X.entry_weight, ~gone), X.sample_weight, "missing")


def filled(X: Samples) -> Samples:
    """Return dense samples with their mean wherever the weight is zero, whatever was there."""
    present = X.entry_weights > 0
    if present.all():
        return X
    with np.errstate(invalid="ignore", over="ignore"):  # infinite and NaN entries raise an error later
        mean = X.with_values(np.where(present, X.matrix, 0)).mean(axis=1)[:, None]
    return X.with_values(np.where(present, X.matrix, np.where(np.isfinite(mean), mean, 1)).astype(X.dtype))


def weighted(X: Any, sample_weight: Any, weights: Any, implicit: str) -> Samples:
    """Return X, an array or CSR matrix, with the weights that are given; samples of weight zero are left out."""
    n = X.shape[0]
    samples = None if sample_weight is None else _checked_sample_weight(sample_weight, n)
    X = (X if isinstance(X, Samples) else Samples(X)) if weights is None else _with_entry_weights(X, weights, implicit)
    if samples is None:
        return X
    X = Samples(X.matrix, X.entry_weight, samples, X.absent)
    return X if samples.all() else X[np.flatnonzero(samples)]


def given_rows(sample_weight: Any) -> Any:
    """Return the numbers that the samples with a weight have in X, for messages; None: no sample is left out."""
    return None if sample_weight is None else np.flatnonzero(np.asarray(sample_weight))


def _checked_sample_weight(sample_weight: Any, n: int) -> Array:
    samples = np.asarray(sample_weight)
    if samples.dtype.kind not in "buif" or samples.shape != (n,):
        what = f"shape {samples.shape}" if samples.dtype.kind in "buif" else f"type {samples.dtype}"
        raise ValueError(f"sample_weight must have one number per sample, {n} in all; got {what}.")
    samples = samples.astype(np.float64)
    if not np.isfinite(samples).all() or (samples < 0).any():
        raise ValueError("sample_weight must be finite and not negative; a weight of zero leaves a sample out.")
    if not samples.any():
        raise ValueError("every sample_weight is zero, so there is no sample to look at; give one of them a weight.")
    return samples


def _with_entry_weights(X: Any, weights: Any, implicit: str) -> Samples:
    sparse = scipy.sparse.issparse(weights)
    given: Any = canonical(weights) if sparse else np.asarray(weights)
    given = given.reshape(-1, given.shape[-1]) if given.ndim == 3 and given.size else given  # of a cube
    if given.dtype.kind not in "buif" or given.shape != X.shape:
        raise ValueError(f"weights must have the shape of X, {X.shape}, and be numbers; got shape {given.shape}.")
    values: Any = given.data if sparse else given
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("weights must be finite and not negative; a weight of zero stands for a missing entry.")
    if not sparse and not (scipy.sparse.issparse(X) and implicit == "missing"):
        dense = np.ascontiguousarray(X.toarray() if scipy.sparse.issparse(X) else X)
        return filled(Samples(dense, given.astype(X.dtype), None, "missing"))
    there = (given if sparse else canonical(X)).tocoo()
    values = there.data if sparse else given[there.row, there.col]
    kept = values > 0
    rows, columns, values = there.row[kept], there.col[kept], values[kept]
    order = np.lexsort((columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    indptr = np.r_[0, np.cumsum(np.bincount(rows, minlength=X.shape[0]))]
    entries = np.asarray(X[rows, columns]).ravel().astype(X.dtype, copy=False)
    matrix = scipy.sparse.csr_matrix((entries, columns, indptr), shape=X.shape)
    return Samples(matrix, values.astype(X.dtype), None, "missing")


def canonical(X: Any) -> Any:
    """Return a CSR matrix that stores every entry once, in order, so that others can share its indices."""
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def checked_missing(missing: Any, implicit: Any) -> tuple[str | None, str]:
    """Return the settings; raise an error where they have no meaning."""
    if missing is not None and not (isinstance(missing, str) and missing == "nan"):
        raise ValueError(f"missing must be None or 'nan', got {missing!r}.")
    if not isinstance(implicit, str) or implicit not in ("zero", "missing"):
        raise ValueError(f"implicit must be 'zero' or 'missing', got {implicit!r}.")
    return missing, implicit


def stacked(parts: list[Any]) -> Any:
    """Return blocks of rows, matrices or samples, as one."""
    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, Samples) for part in parts):
        if isinstance(parts[0], Resident):
            return joined(parts)
        sparse = any(map(scipy.sparse.issparse, parts))
        return scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    blocks = [part if isinstance(part, Samples) else Samples(part) for part in parts]
    if any(part.masked for part in blocks) and not all(part.sparse for part in blocks):
        blocks = [part.densified() for part in blocks]
    entry_weight = sample_weight = None
    if any(part.entry_weight is not None for part in blocks):
        entry_weight = np.concatenate([part.times_entry_weight(np.ones_like(part.values)) for part in blocks])
    if any(part.sample_weight is not None for part in blocks):
        sample_weight = np.concatenate([part.times_sample_weight(np.ones(len(part))) for part in blocks])
    absent = blocks[0].absent
    if isinstance(absent, KnownZeros):
        rows = [part.absent.rows for part in blocks if isinstance(part.absent, KnownZeros)]
        absent = KnownZeros(np.concatenate(rows), absent.features, absent.known)
    whole = Samples(stacked([part.matrix for part in blocks]), entry_weight, sample_weight, absent)
    whole.checked = all(part.checked for part in blocks)
    return whole
