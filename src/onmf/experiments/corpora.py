"""The text collections of the topics experiment, and the paper's way from counts to samples.

TF-IDF, the 1000 words of largest l1 norm, scaled such that Poisson noise is at 30 dB, noise, copies to N samples in
random order, clipped to [0, 2 l max].
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from onmf._support.arrays import Array, Counts
from onmf.datasets.text import leading_words, tfidf
from onmf.experiments.trial import Copies

SNR = 30.0  # dB
ORDER = 5  # a key of random numbers of their own
HELD_OUT = 0.1  # of the documents: nothing in the paper, which learns from all


@dataclass(frozen=True, eq=False)
class Corpus:
    """Counts (documents x words), the words, and the category of every document; K is the number of categories."""

    title: str
    counts: Any
    words: list[str]
    labels: Counts
    categories: list[str]


def bbc(folder: Path | None) -> Corpus:
    """2225 articles in 5 categories."""
    from onmf.datasets import bbc as data

    found = data.load(folder)
    return Corpus("BBC News", found.counts, found.terms, found.labels, found.label_names)


def newsgroups(folder: Path | None) -> Corpus:
    """Both parts of 20 Newsgroups, 18774 posts."""
    from onmf.datasets import newsgroups as data

    found = data.load(folder)
    labels = np.concatenate([found.train.labels, found.test.labels])
    names = found.label_names or [f"group {number + 1}" for number in range(int(labels.max()) + 1)]
    counts = scipy.sparse.vstack([found.train.counts, found.test.counts], format="csr")
    return Corpus("20 Newsgroups", counts, found.vocabulary, labels, names)


def stand_in(folder: Path | None = None) -> Corpus:
    """Documentation strings of the standard library, for a trial without the data."""
    from onmf.datasets import docstrings

    found = docstrings.load()
    title = "documentation strings of the standard library (a stand-in)"
    return Corpus(title, found.counts, found.words, found.labels, found.label_names)


CORPORA = {"bbc": bbc, "20newsgroups": newsgroups, "stand-in": stand_in}


@dataclass(frozen=True, eq=False)
class Documents:
    """What the contestants learn from, and what they are judged by."""

    corpus: Corpus
    words: list[str]
    counts: Any  # of these words in all documents that are left, as they were counted
    labels: Counts  # of all documents
    V: Any  # noisy samples of all documents
    train: Counts  # places of those learnt from
    held_out: Counts
    copies: int
    scale: float  # l
    snr: float

    def source(self, seed: int) -> Copies:
        """N samples in random order."""
        order = np.random.default_rng([seed, ORDER]).permutation(np.tile(self.train, self.copies))
        return Copies(self.V, order)


def documents(corpus: Corpus, n_words: int, n_samples: int, most: int | None, rng: np.random.Generator) -> Documents:
    """The paper's steps; ``most`` documents, drawn at random, for a small run."""
    rows = np.arange(corpus.counts.shape[0])
    if most is not None and most < len(rows):
        rows = np.sort(rng.permutation(rows)[:most])
    counts = scipy.sparse.csr_array(corpus.counts)[rows]
    weights = tfidf(counts)
    chosen = np.sort(leading_words(weights, n_words))
    clean = scipy.sparse.csr_array(weights[:, chosen])
    filled = np.flatnonzero(np.diff(clean.indptr))
    clean = clean[filled]
    scale = 10 ** (SNR / 10) * float(clean.data.sum() / np.square(clean.data).sum())
    V = clean * scale
    noisy = V.copy()
    noisy.data = np.minimum(rng.poisson(V.data).astype(np.float64), 2 * scale * clean.data.max())
    snr = 20 * np.log10(np.linalg.norm(V.data) / np.linalg.norm(noisy.data - V.data))
    order = rng.permutation(len(filled))
    n_held_out = round(HELD_OUT * len(order))
    held_out, train = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    noisy.eliminate_zeros()
    noisy.sort_indices()
    return Documents(
        corpus,
        [corpus.words[place] for place in chosen],
        scipy.sparse.csr_array(counts[:, chosen])[filled],
        corpus.labels[rows][filled],
        scipy.sparse.csr_matrix(noisy),
        train,
        held_out,
        max(1, round(n_samples / len(train))),
        scale,
        float(snr),
    )


def mean_sample(V: Any) -> Array:
    """The mean row of a sparse matrix."""
    return np.asarray(V.mean(axis=0)).ravel()
