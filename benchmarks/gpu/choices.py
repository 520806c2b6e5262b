"""What decided how a device learns: sweeps against pivots, the delay of the weights, agreement with the processor.

    python -m benchmarks.gpu.choices [--samples 200000] [--only sweeps,delays,agreement]

On the processor, some minutes each; the paper's synthetic data with F = 1,000 and K = 40. Losses are of held-out
samples, relative to those of the planted dictionary. Prints the figures of docs/decisions/0019-a-gpu.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from benchmarks.gpu import judge
from benchmarks.gpu.sets import DIVERGENCES, K, Synthetic, name_of
from onmf import OnlineNMF, divergences
from onmf.device.descent import descend
from onmf.device.problem import Problem, hurried
from onmf.methods import Surrogate
from onmf.methods.schedules import Averaging
from onmf.problem import NO_PENALTY
from onmf.sets import Box

CHUNK = 1024
HELD_OUT = 300
SETTINGS: dict[str, Any] = {"method": f"surrogate:tau={CHUNK}", "batch_size": CHUNK, "random_state": 0}


class Delayed(Surrogate):
    """The surrogate with other weights."""

    delay = 2.0

    def weight(self, divergence: Any, clock: float, n: float) -> float:
        return Averaging(0.65, self.delay)(clock, n, self.tau or CHUNK)


def relative(W: Any, divergence: str) -> float:
    """Its loss, in units of that of the truth."""
    drawn, name = Synthetic(divergence), name_of(divergence)
    held_out = drawn.held_out()[:HELD_OUT]
    return judge.loss(W, name, held_out, "cpu") / judge.loss(drawn.planted.W, name, held_out, "cpu")


def sweeps() -> None:
    """What so many sweeps of coordinate descent leave of the loss, under squared l2."""
    drawn = Synthetic("squared_l2")
    model = OnlineNMF(K, divergence="squared_l2", **SETTINGS).fit(drawn.on_host(40_000))
    W = torch.as_tensor(model.components_)
    X = torch.as_tensor(drawn.held_out()[:HELD_OUT])
    problem = Problem(divergences.get("squared_l2"), X / X.mean(), W, Box(), NO_PENALTY)
    _, _, best = hurried(problem)
    for count in (6, 30, 100, 300):
        start = problem.start()
        H = descend(problem.products, problem.X @ W.T, start, 1e-8, 1e8, count)
        print(f"{count} sweeps: {float(problem.losses(problem.fit(H)).sum() / best.sum()):.3f} of the least loss")


def delays(samples: int) -> None:
    """The loss after so many samples in chunks of 1,024, by the delay of the weights."""
    for divergence in ("kl", "squared_l2"):
        X = Synthetic(divergence).on_host(samples)
        for delay in (2.0, 10.0, 30.0, 100.0):
            method = type("Own", (Delayed,), {"delay": delay})(tau=CHUNK)
            model = OnlineNMF(K, divergence=divergence, method=method, batch_size=CHUNK, random_state=0).fit(X)
            print(f"{divergence}, delay {delay:g}: {relative(model.components_, divergence):.4f}", flush=True)


def agreement(samples: int) -> None:
    """Processor and PyTorch with the same chunks."""
    for divergence in DIVERGENCES:
        X = Synthetic(divergence).on_host(samples)
        models = (
            OnlineNMF(K, divergence=name_of(divergence), device=each, **SETTINGS).fit(X) for each in (None, "cpu")
        )
        found = [relative(model.components_, divergence) for model in models]
        print(f"{divergence}: {found[0]:.5f} and {found[1]:.5f}", flush=True)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--only", default="sweeps,delays,agreement")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    if "sweeps" in only:
        sweeps()
    if "delays" in only:
        delays(arguments.samples)
    if "agreement" in only:
        agreement(arguments.samples // 5)


if __name__ == "__main__":
    main()
