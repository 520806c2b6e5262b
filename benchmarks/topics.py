"""The figures of the guide to topics, from word counts of news; ONMF_DATA must say where the data are.

    python benchmarks/topics.py             # BBC News: weights, divergences, the order of the texts, shares
    python benchmarks/topics.py news.jsonl  # writes 20 Newsgroups' posts as JSON lines, for onmf fit and onmf topics

The words of a post are in random order, since that of the published counts is not known; nothing here looks at it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfTransformer

from onmf import OnlineNMF
from onmf.insight.topics import coherence, leading
from reproduction.datasets import texts
from reproduction.topics import cluster

SEEDS = 3


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
    file = parser.parse_args().file
    show_bbc() if file is None else write_newsgroups(file)


if __name__ == "__main__":
    main()
