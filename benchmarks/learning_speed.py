"""Processor time of learning, for this tree and another one: interleaved fresh processes, one thread.

    python -m benchmarks.learning_speed --against /path/to/another/src [--repeats 5]

Prints the table of docs/decisions/0009-one-trunk.md: the least of three fits in every process, and the median over the
processes of the ratios new / old.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse

HERE = Path(__file__).resolve().parents[1] / "src"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def jobs() -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    import onmf

    rng = np.random.default_rng(0)
    X = rng.gamma(1, 1, (3000, 40)) @ rng.gamma(1, 1, (40, 200))
    S = scipy.sparse.csr_matrix(
        rng.poisson(rng.gamma(0.3, 1, (3000, 20)) @ rng.gamma(0.05, 1, (20, 2000))), dtype=float
    )
    S = S[np.asarray(S.sum(axis=1)).ravel() > 0]
    model = onmf.OnlineNMF(40, random_state=0).fit(X[:1000])

    def fit(data: object, divergence: str, method: str = "auto") -> Callable[[], object]:
        return lambda: onmf.OnlineNMF(40, divergence=divergence, method=method, random_state=0).fit(data)

    def batch(data: object, divergence: str) -> Callable[[], object]:
        """Twenty iterations from a start that takes no time."""
        settings = {"init": "uniform", "max_iter": 20, "tol": 0, "random_state": 0}
        return lambda: onmf.BatchNMF(40, divergence=divergence, **settings).fit(data)

    def stream() -> None:
        learner = onmf.OnlineNMF(10, random_state=0)
        for first in range(0, 1500, 30):
            learner.partial_fit(X[first : first + 30, :50])

    dense = {name: fit(X, name) for name in ("kl", "is", "squared_l2", "huber", "l2")}
    return dense | {
        "l1": fit(X[:1500], "l1"),
        "kl, sparse (em)": fit(S, "kl"),
        "kl, method paper": fit(X[:400], "kl", "paper"),
        "partial_fit of 30 samples": stream,
        "transform, kl": lambda: model.transform(X[:1000]),
        "BatchNMF, kl": batch(X, "kl"),
        "BatchNMF, kl, sparse": batch(S, "kl"),
        "BatchNMF, squared_l2": batch(X, "squared_l2"),
        "BatchNMF, squared_l2, sparse": batch(S, "squared_l2"),
    }


def measure() -> dict[str, float]:
    """Seconds by name, after one run to compile and to warm up."""
    warnings.simplefilter("ignore")
    found = {}
    for name, job in jobs().items():
        job()
        spent = []
        for _ in range(3):
            started = time.process_time()
            job()
            spent.append(time.process_time() - started)
        found[name] = min(spent)
    return found


def in_process(source: Path) -> dict[str, float]:
    """``measure`` with another tree."""
    environment = os.environ | THREADS | {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--measure"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Interleave, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure()))
        return
    pairs = []
    for number in range(arguments.repeats):
        order = (arguments.against, HERE) if number % 2 else (HERE, arguments.against)
        found = {source: in_process(source) for source in order}
        pairs.append((found[arguments.against], found[HERE]))
    print("| | before, s | now, s | ratio |\n|---|---|---|---|")
    for name in pairs[0][0]:
        before, now = (median(pair[which][name] for pair in pairs) for which in (0, 1))
        print(f"| {name} | {before:.3f} | {now:.3f} | {median(new[name] / old[name] for old, new in pairs):.2f} |")


if __name__ == "__main__":
    main()
