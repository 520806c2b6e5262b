"""The methods of this library as contestants: the paper's (OL), the earlier ones it is compared with, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from sklearn.base import clone

from onmf import BatchNMF, OnlineNMF, Progress, methods
from onmf.methods import Auto, Canonical, Choice, Paper
from reproduction.contest import Contestant, Course, Task

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

    def run(self, passes: int, course: Course) -> None:
        told: dict[str, Progress] = {}
        look = [lambda progress: told.update(last=progress)]
        self.model = clone(self.settings).set_params(callbacks=look)
        seen = 0

        def size() -> int:
            """Return the size of the next batch, which grows with the chunks, as when ``fit`` reads them."""
            growing = seen and self.model.method_.tau is None
            return max(self.task.batch_size, self.model.method_.usual_chunk(seen) if growing else 1)

        for seen, batch in course.batches(self.task, size):
            self.model.partial_fit(batch)
            course(seen, told["last"].W, told["last"].H)

    def notes(self) -> dict[str, Any]:
        return {"method": self.model.method_.name}


class OL(Online):
    """The paper's method with its canonical step."""

    name, title, changes_units = "ol", "OL", False
    least_tau: ClassVar[int] = 10

    def method(self, n: int) -> Paper:
        return canonical(n, self.least_tau)


class AdaptiveOL(OL):
    """The paper's method with the step that adapts to the data, and the coefficients of the fastest solver."""

    name, title = "ol-adaptive", "OL, adaptive step"

    def method(self, n: int) -> Paper:
        return Paper()


class Lefevre(Online):
    """Lefevre, Bach and Fevotte (2011): the past weighs r after one pass."""

    name, title, divergences = "ol-lef", "OL-Lef", ("is",)

    def method(self, n: int) -> Choice:
        return methods.Lefevre(N=n)


class Guan(Online):
    """Guan, Tao, Luo and Yuan (2012), as reconstructed."""

    name, title, divergences, changes_units = "ol-guan", "OL-Guan", ("squared_l2",), False

    def method(self, n: int) -> Choice:
        return methods.Guan()


class Wang(Online):
    """Wang, Wang and Yeung (2013)."""

    name, title, divergences, changes_units = "ol-wang", "OL-Wang", ("huber",), False

    def method(self, n: int) -> Choice:
        return methods.Wang()


class Batch(Contestant):
    """``BatchNMF`` on all samples of a pass, or as many as MOST_BYTES hold."""

    name, title = "batch", "Batch"
    model: BatchNMF  # of the last run

    def __init__(self, task: Task, variant: Mapping[str, Any] | None = None) -> None:
        super().__init__(task)
        self.X = task.gathered(MOST_BYTES)
        self.settings = _common(task) | {"max_iter": MOST_ITERATIONS, "tol": 1e-5} | dict(variant or {})
        self.most_iterations = int(self.settings["max_iter"])

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


ONLINE = {each.name: each for each in (OL, AdaptiveOL, Lefevre, Guan, Wang, Online)}
CONTESTANTS: dict[str, type[Contestant]] = {**ONLINE, Batch.name: Batch}
TITLES = {name: contestant.title for name, contestant in CONTESTANTS.items()}
