"""How good topics are: their leading words, how these go together, and how documents fall into known categories."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from onmf._support.arrays import Array, Counts

KEYWORDS = 8


@dataclass(frozen=True)
class Clustering:
    """Documents put to the topic that carries most of their mass, and topics to categories."""

    accuracy: float  # the share of documents whose topic belongs to their category, topics matched one to one
    nmi: float
    category: list[int]  # that each topic was matched to; -1: none is left
    majority: list[int]  # that most of each topic's documents have; -1: it has no documents


def keywords(W: Array, words: list[str], n: int = KEYWORDS) -> list[list[str]]:
    """The n words of largest weight of every atom, the largest first."""
    return [[words[place] for place in np.argsort(-atom, kind="stable")[:n]] for atom in W]


def cluster(masses: Array, labels: Counts, n_labels: int) -> Clustering:
    """From the mass that every topic carries of every document, (documents, topics)."""
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


def coherence(counts: Any, places: list[list[int]]) -> float:
    """Mean normalised pointwise mutual information of the pairs of leading words, -1 to 1, over documents.

    log(p_ij / (p_i p_j)) / -log p_ij, p being shares of documents with a word, or with both. A pair that never meets
    has -1, one that is in every document 1.
    """
    topics = [_topic_coherence(counts, words) for words in places]
    return float(np.mean(topics))


def _topic_coherence(counts: Any, words: list[int]) -> float:
    there = np.asarray((counts[:, words] > 0).toarray(), dtype=np.float64)
    together: npt.NDArray[Any] = there.T @ there / len(there)
    values = []
    for i, j in combinations(range(len(words)), 2):
        both = together[i, j]
        if both in (0.0, 1.0):
            values.append(2.0 * both - 1.0)
        else:
            values.append(float(np.log(both / (together[i, i] * together[j, j])) / -np.log(both)))
    return float(np.mean(values))
