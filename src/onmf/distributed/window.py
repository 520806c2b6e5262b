"""The window of partitions that are open: read on the cluster, held there until they have been learnt from."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onmf.data import SourceError
from onmf.data.columns import Features
from onmf.distributed import tasks
from onmf.distributed.blocks import Facts, Opening
from onmf.distributed.cluster import Cluster, ClusterError
from onmf.distributed.partitions import Partitions, Sealed
from onmf.distributed.pieces import Open, chained, order_of
from onmf.learner import Reading, Standing

log = logging.getLogger("onmf")

ATTEMPTS = 5  # at a round or at reading a partition; the scheduler itself survives the deaths of some workers in each


@dataclass(frozen=True)
class Data:
    """The partitions, and how they are read."""

    partitions: Partitions
    reading: Reading
    features: Features
    seed: int  # of all shuffling

    def mixed(self, *numbers: int) -> tuple[int, ...] | None:
        """The seed of a permutation of rows; None: they stay in their order."""
        return (self.seed, *numbers) if self.reading.shuffle else None

    def opening(self, number: int, passes: int) -> tuple[Opening, tuple[Any, ...]]:
        """How a partition is opened in that pass, and the tasks that it needs."""
        reader, inputs = self.partitions.read(number)
        seed = self.mixed(passes, number)
        return Opening(self.partitions.label(number), reader, self.reading, self.features, seed), inputs


class Window:
    """The partitions of one pass, from the first that is open to the last that is read ahead."""

    def __init__(self, cluster: Cluster, data: Data, shards: int, passes: int) -> None:
        self.cluster, self.data, self.shards, self.passes = cluster, data, shards, passes
        self.order = order_of(len(data.partitions), data.seed if data.reading.shuffle else None, passes)
        self.begun = 0  # of them
        self.mark = ""
        self.open: list[Open] = []  # those that have rows left
        self.last: Open | None = None  # that was opened
        self.ahead: dict[int, tuple[Any, Any]] = {}  # those that are being read: the tasks of block and facts

    def fill(self, rows: int) -> list[Facts]:
        """Open partitions until there are enough for a round of so many rows; what is new about each of them."""
        self.open, news = [each for each in self.open if each.left], list[Facts]()
        while self.begun < len(self.order) and not self._holds(rows):
            self._read(max(1, self.shards - len(self.open)))
            number = self.order[self.begun]
            self.begun += 1
            opened = self._opened(number)
            self.mark = chained(self.mark, opened.facts.digest)
            news.append(opened.facts)
            if opened.left:
                self.open.append(opened)
                self.last = opened
        return news

    def read_ahead(self, rows: int) -> None:
        """Begin to read what a round of so many rows will need when this one is over."""
        if not self.cluster.reads_ahead:
            return
        usual = max(1, sum(each.facts.rows for each in self.open) // max(len(self.open), 1))
        left = [each.left for each in self.open if each.left]
        count = max(self.shards - len(left), -(-(rows - sum(left)) // usual))
        self._read(count)

    def _holds(self, rows: int) -> bool:
        return len(self.open) >= self.shards and sum(each.left for each in self.open) >= rows

    def _read(self, count: int) -> None:
        """Begin to read the next so many partitions, unless that has begun."""
        self._begin([number for number in self.order[self.begun : self.begun + count] if number not in self.ahead])

    def _begin(self, numbers: Iterable[int]) -> None:
        numbers, begun = list(numbers), list[Any]()
        for number in numbers:
            opening, inputs = self.data.opening(number, self.passes)
            block = self.cluster.task("read", tasks.opened, Sealed(opening), *inputs)
            begun += [block, self.cluster.task("facts", tasks.facts, block)]
        if not self.cluster.reads_ahead:  # one after the other, when it is needed
            self.ahead.update(zip(numbers, zip(begun[::2], begun[1::2], strict=True), strict=True))
        elif begun:
            held = self.cluster.hold(begun)  # at once: each message takes its time
            self.ahead.update(zip(numbers, zip(held[::2], held[1::2], strict=True), strict=True))

    def _opened(self, number: int) -> Open:
        """A partition with what is known of it, once it has been read."""
        attempt = 0
        while True:
            if number not in self.ahead:
                self._begin([number])
            held = self.ahead.pop(number)
            try:
                block, facts = held if self.cluster.reads_ahead else self.cluster.hold(list(held))
                return Open(number, block, self.cluster.value(facts, held=True))
            except ClusterError as error:
                attempt += 1
                self.cluster.forget(*held)
                begin_again(error, attempt, f"reading partition {number}")
            except (ConnectionError, ImportError, MemoryError):
                raise
            except Exception as error:  # of the user's own tasks, whatever they do
                cause = " ".join(str(error).split()) or type(error).__name__
                return Open(number, None, Facts(fault=SourceError(f"Partition {number} cannot be computed: {cause}")))

    def reopen(self, each: Open) -> None:
        """Read a partition once more that the cluster has lost; whoever learns from it finds out if it has changed."""
        if self.cluster.is_lost(each.block):
            self.cluster.forget(each.block)
            again = self._opened(each.number)
            if again.facts.fault is not None:
                raise again.facts.fault
            each.block = again.block

    def close(self) -> None:
        """Let go of all that is held: what the cluster has given up stays given up while somebody wants it."""
        ahead = [task for pair in self.ahead.values() for task in pair]
        self.cluster.forget(*ahead, *(each.block for each in self.open if each.block is not None))
        self.ahead, self.open = {}, []

    # Where a run stands

    def standing(self) -> Standing:
        """After the round."""
        left = [each for each in self.open if each.left] or [each for each in (self.last,) if each]
        opened = tuple(each.opened for each in left)
        return Standing(self.passes, self.data.seed, len(self.data.partitions), self.begun, opened, self.mark)

    def take_up(self, done: Standing) -> None:
        """Open what was open when a run stopped, and refuse data that are not the same."""
        self.begun, self.mark = done.begun, done.mark
        if self.data.reading.verify:
            self._require_same_past(done)
        self._begin(each.number for each in done.opened)
        for each in done.opened:
            opened = self._opened(each.number)
            if opened.facts.digest != each.digest or each.done > opened.facts.rows:
                raise SourceError(
                    f"the data are not those of the checkpoint: partition {each.number} differs from the one it has "
                    "learnt from; give the same data, or begin a new run."
                )
            opened.done, self.last = each.done, opened
            self.open += [opened] if opened.left else []

    def _require_same_past(self, done: Standing) -> None:
        mark = ""
        for number in self.order[: done.begun]:
            mark = chained(mark, self._opened(number).facts.digest)
        if mark != done.mark:
            raise SourceError(
                f"the data are not those of the checkpoint: the first {done.begun} partitions of pass {done.passes} "
                "differ from those it has learnt from; give the same data, or begin a new run."
            )


def begin_again(error: ClusterError, attempt: int, what: str) -> None:
    """Say that machines failed, so that something is begun again, or give up."""
    if attempt == ATTEMPTS:
        raise ClusterError(
            f"workers died again and again during {what} ({error}); perhaps they have too little memory: give them "
            "more, or smaller partitions."
        ) from error
    log.warning("Workers were lost during %s, which is begun again: %s", what, str(error))
