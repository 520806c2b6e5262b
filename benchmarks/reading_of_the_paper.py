"""The paper's method on its synthetic data, N = 2e4: held-out loss relative to the planted dictionary's.

    python -m benchmarks.reading_of_the_paper [--samples 20000] [--features 200] [--divergences is,kl,...] [--literal]

The canonical setting (N = 1e5, tau = 1e-4 N, a = b = 2e4 = 0.2 N, K = 40) shrinks to any N with the same ratios, so
that N = 2e4 has tau = 2 and a = b = 4000. Prints the table of docs/decisions/0002-reading-of-the-paper.md.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from onmf import OnlineNMF
from onmf.data.examples import CLIP, NOISE_OF, Planted
from onmf.methods import Canonical, Paper
from reproduction.contest import canonical

HELD_OUT = 200
MARKS = (0.0, 0.05, 0.25, 1.0)  # shares of the run at which the held-out loss is measured


def run(name: str, samples: int, features: int, seed: int, scale: str, max_iter: int | None) -> list[float]:
    """Held-out losses at the marks, divided by the planted dictionary's, then the seconds of learning."""
    rng = np.random.default_rng(seed)
    planted = Planted.draw(features, 40, NOISE_OF[name], rng)
    held_out = planted.sample(HELD_OUT, rng).V
    paper = replace(canonical(samples, least_tau=1), max_iter=max_iter)
    still = Paper(step=Canonical(a=1e-12), solver="paper")
    settings = {"divergence": name, "clip": CLIP, "random_state": seed}
    model = OnlineNMF(40, init="uniform", scale=scale, method=paper, **settings)
    # Before the first sample: a model whose dictionary is the initial one (a vanishing step), and the planted one.
    first = planted.sample(200, np.random.default_rng(seed + 1)).V
    start = OnlineNMF(40, init="uniform", scale=scale, method=still, **settings)
    losses = [start.partial_fit(first).loss(held_out)]
    oracle = OnlineNMF(40, init=planted.W, method=still, **settings).partial_fit(first).loss(held_out)

    stream = planted.stream(samples, 200, np.random.default_rng(seed + 1))
    for batch in stream:
        model.partial_fit(batch)
        if len(losses) < len(MARKS) and model.n_samples_seen_ >= MARKS[len(losses)] * samples:
            losses.append(model.loss(held_out))
    return [loss / oracle for loss in losses] + [float(model.history_["seconds"][-1])]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--divergences", default=",".join(NOISE_OF))
    parser.add_argument("--literal", action="store_true", help="scale='none': the data as they are")
    parser.add_argument("--max-iter", type=int, help="limit of the coefficient step while learning")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # the scorer's limit on iterations is the estimator's default
    print("| divergence | " + " | ".join(f"{share:.0%} of the samples" for share in MARKS) + " | s |")
    print("|" + "---|" * (len(MARKS) + 2))
    for name in arguments.divergences.split(","):
        scale = "none" if arguments.literal else "mean"
        *losses, seconds = run(name, arguments.samples, arguments.features, arguments.seed, scale, arguments.max_iter)
        print(f"| {name} | " + " | ".join(f"{loss:.3f}" for loss in losses) + f" | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
