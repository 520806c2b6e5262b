"""NMF of all samples at once, scikit-learn's and ours."""

from __future__ import annotations

from typing import Any

from sklearn.decomposition import NMF

from benchmarks.peers.contestants.base import BETA, custom_start, unit_for
from reproduction.contest import Batch, Contestant, Recorder, Task


def iterations(divergence: str) -> int:
    """As many as multiplicative updates are given, without an early stop."""
    return 300 if divergence == "is" else 200


class SklearnBatch(Contestant):
    """Coordinate descent for squared l2, multiplicative updates for the others."""

    divergences = tuple(BETA)

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task)
        self.X = task.gathered() * unit_for(task)

    def run(self, passes: int, recorder: Recorder) -> None:
        task, X = self.task, self.X
        model = NMF(
            task.K,
            init=None if task.W0 is None else "custom",
            solver="cd" if task.divergence == "squared_l2" else "mu",
            beta_loss=BETA[task.divergence],
            max_iter=iterations(task.divergence),
            tol=0.0,
            random_state=task.seed,
        )
        model.fit_transform(X, **custom_start(task, X.shape[0]))
        recorder(iterations(task.divergence) * X.shape[0], model.components_, end=True)


class BatchNMF(Batch):
    """``onmf.BatchNMF`` with its defaults, which stop by themselves."""

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task, {"solver": "auto", "max_iter": 1000, "tol": None})


class Multiplicative(Batch):
    """``onmf.BatchNMF`` with the updates that scikit-learn has."""

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task, {"max_iter": iterations(task.divergence), "tol": 0.0})
