"""What a vocabulary that grows gives, where the topics and the words of a stream change half-way.

    python benchmarks/growing_vocabulary.py [--seeds 2]    # ONMF_DATA must say where the data are

It takes about a minute. The posts about computers, cars and sport come first, then those of all other groups, each in
random order, in batches of 200 for ``partial_fit``. After 1,000, 3,000 and all of the later posts, every model is
scored alike on posts that none has learnt from: the share of posts in the topic of their group (accuracy), and the mean
NPMI of the ten words that lead a topic by relevance, counted in those posts. "knew all words" is told the words of both
halves at the start, which no stream can be. Prints the table of docs/decisions/0025-growing-vocabulary.md.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer

import onmf
from onmf import OnlineNMF
from onmf.insight.topics import coherence
from reproduction.datasets import texts
from reproduction.topics import cluster

TOPICS, BATCH = 12, 200
FIRST = ("comp", "rec")
MARKS = (1_000, 3_000, None)
WORDS = 10_000
FORGETTING = "auto:forgetting=0.9"
CONTESTANTS: dict[str, dict[str, Any]] = {
    "grows": {},
    "grows, forgets": {"method": FORGETTING},
    "grows, forgets, at most 12,000": {"method": FORGETTING, "max_features": 12_000},
    "fixed words, forgets": {"method": FORGETTING, "features": "fixed"},
    "knew all words, forgets": {"method": FORGETTING, "features": "fixed"},
    "fresh after the change": {},
}


def posts(rng: np.random.Generator) -> tuple[list[str], list[str], list[str], np.ndarray]:
    """The posts before the change, after it, and the held-out ones with their groups."""
    parts = texts.load_newsgroups()
    names = np.array(parts[0].label_names)
    early = np.array([name.startswith(FIRST) for name in names])
    found: list[tuple[list[str], np.ndarray]] = []
    for part in parts:
        words, counts = np.array(part.words, dtype=object), scipy.sparse.csr_matrix(part.counts)
        rows = [
            " ".join(np.repeat(words[counts[row].indices], counts[row].data.astype(int)))
            for row in range(counts.shape[0])
        ]
        found.append((rows, np.asarray(part.labels)))
    (train, groups), (test, held_groups) = found

    def some(rows: list[str], chosen: np.ndarray) -> list[str]:
        return [rows[row] for row in rng.permutation(np.flatnonzero(chosen))]

    held = np.flatnonzero(~early[held_groups])
    return some(train, early[groups]), some(train, ~early[groups]), [test[row] for row in held], held_groups[held]


def scored(model: OnlineNMF, held: list[str], groups: np.ndarray) -> tuple[float, float, int]:
    """Accuracy, coherence and the number of features."""
    shares = np.nan_to_num(model.proportions(held))
    counter = CountVectorizer(vocabulary=list(model.feature_names_in_))
    place = counter.vocabulary
    order = {word: number for number, word in enumerate(place)}
    first = [[order[word] for word, _ in features] for features in model.top_features(10)]
    npmi = float(coherence(counter.transform(held), first)[model.usage_ > 0.01].mean())
    return cluster(shares, groups, 20)["accuracy"], npmi, model.n_features_in_


def trial(seed: int) -> dict[str, list[float]]:
    """For every contestant: accuracy and coherence at each mark, the number of features and the seconds at the end."""
    before, after, held, groups = posts(np.random.default_rng(seed))
    rows: dict[str, list[float]] = {}
    for name, settings in CONTESTANTS.items():
        model = OnlineNMF(TOPICS, random_state=seed, **settings)
        started, found = time.process_time(), list[float]()
        stream = [] if name.startswith("fresh") else before
        begins = after if name.startswith("fresh") else before
        if name.startswith("knew"):
            begins = before + after
        knows = name.startswith("knew")
        chosen = {"stop": "english", "words": 2 * WORDS if knows else WORDS}
        words = onmf.data.texts(begins if knows else begins[:2_000], **chosen)
        model.fit(onmf.data.texts(stream[:BATCH] or after[:BATCH], like=words.spec))
        for first in range(BATCH, len(stream), BATCH):
            model.partial_fit(stream[first : first + BATCH])
        learnt = 0 if stream else BATCH
        for mark in MARKS:
            stop = len(after) if mark is None else mark
            for first in range(learnt, stop, BATCH):
                model.partial_fit(after[first : min(first + BATCH, stop)])
            learnt, spent = stop, time.process_time()
            accuracy, npmi, features = scored(model, held, groups)
            found += [accuracy, npmi]
            started += time.process_time() - spent  # scoring is not learning
        rows[name] = [*found, features, time.process_time() - started]
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    logging.getLogger("onmf").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    trials = [trial(seed) for seed in range(arguments.seeds)]
    print("| | 1,000 after | 3,000 after | all after | words | s |")
    print("|---|---|---|---|---|---|")
    for name in CONTESTANTS:
        *found, features, seconds = np.mean([each[name] for each in trials], axis=0)
        cells = " | ".join(f"{a:.2f}, {b:.2f}" for a, b in zip(found[::2], found[1::2], strict=True))
        print(f"| {name} | {cells} | {features:,.0f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
