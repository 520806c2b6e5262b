"""``onmf.OnlineNMF``, fed batch by batch through ``partial_fit``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from benchmarks.races.contestants.base import Contestant, Task
from onmf import OnlineNMF


class Auto(Contestant):
    """The library's own choice of the method: the contestant that the tables call ours."""

    name = "onmf"
    method: ClassVar[str] = "auto"
    dtype: ClassVar[type] = np.float64

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task = replace(task, X=task.X.astype(self.dtype, copy=False))
        start = {} if task.W0 is None else {"init": task.W0}
        self.settings = {**start, **self.options(task)}
        self.model: OnlineNMF | None = None

    def options(self, task: Task) -> dict[str, Any]:
        """Settings that differ from the defaults."""
        return {}

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """One ``partial_fit`` per batch."""
        task = self.task
        self.model = OnlineNMF(
            task.K, divergence=task.divergence, method=self.method, random_state=task.seed, **self.settings
        )
        for seen, batch in task.batches(passes):
            self.model.partial_fit(batch)
            yield seen, self.model.components_

    def notes(self) -> dict[str, Any]:
        """What "auto" has chosen."""
        return {"method": self.model.method_} if self.model is not None else {}


class Surrogate(Auto):
    """The quadratic surrogate where "auto" takes online EM, on sparse data of not too many features."""

    name = "onmf-surrogate"
    method = "surrogate"
    threaded = False
    only_on = ("text_like", "bbc", "news_tfidf")

    @classmethod
    def serves(cls, divergence: str, sparse: bool) -> bool:
        """Elsewhere "auto" is this method."""
        return sparse and EM.serves(divergence, False)


class EM(Auto):
    """Online EM where "auto" takes the surrogate."""

    name = "onmf-em"
    method = "em"
    threaded = False

    @classmethod
    def serves(cls, divergence: str, sparse: bool) -> bool:
        """The alpha family with alpha > 0; on sparse data "auto" is this method."""
        return not sparse and divergence in ("kl", "hellinger")


class Single(Auto):
    """Single precision, where the issue asks for its speed."""

    name = "onmf-float32"
    dtype = np.float32
    threaded = False
    only_on = ("synthetic_wide",)


class WithReservoir(Auto):
    """With a reservoir of old samples, which the documentation recommends for streams in temporal order."""

    name = "onmf-reservoir"
    threaded = False
    only_on = ("piano_ordered",)

    def options(self, task: Task) -> dict[str, Any]:
        """As many as the documentation says."""
        return {"reservoir": 256}


class Paper(Auto):
    """The paper's Algorithm 1 with its canonical ratios, a = b = 0.2 n, tau = 1e-4 n.

    One pass, from one start, on the data it was made for: it takes minutes elsewhere, and nobody doubts the outcome.
    """

    name = "onmf-paper"
    method = "paper"
    most_passes = 1
    starts = ("uniform",)
    threaded = False
    only_on = ("synthetic", "yaleb_salt", "yaleb_salt_stream")

    def options(self, task: Task) -> dict[str, Any]:
        """The step of benchmarks/fast_against_paper.py."""
        n = task.X.shape[0]
        return {"a": 0.2 * n, "b": 0.2 * n, "tau": max(1, round(1e-4 * n))}
