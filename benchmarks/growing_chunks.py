"""How long until the loss that another tree, or chunks of 30, have after one pass of synthetic samples?

    python -m benchmarks.growing_chunks [--against /path/to/another/src] [--samples 50000] [--seeds 6,7,8]

The paper's synthetic data (F = 200, K = 40), the surrogate from a uniform start, one thread, processor time; both learn
the same samples in the same order, interleaved in fresh processes. Held-out losses are found by one precise scorer.
Prints a table of docs/decisions/0004-fast-methods.md; "longer" means that the loss was not reached in these samples.
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

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "src"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
MARKS = 0.7, 0.8, 0.9, 1.0  # of the samples


def curve(divergence: str, method: str, n: int, seed: int) -> list[tuple[int, float, float]]:
    """(samples, seconds, held-out loss) on the way."""
    from onmf import OnlineNMF
    from onmf.data.examples import NOISE_OF, Planted
    from reproduction.judge import Scorer

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    planted = Planted.draw(200, 40, NOISE_OF[divergence], rng)
    X, held_out = planted.sample(n, rng).V, planted.sample(400, rng).V
    settings = {"divergence": divergence, "method": method, "init": "uniform", "random_state": seed}
    OnlineNMF(40, **settings).fit(X[:1000])  # compiled code is loaded
    marks, due = [], [round(share * n) for share in MARKS]
    spent, started = 0.0, time.process_time()

    def look(progress: object) -> None:
        nonlocal spent, started
        spent += time.process_time() - started
        while due and progress.samples >= due[0]:
            due.pop(0)
            marks.append((progress.samples, spent, progress.W.copy()))
        started = time.process_time()

    OnlineNMF(40, **settings, callbacks=[look]).fit(X)
    scorer = Scorer(divergence, X.mean(axis=0), held_out)
    return [(samples, seconds, scorer.best(W, scorer.floors).loss) for samples, seconds, W in marks]


def in_process(source: Path, *arguments: object) -> list[tuple[int, float, float]]:
    """``curve`` with the code of ``source``."""
    environment = os.environ | THREADS | {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--curve", json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Interleave, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the src folder of another checkout; default: chunks of 30")
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--seeds", default="6,7,8")
    parser.add_argument("--divergences", default="kl,is,squared_l2")
    parser.add_argument("--curve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.curve:
        print(json.dumps(curve(*json.loads(arguments.curve))))
        return
    other = (arguments.against, "surrogate") if arguments.against else (HERE, "surrogate:tau=30")
    print("| divergence, seed | before: loss | s | now: loss | s | now / before: loss | s to its loss |")
    print("|---|---|---|---|---|---|---|")
    for divergence in arguments.divergences.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            *_, (_, then, aim) = in_process(other[0], divergence, other[1], arguments.samples, seed)
            points = in_process(HERE, divergence, "surrogate", arguments.samples, seed)
            _, seconds, loss = points[-1]
            reached = [spent for _, spent, value in points if value <= aim]
            ratio = f"{reached[0] / then:.2f}" if reached else "longer"
            row = f"{aim:.5g} | {then:.2f} | {loss:.5g} | {seconds:.2f} | {loss / aim:.4f} | {ratio}"
            print(f"| {divergence}, {seed} | {row} |", flush=True)


if __name__ == "__main__":
    main()
