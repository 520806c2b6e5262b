"""A contest: contestants learn the same task against the clock, and their dictionaries are judged when it is over.

The methods are contestants here: the paper's (OL), the earlier ones it is compared with, and our own.

The clock runs while a contestant learns, not while samples are drawn or anything is looked at. It shows processor time
for tasks of one thread, which neighbours and pauses of the machine do not affect, and wall time otherwise. Dictionaries
are written to disk at marks, so that judging disturbs neither the clock nor the memory.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from onmf import BatchNMF, OnlineNMF, Progress, methods
from onmf.data import Rows, Source
from onmf.methods import Auto, Canonical, Choice, Paper
from reproduction import earlier_methods
from reproduction.arrays import Array, stacked

READ = 200  # samples at a time
ORDER = 1  # key of the random numbers that shuffle the samples

Look = Callable[[int, Array, Array | None], None]  # samples learnt from, W, and the coefficients of the last batch


@dataclass(frozen=True)
class Task:
    """All that contestants have in common: the samples, their batches and order, the loss, K and the start."""

    source: Source
    divergence: str  # with its parameters, if it has any
    K: int
    W0: Array | None  # (K, F) with entries in [0, 1]; None: each contestant's own default
    seed: int
    batch_size: int = READ
    shuffled: bool = False  # anew in every pass
    threads: int | None = None  # None: whatever the libraries use

    @property
    def n(self) -> int:
        """Return the number of samples of one pass."""
        return int(self.source.n_samples or 0)

    def batches(self, passes: int = 1, size: Callable[[], int] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield (samples so far, this batch included; batch); no batch spans two passes.

        ``size`` is asked how many samples each batch is to have, if not ``batch_size``, once the one before is learnt.
        """
        rng = np.random.default_rng([self.seed, ORDER]) if self.shuffled else None
        seen = 0
        for _ in range(passes):
            batches = (batch for _, batch in self.source.batches(self.batch_size, rng))
            for batch in batches if size is None else _regrouped(batches, size):
                seen += batch.shape[0]
                yield seen, batch

    def gathered(self, most_bytes: float = np.inf) -> Any:
        """Return the samples of the first pass in their order, in memory: all of them, or the first that fit."""
        parts: list[Any] = []
        used = 0
        for _, batch in self.batches():
            used += batch.nbytes if isinstance(batch, np.ndarray) else batch.data.nbytes + batch.indices.nbytes
            if used > most_bytes and parts:
                break
            parts.append(batch)
        return stacked(parts)

    def head(self, n: int = READ) -> Task:
        """Return this task on the first batch alone, or on its first n samples."""
        _, first = next(self.batches())
        return replace(self, source=Rows(first[:n]), batch_size=min(n, self.batch_size), shuffled=False)


def _regrouped(batches: Iterable[Any], size: Callable[[], int]) -> Iterator[Any]:
    """Yield the rows of the batches in batches of ``size()`` rows, which is asked anew for each."""
    waiting = None
    for batch in batches:
        waiting = batch if waiting is None else stacked([waiting, batch])
        while waiting.shape[0] >= (wanted := size()):
            yield waiting[:wanted]
            waiting = waiting[wanted:]
    if waiting is not None and waiting.shape[0]:
        yield waiting


class Contestant(ABC):
    """A way to learn a dictionary. Preparing is free: ``__init__`` runs off the clock."""

    title: ClassVar[str]
    divergences: ClassVar[tuple[str, ...]] = ()  # those it can minimise, without parameters; empty: all

    def __init__(self, task: Task, variant: Any = None) -> None:
        self.task = task

    @classmethod
    def serves(cls, divergence: str) -> bool:
        """Say whether it can minimise this divergence."""
        return not cls.divergences or divergence.partition(":")[0] in cls.divergences

    @abstractmethod
    def run(self, passes: int, recorder: Recorder) -> None:
        """Learn from scratch, and call ``recorder`` with the dictionary wherever the run could end."""

    def notes(self) -> dict[str, Any]:
        """Return other facts to record after a run."""
        return {}


@dataclass(frozen=True)
class Mark:
    """A dictionary put aside, and where its contestant stood."""

    samples: int
    seconds: float  # by the contest's clock
    wall: float
    passes: int | None  # that ended here
    loss: float  # by the contestant's own account; NaN if it gives none
    file: Path = field(compare=False)

    @property
    def W(self) -> Array:
        """Read the dictionary from disk."""
        return np.asarray(np.load(self.file))


class TimeIsUp(Exception):  # noqa: N818 - no error, but the end of a run
    """Raised in a contestant whose run is over before it has finished."""


@dataclass
class Recorder:
    """The clock of one run; it sets marks a few times per doubling of the samples, and at the given ends."""

    folder: Path
    passes: int
    ends: Mapping[int, int]  # passes by the samples at which they end
    processor: bool  # time the processor, not the wall
    marks_per_doubling: int = 3  # 0: only at the ends
    limit: float = np.inf  # seconds of wall time
    most_stops: float = np.inf
    look: Look = lambda samples, W, H: None  # called at every stop, off the clock

    def __post_init__(self) -> None:
        self.due = 0.0 if self.marks_per_doubling else np.inf
        self.marks: list[Mark] = []
        self.stops = 0
        self.wall = self.spent = 0.0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start()

    def __call__(
        self, samples: int, W: Array, H: Array | None = None, *, loss: float = np.nan, end: bool = False
    ) -> None:
        """Note that the run could be stopped here, with this dictionary; ``end`` says that it ends here."""
        self._stop()
        self.stops += 1
        self.look(samples, W, H)
        ended = self.passes if end else self.ends.get(samples)
        if ended is not None or samples >= self.due:
            if self.marks and self.marks[-1].samples == samples:
                self.marks.pop()
            seconds = self.spent if self.processor else self.wall
            self.marks.append(Mark(samples, seconds, self.wall, ended, loss, self.folder / f"{samples}.npy"))
            np.save(self.marks[-1].file, W)
        if samples >= self.due:
            self.due = max(samples, 1) * 2 ** (1 / self.marks_per_doubling)
        if self.wall >= self.limit or self.stops >= self.most_stops:
            raise TimeIsUp
        self._start()

    def batches(self, task: Task, size: Callable[[], int] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield the task's batches, drawn off the clock."""
        waiting = task.batches(self.passes, size)
        while True:
            self._stop()
            item = next(waiting, None)
            self._start()
            if item is None:
                return
            yield item

    def _start(self) -> None:
        self._since = time.perf_counter(), time.process_time()

    def _stop(self) -> None:
        self.wall += time.perf_counter() - self._since[0]
        self.spent += time.process_time() - self._since[1]


def timed_run(
    contestant: Contestant, folder: Path, passes: int = 1, *, repeats: int = 1, enough: float = np.inf, **options: Any
) -> list[Mark]:
    """Return the marks of a run, at least one; ``options`` go to ``Recorder``.

    A run that took less than ``enough`` seconds is repeated, up to ``repeats`` runs or until they have taken as long
    together. All find the same dictionaries, and the quickest counts: one short run alone is noise.
    """
    options = {"ends": {passes * contestant.task.n: passes}} | options
    runs: list[list[Mark]] = []
    spent = 0.0
    while not runs or (len(runs) < repeats and spent < enough):
        recorder = Recorder(folder, passes, processor=contestant.task.threads == 1, **options)
        with suppress(TimeIsUp):
            contestant.run(passes, recorder)
        runs.append(recorder.marks)
        spent += recorder.wall
    return min(runs, key=lambda marks: marks[-1].seconds)


def warm_up(contestant: type[Contestant], task: Task, variant: Any, folder: Path) -> None:
    """Make a step or two on a few samples, so that compiled code is loaded before the clock starts."""
    few = task.head(max(60, 2 * task.K))
    timed_run(contestant(few, variant), folder / "warm-up", most_stops=2)


MOST_ITERATIONS = 1000  # of Batch, which stops when its loss falls by less than 1e-5 of itself over ten
MOST_BYTES = 2**30  # of samples that Batch is given


def canonical(n: int, least_tau: int = 10) -> Paper:
    """Return the paper's method with tau = 1e-4 N and a = b = 0.2 N, which at its N = 1e5 are 10 and 2e4."""
    return Paper(tau=max(least_tau, round(1e-4 * n)), step=Canonical(a=0.2 * n, b=0.2 * n), solver="paper")


class Online(Contestant):
    """``OnlineNMF`` with its defaults, one ``partial_fit`` per batch; ``variant`` holds parameters that differ."""

    name, title = "ours", "onmf"
    changes_units: ClassVar[bool] = True  # the sizes of its components carry no meaning
    model: OnlineNMF  # of the last run

    def __init__(self, task: Task, variant: Mapping[str, Any] | None = None) -> None:
        self.settings = OnlineNMF(task.K, method=self.method(task.n), **_common(task)).set_params(**variant or {})
        method = methods.get(self.settings.method)
        usual, tau = (getattr(each, "tau", None) for each in (type(method)(), method))
        tau = 1 if tau in (None, usual) else tau
        chunks = -(-tau // task.batch_size)  # a chunk that was asked for is never longer than a batch
        super().__init__(replace(task, batch_size=chunks * task.batch_size))

    def method(self, n: int) -> Choice:
        """Return the method for passes of n samples."""
        return Auto()

    def run(self, passes: int, recorder: Recorder) -> None:
        reported: dict[str, Progress] = {}
        look = [lambda progress: reported.update(last=progress)]
        self.model = clone(self.settings).set_params(callbacks=look)
        seen = 0

        def size() -> int:
            """Return the size of the next batch, which grows with the chunks, as when ``fit`` reads them."""
            growing = seen and self.model.method_.tau is None
            return max(self.task.batch_size, self.model.method_.usual_chunk(seen) if growing else 1)

        for seen, batch in recorder.batches(self.task, size):
            self.model.partial_fit(batch)
            recorder(seen, reported["last"].W, reported["last"].H)

    def notes(self) -> dict[str, Any]:
        return {"method": self.model.method_.name}


class OL(Online):
    """The paper's method with its canonical step."""

    name, title, changes_units = "ol", "OL", False
    least_tau: ClassVar[int] = 10

    def method(self, n: int) -> Paper:
        return canonical(n, self.least_tau)


class ExactOL(OL):
    """The paper's method with its canonical step, and the coefficients of a solver that reaches its tolerance."""

    name, title = "ol-exact", "OL, exact coefficients"

    def method(self, n: int) -> Paper:
        return replace(super().method(n), solver="auto")


class MeanOL(ExactOL):
    """The other reading of the paper's step: the gradient is the mean over the tau samples of a mini-batch."""

    name, title = "ol-mean", "OL, mean gradient"

    def method(self, n: int) -> Paper:
        exact = super().method(n)
        return replace(exact, step=Canonical(a=0.2 * n / exact.tau, b=0.2 * n))


class AdaptiveOL(OL):
    """The paper's method with the step that adapts to the data, and the coefficients of the fastest solver."""

    name, title = "ol-adaptive", "OL, adaptive step"

    def method(self, n: int) -> Paper:
        return Paper()


class Lefevre(Online):
    """The method of Lefevre, Bach and Fevotte (2011), in which the past weighs r after one pass."""

    name, title, divergences = "ol-lef", "OL-Lef, reconstructed", ("is",)

    def method(self, n: int) -> Choice:
        return earlier_methods.Lefevre(N=n)


class Guan(Online):
    """The method of Guan, Tao, Luo and Yuan (2012), as reconstructed."""

    name, title, divergences, changes_units = "ol-guan", "OL-Guan, reconstructed", ("squared_l2",), False

    def method(self, n: int) -> Choice:
        return earlier_methods.Guan()


class Wang(Online):
    """The method of Wang, Wang and Yeung (2013)."""

    name, title, divergences, changes_units = "ol-wang", "OL-Wang, reconstructed", ("huber",), False

    def method(self, n: int) -> Choice:
        return earlier_methods.Wang()


class Batch(Contestant):
    """Multiplicative ``BatchNMF`` on all samples of a pass, or as many as MOST_BYTES hold."""

    name, title = "batch", "Batch"
    model: BatchNMF  # of the last run

    def __init__(self, task: Task, variant: Mapping[str, Any] | None = None) -> None:
        super().__init__(task)
        self.X = task.gathered(MOST_BYTES)
        usual = {"solver": "multiplicative", "max_iter": MOST_ITERATIONS, "tol": 1e-5}
        self.settings = _common(task) | usual | dict(variant or {})
        self.most_iterations = int(self.settings["max_iter"])

    def run(self, passes: int, recorder: Recorder) -> None:
        look = [lambda progress: recorder(progress.samples, progress.W, loss=progress.loss)]
        self.model = BatchNMF(self.task.K, callbacks=look, **self.settings).fit(self.X)
        loss = float(self.model.history_["loss"][-1])
        recorder(self.model.n_samples_seen_, self.model.components_, loss=loss, end=True)

    def notes(self) -> dict[str, Any]:
        return {"iterations": int(self.model.n_iter_), "converged": bool(self.model.converged_)}


def _common(task: Task) -> dict[str, Any]:
    start = {} if task.W0 is None else {"init": task.W0}
    return {"divergence": task.divergence, "random_state": task.seed, **start}


ONLINE = {each.name: each for each in (OL, ExactOL, MeanOL, AdaptiveOL, Lefevre, Guan, Wang, Online)}
CONTESTANTS: dict[str, type[Contestant]] = {**ONLINE, Batch.name: Batch}
TITLES = {name: contestant.title for name, contestant in CONTESTANTS.items()}
