"""How well topics match known categories."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from onmf._support.arrays import Array, Counts


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
