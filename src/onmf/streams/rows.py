"""Arrays in memory, memory-mapped arrays and sparse matrices: rows can be read in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Source


class Rows(Source):
    """The rows of a 2-D array, a memory map or a CSR matrix."""

    any_order = True

    def __init__(self, X: Any) -> None:
        self.X = X
        self.n_samples, self.n_features = X.shape

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Consecutive rows, or rows in the order of a permutation."""
        n = len(self)
        order = None if rng is None else rng.permutation(n)
        for first in range(0, n, size):
            rows = np.arange(first, min(first + size, n)) if order is None else order[first : first + size]
            yield rows, self.X[first : first + size] if order is None else self.X[rows]

    def __len__(self) -> int:
        return int(self.X.shape[0])
