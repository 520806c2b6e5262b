"""A pass of method "paper" with the fast exact coefficients against one with Armijo's rule, where the paper uses that.

    OMP_NUM_THREADS=1 python -m benchmarks.paper_coefficients [--samples 3000]

The paper's synthetic data, F = 200, K = 40; processor time, and held-out losses by the precise judge. The step has a
fixed factor, so that no trial period blurs the comparison.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from onmf import OnlineNMF
from onmf.data.examples import NOISE_OF, Planted
from reproduction.judge import Scorer

DIVERGENCES = ("is", "kl", "hellinger", "alpha:2", "beta:0.5", "beta:1.5", "beta:3", "l2")
ARMIJO, FAST = "paper:c=1,solver=armijo", "paper:c=1"


def passed(X: np.ndarray, divergence: str, method: str) -> tuple[float, np.ndarray]:
    """Seconds of one pass, and the dictionary after it."""
    model = OnlineNMF(40, divergence=divergence, method=method, init="uniform", random_state=0)
    started = time.process_time()
    model.fit(X)
    return time.process_time() - started, model.components_


def main() -> None:
    """One line per divergence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=3000)
    n = parser.parse_args().samples
    warnings.simplefilter("ignore")
    print(
        "| divergence | Armijo, s | fast, s | time, fast / Armijo | held-out loss, fast / Armijo |\n" + "|---" * 5 + "|"
    )
    for divergence in DIVERGENCES:
        rng = np.random.default_rng(0)
        planted = Planted.draw(200, 40, NOISE_OF.get(divergence, NOISE_OF["kl"]), rng)
        X, held_out = (np.maximum(planted.sample(size, rng).V, 1e-3) for size in (n, 300))
        judge, found = Scorer(divergence, X.mean(axis=0), held_out), {}
        for method in (ARMIJO, FAST):
            passed(X[:200], divergence, method)  # compiles
            seconds, W = passed(X, divergence, method)
            found[method] = seconds, judge.best(W).loss
        (slow, loss), (fast, less) = found.values()
        print(f"| {divergence} | {slow:.2f} | {fast:.2f} | {fast / slow:.2f} | {less / loss:.4f} |", flush=True)


if __name__ == "__main__":
    main()
