"""One pass over data: how a model fits them. What is kept does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.known import Known, apart, as_known, stacked
from onmf.data import Source, SourceError
from onmf.data.base import read_from
from onmf.insight.report.baseline import Columns, single_component_loss
from onmf.insight.report.running import Bins, Extremes, Reservoir
from onmf.insight.report.subject import Solved, Subject
from onmf.learner.update import as_floats
from onmf.learner.usage import Usage
from onmf.model.validation import good_rows

BLOCK, BLOCK_OF_A_PIPE = 1024, 100  # samples read at a time
MOST_ENTRIES = 10_000_000  # of a block
ROWS, MOST_KEPT = 300, 4_000_000  # samples, and entries, that residuals are shown of
LOSSES = 20_000
SHOWN = 4  # best and worst samples
SMALL = 0.1  # of the mean size: what is smaller is neither a good nor a bad example


@dataclass(frozen=True)
class Example:
    """A sample and its fit."""

    name: str
    x: Array
    known: Array | None  # which entries are; None: all
    fit: Array
    h: Array
    relative: float  # its loss, in units of that of a fit twice too large


@dataclass
class Assessment:
    """What was found."""

    name: str
    samples: int = 0
    weight: float = 0.0
    loss: float = 0.0  # the mean
    single: float = np.nan  # that of one component, learnt from the others, of the samples that were kept
    kept_loss: float = np.nan  # the model's own, of the same samples
    mean: float = 0.0  # of the entries
    losses: Array = field(default_factory=lambda: np.empty(0))  # of samples drawn at random
    relative: Array = field(default_factory=lambda: np.empty(0))
    shares: Array = field(default_factory=lambda: np.empty(0))  # of the components in the fits
    bins: Bins = field(default_factory=lambda: Bins(0))  # contributions of the components along the stream
    best: list[Example] = field(default_factory=list)
    worst: list[Example] = field(default_factory=list)
    X: Any = None  # samples drawn at random, and their coefficients
    H: Array = field(default_factory=lambda: np.empty((0, 0)))
    unsolved: int = 0
    bad: int = 0  # samples that cannot be read or used
    first_bad: str = ""

    @property
    def gain(self) -> float:
        """The share of a single component's loss that the model takes away; NaN where there is none."""
        return 1 - self.kept_loss / self.single if self.single > 0 else np.nan


def assess(
    subject: Subject, source: Source, name: str, show: Callable[[int, int | None], None] | None = None
) -> Assessment:
    """Read the source once; ``show`` is told how many samples were read, and of how many."""
    size = int(np.clip(MOST_ENTRIES // subject.F, 1, BLOCK if source.rewinds else BLOCK_OF_A_PIPE))
    running = _Running(subject, name)
    for rows, batch in read_from(source, size, None, running.refuse, 0):
        running.add(rows, *apart(batch))
        if show is not None:
            show(running.found.samples, source.n_samples)
    return running.finished()


class _Running:
    """A pass that has come so far."""

    def __init__(self, subject: Subject, name: str) -> None:
        rng = np.random.default_rng(0)
        self.subject, self.found = subject, Assessment(name, bins=Bins(subject.K))
        self.rows = Reservoir(int(np.clip(MOST_KEPT // subject.F, 20, ROWS)), rng)
        self.losses = Reservoir(LOSSES, rng)
        self.best, self.worst = Extremes(SHOWN), Extremes(SHOWN)
        self.size, self.columns = 0.0, Columns(subject.F, subject.divergence.sees_ratios)
        self.usage = np.zeros(subject.K)

    def refuse(self, error: SourceError) -> None:
        self._bad(error, error.rows)

    def _bad(self, error: Exception, rows: int) -> None:
        self.found.bad += rows
        self.found.first_bad = self.found.first_bad or str(error)

    def add(self, rows: Any, batch: Any, weights: Array | None) -> None:
        X = as_known(as_floats(batch), self.subject.missing, self.subject.implicit)
        kept, errors = good_rows(X, rows)
        for error in errors:
            self._bad(error, 1)
        if not kept:
            return
        if len(kept) < len(rows):
            rows, X, weights = rows[kept], X[kept], None if weights is None else weights[kept]
        solved, found = self.subject.solve(X), self.found
        weights = np.ones(len(rows)) if weights is None else weights
        found.samples += len(rows)
        found.weight += float(weights.sum())
        found.loss += float(weights @ solved.losses)
        found.unsolved += solved.unsolved
        self.columns.add(X)
        contributions = solved.H * self.subject.mass
        self.usage += Usage.of(solved.H, self.subject.W, weights).sums
        found.bins.add(contributions)
        relative = solved.losses / np.where(solved.sizes > 0, solved.sizes, np.inf)
        self._extremes(rows, X, solved, relative)
        for i, place in self.rows.places(len(rows)):
            self.rows.put(place, (X[[i]], solved.H[i], solved.losses[i]))
        for i, place in self.losses.places(len(rows)):
            self.losses.put(place, (solved.losses[i], relative[i]))

    def _extremes(self, rows: Any, X: Any, solved: Solved, relative: Array) -> None:
        self.size += float(solved.sizes.sum())
        telling = solved.sizes >= SMALL * self.size / self.found.samples
        for i in np.flatnonzero(telling):
            for extremes, sign in ((self.worst, 1.0), (self.best, -1.0)):
                if extremes.wants(sign * relative[i]):
                    extremes.add(sign * relative[i], self._example(rows[i], X[[i]], solved.H[i], relative[i]))

    def _example(self, row: Any, x: Any, h: Array, relative: float) -> Example:
        known = None
        if isinstance(x, Known):
            dense = x.densified()
            x, known = dense.X, dense.present[0] > 0
        x = np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float64).ravel()
        name = str(row) if isinstance(row, str) else f"row {row}"
        return Example(name, x, known, h @ self.subject.W, h, float(relative))

    def finished(self) -> Assessment:
        found, subject = self.found, self.subject
        if not found.samples:
            raise SourceError(f"{found.name} has no sample that could be used. {found.first_bad}".rstrip())
        found.loss /= found.weight or 1.0
        found.mean = self.columns.mean
        found.shares = Usage(self.usage).shares
        found.losses, found.relative = np.asarray(self.losses.kept, dtype=np.float64).T
        found.best, found.worst = self.best.items, self.worst.items
        if len(self.worst.heap) == len(self.best.heap) == found.samples:  # so few that all are both
            found.best = []
        parts, H, losses = zip(*self.rows.kept, strict=True)
        found.X, found.H, found.kept_loss = stacked(list(parts)), np.stack(H), float(np.mean(losses))
        found.single = single_component_loss(subject, found.X, self.columns)
        return found
