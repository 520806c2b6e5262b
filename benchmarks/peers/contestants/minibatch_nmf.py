"""scikit-learn's ``MiniBatchNMF``, the only other online NMF with KL and Itakura-Saito in Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.decomposition import MiniBatchNMF

from benchmarks.peers.contestants.base import BETA, custom_start, unit_for
from onmf.data import Rows
from reproduction.contest import Contestant, Recorder, Task

FORGET_FACTORS = {str(factor): factor for factor in (0.7, 0.9, 0.99)}


class PartialFit(Contestant):
    """Batch by batch; the coefficients of every batch from a fresh start, 30 multiplicative steps."""

    divergences = tuple(BETA)

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(replace(task, source=Rows(task.source.X * unit_for(task))))
        self.forget_factor = variant

    def run(self, passes: int, recorder: Recorder) -> None:
        model, start = self._model(fresh_restarts_max_iter=30), custom_start(self.task, 0)
        for seen, batch in recorder.batches(self.task):
            if start:
                start["W"] = np.ones((batch.shape[0], self.task.K))
            model.partial_fit(batch, **start)
            recorder(seen, model.components_)

    def _model(self, **settings: Any) -> MiniBatchNMF:
        task = self.task
        return MiniBatchNMF(
            task.K,
            init=None if task.W0 is None else "custom",
            beta_loss=BETA[task.divergence],
            batch_size=task.batch_size,
            forget_factor=self.forget_factor,
            random_state=task.seed,
            **settings,
        )


class Fit(PartialFit):
    """All samples at once: it keeps their coefficients, one multiplicative step on each visit."""

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task, variant)
        self.X = self.task.gathered()

    def run(self, passes: int, recorder: Recorder) -> None:
        """As many passes as asked for: the rules that stop earlier are off."""
        model = self._model(max_iter=passes, tol=0.0, max_no_improvement=None)
        n = self.X.shape[0]
        model.fit_transform(self.X, **custom_start(self.task, n))  # fit() does the same, and takes no start
        recorder(passes * n, model.components_, end=True)
