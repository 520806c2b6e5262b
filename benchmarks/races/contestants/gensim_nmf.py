"""gensim's ``Nmf``: squared l2, one ``update`` per run (a second one would forget the statistics of the first)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse

from benchmarks.races.contestants.base import Contestant, Task


class Gensim(Contestant):
    """The samples as one sparse matrix of columns."""

    name = "gensim"
    divergences = ("squared_l2",)
    package = "gensim"
    from_scratch = True
    threaded = False

    def __init__(self, task: Task, variant: float | None = None) -> None:
        self.task = task
        self.V = scipy.sparse.csc_matrix(task.in_first_order().T)

    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """One ``update`` with so many passes."""
        from gensim.models.nmf import Nmf

        task, V = self.task, self.V
        model = Nmf(
            num_topics=task.K,
            id2word={i: str(i) for i in range(V.shape[0])},
            chunksize=task.batch_size,
            passes=passes,
            kappa=1.0,
            minimum_probability=0,
            eval_every=0,
            normalize=False,
            random_state=task.seed,
        )
        if task.W0 is not None:
            model._setup(V[:, : task.batch_size])
            model._W = task.W0.T.copy()
        model.update(V)
        yield passes * V.shape[1], model._W.T
