"""What a stream user waits for: ``partial_fit`` in batches of 128 against MiniBatchNMF's, to its best one-pass loss.

    OMP_NUM_THREADS=1 ONMF_DATA=FOLDER python -m benchmarks.stream [--only samson] [--seeds 3]

Both begin with the same uniform dictionary and get the same batches; CPU seconds at one thread, scoring not included.
MiniBatchNMF runs with three forget factors, and the lowest loss on samples that nobody learns from is the goal. The
ratio is our time to that loss over the time of MiniBatchNMF's pass.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.decomposition import MiniBatchNMF

from benchmarks.data_sets import load_piano, load_samson
from onmf import OnlineNMF
from onmf.data.examples import cells
from reproduction.datasets import texts
from reproduction.datasets.matlab import load_yaleb
from reproduction.judge import Scorer

BATCH, HELD_OUT, FACTORS = 128, 300, (0.7, 0.9, 0.99)
LOSSES = {"kl": "kullback-leibler", "is": "itakura-saito", "squared_l2": "frobenius"}
LARGE = 1e6  # mean of the data for MiniBatchNMF under Itakura-Saito: its floor is not relative
SETS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "bbc": (lambda: texts.load_bbc().counts, "kl", 20),
    "newsgroups": (lambda: leading(texts.load_newsgroups()[0].counts), "kl", 20),
    "cells": (lambda: cells(3000, 15_000, 8, 700.0).counts, "kl", 20),
    "yaleb": (lambda: load_yaleb().images, "squared_l2", 40),
    "samson": (lambda: load_samson().pixels, "squared_l2", 3),
    "piano": (load_piano, "is", 5),
}

Course = list[tuple[float, Any]]  # seconds, and the dictionary then


def leading(X: Any) -> Any:
    """The 10,000 words that occur most."""
    return X[:, texts.leading_words(X, 10_000)]


def learnt(model: Any, X: Any, start: dict[str, Any]) -> Course:
    """The dictionaries after more and more batches of one pass; ``start`` goes with the first batch."""
    course: Course = []
    seconds, mark, batches = 0.0, 1.0, range(0, X.shape[0], BATCH)
    for number, first in enumerate(batches, 1):
        batch = X[first : first + BATCH]
        began = time.process_time()
        model.partial_fit(batch, **({name: give(batch) for name, give in start.items()} if number == 1 else {}))
        seconds += time.process_time() - began
        if number >= mark or number == len(batches):
            mark = 1.15 * mark
            course.append((seconds, model.components_.copy()))
    return course


def contest(X: Any, divergence: str, K: int, seed: int) -> tuple[float, float, float]:
    """Our time to MiniBatchNMF's loss over its time, our loss after the pass over its, and its seconds."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(X.shape[0])
    held, X = X[rows[:HELD_OUT]], X[rows[HELD_OUT:]]
    judge = Scorer(divergence, np.asarray(X.mean(axis=0)).ravel(), held)
    W0, unit = rng.random((K, X.shape[1])), LARGE / X.mean() if divergence == "is" else 1.0
    theirs = []
    for factor in FACTORS:
        settings = {"init": "custom", "beta_loss": LOSSES[divergence], "batch_size": BATCH, "forget_factor": factor}
        model = MiniBatchNMF(K, fresh_restarts_max_iter=30, random_state=seed, **settings)
        start = {"W": lambda batch: np.ones((batch.shape[0], K)), "H": lambda batch: unit * X.mean() * W0}
        seconds, W = learnt(model, unit * X, start)[-1]
        theirs.append((judge.best(W).loss, seconds))
    goal, seconds = min(theirs)
    ours = learnt(OnlineNMF(K, divergence=divergence, init=W0, random_state=seed), X, {})
    scores = [(at, judge.best(W).loss) for at, W in ours]
    there = next((at for at, loss in scores if loss <= goal), np.inf)
    return there / seconds, scores[-1][1] / goal, seconds


def main() -> None:
    """Print a line per data set: medians over seeds, and the ratio of each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of data sets that contain this")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, (load, divergence, K) in SETS.items():
        if arguments.only not in name:
            continue
        X = load()
        X = scipy.sparse.csr_matrix(X, dtype=np.float64) if scipy.sparse.issparse(X) else np.asarray(X, np.float64)
        OnlineNMF(K, divergence=divergence, random_state=0).partial_fit(X[:600]).partial_fit(X[:BATCH])  # compiles
        found = [contest(X, divergence, K, seed) for seed in range(10, 10 + arguments.seeds)]
        ratios, losses, seconds = zip(*found, strict=True)
        each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(
            f"{name:11} {divergence:10} K = {K:2}: time {median(ratios):.3f} ({each}) of {median(seconds):.2f} s, "
            f"loss after the pass {median(losses):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
