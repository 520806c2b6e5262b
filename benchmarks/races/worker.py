"""One race of one contestant, in a process of its own: threads, memory and caches are then its alone.

    python -m benchmarks.races.worker SPECIFICATION.json

The clock runs only while the contestant works: processor time at one thread, which neighbours and pauses of the
machine do not touch, and wall time on all cores. Dictionaries are put on disk at marks and judged when the race is
over, so that the judge disturbs neither the clock nor the memory. Short runs are repeated, for every contestant alike,
and the quickest counts.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse

from benchmarks.races.contestants import CONTESTANTS, Contestant, Task
from benchmarks.races.data import Samples
from benchmarks.races.memory import peak, reset_peak
from onmf.experiments.judge import Scorer
from onmf.initial import initial_dictionary

MARKS_PER_DOUBLING = 2
REPEATS, REPEAT_SECONDS = 7, 1.0  # a run is repeated until so many runs or seconds: one short run alone is noise
PACKAGES = ("onmf", "numpy", "scipy", "scikit-learn", "numba", "gensim", "spams-bin")


@dataclass(frozen=True)
class Mark:
    """A dictionary put aside: after how many samples and seconds, and at the end of which number of passes, if any."""

    samples: int
    seconds: float  # by the clock of the race
    wall: float
    passes: int | None
    file: Path

    def point(self, scorer: Scorer, floors: tuple[float, ...]) -> dict[str, Any]:
        """As it goes on record, judged."""
        score = scorer.best(np.load(self.file), floors)
        place = {"samples": self.samples, "seconds": self.seconds, "wall": self.wall, "passes": self.passes}
        return place | vars(score)


def batch_size(n: int, K: int) -> int:
    """The library's default, max(5 K, 200), or less: peers that update once a batch get some twenty updates a pass."""
    return min(max(5 * K, 200), max(2 * K, -(-n // 20)))


def task_of(samples: Samples, start: str, seed: int, passes: int, threads: int) -> Task:
    """The batches and the initial dictionary that all contestants get."""
    n, K = samples.X.shape[0], samples.K
    rng = np.random.default_rng([seed, 1])
    orders = tuple(np.arange(n) if samples.ordered else rng.permutation(n) for _ in range(passes))
    size = batch_size(n, K)
    W0 = None
    if start != "own":
        first = samples.X[orders[0][:size]]
        first = first.toarray() if scipy.sparse.issparse(first) else first
        W0 = initial_dictionary(start, first / first.mean(), K, np.random.default_rng([seed, 2]))
    return Task(samples.X, K, samples.divergence, W0, orders, size, seed, threads)


def race(contestant: type[Contestant], samples: Samples, task: Task, passes: list[int], limit: float) -> dict[str, Any]:
    """All variants of a contestant: curves of samples, seconds and loss, and the largest growth of memory."""
    wanted = sorted({min(count, contestant.most_passes) for count in passes})
    laps, growth, notes = {}, 0.0, {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # limits of iterations and the like: all are as the race wants them
        for _ in contestant(task.head(max(60, 2 * task.K)), contestant.variants[0]).run(1):
            pass
        for variant in contestant.variants:
            runner = contestant(task, variant)
            name = "" if variant is None else str(variant)
            memory = reset_peak()
            laps[name] = [
                mark
                for count in (wanted if contestant.from_scratch else wanted[-1:])
                for mark in _quickest(runner, task, count, wanted, limit, Path(folder) / f"{name}-{count}")
            ]
            growth = max(growth, peak() - memory)
            notes = runner.notes()
        mean = np.asarray(samples.X.mean(axis=0)).ravel()
        curves = _judged(laps, Scorer(samples.divergence, mean, samples.held_out, samples.clean))
    return {"curves": curves, "peak_mib": growth, **notes}


def _quickest(runner: Contestant, task: Task, passes: int, wanted: list[int], limit: float, stem: Path) -> list[Mark]:
    """Of several runs, which all find the same dictionaries, the one that took the least time; long ones run once."""
    spent, runs = 0.0, []
    while len(runs) < REPEATS and spent < REPEAT_SECONDS:
        runs.append(_run(runner, task, passes, wanted, limit, stem))
        spent += runs[-1][-1].wall if runs[-1] else limit
    return min(runs, key=lambda marks: marks[-1].seconds if marks else 0.0)


def _run(runner: Contestant, task: Task, passes: int, wanted: list[int], limit: float, stem: Path) -> list[Mark]:
    """One run; marks are set twice per doubling of the steps and at the ends of the wanted passes."""
    ends = {count * task.X.shape[0]: count for count in wanted}
    marks, wall, processor, step, due = [], 0.0, 0.0, 0, 1.0
    steps = runner.run(passes)
    while wall < limit:
        started = time.perf_counter(), time.process_time()
        stop = next(steps, None)
        processor += time.process_time() - started[1]
        wall += time.perf_counter() - started[0]
        if stop is None:
            break
        samples, W = stop
        step += 1
        clock = processor if task.threads == 1 else wall
        ended = passes if runner.from_scratch else ends.get(samples)
        if ended is not None or step >= due:
            marks.append(Mark(samples, clock, wall, ended, stem.with_name(f"{stem.name}-{step}.npy")))
            np.save(marks[-1].file, W)
            due = max(step + 1, due * 2 ** (1 / MARKS_PER_DOUBLING))
    return marks


def _judged(laps: dict[str, list[Mark]], scorer: Scorer) -> dict[str, list[dict[str, Any]]]:
    """The curves: of all variants the ends of passes, with every floor; of the best all marks, with the next end's."""
    last = {
        variant: {mark: mark.point(scorer, scorer.floors) for mark in marks if mark.passes or mark is marks[-1]}
        for variant, marks in laps.items()
    }
    best = min(last, key=lambda variant: min((point["loss"] for point in last[variant].values()), default=np.inf))
    curve, floors = [], scorer.floors
    for mark in reversed(laps[best]):
        point = last[best].get(mark) or mark.point(scorer, floors)
        floors = (point["floor"],)
        curve.append(point)
    return {variant: list(points.values()) for variant, points in last.items()} | {best: curve[::-1]}


def versions() -> dict[str, str]:
    """What is installed of the packages that race."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Read a specification, run, and write one line of JSON; an error is a result too."""
    run = json.loads(Path(sys.argv[1]).read_text())
    samples: Samples = joblib.load(run.pop("file"))
    limit, result = run.pop("limit"), run.pop("result")
    try:
        task = task_of(samples, run["start"], run["seed"], max(run["passes"]), run["cores"])
        outcome = race(CONTESTANTS[run["contestant"]], samples, task, run["passes"], limit)
    except Exception as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
    shape = {"n": samples.X.shape[0], "F": samples.X.shape[1], "K": samples.K}
    record = {**run, **shape, **outcome, "versions": versions(), "machine_cores": os.cpu_count()}
    Path(result).write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
