"""What a vocabulary that grows gives, where the topics and the words of a stream change half-way.

    python -m benchmarks.growing_vocabulary [--seeds 2]    # ONMF_DATA must say where the data are
    python -m benchmarks.growing_vocabulary --starts       # simulated counts: where the column of a new word begins

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
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer

import onmf
from onmf import OnlineNMF
from onmf.data.columns import Features
from onmf.learner.growth import grown
from onmf.samples import Samples
from onmf.topics import coherence
from reproduction.datasets import texts
from reproduction.topics import cluster

TOPICS, BATCH = 12, 200
FIRST = ("comp", "rec")
MARKS = (1_000, 3_000, None)
WORDS = 10_000
FORGETTING = "auto:forgetting=0.9"
STARTS = {"floor": 1e-5, "a hundredth of the mean": 0.01, "share of the batch": None}  # of the component's mean weight
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


def show_starts(method: str = "sparse_surrogate") -> None:
    """Held-out loss relative to a fresh model's, after five of ten topics have changed and 1,000 words are new."""
    rng, old, new, length = np.random.default_rng(0), 2_000, 1_000, 150
    frequency = rng.permutation(1 / np.arange(1, old + new + 1) ** 0.8)
    W = rng.gamma(0.1, 1.0, (15, old + new)) * frequency
    W[:10, old:], W[10:, :old] = 0, W[10:, :old] / 2
    W /= W.sum(axis=1, keepdims=True)

    def draw(topics: range) -> Any:
        shares = rng.dirichlet(np.full(10, 0.15), 500)
        return scipy.sparse.csr_matrix(rng.poisson(length * shares @ W[topics]).astype(float))

    before, after = [draw(range(10)) for _ in range(40)], [draw(range(5, 15)) for _ in range(40)]
    held, names = draw(range(5, 15)), tuple(f"w{f}" for f in range(old + new))
    models = {name: OnlineNMF(10, method=method, random_state=0) for name in ("fresh", *STARTS, "all words known")}
    for name, model in models.items():
        for batch in before if name != "fresh" else []:
            model.partial_fit(batch if name.startswith("all") else batch[:, :old])
    for number, batch in enumerate(after, start=1):
        for name, model in models.items():
            if number == 1 and name in STARTS:
                learned = replace(model._learned, features=Features(old, names[:old]))
                there = grown(learned, Features(old + new, names), Samples(batch))
                if STARTS[name] is not None:
                    there.state.W[:, old:] = STARTS[name] * there.state.W[:, :old].mean(axis=1, keepdims=True)
                model._learned = replace(there, features=Features(old + new))
            model.partial_fit(batch)
        if number in (1, 4, 8, 16, 40):
            fresh = models["fresh"].loss(held)
            print(
                500 * number, {name: round(model.loss(held) / fresh, 2) for name, model in models.items()}, flush=True
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--starts", action="store_true", help="where the column of a new word begins")
    arguments = parser.parse_args()
    logging.getLogger("onmf").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    if arguments.starts:
        show_starts()
        return
    trials = [trial(seed) for seed in range(arguments.seeds)]
    print("| | 1,000 after | 3,000 after | all after | words | s |")
    print("|---|---|---|---|---|---|")
    for name in CONTESTANTS:
        *found, features, seconds = np.mean([each[name] for each in trials], axis=0)
        cells = " | ".join(f"{a:.2f}, {b:.2f}" for a, b in zip(found[::2], found[1::2], strict=True))
        print(f"| {name} | {cells} | {features:,.0f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
