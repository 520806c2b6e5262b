"""Which solver for the l1 coefficients? Microseconds per sample to a relative excess over the linear programme.

    python -m benchmarks.l1_coefficients

On the paper's synthetic data with 30 % outliers and without noise, for a partly learnt dictionary; time of one
processor. The contenders: the interior-point method; reweighted least squares with a Huber loss whose delta falls
(Newton's solver); ADMM, its linear system factored once and its penalty the best of five; Polyak's steps. Then what few
steps buy while learning, in chunks of 30 samples. Prints the tables of docs/decisions/0005-l1-coefficients.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.optimize
import scipy.sparse
from threadpoolctl import threadpool_limits

from onmf.coefficients import InteriorPoint, Newton, Polyak
from onmf.coefficients.problem import Problem
from onmf.data.examples import Planted
from onmf.divergences import L1, Huber, SquaredL2

SAMPLES = 90
SHAPES = ((200, 40), (1000, 40), (64, 16))
KINDS = ("outliers", "clean")
TARGETS = (1e-3, 1e-6)
LIMIT = 30e-3  # seconds per sample after which a method has lost
LOW = 1e-8

Run = Iterator[tuple[float, np.ndarray]]  # seconds so far, H


def optimum(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """The minima by HiGHS."""
    K, F = W.shape
    eye = scipy.sparse.identity(F)
    equal = scipy.sparse.hstack([scipy.sparse.csr_matrix(W.T), eye, -eye]).tocsc()
    cost, bounds = np.r_[np.zeros(K), np.ones(2 * F)], [(LOW, None)] * K + [(0, None)] * (2 * F)
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = [scipy.optimize.linprog(cost, A_eq=equal, b_eq=x, bounds=bounds, options=options).x[:K] for x in X]
    return L1().value(X, np.array(found) @ W)


def timed(solve: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """The shorter of two runs."""
    seconds = np.inf
    for _ in range(2):
        started = time.process_time()
        H = solve()
        seconds = min(seconds, time.process_time() - started)
    return seconds, H


def interior_point(X: np.ndarray, W: np.ndarray) -> Run:
    """Ever smaller tolerances."""
    for digits in range(5, 21):
        yield timed(lambda tol=10 ** (-0.5 * digits): InteriorPoint(tol=tol).solve(Problem(L1(), X, W)).H)


def falling_delta(X: np.ndarray, W: np.ndarray, factor: float = 0.3, steps: int = 3) -> Run:
    """Huber's loss with delta times 0.3 after every three steps."""
    delta, seconds, H = 0.3, 0.0, Problem(SquaredL2(), X, W).start()
    while delta > 1e-12:
        started = time.process_time()
        H = Newton(tol=0.0, max_iter=steps).solve(Problem(Huber(delta), X, W), H).H
        seconds += time.process_time() - started
        yield seconds, H
        delta *= factor


def admm(X: np.ndarray, W: np.ndarray, penalty: float, check: int = 10) -> Run:
    """min |x - y| + [g >= low] with y = hW, g = h, over-relaxed; H is g."""
    seconds, started = 0.0, time.process_time()
    inverse = np.linalg.inv(W @ W.T + np.eye(len(W)))  # well-conditioned: a product beats two triangular solves
    G = Problem(SquaredL2(), X, W).start()
    Y, P, Q = G @ W, np.zeros_like(X), np.zeros_like(G)
    while True:
        for _ in range(check):
            H = ((Y - P) @ W.T + G - Q) @ inverse
            fit = 1.6 * (H @ W) - 0.6 * Y + P
            R = fit - X
            Y = X + np.sign(R) * np.maximum(np.abs(R) - 1 / penalty, 0.0)
            P = fit - Y
            H = 1.6 * H - 0.6 * G + Q
            G = np.maximum(H, LOW)
            Q = H - G
        seconds += time.process_time() - started
        yield seconds, G
        started = time.process_time()


def polyak(X: np.ndarray, W: np.ndarray) -> Run:
    """Ever more steps to an ever smaller delta."""
    for n in (100, 300, 1000, 3000, 10_000, 30_000):
        started = time.process_time()
        H = Polyak(max_iter=n, delta_tol=3.0 / n**1.5).solve(Problem(L1(), X, W)).H
        yield time.process_time() - started, H


def times_to_targets(run: Run, X: np.ndarray, W: np.ndarray, best: np.ndarray) -> list[float]:
    """Microseconds per sample to each target; infinity if it takes too long."""
    reached = [np.inf] * len(TARGETS)
    for seconds, H in run:
        excess = (L1().value(X, H @ W) - best).mean() / best.mean()
        for i, target in enumerate(TARGETS):
            if excess <= target:
                reached[i] = min(reached[i], 1e6 * seconds / len(X))
        if reached[-1] < np.inf or seconds > LIMIT * len(X):
            break
    return reached


def problem(F: int, K: int, clean: bool, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples and a partly learnt dictionary."""
    rng = np.random.default_rng(0)
    planted = Planted.draw(F, K, "outliers", rng)
    batch = planted.sample(n, rng)
    V = batch.clean if clean else batch.V
    return V / V.mean(), 0.5 * planted.W / planted.W.max() + 0.25 * rng.random(planted.W.shape)


def few_steps(X: np.ndarray, W: np.ndarray, best: np.ndarray) -> Iterator[tuple[str, float, float]]:
    """Solvers that stop early, on chunks of 30 samples: name and steps, excess, microseconds per sample."""
    chunks = [X[i : i + 30] for i in range(0, SAMPLES, 30)]
    runs: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
        (f"{type(solver).__name__} {solver.max_iter}", lambda x, s=solver: s.solve(Problem(L1(), x, W)).H)
        for solver in (
            *(Newton(max_iter=n) for n in (3, 12)),
            *(InteriorPoint(max_iter=n, tol=0.0) for n in (2, 3, 4, 5)),
        )
    ]
    runs += [(f"ADMM {n} at penalty 30", lambda x, n=n: next(admm(x, W, 30.0, n))[1]) for n in (10, 20, 40)]
    for name, solve in runs:
        seconds, H = timed(lambda solve=solve: np.vstack([solve(x) for x in chunks]))
        yield name, (L1().value(X, H @ W) - best).mean() / best.mean(), 1e6 * seconds / SAMPLES


def main() -> None:
    """Run and print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    contenders: dict[str, Callable[[np.ndarray, np.ndarray], list[Run]]] = {
        "interior point": lambda X, W: [interior_point(X, W)],
        "falling delta": lambda X, W: [falling_delta(X, W)],
        "ADMM": lambda X, W: [admm(X, W, penalty) for penalty in (1.0, 3.0, 10.0, 30.0, 100.0)],
        "Polyak": lambda X, W: [polyak(X, W)],
    }
    with threadpool_limits(1, "blas"):
        X, W = problem(*SHAPES[-1], clean=False, n=SAMPLES)
        InteriorPoint().solve(Problem(L1(), X[:40], W))  # compiles what has to be compiled
        Newton(max_iter=2).solve(Problem(Huber(0.1), X[:40], W))
        problems = {(F, K, kind): problem(F, K, kind == "clean", SAMPLES) for F, K in SHAPES for kind in KINDS}
        best = {key: optimum(*pair) for key, pair in problems.items()}
        print("| F | K | data |" + "".join(f" {name}, {t:g} |" for name in contenders for t in TARGETS))
        print("|---|---|---|" + "---|" * (len(contenders) * len(TARGETS)))
        for key, (X, W) in problems.items():
            cells = []
            for runs in contenders.values():
                times = np.min([times_to_targets(run, X, W, best[key]) for run in runs(X, W)], axis=0)
                cells += [f"{t:.0f}" if t < np.inf else "–" for t in times]
            print(f"| {' | '.join(map(str, key))} | {' | '.join(cells)} |", flush=True)
        table = {key: list(few_steps(*pair, best[key])) for key, pair in problems.items()}
        print("\n| solver, steps |" + "".join(f" {F} × {K} {kind} |" for F, K, kind in problems))
        print("|---|" + "---|" * len(problems))
        for row in zip(*table.values(), strict=True):
            print(f"| {row[0][0]} | " + " | ".join(f"{excess:.1e}, {us:.0f} µs" for _, excess, us in row) + " |")


if __name__ == "__main__":
    main()
