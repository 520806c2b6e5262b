"""The base class of the paper's experiments.

Contestants learn from data sets, from several initial dictionaries each; the results become tables, pictures, and
verdicts on the paper's claims. All that a report shows is among the facts of finished parts, so that it can be written
again without the data.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from onmf import plots
from reproduction.claims import THE_RULE, Claim, Facts, Results, beside_batch, means
from reproduction.contest import CONTESTANTS, TITLES
from reproduction.report import Block, Folder, Report, heading, paragraph
from reproduction.trial import Benchmark, Result, Step, Trial

FREE = ("data", "methods", "only", "initialisations")  # may change between runs into one folder: parts stay valid

SMALL_RUN = "A small run takes a minute and shows how the experiment works; use --size paper to test the claims."


Tell = Callable[[str, float, int], None]  # the part that runs, how many are done, of how many


@dataclass(frozen=True)
class Experiment(ABC):
    """An experiment; its fields are its settings."""

    TITLE: ClassVar[str]
    EACH: ClassVar[str]  # what a data set is: the name of a column
    MEASURES: ClassVar[tuple[str, ...]]  # shown in the summary
    STARTS: ClassVar[Mapping[str, int]] = {"small": 1, "paper": 1}

    size: str = "small"
    seed: int = 0
    methods: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # data sets, by title; empty: all
    data: Path | None = None
    initialisations: int | None = None

    @property
    def starts(self) -> range:
        """Return the seeds of the initial dictionaries."""
        return range(self.seed, self.seed + (self.initialisations or self.STARTS[self.size]))

    @property
    def full_length(self) -> bool:
        """Say whether there are as many samples as in the paper; then no claim fails for want of them."""
        return self.size == "paper"

    @property
    @abstractmethod
    def sets(self) -> Mapping[str, Benchmark]:
        """Return the data sets by title."""

    @abstractmethod
    def described(self, data: Any) -> Facts:
        """Return what the report says of a data set."""

    def entered(self, divergence: str) -> Sequence[Any]:
        """Return the contestants under a divergence."""
        return [name for name in self.methods if CONTESTANTS[name].serves(divergence)]

    def trial(self, data: Any, who: Any, start: int) -> Trial:
        """Return the trial of a contestant on a data set."""
        return Trial(data, who, start)

    def judged(self, data: Any, result: Result) -> dict[str, Any]:
        """Return the facts about a contestant's result."""
        return result.facts

    @abstractmethod
    def blocks(self, folder: Folder, results: Results, about: Mapping[str, Facts]) -> list[Block]:
        """Describe the set-up in words, and draw the pictures; ``about`` describes the data sets."""

    @abstractmethod
    def claims(self, results: Results, about: Mapping[str, Facts]) -> Iterable[Claim]:
        """Return the paper's claims about these results."""

    def columns(self, who: Any) -> dict[str, Any]:
        """Return the cells of a table that name a contestant."""
        return {"method": TITLES[who]}

    def summary(self, results: Results, about: Mapping[str, Facts]) -> list[dict[str, Any]]:
        """Return one row per data set and contestant: means and standard deviations over the initial dictionaries."""
        rows = []
        for title, by_method in results.items():
            for who, found in by_method.items():
                row = {self.EACH: title} | self.columns(who) | {"starts": len(found)}
                row |= means(found, self.MEASURES) | beside_batch(by_method, who)
                rows.append(row)
        return rows

    def caption(self) -> str:
        """Return the caption of the summary."""
        return (
            "Means (and standard deviations) over the initial dictionaries (starts). Train and held-out: mean loss at "
            "the best coefficients. There: where the training loss has fallen to Batch's final one for good."
        )

    def run(self, out: Path, tell: Tell = lambda *_: None) -> Report:
        """Run the parts that are not yet in the folder ``out``, and write the report of all of them there."""
        plots.new_figure(1, 1)  # if Matplotlib is missing, fail now and not after hours
        folder = self._folder(out)
        sets = {title: data for title, data in self.sets.items() if not self.only or title in self.only}
        if not sets:
            raise ValueError(f"--only names none of {', '.join(self.sets)}.")
        parts = [(t, start, who) for t in sets for start in self.starts for who in self.entered(sets[t].divergence)]
        for place, (title, data) in enumerate(self.sets.items()):
            folder.keep(file_name(title, "data"), partial(self._about, title, place, data))
        for number, (title, start, who) in enumerate(parts):
            name = ", ".join([title, *map(str, self.columns(who).values()), f"start {start}"])
            tell(name, number, len(parts))

            def step(share: float, name: str = name, number: int = number) -> None:
                tell(name, number + share, len(parts))

            folder.keep(file_name(title, who, start), partial(self._part, sets[title], who, start, step))
        tell("report", len(parts), len(parts))
        return self.report(out)

    def _folder(self, out: Path) -> Folder:
        settings = {each.name: getattr(self, each.name) for each in fields(self)}
        name = {"experiment": type(self).__name__.lower()}
        return Folder(out, name | {key: value for key, value in settings.items() if key not in FREE})

    def report(self, out: Path) -> Report:
        """Write tables, pictures and the report of the finished parts in the folder ``out``."""
        folder = self._folder(out)
        results, about = self.stored(folder.parts())
        points = [
            {self.EACH: title} | self.columns(who) | {"start": facts["start"]} | point
            for title, by_method in results.items()
            for who, found in by_method.items()
            for facts in found
            for point in facts["points"]
        ]
        folder.table("curves", points)
        small = [paragraph(SMALL_RUN)] if self.size == "small" else []
        numbers = [heading("In numbers"), folder.table("summary", self.summary(results, about), self.caption())]
        blocks = [*small, *self.blocks(folder, results, about), *numbers]
        claims = [replace(claim, unsettled=()) if self.full_length else claim for claim in self.claims(results, about)]
        report = Report(self.TITLE, blocks, claims, "" if self.full_length else THE_RULE)
        report.write(out)
        return report

    def stored(self, parts: Mapping[str, Facts]) -> tuple[Results, dict[str, Facts]]:
        """Return what finished parts say of the contestants, by data set, and of the data sets."""
        found = sorted((facts for name, facts in parts.items() if name.endswith("-data")), key=lambda f: f["place"])
        about = {facts["title"]: facts for facts in found}
        results: dict[str, dict[Any, list[Facts]]] = {}
        for title, facts in about.items():
            for who in self.entered(facts["divergence"]):
                starts = re.compile(re.escape(file_name(title, who)) + r"-(\d+)")
                numbers = sorted(int(match[1]) for name in parts if (match := starts.fullmatch(name)))
                if numbers:
                    every = [parts[file_name(title, who, number)] for number in numbers]
                    results.setdefault(title, {})[who] = every
        return results, about

    def _about(self, title: str, place: int, data: Any, scratch: Path) -> dict[str, Any]:
        return {"title": title, "place": place, "divergence": data.divergence, **self.described(data)}

    def _part(self, data: Any, who: Any, start: int, step: Step, scratch: Path) -> dict[str, Any]:
        return self.judged(data, self.trial(data, who, start).run(scratch, step))


def file_name(title: str, *more: object) -> str:
    """Return the name of a file about a data set."""
    return "-".join([re.sub(r"\W+", "-", title.lower()), *map(str, more)])
