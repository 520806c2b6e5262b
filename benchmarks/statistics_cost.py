"""What it would cost to hand a chunk's statistics over as arrays instead of using them where they are computed.

    python -m benchmarks.statistics_cost

The surrogate computes the matrices A_f of a block of features, averages and sweeps them while they are in the cache.
Statistics that are sums of arrays, so that those of two chunks could be added, have to be written to memory as a whole
first. Processor time of one update, median of interleaved repeats, at one thread.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from statistics import median

import numpy as np

from onmf.coefficients.kernels.gram import pack
from onmf.coefficients.problem import Problem
from onmf.divergences import KullbackLeibler
from onmf.methods import Surrogate
from onmf.methods.quadratics import blocks
from onmf.model.sets import DictionarySet

REPEATS = 41


def main() -> None:
    """A table of sizes."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    rng = np.random.default_rng(0)
    divergence, method = KullbackLeibler(), Surrogate(max_memory=2.0**34)
    print("| F | K | as it is, ms | with statistics as arrays, ms | ratio |\n|---|---|---|---|---|")
    for F, K in ((200, 40), (1000, 40), (10_000, 20), (1024, 100)):
        X, H, W = rng.gamma(1, 1, (30, F)), rng.gamma(1, 1, (30, K)), rng.random((K, F))
        state = method.start(divergence, W, DictionarySet())
        statistics = method.local(Problem(divergence, X, W), H)
        spent: dict[str, list[float]] = {"fused": [], "arrays": []}
        for _ in range(REPEATS):
            started = time.process_time()
            state = method.apply(divergence, state, statistics)
            spent["fused"].append(time.process_time() - started)
            started = time.process_time()
            outer = pack(np.ascontiguousarray(H.T))
            sums = np.empty_like(state.memory["A"])
            for f in blocks(state.memory):
                sums[len(outer) * f.start : len(outer) * f.stop] = (outer @ statistics.parts["C"][:, f]).ravel()
            written = time.process_time() - started
            started = time.process_time()
            for f in blocks(state.memory):  # what apply would read in place of its own products
                sums[len(outer) * f.start : len(outer) * f.stop].copy()
            read = time.process_time() - started
            started = time.process_time()
            for f in blocks(state.memory):
                outer @ statistics.parts["C"][:, f]
            product = time.process_time() - started
            spent["arrays"].append(spent["fused"][-1] + written + read - product)
        fused, arrays = (1e3 * median(spent[name]) for name in ("fused", "arrays"))
        print(f"| {F} | {K} | {fused:.2f} | {arrays:.2f} | {arrays / fused:.2f} |")


if __name__ == "__main__":
    main()
