"""The functions that Dask calls on workers; their arguments are the results of other tasks.

They are named as their tasks are in Dask's dashboard.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data import Rows, SourceError
from onmf.data.base import native, require_matrix
from onmf.data.columns import Features
from onmf.distributed.cluster import Sealed, size_in_bytes
from onmf.distributed.partitions import Raw
from onmf.learner import Learned, Progress, Reading, Skipped, run
from onmf.learner.batching import learnable
from onmf.learner.resume import digest
from onmf.learner.rounds import RoundResult, exchanged, finish_round, learn_shard
from onmf.model.validation import DataError, require_valid_entries
from onmf.samples import Samples, stacked

MMAP_THRESHOLD = -3  # glibc's number of the setting
USUAL = 2**25  # the largest threshold that glibc adapts to


@dataclass(frozen=True)
class Facts:
    """The facts that the driver needs about a partition."""

    rows: int = 0  # how many can be learnt from
    digest: str = ""  # of its contents
    skipped: Skipped = field(default_factory=Skipped)  # rows that cannot be learnt from
    fault: ValueError | None = None  # why no row can be learnt from


@dataclass(frozen=True)
class Block:
    """The samples of a partition, and the order in which they are learnt from, without a sorted copy."""

    batch: Samples
    rows: npt.NDArray[Any]
    order: npt.NDArray[np.int64]
    facts: Facts

    def __sizeof__(self) -> int:
        return size_in_bytes(vars(self))


@dataclass(frozen=True)
class Cut:
    """Rows of a partition in their order, and the digest by which the partition is recognised."""

    number: int
    digest: str
    first: int
    last: int


def read(sealed: Sealed, *inputs: Any) -> Block:
    """Read a partition, and check and order its rows."""
    label, reader, reading, features, seed = sealed.content
    faults = list[ValueError]()
    try:
        raw = reader(*inputs, skip=reading.skip_bad)
        rows, batch = _checked(raw, reading, features, faults)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        kind = DataError if isinstance(error, DataError) else SourceError
        fault = kind(f"Partition {label}: {str(error) or type(error).__name__}")
        return Block(Samples(np.zeros((0, features.number))), np.arange(0), np.arange(0), Facts(fault=fault))
    skipped = Skipped()
    for each in (*raw.faults, *faults):
        skipped = skipped.and_also(DataError(f"Partition {label}: {each}"))
    order = np.arange(len(rows)) if seed is None else np.random.default_rng(list(seed)).permutation(len(rows))
    return Block(batch, rows, order, Facts(len(rows), digest(batch), skipped))


def _checked(raw: Raw, reading: Reading, features: Features, faults: list[ValueError]) -> tuple[Any, Samples]:
    """Return the rows that can be learnt from and their samples, as the settings mean them; note why others cannot."""
    batch = raw.batch if isinstance(raw.batch, Samples) else Samples(native(raw.batch))
    require_matrix("it", batch.matrix, empty=True)
    if batch.shape[1] != features.number:
        raise SourceError(f"it has {batch.shape[1]} features, not {features.number}.")
    places = np.arange(len(raw.rows))
    rows, _, batch = learnable(raw.rows, places, batch, reading, features.names, faults.append)
    if not len(rows):
        return rows, Samples(np.zeros((0, features.number)))
    if not reading.skip_bad:
        require_valid_entries(batch, rows, features.names)
    return rows, batch


def facts(block: Block) -> Facts:
    """Return the facts that the driver needs about a partition."""
    return block.facts


def start(sealed: Sealed, cuts: Sealed, *blocks: Block) -> tuple[Learned, Progress] | DataError:
    """Learn the first samples in sequence; if they cannot be learnt from, return why."""
    recipe, reading, features, rng, seed = sealed.content
    batch, rows = _samples(cuts, blocks)
    if seed is not None:
        batch = batch[np.random.default_rng(list(seed)).permutation(len(rows))]
    reading = replace(reading, max_passes=1, shuffle=False, keeps_digests=False, verify=False)
    generators = rng, np.random.default_rng(0)  # the second would shuffle
    last: Any = None
    try:
        for learned, progress in run(recipe, Rows(batch), reading, features, generators):
            last = learned, progress or last[1]  # samples skipped after the last batch make no progress
    except DataError as error:
        return error
    return last


def state(sealed: Sealed) -> Sealed:
    """Return the state that a round begins with, to be sent to all shards: a task's argument cannot be lost."""
    return Sealed(sealed.content.received())


def exchange(sealed: Sealed, cuts: Sealed, *blocks: Block) -> Sealed:
    """Try an exchange of components before a round, on some of its samples."""
    return Sealed(exchanged(sealed.content, _samples(cuts, blocks)[0]))


def learn(sealed: Sealed, cuts: Sealed, *blocks: Block) -> Sealed:
    """Learn from the rows of one shard."""
    return Sealed(learn_shard(sealed.content, *_samples(cuts, blocks)))


def merge(*found: Sealed) -> Sealed:
    """Add up the results of several shards, in their order."""
    first, *others = (each.content.aligned() for each in found)
    return Sealed(sum(others, first))


def finish(sealed: Sealed, found: Sealed) -> RoundResult:
    """Make the next state from the results of all shards."""
    return finish_round(sealed.content, found.content.aligned())


def _samples(cuts: Sealed, blocks: tuple[Block, ...]) -> tuple[Any, npt.NDArray[Any]]:
    """Return copies of the rows of all cuts, with their numbers; a block that was read again must not have changed."""
    reuse_pages()
    batches, rows = [], []
    for cut, block in zip(cuts.content, blocks, strict=True):
        if block.facts.digest != cut.digest:
            why = f" ({block.facts.fault})" if block.facts.fault is not None else ""
            raise SourceError(
                f"Partition {cut.number} had to be read again, since a worker was lost, and has changed{why}; "
                "put the data back as they were, and resume."
            )
        chosen = block.order[cut.first : cut.last]
        batches.append(block.batch[chosen])
        rows.append(block.rows[chosen])
    return stacked(batches), np.concatenate(rows)


@cache
def reuse_pages() -> None:
    """Let arrays of up to 32 MiB use memory that others have given back, once per process.

    Dask starts its workers with MALLOC_TRIM_THRESHOLD_, so that they return memory early. In glibc that also ends the
    search for the size from which arrays get pages of their own, so that each of 128 KiB or more is given fresh ones,
    all of which are cleared first: learning took 1.8 times as long. The size that glibc comes to by itself is set
    instead.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no such function
        mallopt(MMAP_THRESHOLD, USUAL)
