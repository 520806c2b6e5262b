"""Which rows of the open partitions the next round learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from onmf.distributed.blocks import Facts
from onmf.learner import Opened


@dataclass
class Open:
    """A partition that is held by the cluster, and how far it has been learnt from."""

    number: int
    block: Any  # the task that holds it
    facts: Facts
    done: int = 0

    @property
    def left(self) -> int:
        """Rows."""
        return self.facts.rows - self.done

    @property
    def opened(self) -> Opened:
        """As a checkpoint knows it."""
        return Opened(self.number, self.done, self.facts.digest)


@dataclass(frozen=True)
class Piece:
    """Rows of an open partition."""

    of: Open
    first: int
    last: int


def order_of(partitions: int, seed: int | None, number: int) -> list[int]:
    """In which order the partitions are opened in that pass; without a seed, as they are."""
    if seed is None:
        return list(range(partitions))
    return [int(each) for each in np.random.default_rng([seed, number]).permutation(partitions)]


def pieces_of_round(window: Sequence[Open], shards: int, rows: int) -> list[list[Piece]]:
    """What each shard learns from: about so many rows, and no shard without any.

    A shard begins with a partition of its own, the one that was opened first, as long as there are enough of them; it
    goes on to the next ones if that has too few rows left, so that what is begun is finished soon.
    """
    found: list[list[Piece]] = []
    waiting = [each for each in window if each.left]
    for _ in range(shards):
        wanted, taken = rows, list[Piece]()
        while wanted > rows / 2 and waiting:
            each = waiting.pop(0)
            count = each.left if each.left < wanted + rows / 2 else wanted  # no scraps
            taken.append(Piece(each, each.done, each.done + count))
            each.done += count
            wanted -= count
            if each.left:
                waiting.append(each)  # for a shard that comes round again
        if taken:
            found.append(taken)
    return found


def heads(window: Sequence[Open], rows: int) -> list[Piece]:
    """About so many rows, the same number of every open partition as far as it has so many."""
    share = -(-rows // max(len(window), 1))
    taken = []
    for each in window:
        count = min(share, each.left)
        taken.append(Piece(each, each.done, each.done + count))
        each.done += count
    return [piece for piece in taken if piece.last > piece.first]


def chained(mark: str, digest: str) -> str:
    """The digest of all partitions up to one more."""
    return xxhash.xxh3_128_hexdigest((mark + digest).encode())
