"""Arrays and data frames of Dask as partitions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from onmf.data.inputs import is_dask
from onmf.distributed.partitions import Partitions, Raw, Reader
from onmf.samples import weighted


class DaskData(Partitions):
    """The blocks of rows of a dask array, dense or of scipy.sparse matrices, or of a dask data frame.

    Weights come as dask arrays or series in the same partitions, or as arrays of whole numbers of rows.
    """

    def __init__(self, X: Any, sample_weight: Any = None, weights: Any = None, implicit: str = "zero") -> None:
        if not is_dask(X) or X.ndim != 2:
            what = f"a dask {type(X).__name__.lower()} of {getattr(X, 'ndim', 0)} dimensions" if is_dask(X) else type(X)
            raise ValueError(f"X must have two dimensions, one row per sample; got {what}.")
        self.implicit = implicit
        frame = hasattr(X, "npartitions") and hasattr(X, "columns")
        if frame:
            _require_numbers(X)
            self.n_features, self.feature_names = len(X.columns), [str(name) for name in X.columns]
            kind = np.result_type(*(_number_type(dtype) for dtype in X.dtypes))
            self.lengths: tuple[int | None, ...] = (None,) * X.npartitions
            self._parts = X.to_delayed()
        else:
            if X.dtype.kind not in "buif":
                raise ValueError(f"X must hold real numbers; got {X.dtype}.")
            if not isinstance(X.shape[1], int) or not X.shape[1]:
                raise ValueError(f"X must have a known number of features, and at least one; got {X.shape[1]}.")
            X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
            self.n_features, kind = X.shape[1], X.dtype
            self.lengths = tuple(None if math.isnan(length) else int(length) for length in X.chunks[0])
            self._parts = X.to_delayed()[:, 0].tolist()
        self.dtype = np.dtype(np.float32 if kind == np.float32 else np.float64)
        self._samples = self._alike("sample_weight", sample_weight)
        self._entries = self._alike("weights", weights)

    def _alike(self, name: str, given: Any) -> list[Any] | None:
        """One piece of the weights per partition."""
        if given is None:
            return None
        import dask.array

        if not is_dask(given):
            if None in self.lengths:
                raise ValueError(
                    f"{name} is an array, but how many rows each partition of X has is not known; pass it as a dask "
                    "array in the same partitions."
                )
            given = np.asarray(given)
            if not given.ndim or len(given) != self.n_samples:
                raise ValueError(f"{name} must have one entry per sample, {self.n_samples} in all; got {given.shape}.")
            given = dask.array.from_array(given, chunks=(self.lengths, *given.shape[1:]))
        elif hasattr(given, "chunks"):
            rows = {0: self.lengths} if None not in self.lengths else {}
            columns = {1: -1} if given.ndim == 2 else {}
            known = not np.isnan(given.shape[0])
            if known and self.n_samples not in (None, given.shape[0]):
                raise ValueError(f"{name} must have one entry per sample, {self.n_samples} in all; got {given.shape}.")
            given = given.rechunk({**rows, **columns}) if known else given
        parts = given.to_delayed()
        parts = np.asarray(parts, dtype=object).reshape(-1).tolist()
        if len(parts) != len(self):
            raise ValueError(f"{name} has {len(parts)} partitions and X has {len(self)}; give both the same ones.")
        return parts

    def read(self, number: int) -> tuple[Reader, tuple[Any, ...]]:
        before = [length for length in self.lengths[:number] if length is not None]
        first = sum(before) if None not in self.lengths else 0
        given = [None if each is None else each[number] for each in (self._samples, self._entries)]
        reader = partial(_rows, first=first, given=[each is not None for each in given], implicit=self.implicit)
        return reader, (self._parts[number], *(each for each in given if each is not None))


def _rows(X: Any, *weights: Any, first: int, given: list[bool], implicit: str, skip: bool) -> Raw:
    """On the worker: the block as an array, with its weights."""
    found = iter(weights)
    samples, entries = (np.asarray(next(found)) if each else None for each in given)
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        kind = np.result_type(*(_number_type(dtype) for dtype in X.dtypes))
        X = X.to_numpy(dtype=np.float32 if kind == np.float32 else np.float64, na_value=np.nan)
    X = X if hasattr(X, "format") else np.asarray(X)
    rows = np.arange(first, first + X.shape[0])
    if samples is not None and samples.shape == rows.shape and not samples.any():
        return Raw(rows[:0], X[:0], first)
    if samples is not None:
        rows = rows[np.flatnonzero(samples)]
    return Raw(rows, weighted(X, samples, entries, implicit), first)


def _number_type(dtype: Any) -> np.dtype[Any]:
    """Of a column of pandas, whose own types are named after those of NumPy."""
    return np.dtype(str(getattr(dtype, "numpy_dtype", dtype)).lower())


def _require_numbers(X: Any) -> None:
    for name, dtype in zip(X.columns, X.dtypes, strict=True):
        try:
            fine = _number_type(dtype).kind in "buif"
        except TypeError:
            fine = False
        if not fine:
            raise ValueError(
                f"the column {str(name)!r} of the data frame is of type {dtype}, not of numbers; leave it out: "
                f"X.drop(columns=[{str(name)!r}])."
            )
