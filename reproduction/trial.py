"""One contestant of an experiment: its run, and its dictionaries judged by two measures.

- *objective*: the paper's. For online methods the empirical loss 1/t sum_i d(v_i || h_i W_t) over the samples so far,
  with the coefficients found when each sample was seen, which are kept on disk; for Batch its own loss.
- *train*: the mean loss, at the best coefficients, of samples that were learnt from. It does not depend on how a method
  finds its coefficients, and so compares them all. *held_out*: that of other samples, for the final dictionary.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from onmf import divergences
from onmf.data import Numbered, OnBad, Rows, Source
from reproduction.arrays import Array, Counts, dense
from reproduction.contest import CONTESTANTS, ONLINE, Batch, Mark, Task, timed_run, warm_up
from reproduction.judge import Scorer

KEPT = 2000  # samples, the last ones, whose coefficients are kept for pictures of their fits
TIMED_ITERATIONS = 10
START = 3  # key of the random numbers of initial dictionaries
HUBER_SHARE = 0.1  # Huber's delta, of the data's mean: the paper gives none

Step = Callable[[float], None]
Outcome = tuple[list[tuple[Mark, Array]], Array, dict[str, Any]]  # marks with dictionaries, coefficients, facts


def uniform_start(K: int, F: int, seed: int) -> Array:
    """Draw a random dictionary with entries in (0, 1]."""
    return 1.0 - np.random.default_rng([seed, START]).random((K, F))


def huber(mean: float) -> str:
    """Name Huber's loss for data of this mean."""
    return f"huber:{HUBER_SHARE * mean:.4g}"


@dataclass(frozen=True)
class Result:
    """What a contestant found: facts that fit into JSON, its dictionary, and the coefficients of its last samples."""

    facts: dict[str, Any]
    W: Array
    H: Array


class InOrder(Source):
    """Samples that are made when they are read, in one order, the same in every pass; ``take`` makes them."""

    seeks = True

    @abstractmethod
    def take(self, places: Counts) -> Any:
        """Make the samples at consecutive places."""

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        n = self.n_samples or 0
        for start in range(first, n, size):
            places = np.arange(start, min(start + size, n))
            yield places, self.take(places)


class Copies(InOrder):
    """Rows of a matrix in a given order, in which each occurs equally often: the copies are never made."""

    def __init__(self, X: Any, order: Counts) -> None:
        self.X, self.order = X, order
        self.n_samples, self.n_features = len(order), X.shape[1]
        self.rows, self.place = np.unique(order, return_inverse=True)  # the distinct rows; which one each sample is

    def take(self, places: Counts) -> Any:
        return self.X[self.order[places]]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The samples that contestants learn from, and who judges their dictionaries on these and on others."""

    source: Source
    divergence: str
    K: int
    train: Scorer
    held_out: Scorer


@dataclass(frozen=True)
class Trial:
    """A contestant that takes part in a benchmark, starting from a uniformly random dictionary."""

    benchmark: Benchmark
    contestant: str
    start: int  # the seed of the dictionary
    passes: int = 1  # of an online contestant
    variant: Mapping[str, Any] = field(default_factory=dict)  # in place of its own settings

    @property
    def task(self) -> Task:
        """Return the task, which is the same for all contestants."""
        W0 = uniform_start(self.benchmark.K, self.benchmark.source.n_features, self.start)
        return Task(self.benchmark.source, self.benchmark.divergence, self.benchmark.K, W0, self.start, threads=1)

    def run(self, scratch: Path, step: Step = lambda share: None) -> Result:
        """Let the contestant learn, and judge it; ``step`` is called with the share that is done."""
        # On one thread, so that processor time tells how long it took, whatever else the machine does.
        with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
            # Limits on iterations and steps too long for the data are part of what is studied.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warm_up(CONTESTANTS[self.contestant], self.task, self.variant, scratch)
            marks, H, facts = (self._batch if self.contestant == "batch" else self._online)(scratch, step)
        points = []
        for mark, W in marks:
            train = self.benchmark.train.best(W)
            losses = {"objective": mark.loss, "train": train.loss, "psnr": train.psnr}
            points.append({"samples": mark.samples, "seconds": mark.seconds, **losses})
        places = [max(0, len(H) - KEPT), len(H)]  # of the samples whose coefficients are kept
        W = marks[-1][1]
        facts = {"held_out": self.benchmark.held_out.best(W).loss, "places": places} | facts
        facts = {"start": self.start, "points": points, "seconds": points[-1]["seconds"]} | facts
        return Result(facts, W, H[slice(*places)])

    def _online(self, scratch: Path, step: Step) -> Outcome:
        contestant = ONLINE[self.contestant](self.task, self.variant)
        n = self.passes * self.task.n
        coefficients = np.lib.format.open_memmap(scratch / "H.npy", "w+", dtype=np.float64, shape=(n, self.benchmark.K))

        def mass(W: Array) -> Any:
            return W.sum(axis=1) if contestant.changes_units else np.ones(len(W))

        def look(samples: int, W: Array, H: Array | None) -> None:
            if H is not None:
                coefficients[samples - len(H) : samples] = H * mass(W)
            step(samples / n)

        marks = timed_run(contestant, scratch, self.passes, look=look)
        found = [(mark.samples, mark.W / mass(mark.W)[:, None]) for mark in marks]
        objectives = empirical_losses(self.task, self.passes, coefficients, found)
        judged = [(replace(m, loss=loss), W) for m, loss, (_, W) in zip(marks, objectives, found, strict=True)]
        return judged, np.asarray(coefficients), {"n": n} | contestant.notes()

    def _batch(self, scratch: Path, step: Step) -> Outcome:
        """Let Batch learn from one copy of each sample, and time an iteration on all copies.

        Equal copies change neither the mean loss nor an update, only the cost.
        """
        copies = self.benchmark.source if isinstance(self.benchmark.source, Copies) else None
        one = self.task if copies is None else replace(self.task, source=Rows(copies.X[copies.rows]))
        contestant = Batch(one, self.variant)
        n = contestant.X.shape[0]
        marks = timed_run(
            contestant, scratch, look=lambda samples, W, H: step(samples / (contestant.most_iterations * n))
        )
        H, facts = contestant.model.coefficients_, {"n": n} | contestant.notes()
        if copies is not None:
            timed = Batch(self.task, {"max_iter": TIMED_ITERATIONS, "tol": 0.0})
            first, *_, last = timed_run(timed, scratch / "timed")
            each = (last.seconds - first.seconds) / TIMED_ITERATIONS * self.task.n / timed.X.shape[0]
            marks = [replace(mark, seconds=mark.samples / n * each) for mark in marks]
            H, facts = H[copies.place], facts | {"n": timed.X.shape[0], "seconds of an iteration": each}
        return [(mark, mark.W) for mark in marks], H, facts


def empirical_losses(task: Task, passes: int, H: Array, dictionaries: Sequence[tuple[int, Array]]) -> list[float]:
    """Return 1/t sum over the first t samples of d(v_i || h_i W) for every (t, W), in one pass over the samples."""
    divergence, sums, first = divergences.get(task.divergence), np.zeros(len(dictionaries)), 0
    for seen, batch in task.batches(passes):
        V, h = dense(batch), np.asarray(H[first:seen])
        for place, (t, W) in enumerate(dictionaries):
            if t > first:
                sums[place] += float(divergence.value(V, np.maximum(h @ W, np.finfo(float).tiny))[: t - first].sum())
        first = seen
    return [float(total) / t for total, (t, _) in zip(sums, dictionaries, strict=True)]
