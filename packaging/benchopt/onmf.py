"""onmf as a solver of benchopt's ``benchmark_nmf``: copy this file into the folder ``solvers`` of that benchmark.

The benchmark writes X (m, n) ~ W (m, r) @ H (r, n): its W holds our coefficients and its H our components. It judges
the samples that were learnt from, under both losses, after more and more iterations.
"""

import numpy as np
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

from onmf import BatchNMF, OnlineNMF

DIVERGENCES = {"frobenius": "squared_l2", "kullback-leibler": "kl"}


class Solver(BaseSolver):
    """Passes of ``OnlineNMF``, then precise coefficients, or iterations of ``BatchNMF``."""

    name = "onmf"
    requirements = ["pip::onmf"]
    parameters = {"estimator": ["online", "batch"], "loss": list(DIVERGENCES)}
    sampling_strategy = "iteration"
    stopping_criterion = SufficientProgressCriterion(strategy="iteration", key_to_monitor="objective_frobenius")

    def skip(self, X, rank, factors_init):
        if X.min() < 0:
            return True, "onmf factorises nonnegative data."
        return False, None

    def set_objective(self, X, rank, factors_init):
        self.X, self.start = X, factors_init
        self.stopping_criterion.key_to_monitor = f"objective_{self.loss}"
        self.settings = {
            "n_components": rank,
            "divergence": DIVERGENCES[self.loss],
            "init": "kmeans++" if factors_init is None else np.array(factors_init[1]),
            "random_state": 0,
        }

    def warm_up(self):
        self.run(1)  # compiles the kernels

    def run(self, n_iter):
        if n_iter == 0 and self.start is not None:
            self.W, self.H = self.start
            return
        if self.estimator == "online":
            model = OnlineNMF(max_passes=max(n_iter, 1), **self.settings).fit(self.X)
            self.W = model.transform(self.X)
        else:  # no prior, which would raise the loss of these samples, and as many iterations as asked for
            model = BatchNMF(max_iter=max(n_iter, 1), tol=0, pseudo_counts=0, **self.settings).fit(self.X)
            self.W = model.coefficients_
        self.H = model.components_

    def get_result(self):
        return {"W": self.W, "H": self.H}
