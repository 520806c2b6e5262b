"""A random order of many rows, drawn as far as it is needed: the first batch need not wait for the last row."""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Counts

MANY = 2**17  # rows from which on it pays
BUCKETS = 256


class Permutation:
    """The numbers below n in a random order, all orders being equally likely.

    Of many, each goes to one of 256 buckets, drawn at random; a bucket is shuffled when its turn comes. That is sorting
    by random numbers of which the last digits are drawn later.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._rng, self._shuffled, self._bucket = rng, 0, 0
        if n < MANY:
            self._order, self._shuffled = rng.permutation(n), n
        else:
            buckets = rng.integers(0, BUCKETS, n, dtype=np.uint8)
            self._order = np.argsort(buckets, kind="stable")
            self._ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS))

    def part(self, start: int, stop: int) -> Counts:
        """Those from ``start`` to ``stop`` in this order."""
        while self._shuffled < stop:
            end = int(self._ends[self._bucket])
            self._rng.shuffle(self._order[self._shuffled : end])
            self._shuffled, self._bucket = end, self._bucket + 1
        return self._order[start:stop]
