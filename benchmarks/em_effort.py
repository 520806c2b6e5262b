"""Coefficient steps and floor of em in a long run: five, ten or twenty steps throughout, or the default.

    python -m benchmarks.em_effort [--data FOLDER]

The default makes five steps and later ten and twenty, and lets its floor fall with evidence; the last column is the
default with a floor that does not fall. BBC News as in ``python -m reproduction topics --size paper``, five times its
100,000 samples from three uniformly random dictionaries; the training loss divided by that at which batch updates
stop.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from onmf import BatchNMF, OnlineNMF
from onmf.data import repeat
from onmf.methods import EM
from onmf.methods import em as evidence
from reproduction.contest import MOST_ITERATIONS
from reproduction.datasets import texts
from reproduction.topics import PASSES, SIZES, documents
from reproduction.trial import uniform_start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    problem = documents(texts.load_bbc(arguments.data), *SIZES["paper"], 0)
    V, K, judge = problem.source.X[problem.learnt], problem.K, problem.train
    print("| start | five | ten | twenty | default | constant floor |\n|---|---|---|---|---|---|")
    falls = evidence.ENOUGH_EVIDENCE
    for start in range(3):
        W0 = uniform_start(K, V.shape[1], start)
        batch = BatchNMF(K, init=W0, solver="multiplicative", max_iter=MOST_ITERATIONS, tol=1e-5).fit(V)
        goal, cells = judge.best(batch.components_).loss, []
        for steps, sure in ((5, falls), (10, falls), (20, falls), (None, falls), (None, float("inf"))):
            evidence.ENOUGH_EVIDENCE = sure
            model = OnlineNMF(K, method=EM(max_iter=steps), init=W0, shuffle=False, batch_size=200, random_state=0)
            W = model.fit(repeat(problem.source, PASSES)).components_
            cells.append(f"{judge.best(W).loss / goal:.5f}")
        print(f"| {start} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
