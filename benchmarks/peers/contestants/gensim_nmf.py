"""gensim's ``Nmf``: squared l2, one ``update`` per run (a second one would forget the statistics of the first)."""

from __future__ import annotations

from typing import Any

import scipy.sparse

from reproduction.contest import Contestant, Recorder, Task


class Gensim(Contestant):
    """The samples as one sparse matrix of columns."""

    divergences = ("squared_l2",)

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(task)
        self.V = scipy.sparse.csc_matrix(task.gathered().T)

    def run(self, passes: int, recorder: Recorder) -> None:
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
        recorder(passes * V.shape[1], model._W.T, end=True)
