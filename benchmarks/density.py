"""At which density online EM overtakes the surrogate under Kullback-Leibler: counts drawn from ten planted topics.

    python benchmarks/density.py

One pass over 4000 samples; held-out loss and processor seconds of both, per seed.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import scipy.sparse

from onmf import OnlineNMF

TOPICS, HELD_OUT = 10, 500


def counts(n: int, F: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    """Poisson counts with the given mean, samples of zeros left out."""
    W = rng.dirichlet(np.full(F, 0.1), TOPICS)
    H = rng.gamma(0.3, 1.0, (n, TOPICS))
    X = rng.poisson(mean * F * (H / H.sum(axis=1, keepdims=True)) @ W).astype(float)
    return X[X.any(axis=1)]


def run(method: str, X: np.ndarray, held_out: np.ndarray, seed: int) -> tuple[float, float]:
    """Held-out loss and seconds."""
    data = scipy.sparse.csr_matrix(X) if method == "em" else X
    model = OnlineNMF(TOPICS, divergence="kl", method=method, random_state=seed)
    model.fit(data[:300])  # to compile and to warm up
    started = time.process_time()
    model.fit(data)
    return model.loss(held_out), time.process_time() - started


def main() -> None:
    """A line per number of features, density and seed."""
    warnings.simplefilter("ignore")
    print("  F  density  em's loss / surrogate's  em's time / surrogate's")
    for F in (300, 2000):
        for mean in (0.01, 0.03, 0.1, 0.3, 1.0, 5.0):
            for seed in (0, 1):
                X = counts(4000 + HELD_OUT, F, mean, np.random.default_rng(seed))
                found = [run(method, X[:-HELD_OUT], X[-HELD_OUT:], seed) for method in ("em", "surrogate")]
                loss, seconds = (a / b for a, b in zip(*found, strict=True))
                print(f"{F:5d}  {np.count_nonzero(X) / X.size:6.3f}  {loss:22.3f}  {seconds:23.2f}", flush=True)


if __name__ == "__main__":
    main()
