"""What decided how a device learns: sweeps against pivots, the delay of the weights, agreement with the processor, em's
chunks and exchanges, rounds and first chunks under robust losses, orders of many rows.

    python -m benchmarks.gpu.choices [--samples 200000] [--only sweeps,delays,agreement,sparse,robust,orders]

On the processor, some minutes each; ``robust``, on Yale B, on a GPU (--device cuda --data FOLDER). Where nothing else
is said, the paper's synthetic data with F = 1,000 and K = 40, and losses of held-out samples, relative to those of the
planted dictionary. Prints the figures of docs/decisions/0019-a-gpu.md.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import judge
from benchmarks.gpu.reference import HERE
from benchmarks.gpu.sets import DIVERGENCES, REAL, K, Synthetic, cells, name_of, real
from onmf import OnlineNMF, divergences
from onmf.data.in_memory import Permutation
from onmf.device import surrogate
from onmf.device.problem import ROUNDS, DeviceProblem, rough_coefficients
from onmf.device.quadratic_programmes import descend
from onmf.learner import initialise as beginning
from onmf.methods import EM, Surrogate, exchange
from onmf.methods.base import Averaging
from onmf.model.penalty import NO_PENALTY
from onmf.model.sets import Box

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
    """Print what sweeps of coordinate descent leave of the loss, under squared l2, by their number."""
    drawn = Synthetic("squared_l2")
    model = OnlineNMF(K, divergence="squared_l2", **SETTINGS).fit(drawn.on_host(40_000))
    W = torch.as_tensor(model.components_)
    X = torch.as_tensor(drawn.held_out()[:HELD_OUT])
    problem = DeviceProblem(divergences.get("squared_l2"), X / X.mean(), W, Box(), NO_PENALTY)
    _, _, best = rough_coefficients(problem)
    for count in (6, 30, 100, 300):
        start = problem.start()
        H = descend(problem.products, problem.X @ W.T, start, 1e-8, 1e8, count)
        print(f"{count} sweeps: {float(problem.losses(problem.fit(H)).sum() / best.sum()):.3f} of the least loss")


def delays(samples: int) -> None:
    """Print the loss after some numbers of samples in chunks of 1,024, by the delay of the weights."""
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


class Large(EM):
    """em with the chunks and weights that the surrogate has on a device, one visit and five steps."""

    def usual_chunk(self, clock: float) -> int:
        return max(surrogate.EARLY(clock), surrogate.LATE(clock))

    def weight(self, divergence: Any, clock: float, n: float) -> float:
        return Averaging(surrogate.EXPONENT, surrogate.DELAY)(clock, n, surrogate.UNIT)

    def visits(self, clock: float) -> int:
        return 1

    def effort(self, clock: float) -> int:
        return 1


def sparse(samples: int) -> None:
    """Print the mean loss of em on sparse counts of 20,000 genes, by its chunks and when components are exchanged."""
    usual = exchange.due
    for entries in (230, 800):
        X = cells(samples + 500, entries)
        learnt, held_out = X[:samples], X[samples:]

        def loss(method: EM, learnt: Any = learnt, held_out: Any = held_out) -> float:
            model = OnlineNMF(30, divergence="kl", method=method, random_state=0, batch_size=1024).fit(learnt)
            return model.loss(held_out)

        print(f"{entries} entries drawn: em {loss(EM()):.0f}, in large chunks {loss(Large()):.0f}", flush=True)
        exchange.due = lambda K, before, after, horizon=np.inf: before >= 3000 and usual(K, before, after, horizon)
        late = loss(EM())
        exchange.due = lambda *_: False
        print(f"  exchanges from 3,000 samples on {late:.0f}, none {loss(EM()):.0f}", flush=True)
        exchange.due = usual


def robust(samples: int, device: str, folder: Path | None) -> None:
    """Yale B by rounds, first chunks and the entries that a start sees: the loss of four seeds, of the processor's."""
    divergence, components = REAL["Yale B"]
    X, held_out = real("Yale B", folder)
    reference, passes = json.loads(HERE.read_text())["real"]["Yale B"]["loss"], max(1, 12 * samples // 200_000)
    first, entries = surrogate.ROBUST, beginning.ROBUST
    for rounds, chunks, most in (
        (3, first, 18),
        (3, first, 19),
        (3, first, 20),
        (3, surrogate.EARLY, 19),
        (2, first, 19),
    ):
        surrogate.ROBUST, beginning.ROBUST = chunks, 2**most
        surrogate.rough_coefficients = partial(rough_coefficients, rounds=ROUNDS + rounds - 3)  # type: ignore[assignment]
        found = []
        for seed in range(4):
            settings: dict[str, Any] = {"device": device, "random_state": seed, "max_passes": passes}
            model = OnlineNMF(components, divergence=divergence, **settings).fit(X[:samples])
            found.append(judge.loss(model.components_, divergence, held_out, device) / reference)
        said = ", ".join(f"{each:.4f}" for each in found)
        print(f"{rounds} rounds, first chunks of {chunks.first}, 2^{most} entries: {said}", flush=True)
    surrogate.ROBUST, beginning.ROBUST, surrogate.rough_coefficients = first, entries, rough_coefficients


def orders(n: int = 2_000_000) -> None:
    """How long the first thousand of a random order of two million rows take."""
    for name, draw in (
        ("at once", lambda rng: rng.permutation(n)),
        ("by buckets", lambda rng: Permutation(n, rng).part(0, 1024)),
    ):
        began = time.perf_counter()
        draw(np.random.default_rng(0))
        print(f"{name}: {1e3 * (time.perf_counter() - began):.0f} ms", flush=True)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--only", default="sweeps,delays,agreement,sparse,orders")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, default=None)
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    if "sweeps" in only:
        sweeps()
    if "delays" in only:
        delays(arguments.samples)
    if "agreement" in only:
        agreement(arguments.samples // 5)
    if "sparse" in only:
        sparse(arguments.samples // 2)
    if "robust" in only:
        robust(arguments.samples, arguments.device, arguments.data)
    if "orders" in only:
        orders()


if __name__ == "__main__":
    main()
