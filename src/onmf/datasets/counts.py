"""Word counts as lists of (document, word, count), the form in which the text collections are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from onmf._support.arrays import Array
from onmf.datasets.reading import whole

MOST = 10**9  # no text has a word more often; a larger count is damage


def count_matrix(path: Path, documents: Array, words: Array, counts: Array, shape: tuple[int, int]) -> Any:
    """The csr matrix, documents as rows, of entries numbered from 1; ``path`` is where they come from.

    ``shape`` is known from other files, so that documents without words keep their rows.
    """
    rows = whole(path, documents, 1, shape[0], "document number") - 1
    columns = whole(path, words, 1, shape[1], "word number") - 1
    values = whole(path, counts, 0, MOST, "count").astype(np.float64)
    # 32-bit indices, since not every sparse routine takes longer ones.
    places = (rows.astype(np.int32), columns.astype(np.int32))
    matrix = scipy.sparse.csr_array((values, places), shape=shape)
    matrix.eliminate_zeros()
    return matrix
