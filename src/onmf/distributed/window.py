"""The window of partitions that are open: read on the cluster, held there until they have been learnt from."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf.data import SourceError
from onmf.data.columns import Features
from onmf.distributed import worker
from onmf.distributed.cluster import Cluster, ClusterError, Sealed
from onmf.distributed.partitions import Partitions
from onmf.distributed.worker import Cut, Facts
from onmf.learner import OpenPartition, Reading, RoundPosition
from onmf.learner.resume import chained

log = logging.getLogger("onmf")

ATTEMPTS = 5  # at a round or at reading a partition; in each, the scheduler itself survives the deaths of some workers


@dataclass
class Open:
    """A partition that is held by the cluster, and how far it has been learnt from."""

    number: int
    block: Any  # the task that holds it
    facts: Facts
    done: int = 0

    @property
    def left(self) -> int:
        """Return how many rows are left."""
        return self.facts.rows - self.done

    def take(self, rows: int) -> Cut:
        """Cut off the next rows."""
        self.done += rows
        return Cut(self.number, self.facts.digest, self.done - rows, self.done)


class Window:
    """The partitions of a pass, from the first that is open to the last that is read ahead."""

    def __init__(
        self, cluster: Cluster, partitions: Partitions, reading: Reading, features: Features, seed: int, shards: int
    ) -> None:
        self.cluster, self.partitions, self.reading, self.features = cluster, partitions, reading, features
        self.seed, self.shards = seed, shards
        self.open: list[Open] = []  # partitions that have rows left
        self.ahead: dict[int, tuple[Any, Any]] = {}  # partitions that are being read: the tasks of block and facts

    def begin(self, passes: int, done: RoundPosition | None = None) -> None:
        """Begin a pass or, in the pass where a run has stopped, open the partitions that were open then."""
        self.close()
        self.passes, self.begun, self.mark = passes, 0, ""
        self.last: Open | None = None  # the partition that was opened last
        self.order = list(range(len(self.partitions)))
        if self.reading.shuffle:
            self.order = np.random.default_rng([self.seed, passes]).permutation(len(self.partitions)).tolist()
        if done is not None:
            self._resume(done)

    def mixing_seed(self, number: int) -> tuple[int, ...] | None:
        """Return the seed that permutes the rows of a partition in this pass; None: they stay in their order."""
        return (self.seed, self.passes, number) if self.reading.shuffle else None

    def fill(self, rows: int) -> list[Facts]:
        """Open partitions until there are enough for a round of these rows; return the facts of each of them."""
        self.open, news = [each for each in self.open if each.left], list[Facts]()
        while self.begun < len(self.order) and (
            len(self.open) < self.shards or sum(each.left for each in self.open) < rows
        ):
            self._read_ahead(self.order[self.begun : self.begun + max(1, self.shards - len(self.open))])
            opened = self._opened(self.order[self.begun])
            self.begun += 1
            self.mark = chained(self.mark, opened.facts.digest)
            news.append(opened.facts)
            if opened.left:
                self.open.append(opened)
                self.last = opened
        return news

    def read_ahead(self, rows: int) -> None:
        """Begin to read the partitions that the next round of these rows will need."""
        usual = max(1, sum(each.facts.rows for each in self.open) // max(len(self.open), 1))
        left = [each.left for each in self.open if each.left]
        number = max(self.shards - len(left), -(-(rows - sum(left)) // usual))
        self._read_ahead(self.order[self.begun : self.begun + number])

    def blocks(self, cuts: Sequence[Cut]) -> tuple[Any, ...]:
        """Return the cuts of a task, sealed, and the blocks that they cut."""
        held = {each.number: each.block for each in self.open}
        return Sealed(cuts), *(held[cut.number] for cut in cuts)

    def reopen(self, cuts: Iterable[Cut]) -> None:
        """Read partitions once more that the cluster has lost; the shards check that they have not changed."""
        wanted = {cut.number for cut in cuts}
        for each in self.open:
            if each.number in wanted and self.cluster.is_lost(each.block):
                self.cluster.forget(each.block)
                again = self._opened(each.number)
                if again.facts.fault is not None:
                    raise again.facts.fault
                each.block = again.block

    def close(self) -> None:
        """Release all partitions: a task that the cluster has given up stays given up while it is held."""
        ahead = [task for pair in self.ahead.values() for task in pair]
        self.cluster.forget(*ahead, *(each.block for each in self.open))
        self.ahead, self.open = {}, []

    def _read_ahead(self, numbers: Iterable[int]) -> None:
        if self.cluster.reads_ahead:  # otherwise one after the other, when they are needed
            self._read([number for number in numbers if number not in self.ahead])

    def _read(self, numbers: list[int]) -> None:
        tasks = []
        for number in numbers:
            reader, inputs = self.partitions.read(number)
            label, seed = self.partitions.label(number), self.mixing_seed(number)
            block = self.cluster.task(worker.read, Sealed((label, reader, self.reading, self.features, seed)), *inputs)
            tasks += [block, self.cluster.task(worker.facts, block)]
        if tasks:
            held = self.cluster.hold(tasks)  # all at once: every message to the scheduler takes time
            self.ahead.update(zip(numbers, zip(held[::2], held[1::2], strict=True), strict=True))

    def _opened(self, number: int) -> Open:
        """Return a partition with its facts, once it has been read."""
        attempt = 0
        while True:
            held: tuple[Any, ...] = ()
            attempt += 1
            try:
                if number not in self.ahead:
                    self._read([number])
                held = block, facts = self.ahead.pop(number)
                return Open(number, block, self.cluster.value(facts, held=True))
            except ClusterError as error:
                self.cluster.forget(*held)
                warn_of_retry(error, attempt, f"reading partition {number}")
            except (ConnectionError, ImportError, MemoryError):
                raise
            except Exception as error:  # the user's own tasks may raise anything
                cause = " ".join(str(error).split()) or type(error).__name__
                return Open(number, None, Facts(fault=SourceError(f"Partition {number} cannot be computed: {cause}")))

    # The position of a run

    def position(self) -> RoundPosition:
        """Return the position of the run after a round."""
        left = [each for each in self.open if each.left] or [each for each in (self.last,) if each]
        opened = tuple(OpenPartition(each.number, each.done, each.facts.digest) for each in left)
        return RoundPosition(self.passes, self.seed, len(self.partitions), self.begun, opened, self.mark)

    def _resume(self, done: RoundPosition) -> None:
        """Open the partitions that were open when a run stopped; other data raise an error."""
        cure = "it has learnt from; give the same data, or begin a new run."
        self.begun, self.mark = done.begun, done.mark
        if self.reading.verify:
            mark = ""
            for number in self.order[: done.begun]:
                mark = chained(mark, self._opened(number).facts.digest)
            if mark != done.mark:
                raise SourceError(
                    f"the data are not those of the checkpoint: the first {done.begun} partitions of pass "
                    f"{done.passes} differ from those {cure}"
                )
        self._read_ahead(each.number for each in done.opened)
        for each in done.opened:
            opened = self._opened(each.number)
            if opened.facts.digest != each.digest or each.done > opened.facts.rows:
                raise SourceError(
                    f"the data are not those of the checkpoint: partition {each.number} differs from the one {cure}"
                )
            opened.done, self.last = each.done, opened
            self.open += [opened] if opened.left else []


def cuts_of_round(window: Sequence[Open], shards: int, rows: int) -> list[list[Cut]]:
    """Return the rows that each shard learns from: about ``rows`` each, and no shard without any.

    A shard begins with a partition of its own, the one that was opened first, as long as there are enough of them; it
    continues with the next ones if that has too few rows left, so that a partition is soon finished.
    """
    found: list[list[Cut]] = []
    waiting = [each for each in window if each.left]
    for _ in range(shards):
        wanted, taken = rows, list[Cut]()
        while wanted > rows / 2 and waiting:
            each = waiting.pop(0)
            number = each.left if each.left < wanted + rows / 2 else wanted  # leave no small rest
            taken.append(each.take(number))
            wanted -= number
            if each.left:
                waiting.append(each)  # for a later shard
        if taken:
            found.append(taken)
    return found


def cuts_of_start(window: Sequence[Open], rows: int) -> list[Cut]:
    """Return about ``rows`` rows, equally many of every open partition as far as it has them."""
    share = -(-rows // max(len(window), 1))
    return [each.take(min(share, each.left)) for each in window if each.left]


def warn_of_retry(error: ClusterError, attempt: int, what: str) -> None:
    """Log that machines failed and that the work begins again, or give up."""
    if attempt == ATTEMPTS:
        raise ClusterError(
            f"workers died again and again during {what} ({error}); perhaps they have too little memory: give them "
            "more, or smaller partitions."
        ) from error
    log.warning("Workers were lost during %s, which starts again: %s", what, str(error))
