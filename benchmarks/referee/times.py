"""CPU times of a tree against those of the baseline, in turns, so that both have the same neighbours."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BASELINE = "db00f0c"
SLOWER = 1.03  # what counts as slower
AT_LEAST, MOST = 0.03, 300  # seconds that a measurement takes, and runs in it: short ones find quiet moments
LONG, FEWEST = 0.2, 9  # seconds of a run that is repeated so few times only
QUIET = 0.25  # the quantile of times that are compared: neighbours on a shared machine only ever add
AGAIN = 3  # pairs of fresh processes for what seems slower
COLUMNS = f"{'':26}{'base':>10}{'now':>10}{'ratio':>9}{'95 %':>16}{'minima':>9}"


class Worker:
    """A process with the library of one tree."""

    def __init__(self, tree: Path) -> None:
        cache = os.environ.get("NUMBA_CACHE_DIR", str(ROOT / "build" / "referee" / "numba"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.referee.worker", str(tree.resolve())],
            cwd=ROOT,
            env=os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, name: str, times: int) -> float:
        """CPU seconds of one run of a task."""
        print(f"{name};{times}", file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline() if self.process.stdout else ""
        if not answer:
            raise RuntimeError(f"the process that ran {name!r} has ended; see its error above")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def workers(base: Path, tree: Path) -> Iterator[tuple[Worker, Worker]]:
    """A process of either tree."""
    pair = Worker(base), Worker(tree)
    try:
        yield pair
    finally:
        for worker in pair:
            worker.close()


@dataclass(frozen=True)
class Comparison:
    """Pairs of times, one after the other: those of the baseline, and those of now."""

    base: Any
    now: Any

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(np.append(self.base, other.base), np.append(self.now, other.now))

    @property
    def ratio(self) -> float:
        """The ratio of the times in quiet moments."""
        return float(np.quantile(self.now, QUIET) / np.quantile(self.base, QUIET))

    @property
    def interval(self) -> tuple[float, float]:
        """Where 95 % of the ratios of resampled pairs lie."""
        drawn = np.random.default_rng(0).integers(len(self.base), size=(2000, len(self.base)))
        base, now = (np.quantile(each[drawn], QUIET, axis=1) for each in (self.base, self.now))
        low, high = np.quantile(now / base, [0.025, 0.975])
        return float(low), float(high)

    @property
    def minima(self) -> float:
        """The ratio of the shortest times."""
        return float(self.now.min() / self.base.min())

    @property
    def suspect(self) -> bool:
        """Does it seem slower, be it by noise?"""
        return self.ratio > SLOWER

    @property
    def verdict(self) -> str:
        """Slower means: by more than the noise, and by the shortest times too."""
        if not self.suspect:
            return "faster" if self.interval[1] < 1 / SLOWER else "equal"
        return "SLOWER" if self.interval[0] > SLOWER and self.minima > SLOWER else "noise"

    def __str__(self) -> str:
        low, high = self.interval
        times = "".join(f"{1e3 * np.quantile(each, QUIET):8.2f}ms" for each in (self.base, self.now))
        return f"{times}{self.ratio:9.3f}{f'{low:.3f}-{high:.3f}':>16}{self.minima:9.3f}  {self.verdict}"


def compared(pair: tuple[Worker, Worker], name: str, repeats: int) -> Comparison:
    """The times of a task in either process, in turns; the order is reversed with every turn."""
    once = min(worker.seconds(name, 1) for worker in pair)
    times = int(np.clip(np.ceil(AT_LEAST / max(once, 1e-6)), 1, MOST))
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats if once < LONG else min(repeats, FEWEST)):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(pair[which].seconds(name, times))
    return Comparison(*map(np.array, found))


def baseline() -> Path:
    """A checkout of the baseline under build/, made if there is none."""
    place = ROOT / "build" / "referee" / "base"
    if not (place / "src").is_dir():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)  # noqa: S607
        subprocess.run(["git", "worktree", "add", "--detach", str(place), BASELINE], cwd=ROOT, check=True)  # noqa: S607
    return place


def times(tree: Path, base: Path | None = None, only: str | None = None, repeats: int = 25) -> int:
    """Print a table of CPU times against the baseline's; 1 if anything is slower beyond noise."""
    from benchmarks.referee.tasks import TASKS

    base = base or baseline()
    texts = [text.strip() for text in only.split(",")] if only else [""]
    names = [name for name in TASKS if any(text in name for text in texts)]
    began = time.perf_counter()
    if (busy := os.getloadavg()[0]) > 0.75 * (os.cpu_count() or 1):
        print(f"The machine is busy (load {busy:.1f} on {os.cpu_count()} cores): expect much noise.")
    print(COLUMNS, flush=True)
    found: dict[str, Comparison] = {}
    with workers(base, tree) as pair:
        for name in names:
            found[name] = compared(pair, name, repeats)
            print(f"{name:26}{found[name]}", flush=True)
    again = dict.fromkeys((name for name in names if found[name].suspect), Comparison(np.empty(0), np.empty(0)))
    for _ in range(AGAIN if again else 0):
        with workers(base, tree) as pair:
            again = {name: before + compared(pair, name, repeats) for name, before in again.items()}
    if again:
        print(f"\nAgain, in {AGAIN} pairs of fresh processes:\n{COLUMNS}")
    for name, comparison in again.items():
        print(f"{name:26}{comparison}")
    slower = [name for name, comparison in again.items() if comparison.verdict == "SLOWER"]
    told = f"slower beyond noise: {', '.join(slower)}" if slower else f"none slower than {SLOWER} beyond noise"
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = f"{time.perf_counter() - began:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} s of CPU"
    print(f"\n{len(names)} tasks against {BASELINE}: {told} ({seconds}).")
    return int(bool(slower))
