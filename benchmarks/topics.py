"""The figures of the guide to topics, from word counts of news; ONMF_DATA must say where the data are.

    python -m benchmarks.topics             # BBC News: weights, divergences, the order of the texts, shares
    python -m benchmarks.topics --words     # BBC News and 20 Newsgroups: which weights and which lambda of relevance
    python -m benchmarks.topics news.jsonl  # writes 20 Newsgroups' posts as JSON lines, for onmf fit and onmf topics

The words of a post are in random order, since that of the published counts is not known; nothing here looks at it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer

from onmf import OnlineNMF
from onmf.topics import coherence, leading, ranked, relevance
from reproduction.datasets import texts
from reproduction.topics import cluster

SEEDS = 3
WORDS = 10_000  # of a vocabulary
LAMBDAS = 0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0


def show_bbc() -> None:
    """A line per way of learning five topics: coherence, accuracy, and how far ``usage_`` is from a pass afterwards."""
    news = texts.load_bbc()
    counts = scipy.sparse.csr_matrix(news.counts, dtype=float)
    in_texts = np.asarray((counts > 0).sum(axis=0)).ravel()
    counts = counts[:, (in_texts >= 2) & (in_texts <= counts.shape[0] / 2)]
    weighted = TfidfTransformer().fit_transform(counts)
    print("data    divergence  passes  shuffled  coherence  accuracy  usage_ off by at most")
    for name, X, divergence, passes, shuffle in (
        ("counts", counts, "kl", 1, False),
        ("counts", counts, "kl", 1, True),
        ("counts", counts, "kl", 5, True),
        ("tfidf", weighted, "kl", 5, True),
        ("tfidf", weighted, "squared_l2", 2, True),
    ):
        settings: dict[str, Any] = {"divergence": divergence, "max_passes": passes, "shuffle": shuffle}
        found = []
        for seed in range(SEEDS):
            model = OnlineNMF(5, random_state=seed, **settings).fit(X)
            shares = model.proportions(X)
            accuracy = cluster(shares, news.labels, 5)["accuracy"]
            together = coherence(counts, leading(model.components_, 10)).mean()
            found.append((together, accuracy, np.abs(model.usage_ - shares.mean(axis=0)).max()))
        figures = np.mean(found, axis=0)
        print(f"{name:6}  {divergence:10}  {passes:6}  {shuffle!s:8}  {'  '.join(f'{each:8.3f}' for each in figures)}")


def show_words() -> None:
    """Coherence of the ten words that lead by relevance, for every lambda, in texts that no topic was learnt from.

    Beside it, in brackets, how many of 100 leading words are different ones: topics led by the same words say little.
    """
    bbc, (posts, others) = texts.load_bbc(), texts.load_newsgroups()
    order = np.random.default_rng(0).permutation(len(bbc.labels))
    half = len(order) // 2
    collections = {
        "BBC News": (bbc.words, bbc.labels, bbc.counts, order[:half], order[half:], (5, 20)),
        "20 Newsgroups": (
            posts.words,
            np.concatenate([posts.labels, others.labels]),
            scipy.sparse.vstack([posts.counts, others.counts]),
            np.arange(len(posts.labels)),
            len(posts.labels) + np.arange(len(others.labels)),
            (20, 50),
        ),
    }
    print("| data | words | K | weights, divergence | accuracy | " + " | ".join(map(str, LAMBDAS)) + " |")
    print("|" + "---|" * (5 + len(LAMBDAS)))
    for name, (words, labels, counts, learnt, held, sizes) in collections.items():
        counts = scipy.sparse.csr_matrix(counts, dtype=float)
        for stop in (False, True):
            seen = counts[learnt] > 0
            in_texts = np.asarray(seen.sum(axis=0)).ravel()
            kept = in_texts >= 2
            if stop:
                kept &= (in_texts <= len(learnt) / 2) & ~np.isin(words, list(ENGLISH_STOP_WORDS))
            often = np.argsort(-np.asarray(counts[learnt].sum(axis=0)).ravel() * kept, kind="stable")[:WORDS]
            columns = np.sort(often[kept[often]])
            X, tests = counts[learnt][:, columns], counts[held][:, columns]
            tfidf = TfidfTransformer().fit(X)
            for K in sizes:
                for weights, divergence in (("counts", "kl"), ("tfidf", "kl"), ("tfidf", "squared_l2")):
                    found, accuracies = [], []
                    for seed in range(SEEDS):
                        data = tfidf.transform(X) if weights == "tfidf" else X
                        model = OnlineNMF(K, divergence=divergence, max_passes=5, random_state=seed).fit(data)
                        new = tfidf.transform(tests) if weights == "tfidf" else tests
                        accuracies.append(cluster(model.proportions(new), labels[held], labels.max() + 1)["accuracy"])
                        P, row = ranked(model.components_, model.usage_, "weight"), []
                        for blend in LAMBDAS:
                            first = leading(relevance(P, model.usage_, blend), 10)
                            row.append((coherence(tests, first).mean(), len(np.unique(first)) / (K * 10) * 100))
                        found.append(row)
                    cells = " | ".join(f"{npmi:.2f} ({each:.0f})" for npmi, each in np.mean(found, axis=0))
                    which = "without stop words" if stop else "all"
                    print(
                        f"| {name} | {which} | {K} | {weights}, {divergence} | {np.mean(accuracies):.2f} | {cells} |",
                        flush=True,
                    )


def write_newsgroups(path: Path) -> None:
    """The training posts, one object per line."""
    news, rng = texts.load_newsgroups()[0], np.random.default_rng(0)
    with path.open("w") as file:
        for row in range(news.counts.shape[0]):
            post = scipy.sparse.coo_matrix(news.counts[[row]])
            words = rng.permutation(np.repeat(post.col, post.data.astype(int)))
            body = " ".join(news.words[word] for word in words)
            file.write(json.dumps({"group": news.label_names[news.labels[row]], "body": body}) + "\n")


def main() -> None:
    """Run and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="write 20 Newsgroups' posts there, as JSON lines")
    parser.add_argument("--words", action="store_true", help="measure weights and the lambda of relevance")
    arguments = parser.parse_args()
    if arguments.file is not None:
        write_newsgroups(arguments.file)
    else:
        show_words() if arguments.words else show_bbc()


if __name__ == "__main__":
    main()
