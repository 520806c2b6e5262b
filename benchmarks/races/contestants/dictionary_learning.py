"""scikit-learn's ``MiniBatchDictionaryLearning`` with nonnegative code and dictionary and next to no penalty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse
from sklearn.decomposition import MiniBatchDictionaryLearning

from benchmarks.races.contestants.base import Contestant, Task, unit_norm


class DictionaryLearning(Contestant):
    """Squared l2 by coordinate descent; it takes dense samples only."""

    name = "sklearn-dictionary"
    divergences = ("squared_l2",)
    threaded = False

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task = replace(task, X=task.X.toarray()) if scipy.sparse.issparse(task.X) else task

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """One ``partial_fit`` per batch."""
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
        for seen, batch in task.batches(passes):
            model.partial_fit(batch)
            yield seen, model.components_
