"""Which runs are made: every contestant that serves, on every data set, from every start.

To save hours, only the uniform start is run with every seed, and the peers make more than one pass only from there and
with the first seed; slow ones run nowhere else. Runs on all cores are of one pass, from the uniform start with the
first seed, on some data sets, by the contestants for which they say something.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.data import SOURCES

ON_ALL_CORES = ("synthetic", "synthetic_wide", "cells", "news_counts", "yaleb")


@dataclass(frozen=True)
class Run:
    """One run, in one process."""

    data: str
    divergence: str
    start: str
    threads: str  # "1" or "all"
    contestant: str
    seed: int
    passes: int  # at most

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        return "-".join(str(value) for value in dataclasses.astuple(self)[:-1])


def plan(
    data: list[str], contestants: list[str], starts: list[str], threads: list[str], seeds: list[int]
) -> Iterator[Run]:
    """All runs, those to be compared next to each other in time."""
    for source in (SOURCES[name] for name in data):
        for divergence in source.divergences:
            for count, start, seed in product(threads, starts, seeds):
                plain = start == "uniform" and seed == seeds[0]
                if start not in source.starts or (start != "uniform" and seed != seeds[0]):
                    continue
                if count == "all" and not (plain and source.name in ON_ALL_CORES):
                    continue
                for contestant in (CONTESTANTS[name] for name in contestants):
                    suits = start in contestant.starts and source.name in (contestant.only_on or data)
                    suits = suits and (count == "1" or contestant.threaded)
                    suits = suits and (plain or not contestant.first_seed_only)
                    suits = suits and contestant.name in (source.rivals or contestants)
                    if suits and contestant.serves(divergence, source.sparse):
                        peer = not contestant.name.startswith("onmf")
                        once = count == "all" or (peer and not plain)
                        passes = 1 if once else source.passes
                        yield Run(source.name, divergence, start, count, contestant.name, seed, passes)
