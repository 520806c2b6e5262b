"""scikit-learn's ``MiniBatchDictionaryLearning`` with nonnegative code and dictionary and next to no penalty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import scipy.sparse
from sklearn.decomposition import MiniBatchDictionaryLearning

from benchmarks.peers.contestants.base import unit_norm
from onmf.data import Rows
from reproduction.contest import Contestant, Recorder, Task


class DictionaryLearning(Contestant):
    """Squared l2 by coordinate descent, one ``partial_fit`` per batch; it takes dense samples only."""

    divergences = ("squared_l2",)

    def __init__(self, task: Task, variant: Any = None) -> None:
        X = task.source.X
        super().__init__(replace(task, source=Rows(X.toarray())) if scipy.sparse.issparse(X) else task)

    def run(self, passes: int, recorder: Recorder) -> None:
        task = self.task
        model = MiniBatchDictionaryLearning(
            task.K,
            alpha=1e-8,
            batch_size=task.batch_size,
            fit_algorithm="cd",
            transform_algorithm="lasso_cd",
            positive_code=True,
            positive_dict=True,
            dict_init=None if task.W0 is None else unit_norm(task.W0),
            random_state=task.seed,
        )
        for seen, batch in recorder.batches(task):
            model.partial_fit(batch)
            recorder(seen, model.components_)
