"""Collections of texts as counts of documents x words, and the weighting and selection of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from reproduction.arrays import Array, Counts
from reproduction.datasets.files import whole

MOST = 10**9  # a larger count means damage


def count_matrix(path: Path, documents: Array, words: Array, counts: Array, shape: tuple[int, int]) -> Any:
    """Return the csr matrix, documents as rows, of entries numbered from 1, which were read from ``path``.

    ``shape`` comes from other files, so documents without words keep their rows.
    """
    rows = whole(path, documents, 1, shape[0], "document number") - 1
    columns = whole(path, words, 1, shape[1], "word number") - 1
    values = whole(path, counts, 0, MOST, "count").astype(np.float64)
    # 32-bit indices, since not every sparse routine takes longer ones.
    matrix = scipy.sparse.csr_array((values, (rows.astype(np.int32), columns.astype(np.int32))), shape=shape)
    matrix.eliminate_zeros()
    return matrix


def tfidf(counts: Any) -> Any:
    """Return (1 + log count) * log(documents / documents with the word) as csr; the zeros of ``counts`` stay zeros.

    The logarithm keeps a frequent word from drowning out the others; a word that is in every document gets 0.
    """
    weights = scipy.sparse.csr_array(counts, dtype=np.float64, copy=True)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    if not (np.isfinite(weights.data) & (weights.data >= 1)).all():
        raise ValueError("tf-idf needs counts: entries must be finite, and either 0 or at least 1.")
    n_documents, n_words = weights.shape
    document_frequency = np.bincount(weights.indices, minlength=n_words)
    idf = np.log(n_documents / np.maximum(document_frequency, 1))  # a word in no document has no entry to weigh
    weights.data = (1.0 + np.log(weights.data)) * idf[weights.indices]
    weights.eliminate_zeros()
    return weights


def leading_words(counts: Any, n: int) -> Counts:
    """Return the indices of the n columns of largest l1 norm, largest first; all if there are fewer."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}.")
    norms = np.asarray(abs(counts).sum(axis=0), dtype=np.float64).ravel()
    return np.argsort(-norms, kind="stable")[:n].astype(np.int64)
