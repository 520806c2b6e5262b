"""SPAMS (``spams-bin``): the online dictionary learning of Mairal et al. in C++, the one to beat for squared l2."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.peers.contestants.base import unit_norm
from reproduction.contest import Contestant, Recorder, Task


class Spams(Contestant):
    """``trainDL`` with nonnegative code and dictionary and no penalty; it draws its mini-batches itself."""

    divergences = ("squared_l2",)

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task)
        columns = task.gathered().T
        self.V = scipy.sparse.csc_matrix(columns) if scipy.sparse.issparse(columns) else np.asfortranarray(columns)

    def run(self, passes: int, recorder: Recorder) -> None:
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
            iter=max(1, round(passes * n / task.batch_size)),  # counts mini-batches
            numThreads=task.threads,
            verbose=False,
            **start,
        )
        recorder(passes * n, D.T, end=True)
