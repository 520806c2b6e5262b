"""scikit-learn's ``MiniBatchNMF``, the only other online NMF with KL and Itakura-Saito in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.decomposition import MiniBatchNMF

from benchmarks.races.contestants.base import BETA, Contestant, Task, mean_of

FORGET_FACTORS = (0.7, 0.9, 0.95, 0.99)
UNIT_FOR_IS = 1e6  # it floors fits near 1e-7, which at unit mean makes its Itakura-Saito useless


class PartialFit(Contestant):
    """Batch by batch; the coefficients of every batch from a fresh start, 30 multiplicative steps."""

    name = "sklearn-partial_fit"
    divergences = tuple(BETA)
    variants = FORGET_FACTORS

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task, self.forget_factor = task, variant
        self.beta = BETA[task.divergence]
        self.X = task.X * (UNIT_FOR_IS / mean_of(task.X)) if task.divergence == "is" else task.X

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """One ``partial_fit`` per batch; W and H are the start, W a formality that ``init="custom"`` asks for."""
        task, start = self.task, {}
        model = self._model(fresh_restarts_max_iter=30)
        if task.W0 is not None:
            start = {"H": task.W0.copy()}
        for seen, batch in replace(task, X=self.X).batches(passes):
            if start:
                start["W"] = np.ones((batch.shape[0], task.K))
            model.partial_fit(batch, **start)
            yield seen, model.components_

    def _model(self, **settings: Any) -> MiniBatchNMF:
        task = self.task
        return MiniBatchNMF(
            task.K,
            init=None if task.W0 is None else "custom",
            beta_loss=self.beta,
            batch_size=task.batch_size,
            forget_factor=self.forget_factor,
            random_state=task.seed,
            **settings,
        )


class Fit(PartialFit):
    """All samples at once: it keeps their coefficients, one multiplicative step on each visit."""

    name = "sklearn-fit"
    from_scratch = True

    def __init__(self, task: Task, variant: float | None = None) -> None:
        super().__init__(task, variant)
        self.X = self.X[task.orders[0]]

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """As many passes as asked for: the rules that stop earlier are off."""
        task, X = self.task, self.X
        model = self._model(max_iter=passes, tol=0.0, max_no_improvement=None)
        start = {}
        if task.W0 is not None:
            start = {"W": np.ones((X.shape[0], task.K)), "H": task.W0.copy()}
        model.fit_transform(X, **start)  # fit() does the same, and takes no start
        yield passes * X.shape[0], model.components_
