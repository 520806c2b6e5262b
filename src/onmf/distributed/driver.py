"""The driver of a fit in rounds: it hands out rows and states, and records the progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onmf.data.columns import Features
from onmf.distributed import worker
from onmf.distributed.cluster import Cluster, ClusterError, Sealed
from onmf.distributed.partitions import Partitions
from onmf.distributed.window import Window, cuts_of_round, cuts_of_start, warn_of_retry
from onmf.distributed.worker import Cut
from onmf.learner import BatchUpdate, Learned, Progress, Reading, Recipe, RoundPosition, Skipped, SkippedLog, updated
from onmf.learner.rounds import RoundResult, RoundStart, adapted, exchange_due, size_of_round
from onmf.methods import Method
from onmf.model.units import SilenceError
from onmf.model.validation import DataError

START = 3000  # samples that are learnt in sequence first
MOST_SHARDS = 64  # by default
ARITY = 4  # of the tree by which the results of shards are summed

Steps = Iterator[tuple[Learned, Progress | None]]


class Driver:
    """The driver that learns from all partitions in rounds of up to ``shards`` shards.

    Given a ``learned`` with a position in these partitions, it resumes there, bit for bit, as ``learner.run`` does.
    """

    def __init__(
        self,
        recipe: Recipe,
        partitions: Partitions,
        reading: Reading,
        features: Features,
        generators: tuple[np.random.Generator, np.random.Generator],
        learned: Learned | None = None,
        shards: int | None = None,
    ) -> None:
        self.recipe, self.reading, self.learned, self.cluster = recipe, reading, learned, Cluster()
        self.drawing, shuffling = generators
        self.done = learned.position if learned and isinstance(learned.position, RoundPosition) else None
        seed = self.done.seed if self.done else int(shuffling.integers(2**32))
        most = shards or min(max(len(partitions), 1), MOST_SHARDS)
        self.window = Window(self.cluster, partitions, reading, features, seed, most)
        self.skipped, self.tell = learned.skipped if learned else Skipped(), SkippedLog()
        self.phases = {"read": 0.0, "learn": 0.0, "merge": 0.0}
        self.met = self.done is not None  # have there been any samples, now or in an earlier run?
        self.news = False  # has anything been skipped since the last progress?
        self.silence: SilenceError | None = None  # why the partitions before the first one were passed over
        self.total: int | None = None

    def run(self) -> Steps:
        """Learn pass after pass, and yield the model and the progress after each round."""
        done, last, n = self.done, self.reading.max_passes, self.window.partitions.n_samples
        first = done.passes if done else 1
        if n is not None:
            before = 0 if not self.learned else self.learned.pass_began if done else self.learned.history.samples
            self.total = before + n * (last - first + 1)
        try:
            for number in range(first, last + 1):
                self.window.begin(number, done)
                done = None
                yield from self._pass()
        finally:
            self.window.close()
        if self.learned is None and self.silence is not None:
            raise self.silence
        if self.learned is None or not (self.met or self.news):
            reason = self.skipped.reasons[-1] if self.skipped.count else "All partitions are empty."
            raise DataError(f"No batch could be learnt from. {reason}")
        if self.news:
            yield replace(self.learned, skipped=self.skipped), None

    def _pass(self) -> Steps:
        while True:
            shards, rows = 1, START
            if self.learned is not None:
                shards, rows = size_of_round(self.learned.method, self.learned.state.clock, self.window.shards)
            started = time.perf_counter()
            for facts in self.window.fill(shards * rows):
                if facts.fault is not None:
                    self._leave_out(facts.fault)
                self._skip(facts.skipped)
            self.phases["read"] += time.perf_counter() - started
            if not self.window.open:
                return
            self.met = True
            progress = self._start() if self.learned is None else self._round(self.learned, shards, rows)
            if self.learned is not None and progress is not None:
                self.learned, self.news = replace(self.learned, skipped=self.skipped), False
                skipped, phases = self.skipped.count, dict(self.phases)
                yield self.learned, replace(progress, skipped=skipped, total=self.total, phases=phases)

    def _start(self) -> Progress | None:
        """Learn the first samples in sequence: shards that begin from a poor dictionary go separate ways."""
        started, window = time.perf_counter(), self.window
        cuts, seed = cuts_of_start(window.open, START), window.mixing_seed(len(window.partitions))
        start = Sealed((self.recipe, self.reading, window.features, self.drawing, seed))
        begun = self._tried(lambda: self.cluster.task(worker.start, start, *window.blocks(cuts)), cuts)
        self.phases["learn"] += time.perf_counter() - started
        if isinstance(begun, SilenceError):
            self.silence = begun
            return None
        if isinstance(begun, DataError):
            self._leave_out(begun)
            return None
        found: Learned = begun[0]
        if found.method.why_not_on_shards:
            raise ValueError(f"method {found.method.name!r} cannot learn on shards: {found.method.why_not_on_shards}.")
        # The user's own classes come back as copies: the model keeps the originals.
        divergence, method = self.recipe.divergence.for_data(found.units.mean, found.features.number), found.method
        if found.adaptive:
            divergence = replace(divergence, **found.divergence.parameters())  # type: ignore[type-var] # a dataclass
        if isinstance(self.recipe.method, Method):
            method = self.recipe.method.with_constants(**method.constants())
        self.learned = replace(
            found,
            state=found.state.copy(),
            divergence=divergence,
            method=method,
            source=window.partitions.spec,
            position=window.position(),
        )
        self.skipped = self.skipped + found.skipped
        return replace(begun[1], H=None, W=self.learned.W, new=found.history.samples)

    def _round(self, learned: Learned, shards: int, rows: int) -> Progress | None:
        started, began, window = time.perf_counter(), time.time(), self.window
        each = cuts_of_round(window.open, shards, rows)
        window.read_ahead(shards * rows)
        cuts = [cut for some in each for cut in some]
        start = RoundStart.of(self.recipe, learned, window.passes > 1, len(each))
        sealed, due = Sealed(start), exchange_due(start, sum(cut.last - cut.first for cut in cuts))

        def graph() -> Any:
            task = self.cluster.task
            state = task(worker.state, sealed)
            if due:
                state = task(worker.exchange, state, *window.blocks(each[0]))
            found = [task(worker.learn, state, *window.blocks(some)) for some in each]
            while len(found) > 1:
                groups = [found[first : first + ARITY] for first in range(0, len(found), ARITY)]
                found = [group[0] if len(group) == 1 else task(worker.merge, *group) for group in groups]
            return task(worker.finish, state, found[0])

        result: RoundResult = self._tried(graph, cuts)
        seconds = time.perf_counter() - started
        learning = min(max(result.ended - began, result.seconds), seconds)  # the clocks of machines may differ
        self.phases["learn"] += learning
        self.phases["merge"] += seconds - learning
        for fault in result.faults:
            self._leave_out(fault)
        if result.facts is None or result.state is None:
            return None
        update = BatchUpdate(result.state.copy(), adapted(learned, result.parameters), result.facts)
        self.learned, progress = updated(learned, update, seconds, window.position(), self.total)
        return progress

    def _tried(self, graph: Callable[[], Any], cuts: Sequence[Cut]) -> Any:
        """Compute a round; one whose machines fail is begun again, from the same state and the same rows."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self.cluster.value(graph())
            except ClusterError as error:
                warn_of_retry(error, attempt, "a round")
                self.window.reopen(cuts)

    def _leave_out(self, error: Exception) -> None:
        """Raise an error, or count the rows that it is about as skipped."""
        if not self.reading.skip_bad:
            raise error
        self._skip(Skipped(1, (str(error),)))

    def _skip(self, skipped: Skipped) -> None:
        for reason in skipped.reasons:
            self.tell(DataError(reason))
        self.skipped, self.news = self.skipped + skipped, self.news or skipped.count > 0
