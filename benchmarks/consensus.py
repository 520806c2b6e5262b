"""Is the consensus of several runs closer to planted programmes than a single run, and does a wrong K show?

    python -m benchmarks.consensus

Simulated cells (``onmf.data.examples``), three draws each: few programmes and more, many counts per cell and few. Ten
runs, default settings. Printed are the stability at the planted number of programmes K, at two less to
two more, and the mean cosine of planted programmes with the components matched with them: the median of ten single
runs, the worst of them, and the consensus.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment

import onmf
from onmf._support.arrays import Array
from onmf.data import examples
from onmf.data.examples import Cells
from onmf.insight.features import directions
from onmf.selection.consensus import PASSES

CASES = ((5, 500), (5, 100), (8, 500), (8, 100))  # programmes, counts per cell
NUMBER, GENES, SEEDS, DRAWS = 500, 200, 10, 3


def likeness(W: Array, cells: Cells) -> float:
    """The mean cosine of matched components."""
    cosines = directions(W) @ directions(cells.programmes).T
    return float(cosines[linear_sum_assignment(cosines, maximize=True)].mean())


def main() -> None:
    """A line per case and draw."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    print(" K  depth  draw  stability at K-2 ... K+2             single (worst)   consensus  seconds")
    for (K, depth), draw in ((case, draw) for case in CASES for draw in range(DRAWS)):
        started = time.process_time()
        cells = examples.cells(NUMBER, GENES, K, depth, draw)
        found = {k: onmf.consensus(cells.counts, k, SEEDS, random_state=draw) for k in range(K - 2, K + 3)}
        runs = [onmf.OnlineNMF(K, max_passes=PASSES, random_state=seed).fit(cells.counts) for seed in range(SEEDS)]
        alike = [likeness(run.components_, cells) for run in runs]
        steady = "  ".join(f"{each.stability:.3f}" for each in found.values())
        print(
            f"{K:2d}  {depth:5d}  {draw:4d}  {steady}  {np.median(alike):.3f} ({min(alike):.3f})  "
            f"{likeness(found[K].components, cells):.3f}  {time.process_time() - started:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
