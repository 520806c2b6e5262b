"""Do the leading words of a topic go together? Normalised pointwise mutual information over documents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array


class Coherence:
    """In how many documents pairs of a topic's words meet, counted batch by batch: K matrices of (words, words)."""

    def __init__(self, topics: Sequence[Sequence[int]]) -> None:
        self.words = np.unique(np.concatenate([np.asarray(topic, dtype=np.intp) for topic in topics]))
        self._places = [np.searchsorted(self.words, topic) for topic in topics]
        self._meet = [np.zeros((len(topic), len(topic))) for topic in topics]
        self.documents = 0

    def add(self, counts: Any) -> None:
        """Documents, one per row of a sparse or dense matrix."""
        some = counts[:, self.words]
        there = np.asarray((some.toarray() if scipy.sparse.issparse(some) else some) > 0, dtype=np.float64)
        for meet, places in zip(self._meet, self._places, strict=True):
            meet += there[:, places].T @ there[:, places]
        self.documents += len(there)

    def values(self) -> Array:
        """For each topic the mean normalised pointwise mutual information of pairs of its words.

        log(p_ij / (p_i p_j)) / -log p_ij, where p are the shares of documents that contain a word, or both. It lies
        between -1, for a pair that never meets, and 1; a pair that is in every document gets 1. One word alone is NaN.
        """
        return np.array([_of_pairs(meet / self.documents) for meet in self._meet])


def coherence(counts: Any, topics: Sequence[Sequence[int]]) -> Array:
    """The coherence (K,) of topics, each a list of features by their numbers, from counts (documents, words)."""
    found = Coherence(topics)
    found.add(counts)
    return found.values()


def _of_pairs(p: Array) -> float:
    values = [
        2.0 * p[i, j] - 1.0 if p[i, j] in (0.0, 1.0) else np.log(p[i, j] / (p[i, i] * p[j, j])) / -np.log(p[i, j])
        for i, j in combinations(range(len(p)), 2)
    ]
    return float(np.mean(values)) if values else np.nan
