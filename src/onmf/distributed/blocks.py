"""A partition on a worker: read, checked, and cut into the samples of rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data.base import SourceError, native, require_matrix
from onmf.data.columns import Features
from onmf.distributed.partitions import Raw, Reader, size_in_bytes
from onmf.learner import Reading, Skipped
from onmf.learner.position import digest
from onmf.learner.update import as_floats
from onmf.model.validation import DataError, good_rows, refuse_bad_entries
from onmf.samples import Samples, as_samples


@dataclass(frozen=True)
class Facts:
    """What the driver is told of a partition."""

    rows: int = 0  # that can be learnt from
    digest: str = ""  # of all that it holds
    skipped: Skipped = field(default_factory=Skipped)  # rows that cannot
    fault: ValueError | None = None  # why none can
    seconds: float = 0.0  # that it took to read


class Block:
    """The samples of a partition, in the order in which they are learnt from; none of them is moved for it."""

    def __init__(self, batch: Any, rows: npt.NDArray[Any], order: npt.NDArray[np.int64], facts: Facts) -> None:
        self.batch, self.rows, self.order, self.facts = batch, rows, order, facts

    def __sizeof__(self) -> int:
        return size_in_bytes(vars(self))

    def piece(self, first: int, last: int) -> tuple[Any, npt.NDArray[Any]]:
        """Some samples as they are learnt from, with their numbers: copies, and hence aligned wherever they lie."""
        chosen = self.order[first:last]
        return self.batch[chosen], self.rows[chosen]


@dataclass(frozen=True)
class Opening:
    """How a partition becomes a ``Block``."""

    label: str  # of the partition
    reader: Reader
    reading: Reading
    features: Features
    seed: tuple[int, ...] | None  # None: the rows stay in their order

    def __call__(self, *inputs: Any) -> Block:
        started = time.perf_counter()
        try:
            raw = self.reader(*inputs, skip=self.reading.skip_bad)
            batch, rows, kept, faults = self._checked(raw)
        except (ValueError, TypeError, OSError, MemoryError) as error:
            kind = DataError if isinstance(error, DataError) else SourceError
            fault = kind(f"Partition {self.label}: {str(error) or type(error).__name__}")
            facts = Facts(fault=fault, seconds=time.perf_counter() - started)
            return Block(Samples(np.zeros((0, self.features.number))), np.arange(0), np.arange(0), facts)
        skipped = Skipped()
        for each in (*raw.faults, *faults):
            skipped = skipped.and_also(DataError(f"Partition {self.label}: {each}"))
        order = kept if self.seed is None else np.random.default_rng(list(self.seed)).permutation(kept)
        facts = Facts(len(order), digest(batch), skipped, None, time.perf_counter() - started)
        return Block(batch, rows, order, facts)

    def _checked(self, raw: Raw) -> tuple[Any, npt.NDArray[Any], npt.NDArray[np.int64], list[DataError]]:
        """The samples as the settings mean them, the places of those that can be learnt from, and why others cannot."""
        batch = raw.batch if isinstance(raw.batch, Samples) else Samples(native(raw.batch))
        require_matrix("it", batch.matrix, empty=True)
        if batch.shape[1] != self.features.number:
            raise SourceError(f"it has {batch.shape[1]} features, not {self.features.number}.")
        batch = as_samples(as_floats(batch), self.reading.missing, self.reading.implicit, learning=True)
        kept, faults = np.arange(batch.shape[0]), list[DataError]()
        if not len(kept):
            return batch, raw.rows, kept, faults
        if self.reading.skip_bad:
            good, faults = good_rows(batch, raw.rows, self.features.names)
            kept = np.asarray(good, dtype=np.int64)
        else:
            refuse_bad_entries(batch, raw.rows, self.features.names)
        if batch.sample_weight is not None:  # samples without a weight are not there
            kept = kept[batch.sample_weight[kept] > 0]
        return batch, raw.rows, kept, faults
