"""Sources made of sources: shuffled, repeated, cut off, scaled, or read ahead in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.checks import require_at_least, require_whole
from onmf.streams.base import Source, SourceError, recut, stacked

Numbered = Iterator[tuple[npt.NDArray[Any], Any]]


class Wrapped(Source):
    """A source that gives what another gives, changed on its way."""

    def __init__(self, source: Source) -> None:
        if not isinstance(source, Source):
            raise SourceError(
                f"this takes a source, got {type(source).__name__}; Rows makes one of an array, Batches of an iterable."
            )
        self.source = source
        self.n_features, self.n_samples = source.n_features, source.n_samples
        self.rewinds, self.feature_names = source.rewinds, source.feature_names

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Numbered:
        """What bad samples are met with, the source within is told too, for as long as it is read."""
        self.source.on_bad = self.on_bad
        try:
            yield from self._batches(size, rng)
        finally:
            self.source.on_bad = None

    @abstractmethod
    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """The changed batches."""


class _Shuffled(Wrapped):
    any_order = True

    def __init__(self, source: Source, buffer: int, seed: int) -> None:
        super().__init__(source)
        require_whole(1, buffer=buffer)
        require_whole(0, seed=seed)
        self.buffer, self.seed = buffer, seed

    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """Each batch is drawn from the rows that wait; row numbers are those of the source."""
        rng = np.random.default_rng(self.seed) if rng is None else rng
        rows: npt.NDArray[Any] = np.empty(0, dtype=np.int64)
        waiting: Any = None
        for number, batch in self.source.batches(size):
            rows = np.concatenate([rows, number])
            waiting = batch if waiting is None else stacked([waiting, batch])
            while len(rows) >= self.buffer + size:
                order = rng.permutation(len(rows))
                chosen, left = order[:size], np.sort(order[size:])
                yield rows[chosen], waiting[chosen]
                rows, waiting = rows[left], waiting[left]
        order = rng.permutation(len(rows))
        for first in range(0, len(order), size):
            chosen = order[first : first + size]
            yield rows[chosen], waiting[chosen]


class _Repeated(Wrapped):
    def __init__(self, source: Source, passes: int) -> None:
        super().__init__(source)
        require_whole(1, passes=passes)
        if passes > 1 and not source.rewinds:
            raise SourceError("this source can be read only once: write it to a file first.")
        self.passes, self.any_order = passes, source.any_order
        self.n_samples = None if source.n_samples is None else passes * source.n_samples

    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """Pass after pass, each shuffled anew by ``rng``."""
        for _ in range(self.passes):
            yield from self.source.batches(size, rng)


class _Taken(Wrapped):
    def __init__(self, source: Source, n: int) -> None:
        super().__init__(source)
        require_whole(1, n=n)
        self.n = n
        self.n_samples = None if source.n_samples is None else min(n, source.n_samples)

    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """The first n rows."""
        left = self.n
        for rows, batch in self.source.batches(size):
            yield rows[:left], batch[:left]
            left -= len(rows)
            if left <= 0:
                return


class _Scaled(Wrapped):
    def __init__(self, source: Source, factor: float) -> None:
        super().__init__(source)
        require_at_least(0, factor=factor)
        self.factor, self.any_order = factor, source.any_order

    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """Every entry times the factor."""
        for rows, batch in self.source.batches(size, rng):
            yield rows, batch * float(self.factor)


class _Rebatched(Wrapped):
    def __init__(self, source: Source, size: int) -> None:
        super().__init__(source)
        require_whole(1, size=size)
        self.size, self.any_order = size, source.any_order

    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """Batches of its own size, whatever is asked for."""
        return recut(self.source.batches(self.size, rng), self.size)


class _Prefetched(Wrapped):
    def __init__(self, source: Source, depth: int) -> None:
        super().__init__(source)
        require_whole(1, depth=depth)
        self.depth, self.any_order = depth, source.any_order

    def _batches(self, size: int, rng: np.random.Generator | None) -> Numbered:
        """A thread reads on while the last batch is in use.

        Its errors are raised where the batch is missing, and bad samples are told of in their place among the batches.
        """
        ready: queue.Queue[Any] = queue.Queue(maxsize=self.depth)
        stop = threading.Event()

        def hand_over(item: Any) -> None:
            while not stop.is_set():
                with contextlib.suppress(queue.Full):
                    ready.put(item, timeout=0.1)
                    break

        def read() -> None:
            if self.on_bad is not None:
                self.source.on_bad = lambda error: hand_over((None, error, True))
            try:
                for item in self.source.batches(size, rng):
                    hand_over((item, None, False))
                    if stop.is_set():
                        return
                hand_over((None, None, False))
            except BaseException as error:  # whatever it is, the reader's caller must hear of it
                hand_over((None, error, False))

        thread = threading.Thread(target=read, daemon=True, name="onmf-prefetch")
        thread.start()
        try:
            while True:
                item, error, passed_over = ready.get()
                if passed_over:
                    self.bad(error)
                elif error is not None:
                    raise error
                elif item is None:
                    return
                else:
                    yield item
        finally:
            stop.set()
            thread.join(timeout=5)


def shuffle(source: Source, buffer: int = 10_000, seed: int = 0) -> Source:
    """Rows in a random order as far as a buffer allows: each batch is drawn from so many rows that wait.

    ``OnlineNMF.fit`` with ``shuffle=True`` draws by its own ``random_state``, anew in every pass; else the seed
    decides, and every pass is the same.
    """
    return _Shuffled(source, buffer, seed)


def repeat(source: Source, passes: int) -> Source:
    """So many passes as one."""
    return _Repeated(source, passes)


def take(source: Source, n: int) -> Source:
    """The first n rows."""
    return _Taken(source, n)


def scale(source: Source, factor: float) -> Source:
    """Every entry times a factor."""
    return _Scaled(source, factor)


def rebatch(source: Source, size: int) -> Source:
    """Batches of one size, whatever is asked for; only the last may be shorter."""
    return _Rebatched(source, size)


def prefetch(source: Source, depth: int = 2) -> Source:
    """Read up to ``depth`` batches ahead in a thread, while the last one is learnt from."""
    return _Prefetched(source, depth)
