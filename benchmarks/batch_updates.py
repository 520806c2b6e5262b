"""BatchNMF against scikit-learn's NMF(solver="mu"): the same updates from the same start, seconds of an iteration.

    OMP_NUM_THREADS=1 python -m benchmarks.batch_updates

Processor seconds at one thread, else wall seconds.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.decomposition import NMF

from onmf import BatchNMF
from onmf.coefficients.problem import Problem
from onmf.divergences import SquaredL2

ITERATIONS = 50
BETA = {"is": 0.0, "beta:0.5": 0.5, "kl": 1.0, "beta:1.5": 1.5, "squared_l2": 2.0}
clock = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter


def ours(X: Any, W: np.ndarray, name: str) -> tuple[float, float]:
    """Seconds and the last loss, summed."""
    model = BatchNMF(len(W), divergence=name, init=W, solver="multiplicative", max_iter=ITERATIONS, tol=0.0)
    started = clock()
    model.fit(X)
    return clock() - started, float(model.history_["loss"][-1]) * X.shape[0]


def scikit_learns(X: Any, W: np.ndarray, name: str) -> tuple[float, float]:
    """The same; its reconstruction_err_ is sqrt(2 loss)."""
    model = NMF(len(W), init="custom", solver="mu", beta_loss=BETA[name], max_iter=ITERATIONS, tol=0.0)
    H = Problem(SquaredL2(), X, W).start()
    started = clock()
    model.fit_transform(X, W=H, H=W.copy())
    return clock() - started, float(model.reconstruction_err_) ** 2 / 2


def problems(rng: np.random.Generator) -> Any:
    """Dense data of three shapes, and sparse counts of two densities."""
    for n, F, K in ((5000, 200, 40), (2000, 1000, 40), (500, 129, 5)):
        X = rng.gamma(1.0, 1.0, (n, K)) @ rng.gamma(1.0, 1.0, (K, F)) * rng.gamma(20.0, 0.05, (n, F))
        for name in BETA:
            yield f"dense {n} x {F}, K = {K}", X, 1.0 - rng.random((K, F)), name
    for density in (0.01, 0.05):
        X = scipy.sparse.random(5000, 5000, density, "csr", random_state=0)
        X.data = 1.0 + np.floor(5 * X.data)
        yield f"sparse {X.shape[0]} x {X.shape[1]}, {density:.0%}, K = 20", X, 1.0 - rng.random((20, 5000)), "kl"


def main() -> None:
    """A line per problem and divergence."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'data':36} {'divergence':12} {'ms an iteration':>16} {'scikit-learn':>13} {'ratio':>6}  loss / its loss - 1"
    )
    for title, X, W, name in problems(np.random.default_rng(0)):
        ours(X[:100], W, name)  # compiles, and warms up
        rounds = [(ours(X, W, name), scikit_learns(X, W, name)) for _ in range(3)]
        (a, loss), (b, peers) = (min(found) for found in zip(*rounds, strict=True))
        mine, its = (1e3 * seconds / ITERATIONS for seconds in (a, b))
        print(f"{title:36} {name:12} {mine:16.2f} {its:13.2f} {a / b:6.2f}  {loss / peers - 1:9.1e}")


if __name__ == "__main__":
    main()
