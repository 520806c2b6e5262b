"""How near to the minimum do the paper's coefficient solvers come, and at what cost?

    python -m benchmarks.coefficient_step

On the paper's synthetic data (F = 200, K = 40, a partly learnt dictionary): the excess of the loss over a reference
with many more iterations, the share of samples that count as converged, and microseconds per sample. Prints the
table of docs/decisions/0001-coefficients.md.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from onmf import divergences
from onmf.coefficients import CoefficientSolver
from onmf.coefficients.problem import Problem
from onmf.data.examples import NOISE_OF, Planted
from onmf.methods import Paper

SAMPLES = 100
RUNS = (("paper", 1e-3, 100), ("paper", 1e-3, 1000), ("paper", 1e-4, 5000))
LITERAL = ("armijo-literal", 1e-3, 1000)


def solver_of(divergence: divergences.Divergence, kind: str, tol: float, max_iter: int) -> CoefficientSolver:
    """Return the solver that the paper's method uses; Polyak's step has a tolerance of its own."""
    return Paper(solver=kind).coefficient_solver(divergence).stopping(tol, max_iter)


def main() -> None:
    """Run and print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("| divergence | solver | tol | max_iter | excess | largest excess / d(x‖2x) | converged | µs/sample |")
    print("|---|---|---|---|---|---|---|---|")
    for name, noise in NOISE_OF.items():
        rng = np.random.default_rng(0)
        planted = Planted.draw(200, 40, noise, rng)
        V = planted.sample(SAMPLES, rng).V
        X = np.maximum(V / V.mean(), 1e-6)
        divergence = divergences.get(name).for_data(1.0, 200)
        W = 0.5 * planted.W / planted.W.max() + 0.25 * rng.random(planted.W.shape)
        reference = solver_of(divergence, "paper", 1e-9, 20_000)
        best = divergence.value(X, reference.solve(Problem(divergence, X, W)).H @ W)
        runs = (*RUNS, LITERAL) if divergence.lipschitz is None and divergence.smooth_unless_exact else RUNS
        for kind, tol, max_iter in runs:
            solver = solver_of(divergence, kind, tol, max_iter)
            solver.solve(Problem(divergence, X[:2], W))  # compiles what has to be compiled
            started = time.perf_counter()
            found = solver.solve(Problem(divergence, X, W))
            seconds = time.perf_counter() - started
            excess = divergence.value(X, found.H @ W) - best
            scale = divergence.value(X, 2 * X)
            print(
                f"| {name} | {type(solver).__name__}{' (literal)' if kind == 'armijo-literal' else ''} | {tol:g} "
                f"| {max_iter} | {excess.mean() / best.mean():.1e} | {(excess / scale).max():.1e} "
                f"| {found.converged.mean():.0%} | {1e6 * seconds / SAMPLES:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
