"""The sensitivity experiment (Figures S-1 to S-3): tau, K and a, one at a time in log scale, for six divergences.

Not in the paper are tau and K of onmf, and tau, K, b and c of OL with its adaptive step. That method chooses c by a
trial period, so fixed values of c are compared with the one found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from onmf.methods import Adaptive, Canonical, Paper
from reproduction import charts
from reproduction.claims import IN_WORDS, Claim, Facts, Results, about, curve, failing_early, measured, steps
from reproduction.contest import TITLES, canonical
from reproduction.report import Block, Folder, heading, paragraph
from reproduction.synthetic import PLANTED, Data, Synthetic
from reproduction.trial import Trial

FOUND = "found"  # in place of a factor of c
FACTORS: dict[str, tuple[float | str, ...]] = {
    "tau": (0.1, 1, 4, 40),
    "K": (0.5, 1, 2),
    "a": (0.1, 1, 10),
    "b": (0.01, 0.1, 1, 10),
    "c": (FOUND, 1 / 16, 1 / 4, 1, 4, 16),
}
UNCHANGED: dict[str, float | str] = {name: FOUND if name == "c" else 1 for name in FACTORS}
PARAMETERS = {"ol": ("tau", "K", "a"), "ol-adaptive": ("tau", "K", "b", "c"), "ours": ("tau", "K")}
FIGURES = {"tau": "S-1", "K": "S-2", "a": "S-3"}  # the paper's
EVERY_FACTOR = sorted({float(factor) for factors in FACTORS.values() for factor in factors if factor != FOUND})
OUR_TAU = 30  # where the surrogate's chunks begin
MIDDLE_C = 0.5  # the middle one of those that compete
ORDER = [*FACTORS]
SMALL = 1.1  # final losses within a tenth of each other are a small variation

ByFactor: TypeAlias = dict[float | str, Facts]


@dataclass(frozen=True)
class Variant:
    """A method with one parameter multiplied by a factor, or left as it is: then one run serves all parameters."""

    method: str
    parameter: str
    factor: float | str

    def __str__(self) -> str:
        return self.method if self.unchanged else f"{self.method}-{self.parameter}-{self.factor:g}"

    @property
    def unchanged(self) -> bool:
        return self.factor == UNCHANGED[self.parameter]

    def applied(self, n: int, K: int) -> tuple[int, dict[str, Any]]:
        """Return the number of components, and the settings that differ from the method's own."""
        if self.unchanged:
            return K, {}
        factor = float(self.factor)
        if self.parameter == "K":
            return round(K * factor), {}
        if self.parameter == "tau":
            tau = {"ol": canonical(n).tau, "ol-adaptive": Paper().tau, "ours": OUR_TAU}[self.method]
            return K, {"method__tau": max(1, round(tau * factor))}
        steps = {
            "a": Canonical(a=0.2 * n * factor, b=0.2 * n),
            "b": Adaptive(b=Adaptive().b * factor),
            "c": Adaptive(c=MIDDLE_C * factor),
        }
        return K, {"method__step": steps[self.parameter]}


def variants(method: str) -> list[Variant]:
    """Return all variants of a method."""
    return [Variant(method, name, factor) for name in PARAMETERS[method] for factor in FACTORS[name]]


@dataclass(frozen=True)
class Sensitivity(Synthetic):
    """The experiment on one parameter at a time; few samples judge, since that takes longer than learning."""

    TITLE = "Sensitivity to tau, K and the step"
    SIZES: ClassVar = {"small": (400, 20, 6, 40), "paper": (100_000, 200, 40, 200)}

    methods: tuple[str, ...] = ("ol", "ol-adaptive", "ours")

    def entered(self, title: str) -> Sequence[Any]:
        return [variant for method in self.methods for variant in variants(method)]

    def trial(self, data: Data, who: Any, start: int) -> Trial:
        K, changes = who.applied(self.shape[0], data.K)
        return Trial(replace(data, K=K), who.method, start, variant=changes)

    def columns(self, who: Any) -> dict[str, Any]:
        return {"method": TITLES[who.method], "parameter": who.parameter, "factor": who.factor}

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        n, F, K, _ = self.shape
        described = {
            "ol-adaptive": "Its b is varied from that default and not from 0.2 N: the default is what users have, "
            f"whatever N is. Its c is fixed at {MIDDLE_C:g} times the factors, without a trial period, to be "
            "compared with the one found.",
            "ours": f"onmf has no step size; its chunks grow from {OUR_TAU} samples, but not where tau is varied.",
        }
        text = (
            f"The synthetic data with N = {n}, F = {F}, {PLANTED} planted components; K = {K}. "
            f"{steps(n, self.methods)} {' '.join(text for name, text in described.items() if name in self.methods)} "
            "One parameter at a time is multiplied by the factors in the legends."
        )
        blocks = [heading("Set-up"), paragraph(text)]
        for (method, parameter), by_title in sorted(varied(results).items(), key=lambda each: ORDER.index(each[0][1])):
            drawn = {
                title: {_legend(parameter, factor): curve(facts, "held_out") for factor, facts in found.items()}
                for title, found in by_title.items()
            }
            figure = charts.panels(drawn, "seconds", "held-out loss")
            papers = f"the paper's Figure {FIGURES[parameter]}" if method == "ol" else "not in the paper"
            caption = f"{IN_WORDS[method]}, {parameter} varied ({papers})."
            blocks.append(folder.picture(f"{parameter}-{method}", figure, caption))
        return blocks

    def caption(self) -> str:
        of_c = " (for c: the one found)" if "ol-adaptive" in self.methods else ""
        return (
            f"Final held-out loss divided by that of the unchanged setting{of_c}; worst on the way: "
            "the largest loss after the first tenth of the samples, divided by that of the first mark."
        )

    def summary(self, results: Results) -> list[dict[str, Any]]:
        """Return one row per divergence, method and parameter."""
        rows, groups = [], varied(results)
        columns = [factor for factor in EVERY_FACTOR if any(factor in FACTORS[name] for _, name in groups)]
        for (method, parameter), by_title in groups.items():
            for title, found in by_title.items():
                ends = final_losses(found)
                own = ends[UNCHANGED[parameter]]
                row: dict[str, Any] = {"divergence": title, "method": TITLES[method], "parameter": parameter}
                row["largest / smallest"] = max(ends.values()) / min(ends.values())
                row["worst on the way"] = max(excursion(facts) for facts in found.values())
                row |= {f"x {factor:g}": ends[factor] / own if factor in ends else "" for factor in columns}
                rows.append(row)
        return sorted(rows, key=lambda row: list(results).index(row["divergence"]))

    def claims(self, results: Results) -> Iterator[Claim]:
        for (method, parameter), by_title in varied(results).items():
            yield _race_finds_c(by_title) if parameter == "c" else _insensitive(method, parameter, by_title)


def _insensitive(method: str, parameter: str, by_title: Mapping[str, ByFactor]) -> Claim:
    ends = {title: final_losses(found) for title, found in by_title.items()}
    spreads = {title: max(losses.values()) / min(losses.values()) for title, losses in ends.items()}
    good = [value <= SMALL for value in spreads.values()]
    high = [
        [facts for factor, facts in found.items() if ends[title][factor] > SMALL * min(ends[title].values())]
        for title, found in by_title.items()
    ]
    factors = [factor for factor in EVERY_FACTOR if factor in FACTORS[parameter]]
    return Claim(
        about(method, f"{IN_WORDS[method]} is insensitive to {parameter}: small variations over wide ranges"),
        f"largest / smallest final held-out loss, factors {factors[0]:g} to {factors[-1]:g}: {_each(spreads)}",
        good,
        failing_early(good, high) if parameter != "K" else (),  # fewer components fit less well however long they learn
    )


def _race_finds_c(by_title: Mapping[str, ByFactor]) -> Claim:
    ratios = {}
    for title, found in by_title.items():
        ends = final_losses(found)
        ratios[title] = ends.pop(FOUND) / min(ends.values())
    good = [ratio <= SMALL for ratio in ratios.values()]
    return Claim(
        about(
            "ol-adaptive",
            f"{IN_WORDS['ol-adaptive']} needs no choice of c: the trial period does as well as the best one",
        ),
        "final held-out loss with the trial period / with the best fixed c of "
        f"{len(FACTORS['c']) - 1}: {_each(ratios)}",
        good,
        failing_early(good, [[found[FOUND]] for found in by_title.values()]),
    )


def _each(values: Mapping[str, float]) -> str:
    return ", ".join(f"{title} {value:.3g}" for title, value in values.items())


def _legend(parameter: str, factor: float | str) -> str:
    return f"{parameter} {FOUND}" if factor == FOUND else f"{parameter} x {factor:g}"


def varied(results: Results) -> dict[tuple[str, str], dict[str, ByFactor]]:
    """Sort the runs by method and parameter, then by data set, then by factor."""
    groups: dict[tuple[str, str], dict[str, ByFactor]] = {}
    for title, by_variant in results.items():
        for variant, (facts, *_) in by_variant.items():
            group = groups.setdefault((variant.method, variant.parameter), {})
            group.setdefault(title, {})[variant.factor] = facts
    return groups


def final_losses(found: ByFactor) -> dict[float | str, float]:
    """Return the final held-out losses by factor."""
    return {factor: measured(facts, "held_out") for factor, facts in found.items()}


def excursion(facts: Facts) -> float:
    """Return the largest held-out loss after the first tenth of the samples, divided by the one at the first mark."""
    points = facts["points"]
    late = [point["held_out"] for point in points if point["samples"] >= 0.1 * facts["n"]]
    return float(max(late) / points[0]["held_out"])
