"""One pass over data: how a model fits them. Memory does not grow with their number."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.problem import losses
from onmf.data import Source, SourceError
from onmf.data.base import read_from
from onmf.divergences.base import TINY
from onmf.insight.report.subject import Solved, Subject
from onmf.learner.learned import Usage
from onmf.learner.update import as_floats
from onmf.model.validation import good_rows
from onmf.samples import Samples, as_samples, stacked

BLOCK, BLOCK_OF_A_PIPE = 1024, 100  # samples read at a time
MOST_ENTRIES = 10_000_000  # of a block
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
    x: Array
    known: Array | None  # which entries are; None: all
    fit: Array
    h: Array
    relative: float  # its loss, in units of that of a fit twice too large


@dataclass(frozen=True, eq=False)
class Assessment:
    """How a model fits data."""

    name: str
    samples: int
    loss: float  # the mean
    mean: float  # of the entries
    shares: Array  # of the components in the fits
    stretches: Stretches  # contributions of the components along the stream
    losses: Array  # of samples drawn at random
    relative: Array
    worst: list[Example]
    best: list[Example]
    X: Any  # samples drawn at random, and their coefficients
    H: Array
    gain: float  # the share of a single component's loss that the model takes away; NaN where there is none
    single: float  # the loss of one component, learnt from the others, on the samples X
    unsolved: int
    bad: int  # samples that cannot be read or used
    first_bad: str


def assess(
    subject: Subject, source: Source, name: str, show: Callable[[int, int | None], None] | None = None
) -> Assessment:
    """Read the source once; ``show`` is told how many samples were read, and of how many."""
    size = int(np.clip(MOST_ENTRIES // subject.F, 1, BLOCK if source.rewinds else BLOCK_OF_A_PIPE))
    running = _Pass(subject, name)
    for rows, batch in read_from(source, size, None, lambda error: running.skip(error, error.rows), 0):
        running.add(rows, batch)
        if show is not None:
            show(running.samples, source.n_samples)
    return running.finished()


class _Pass:
    """Collects what an assessment needs, block by block."""

    def __init__(self, subject: Subject, name: str) -> None:
        rng = np.random.default_rng(0)
        self.subject, self.name = subject, name
        self.samples = self.unsolved = self.bad = 0
        self.weight = self.loss = self.size = 0.0
        self.first_bad = ""
        self.rows = RandomSample(int(np.clip(MOST_KEPT // subject.F, 20, ROWS)), rng)
        self.losses = RandomSample(LOSSES, rng)
        self.best: list[Example] = []
        self.worst: list[Example] = []
        self.features, self.stretches = _Features(subject), Stretches(subject.K)
        self.usage = np.zeros(subject.K)

    def skip(self, error: Exception, rows: int) -> None:
        self.bad += rows
        self.first_bad = self.first_bad or str(error)

    def add(self, rows: Any, batch: Any) -> None:
        X = as_samples(as_floats(batch), self.subject.missing, self.subject.implicit)
        kept, errors = good_rows(X, rows)
        for error in errors:
            self.skip(error, 1)
        if not kept:
            return
        if len(kept) < len(rows):
            rows, X = rows[kept], X[kept]
        solved = self.subject.solve(X)
        weights = X.counted(np.ones(len(rows)))
        self.samples += len(rows)
        self.weight += float(weights.sum())
        self.loss += float(weights @ solved.losses)
        self.unsolved += solved.unsolved
        self.features.add(X)
        self.usage += Usage.of(solved.H, self.subject.W, weights).sums
        self.stretches.add(solved.H * self.subject.mass)
        relative = solved.losses / np.where(solved.sizes > 0, solved.sizes, np.inf)
        self._add_examples(rows, X, solved, relative)
        self.rows.add(len(rows), lambda i: (X[[i]], solved.H[i], solved.losses[i]))
        self.losses.add(len(rows), lambda i: (solved.losses[i], relative[i]))

    def _add_examples(self, rows: Any, X: Any, solved: Solved, relative: Array) -> None:
        """Keep the best and the worst samples so far; of equal ones, the first."""
        self.size += float(solved.sizes.sum())
        telling = np.flatnonzero(solved.sizes >= SMALL * self.size / self.samples)

        def first(keys: Array) -> list[Example]:
            chosen = telling[np.argsort(keys[telling], kind="stable")[:SHOWN]]
            return [self._example(rows[i], X[[i]], solved.H[i], float(relative[i])) for i in chosen]

        self.best = heapq.nsmallest(SHOWN, [*self.best, *first(relative)], key=lambda each: each.relative)
        self.worst = heapq.nlargest(SHOWN, [*self.worst, *first(-relative)], key=lambda each: each.relative)

    def _example(self, row: Any, x: Any, h: Array, relative: float) -> Example:
        whole = x.densified()
        dense, known = whole.matrix, whole.entry_weights[0] > 0 if whole.masked else None
        name = row if isinstance(row, str) else f"row {row}"
        return Example(name, np.asarray(dense, dtype=np.float64).ravel(), known, h @ self.subject.W, h, relative)

    def finished(self) -> Assessment:
        if not self.samples:
            raise SourceError(f"{self.name} has no sample that could be used. {self.first_bad}".rstrip())
        parts, H, kept_losses = zip(*self.rows.kept, strict=True)
        losses, relative = np.asarray(self.losses.kept, dtype=np.float64).T
        single = self.features.single_component_loss(X := stacked(list(parts)))
        return Assessment(
            name=self.name,
            samples=self.samples,
            loss=self.loss / (self.weight or 1.0),
            mean=self.features.mean,
            shares=Usage(self.usage).shares,
            stretches=self.stretches,
            losses=losses,
            relative=relative,
            worst=self.worst,
            best=[] if len(self.worst) == len(self.best) == self.samples else self.best,  # so few that all are both
            X=X,
            H=np.stack(H),
            gain=1 - float(np.mean(kept_losses)) / single if single > 0 else np.nan,
            single=single,
            unsolved=self.unsolved,
            bad=self.bad,
            first_bad=self.first_bad,
        )


class RandomSample:
    """A random choice of ``size`` items of a stream, each with the same chance."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self.rng, self.seen = size, rng, 0
        self.kept: list[Any] = []

    def add(self, n: int, item: Callable[[int], Any]) -> None:
        """Let the next n items take their chance; ``item(i)`` is asked for those that are kept."""
        numbers = np.arange(self.seen, self.seen + n)
        places = np.where(numbers < self.size, numbers, self.rng.integers(0, numbers + 1))
        self.seen += n
        for i in np.flatnonzero(places < self.size).tolist():
            self.kept[places[i] : places[i] + 1] = [item(i)]


class Stretches:
    """Sums of rows over equally long stretches of a stream; when these become too many, two are made one."""

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


class _Features:
    """Sums of the entries of every feature: the single component that a model is compared with.

    Where a divergence sees ratios, samples are divided by their means first, so that loud and quiet ones count alike.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject, self.alike = subject, subject.divergence.sees_ratios
        self.sums, self.known = np.zeros(subject.F), np.zeros(subject.F)
        self.samples, self.total = 0, 0.0

    def add(self, X: Samples) -> None:
        """Add samples."""
        self.samples += X.shape[0]
        self.total += float(X.sum(axis=1).sum(dtype=np.float64))
        self.known += X.weight_sums(axis=0)
        entries = X.products
        if self.alike:
            self.sums += np.asarray(entries.T @ (1 / self._sizes(X)[:, 0]), dtype=np.float64).ravel()
        else:
            self.sums += np.asarray(entries.sum(axis=0, dtype=np.float64)).ravel()

    @property
    def mean(self) -> float:
        """Return the mean of all entries that are known."""
        return float(self.total / max(float(self.known.sum()), 1.0))

    def _sizes(self, X: Any) -> Array:
        """Return what samples are divided by: (n, 1)."""
        if not self.alike:
            return np.ones((X.shape[0], 1))
        means = np.asarray(X.mean(axis=1), dtype=np.float64).reshape(-1, 1)
        return np.where(means > 0, means, 1.0)

    def single_component_loss(self, X: Any) -> float:
        """Return the mean loss of samples X, in the data's units; NaN where there are too few to compare with.

        Each is fitted by a multiple of the mean of the others: a mean that it is part of would know its rare features.
        """
        if self.samples < LEAST_SAMPLES or not self.sums.any():
            return np.nan
        divergence, scale = self.subject.divergence, self.subject.units.scale
        V, _ = self.subject.units.inside(X.densified(), divergence)
        V = V.astype(np.float64)
        x, weight = V.matrix, V.entry_weights if V.masked else np.ones((1, 1))
        own = weight * x * scale / self._sizes(X)
        others = np.maximum(self.sums - own, 0) / np.maximum(self.known - weight, 1) / scale
        others += NEVER_SEEN * others.mean(axis=1, keepdims=True) + TINY
        if self.alike:
            size = (weight * x / others).mean(axis=1, keepdims=True) / weight.mean(axis=1, keepdims=True)
        else:
            mass = (weight * others).sum(axis=1, keepdims=True)
            size = (weight * x).sum(axis=1, keepdims=True) / np.maximum(mass, TINY)
        inside = divergence.in_units(scale)
        found = [losses(inside, V, np.maximum(factor * size * others, TINY)) for factor in FACTORS]
        return float(np.min(found, axis=0).mean() * divergence.loss_unit(scale))
