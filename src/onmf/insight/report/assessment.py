"""An assessment of how well a model fits data, made in one pass and constant memory."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, row_sums
from onmf.coefficients.problem import losses
from onmf.data import Source, SourceError
from onmf.data.base import read_from
from onmf.divergences.base import TINY
from onmf.learner.learned import Usage
from onmf.learner.update import as_floats
from onmf.model.validation import good_rows, require_finite_values
from onmf.samples import Samples, as_samples, stacked

BLOCK, BLOCK_OF_A_PIPE = 1024, 100  # samples read at a time
MOST_ENTRIES = 10_000_000  # of a block
ENTRIES_AT_ONCE = 2**18  # of samples that are made dense
ROWS, MOST_KEPT = 300, 4_000_000  # samples, and entries, that residuals are shown of
LOSSES = 20_000
SHOWN = 4  # best and worst samples
SMALL = 0.1  # of the mean size: what is smaller is neither a good nor a bad example
MOST_STRETCHES = 256  # of a stream; an even number
LEAST_SAMPLES = 10  # fewer do not make a component to compare with
NEVER_SEEN = 1e-6  # of the mean: what is expected of a feature that no other sample has
FACTORS = (0.6, 0.8, 1.0, 1.25, 1.6)  # tried, times the size at which the fit has the sample's mass, or its ratios


@dataclass(frozen=True)
class Example:
    """A sample and its fit."""

    name: str
    x: Array  # NaN where an entry is missing
    fit: Array
    h: Array
    relative: float  # its loss, in units of that of a fit twice too large


def assess(model: Any, source: Source, name: str, show: Callable[[int, int | None], None] | None = None) -> Assessment:
    """Read the source once; ``show`` is called with the samples read so far and with their total number."""
    found = Assessment(model, name)
    size = int(np.clip(MOST_ENTRIES // found.W.shape[1], 1, BLOCK if source.rewinds else BLOCK_OF_A_PIPE))
    for rows, batch in read_from(source, size, None, lambda error: found.skip(error, error.rows), 0):
        found.add(rows, batch)
        if show is not None:
            show(found.samples, source.n_samples)
    found.finish()
    return found


class Assessment:
    """Measures of how well a model fits data, collected block by block."""

    X: Any  # samples drawn at random, and their coefficients
    H: Array
    losses: Array  # of more samples drawn at random
    relative: Array  # their losses in units of that of a fit twice too large
    single: float  # the loss of one component, learnt from the other samples, on the samples X
    gain: float  # the share of it that the model takes away; NaN where there is none

    def __init__(self, model: Any, name: str) -> None:
        rng = np.random.default_rng(0)
        self.model, self.name, self.W = model, name, model.components_
        K, F = self.W.shape
        self.samples = self.unsolved = 0
        self.bad, self.first_bad = 0, ""  # samples that cannot be read or used, and why the first cannot
        self.best: list[Example] = []
        self.worst: list[Example] = []
        self.stretches = Stretches(K)  # contributions of the components along the stream
        self._weight = self._loss = self._size = 0.0
        self._usage = np.zeros(K)
        self._rows = RandomSample(int(np.clip(MOST_KEPT // F, 20, ROWS)), rng)
        self._losses = RandomSample(LOSSES, rng)
        self._single = SingleComponent(model, F)

    @property
    def loss(self) -> float:
        """Return the mean loss of a sample."""
        return self._loss / (self._weight or 1.0)

    @property
    def mean(self) -> float:
        """Return the mean of all entries that are not missing."""
        return self._single.mean

    @property
    def shares(self) -> Array:
        """Return every component's share of a sample's fit, on average."""
        return Usage(self._usage).shares

    def skip(self, error: Exception, rows: int) -> None:
        """Count rows that cannot be read or used."""
        self.bad += rows
        self.first_bad = self.first_bad or str(error)

    def add(self, rows: Any, batch: Any) -> None:
        """Assess a block of samples."""
        X = as_samples(as_floats(batch), self.model.missing, self.model.implicit)
        kept, errors = good_rows(X, rows)
        for error in errors:
            self.skip(error, 1)
        if not kept:
            return
        if len(kept) < len(rows):
            rows, X = rows[kept], X[kept]
        H, found, sizes, unsolved = solved(self.model, X)
        weights = X.times_sample_weight(np.ones(len(rows)))
        self.samples += len(rows)
        self.unsolved += unsolved
        self._weight += float(weights.sum())
        self._loss += float(weights @ found)
        self._size += float(sizes.sum())
        self._single.add(X)
        self._usage += Usage.of(H, self.W, weights).sums
        self.stretches.add(H * self.W.sum(axis=1, dtype=np.float64))
        relative = found / np.where(sizes > 0, sizes, np.inf)
        telling = np.flatnonzero(sizes >= SMALL * self._size / self.samples)

        def first(keys: Array) -> list[Example]:
            """Return the samples with the smallest keys; of equal ones, the first."""
            chosen = telling[np.argsort(keys[telling], kind="stable")[:SHOWN]]
            return [self._example(rows[i], X[[i]], H[i], float(relative[i])) for i in chosen]

        self.best = heapq.nsmallest(SHOWN, [*self.best, *first(relative)], key=lambda each: each.relative)
        self.worst = heapq.nlargest(SHOWN, [*self.worst, *first(-relative)], key=lambda each: each.relative)
        self._rows.add(len(rows), lambda i: (X[[i]], H[i], found[i]))
        self._losses.add(len(rows), lambda i: (found[i], relative[i]))

    def _example(self, row: Any, x: Samples, h: Array, relative: float) -> Example:
        whole = x.densified()
        values = np.asarray(whole.matrix, dtype=np.float64).ravel()
        if whole.masked:
            values = np.where(whole.entry_weights[0] > 0, values, np.nan)
        return Example(row if isinstance(row, str) else f"row {row}", values, h @ self.W, h, relative)

    def finish(self) -> None:
        """Compare the model with a single component, once all samples are there."""
        if not self.samples:
            raise SourceError(f"{self.name} has no sample that could be used. {self.first_bad}".rstrip())
        if len(self.worst) == len(self.best) == self.samples:  # so few that all are both
            self.best = []
        parts, H, kept_losses = zip(*self._rows.kept, strict=True)
        self.X, self.H = stacked(list(parts)), np.stack(H)
        self.losses, self.relative = np.asarray(self._losses.kept, dtype=np.float64).T
        self.single = self._single.loss(self.X)
        self.gain = 1 - float(np.mean(kept_losses)) / self.single if self.single > 0 else np.nan


def solved(model: Any, X: Samples) -> tuple[Array, Array, Array, int]:
    """Return coefficients, losses d(x || hW), sizes d(x || 2x), and how many coefficients are not precise.

    All are in the data's units. The size of a sample is the loss of a fit twice too large.
    """
    fitted, n = model._fitted, X.shape[0]
    H, found, sizes = np.empty((n, model.n_components_)), np.empty(n), np.empty(n)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for rows, h, problem in model._inference().solved(X):
            with threads.own_threads():
                found[rows] = problem.loss(h, problem.fit(h))
            H[rows], sizes[rows] = h, problem.scale
    unit = fitted.divergence.loss_unit(fitted.units.scale)
    require_finite_values(found * unit, X, fitted.units.mean)
    unsolved = sum(getattr(each.message, "unsolved", 0) for each in said)
    return H * fitted.coefficient_unit, found * unit, sizes * unit, unsolved


class RandomSample:
    """A random choice of ``size`` items of a stream, each with the same chance."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self.rng, self.seen = size, rng, 0
        self.kept: list[Any] = []

    def add(self, n: int, item: Callable[[int], Any]) -> None:
        """Offer the next n items to the sample; ``item(i)`` returns one that is kept."""
        numbers = np.arange(self.seen, self.seen + n)
        places = np.where(numbers < self.size, numbers, self.rng.integers(0, numbers + 1))
        self.seen += n
        for i in np.flatnonzero(places < self.size).tolist():
            self.kept[places[i] : places[i] + 1] = [item(i)]


class Stretches:
    """Sums of rows over equally long stretches of a stream; when these become too many, pairs of them are joined."""

    def __init__(self, width: int) -> None:
        self.sums = np.zeros((MOST_STRETCHES, width))
        self.length, self.seen = 1, 0

    def add(self, rows: Array) -> None:
        """Add the next rows of the stream."""
        while self.seen + len(rows) > MOST_STRETCHES * self.length:
            self.sums[: MOST_STRETCHES // 2] = self.sums[0::2] + self.sums[1::2]
            self.sums[MOST_STRETCHES // 2 :] = 0
            self.length *= 2
        np.add.at(self.sums, (self.seen + np.arange(len(rows))) // self.length, rows)
        self.seen += len(rows)

    @property
    def means(self) -> Array:
        """Return the mean row of every stretch, without a last stretch that has hardly begun."""
        whole, rest = divmod(self.seen, self.length)
        used = whole + (whole == 0 or 2 * rest >= self.length)
        counts = np.minimum(self.seen - self.length * np.arange(used), self.length)
        return self.sums[:used] / np.maximum(counts, 1)[:, None]


class SingleComponent:
    """The single component that a model is compared with: sums of the entries of every feature.

    Where a divergence sees ratios, samples are divided by their means first, so that loud and quiet ones count alike.
    """

    def __init__(self, model: Any, F: int) -> None:
        self.divergence, self.units = model.divergence_, model._fitted.units
        self.sums, self.counts = np.zeros(F), np.zeros(F)
        self.samples, self.total = 0, 0.0

    def add(self, X: Samples) -> None:
        """Add samples."""
        self.samples += X.shape[0]
        self.total += float(X.sum(axis=1).sum(dtype=np.float64))
        self.counts += X.weight_sums(axis=0)
        if self.divergence.sees_ratios:
            self.sums += np.asarray(X.products.T @ (1 / self._sizes(X)[:, 0]), dtype=np.float64).ravel()
        else:
            self.sums += np.asarray(X.products.sum(axis=0, dtype=np.float64)).ravel()

    @property
    def mean(self) -> float:
        """Return the mean of all entries that are not missing."""
        return float(self.total / max(float(self.counts.sum()), 1.0))

    def _sizes(self, X: Any) -> Array:
        """Return the divisors of samples: (n, 1)."""
        if not self.divergence.sees_ratios:
            return np.ones((X.shape[0], 1))
        means = np.asarray(X.mean(axis=1), dtype=np.float64).reshape(-1, 1)
        return np.where(means > 0, means, 1.0)

    def loss(self, X: Any) -> float:
        """Return the mean loss of samples X, in the data's units; NaN where there are too few to compare with.

        Each is fitted by a multiple of the mean of the others: a mean that it is part of would know its rare features.
        """
        if self.samples < LEAST_SAMPLES or not self.sums.any():
            return np.nan
        blocks = threads.blocks(len(X), max(1, ENTRIES_AT_ONCE // X.shape[1]))
        return float(np.concatenate([self._losses(X[rows]) for rows in blocks]).mean())

    def _losses(self, X: Samples) -> Array:
        """Return the losses of some samples: at the stored entries of sparse ones, unless zeros need more than sums."""
        divergence, scale = self.divergence.in_units(self.units.scale), self.units.scale
        at_stored = divergence.separable if X.masked else divergence.slope_at_zero is not None
        V = self.units.inside(X if at_stored else X.densified(), self.divergence)[0].astype(np.float64)
        weight = V.times_entry_weight(np.ones_like(V.values))
        sums, counts = (each[V.matrix.indices] if V.sparse else each for each in (self.sums, self.counts))
        own = weight * V.values * scale / V.spread(self._sizes(X)[:, 0])
        others = np.maximum(sums - own, 0) / np.maximum(counts - weight, 1) / scale
        if V.sparse:
            rest = self.sums / np.maximum(self.counts - V.omits_zeros, 1) / scale  # where nothing is stored
            total = rest.sum() + row_sums(V.like(others - rest[V.matrix.indices]))
        else:
            total = others.sum(axis=1)
        least = NEVER_SEEN * total / V.shape[1] + TINY
        others += V.spread(least)
        mass = total + V.shape[1] * least if V.omits_zeros else V.per_sample(others)
        size = V.sum(axis=1) / np.maximum(mass, TINY)
        if divergence.sees_ratios:
            size = V.per_sample(V.values / others) / V.weight_sums(axis=1)
        slope = divergence.slope_at_zero or 0.0
        of_zeros = slope * size * (mass - V.per_sample(others)) if V.omits_zeros else np.zeros(len(V))
        fits = V.spread(size) * others
        found = [losses(divergence, V, np.maximum(f * fits, TINY)) + f * of_zeros for f in FACTORS]
        return np.asarray(np.min(found, axis=0) * self.divergence.loss_unit(scale))
