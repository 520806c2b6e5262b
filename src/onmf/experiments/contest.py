"""The contestants of the paper's experiments: its own method (OL), Batch, three earlier online methods, and ours.

All learn from the same samples in the same order and from the same initial dictionary. The clock runs while a method
learns, not while samples are drawn or dictionaries judged. Dictionaries put aside on the way are judged afterwards, by
two measures:

- *objective*: that of the paper. Online, the empirical loss 1/t sum_i d(v_i || h_i W_t) over the samples so far, with
  the coefficients found at their time, which are kept on disk; Batch, its own loss.
- *train*, *held_out*: the mean loss of samples that were learnt from, or not, at the best coefficients. It does not
  depend on how a method finds its coefficients, and compares them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from onmf import divergences
from onmf._support.arrays import Array, Counts
from onmf.estimators.base import Progress
from onmf.estimators.batch import BatchNMF
from onmf.estimators.online import OnlineNMF
from onmf.experiments.folder import Result
from onmf.experiments.judge import Scorer
from onmf.streams import Numbered, OnBad, Source

TITLES = {
    "ol": "OL",
    "ol-short": "OL, a / 100",
    "ol-lef": "OL-Lef",
    "ol-guan": "OL-Guan",
    "ol-wang": "OL-Wang",
    "batch": "Batch",
    "ours": "onmf",
}
EARLIER = {"ol-lef": "lefevre", "ol-guan": "guan", "ol-wang": "wang"}
SERVE = {"ol-lef": "is", "ol-guan": "squared_l2", "ol-wang": "huber"}
CHANGE_UNITS = ("ol-lef", "ours")  # the sizes of their atoms say nothing
READ = 200  # samples at a time
MARKS_PER_DOUBLING = 3
MOST_ITERATIONS = 1000  # of Batch, which stops when its loss falls by less than 1e-5 of itself over ten
MOST_BYTES = 2**30  # of samples that Batch is given
TIMED_ITERATIONS = 10
NEARLY = 0.005  # above Batch's final loss: told beside the time to that loss itself


@dataclass(frozen=True)
class Task:
    """The same for all contestants; N is the number of samples, from which the paper's canonical step follows."""

    source: Source
    divergence: str  # with its parameters, if it has any
    W0: Array
    train: Scorer
    held_out: Scorer
    seed: int

    @property
    def n(self) -> int:
        """N."""
        return int(self.source.n_samples or 0)


class Copies(Source):
    """Some rows of a matrix, each equally often, in a given order: the copies are never made."""

    def __init__(self, X: Any, order: Counts) -> None:
        self.X, self.order = X, order
        self.n_samples, self.n_features = len(order), X.shape[1]
        self.rows, self.place = np.unique(order, return_inverse=True)  # which rows, and which of them every sample is

    @property
    def distinct(self) -> Any:
        """One copy."""
        return self.X[self.rows]

    def batches(self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None) -> Numbered:
        for first in range(0, len(self.order), size):
            rows = self.order[first : first + size]
            yield np.arange(first, first + len(rows)), self.X[rows]


@dataclass(frozen=True)
class Point:
    """Where a contestant stood; losses are means over samples."""

    samples: int
    seconds: float
    objective: float
    train: float
    held_out: float
    psnr: float | None  # of the fits of the training samples, where the clean ones are known


@dataclass(frozen=True)
class _Mark:
    samples: int
    seconds: float
    W: Array
    objective: float = np.nan


def canonical(n: int) -> dict[str, Any]:
    """The paper's tau = 1e-4 N and a = b = 0.2 N, which at its N = 1e5 are 10 and 2e4; no smaller tau than that."""
    return {"tau": max(10, round(1e-4 * n)), "a": 0.2 * n, "b": 0.2 * n}


def steps(n: int) -> str:
    """The same in words."""
    tau, a = (canonical(n)[name] for name in ("tau", "a"))
    return (
        f"tau = {tau}, a = b = {a:g} (the paper: tau = 1e-4 N, a = b = 2e4 at N = 1e5; here a = b = 0.2 N, tau >= 10)"
    )


def compete(
    name: str, task: Task, scratch: Path, step: Callable[[float], None], settings: dict[str, Any] | None = None
) -> Result:
    """Let a contestant learn; ``settings`` override its own."""
    with warnings.catch_warnings():
        # Limits of iterations and steps that are too long for the data are what is studied: the facts tell of them.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if name == "batch":
            return _batch(task, step)
        settings = _settings(name, task.n, settings or {})
        _, first = next(iter(task.source.batches(READ)))
        # Compiled code is loaded before the clock starts.
        OnlineNMF(len(task.W0), divergence=task.divergence, init=task.W0, **settings).fit(first)
        return _online(name, task, scratch, step, settings)


def _settings(name: str, n: int, settings: dict[str, Any]) -> dict[str, Any]:
    if name in ("ol", "ol-short"):
        settings = {"method": "paper", **canonical(n), **settings}
        if name == "ol-short":
            settings["a"] /= 100
    elif name in EARLIER:
        settings = {"method": EARLIER[name], **settings}
    return settings


def _online(name: str, task: Task, scratch: Path, step: Callable[[float], None], settings: dict[str, Any]) -> Result:
    K = len(task.W0)
    H = np.lib.format.open_memmap(scratch / "H.npy", "w+", dtype=np.float64, shape=(task.n, K))
    marks: list[_Mark] = []
    due = 1.0

    def look(progress: Progress) -> None:
        nonlocal due
        if progress.H is not None:
            size = progress.W.sum(axis=1) if name in CHANGE_UNITS else 1.0
            H[progress.samples - len(progress.H) : progress.samples] = progress.H * size
        if progress.samples >= due or progress.samples == task.n:
            marks.append(_Mark(progress.samples, progress.seconds, progress.W.copy()))
            due = max(due, progress.samples) * 2 ** (1 / MARKS_PER_DOUBLING)
        step(progress.samples / task.n)

    size = READ * -(-settings.get("tau", READ) // READ)  # a chunk is never longer than what is read at a time
    options: dict[str, Any] = {"shuffle": False, "init": task.W0, "batch_size": size, "random_state": task.seed}
    model = OnlineNMF(K, divergence=task.divergence, callbacks=[look], **options | settings)
    model.fit(task.source)
    if name in CHANGE_UNITS:
        marks = [replace(mark, W=mark.W / mark.W.sum(axis=1, keepdims=True)) for mark in marks]
    divergence = divergences.get(task.divergence)
    objectives = empirical_losses(divergence, task.source, H, [(mark.samples, mark.W) for mark in marks])
    points = [_judged(replace(mark, objective=o), task) for mark, o in zip(marks, objectives, strict=True)]
    facts = {"points": points, "seconds": marks[-1].seconds, "n": task.n, "method": model.method_}
    facts["places"] = [task.n - _kept(task.n), task.n]  # of the samples whose coefficients are kept
    return Result(facts, {"W": marks[-1].W, "H": np.asarray(H[-_kept(task.n) :])})


def _kept(n: int) -> int:
    """How many of the last samples' coefficients go on record, for pictures of their fits."""
    return min(n, 2000)


def _batch(task: Task, step: Callable[[float], None]) -> Result:
    """All samples at once, or as many as MOST_BYTES hold.

    Equal copies of samples change neither the mean loss nor an update: Batch on them is Batch on one copy, at their
    cost. So its way is found on one copy, and the time of an iteration is measured on all.
    """
    copies = task.source if isinstance(task.source, Copies) else None
    X = gathered(task.source) if copies is None else copies.distinct
    marks: list[_Mark] = []
    due = 1.0

    def look(progress: Progress) -> None:
        nonlocal due
        if progress.steps >= due or not marks:
            marks.append(_Mark(progress.samples, progress.seconds, progress.W.copy(), progress.loss))
            due = max(due, progress.steps) * 2 ** (1 / MARKS_PER_DOUBLING)
        step(progress.steps / MOST_ITERATIONS)

    settings: dict[str, Any] = {"divergence": task.divergence, "init": task.W0}
    BatchNMF(len(task.W0), **settings, max_iter=1).fit(X[:READ])  # compiled code is loaded
    model = BatchNMF(len(task.W0), **settings, max_iter=MOST_ITERATIONS, tol=1e-5, callbacks=[look]).fit(X)
    last = {name: values[-1] for name, values in model.history_.items()}
    marks = [mark for mark in marks if mark.samples < last["samples"]]
    marks.append(_Mark(int(last["samples"]), float(last["seconds"]), model.components_, float(last["loss"])))
    facts: dict[str, Any] = {"n": X.shape[0], "iterations": int(model.n_iter_), "converged": bool(model.converged_)}
    H = model.coefficients_
    if copies is not None:
        each, n = _seconds_per_iteration(task, settings)
        marks = [replace(mark, seconds=mark.samples / X.shape[0] * each) for mark in marks]
        facts |= {"n": n, "seconds of an iteration": each}
        H = H[copies.place]
    facts |= {"points": [_judged(mark, task) for mark in marks], "seconds": marks[-1].seconds}
    facts["places"] = [len(H) - _kept(len(H)), len(H)]
    return Result(facts, {"W": model.components_, "H": H[-_kept(len(H)) :]})


def _seconds_per_iteration(task: Task, settings: dict[str, Any]) -> tuple[float, int]:
    """On all N samples: measured on as many as MOST_BYTES hold, which are said too."""
    X = gathered(task.source)
    model = BatchNMF(len(task.W0), **settings, max_iter=TIMED_ITERATIONS, tol=0.0).fit(X)
    seconds = model.history_["seconds"]
    return float(seconds[-1] - seconds[0]) / TIMED_ITERATIONS * task.n / X.shape[0], int(X.shape[0])


def _judged(mark: _Mark, task: Task) -> dict[str, Any]:
    train, held_out = (scorer.best(mark.W) for scorer in (task.train, task.held_out))
    return asdict(Point(mark.samples, mark.seconds, mark.objective, train.loss, held_out.loss, train.psnr))


def gathered(source: Source) -> Any:
    """The samples of a source in memory, up to MOST_BYTES of them."""
    parts: list[Any] = []
    used = 0
    for _, batch in source.batches(READ):
        used += batch.data.nbytes + batch.indices.nbytes if scipy.sparse.issparse(batch) else batch.nbytes
        if used > MOST_BYTES and parts:
            break
        parts.append(batch)
    return scipy.sparse.vstack(parts, format="csr") if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)


def empirical_losses(
    divergence: divergences.Divergence, source: Source, H: Array, dictionaries: list[tuple[int, Array]]
) -> list[float]:
    """1/t sum over the first t samples of d(v_i || h_i W), for every (t, W), in one pass over the samples."""
    sums = np.zeros(len(dictionaries))
    first = 0
    for _, batch in source.batches(READ):
        V = batch.toarray() if scipy.sparse.issparse(batch) else batch
        h = np.asarray(H[first : first + len(V)])
        for place, (t, W) in enumerate(dictionaries):
            if t > first:
                sums[place] += float(divergence.value(V, np.maximum(h @ W, np.finfo(float).tiny))[: t - first].sum())
        first += len(V)
    return [float(total) / t for total, (t, _) in zip(sums, dictionaries, strict=True)]


def seconds_to(points: list[dict[str, Any]], loss: float) -> float:
    """The first time at which the training loss is at or below ``loss``; infinity if it never is."""
    return next((point["seconds"] for point in points if point["train"] <= loss), np.inf)
