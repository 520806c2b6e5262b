"""The text collections of the topics experiment, and the paper's steps from counts to samples.

TF-IDF; the 1000 words of largest l1 norm; a scale l at which Poisson noise is at 30 dB; the noise; clipping to
[0, 2 l max]; copies up to N samples, in random order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from onmf.data import examples
from onmf.data.examples import Texts
from reproduction.arrays import Array, Counts
from reproduction.datasets import bbc, newsgroups
from reproduction.datasets.text import leading_words, tfidf
from reproduction.judge import Scorer
from reproduction.trial import Copies, Problem

SNR = 30.0  # dB
NOISE, ORDER = 4, 5  # keys of independent random numbers
HELD_OUT = 0.1  # of the documents; the paper learns from all of them


def all_newsgroups(folder: Path | None) -> Texts:
    """Read both parts of 20 Newsgroups, 18774 posts."""
    train, test = newsgroups.load(folder)
    labels = np.concatenate([train.labels, test.labels])
    counts = scipy.sparse.vstack([train.counts, test.counts], format="csr")
    return Texts(counts, train.words, labels, train.label_names[: labels.max() + 1])


CORPORA: dict[str, tuple[str, Callable[[Path | None], Texts]]] = {  # titles, and how they are loaded
    "bbc": ("BBC News", bbc.load),
    "20newsgroups": ("20 Newsgroups", all_newsgroups),
    "stand-in": ("Stand-in: standard library docstrings", lambda folder: examples.docstrings()),
}


@dataclass(frozen=True, eq=False)
class Documents(Problem):
    """A collection as noisy samples, one per document; the problem's source is copies of those to learn from."""

    texts: Texts  # the documents and words that remain, without noise
    everything: Scorer  # judges dictionaries on all of them
    learnt: Counts  # indices of the documents to learn from
    copies: int
    scale: float  # l
    snr: float


def documents(texts: Texts, n_words: int, n_samples: int, most: int, judged: int, seed: int) -> Documents:
    """Take the paper's steps with at most ``most`` documents, chosen at random; ``judged`` of them judge."""
    rng = np.random.default_rng([seed, NOISE])
    rows = np.arange(texts.counts.shape[0])
    if most < len(rows):
        rows = np.sort(rng.permutation(rows)[:most])
    counts = scipy.sparse.csr_array(texts.counts)[rows]
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
    noisy.eliminate_zeros()
    noisy.sort_indices()
    samples = scipy.sparse.csr_matrix(noisy)
    kept_back, learnt = map(np.sort, np.split(rng.permutation(len(filled)), [round(HELD_OUT * len(filled))]))
    copies = max(1, round(n_samples / len(learnt)))
    order = np.random.default_rng([seed, ORDER]).permutation(np.tile(learnt, copies))
    mean = np.asarray(samples[learnt].mean(axis=0)).ravel()
    places = (learnt[:judged], kept_back[:judged], slice(None))
    train, held_out, everything = (Scorer("kl", mean, samples[each]) for each in places)
    texts = Texts(
        scipy.sparse.csr_array(counts[:, chosen])[filled],
        [texts.words[place] for place in chosen],
        texts.labels[rows][filled],
        texts.label_names,
    )
    K = len(texts.label_names)
    source = Copies(samples, order)
    return Documents(source, "kl", K, train, held_out, texts, everything, learnt, copies, scale, float(snr))


def cluster(masses: Array, labels: Counts, n_labels: int) -> dict[str, Any]:
    """Measure how well topics match categories, from the mass of each document that each topic carries.

    Documents go to the topic that carries most of their mass, and topics are matched to categories one to one.
    *accuracy* is the share of documents whose topic is matched to their category, *nmi* the normalised mutual
    information, *category* the category of each topic (-1: none was left), and *majority* the most frequent one among
    its documents (-1: it has none).
    """
    topic = masses.argmax(axis=1)
    table = np.zeros((masses.shape[1], n_labels))
    np.add.at(table, (topic, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    category = np.full(len(table), -1)
    category[rows] = columns
    majority = np.where(table.any(axis=1), table.argmax(axis=1), -1)
    accuracy = float(table[rows, columns].sum() / len(labels))
    nmi = float(normalized_mutual_info_score(labels, topic))
    return {"accuracy": accuracy, "nmi": nmi, "category": category.tolist(), "majority": majority.tolist()}
