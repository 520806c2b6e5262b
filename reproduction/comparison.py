"""Contestants compared with each other and with Batch, over several initial dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from onmf.methods import Paper
from onmf.methods.paper import ADAPTIVE
from reproduction.claims import Claim, still_falling, undecided
from reproduction.contest import seconds_to
from reproduction.contestants import TITLES, canonical

SIGNIFICANTLY = 1.5  # times as fast; within this factor of each other, times are called equal
NEARLY = 0.005  # above Batch's final loss: shown beside the time to that loss itself
TO_BATCH = "Batch's time / time to its final loss"
NEAR_BATCH = f"Batch's time / time to within {NEARLY:.1%} of it"
NOT_THE_PAPERS = ("ours", "ol-adaptive")
IN_WORDS = TITLES | {"ol-adaptive": "OL with its adaptive step"}
OF_COPIES = (
    "Equal copies change no update of Batch, so it learnt from one copy; its time is that of its iterations on all N "
    "samples, of which ten were timed."
)

Facts: TypeAlias = Mapping[str, Any]
ByMethod: TypeAlias = Mapping[Any, Sequence[Facts]]  # by contestant, one per initial dictionary
Results: TypeAlias = Mapping[str, ByMethod]  # by data set


def measured(facts: Facts, measure: str) -> float:
    """A fact about the run, or else about its final dictionary."""
    return float((facts if measure in facts else facts["points"][-1])[measure])


def mean(found: Sequence[Facts], measure: str) -> float:
    """Over the initial dictionaries."""
    return float(np.mean([measured(facts, measure) for facts in found]))


def mean_and_deviation(values: Sequence[float], digits: int = 4) -> str:
    """As the paper writes it: mean (standard deviation)."""
    deviation = f" ({np.std(values, ddof=1):.3g})" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}g}{deviation}"


def means(found: Sequence[Facts], measures: Sequence[str]) -> dict[str, str]:
    """Cells of a table: means (and standard deviations) over the initial dictionaries."""
    digits = dict.fromkeys(("objective", "train", "held_out"), 6)
    return {m: mean_and_deviation([measured(facts, m) for facts in found], digits.get(m, 4)) for m in measures}


def lines(by_method: ByMethod, measure: str) -> dict[str, tuple[list[float], list[float]]]:
    """A measure against seconds, first initial dictionary, as the lines of a chart."""
    return {TITLES[who]: course(found[0], measure) for who, found in by_method.items()}


def course(facts: Facts, measure: str) -> tuple[list[float], list[float]]:
    """A measure against seconds."""
    return [point["seconds"] for point in facts["points"]], [point[measure] for point in facts["points"]]


def speedups(by_method: ByMethod, method: str, slack: float = 0.0) -> list[float]:
    """Batch's time / the time to Batch's final training loss, or that close to it, per start; 0 if never reached."""
    return [
        batch["seconds"] / seconds_to(facts["points"], "train", (1 + slack) * measured(batch, "train"))
        for batch, facts in zip(by_method["batch"], by_method[method], strict=True)
    ]


def beside_batch(by_method: ByMethod, method: str) -> dict[str, str]:
    """Cells of a table that compare with Batch; none for Batch itself, or without it."""
    if method == "batch" or "batch" not in by_method:
        return {}
    cells = {column: _cell(speedups(by_method, method, s)) for column, s in ((TO_BATCH, 0.0), (NEAR_BATCH, NEARLY))}
    there = []
    for batch, facts in zip(by_method["batch"], by_method[method], strict=True):
        there += [point for point in facts["points"] if point["train"] <= measured(batch, "train")][:1]
    found = {measure: [point[measure] for point in there if point.get(measure)] for measure in ("seconds", "psnr")}
    return cells | {f"{measure} there": mean_and_deviation(values) for measure, values in found.items() if values}


def _cell(ratios: list[float]) -> str:
    reached = [ratio for ratio in ratios if ratio > 0]
    if not reached:
        return "not reached"
    some = "" if len(reached) == len(ratios) else f", reached in {len(reached)} of {len(ratios)}"
    return mean_and_deviation(reached) + some


def listed(values: Sequence[float], form: str = ".3g") -> str:
    """The values in words, separated by commas."""
    return ", ".join(f"{value:{form}}" for value in values)


def about(method: str, text: str) -> str:
    """A claim, marked if it is about a method that is not in the paper."""
    return f"(not in the paper) {text}" if method in NOT_THE_PAPERS or text.startswith("Stand-in") else text


def faster_than_batch(where: str, by_method: ByMethod, method: str, paper: str = "") -> Claim:
    """The paper's main claim for one data set, judged by the time to Batch's final loss."""
    whole = mean(by_method["batch"], "seconds") / mean(by_method[method], "seconds")
    ratios, near = speedups(by_method, method), speedups(by_method, method, NEARLY)
    open_ = out_of_reach(by_method, method)
    return Claim(
        about(method, f"{where}: {IN_WORDS[method]} is significantly faster than Batch"),
        f"Batch's time / the time of the run: {whole:.3g}{paper}; / the time to Batch's final training loss, by start: "
        f"{times(ratios, ends(by_method, method))}; to within {NEARLY:.1%} of it: {times(near)}",
        [ratio >= SIGNIFICANTLY for ratio in ratios],
        open_,
    )


def out_of_reach(by_method: ByMethod, method: str) -> list[bool]:
    """Which runs did not reach Batch's loss, and might yet have done."""
    runs = zip(speedups(by_method, method), by_method[method], by_method["batch"], strict=True)
    return [not ratio and undecided(facts, batch) for ratio, facts, batch in runs]


def ends(by_method: ByMethod, method: str) -> list[str]:
    """Where the runs ended, compared with Batch's."""
    above = [
        measured(facts, "train") / measured(batch, "train") - 1
        for facts, batch in zip(by_method[method], by_method["batch"], strict=True)
    ]
    falling = [", still falling" if still_falling(facts) else "" for facts in by_method[method]]
    return [f" (ended {gap:.2%} above it{still})" for gap, still in zip(above, falling, strict=True)]


def times(ratios: Sequence[float], ends: Sequence[str] = (), form: str = ".3g") -> str:
    """Speed-ups in words; of those without one, where they ended."""
    both = zip(ratios, ends or [""] * len(ratios), strict=True)
    return ", ".join(f"{ratio:{form}}" if ratio else f"not reached{end}" for ratio, end in both)


def steps(n: int, methods: Sequence[str]) -> str:
    """The steps of OL and of OL with its adaptive step, of those that take part, in a run of n samples."""
    early = f" A run of {n} samples ends before the metric is frozen" if n < ADAPTIVE.b else ""
    early += " and the race is decided." if n < ADAPTIVE.race else "." if early else ""
    told = {
        "ol": f"OL has tau = {canonical(n).tau} and the step a / (s + b) after s samples, a = b = {0.2 * n:g} (the "
        "paper's tau = 1e-4 N and a = b = 0.2 N, but tau at least 10).",
        "ol-adaptive": "OL with its adaptive step has the library's defaults, the same for all data: tau = "
        f"{Paper().tau}, and c b / (s + b) times a metric, one number for every entry of the dictionary, which is "
        f"learnt from the first b = {ADAPTIVE.b:g} samples; a race over the first {ADAPTIVE.race} decides on c.{early}",
    }
    return " ".join(text for method, text in told.items() if method in methods)
