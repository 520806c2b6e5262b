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

from onmf._support.arrays import Array, Counts
from onmf.datasets import bbc, docstrings, newsgroups
from onmf.datasets.text import Texts, leading_words, tfidf
from onmf.experiments.trial import Copies

SNR = 30.0  # dB
ORDER = 5  # key of the random numbers of the samples' order
HELD_OUT = 0.1  # of the documents; the paper learns from all of them


def all_newsgroups(folder: Path | None) -> Texts:
    """Both parts of 20 Newsgroups, 18774 posts."""
    parts = newsgroups.load(folder)
    counts = scipy.sparse.vstack([parts.train.counts, parts.test.counts], format="csr")
    labels = np.concatenate([parts.train.labels, parts.test.labels])
    return Texts(counts, parts.train.words, labels, parts.train.label_names[: labels.max() + 1])


CORPORA: dict[str, tuple[str, Callable[[Path | None], Texts]]] = {  # titles, and how they are loaded
    "bbc": ("BBC News", bbc.load),
    "20newsgroups": ("20 Newsgroups", all_newsgroups),
    "stand-in": ("Stand-in: standard library docstrings", lambda folder: docstrings.load()),
}


@dataclass(frozen=True, eq=False)
class Documents:
    """What the contestants learn from, and what they are judged by."""

    words: list[str]
    categories: list[str]  # K of them
    counts: Any  # of the words in all remaining documents, without noise
    labels: Counts  # the category of each document
    V: Any  # noisy samples of all documents
    train: Counts  # indices of the documents to learn from
    held_out: Counts
    copies: int
    scale: float  # l
    snr: float

    def source(self, seed: int) -> Copies:
        """N samples in random order."""
        order = np.random.default_rng([seed, ORDER]).permutation(np.tile(self.train, self.copies))
        return Copies(self.V, order)


def documents(texts: Texts, n_words: int, n_samples: int, most: int | None, rng: np.random.Generator) -> Documents:
    """The paper's steps, applied to at most ``most`` randomly chosen documents."""
    rows = np.arange(texts.counts.shape[0])
    if most is not None and most < len(rows):
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
    held_out, train = map(np.sort, np.split(rng.permutation(len(filled)), [round(HELD_OUT * len(filled))]))
    return Documents(
        words=[texts.words[place] for place in chosen],
        categories=texts.label_names,
        counts=scipy.sparse.csr_array(counts[:, chosen])[filled],
        labels=texts.labels[rows][filled],
        V=scipy.sparse.csr_matrix(noisy),
        train=train,
        held_out=held_out,
        copies=max(1, round(n_samples / len(train))),
        scale=scale,
        snr=float(snr),
    )


def mean_sample(V: Any) -> Array:
    """The mean row of a sparse matrix."""
    return np.asarray(V.mean(axis=0)).ravel()
