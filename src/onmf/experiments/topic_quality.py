"""How good topics are: their leading words, how well these go together, and how well they match known categories."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from onmf._support.arrays import Array, Counts

KEYWORDS = 8


def leading(W: Array, n: int = KEYWORDS) -> list[list[int]]:
    """The indices of each atom's n largest weights, largest first."""
    return np.argsort(-W, axis=1, kind="stable")[:, :n].tolist()


def cluster(masses: Array, labels: Counts, n_labels: int) -> dict[str, Any]:
    """How well topics match categories, from the mass of each document that each topic carries, (documents, topics).

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


def coherence(counts: Any, topics: list[list[int]]) -> float:
    """The mean over topics of the mean normalised pointwise mutual information of pairs of their leading words.

    log(p_ij / (p_i p_j)) / -log p_ij, where p are the shares of documents that contain a word, or both. It lies between
    -1, for a pair that never meets, and 1; a pair that is in every document gets 1.
    """
    return float(np.mean([_topic_coherence(counts, words) for words in topics]))


def _topic_coherence(counts: Any, words: list[int]) -> float:
    there = np.asarray((counts[:, words] > 0).toarray(), dtype=np.float64)
    p = there.T @ there / len(there)
    values = [
        2.0 * p[i, j] - 1.0 if p[i, j] in (0.0, 1.0) else np.log(p[i, j] / (p[i, i] * p[j, j])) / -np.log(p[i, j])
        for i, j in combinations(range(len(words)), 2)
    ]
    return float(np.mean(values))
