"""nmf-rs: R's NMF package in Rust; multiplicative updates of all samples, which it takes as dense columns only."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.peers.contestants.batch_nmf import iterations
from reproduction.contest import Contestant, Recorder, Task

METHODS = {"kl": "brunet", "squared_l2": "lee"}
AT_A_TIME = 20  # iterations between looks at the clock
SECONDS = 60.0  # of processor time, after which it begins no more iterations


class NmfRs(Contestant):
    """As many iterations as the other batch methods, or those begun within a minute."""

    divergences = tuple(METHODS)

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task)
        X = task.gathered()
        self.V = np.ascontiguousarray((X.toarray() if scipy.sparse.issparse(X) else X).T)
        self.done = 0

    def run(self, passes: int, recorder: Recorder) -> None:
        from nmf_rs import nmf

        task, V, most = self.task, self.V, iterations(self.task.divergence)
        # Its updates have no memory but the factors: several calls do what one does.
        W, H = (None, None) if task.W0 is None else (task.W0.T.copy(), np.ones((task.K, V.shape[1])))
        self.done, started = 0, time.process_time()
        while self.done < most and time.process_time() - started < SECONDS:
            found = nmf(
                V,
                task.K,
                METHODS[task.divergence],
                W0=W,
                H0=H,
                seed=task.seed,
                max_iter=AT_A_TIME,
                num_threads=task.threads,
            )
            W, H = found.W, found.H
            self.done += AT_A_TIME
        recorder(self.done * V.shape[1], W.T, end=True)

    def notes(self) -> dict[str, Any]:
        return {"iterations": self.done}
