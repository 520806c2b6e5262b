"""Two threads against two processes of one thread each, in the same minute: two "cores" may be one.

    python -m benchmarks.threads [--data synthetic_wide,yaleb,news_counts] [--repeats 5] [--out threads.json]

Every process learns the same pass over the same samples several times, and its fastest time counts. The joint speed of
independent processes is what the machine has to offer; 1.0 in the last column would be all of it. Prints a table of
docs/decisions/0004-fast-methods.md; with --out, docs/evidence/benchmarks.md has it too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

from benchmarks.peers.data import SOURCES
from benchmarks.peers.run import THREAD_VARIABLES

ROOT = Path(__file__).resolve().parents[1]


def measured(data: str, threads: int, processes: int, repeats: int) -> float:
    """Seconds of one pass, the mean over the processes that run side by side."""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    command = [sys.executable, "-m", "benchmarks.threads", "--child", data, "--repeats", str(repeats)]
    running = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for child in running:  # all are ready before any begins
        if child.stdout is not None:
            child.stdout.readline()
    for child in running:
        if child.stdin is not None:
            child.stdin.write("go\n")
            child.stdin.flush()
    return sum(float(json.loads(child.communicate()[0])) for child in running) / processes


def learn(data: str, repeats: int) -> None:
    """What a child does: get ready, wait, learn, and write the seconds of its fastest pass."""
    from onmf import OnlineNMF

    warnings.simplefilter("ignore")
    source = SOURCES[data]
    samples = source.samples(source.divergences[-1] if data == "yaleb" else source.divergences[0], "full", 0)
    model = OnlineNMF(samples.K, divergence=samples.divergence, random_state=0)
    model.fit(samples.X)
    print("ready", flush=True)
    sys.stdin.readline()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        model.fit(samples.X)
        seconds.append(time.perf_counter() - started)
    print(json.dumps(min(seconds)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="synthetic_wide,yaleb,news_counts")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        learn(arguments.child, arguments.repeats)
        return
    found = {}
    print("| data | s, one thread | s, two threads | s, each of two processes | speed / joint speed |")
    print("| --- | --- | --- | --- | --- |")
    for data in arguments.data.split(","):
        one, two, beside = (measured(data, *setting, arguments.repeats) for setting in ((1, 1), (2, 1), (1, 2)))
        found[data] = one, two, beside
        print(f"| {data} | {one:.3g} | {two:.3g} | {beside:.3g} | {beside / (2 * two):.2f} |", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
