"""What workers do in a round, as functions that Dask calls with what other tasks have made."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data import Rows, SourceError
from onmf.data.base import stacked
from onmf.data.columns import Features
from onmf.distributed.allocation import reuse_pages
from onmf.distributed.blocks import Block, Facts
from onmf.distributed.partitions import Sealed
from onmf.learner import Learned, Progress, Reading, Recipe, run
from onmf.learner import rounds as shards
from onmf.learner.rounds import Found, Outcome
from onmf.model.validation import DataError


@dataclass(frozen=True)
class Cut:
    """Rows of a block, and by what the block is recognised."""

    number: int
    digest: str
    first: int
    last: int


@dataclass(frozen=True)
class Start:
    """What the first samples, which are learnt in sequence, are learnt with."""

    recipe: Recipe
    reading: Reading
    features: Features
    rng: np.random.Generator  # draws the initial dictionary
    seed: tuple[int, ...] | None  # mixes the rows of several partitions; None: they stay in their order


@dataclass(frozen=True)
class Begun:
    """A model, or why none could be begun."""

    learned: Learned | None
    progress: Progress | None
    fault: DataError | None
    seconds: float


def opened(opening: Sealed, *inputs: Any) -> Block:
    """A partition, read."""
    block: Block = opening.content(*inputs)
    return block


def facts(block: Block) -> Facts:
    """What the driver is told of it."""
    return block.facts


def setting(sealed: Sealed) -> Sealed:
    """The state of the round, on its way to all shards; as the argument of a task it cannot be lost."""
    return Sealed(sealed.content.received())


def exchanged(sealed: Sealed, cuts: Sealed, *blocks: Block) -> Sealed:
    """The same after an exchange of atoms, if samples of the round are fitted better."""
    batch, _ = _samples(cuts.content, blocks)
    return Sealed(shards.exchanged(sealed.content, batch))


def learnt(sealed: Sealed, number: Sealed, cuts: Sealed, *blocks: Block) -> Sealed:
    """What one of so many shards learns."""
    batch, rows = _samples(cuts.content, blocks)
    return Sealed(shards.shard(sealed.content, batch, rows, number.content))


def merged(*found: Sealed) -> Sealed:
    """What several shards have found."""
    return Sealed(shards.together([_aligned(each.content) for each in found]))


def finished(sealed: Sealed, found: Sealed) -> Outcome:
    """The next state."""
    return shards.finished(sealed.content, _aligned(found.content))


def alone(sealed: Sealed, cuts: Sealed, *blocks: Block) -> Outcome:
    """The round of one shard."""
    return shards.alone(sealed.content, *_samples(cuts.content, blocks))


def begun(sealed: Sealed, cuts: Sealed, *blocks: Block) -> Begun:
    """The first samples, learnt in sequence."""
    started, start = time.perf_counter(), sealed.content
    batch, rows = _samples(cuts.content, blocks)
    if start.seed is not None:
        order = np.random.default_rng(list(start.seed)).permutation(len(rows))
        batch = batch[order]
    reading = replace(start.reading, max_passes=1, shuffle=False, marked=False, verify=False)
    generators = start.rng, np.random.default_rng(0)  # of which the second would shuffle
    last: tuple[Learned | None, Progress | None] = None, None
    fault = None
    try:
        for found in run(start.recipe, Rows(batch), reading, start.features, generators):
            last = found
    except DataError as error:
        fault = error
    return Begun(*last, fault, time.perf_counter() - started)


def _samples(cuts: list[Cut], blocks: tuple[Block, ...]) -> tuple[Any, npt.NDArray[Any]]:
    """The rows of all cuts, with their numbers; a block that was read again must be what it was."""
    reuse_pages()
    parts = []
    for cut, block in zip(cuts, blocks, strict=True):
        if block.facts.digest != cut.digest:
            why = f" ({block.facts.fault})" if block.facts.fault is not None else ""
            raise SourceError(
                f"Partition {cut.number} had to be read again, since a worker was lost, and is not what it was{why}; "
                "put the data back as they were, and resume."
            )
        parts.append(block.piece(cut.first, cut.last))
    batches, rows = zip(*parts, strict=True)
    return stacked(list(batches)), np.concatenate(rows)


def _aligned(found: Found) -> Found:
    """What has come over a wire may lie at odd addresses, where NumPy sums in another order."""
    if found.sums is None:
        return found
    arrays = {name: np.require(array, requirements="A") for name, array in found.sums.arrays.items()}
    return replace(found, sums=replace(found.sums, arrays=arrays))
