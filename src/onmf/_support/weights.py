"""Weights that users give with X: of its samples, and of its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, dense
from onmf._support.known import Known, Weighted, filled


def weighted(X: Any, sample_weight: Any, weights: Any, implicit: str) -> Any:
    """X, an array or CSR matrix, with the weights that are given; samples that have none are not there."""
    n = X.shape[0]
    samples = None if sample_weight is None else _samples(sample_weight, n)
    X = X if weights is None else _known(X, weights, implicit)
    if samples is None:
        return X
    if not samples.all():
        kept = np.flatnonzero(samples)
        X, samples = X[kept], samples[kept]
    return Weighted(X, samples)


def given_rows(sample_weight: Any) -> Any:
    """The numbers that the samples with a weight had in X, for messages; None: no sample is left out."""
    return None if sample_weight is None else np.flatnonzero(np.asarray(sample_weight))


def _samples(sample_weight: Any, n: int) -> Array:
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


def _known(X: Any, weights: Any, implicit: str) -> Known:
    sparse = scipy.sparse.issparse(weights)
    given: Any = _without_duplicates(weights) if sparse else np.asarray(weights)
    if given.dtype.kind not in "buif" or given.shape != X.shape:
        raise ValueError(f"weights must have the shape of X, {X.shape}, and be numbers; got shape {given.shape}.")
    values: Any = given.data if sparse else given
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("weights must be finite and not negative; a weight of zero stands for a missing entry.")
    if sparse or (scipy.sparse.issparse(X) and implicit == "missing"):
        if not sparse:
            there = _without_duplicates(X).tocoo()
            rows, columns, values = there.row, there.col, given[there.row, there.col]
        else:
            there = given.tocoo()
            rows, columns, values = there.row, there.col, there.data
        kept = values > 0
        rows, columns, values = rows[kept], columns[kept], values[kept]
        order = np.lexsort((columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        indptr = np.r_[0, np.cumsum(np.bincount(rows, minlength=X.shape[0]))]
        entries = np.asarray(X[rows, columns]).ravel().astype(X.dtype, copy=False)
        known = scipy.sparse.csr_matrix((entries, columns, indptr), shape=X.shape)
        return Known(known, values.astype(X.dtype))
    return filled(Known(dense(X), given.astype(X.dtype)))


def _without_duplicates(X: Any) -> Any:
    """A CSR matrix that stores every entry once."""
    X = X.tocsr(copy=True)
    X.sum_duplicates()
    return X
