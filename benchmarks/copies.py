"""A sample of weight w against w copies of it, learnt online: held-out loss of the one over that of the other.

    python -m benchmarks.copies [--seeds 12]

Planted data (100 features, ten components, 2,000 samples of weights 1 to 4), the copies in random order, 1,000 held-out
samples; under Huber both are judged by the delta that the copies led to.
"""

from __future__ import annotations

import argparse

import numpy as np

from onmf import OnlineNMF
from onmf.divergences import Huber

F, K, N, HELD_OUT = 100, 10, 2000, 1000
DIVERGENCES = ("kl", "is", "squared_l2", "huber")


def noisy(Y: np.ndarray, divergence: str, rng: np.random.Generator) -> np.ndarray:
    """The noise that suits the divergence."""
    if divergence == "kl":
        return rng.poisson(Y).astype(float)
    if divergence == "is":
        return Y * rng.gamma(5.0, 0.2, Y.shape)
    X = np.maximum(Y + rng.normal(0.0, 0.1 * Y.mean(), Y.shape), 0.0)
    if divergence == "huber":
        X = np.where(rng.random(Y.shape) < 0.05, rng.uniform(0.0, Y.max(), Y.shape), X)
    return X


def ratio(divergence: str, passes: int, seed: int) -> float:
    """The loss of the weighted fit over that of the copies."""
    rng = np.random.default_rng(seed)
    W = rng.gamma(0.5, 1.0, (K, F)) + 1e-3
    X, held_out = (noisy(10.0 * rng.gamma(0.5, 1.0, (n, K)) @ W, divergence, rng) for n in (N, HELD_OUT))
    weights = rng.integers(1, 5, N)
    copies = rng.permutation(np.repeat(X, weights, axis=0))
    settings = {"divergence": divergence, "random_state": seed, "max_passes": passes}
    weighted = OnlineNMF(K, **settings).fit(X, sample_weight=weights)
    repeated = OnlineNMF(K, **settings).fit(copies)
    if divergence != "huber":
        return weighted.loss(held_out) / repeated.loss(held_out)
    judge = Huber(repeated.delta_)
    fits = [model.inverse_transform(model.transform(held_out)) for model in (weighted, repeated)]
    return float(judge.value(held_out, fits[0]).mean() / judge.value(held_out, fits[1]).mean())


def main() -> None:
    """A line of the table for each divergence and number of passes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    seeds = range(parser.parse_args().seeds)
    for divergence in DIVERGENCES:
        for passes in (1, 5):
            found = [ratio(divergence, passes, seed) for seed in seeds]
            print(
                f"| {divergence} | {passes} | {np.median(found):.3f} | {min(found):.3f} | {max(found):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
