"""What a source of samples is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt


class SourceError(ValueError):
    """A file that cannot be read as samples; the message says what is wrong with which file."""


class Source(ABC):
    """Samples that can be passed over again and again, in batches, without being held in memory."""

    n_features: int
    n_samples: int | None = None  # None: unknown before the end
    any_order: bool = False  # can rows be read in any order, i.e. shuffled?
    feature_names: list[str] | None = None

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """One pass: pairs (row numbers, batch), the batch dense or scipy sparse; shuffled by ``rng`` if given."""
