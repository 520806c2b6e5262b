"""A fitted model applied to data that do not fit into memory: sources, iterators of batches and partitions of Dask."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.arrays import Array
from onmf._support.skipping import SkippedLog
from onmf._support.wording import is_or_are
from onmf.data import Source, SourceError
from onmf.data.base import native, read_from
from onmf.data.columns import Features
from onmf.data.in_memory import count_rows
from onmf.data.inputs import is_dask, likeness, require_same_features
from onmf.distributed import Partitions
from onmf.distributed.partitions import DaskData, Raw
from onmf.estimators.inference import BLOCK
from onmf.insight.topics import Coherence
from onmf.learner import Usage
from onmf.learner.learned import proportions
from onmf.learner.update import as_floats
from onmf.model.validation import DataError, require_valid_entries
from onmf.samples import Samples, as_samples

if TYPE_CHECKING:
    from onmf.estimators.base import NMF

log = logging.getLogger("onmf")

STREAMED = 100  # rows read from a pipe at a time: whoever reads the other end waits for them too

OnBad = Callable[[ValueError], None]
Solve = Callable[[Any, Any], Array]  # takes the numbers or names of rows, and the rows


def usual_size(source: Source) -> int:
    """Return how many rows to read at a time: many of a file, few of a stream."""
    return BLOCK if source.rewinds else STREAMED


def solve_rows(model: NMF, rows: Any, X: Any) -> Array:
    """Return the coefficients of rows that were read, or raise an error that names the row."""
    samples = as_samples(X, model.missing, model.implicit)
    require_valid_entries(samples, rows, model._fitted.features.names)
    return model._inference().coefficients(samples)


def solve_each(rows: Any, X: Any, on_bad: OnBad | None, solve: Solve, width: int) -> Array:
    """Return what ``solve`` makes of the rows, and NaN for bad ones, which are found by halving."""
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


def transform_source(model: NMF, source: Source) -> Iterator[Array]:
    """Return an iterator over the coefficients of a source's batches."""
    found, cure = (
        Features.of(source.n_features, source.feature_names),
        likeness(source, getattr(model, "source_", None)),
    )
    require_same_features(found, model._fitted.features, "the source", cure=cure)
    skip = model.on_error == "skip"
    parts = (H for _, H in model.served(source, usual_size(source), SkippedLog() if skip else None))
    return _with_gaps_logged(parts) if skip else parts


def transform_batches(model: NMF, batches: Iterable[Any]) -> Iterator[Array]:
    """Return an iterator over the coefficients of batches; under ``on_error="skip"`` NaN where a row is bad."""
    check_is_fitted(model)  # now, not when the first batch is asked for
    if model.on_error == "skip":
        return _with_gaps_logged(_transform_each(model, batches))
    return map(model.transform, batches)


def _transform_each(model: NMF, batches: Iterable[Any]) -> Iterator[Array]:
    tell, first, width = SkippedLog(), 0, model.n_components_
    for batch in batches:
        try:
            X, _ = model._validated(batch, reset=False)
        except (ValueError, TypeError) as error:
            tell(error)
            H: Array = np.full((count_rows(batch), width), np.nan, model.components_.dtype)
        else:
            rows = np.arange(first, first + X.shape[0])
            H = solve_each(rows, X, tell, partial(solve_rows, model), width)
        first += len(H)
        yield H


def _with_gaps_logged(parts: Iterable[Array]) -> Iterator[Array]:
    """Yield the parts, and log at the end how many rows are NaN."""
    rows = gaps = 0
    for H in parts:
        rows, gaps = rows + len(H), gaps + int(np.isnan(H[:, 0]).sum())
        yield H
    if gaps:
        log.warning("%d of the %d rows %s NaN.", gaps, rows, is_or_are(gaps))


def in_place(
    source: Source, size: int, on_bad: OnBad | None, solve: Solve, width: int, dtype: Any
) -> Iterator[tuple[Any, Array]]:
    """Yield what ``solve`` makes of a source's rows, of ``width`` numbers each, with NaN in the place of bad rows."""
    expected = unread = filled = 0  # the next row; rows that could not be read, and those that are NaN for it
    in_order, like = True, dtype  # have all rows come in order, and of what type are the results?

    def fault(error: SourceError) -> None:
        nonlocal unread
        unread += error.rows
        if on_bad is not None:
            on_bad(error)

    def gap(stop: int) -> Iterator[tuple[Any, Array]]:
        for first in range(expected, stop, size):
            rows = np.arange(first, min(first + size, stop))
            yield rows, np.full((len(rows), width), np.nan, like)

    for rows, batch in read_from(source, size, None, None if on_bad is None else fault, 0):
        found = solve_each(rows, as_floats(batch), on_bad, solve, width)
        like = found.dtype
        in_order = in_order and _follow(rows, expected, unread - filled)
        if in_order and on_bad is not None and len(rows):
            yield from gap(int(rows[0]))
            whole = np.full((int(rows[-1] - rows[0]) + 1, width), np.nan, like)
            whole[rows - rows[0]] = found
            filled += int(rows[-1]) + 1 - expected - len(rows)
            rows, found = np.arange(rows[0], rows[-1] + 1), whole
            expected = int(rows[-1]) + 1
        yield rows, found
    if in_order:
        yield from gap(expected + unread - filled)


def _follow(rows: Any, expected: int, missing: int) -> bool:
    """Tell whether these row numbers follow the expected one, leaving out no more than are known to be missing.

    More than that are left out where the rows come in another order.
    """
    if not len(rows):
        return True
    if rows.dtype == object or rows[0] < expected or not (rows[1:] > rows[:-1]).all():
        return False
    return bool(rows[-1] + 1 - expected - len(rows) <= missing)


@dataclass(frozen=True)
class Measured:
    """Usage and coherence of a model's components, as one pass over data has shown them."""

    samples: int
    usage: Array  # (K,), shares that sum to one
    coherence: Array | None  # (K,); None if the data are not counts, of which a zero says that a feature is not there


def measured(
    model: NMF, source: Source, topics: Sequence[Sequence[int]], show: Callable[[int], Any] = lambda samples: None
) -> Measured:
    """Measure in one pass how much of the data each component carries, and whether its leading features co-occur.

    ``topics`` are the features of each component to look for, ``show`` is told how many samples were read.
    """
    found, sums, samples = Coherence(topics), np.zeros(model.n_components_), 0
    counts = model.implicit == "zero"
    for rows, batch in read_from(source, usual_size(source), None, None, 0):
        X = as_samples(as_floats(batch))
        counts = counts and bool(X.sparse or (np.floor(X.values) == X.values).all())
        if counts:
            found.add(X.matrix)
        full = (X.sum(axis=1) != 0).astype(
            np.float64
        )  # of a blank text nothing is fitted, but for the least h there is
        H = solve_rows(model, rows, X)
        sums += Usage.of(H, model.components_, X.counted(full)).sums
        samples += len(rows)
        show(samples)
    if not samples:
        raise SourceError("there is no sample to measure the topics on.")
    return Measured(samples, Usage(sums).shares, found.values() if counts else None)


# Partitions of Dask


def is_distributed(X: Any) -> bool:
    """Tell whether X lies, or is read, in partitions."""
    return isinstance(X, Partitions) or is_dask(X)


def partitions_of(X: Any, sample_weight: Any, weights: Any, implicit: str) -> Partitions:
    """Return X as partitions, with the weights that are given."""
    if not isinstance(X, Partitions):
        return DaskData(X, sample_weight, weights, implicit)
    if sample_weight is not None or weights is not None:
        raise ValueError("weights are given with dask arrays; a table in files brings its own with ?weight=COLUMN.")
    return X


class Sent:
    """A model as it is sent to workers: without callbacks, which may not be sent anywhere."""

    def __init__(self, model: Any) -> None:
        self.model = copy.copy(model)
        self.model.callbacks, self.model.verbose = None, 0

    def coefficients(self, raw: Raw) -> Array:
        """Return the precise coefficients of a partition; under ``on_error="skip"`` NaN for bad rows."""
        X = as_floats(native(raw.batch))
        on_bad = SkippedLog() if self.model.on_error == "skip" else None
        return solve_each(raw.rows, X, on_bad, partial(solve_rows, self.model), self.model.n_components_)

    def proportions(self, raw: Raw) -> Array:
        """Return the share of every component in the fits of a partition."""
        return proportions(self.coefficients(raw), self.model.components_)

    def fit(self, raw: Raw) -> Array:
        """Return H @ W of a partition of coefficients."""
        H = raw.batch.matrix if isinstance(raw.batch, Samples) else raw.batch
        return np.asarray(self.model.inverse_transform(H))

    def loss(self, raw: Raw) -> tuple[float, float]:
        """Return the mean loss of a partition, and the weight that it has among others."""
        if not raw.batch.shape[0]:
            return 0.0, 0.0
        X = as_samples(as_floats(native(raw.batch)), self.model.missing, self.model.implicit)
        require_valid_entries(X, raw.rows, self.model._fitted.features.names)
        return self.model._inference().loss(X), float(X.weight)


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
    """Return a dask array of what the function makes of samples or, if X holds those, of ``coefficients``."""
    from onmf.distributed.mapping import lazy_array  # Dask is there, but not for everybody

    learnt = Features(model.n_components_) if coefficients else model._fitted.features
    partitions = _alike(X, None, weights, model.implicit, learnt)
    dtype = model.components_.dtype if partitions.dtype is None else partitions.dtype
    return lazy_array(partitions, function, width, dtype, what, model.on_error == "skip")


def loss_of_partitions(model: NMF, X: Any, sample_weight: Any, weights: Any) -> float:
    """Return the mean loss over all partitions, by their weights."""
    import dask

    from onmf.distributed.mapping import tasks_of

    partitions = _alike(X, sample_weight, weights, model.implicit, model._fitted.features)
    found = dask.compute(*tasks_of(partitions, Sent(model).loss, "loss"))
    total = math.fsum(weight for _, weight in found)
    if not total:
        raise ValueError("there are no samples to look at: all partitions are empty.")
    return math.fsum(value * (weight / total) for value, weight in found)


def _alike(X: Any, sample_weight: Any, weights: Any, implicit: str, learnt: Features) -> Partitions:
    """Return X as partitions whose features are those that were learnt."""
    partitions = partitions_of(X, sample_weight, weights, implicit)
    require_same_features(Features.of(partitions.n_features, partitions.feature_names), learnt)
    return partitions
