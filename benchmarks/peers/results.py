"""The records of the benchmarks: finals, times to a loss, and comparisons seed by seed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.data import SOURCES

Record = dict[str, Any]
OURS = "onmf"
OUR_BATCH = "onmf-batch"
MINIBATCH = ("sklearn-partial_fit", "sklearn-fit")


@dataclass(frozen=True)
class Final:
    """Where a contestant stood at the end of a number of passes, with the variant that did best."""

    loss: float
    seconds: float
    variant: str
    psnr: float | None


Pair = tuple[int, Final, Final]


@dataclass(frozen=True)
class Comparison:
    """The records of one (data, divergence, start, threads), by contestant and seed."""

    data: str
    divergence: str
    start: str
    threads: str
    records: dict[str, dict[int, Record]]

    def final(self, contestants: str | Iterable[str], seed: int, passes: int) -> Final | None:
        """The lowest loss after so many passes of one contestant, or of several; None where nobody got there."""
        names = [contestants] if isinstance(contestants, str) else contestants
        found = [each for name in names for each in _finals(self.records.get(name, {}).get(seed), passes)]
        return min(found, key=lambda final: final.loss, default=None)

    def finals(self, contestants: str | Iterable[str], passes: int) -> list[Final]:
        return [each for seed in self.seeds if (each := self.final(contestants, seed, passes)) is not None]

    def time_to(self, loss: float, seed: int) -> float:
        """Our seconds until the held-out loss is at or below ``loss``; infinity if that never happens."""
        curve = self.records[OURS][seed].get("curves", {"": []})[""]
        return next((float(point["seconds"]) for point in curve if point["loss"] <= loss), math.inf)

    def pairs(self, peers: str | Iterable[str], passes: int) -> Iterator[Pair]:
        """(seed, ours, theirs) where both have come to the end of so many passes."""
        for seed in self.seeds:
            ours, theirs = self.final(OURS, seed, passes), self.final(peers, seed, passes)
            if ours is not None and theirs is not None:
                yield seed, ours, theirs

    def ratios(self, what: str, ours: str, passes: int, theirs: str | Iterable[str], their: int) -> list[float]:
        """Loss or seconds (``what``) of one contestant over those of another, seed by seed."""
        both = ((self.final(ours, seed, passes), self.final(theirs, seed, their)) for seed in self.seeds)
        return [getattr(a, what) / getattr(b, what) for a, b in both if a is not None and b is not None]

    def loss_ratios(self, peers: str | Iterable[str], passes: int, their: int | None = None) -> list[float]:
        return self.ratios("loss", OURS, passes, peers, their or passes)

    def seconds_ratios(self, peers: str | Iterable[str], passes: int, their: int | None = None) -> list[float]:
        return self.ratios("seconds", OURS, passes, peers, their or passes)

    def passing_ratios(self, peers: str | Iterable[str], passes: int = 1) -> list[float]:
        """Our time to pass their loss after so many passes / their time."""
        return [self.time_to(theirs.loss, seed) / theirs.seconds for seed, _, theirs in self.pairs(peers, passes)]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for by_seed in self.records.values() for seed in by_seed})


def _finals(record: Record | None, passes: int) -> Iterator[Final]:
    for variant, curve in (record or {}).get("curves", {}).items():
        for point in curve:
            if point["passes"] == passes and math.isfinite(point["loss"]):
                yield Final(point["loss"], point["seconds"], variant, point["psnr"])


def load(folder: Path) -> list[Record]:
    """All records of a folder, those of failed runs too."""
    return [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))]


def comparisons(records: list[Record]) -> list[Comparison]:
    """Return the records sorted into comparisons, in the order of the data sets."""
    found: dict[tuple[str, str, str, str], dict[str, dict[int, Record]]] = {}
    for record in records:
        key = (record["data"], record["divergence"], record["start"], record["threads"])
        found.setdefault(key, {}).setdefault(record["contestant"], {})[record["seed"]] = record
    order = list(SOURCES)
    keys = sorted(found, key=lambda key: (order.index(key[0]), SOURCES[key[0]].divergences.index(key[1])))
    return [Comparison(*key, found[key]) for key in keys]
