"""What is kept of a stream of samples while it goes by, in memory that does not grow with their number."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

from onmf._support.arrays import Array

MOST_BINS = 256  # of a stream; an even number


class Reservoir:
    """A random choice of what went by, each with the same chance."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self.rng = size, rng
        self.seen = 0
        self.kept: list[Any] = []

    def places(self, n: int) -> Iterator[tuple[int, int]]:
        """Which of the next n are kept, and where; whoever asks puts them there."""
        numbers = np.arange(self.seen, self.seen + n)
        drawn = np.where(numbers < self.size, numbers, self.rng.integers(0, numbers + 1))
        self.seen += n
        for i in np.flatnonzero(drawn < self.size):
            yield int(i), int(drawn[i])

    def put(self, place: int, item: Any) -> None:
        """Keep the item, in place of another or as one more."""
        if place == len(self.kept):
            self.kept.append(item)
        else:
            self.kept[place] = item


class Bins:
    """Sums of rows over equally long stretches of the stream; when these become too many, two are made one."""

    def __init__(self, width: int) -> None:
        self.sums = np.zeros((MOST_BINS, width))
        self.counts = np.zeros(MOST_BINS)
        self.length, self.seen = 1, 0

    def add(self, rows: Array) -> None:
        """The next rows of the stream."""
        while self.seen + len(rows) > MOST_BINS * self.length:
            for array in (self.sums, self.counts):
                array[: MOST_BINS // 2] = array[0::2] + array[1::2]
                array[MOST_BINS // 2 :] = 0
            self.length *= 2
        places = (self.seen + np.arange(len(rows))) // self.length
        np.add.at(self.sums, places, rows)
        np.add.at(self.counts, places, 1)
        self.seen += len(rows)

    @property
    def means(self) -> Array:
        """Of every stretch: (stretches, width); without a last one that has hardly begun."""
        whole, rest = divmod(self.seen, self.length)
        used = whole + (whole == 0 or 2 * rest >= self.length)
        return self.sums[:used] / np.maximum(self.counts[:used, None], 1)


class Extremes:
    """The items with the largest keys."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.heap: list[tuple[float, int, Any]] = []
        self.seen = 0  # breaks ties: items have no order

    def wants(self, key: float) -> bool:
        """Would it be one of them?"""
        return len(self.heap) < self.size or key > self.heap[0][0]

    def add(self, key: float, item: Any) -> None:
        """One more, and the least of them goes."""
        self.seen += 1
        heapq.heappush(self.heap, (key, -self.seen, item))
        if len(self.heap) > self.size:
            heapq.heappop(self.heap)

    @property
    def items(self) -> list[Any]:
        """The largest first."""
        return [item for _, _, item in sorted(self.heap, key=lambda each: each[:2], reverse=True)]
