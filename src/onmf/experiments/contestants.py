"""The methods of this library as contestants: the paper's (OL), the earlier ones it is compared with, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from onmf.estimators.base import Progress
from onmf.estimators.batch import BatchNMF
from onmf.estimators.online import OnlineNMF
from onmf.experiments.contest import Contestant, Course, Task

MOST_ITERATIONS = 1000  # of Batch, which stops when its loss falls by less than 1e-5 of itself over ten
MOST_BYTES = 2**30  # of samples that Batch is given


def canonical(n: int, least_tau: int = 10) -> dict[str, Any]:
    """The paper's tau = 1e-4 N and a = b = 0.2 N, which at its N = 1e5 are 10 and 2e4."""
    return {"tau": max(least_tau, round(1e-4 * n)), "a": 0.2 * n, "b": 0.2 * n}


class Online(Contestant):
    """``OnlineNMF`` with its defaults, one ``partial_fit`` per batch; ``variant`` holds settings that differ."""

    title = "onmf"
    method: ClassVar[str] = "auto"
    changes_units: ClassVar[bool] = True  # the sizes of its atoms carry no meaning
    model: OnlineNMF  # of the last run

    def __init__(self, task: Task, variant: Mapping[str, Any] | None = None) -> None:
        self.settings = _common(task) | self.defaults(task.n) | dict(variant or {})
        chunks = -(-self.settings.get("tau", 1) // task.batch_size)  # no chunk is longer than a batch
        super().__init__(replace(task, batch_size=chunks * task.batch_size))

    def defaults(self, n: int) -> dict[str, Any]:
        """The method and its constants, for passes of n samples."""
        return {"method": self.method}

    def run(self, passes: int, course: Course) -> None:
        told: dict[str, Progress] = {}
        look = [lambda progress: told.update(last=progress)]
        self.model = OnlineNMF(self.task.K, callbacks=look, **self.settings)
        for seen, batch in course.batches(self.task):
            self.model.partial_fit(batch)
            course(seen, told["last"].W, told["last"].H)

    def notes(self) -> dict[str, Any]:
        return {"method": self.model.method_}


class OL(Online):
    """The paper's method with its canonical step."""

    title, method, changes_units = "OL", "paper", False
    least_tau: ClassVar[int] = 10

    def defaults(self, n: int) -> dict[str, Any]:
        return {"method": self.method} | canonical(n, self.least_tau)


class ShortOL(OL):
    """The same with a step a hundred times shorter."""

    title = "OL, a / 100"

    def defaults(self, n: int) -> dict[str, Any]:
        canonical = super().defaults(n)
        return canonical | {"a": canonical["a"] / 100}


class Lefevre(Online):
    """Lefevre, Bach and Fevotte (2011): the past weighs r after one pass."""

    title, method, divergences = "OL-Lef", "lefevre", ("is",)

    def defaults(self, n: int) -> dict[str, Any]:
        return {"method": self.method, "options": {"N": n}}


class Guan(Online):
    """Guan, Tao, Luo and Yuan (2012), as reconstructed."""

    title, method, divergences, changes_units = "OL-Guan", "guan", ("squared_l2",), False


class Wang(Online):
    """Wang, Wang and Yeung (2013)."""

    title, method, divergences, changes_units = "OL-Wang", "wang", ("huber",), False


class Batch(Contestant):
    """``BatchNMF`` on all samples of a pass, or as many as MOST_BYTES hold."""

    title = "Batch"
    model: BatchNMF  # of the last run

    def __init__(self, task: Task, variant: Mapping[str, Any] | None = None) -> None:
        super().__init__(task)
        self.X = task.gathered(MOST_BYTES)
        self.settings = _common(task) | {"max_iter": MOST_ITERATIONS, "tol": 1e-5} | dict(variant or {})

    def run(self, passes: int, course: Course) -> None:
        look = [lambda progress: course(progress.samples, progress.W, loss=progress.loss)]
        self.model = BatchNMF(self.task.K, callbacks=look, **self.settings).fit(self.X)
        loss = float(self.model.history_["loss"][-1])
        course(self.model.n_samples_seen_, self.model.components_, loss=loss, end=True)

    def notes(self) -> dict[str, Any]:
        return {"iterations": int(self.model.n_iter_), "converged": bool(self.model.converged_)}


def _common(task: Task) -> dict[str, Any]:
    start = {} if task.W0 is None else {"init": task.W0}
    return {"divergence": task.divergence, "random_state": task.seed, **start}


ONLINE: dict[str, type[Online]] = {
    "ol": OL,
    "ol-short": ShortOL,
    "ol-lef": Lefevre,
    "ol-guan": Guan,
    "ol-wang": Wang,
    "ours": Online,
}
CONTESTANTS: dict[str, type[Contestant]] = {**ONLINE, "batch": Batch}
TITLES = {name: contestant.title for name, contestant in CONTESTANTS.items()}
