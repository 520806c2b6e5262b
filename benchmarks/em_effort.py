"""Coefficient steps of em in a long run: five, ten or twenty throughout, or the default, five and later ten.

    python -m benchmarks.em_effort [--data FOLDER]

BBC News as in ``onmf experiments topics --size paper``, one pass over its 100,000 samples from six uniformly random
dictionaries; the training loss divided by that of batch updates on one copy. Takes about a minute.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

from onmf import BatchNMF, OnlineNMF
from onmf.experiments.corpora import bbc, documents, mean_sample
from onmf.experiments.judge import Scorer
from onmf.experiments.topics import NOISE, START


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    texts = documents(bbc(arguments.data), 1000, 100_000, None, np.random.default_rng([0, NOISE]))
    V, K = texts.V, len(texts.corpus.categories)
    judge = Scorer("kl", mean_sample(V[texts.train]), V[texts.train[:1000]])
    print("| start | five | ten | twenty | default |\n|---|---|---|---|---|")
    for start in range(6):
        W0 = 1.0 - np.random.default_rng([start, START]).random((K, V.shape[1]))
        batch = BatchNMF(K, init=W0).fit(V[texts.train])
        goal, cells = judge.best(batch.components_).loss, []
        for steps in (5, 10, 20, None):
            model = OnlineNMF(K, method="em", init=W0, shuffle=False, max_iter=steps, batch_size=200, random_state=0)
            cells.append(f"{judge.best(model.fit(texts.source(0)).components_).loss / goal:.4f}")
        print(f"| {start} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
