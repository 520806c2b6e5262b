"""Claims and their verdicts.

A claim is judged case by case (data set, initial dictionary), by what was measured. A run of fewer samples than the
paper's may fail a claim only because it ended too early, so there a failing case is *unsettled* while the training loss
of the run it is about was still falling: by more than FALLING over the last doubling of the samples. What this means
for each kind of claim:

- the time to Batch's final loss, and likeness to Batch's topics: unsettled if the run ended above that loss, and was
  still falling or less than NEAR above it: whether the rest is reached, and when, takes a long run to tell. If it ended
  below, the time is known, late or not.
- how far Batch is when a method ends: never unsettled.
- OL against an earlier method: unsettled if OL was still falling. The level at which they are compared is where the
  runs end, and would be another one in longer runs.
- topics, noise, shadows: unsettled if the method that the claim names was still falling. That
  *OL-Wang fails* at something is unsettled the other way round: if it failed and was still falling.
- insensitivity: unsettled if the slowest run, or the one that ended highest, was still falling. Not so for K: fewer
  components fit less well however long they learn.
- which of two methods takes longer for the same samples does not depend on how many there are, and is never unsettled.

At the paper's number of samples nothing is unsettled: the claims are about runs of that length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from onmf.methods import Adaptive, Paper
from reproduction.contest import MOST_ITERATIONS, TITLES, Guan, Lefevre, Wang, canonical

HOLDS, IN_PART, NOT, NOT_EXAMINED = "holds", "holds in part", "does not hold", "not examined"
TOO_SHORT = "too short to tell"
FALLING = 0.01
NEAR = 0.05
THE_RULE = (
    "This run has fewer samples than the paper's, so where a claim fails while the training loss was still falling at "
    f"the end (by more than {FALLING:.0%} over the last doubling of the samples), or ended less than {NEAR:.0%} above "
    f"Batch's where the claim compares with Batch, the verdict is: {TOO_SHORT}."
)


PAPERS = ("ol", "ol-exact", "ol-mean")  # the paper's method, in three readings
NOT_THE_PAPERS = ("ours", "ol-adaptive")
IN_WORDS = TITLES | {
    "ol-exact": "OL with exact coefficients",
    "ol-mean": "OL with the mean gradient",
    "ol-adaptive": "OL with its adaptive step",
}
IN_WORDS |= {each.name: f"the reconstruction of {each.title.partition(',')[0]}" for each in (Lefevre, Guan, Wang)}


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the measurement made here, and whether it confirms the sentence, case by case.

    ``sentence`` has {} where it names a method; ``figure`` is the measurement in a few words. ``where`` names the data
    that the sentence is about, if an experiment has claims about several.
    """

    sentence: str
    measured: str
    successes: Sequence[bool]
    unsettled: Sequence[bool] = ()  # which cases might turn out differently in a longer run; empty: none
    method: str = "ol"
    figure: str = ""
    where: str = ""

    @property
    def claim(self) -> str:
        """Return the sentence about the method, marked if the paper does not have it."""
        others = self.method in NOT_THE_PAPERS or self.where.startswith("Stand-in")
        where = f"{self.where}: " if self.where else ""
        return ("(not in the paper) " if others else "") + where + self.sentence.format(IN_WORDS[self.method])

    @property
    def verdict(self) -> str:
        """Judge: it holds if it does in every case, in part if in some, and not if every settled case fails."""
        if not self.successes:
            return NOT_EXAMINED
        unsettled = self.unsettled or [False] * len(self.successes)
        settled = [success for success, open_ in zip(self.successes, unsettled, strict=True) if not open_]
        if not settled:
            return TOO_SHORT
        return NOT if not any(settled) else HOLDS if all(settled) and not any(unsettled) else IN_PART

    def row(self) -> dict[str, str]:
        return {"the paper's claim": self.claim, "measured here": self.measured, "verdict": self.verdict}


def still_falling(*runs: Mapping[str, Any]) -> bool:
    """Tell whether the training losses of all these runs were still falling when they ended.

    They end more than FALLING below their lowest before the last doubling of the samples. A run with no mark before
    that counts as falling.
    """
    for facts in runs:
        last = facts["points"][-1]
        earlier = [point["train"] for point in facts["points"] if (point["samples"] or np.inf) <= last["samples"] / 2]
        if earlier and not last["train"] < (1 - FALLING) * min(earlier):
            return False
    return True


def undecided(facts: Mapping[str, Any], batch: Mapping[str, Any]) -> bool:
    """Tell whether the training loss was still falling, or not far from Batch's final one."""
    return still_falling(facts) or facts["points"][-1]["train"] <= (1 + NEAR) * batch["points"][-1]["train"]


def failing_early(successes: Sequence[bool], runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[bool]:
    """Mark the cases that fail while all the runs that they are about were still falling."""
    return [not success and still_falling(*about) for success, about in zip(successes, runs, strict=True)]


SIGNIFICANTLY = 1.5  # times as fast; within this factor of each other, times are called equal
NEARLY = 0.005  # above Batch's final loss: shown beside the time to that loss itself
TO_BATCH = "speed-up to Batch's final loss"
NEAR_BATCH = f"speed-up to within {NEARLY:.1%} of it"
NOT_RUN = "not run yet"
BATCH_STOPS = (
    f"Batch stops when its loss falls by less than 1e-5 of itself over ten iterations, or after {MOST_ITERATIONS}"
)
OF_COPIES = (
    "Equal copies change no update of Batch, so it learnt from one copy; its time is that of its iterations on all N "
    "samples, of which ten were timed."
)

Facts: TypeAlias = Mapping[str, Any]
ByMethod: TypeAlias = Mapping[Any, Sequence[Facts]]  # by contestant, one per initial dictionary
Results: TypeAlias = Mapping[str, ByMethod]  # by data set


def measured(facts: Facts, measure: str) -> float:
    """Return a fact about the run, or else about its final dictionary."""
    return float((facts if measure in facts else facts["points"][-1])[measure])


def mean(found: Sequence[Facts], measure: str) -> float:
    """Return the mean of a measure over the initial dictionaries."""
    return float(np.mean([measured(facts, measure) for facts in found]))


def mean_and_deviation(values: Sequence[float], digits: int = 4) -> str:
    """Write values as the paper does: mean (standard deviation)."""
    text = number(float(np.mean(values)), digits)
    return text if len(values) < 2 else f"{text} ({number(float(np.std(values, ddof=1)), 2)})"


def means(found: Sequence[Facts], measures: Sequence[str]) -> dict[str, str]:
    """Return cells of a table: means (and standard deviations) over the initial dictionaries."""
    digits = dict.fromkeys(("objective", "train", "held_out"), 6)
    return {m: mean_and_deviation([measured(facts, m) for facts in found], digits.get(m, 4)) for m in measures}


def lines(by_method: ByMethod, measure: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return the lines of a chart: a measure against seconds, from the first initial dictionary."""
    return {TITLES[who]: curve(facts, measure) for who, (facts, *_) in by_method.items()}


def curve(facts: Facts, measure: str) -> tuple[list[float], list[float]]:
    """Return seconds, and the measure at each of them; without the start, which has no place on a logarithmic axis."""
    points = [point for point in facts["points"] if point["seconds"] > 0]
    return [point["seconds"] for point in points], [point[measure] for point in points]


def arrived(facts: Facts, loss: float) -> Sequence[Facts]:
    """Return the points since when the training loss has stayed at or below ``loss``; none if the run ends above it.

    A loss may be low at the first marks and rise afterwards: the samples that judge are the first of the stream, and
    at those marks the dictionary fits them alone.
    """
    points: Sequence[Facts] = facts["points"]
    above = [place for place, point in enumerate(points, start=1) if point["train"] > loss]
    return points[max(above, default=0) :]


def seconds_to(facts: Facts, loss: float) -> float:
    """Return when the training loss fell to ``loss`` for good; infinity if it never did."""
    return next((float(point["seconds"]) for point in arrived(facts, loss)), np.inf)


def paired(by_method: ByMethod, method: str) -> list[tuple[Facts, Facts]]:
    """Return a method's run and Batch's, for each start that both have."""
    batch = {facts["start"]: facts for facts in by_method.get("batch", [])}
    return [(facts, batch[facts["start"]]) for facts in by_method.get(method, []) if facts["start"] in batch]


def speedups(by_method: ByMethod, method: str, slack: float = 0.0) -> list[float]:
    """Return Batch's time / the time to its final training loss, or that close to it, per start; 0: never reached."""
    return [
        batch["seconds"] / seconds_to(facts, (1 + slack) * measured(batch, "train"))
        for facts, batch in paired(by_method, method)
    ]


def beside_batch(by_method: ByMethod, method: str) -> dict[str, str]:
    """Return cells of a table that compare with Batch; none for Batch itself, or without it."""
    if method == "batch" or not paired(by_method, method):
        return {}
    cells = {column: _cell(speedups(by_method, method, s)) for column, s in ((TO_BATCH, 0.0), (NEAR_BATCH, NEARLY))}
    there: list[Facts] = []
    for facts, batch in paired(by_method, method):
        there += arrived(facts, measured(batch, "train"))[:1]
    found = {measure: [point[measure] for point in there if point.get(measure)] for measure in ("seconds", "psnr")}
    return cells | {f"{measure} there": mean_and_deviation(values) for measure, values in found.items() if values}


def _cell(ratios: list[float]) -> str:
    reached = [ratio for ratio in ratios if ratio > 0]
    if not reached:
        return "not reached"
    some = "" if len(reached) == len(ratios) else f", reached in {len(reached)} of {len(ratios)}"
    return mean_and_deviation(reached) + some


def number(value: float, digits: int = 3) -> str:
    """Write a number with this many significant digits, and no exponent where it is large."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def listed(values: Sequence[float], form: str = "") -> str:
    """Write the values in words, separated by commas."""
    return ", ".join(f"{value:{form}}" if form else number(value) for value in values)


def span(values: Sequence[float], form: str = "") -> str:
    """Write the smallest and the largest value."""
    low, high = (listed([value], form) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def among(titles: Collection[str], all_of_them: int) -> str:
    """Name the data sets that a figure is about, unless it is about all."""
    return f" ({', '.join(titles)})" if len(titles) < all_of_them else ""


def how_batch_stopped(results: Results) -> str:
    """Say when Batch stops, and how many of its runs met the limit on iterations."""
    met = [not facts.get("converged", True) for found in results.values() for facts in found.get("batch", ())]
    return f"{BATCH_STOPS}{f': {sum(met)} of {len(met)} runs met that limit' if met else ''}."


def faster_than_batch(sentence: str, results: Results, method: str, where: str = "") -> Claim:
    """Judge the paper's main claim by the time to Batch's final loss, on each data set and from each start."""
    compared = {title: found for title, found in results.items() if paired(found, method)}
    ratios = {title: speedups(found, method) for title, found in compared.items()}
    each = ", ".join(f"{title} {_times(ratios[title], _ends(found, method))}" for title, found in compared.items())
    every = [ratio for found in ratios.values() for ratio in found]
    reached = [ratio for ratio in every if ratio]
    speeds = f", {span(reached)} times as fast" if reached else ""
    return Claim(
        sentence,
        f"Batch's time / time to Batch's final training loss: {each}" if ratios else NOT_RUN,
        [ratio >= SIGNIFICANTLY for ratio in every],
        [
            not ratio and undecided(*pair)
            for title, found in compared.items()
            for ratio, pair in zip(ratios[title], paired(found, method), strict=True)
        ],
        method,
        f"reached in {len(reached)} of {len(every)}{speeds}{among(ratios, len(results))}" if every else "",
        where,
    )


def shorter_run(results: Results, method: str, paper: str, where: str = "") -> Claim:
    """Judge the running times alone, as the paper's tables do, whatever the runs have learnt."""
    compared = {title: pairs for title, found in results.items() if (pairs := paired(found, method))}
    ratios = [
        np.mean([batch["seconds"] for _, batch in pairs]) / np.mean([facts["seconds"] for facts, _ in pairs])
        for pairs in compared.values()
    ]
    text = f"Batch's running time / this one's: {listed(ratios)} (the paper: {paper})" if ratios else NOT_RUN
    good = [ratio >= SIGNIFICANTLY for ratio in ratios]
    sentence, some = "{} runs in significantly less time than Batch", among(compared, len(results))
    figure = f"{span(ratios)} times as fast{some} (the paper: {paper})" if ratios else ""
    return Claim(sentence, text, good, (), method, figure, where)


def _ends(by_method: ByMethod, method: str) -> list[str]:
    """Say where the runs ended, compared with Batch's."""
    ends = []
    for facts, batch in paired(by_method, method):
        above = measured(facts, "train") / measured(batch, "train") - 1
        still = ", still falling" if still_falling(facts) else ""
        ends.append(f" (ended {above:.2%} above it{still})")
    return ends


def _times(ratios: Sequence[float], ends: Sequence[str]) -> str:
    """Write speed-ups in words; a run without one is followed by where it ended."""
    both = zip(ratios, ends, strict=True)
    return ", ".join(number(ratio) if ratio else f"not reached{end}" for ratio, end in both)


def steps(n: int, methods: Sequence[str]) -> str:
    """Describe the steps of OL and of OL with its adaptive step, if they take part, in a run of n samples."""
    adaptive = Adaptive()
    early = f" A run of {n} samples ends before the metric is frozen" if n < adaptive.b else ""
    early += " and the trial period is over." if n < adaptive.trial_samples else "." if early else ""
    described = {
        "ol": f"OL has tau = {canonical(n).tau} and the step a / (s + b) after s samples, a = b = {0.2 * n:g} (the "
        "paper's tau = 1e-4 N and a = b = 0.2 N, but tau at least 10); the gradient is summed over a mini-batch, and "
        "the paper's solvers find coefficients, which stop after 100 or 300 iterations, and from 60,000 samples on "
        "after twice as many.",
        "ol-exact": "OL with exact coefficients is the same, but its solver reaches its tolerance.",
        "ol-mean": "OL with the mean gradient is that with exact coefficients, but the gradient is the mean over a "
        "mini-batch, which is the same as a = 0.2 N / tau.",
        "ol-adaptive": "OL with its adaptive step has the library's defaults, the same for all data: tau = "
        f"{Paper().tau}, and c b / (s + b) times a metric, one number for every entry of the dictionary, which is "
        f"learnt from the first b = {adaptive.b:g} samples; a trial period of the first "
        f"{adaptive.trial_samples} decides on c.{early}",
        "ours": "onmf has the library's defaults; its chunks grow.",
    }
    return " ".join(text for method, text in described.items() if method in methods)
