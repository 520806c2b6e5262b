"""Contestants against Batch, over several initial dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from onmf.experiments.contest import NEARLY, TITLES, seconds_to
from onmf.experiments.report import Claim, verdict

SIGNIFICANTLY = 1.5  # times as fast
TO_BATCH = "Batch's time / time to its final loss"
NEAR_BATCH = f"Batch's time / time to within {NEARLY:.1%} of it"
ADDED = "(not in the paper) "  # before claims that are not the paper's

OF_COPIES = (
    "Equal copies change no update of Batch: its dictionaries were found from one copy, and its time is that of its "
    "iterations on all N samples, of which ten were timed."
)

Facts: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # by contestant, one an initial dictionary


def mean(found: Sequence[Mapping[str, Any]], measure: str) -> float:
    """Over the initial dictionaries."""
    return float(np.mean([facts[measure] for facts in found]))


def mean_and_deviation(values: Sequence[float], digits: int = 4) -> str:
    """As the paper writes it: mean (standard deviation)."""
    deviation = f" ({np.std(values, ddof=1):.3g})" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}g}{deviation}"


def last(found: Sequence[Mapping[str, Any]], measure: str) -> str:
    """A measure of the final dictionaries."""
    return mean_and_deviation([facts["points"][-1][measure] for facts in found], digits=6)


def speedups(by_method: Facts, method: str, slack: float = 0.0) -> list[float]:
    """Batch's time / the time to Batch's final training loss, or so near, start by start; 0 where it is not reached."""
    pairs = zip(by_method["batch"], by_method[method], strict=True)
    return [
        batch["seconds"] / seconds_to(facts["points"], (1 + slack) * batch["points"][-1]["train"])
        for batch, facts in pairs
    ]


def speedup_cell(by_method: Facts, method: str, slack: float = 0.0) -> str:
    """The same for a table."""
    ratios = speedups(by_method, method, slack)
    reached = [ratio for ratio in ratios if ratio > 0]
    if not reached:
        return "not reached"
    some = "" if len(reached) == len(ratios) else f", reached in {len(reached)} of {len(ratios)}"
    return mean_and_deviation(reached) + some


def faster_than_batch(where: str, by_method: Facts, method: str, paper: str = "") -> Claim:
    """The paper's main claim, for one data set: judged by the time to Batch's final loss; that to nearly it is told."""
    whole = mean(by_method["batch"], "seconds") / mean(by_method[method], "seconds")
    ratios = speedups(by_method, method)
    nearly = speedups(by_method, method, NEARLY)
    exact, near = (", ".join(f"{ratio:.3g}" for ratio in found) for found in (ratios, nearly))
    measured = (
        f"Batch's time / the time of the run: {whole:.3g}{paper}; / the time to Batch's final training loss, by start "
        f"(0: not reached): {exact}; to within {NEARLY:.1%} of it: {near}"
    )
    note = "" if method == "ol" else ADDED
    text = f"{note}{where}: {TITLES[method]} is significantly faster than Batch"
    return Claim(text, measured, verdict([ratio >= SIGNIFICANTLY for ratio in ratios]))
