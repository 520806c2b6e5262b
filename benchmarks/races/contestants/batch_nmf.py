"""scikit-learn's ``NMF`` on all samples at once: no rival in time, but the floor that online methods should near."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import NMF

from benchmarks.races.contestants.base import BETA, Contestant, Task, mean_of
from benchmarks.races.contestants.minibatch_nmf import UNIT_FOR_IS

ITERATIONS = 200
ITERATIONS_IS = 300


class Batch(Contestant):
    """Coordinate descent for squared l2, multiplicative updates for the others."""

    name = "batch"
    divergences = tuple(BETA)
    from_scratch = True
    most_passes = 1  # its iterations are no passes of a stream: one point
    starts = ("uniform", "own")
    threaded = False

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task = task
        unit = UNIT_FOR_IS / mean_of(task.X) if task.divergence == "is" else 1.0
        self.X = task.in_first_order() * unit

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """All iterations, without an early stop."""
        task, X = self.task, self.X
        iterations = ITERATIONS_IS if task.divergence == "is" else ITERATIONS
        model = NMF(
            task.K,
            init=None if task.W0 is None else "custom",
            solver="cd" if task.divergence == "squared_l2" else "mu",
            beta_loss=BETA[task.divergence],
            max_iter=iterations,
            tol=0.0,
            random_state=task.seed,
        )
        start = {}
        if task.W0 is not None:
            start = {"W": np.ones((X.shape[0], task.K)), "H": task.W0.copy()}
        model.fit_transform(X, **start)
        yield iterations * X.shape[0], model.components_
