"""The steps of method "paper" on real data: held-out losses after so many samples, beside Batch and the default method.

    python -m benchmarks.paper_step [--sets "samson;piano"] [--methods "paper;auto;batch"] [--seeds 0,1,2]

All start from the same dictionary, uniformly random, on the piano by k-means++; samples are drawn in shuffled passes.
Batch makes 300 iterations. ``docs/decisions/0010-a-step-without-tuning.md`` is made of this table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.data_sets import load_movielens
from benchmarks.peers.data import SOURCES
from benchmarks.peers.data.base import Samples, split
from onmf import BatchNMF, OnlineNMF
from onmf.methods import steps as adaptive
from onmf.methods import steps as averages
from reproduction.judge import Scorer
from reproduction.topics import CORPORA, SIZES, documents
from reproduction.trial import huber

READ = 200  # samples at a time


def _corpus(name: str) -> Callable[[np.random.Generator], Samples]:
    def draw(rng: np.random.Generator) -> Samples:
        words, _, most, judged = SIZES["paper"]
        found = documents(CORPORA[name](None), words, 1, most, judged, int(rng.integers(1000)))
        return Samples(found.source.X[found.learnt], found.held_out.V.copy(), found.K, "kl")

    return draw


def _of_peers(name: str, divergence: str) -> Callable[[np.random.Generator], Samples]:
    def draw(rng: np.random.Generator) -> Samples:
        found = SOURCES[name].draw(divergence, False, rng)
        loss = huber(float(found.X.mean())) if divergence == "huber" else divergence
        return Samples(found.X, found.held_out, found.K, loss).usable()

    return draw


def _ratings(rng: np.random.Generator) -> Samples:
    return Samples(*split(load_movielens(), rng), 20, "kl")


def _counts(n: int, F: int) -> Callable[[np.random.Generator], Samples]:
    def draw(rng: np.random.Generator) -> Samples:
        rates = rng.gamma(0.5, 2.0, (n + 200, 5)) @ rng.gamma(0.5, 2.0, (5, F))
        X = rng.poisson(rates).astype(np.float64)
        return Samples(X[:n], X[n:], 5, "kl").usable()

    return draw


SETS = {  # how samples are drawn, how many are learnt from, and the start
    "bbc": (_corpus("BBC News"), 10_000, "uniform"),
    "newsgroups": (_corpus("20 Newsgroups"), 5_000, "uniform"),
    "movielens": (_ratings, 5_000, "uniform"),
    "samson, squared l2": (_of_peers("samson", "squared_l2"), 10_000, "uniform"),
    "samson, kl": (_of_peers("samson", "kl"), 10_000, "uniform"),
    "samson, huber": (_of_peers("samson", "huber"), 10_000, "uniform"),
    "piano": (_of_peers("piano", "is"), 10_000, "kmeans++"),
    "counts of 600 x 37": (_counts(600, 37), 4_800, "kmeans++"),
    "counts of 3000 x 40": (_counts(3000, 40), 24_000, "kmeans++"),
}
METHODS = ("paper:step=canonical,solver=paper", "paper", "auto", "batch")


def batches(X: Any, samples: int, rng: np.random.Generator) -> Iterator[Any]:
    """So many samples, in shuffled passes over X."""
    left = samples
    while left > 0:
        order = rng.permutation(X.shape[0])[:left]
        for first in range(0, len(order), READ):
            yield X[order[first : first + READ]]
        left -= len(order)


def run(data: Samples, method: str, samples: int, init: str, seed: int) -> tuple[float, float]:
    """The held-out loss, and the seconds of processor time that learning took."""
    X = data.X.toarray() if scipy.sparse.issparse(data.X) else data.X
    settings: dict[str, Any] = {"divergence": data.divergence, "init": init, "random_state": seed}
    model: Any
    started = time.process_time()
    if method == "batch":
        model = BatchNMF(data.K, solver="multiplicative", max_iter=300, tol=0.0, **settings).fit(X)
    else:
        model = OnlineNMF(data.K, method=method, **settings)
        for batch in batches(X, samples, np.random.default_rng([seed, 1])):
            model.partial_fit(batch)
    seconds = time.process_time() - started
    return Scorer(data.divergence, X.mean(axis=0), data.held_out).best(model.components_).loss, seconds


def main() -> None:
    """Print one line per set and method: the losses and seconds of all seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=";".join(SETS), help="names or their beginnings, separated by semicolons")
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--samples", type=int, help="in place of each set's own number")
    parser.add_argument("--factors", help="that compete, in place of the usual ones, separated by commas")
    parser.add_argument("--window", type=int, help="of the running means, in mini-batches")
    arguments = parser.parse_args()
    if arguments.factors:
        adaptive.FACTORS = tuple(map(float, arguments.factors.split(",")))
    averages.WINDOW = arguments.window or averages.WINDOW
    warnings.simplefilter("ignore")
    wanted = [each.strip() for each in arguments.sets.split(";")]
    for name, (draw, samples, init) in SETS.items():
        if not any(name.startswith(each) for each in wanted):
            continue
        for method in arguments.methods.split(";"):
            found = []
            for seed in map(int, arguments.seeds.split(",")):
                data = draw(np.random.default_rng(seed))
                found.append(run(data, method, arguments.samples or samples, init, seed))
            losses = ", ".join(f"{loss:.5g}" for loss, _ in found)
            print(f"{name:20} {method:36} {losses:32} {np.mean([s for _, s in found]):.1f} s", flush=True)


if __name__ == "__main__":
    main()
