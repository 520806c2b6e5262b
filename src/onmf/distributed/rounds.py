"""The driver of a fit in rounds: it hands out rows and states, and keeps the books."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onmf._support.skipping import SkippedLog
from onmf.data.columns import Features
from onmf.distributed import tasks
from onmf.distributed.cluster import Cluster, ClusterError
from onmf.distributed.partitions import Partitions, Sealed
from onmf.distributed.pieces import Piece, heads, pieces_of_round
from onmf.distributed.window import Data, Window, begin_again
from onmf.divergences import Divergence
from onmf.learner import Learned, Progress, Reading, Recipe, Skipped, Standing, taught, told
from onmf.learner.rounds import Outcome, Setting, adapted, exchange_due, size_of_round
from onmf.methods import Method
from onmf.model.validation import DataError

START = 3000  # samples that are learnt in sequence first
MOST_SHARDS = 64  # if nobody says how many
ARITY = 4  # of the tree by which what shards have found is summed

Course = Iterator[tuple[Learned, Progress | None]]


def run(
    recipe: Recipe,
    partitions: Partitions,
    reading: Reading,
    features: Features,
    generators: tuple[np.random.Generator, np.random.Generator],
    learned: Learned | None = None,
    shards: int | None = None,
) -> Course:
    """Learn from all partitions, in rounds of up to so many shards: what was learnt after each, and what to tell of it.

    As ``learner.run``: given a ``learned`` that stands somewhere in the same partitions, go on from there, to the bit.
    """
    drawing, shuffling = generators
    done = learned.position if learned else None
    done = done if isinstance(done, Standing) else None
    data = Data(partitions, reading, features, done.seed if done else int(shuffling.integers(2**32)))
    return _Driver(recipe, data, drawing, learned, shards or min(max(len(partitions), 1), MOST_SHARDS)).course(done)


class _Driver:
    def __init__(
        self, recipe: Recipe, data: Data, drawing: np.random.Generator, learned: Learned | None, shards: int
    ) -> None:
        self.recipe, self.data, self.drawing, self.shards = recipe, data, drawing, shards
        self.learned, self.skipped, self.tell = learned, Skipped(), SkippedLog()
        self.cluster = Cluster()
        self.phases = {"read": 0.0, "learn": 0.0, "merge": 0.0}
        self.met = self.news = False  # any samples; anything skipped since the last time that something was handed out
        self.total: int | None = None

    def course(self, done: Standing | None) -> Course:
        """Pass after pass, from where a run stopped."""
        first, last, n = done.passes if done else 1, self.data.reading.max_passes, self.data.partitions.n_samples
        self.met = done is not None
        if n is not None:
            before = 0 if not self.learned else self.learned.pass_began if done else self.learned.history.samples
            self.total = before + n * (last - first + 1)
        for number in range(first, last + 1):
            window = Window(self.cluster, self.data, self.shards, number)
            try:
                if done is not None:
                    window.take_up(done)
                done = None
                yield from self._pass(window)
            finally:
                window.close()
        if self.learned is None or not (self.met or self.news):
            reason = self.skipped.reasons[-1] if self.skipped.count else "All partitions are empty."
            raise DataError(f"No batch could be learnt from. {reason}")
        if self.news:
            yield self.learned, None

    def _pass(self, window: Window) -> Course:
        while True:
            shards, rows = self.shards, START
            if self.learned is not None:
                shards, rows = size_of_round(self.learned.method, self.learned.state.clock, self.shards)
            self._fill(window, START if self.learned is None else shards * rows)
            if not window.open:
                return
            self.met = True
            learned = self.learned
            progress = self._start(window) if learned is None else self._round(window, learned, shards, rows)
            if self.learned is not None and progress is not None:
                self.news = False
                yield self.learned, replace(progress, total=self.total, phases=dict(self.phases))

    def _fill(self, window: Window, rows: int) -> None:
        started = time.perf_counter()
        for facts in window.fill(rows):
            self._leave_out(facts.fault)
            for reason in facts.skipped.reasons:
                self.tell(DataError(reason))
            self._skip(facts.skipped)
        self.phases["read"] += time.perf_counter() - started

    def _start(self, window: Window) -> Progress | None:
        """Learn the first samples in sequence: shards that begin from a poor dictionary go separate ways."""
        started, pieces = time.perf_counter(), heads(window.open, START)
        seed = self.data.mixed(window.passes, len(self.data.partitions))
        start = Sealed(tasks.Start(self.recipe, self.data.reading, self.data.features, self.drawing, seed))

        def graph() -> Any:
            return self.cluster.task("start", tasks.begun, start, *_cut(pieces))

        begun: tasks.Begun = self._tried(graph, window, pieces)
        self.phases["learn"] += time.perf_counter() - started
        if begun.learned is None or begun.progress is None:
            self._leave_out(begun.fault)
            return None
        found, partitions = begun.learned, self.data.partitions
        if found.method.not_additive:
            raise ValueError(f"method {found.method.name!r} cannot learn on shards: {found.method.not_additive}.")
        skipped = self.skipped + found.skipped
        self.learned = replace(
            found,
            state=found.state.copy(),
            divergence=self._own_divergence(found),
            method=self._own_method(found),
            skipped=skipped,
            source=partitions.spec,
            position=window.standing(),
        )
        samples = found.history.samples
        return replace(begun.progress, H=None, W=self.learned.W, skipped=skipped.count, new=samples)

    # Classes of the user's own come back as copies of what was sent: the model keeps the user's.

    def _own_divergence(self, found: Learned) -> Divergence:
        own = self.recipe.divergence.for_data(found.units.mean, found.features.number)
        if not found.adaptive:
            return own
        return replace(own, **found.divergence.parameters())  # type: ignore[type-var] # all are dataclasses

    def _own_method(self, found: Learned) -> Method:
        own = self.recipe.method
        return own.with_constants(**found.method.constants()) if isinstance(own, Method) else found.method

    def _round(self, window: Window, learned: Learned, shards: int, rows: int) -> Progress | None:
        started, began, repeated = time.perf_counter(), time.time(), window.passes > 1
        each = pieces_of_round(window.open, shards, rows)
        window.read_ahead(shards * rows)
        pieces = [piece for some in each for piece in some]
        n = sum(piece.last - piece.first for piece in pieces)
        sealed = Sealed(Setting.of(self.recipe, learned, repeated))
        due = len(each) > 1 and exchange_due(self.recipe, learned, n, repeated)

        def graph() -> Any:
            task = self.cluster.task
            setting = task("state", tasks.setting, sealed)
            if len(each) == 1:
                return task("learn", tasks.alone, setting, *_cut(each[0]))
            if due:
                setting = task("exchange", tasks.exchanged, setting, *_cut(each[0]))
            number = Sealed(len(each))
            found = [task("learn", tasks.learnt, setting, number, *_cut(some)) for some in each]
            while len(found) > 1:
                groups = [found[first : first + ARITY] for first in range(0, len(found), ARITY)]
                found = [group[0] if len(group) == 1 else task("merge", tasks.merged, *group) for group in groups]
            return task("finish", tasks.finished, setting, found[0])

        outcome: Outcome = self._tried(graph, window, pieces)
        seconds = time.perf_counter() - started
        learning = min(max(outcome.ended - began, outcome.seconds), seconds)  # whatever the clocks of machines say
        self.phases["learn"] += learning
        self.phases["merge"] += seconds - learning
        for fault in outcome.faults:
            self._leave_out(fault)
        if outcome.news is None or self.learned is None:
            return None
        before, news = self.learned, outcome.news
        divergence = adapted(before, outcome.parameters)
        after = taught(before, outcome.state.copy(), divergence, news, seconds, window.standing())
        progress = told(before, after, news, self.total)
        self.learned = after
        return progress

    def _tried(self, graph: Callable[[], Any], window: Window, pieces: Sequence[Piece]) -> Any:
        """What a round gives; one whose machines fail is begun again, from the same state and the same rows."""
        attempt = 0
        while True:
            try:
                return self.cluster.value(graph())
            except ClusterError as error:
                attempt += 1
                begin_again(error, attempt, "a round")
                for each in {piece.of.number: piece.of for piece in pieces}.values():
                    window.reopen(each)

    # What cannot be learnt from

    def _leave_out(self, error: Exception | None) -> None:
        """An error, or counted."""
        if error is None:
            return
        if not self.data.reading.skip_bad:
            raise error
        self.tell(error)
        self._skip(Skipped().and_also(error))

    def _skip(self, skipped: Skipped) -> None:
        if self.learned is None:
            self.skipped = self.skipped + skipped
        elif skipped.count:
            self.learned = replace(self.learned, skipped=self.learned.skipped + skipped)
            self.news = True


def _cut(pieces: Sequence[Piece]) -> tuple[Any, ...]:
    """What a task is told of its rows, and the blocks that have them."""
    cuts = [tasks.Cut(each.of.number, each.of.facts.digest, each.first, each.last) for each in pieces]
    return Sealed(cuts), *(each.of.block for each in pieces)
