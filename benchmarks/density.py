"""At which density em, the sparse surrogate and the surrogate win under Kullback-Leibler: ten planted topics.

    python -m benchmarks.density

One and five passes over 4000 samples: held-out losses and processor seconds divided by those of em, per seed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product

import numpy as np
import scipy.sparse

from onmf import OnlineNMF

TOPICS, HELD_OUT = 10, 500
METHODS = ("em", "sparse_surrogate", "surrogate")


def counts(n: int, F: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    """Poisson counts with the given mean, samples of zeros left out."""
    W = rng.dirichlet(np.full(F, 0.1), TOPICS)
    H = rng.gamma(0.3, 1.0, (n, TOPICS))
    X = rng.poisson(mean * F * (H / H.sum(axis=1, keepdims=True)) @ W).astype(float)
    return X[X.any(axis=1)]


def run(method: str, passes: int, X: np.ndarray, held_out: np.ndarray, seed: int) -> np.ndarray:
    """Held-out loss and seconds."""
    data = X if method == "surrogate" else scipy.sparse.csr_matrix(X)
    model = OnlineNMF(TOPICS, divergence="kl", method=method, max_passes=passes, random_state=seed)
    model.fit(data[:300])  # to compile and to warm up
    started = time.process_time()
    model.fit(data)
    seconds = time.process_time() - started
    return np.array([model.loss(held_out), seconds])


def main() -> None:
    """A line per number of features, density and seed."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    print("    F  density  passes  sparse surrogate: loss   time  surrogate: loss   time")
    for F in (300, 2000):
        for mean in (0.01, 0.03, 0.1, 0.3, 1.0, 5.0):
            for passes, seed in product((1, 5), (0, 1)):
                X = counts(4000 + HELD_OUT, F, mean, np.random.default_rng(seed))
                em, *others = (run(method, passes, X[:-HELD_OUT], X[-HELD_OUT:], seed) for method in METHODS)
                cells = (f"{loss:22.3f} {seconds:6.2f}" for loss, seconds in (other / em for other in others))
                print(f"{F:5d}  {np.count_nonzero(X) / X.size:6.3f}  {passes:6d}", *cells, flush=True)


if __name__ == "__main__":
    main()
