"""A plan for clusters larger than this machine: what a round sends, and how many workers it pays to have.

    python -m benchmarks.cluster_plan [--quick]

Measured here, on one thread: the seconds that a sample takes to learn from, for every method and each F x K that fits
(others, with a star, are extrapolated from the largest one that does: proportional to F K^2), the bytes of a state, and
what Dask takes for a round of P shards, a + b P seconds, all of them on one worker. The rest is arithmetic: with n
samples per shard and round, c seconds per sample and s bytes of state, a round of P shards on as many workers takes

    n c + a + b P + (4 + log2 P + 3 ceil(log4 P)) s / bandwidth

seconds: the state goes to the scheduler and on to a worker, from worker to worker to all shards, sums go up a tree of
arity 4, and the next state goes back. More workers pay as long as twice as many are 1.5 times as fast, up to 4,096.
Prints the table of docs/guides/many-machines.md.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from dataclasses import replace
from typing import Any

import dask
import numpy as np
import scipy.sparse

from onmf import OnlineNMF, methods
from onmf.learner.rounds import size_of_round

SIZES = ((1_000, 20), (10_000, 50), (100_000, 50), (1_000_000, 100))
METHODS = {
    "surrogate, kl": ("kl", "surrogate"),
    "surrogate, squared_l2": ("squared_l2", "surrogate"),
    "sparse_surrogate, kl": ("kl", "sparse_surrogate"),
    "em, kl": ("kl", "em"),
}
WORDS = 100  # entries of a sparse sample
MOST_ENTRIES = 2e7  # of the dense samples that are measured
MOST_STATE = 4e9  # bytes, of a model that is measured here
BANDWIDTHS = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 1.25e10}
GAIN = 1.5


def samples(method: str, F: int, n: int) -> Any:
    """Dense counts, or texts of some hundred words."""
    rng = np.random.default_rng(0)
    if method in ("em", "sparse_surrogate"):
        rows = np.repeat(np.arange(n), WORDS)
        columns = (F * rng.random(len(rows)) ** 3).astype(np.int64)
        return scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(n, F))
    return rng.poisson(5.0, (n, F)).astype(float) + 1.0


def state_bytes(model: OnlineNMF) -> int:
    """Of the dictionary and all statistics."""
    learned: Any = model._learned
    state = learned.state
    return state.W.nbytes + sum(array.nbytes for array in state.memory.values())


def cost(divergence: str, method: str, F: int, K: int, quick: bool) -> tuple[float, int]:
    """Seconds per sample in a long run, and the bytes of the state; in chunks as large as they become."""
    largest = {"surrogate": 300}.get(method, 1600)
    sparse = method in ("em", "sparse_surrogate")
    n = largest if sparse else int(min(largest, max(30, MOST_ENTRIES // F)))
    X = samples(method, F, n)
    settings = {"method": f"{method}:tau={n}", "divergence": divergence, "init": "uniform", "random_state": 0}
    model = OnlineNMF(K, **settings)
    first = X[: min(n, 60)]
    model.partial_fit(first)
    learned: Any = model._learned
    long = replace(learned.state, samples=1e6, clock=1e6)  # one visit, small weights
    model._learned = replace(learned, state=long)
    model.partial_fit(X)  # compiled code is loaded
    started = time.process_time()
    for _ in range(1 if quick else 3):
        model.partial_fit(X)
    return (time.process_time() - started) / n / (1 if quick else 3), state_bytes(model)


def overhead() -> tuple[float, float]:
    """a and b of a + b P: the seconds of a round of P shards whose tasks have nothing to do."""
    from distributed import Client, LocalCluster

    from onmf.distributed.cluster import Cluster
    from onmf.distributed.driver import ARITY

    def round_of(cluster: Cluster, P: int) -> float:
        started = time.perf_counter()
        state = cluster.task(abs, 1)
        found = [cluster.task(max, state, shard) for shard in range(P)]
        while len(found) > 1:
            found = [cluster.task(max, state, *found[i : i + ARITY]) for i in range(0, len(found), ARITY)]
        cluster.value(cluster.task(max, state, found[0]))
        return time.perf_counter() - started

    found = {}
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as local, Client(local):
        cluster = Cluster()
        for P in (2, 8, 32, 64):
            round_of(cluster, P)
            found[P] = float(np.median([round_of(cluster, P) for _ in range(21)]))
    slope, start = np.polyfit(list(found), list(found.values()), 1)
    return float(start), float(slope)


def seconds(P: int, n: int, c: float, state: int, bandwidth: float, a: float, b: float) -> float:
    """Of a round."""
    levels = math.ceil(math.log(P, 4) - 1e-9)
    return n * c + a + b * P + (4 + math.log2(P) + 3 * levels) * state / bandwidth


def plan(n: int, c: float, state: int, bandwidth: float, a: float, b: float) -> tuple[int, float]:
    """How many workers pay, and how much faster they are than one without any of this."""

    def speed(P: int) -> float:
        return P * n * c / seconds(P, n, c, state, bandwidth, a, b)

    numbers = [2**power for power in range(1, 13)]
    P = max((P for P in numbers if speed(P) >= GAIN * speed(P // 2)), default=1)
    return P, speed(P)


def main() -> None:
    """Measure, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="measure once, and only what is small")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), dask.config.set({"distributed.worker.daemon": True}):
        a, b = overhead()
        print(f"Dask takes {1e3 * a:.0f} + {1e3 * b:.1f} P ms for a round of P shards.\n")
        head = " | ".join(f"workers at {name} (faster)" for name in BANDWIDTHS)
        columns = "F x K | method | ms per sample | state, MB | sent per shard and round, MB | samples per shard"
        print(f"| {columns} | {head} |")
        print("|" + "---|" * (6 + len(BANDWIDTHS)))
        for name, (divergence, method) in METHODS.items():
            known: tuple[int, int, float, int] | None = None
            for F, K in SIZES[: 1 if arguments.quick else None]:
                fits = 8 * F * K * ((K + 1) / 2 if method == "sparse_surrogate" else 3) < MOST_STATE
                dense = method == "surrogate" and F > 1e5
                if fits and not dense:
                    c, state = cost(divergence, method, F, K, arguments.quick)
                    known, said = (F, K, c, state), ""
                elif known is not None and method != "sparse_surrogate":
                    near, k, before, bytes_before = known
                    c, state, said = before * (F / near) * (K / k) ** 2, int(bytes_before * F * K / (near * k)), "*"
                else:
                    continue
                _, n = size_of_round(methods.get(method), 1e9, 64)
                cells = []
                for bandwidth in BANDWIDTHS.values():
                    P, faster = plan(n, c, state, bandwidth, a, b)
                    cells.append(f"{P} ({faster:.0f} x)")
                row = f"{1e3 * c:.3g}{said} | {state / 1e6:.3g} | {2 * state / 1e6:.3g} | {n:,} | {' | '.join(cells)}"
                print(f"| {F:,} x {K} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
