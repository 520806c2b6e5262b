"""Sparse counts: transform and BatchNMF against the baseline's, and held-out losses against online passes.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 ONMF_DATA=FOLDER python -m benchmarks.counts FIGURE

FIGURE is transform, online (one pass), batch, held_out, or dense, which is batch for dense data. CPU seconds at one
thread. Processes of both trees take turns, and ratios are medians over repetitions or seeds. Cells are simulated: 3,000
of 15,000 genes, 4 % of whose entries are not zero.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse

ROOT = Path(__file__).resolve().parents[1]
CELLS = "cells"
TEXTS = ("bbc counts", "bbc tf-idf", "news counts", "news tf-idf")
REPEATS, ROWS = 5, 2000  # of a transform
ITERATIONS, NEAR = 400, 1.001  # multiplicative ones, and the share of their loss that is to be reached
HELD_OUT = 300
DENSE = {
    "Yale B": [("kl", 20), ("squared_l2", 20)],
    "Samson": [("kl", 5)],
    "piano": [("kl", 10), ("is", 5), ("is", 10)],
    "planted": [("kl", 10)],
}
DENSE_ROWS = 1200


def main() -> None:
    """Print a line per data set and number of components."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figure", choices=["transform", "online", "batch", "held_out", "dense"])
    parser.add_argument("--only", default="", help="names of data sets that contain this")
    parser.add_argument("--base", type=Path, help="a checkout of the baseline; made under build/ if left out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.worker:
        answer()
        return
    from benchmarks.referee.times import baseline

    with tempfile.TemporaryDirectory() as folder:
        made = dense if arguments.figure == "dense" else partial(prepared, figure=arguments.figure)
        cases = list(made(Path(folder), only=arguments.only))
        base = None if arguments.figure == "held_out" else Worker(arguments.base or baseline())
        now = Worker(ROOT)
        for case in cases:
            print(
                f"{case['name']:12} K = {case['K']:3}  {FIGURES[arguments.figure](base, now, case, arguments.seeds)}",
                flush=True,
            )


def transform(base: Any, now: Any, case: dict[str, Any], seeds: int) -> str:
    """The ratio of times, and of losses."""
    pairs = []
    for number in range(REPEATS + 1):  # the first compiles
        order = (base, now) if number % 2 else (now, base)
        found = {worker: worker.asked("timed_transform", case) for worker in order}
        pairs.append((found[base], found[now]))
    ratio = median(b["seconds"] / a["seconds"] for a, b in pairs[1:])
    seconds = [median(pair[i]["seconds"] for pair in pairs[1:]) for i in (0, 1)]
    excess = pairs[-1][1]["loss"] / pairs[-1][0]["loss"] - 1
    return f"{seconds[0]:7.3f} s -> {seconds[1]:7.3f} s, ratio {ratio:.3f}; loss {excess:+.1e}"


def online(base: Any, now: Any, case: dict[str, Any], seeds: int) -> str:
    """The ratio of times of one online pass, and of held-out losses."""
    case = case | {"passes": 1, "settings": {}}
    found = []
    for seed in range(-1, seeds):  # the first compiles
        order = (base, now) if seed % 2 else (now, base)
        got = {worker: worker.asked("learnt", case | {"seed": max(seed, 0)}) for worker in order}
        found.append((got[now]["seconds"] / got[base]["seconds"], got[now]["loss"] / got[base]["loss"] - 1))
    times, losses = zip(*found[1:], strict=True)
    each = ", ".join(f"{ratio:.3f} {excess:+.3%}" for ratio, excess in found[1:])
    return f"time ratio {median(times):.3f}, held-out loss {median(losses):+.3%} (each seed: {each})"


def batch(base: Any, now: Any, case: dict[str, Any], seeds: int) -> str:
    """Time to within a thousandth of the loss of multiplicative updates, and the loss at the end."""
    base.asked("multiplicative", case | {"iterations": 2, "seed": 0})
    now.asked("coordinate", case | {"iterations": 2, "seed": 0})
    found = []
    for seed in range(seeds):
        goal = base.asked("multiplicative", case | {"iterations": ITERATIONS, "seed": seed})
        course = now.asked("coordinate", case | {"iterations": ITERATIONS, "seed": seed})
        near = [at for at, loss in course if loss <= NEAR * goal["loss"]]
        found.append(((near[0] if near else np.inf) / goal["seconds"], course[-1][1] / goal["loss"] - 1))
    ratios, excesses = zip(*found, strict=True)
    each = ", ".join(f"{ratio:.3f} {excess:+.3%}" for ratio, excess in found)
    return f"time ratio {median(ratios):.3f}, final loss {median(excesses):+.3%} (each seed: {each})"


def held_out(_: Any, now: Any, case: dict[str, Any], seeds: int) -> str:
    """Loss of samples that were not learnt from, and time, of the default and others against five online passes."""
    ways = {
        "one pass": {},
        "default": {"pseudo_counts": None},
        "without pseudo-counts": {"pseudo_counts": 0.0, "tol": 0.03},
        "without, to the end": {"pseudo_counts": 0.0},
    }
    now.asked("learnt", case | {"seed": 0, "passes": 1, "settings": {"max_iter": 1}})
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for seed in range(seeds):
        five = now.asked("learnt", case | {"seed": seed, "passes": 5, "settings": {}})
        for way, settings in ways.items():
            got = now.asked("learnt", case | {"seed": seed, "passes": 1, "settings": settings})
            found[way].append((got["loss"] / five["loss"] - 1, got["seconds"] / five["seconds"]))
    texts = (
        f"{way} {median(a for a, _ in each):+.2%} in {median(b for _, b in each):.2f}" for way, each in found.items()
    )
    return "against five passes: " + "; ".join(texts)


FIGURES = {"transform": transform, "online": online, "batch": batch, "held_out": held_out, "dense": batch}


def prepared(folder: Path, figure: str, only: str) -> Iterator[dict[str, Any]]:
    """Data sets on disk, with a dictionary each for transform."""
    from onmf import OnlineNMF
    from onmf.data.examples import cells
    from reproduction.datasets import texts

    load = {"bbc": texts.load_bbc, "news": lambda: texts.load_newsgroups()[0]}
    for name in (each for each in (*TEXTS, CELLS) if only in each):
        source, _, form = name.partition(" ")
        if name == CELLS:
            X = cells(3000, 15_000, 8, 700.0).counts
        else:
            X = load[source]().counts
            X = X if form == "counts" else texts.tfidf(X)
            X = X[:, texts.leading_words(X, 10_000)]
        X = scipy.sparse.csr_matrix(X, dtype=np.float64)
        X.sort_indices()
        scipy.sparse.save_npz(path := folder / f"{name}.npz", X, compressed=False)
        for K in (6, 20) if name == CELLS else (20, 50):
            case = {"name": name, "K": K, "data": str(path), "W": str(folder / f"{name}{K}.npy")}
            if figure == "transform":
                np.save(case["W"], OnlineNMF(K, random_state=0).fit(X).components_)
            yield case


def dense(folder: Path, only: str) -> Iterator[dict[str, Any]]:
    """Dense data on disk; planted are Poisson counts of ten components."""
    from benchmarks.data_sets import load_piano, load_samson
    from reproduction.datasets.matlab import load_yaleb

    rng = np.random.default_rng(0)
    planted = rng.poisson(20 * rng.gamma(0.5, 1, (2000, 10)) @ rng.gamma(0.5, 1, (10, 200)))
    load = {
        "Yale B": lambda: load_yaleb().images,
        "Samson": lambda: load_samson().pixels,
        "piano": load_piano,
        "planted": lambda: planted,
    }
    for name in (each for each in DENSE if only in each):
        X = np.asarray(load[name](), dtype=np.float64)
        np.save(path := folder / f"{name}.npy", X[np.random.default_rng(1).permutation(len(X))[:DENSE_ROWS]])
        for divergence, K in DENSE[name]:
            settings = {"divergence": divergence, "solver": "surrogate"}
            yield {"name": f"{name} {divergence}", "K": K, "data": str(path), "settings": settings}


class Worker:
    """A process with the library of one tree, which answers questions."""

    def __init__(self, tree: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.counts", "transform", "--worker"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def asked(self, question: str, case: dict[str, Any]) -> Any:
        """The answer to a question about a case."""
        print(json.dumps([question, case]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline() if self.process.stdout else "")


def answer() -> None:
    """Answer lines until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed must not get among the answers
    for line in sys.stdin:
        question, case = json.loads(line)
        load = np.load if case["data"].endswith(".npy") else scipy.sparse.load_npz
        print(json.dumps(QUESTIONS[question](load(case["data"]), case)), file=answers, flush=True)


def timed_transform(X: Any, case: dict[str, Any]) -> dict[str, float]:
    """Seconds of a transform by the same dictionary in both trees, and the loss."""
    from onmf import BatchNMF

    W = np.load(case["W"])
    model = BatchNMF(len(W), fixed=W, max_iter=1, tol=0).fit(X[:50])
    began = time.process_time()
    model.transform(X[:ROWS])
    return {"seconds": time.process_time() - began, "loss": model.loss(X[:500])}


def multiplicative(X: Any, case: dict[str, Any]) -> dict[str, float]:
    """Seconds and loss of the baseline's batch updates."""
    from onmf import BatchNMF

    settings = {"divergence": case.get("settings", {}).get("divergence", "kl"), "random_state": case["seed"]}
    began = time.process_time()
    model = BatchNMF(case["K"], max_iter=case["iterations"], tol=0, **settings).fit(X)
    return {"seconds": time.process_time() - began, "loss": float(model.history_["loss"][-1])}


def coordinate(X: Any, case: dict[str, Any]) -> list[tuple[float, float]]:
    """Seconds and loss after every iteration of coordinate descent without pseudo-counts, or of second-order steps."""
    from onmf import BatchNMF

    course: list[tuple[float, float]] = []
    began = time.process_time()
    look = [lambda progress: course.append((time.process_time() - began, progress.loss))]
    settings = {"max_iter": case["iterations"], "random_state": case["seed"], "callbacks": look}
    BatchNMF(case["K"], pseudo_counts=0, **settings, **case.get("settings", {})).fit(X)
    return course


def learnt(X: Any, case: dict[str, Any]) -> dict[str, float]:
    """Seconds of learning from all but some samples, and their loss; settings mean BatchNMF."""
    from onmf import BatchNMF, OnlineNMF

    rows = np.random.default_rng(case["seed"]).permutation(X.shape[0])
    held, X = X[rows[:HELD_OUT]], X[rows[HELD_OUT:]]
    model: Any = OnlineNMF(case["K"], max_passes=case["passes"], random_state=case["seed"])
    if case["settings"]:
        model = BatchNMF(case["K"], random_state=case["seed"], **case["settings"])
    began = time.process_time()
    model.fit(X)
    return {"seconds": time.process_time() - began, "loss": model.loss(held)}


QUESTIONS = {each.__name__: each for each in (timed_transform, multiplicative, coordinate, learnt)}

if __name__ == "__main__":
    main()
