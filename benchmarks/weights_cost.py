"""What weights cost: the time of a fit with them over that without, the median of interleaved repeats.

    python -m benchmarks.weights_cost [--repeats 9]

Sample weights are drawn from one to three; weights of entries from (0, 1). One thread, one pass over planted data
(5,000 samples, 200 features, 20 components; 20,000 texts of 2,000 words for the sparse ones), a common start.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse

from onmf import OnlineNMF

DENSE = ("kl", "is", "squared_l2", "huber", "l1", "l2")


def seconds(X: Any, divergence: str, **weights: Any) -> float:
    """Of one fit."""
    model = OnlineNMF(20, divergence=divergence, init="uniform", random_state=0)
    began = time.process_time()
    model.fit(X, **weights)
    return time.process_time() - began


def main() -> None:
    """A line per divergence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    Y = rng.gamma(0.5, 1.0, (5000, 20)) @ rng.gamma(0.5, 1.0, (20, 200))
    X = Y * rng.gamma(10.0, 0.1, Y.shape)
    texts = rng.dirichlet(np.full(20, 0.2), 20000) @ rng.dirichlet(np.full(2000, 0.05), 20)
    data = dict.fromkeys(DENSE, X) | {"kl, sparse": scipy.sparse.csr_matrix(rng.poisson(60 * texts) * 1.0)}
    print("              without   samples   entries (relative)")
    for name, V in data.items():
        divergence = name.partition(",")[0]
        kinds: list[dict[str, Any]] = [{}, {"sample_weight": rng.integers(1, 4, V.shape[0])}]
        if not scipy.sparse.issparse(V):
            kinds.append({"weights": rng.random(V.shape)})
        for kind in kinds:
            seconds(V, divergence, **kind)  # compiled, and in the caches
        times = np.median([[seconds(V, divergence, **kind) for kind in kinds] for _ in range(repeats)], axis=0)
        print(f"{name:<12}{times[0]:8.2f} s" + "".join(f"{each / times[0]:10.2f}" for each in times[1:]), flush=True)


if __name__ == "__main__":
    main()
