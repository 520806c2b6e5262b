"""What Dask costs: the same rounds on one single-threaded worker, and called one after the other in one process.

    python -m benchmarks.dask_overhead [--repeats 3]

The paper's synthetic data (F = 200, K = 40), eight shards; a round is counted once it has about a second of work.
Prints a table of docs/decisions/0018-many-machines.md: the median seconds of a round, and the ratio.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from onmf import OnlineNMF
from onmf.data.examples import NOISE_OF, Planted
from onmf.distributed import driver, partitioned

SAMPLES, SHARDS, ENOUGH = 200_000, 8, 0.7  # seconds of a round that counts
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Plain:
    """In place of a cluster: a task is called at once, here."""

    reads_ahead = False

    def task(self, function: Any, *inputs: Any) -> Any:
        return function(*inputs)

    def hold(self, tasks: list[Any]) -> list[Any]:
        return tasks

    def value(self, task: Any, held: bool = False) -> Any:
        return task

    def forget(self, *held: Any) -> None:
        pass


def seconds_of_rounds(divergence: str, path: Path) -> list[float]:
    """Of every round but the first, which compiles."""
    marks = []

    def mark(_: Any) -> None:
        marks.append(time.perf_counter())

    model = OnlineNMF(40, divergence=divergence, shards=SHARDS, random_state=0, callbacks=[mark])
    model.fit(partitioned(path, rows=SAMPLES // 64))
    return np.diff(marks).tolist()


def main() -> None:
    """Interleave, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ |= dict.fromkeys(THREADS, "1")
    from distributed import Client, LocalCluster
    from threadpoolctl import threadpool_limits

    print("| divergence | rounds | one thread, s per round | one worker, s per round | ratio |\n|---|---|---|---|---|")
    for divergence in ("kl", "is", "squared_l2", "huber"):
        rng = np.random.default_rng(0)
        with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
            path = Path(folder) / "x.npy"
            np.save(path, Planted.draw(200, 40, NOISE_OF[divergence], rng).sample(SAMPLES, rng).V)
            plain, worker = [], []
            with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
                for number in range(arguments.repeats + 1):
                    usual, driver.Cluster = driver.Cluster, Plain
                    alone = seconds_of_rounds(divergence, path)
                    driver.Cluster = usual
                    with Client(cluster):
                        shared = seconds_of_rounds(divergence, path)
                    if number:  # the first loads compiled code
                        pairs = [pair for pair in zip(alone, shared, strict=True) if pair[0] > ENOUGH]
                        plain += [one for one, _ in pairs]
                        worker += [other for _, other in pairs]
        ratio = median(other / one for one, other in zip(plain, worker, strict=True))
        row = f"{len(plain)} | {median(plain):.2f} | {median(worker):.2f} | {ratio:.3f}"
        print(f"| {divergence} | {row} |", flush=True)


if __name__ == "__main__":
    main()
