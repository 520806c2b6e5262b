"""Which runs are made: every contestant that serves, on every data set, from every start, with every seed.

To save hours, runs on all cores are made from the uniform start only, by the contestants for which they say something,
and those from NNDSVDa, a start without chance, with the first seed only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.data import SOURCES


@dataclass(frozen=True)
class Run:
    """One run, in one process."""

    data: str
    divergence: str
    start: str
    threads: str  # "1" or "all"
    contestant: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        return "-".join(str(value) for value in dataclasses.astuple(self))


def plan(
    data: list[str], contestants: list[str], starts: list[str], threads: list[str], seeds: list[int]
) -> Iterator[Run]:
    """All runs, those to be compared next to each other in time."""
    for source in (SOURCES[name] for name in data):
        for divergence in source.divergences:
            for count, start, seed in product(threads, starts, seeds):
                if start not in source.starts or (count == "all" and start != "uniform"):
                    continue
                if start == "nndsvda" and seed != seeds[0]:
                    continue
                for contestant in (CONTESTANTS[name] for name in contestants):
                    suits = start in contestant.starts and source.name in (contestant.only_on or data)
                    suits = suits and (count == "1" or contestant.threaded)
                    suits = suits and contestant.name in (source.rivals or contestants)
                    if suits and contestant.serves(divergence, source.sparse):
                        yield Run(source.name, divergence, start, count, contestant.name, seed)
