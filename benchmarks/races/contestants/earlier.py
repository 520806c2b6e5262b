"""The paper's opponents as ``onmf`` has them: batch multiplicative updates, and the three earlier online methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.races.contestants.base import Contestant, Task
from benchmarks.races.contestants.batch_nmf import ITERATIONS, ITERATIONS_IS
from benchmarks.races.contestants.ours import Auto
from onmf import BatchNMF


class OurBatch(Contestant):
    """``onmf.BatchNMF``, with as many iterations as scikit-learn's NMF is given."""

    name = "onmf-batch"
    from_scratch = True
    most_passes = 1
    starts = ("uniform",)
    threaded = False

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task, self.X = task, task.in_first_order()

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """All iterations, without an early stop."""
        task = self.task
        iterations = ITERATIONS_IS if task.divergence == "is" else ITERATIONS
        model = BatchNMF(
            task.K, divergence=task.divergence, init=task.W0, max_iter=iterations, tol=0.0, random_state=task.seed
        )
        model.fit(self.X)
        yield iterations * self.X.shape[0], model.components_


class Lefevre(Auto):
    """Lefevre, Bach and Fevotte (2011)."""

    name = "onmf-lefevre"
    method = "lefevre"
    divergences = ("is",)
    starts = ("uniform",)
    threaded = False

    def options(self, task: Task) -> dict[str, Any]:
        """The past weighs r after one pass."""
        return {"options": {"N": task.X.shape[0]}}


class Guan(Auto):
    """Guan, Tao, Luo and Yuan (2012), as reconstructed; not on sparse data, which it would densify."""

    name = "onmf-guan"
    method = "guan"
    divergences = ("squared_l2",)
    starts = ("uniform",)
    threaded = False
    only_on = ("synthetic", "yaleb", "samson")


class Wang(Auto):
    """Wang, Wang and Yeung (2013)."""

    name = "onmf-wang"
    method = "wang"
    divergences = ("huber",)
    starts = ("uniform",)
    threaded = False
