"""SPAMS (``spams-bin``): the online dictionary learning of Mairal et al. in C++, the one to beat for squared l2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse

from benchmarks.races.contestants.base import Contestant, Task, unit_norm


class Spams(Contestant):
    """``trainDL`` with nonnegative code and dictionary and no penalty; ``iter`` counts mini-batches."""

    name = "spams"
    divergences = ("squared_l2",)
    package = "spams"
    from_scratch = True

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task = task
        columns = task.in_first_order().T
        self.V = scipy.sparse.csc_matrix(columns) if scipy.sparse.issparse(columns) else np.asfortranarray(columns)

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """So many passes from scratch: it draws its mini-batches itself."""
        import spams

        task, n = self.task, self.V.shape[1]
        start = {} if task.W0 is None else {"D": np.asfortranarray(unit_norm(task.W0).T)}
        D = spams.trainDL(
            self.V,
            K=task.K,
            lambda1=0.0,
            mode=2,
            posAlpha=True,
            posD=True,
            batchsize=task.batch_size,
            iter=max(1, round(passes * n / task.batch_size)),
            numThreads=task.threads,
            verbose=False,
            **start,
        )
        yield passes * n, D.T
