"""The base class of the paper's experiments.

Contestants learn from data sets, from several initial dictionaries each; the results become tables, pictures, and
verdicts on the paper's claims.
"""

from __future__ import annotations

import json
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
from reproduction.report import Block, Folder, Report, Result, heading, paragraph
from reproduction.trial import Benchmark, Step, Trial

FREE = ("data", "methods", "initialisations")  # may change between runs into one folder: finished parts stay valid

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

    def entered(self, title: str) -> Sequence[Any]:
        """Return the contestants on a data set."""
        return [name for name in self.methods if CONTESTANTS[name].serves(self.sets[title].divergence)]

    def trial(self, data: Any, who: Any, start: int) -> Trial:
        """Return the trial of a contestant on a data set."""
        return Trial(data, who, start)

    def judged(self, data: Any, result: Result) -> Result:
        """Add further facts to a contestant's result."""
        return result

    @abstractmethod
    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        """Describe the set-up in words, and draw the pictures."""

    @abstractmethod
    def claims(self, results: Results) -> Iterable[Claim]:
        """Return the paper's claims about these results."""

    def columns(self, who: Any) -> dict[str, Any]:
        """Return the cells of a table that name a contestant."""
        return {"method": TITLES[who]}

    def summary(self, results: Results) -> list[dict[str, Any]]:
        """Return one row per data set and contestant: means and standard deviations over the initial dictionaries."""
        return [
            {self.EACH: title} | self.columns(who) | means(found, self.MEASURES) | beside_batch(by_method, who)
            for title, by_method in results.items()
            for who, found in by_method.items()
        ]

    def caption(self) -> str:
        """Return the caption of the summary."""
        several = f"Means (and standard deviations) over {len(self.starts)} initial dictionaries."
        return (
            f"{several if len(self.starts) > 1 else 'One initial dictionary.'} Train and held-out: mean loss at the "
            "best coefficients. There: where the training loss first falls to Batch's final one."
        )

    def run(self, out: Path, tell: Tell = lambda *_: None) -> Report:
        """Run the parts that are not yet in the folder ``out``, and write tables, pictures and the report there."""
        plots.new_figure(1, 1)  # if Matplotlib is missing, fail now and not after hours
        settings = {each.name: getattr(self, each.name) for each in fields(self)}
        name = {"experiment": type(self).__name__.lower()}
        folder = Folder(out, name | {key: value for key, value in settings.items() if key not in FREE})
        results = self._results(folder, tell)
        points = [
            {self.EACH: title} | self.columns(who) | {"start": start} | point
            for title, by_method in results.items()
            for who, found in by_method.items()
            for start, facts in zip(self.starts, found, strict=True)
            for point in facts["points"]
        ]
        folder.table("curves", points)
        small = [paragraph(SMALL_RUN)] if self.size == "small" else []
        numbers = [heading("In numbers"), folder.table("summary", self.summary(results), self.caption())]
        blocks = [*small, *self.blocks(folder, results), *numbers]
        claims = [replace(claim, unsettled=()) if self.full_length else claim for claim in self.claims(results)]
        report = Report(self.TITLE, blocks, claims, "" if self.full_length else THE_RULE)
        report.write(out)
        del settings["data"]
        (out / "report.json").write_text(json.dumps(name | settings, indent=2) + "\n")
        return report

    def _results(self, folder: Folder, tell: Tell) -> Results:
        results: dict[str, dict[Any, list[Facts]]] = {
            title: {who: [] for who in self.entered(title)} for title in self.sets
        }
        parts = [(title, start, who) for title, entered in results.items() for start in self.starts for who in entered]
        for number, (title, start, who) in enumerate(parts):
            name = ", ".join([title, *map(str, self.columns(who).values()), f"start {start}"])
            tell(name, number, len(parts))

            def step(share: float, name: str = name, number: int = number) -> None:
                tell(name, number + share, len(parts))

            find = partial(self._part, self.sets[title], who, start, step)
            results[title][who].append(folder.part(file_name(title, who, start), find))
        tell("report", len(parts), len(parts))
        return results

    def _part(self, data: Any, who: Any, start: int, step: Step, scratch: Path) -> Result:
        return self.judged(data, self.trial(data, who, start).run(scratch, step))


def file_name(title: str, *more: object) -> str:
    """Return the name of a file about a data set."""
    return "-".join([re.sub(r"\W+", "-", title.lower()), *map(str, more)])
