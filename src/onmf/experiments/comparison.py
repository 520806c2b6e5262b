"""Contestants against Batch, over several initial dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from onmf._support.arrays import Array
from onmf.experiments.contest import seconds_to
from onmf.experiments.contestants import TITLES, canonical
from onmf.experiments.folder import Folder, Result
from onmf.experiments.report import Claim, verdict
from onmf.experiments.watch import Watch

START = 3  # key of the random numbers of initial dictionaries
SIGNIFICANTLY = 1.5  # times as fast; within this factor of each other, times are called equal
NEARLY = 0.005  # above Batch's final loss: shown beside the time to that loss itself
TO_BATCH = "Batch's time / time to its final loss"
NEAR_BATCH = f"Batch's time / time to within {NEARLY:.1%} of it"
ADDED = "(not in the paper) "  # marks claims that are not the paper's

OF_COPIES = (
    "Equal copies change no update of Batch, so it learnt from one copy; its time is that of its iterations on all N "
    "samples, of which ten were timed."
)

Facts: TypeAlias = Mapping[str, Any]
ByMethod: TypeAlias = Mapping[str, Sequence[Facts]]  # by contestant, one per initial dictionary


@dataclass(frozen=True)
class RepeatedSettings:
    """What is run from several initial dictionaries, and where its data lie."""

    INITIALISATIONS: ClassVar[Mapping[str, int]]

    size: str = "small"
    seed: int = 0
    methods: tuple[str, ...] = ()
    data: Path | None = None
    initialisations: int | None = None

    @property
    def starts(self) -> range:
        """The seeds of the initial dictionaries."""
        return range(self.seed, self.seed + (self.initialisations or self.INITIALISATIONS[self.size]))


def repeated(
    settings: RepeatedSettings,
    titles: Mapping[str, str],
    find: Callable[[str, str, int], Result],
    folder: Folder,
    watch: Watch,
) -> dict[str, dict[str, list[Result]]]:
    """``find(name, method, start)`` for every named data set, contestant and start, as the folder has it or now."""
    watch.begin(len(titles) * len(settings.starts) * len(settings.methods))
    results: dict[str, dict[str, list[Result]]] = {name: {m: [] for m in settings.methods} for name in titles}
    for name, by_method in results.items():
        for start in settings.starts:
            for method, found in by_method.items():
                watch.part(f"{titles[name]}, {TITLES[method]}, start {start}")
                found.append(folder.part(f"{name}-{method}-{start}", partial(find, name, method, start)))
    return results


def facts_of(results: Mapping[str, Mapping[str, list[Result]]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The results without their arrays."""
    return {name: {m: [r.facts for r in found] for m, found in by.items()} for name, by in results.items()}


def uniform_start(K: int, F: int, seed: int) -> Array:
    """A random dictionary with entries in (0, 1]."""
    return 1.0 - np.random.default_rng([seed, START]).random((K, F))


def steps(n: int) -> str:
    """OL's parameters in words."""
    own = canonical(n)
    return (
        f"tau = {own.tau}, a = b = {own.a:g} (the paper: tau = 1e-4 N, a = b = 2e4 at N = 1e5; here a = b = "
        "0.2 N, tau >= 10)"
    )


def final(facts: Facts, measure: str) -> float:
    """A measure of the final dictionary."""
    return float(facts["points"][-1][measure])


def course(facts: Facts, measure: str) -> tuple[list[float], list[float]]:
    """A measure against seconds."""
    return [point["seconds"] for point in facts["points"]], [point[measure] for point in facts["points"]]


def curve_rows(by_method: ByMethod, starts: range) -> Iterator[dict[str, Any]]:
    """One row per point of every run."""
    for method, found in by_method.items():
        for start, facts in zip(starts, found, strict=True):
            yield from ({"method": TITLES[method], "start": start} | point for point in facts["points"])


def mean(found: Sequence[Facts], measure: str) -> float:
    """Over the initial dictionaries."""
    return float(np.mean([facts[measure] for facts in found]))


def mean_and_deviation(values: Sequence[float], digits: int = 4) -> str:
    """As the paper writes it: mean (standard deviation)."""
    deviation = f" ({np.std(values, ddof=1):.3g})" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}g}{deviation}"


def means(found: Sequence[Facts], measures: Sequence[str]) -> dict[str, str]:
    """Means (and standard deviations) over the initial dictionaries, as cells of a table."""
    return {measure: mean_and_deviation([facts[measure] for facts in found]) for measure in measures}


def mean_final(found: Sequence[Facts], measure: str) -> str:
    """The same of the final dictionaries."""
    return mean_and_deviation([final(facts, measure) for facts in found], digits=6)


def speedups(by_method: ByMethod, method: str, slack: float = 0.0) -> list[float]:
    """Batch's time / the time to Batch's final training loss, or that close to it, per start; 0 if never reached."""
    pairs = zip(by_method["batch"], by_method[method], strict=True)
    return [
        batch["seconds"] / seconds_to(facts["points"], "train", (1 + slack) * final(batch, "train"))
        for batch, facts in pairs
    ]


def speedup_cells(by_method: ByMethod, method: str) -> dict[str, str]:
    """The same as cells of a table; none for Batch itself, or without it."""
    if method == "batch" or "batch" not in by_method:
        return {}
    return {column: _cell(speedups(by_method, method, s)) for column, s in ((TO_BATCH, 0.0), (NEAR_BATCH, NEARLY))}


def _cell(ratios: list[float]) -> str:
    reached = [ratio for ratio in ratios if ratio > 0]
    if not reached:
        return "not reached"
    some = "" if len(reached) == len(ratios) else f", reached in {len(reached)} of {len(ratios)}"
    return mean_and_deviation(reached) + some


def faster_than_batch(where: str, by_method: ByMethod, method: str, paper: str = "") -> Claim:
    """The paper's main claim for one data set, judged by the time to Batch's final loss."""
    whole = mean(by_method["batch"], "seconds") / mean(by_method[method], "seconds")
    ratios = speedups(by_method, method)
    exact, near = (
        ", ".join(f"{ratio:.3g}" for ratio in found) for found in (ratios, speedups(by_method, method, NEARLY))
    )
    measured = (
        f"Batch's time / the time of the run: {whole:.3g}{paper}; / the time to Batch's final training loss, by start "
        f"(0: not reached): {exact}; to within {NEARLY:.1%} of it: {near}"
    )
    note = "" if method == "ol" else ADDED
    text = f"{note}{where}: {TITLES[method]} is significantly faster than Batch"
    return Claim(text, measured, verdict([ratio >= SIGNIFICANTLY for ratio in ratios]))
