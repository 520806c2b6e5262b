"""What learning in rounds costs in loss, against learning in sequence.

    python -m benchmarks.rounds [--seeds 0,1,2] [--data FOLDER]

The paper's synthetic data (F = 200, K = 40, 100,000 samples), one pass, in 64 partitions: eight shards, and up to 64 of
them; 20 Newsgroups (10,000 words, K = 20), one and five passes, eight shards of em. The held-out loss relative to that
of ``fit`` on the same samples in memory, the mean over the seeds and the worst of them. Shards are computed one after
the other, in this process: it is the loss that counts. Prints two tables of docs/decisions/0018-many-machines.md.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse

from onmf import OnlineNMF
from onmf.data.examples import NOISE_OF, Planted
from reproduction.datasets.texts import leading_words, load_newsgroups
from reproduction.judge import Scorer

SAMPLES, HELD_OUT, PARTITIONS = 100_000, 600, 64
SHARDS = (8, 64)
WORDS = 10_000


def synthetic(divergence: str, seed: int) -> list[float]:
    """Losses relative to that of a sequence: of another sequence, and of so many shards."""
    rng = np.random.default_rng(seed)
    planted = Planted.draw(200, 40, NOISE_OF[divergence], rng)
    X, held_out = planted.sample(SAMPLES, rng).V, planted.sample(HELD_OUT, rng).V
    rows = -(-SAMPLES // PARTITIONS)
    sequence = OnlineNMF(40, divergence=divergence, random_state=seed).fit(X)
    judged = f"huber:{sequence.delta_}" if divergence == "huber" else divergence
    scorer = Scorer(judged, X.mean(axis=0), held_out)
    models = [OnlineNMF(40, divergence=divergence, random_state=seed + 100).fit(X)]
    for shards in SHARDS:
        model = OnlineNMF(40, divergence=divergence, random_state=seed, shards=shards)
        models.append(model.fit(da.from_array(X, chunks=(rows, -1))))
    usual = scorer.best(sequence.components_, scorer.floors).loss
    return [scorer.best(model.components_, scorer.floors).loss / usual - 1 for model in models]


def texts(folder: Path | None, passes: int, seed: int) -> list[float]:
    """The same of 20 Newsgroups: of another sequence, and of eight shards."""
    train, test = load_newsgroups(folder)
    words = leading_words(train.counts, WORDS)
    X, held_out = (_filled(part.counts[:, words]) for part in (train, test))
    scorer = Scorer("kl", np.asarray(X.mean(axis=0)).ravel(), held_out[:1500])
    rows = -(-X.shape[0] // PARTITIONS)
    blocks = [dask.delayed(X[first : first + rows]) for first in range(0, X.shape[0], rows)]
    lengths = [min(rows, X.shape[0] - first) for first in range(0, X.shape[0], rows)]
    parts = [da.from_delayed(b, (n, WORDS), float, meta=X[:0]) for b, n in zip(blocks, lengths, strict=True)]
    common = {"n_components": 20, "method": "em", "max_passes": passes}
    usual = OnlineNMF(**common, random_state=seed).fit(X)
    others = [
        OnlineNMF(**common, random_state=seed + 100).fit(X),
        OnlineNMF(**common, random_state=seed, shards=8).fit(da.concatenate(parts)),
    ]
    loss = scorer.best(usual.components_, scorer.floors).loss
    return [scorer.best(model.components_, scorer.floors).loss / loss - 1 for model in others]


def _filled(counts: Any) -> Any:
    X = scipy.sparse.csr_matrix(counts, dtype=float)
    return X[np.asarray(X.sum(axis=1)).ravel() > 0]


def cells(found: list[list[float]]) -> str:
    """Means and worst of columns, in per cent."""
    columns = np.asarray(found).T * 100
    return " | ".join(f"{column.mean():+.2f} ({column.max():+.2f})" for column in columns)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    with dask.config.set(scheduler="sync"):
        print("| % | another seed | 8 shards | up to 64 |\n|---|---|---|---|")
        for divergence in ("kl", "is", "squared_l2", "huber"):
            print(f"| {divergence} | {cells([synthetic(divergence, seed) for seed in seeds])} |", flush=True)
        print("\n| em, % | another seed | 8 shards |\n|---|---|---|")
        for passes in (1, 5):
            row = cells([texts(arguments.data, passes, seed) for seed in seeds])
            print(f"| 20 Newsgroups, passes: {passes} | {row} |", flush=True)


if __name__ == "__main__":
    main()
