"""One run of one contestant, in a process of its own: threads, memory and caches are then its alone.

    python -m benchmarks.peers.worker SPECIFICATION.json

The record has the curves of all variants, judged on held-out samples, and the growth of memory while they ran.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse

from benchmarks.peers.contestants import CONTESTANTS, Entry
from benchmarks.peers.data import Samples
from benchmarks.peers.memory import peak, reset_peak
from onmf.data import Rows
from onmf.learner.initialise import initial_dictionary
from reproduction.contest import Mark, Task, timed_run, warm_up
from reproduction.judge import Scorer

MARKS_PER_DOUBLING = 2
REPEATS, ENOUGH = 3, 0.5  # a short run is repeated so many times, or until so many seconds are spent
PACKAGES = ("onmf", "numpy", "scipy", "scikit-learn", "numba", "gensim", "spams-bin", "nmf-rs")


def pace() -> float:
    """Processor seconds of a fixed piece of work: how much a busy machine slows down what runs beside others."""
    X = np.random.default_rng(0).random((500, 500))
    times = []
    for _ in range(3):
        started = time.process_time()
        for _ in range(4):
            X = np.sqrt(np.abs(X @ X / 500 + np.log1p(X)))
        times.append(time.process_time() - started)
    return min(times)


def batch_size(n: int, K: int) -> int:
    """The library's default, max(5 K, 200), or less: peers that update once a batch get some twenty updates a pass."""
    return min(max(5 * K, 200), max(2 * K, -(-n // 20)))


def samples_of(X: Any) -> Any:
    """X as the library has it."""
    from onmf.samples import Samples as OfLibrary

    return OfLibrary(X)


def task_of(samples: Samples, start: str, seed: int, threads: int) -> Task:
    """The batches and the initial dictionary that all contestants get."""
    size, shuffled = batch_size(samples.X.shape[0], samples.K), not samples.ordered
    task = Task(Rows(samples.X), samples.divergence, samples.K, None, seed, size, shuffled, threads)
    if start == "own":
        return task
    _, first = next(task.batches())
    first = first.toarray() if scipy.sparse.issparse(first) else first
    W0 = initial_dictionary(start, samples_of(first / first.mean()), samples.K, np.random.default_rng([seed, 2]))
    return replace(task, W0=W0)


def result(entry: Entry, samples: Samples, task: Task, passes: list[int], limit: float) -> dict[str, Any]:
    """All variants of a contestant: curves of samples, seconds and loss, and the largest growth of memory."""
    wanted = sorted({min(count, entry.most_passes) for count in passes})
    ends = {count * task.n: count for count in wanted}
    options: dict[str, Any] = {"ends": ends, "marks_per_doubling": MARKS_PER_DOUBLING, "limit": limit}
    if entry.from_scratch:
        options = {"ends": {}, "marks_per_doubling": 0}
    laps, growth, notes = {}, 0.0, {}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # limits on iterations and the like: all are as the benchmark wants them
        folder = Path(name)
        warm_up(entry.contestant, task, next(iter(entry.variants.values())), folder)
        for variant, settings in entry.variants.items():
            contestant = entry.contestant(task, settings)
            memory = reset_peak()
            laps[variant] = [
                mark
                for count in (wanted if entry.from_scratch else wanted[-1:])
                for mark in timed_run(
                    contestant, folder / f"{variant}-{count}", count, repeats=REPEATS, enough=ENOUGH, **options
                )
            ]
            growth = max(growth, peak() - memory)
            notes = contestant.notes()
        mean = np.asarray(samples.X.mean(axis=0)).ravel()
        curves = _judged(laps, Scorer(samples.divergence, mean, samples.held_out, samples.clean))
    return {"curves": curves, "peak_mib": growth, **notes}


def _judged(laps: dict[str, list[Mark]], scorer: Scorer) -> dict[str, list[dict[str, Any]]]:
    """The curves: for each variant the ends of passes, with every floor; for the best all marks, with the floor of
    the next end.
    """
    last = {
        variant: {mark: _point(mark, scorer, scorer.floors) for mark in marks if mark.passes or mark is marks[-1]}
        for variant, marks in laps.items()
    }
    best = min(last, key=lambda variant: min((point["loss"] for point in last[variant].values()), default=np.inf))
    curve, floors = [], scorer.floors
    for mark in reversed(laps[best]):
        point = last[best].get(mark) or _point(mark, scorer, floors)
        floors = (point["floor"],)
        curve.append(point)
    return {variant: list(points.values()) for variant, points in last.items()} | {best: curve[::-1]}


def _point(mark: Mark, scorer: Scorer, floors: tuple[float, ...]) -> dict[str, Any]:
    place = {"samples": mark.samples, "seconds": mark.seconds, "wall": mark.wall, "passes": mark.passes}
    return place | vars(scorer.best(mark.W, floors))


def versions() -> dict[str, str]:
    """What is installed of the packages that are compared."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Read a specification, run, and write one line of JSON; an error is a result too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specification", type=Path, help="a JSON file that benchmarks.peers.run writes")
    run = json.loads(parser.parse_args().specification.read_text())
    samples: Samples = joblib.load(run.pop("file"))
    limit, file = run.pop("limit"), run.pop("result")
    before = pace()
    try:
        task = task_of(samples, run["start"], run["seed"], run["cores"])
        outcome = result(CONTESTANTS[run["contestant"]], samples, task, run["passes"], limit)
    except Exception as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
    shape = {"n": samples.X.shape[0], "F": samples.X.shape[1], "K": samples.K}
    record = {
        **run,
        **shape,
        **outcome,
        "pace": [before, pace()],
        "versions": versions(),
        "machine_cores": os.cpu_count(),
    }
    Path(file).write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
