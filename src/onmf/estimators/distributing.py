"""Data of Dask, given to an estimator."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from onmf._support.arrays import Array
from onmf._support.known import apart, as_known
from onmf._support.skipping import SkippedLog
from onmf.data.base import native
from onmf.data.inputs import is_dask
from onmf.distributed import Partitions
from onmf.distributed.arrays import DaskData
from onmf.distributed.partitions import Raw
from onmf.estimators.base import NMF
from onmf.estimators.isolate_bad_rows import each_solved
from onmf.learner.update import as_floats
from onmf.learner.usage import proportions
from onmf.model.units import refuse_bad_entries


def is_distributed(X: Any) -> bool:
    """Data that lie, or are read, in partitions?"""
    return isinstance(X, Partitions) or is_dask(X)


def partitions_of(X: Any, sample_weight: Any, weights: Any, implicit: str) -> Partitions:
    """X as partitions, with the weights that are given."""
    if not isinstance(X, Partitions):
        return DaskData(X, sample_weight, weights, implicit)
    if sample_weight is not None or weights is not None:
        raise ValueError("weights are given with dask arrays; a table in files brings its own with ?weight=COLUMN.")
    return X


class Sent:
    """A model as workers have it: without what the user wants to be told, which may not be sent anywhere."""

    def __init__(self, model: Any) -> None:
        self.model = copy.copy(model)
        self.model.callbacks, self.model.verbose = None, 0

    def coefficients(self, raw: Raw) -> Array:
        """The precise coefficients of a partition; under ``on_error="skip"`` NaN for rows that have none."""
        X, _ = apart(as_floats(native(raw.batch)))
        if self.model.on_error == "skip":
            return each_solved(raw.rows, X, SkippedLog(), self.model._solve, self.model.n_components_)
        H: Array = self.model._solve(raw.rows, X)
        return H

    def proportions(self, raw: Raw) -> Array:
        """The share of every atom in the fits."""
        return proportions(self.coefficients(raw), self.model.components_)

    def fit(self, raw: Raw) -> Array:
        """H @ W of coefficients."""
        return NMF.inverse_transform(self.model, raw.batch)

    def loss(self, raw: Raw) -> tuple[float, float]:
        """The mean loss of a partition, and the weight that it has among others."""
        if not raw.batch.shape[0]:
            return 0.0, 0.0
        X = as_known(as_floats(native(raw.batch)), self.model.missing, self.model.implicit)
        refuse_bad_entries(X, raw.rows, self.model._fitted.features.names)
        _, samples = apart(X)
        return self.model._loss(X), float(X.shape[0] if samples is None else samples.sum())


def mean_over(partitions: Partitions, function: Callable[[Raw], tuple[float, float]]) -> float:
    """The mean of what the function gives, by its weights."""
    import dask

    from onmf.distributed.mapped import each

    found = dask.compute(*each(partitions, function, "loss"))
    total = math.fsum(weight for _, weight in found)
    if not total:
        raise ValueError("there are no samples to look at: all partitions are empty.")
    return math.fsum(value * (weight / total) for value, weight in found)
