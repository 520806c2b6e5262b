"""Apply a fitted model to data that do not fit into memory: sources, iterators of batches and partitions of Dask."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.arrays import Array
from onmf._support.wording import is_or_are
from onmf.data import Source, SourceError
from onmf.data.base import native, read_from
from onmf.data.columns import Features
from onmf.data.in_memory import count_rows
from onmf.data.inputs import cure_by_like, require_same_features
from onmf.distributed import Partitions
from onmf.distributed.partitions import DaskData, Raw
from onmf.estimators.inference import BLOCK, Inference, on_host
from onmf.learner import SkippedLog, Usage
from onmf.learner.learned import proportions
from onmf.learner.update import as_floats
from onmf.model.validation import DataError, good_rows, require_valid_entries
from onmf.samples import Samples, as_samples
from onmf.topics import Coherence

if TYPE_CHECKING:
    from onmf.estimators.base import NMF

log = logging.getLogger("onmf")

STREAMED = 100  # rows read from a pipe at a time: results wait for all of them

OnBad = Callable[[ValueError], None]
Solve = Callable[[Any, Any], Array]  # takes the numbers or names of rows, and the rows


def usual_size(source: Source) -> int:
    """Return how many rows to read at a time: many of a file, few of a stream."""
    return BLOCK if source.rewinds else STREAMED


def solve_rows(model: NMF, inference: Inference, rows: Any, X: Any) -> Array:
    """Return the coefficients of rows that were read, or raise an error that names the row."""
    samples = as_samples(X, model.missing, model.implicit)
    require_valid_entries(samples, rows, model._fitted.features.names)
    return inference.coefficients(samples)


def share_rows(model: NMF, inference: Inference, rows: Any, X: Any) -> Array:
    """Return the proportions of rows that were read: NaN where all entries are zero, or missing."""
    samples = as_samples(X, model.missing, model.implicit)
    return shares_of(model, samples, solve_rows(model, inference, rows, samples))


@contextmanager
def warning_once(model: NMF) -> Iterator[Inference]:
    """Yield the model's inference, whose warnings come at the end and count the entries and samples of all batches."""
    inference = model._inference()
    told = np.zeros(4, dtype=np.int64)
    yield replace(inference, told=told)
    inference.warn(*told.tolist())


def shares_of(model: NMF, X: Any, H: Array) -> Array:
    """Return the proportions of samples, or of a tensor, with coefficients H: a share of nothing is NaN."""
    shares = proportions(H, model.components_)
    if not model._fitted.shares:  # which a sample of zeros has, too
        shares[np.asarray(on_host(X.sum(axis=1))) == 0] = np.nan
    return shares


def solve_each(rows: Any, X: Any, on_bad: OnBad | None, solve: Solve, width: int) -> Array:
    """Solve the rows; bad ones, which are found by halving, give rows of NaN."""
    try:
        return solve(rows, X)
    except DataError as error:
        if on_bad is None:
            raise
        if len(rows) == 1:
            on_bad(error)
            return np.full((1, width), np.nan, X.dtype)
    half = len(rows) // 2
    parts = [solve_each(rows[part], X[part], on_bad, solve, width) for part in (slice(None, half), slice(half, None))]
    return np.concatenate(parts)


# Sources and iterators of batches


def require_features(model: NMF, data: Source | Partitions, name: str = "X") -> None:
    """Raise an error if the data have other features than the model was learnt from."""
    found = Features.of(data.n_features, data.feature_names)
    require_same_features(found, model._fitted.features, name, cure=cure_by_like(data, model._spec))


def transform_source(model: NMF, source: Source, shares: bool = False) -> Iterator[Array]:
    """Return an iterator over the coefficients of a source's batches, or over their ``shares``."""
    require_features(model, source, "the source")
    skip = model.on_error == "skip"
    parts = (H for _, H in model.served(source, usual_size(source), SkippedLog() if skip else None, shares))
    return _log_nan_rows(parts) if skip else parts


def transform_batches(model: NMF, batches: Iterable[Any]) -> Iterator[Array]:
    """Return an iterator over the coefficients of batches; under ``on_error="skip"`` NaN where a row is bad."""
    check_is_fitted(model)  # now, not when the first batch is asked for
    if model.on_error == "skip":
        return _log_nan_rows(_transform_each(model, batches))
    return map(model.transform, batches)


def _transform_each(model: NMF, batches: Iterable[Any]) -> Iterator[Array]:
    tell, first, width = SkippedLog(), 0, model.n_components_
    with warning_once(model) as inference:
        for batch in batches:
            try:
                X, _ = model._validated(batch, reset=False)
            except (ValueError, TypeError) as error:
                tell(error)
                H: Array = np.full((count_rows(batch), width), np.nan, model.components_.dtype)
            else:
                rows = np.arange(first, first + X.shape[0])
                H = solve_each(rows, X, tell, partial(solve_rows, model, inference), width)
            first += len(H)
            yield H


def _log_nan_rows(parts: Iterable[Array]) -> Iterator[Array]:
    """Yield the parts, and log at the end how many rows are NaN."""
    rows = skipped = 0
    for H in parts:
        rows, skipped = rows + len(H), skipped + int(np.isnan(H[:, 0]).sum())
        yield H
    if skipped:
        log.warning("%d of the %d rows %s NaN.", skipped, rows, is_or_are(skipped))


def solve_source_rows(
    source: Source, size: int, on_bad: OnBad | None, solve: Solve, width: int, dtype: Any
) -> Iterator[tuple[Any, Array]]:
    """Yield the results of a source's rows, ``width`` numbers each, with NaN in place of bad rows."""
    expected = unread = filled = 0  # the next row; rows that could not be read, and those that are NaN for it
    in_order = True  # so far

    def fault(error: SourceError) -> None:
        nonlocal unread
        unread += error.rows
        if on_bad is not None:
            on_bad(error)

    def nan_rows(stop: int) -> Iterator[tuple[Any, Array]]:
        for first in range(expected, stop, size):
            rows = np.arange(first, min(first + size, stop))
            yield rows, np.full((len(rows), width), np.nan, dtype)

    for rows, batch in read_from(source, size, None, None if on_bad is None else fault, 0):
        found = solve_each(rows, as_floats(batch), on_bad, solve, width)
        dtype = found.dtype
        in_order = in_order and _follow(rows, expected, unread - filled)
        if in_order and on_bad is not None and len(rows):
            yield from nan_rows(int(rows[0]))
            whole = np.full((int(rows[-1] - rows[0]) + 1, width), np.nan, dtype)
            whole[rows - rows[0]] = found
            filled += int(rows[-1]) + 1 - expected - len(rows)
            rows, found = np.arange(rows[0], rows[-1] + 1), whole
            expected = int(rows[-1]) + 1
        yield rows, found
    if in_order:
        yield from nan_rows(expected + unread - filled)


def _follow(rows: Any, expected: int, unread: int) -> bool:
    """Tell whether row numbers ascend from the expected one and leave out no more rows than could not be read.

    They leave out more where the rows come in another order.
    """
    if not len(rows):
        return True
    if rows.dtype == object or rows[0] < expected or not (rows[1:] > rows[:-1]).all():
        return False
    return bool(rows[-1] + 1 - expected - len(rows) <= unread)


@dataclass(frozen=True)
class Measured:
    """Usage and coherence of a model's components, as one pass over data has shown them."""

    samples: int
    usage: Array  # (K,), shares that sum to one
    coherence: Array | None  # (K,); None if the data are not counts, so that a zero does not mean that a word is absent


def measured(
    model: NMF, source: Source, topics: Sequence[Sequence[int]], show: Callable[[int], Any] = lambda samples: None
) -> Measured:
    """Measure in one pass how much of the data each component carries, and whether its leading features co-occur.

    ``topics`` are the features of each component to look for, and ``show`` is called with how many samples were read.
    """
    found, sums, samples = Coherence(topics), np.zeros(model.n_components_), 0
    counts = model.implicit == "zero"
    with warning_once(model) as inference:
        for rows, batch in read_from(source, usual_size(source), None, None, 0):
            X = as_samples(as_floats(batch))
            counts = counts and bool(X.sparse or (np.floor(X.values) == X.values).all())
            if counts:
                found.add(X.matrix)
            filled = (X.sum(axis=1) != 0).astype(np.float64)  # the coefficients of a blank text are the least there are
            H = solve_rows(model, inference, rows, X)
            sums += Usage.of(H, model.components_, X.times_sample_weight(filled)).sums
            samples += len(rows)
            show(samples)
    if not samples:
        raise SourceError("there is no sample to measure the topics on.")
    return Measured(samples, Usage(sums).shares, found.values() if counts else None)


def require_no_weights(*weights: Any) -> None:
    """Raise an error for weights that are given with data that are read in batches."""
    if any(each is not None for each in weights):
        raise ValueError(
            "weights are given with arrays; a table brings its own with ?weight=COLUMN, and batches of your own are "
            "learnt with partial_fit(batch, sample_weight=...)."
        )


def loss_of_rows(model: NMF, inference: Inference, rows: Any, batch: Any) -> tuple[float, float]:
    """Return the mean loss of rows that were read, and their weight; bad ones raise an error, or are left out."""
    X = as_samples(as_floats(batch), model.missing, model.implicit)
    kept, errors = good_rows(X, rows, model._fitted.features.names)
    if errors and model.on_error == "raise":
        raise errors[0]
    for error in errors:
        log.warning("Skipped: %s", error)
    return (inference.loss(X[kept] if errors else X), float(X[kept].weight)) if kept else (0.0, 0.0)


def loss_of_source(model: NMF, source: Source) -> float:
    """Return the mean loss over a source's batches, by their weights."""
    require_features(model, source, "the source")
    batches = read_from(source, usual_size(source), None, SkippedLog() if model.on_error == "skip" else None, 0)
    with warning_once(model) as inference:
        return mean_loss([loss_of_rows(model, inference, rows, batch) for rows, batch in batches])


def mean_loss(found: Sequence[tuple[float, float]]) -> float:
    """Return the mean of losses by their weights."""
    total = math.fsum(weight for _, weight in found)
    if not total:
        raise ValueError("there are no samples to look at.")
    return math.fsum(value * (weight / total) for value, weight in found)


# Partitions of Dask


def partitions_of(X: Any, sample_weight: Any, weights: Any, implicit: str) -> Partitions:
    """Return X as partitions, with the weights that are given."""
    if not isinstance(X, Partitions):
        return DaskData(X, sample_weight, weights, implicit)
    if sample_weight is not None or weights is not None:
        raise ValueError("weights are given with dask arrays; a table in files brings its own with ?weight=COLUMN.")
    return X


class PicklableModel:
    """A model as it is sent to workers: without callbacks, which may be impossible to pickle."""

    def __init__(self, model: Any) -> None:
        self.model = copy.copy(model)
        self.model.callbacks, self.model.verbose = None, 0

    def coefficients(self, raw: Raw) -> Array:
        """Return the precise coefficients of a partition; under ``on_error="skip"`` NaN for bad rows."""
        X = as_floats(native(raw.batch))
        on_bad = SkippedLog() if self.model.on_error == "skip" else None
        return solve_each(
            raw.rows, X, on_bad, partial(solve_rows, self.model, self.model._inference()), self.model.n_components_
        )

    def proportions(self, raw: Raw) -> Array:
        """Return the share of every component in the fits of a partition."""
        X = as_floats(native(raw.batch))
        return shares_of(self.model, as_samples(X, self.model.missing, self.model.implicit), self.coefficients(raw))

    def fit(self, raw: Raw) -> Array:
        """Return H @ W of a partition of coefficients."""
        H = raw.batch.matrix if isinstance(raw.batch, Samples) else raw.batch
        return np.asarray(self.model.inverse_transform(H))

    def loss(self, raw: Raw) -> tuple[float, float]:
        """Return the mean loss of a partition, and its weight among all partitions."""
        if not raw.batch.shape[0]:
            return 0.0, 0.0
        return loss_of_rows(self.model, self.model._inference(), raw.rows, native(raw.batch))


def map_partitions(
    model: NMF,
    X: Any,
    function: Callable[[Raw], Array],
    width: int,
    what: str,
    *,
    weights: Any = None,
    coefficients: bool = False,
) -> Any:
    """Return a dask array: the function of every partition of samples or, if X holds those, of ``coefficients``."""
    from onmf.distributed.mapping import lazy_array  # an optional dependency

    partitions = partitions_of(X, None, weights, model.implicit)
    if coefficients:
        require_same_features(Features(partitions.n_features), Features(model.n_components_))
    else:
        require_features(model, partitions)
    dtype = model.components_.dtype if partitions.dtype is None else partitions.dtype
    return lazy_array(partitions, function, width, dtype, what, model.on_error == "skip")


def loss_of_partitions(model: NMF, X: Any, sample_weight: Any, weights: Any) -> float:
    """Return the mean loss over all partitions, by their weights."""
    import dask

    from onmf.distributed.mapping import tasks_of

    partitions = partitions_of(X, sample_weight, weights, model.implicit)
    require_features(model, partitions)
    return mean_loss(dask.compute(*tasks_of(partitions, PicklableModel(model).loss, "loss")))
