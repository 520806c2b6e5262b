"""The fast method against the paper's step: held-out loss relative to the planted dictionary's, on the synthetic data.

    python -m benchmarks.fast_against_paper [--samples 5000] [--divergences is,kl,...]

F = 200, K = 40, one pass, uniform start for both. Prints the table of docs/decisions/0004-fast-methods.md.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from onmf import OnlineNMF, divergences
from onmf.data.examples import NOISE_OF, Planted
from onmf.methods import Surrogate
from reproduction.contest import canonical
from reproduction.judge import Scorer


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--divergences", default=",".join(NOISE_OF))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    n = arguments.samples
    print("| divergence | surrogate after 1/5 | surrogate | s | paper | s |")
    print("|---|---|---|---|---|---|")
    for name in arguments.divergences.split(","):
        rng = np.random.default_rng(arguments.seed)
        planted = Planted.draw(200, 40, NOISE_OF[name], rng)
        X, held_out = planted.sample(n, rng).V, planted.sample(300, rng).V
        divergence = divergences.get(name).for_data(float(X[:200].mean()), 200)  # one delta for Huber's loss
        OnlineNMF(40, divergence=divergence, method="surrogate").fit(X[:200])  # compiles what has to be compiled
        fast, paper = Surrogate(), canonical(n, least_tau=1)
        cells = []
        judge = Scorer(divergence, X[:200].mean(axis=0), held_out)
        oracle = judge.best(planted.W).loss
        for method, count in ((fast, n // 5), (fast, n), (paper, n)):
            model = OnlineNMF(40, divergence=divergence, method=method, init="uniform", random_state=arguments.seed)
            started = time.perf_counter()
            model.fit(X[:count])
            seconds = time.perf_counter() - started
            cells.append(f"{judge.best(model.components_).loss / oracle:.3f}")
            if count == n:
                cells.append(f"{seconds:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
