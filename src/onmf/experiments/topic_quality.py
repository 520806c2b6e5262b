"""How good topics are: their leading words, how well these go together, and how well they match known categories."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from onmf._support.arrays import Array, Counts

KEYWORDS = 8


@dataclass(frozen=True)
class Clustering:
    """Each document assigned to the topic that carries most of its mass, and topics matched to categories."""

    accuracy: float  # the share of documents whose topic is matched to their category, topics matched one to one
    nmi: float
    category: list[int]  # matched to each topic; -1: none was left
    majority: list[int]  # the most frequent category among each topic's documents; -1: it has no documents


def leading(W: Array, n: int = KEYWORDS) -> list[list[int]]:
    """The indices of each atom's n largest weights, largest first."""
    return np.argsort(-W, axis=1, kind="stable")[:, :n].tolist()


def cluster(masses: Array, labels: Counts, n_labels: int) -> Clustering:
    """From the mass of each document that each topic carries, (documents, topics)."""
    topic = masses.argmax(axis=1)
    K = masses.shape[1]
    table = np.zeros((K, n_labels))
    np.add.at(table, (topic, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    category = np.full(K, -1)
    category[rows] = columns
    majority = np.where(table.any(axis=1), table.argmax(axis=1), -1)
    accuracy = float(table[rows, columns].sum() / len(labels))
    nmi = float(normalized_mutual_info_score(labels, topic))
    return Clustering(accuracy, nmi, category.tolist(), majority.tolist())


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
