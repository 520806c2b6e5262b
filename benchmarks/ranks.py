"""Does ``select_rank`` find the number of components that was planted, and what does it say of BBC News?

    python -m benchmarks.ranks             # planted: K = 3, 5, 10, 20 at four levels of noise
    python -m benchmarks.ranks planted 1   # the same with other draws of the data
    python -m benchmarks.ranks bbc         # ONMF_DATA must say where the data are
    python -m benchmarks.ranks cells       # 4,000 simulated cells with 17,000 genes, ranks 2 to 20: CPU time

Planted are 2000 samples of 100 features: Poisson counts around H W, the entries of both from the gamma distribution of
shape 0.5, so that components overlap but none is a mixture of the others. Means of 100, 20 and 5 counts per entry are
the three levels of noise; a mean of 2 shows where the end is. Ranks from 2 to 30 are tried, with the default settings.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import numpy as np

import onmf
from onmf.data import examples
from reproduction.datasets import texts
from reproduction.datasets.texts import leading_words

SAMPLES, FEATURES, SHAPE = 2000, 100, 0.5
RANKS, MEANS = (3, 5, 10, 20), (100, 20, 5, 2)
NEWS_RANKS = (*range(2, 13), 15, 20, 25, 30, 40)
WORDS = 2000  # of BBC News, the most frequent ones


def planted(K: int, mean: float, draw: int) -> np.ndarray:
    """Counts with so many components beneath them."""
    rng = np.random.default_rng([K, mean, draw])
    W, H = rng.gamma(SHAPE, 1.0, (K, FEATURES)), rng.gamma(SHAPE, 1.0, (SAMPLES, K))
    return rng.poisson(mean * (H @ W) / (H @ W).mean()).astype(float)


def find_planted(draw: int) -> None:
    """A line per number of components and level of noise."""
    print("  K  mean  recommended  best  stability there  at the next rank  tried  seconds")
    for mean, K in product(MEANS, RANKS):
        started = time.process_time()
        found = onmf.select_rank(planted(K, mean, draw), range(2, 31), random_state=draw)
        seconds = time.process_time() - started
        same = dict(zip(found.ranks, found.stability, strict=True))
        print(
            f"{K:3d}  {mean:4d}  {found.recommended:11d}  {found.best:4d}  {same[found.recommended]:15.3f}  "
            f"{same.get(found.recommended + 1, np.nan):16.3f}  {len(found.ranks):5d}  {seconds:7.0f}",
            flush=True,
        )


def show_bbc() -> None:
    """Both criteria as they come out."""
    started = time.process_time()
    counts = texts.load_bbc().counts
    counts = counts[:, leading_words(counts, WORDS)]
    found = onmf.select_rank(counts, NEWS_RANKS, random_state=0, verbose=1)
    print(f"{counts.shape[0]} articles, {counts.shape[1]} words; {time.process_time() - started:.0f} s")
    print(found)


def time_cells() -> None:
    """CPU time with and without stopping early, once all is compiled."""
    for patience in (5, None):
        X = examples.cells(4000, 17_000, 10, depth=900).counts
        onmf.select_rank(X[:200], (2, 3), n_seeds=2, random_state=0)
        started = time.process_time()
        found = onmf.select_rank(X, range(2, 21), patience=patience, random_state=0)
        seconds, entries = time.process_time() - started, X.nnz / X.shape[0] / X.shape[1]
        said = f"patience {patience}: rank {found.recommended} of {found.ranks[0]} to {found.ranks[-1]}"
        print(f"{said}, {seconds:.0f} s; {entries:.1%} of the entries are not zero", flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", choices=("planted", "bbc", "cells"), default="planted")
    parser.add_argument("seed", nargs="?", type=int, default=0, help="of the planted data")
    arguments = parser.parse_args()
    {"bbc": show_bbc, "cells": time_cells}.get(arguments.data, lambda: find_planted(arguments.seed))()


if __name__ == "__main__":
    main()
