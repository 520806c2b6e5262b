"""Where the fast method's time goes: µs per sample by stage, and the rate of its products against plain gemm.

    python -m benchmarks.where_the_time_goes

Kullback-Leibler on random data of four sizes, chunks of 30, in double [single] precision. The products are the Hessians
of the coefficients and the statistics of the dictionary, F K (K + 1) multiplications and additions a sample each; their
share of the gemm rate is what they alone would take at that rate, divided by the time of the whole. The last columns
are whole passes with one thread and with two. Prints the table of docs/decisions/0004-fast-methods.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from onmf import OnlineNMF, Sets
from onmf._support import threads
from onmf.coefficients.problem import Problem
from onmf.divergences import KullbackLeibler
from onmf.methods import Surrogate

SIZES = ((200, 40), (1000, 40), (1024, 100), (10000, 20))
CHUNK = 30


def best(function: Callable[[], object], repeats: int = 7) -> float:
    """The shortest of several runs, in seconds."""
    function()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def gemm_rate(dtype: type) -> float:
    """Floating-point operations a second of a square product."""
    A = np.ones((1500, 1500), dtype=dtype)
    return 2 * 1500**3 / best(lambda: A @ A, 5)


def samples(F: int, K: int, n: int, dtype: type) -> np.ndarray:
    """Noisy products of random dictionaries and coefficients."""
    rng = np.random.default_rng(0)
    clean = rng.gamma(1.0, 1.0, (n, K)) @ rng.random((K, F))
    return (clean * rng.gamma(100.0, 0.01, clean.shape)).astype(dtype)


def stages(F: int, K: int, dtype: type) -> tuple[float, float]:
    """Seconds per sample of the coefficients and of the dictionary."""
    X = samples(F, K, CHUNK, dtype)
    divergence, method = KullbackLeibler(), Surrogate()
    state = method.start(divergence, np.random.default_rng(1).random((K, F)).astype(dtype), Sets().dictionaries)
    problem, solver = Problem(divergence, X, state.W), method.coefficient_solver(divergence)
    H = solver.solve(problem).H
    solve = best(lambda: solver.solve(Problem(divergence, X, state.W)))
    learn = best(lambda: method.update(state, problem, H, problem.fit(H), CHUNK))
    return solve / CHUNK, learn / CHUNK


def whole_pass(F: int, K: int, dtype: type, count: int) -> float:
    """Seconds per sample of partial_fit, after a first batch."""
    X = samples(F, K, 600, dtype)
    with threadpool_limits(count):
        model = OnlineNMF(K, random_state=0).partial_fit(X)
        return best(lambda: model.partial_fit(X), 3) / len(X)


def main() -> None:
    """Run and print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with threadpool_limits(1):
        rates = {dtype: gemm_rate(dtype) for dtype in (np.float64, np.float32)}
    print(f"gemm, one thread: {rates[np.float64] / 1e9:.0f} GFlop/s [{rates[np.float32] / 1e9:.0f}]\n")
    print("| F, K | coefficients | dictionary | products' share of gemm rate | pass, 1 thread | pass, 2 threads |")
    print("|---|---|---|---|---|---|")
    for F, K in SIZES:
        cells: list[list[str]] = [[], [], [], [], []]
        for dtype in (np.float64, np.float32):
            with threadpool_limits(1), threads.own_threads():
                solve, learn = stages(F, K, dtype)
            one, two = (whole_pass(F, K, dtype, count) for count in (1, 2))
            share = 2 * F * K * (K + 1) / rates[dtype] / (solve + learn)
            values = [f"{1e6 * solve:.0f}", f"{1e6 * learn:.0f}", f"{100 * share:.0f} %"]
            values += [f"{1e6 * one:.0f}", f"{1e6 * two:.0f} ({one / two:.2f}x)"]
            for cell, value in zip(cells, values, strict=True):
                cell.append(value)
        print(f"| {F}, {K} | " + " | ".join(f"{double} [{single}]" for double, single in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
