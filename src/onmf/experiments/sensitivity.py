"""The sensitivity experiment (Figures S-1 to S-3): tau, K and a, one at a time in log scale, for six divergences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from onmf.experiments.comparison import Facts, Results, about, course, measured
from onmf.experiments.contestants import TITLES, canonical
from onmf.experiments.folder import Folder
from onmf.experiments.report import Block, Claim, heading, paragraph
from onmf.experiments.synthetic import PLANTED, Data, Synthetic
from onmf.experiments.trial import Trial
from onmf.methods import Canonical
from onmf.plots import panels

FACTORS = {"tau": (0.1, 1, 4, 40), "K": (0.5, 1, 2), "a": (0.1, 1, 10)}
FIGURES = {"tau": "S-1", "K": "S-2", "a": "S-3"}  # the paper's
EVERY_FACTOR = sorted({factor for factors in FACTORS.values() for factor in factors})
OUR_TAU = 30  # the surrogate's own
SMALL = 1.1  # final losses within a tenth of each other are a small variation


@dataclass(frozen=True)
class Variant:
    """A method with one parameter multiplied by a factor; 1 is the canonical setting, the same for all parameters."""

    method: str
    parameter: str
    factor: float

    def __str__(self) -> str:
        return self.method if self.factor == 1 else f"{self.method}-{self.parameter}-{self.factor:g}"

    def applied(self, n: int, K: int) -> tuple[int, dict[str, Any]]:
        """The number of atoms, and what differs from the method's own settings."""
        if self.factor == 1 or self.parameter == "K":
            return round(K * self.factor), {}
        if self.parameter == "tau":
            usual = canonical(n).tau if self.method == "ol" else OUR_TAU
            return K, {"method__tau": max(1, round(usual * self.factor))}
        return K, {"method__step": Canonical(a=0.2 * n * self.factor, b=0.2 * n).text()}


def variants(method: str) -> list[Variant]:
    """All variants of a method; ours has no step size a."""
    parameters = [name for name in FACTORS if method == "ol" or name != "a"]
    return [Variant(method, name, factor) for name in parameters for factor in FACTORS[name]]


@dataclass(frozen=True)
class Sensitivity(Synthetic):
    """K is the canonical one. Few samples are judged: that takes longer than learning."""

    TITLE = "Sensitivity to tau, K and a"
    SIZES: ClassVar = {"small": (400, 20, 6, 40), "paper": (100_000, 200, 40, 200)}

    methods: tuple[str, ...] = ("ol", "ours")

    def entered(self, title: str) -> Sequence[Any]:
        return [variant for method in self.methods for variant in variants(method)]

    def trial(self, data: Data, who: Any, start: int) -> Trial:
        K, changes = who.applied(self.shape[0], data.K)
        return Trial(replace(data, K=K), who.method, start, variant=changes)

    def columns(self, who: Any) -> dict[str, Any]:
        return {"method": TITLES[who.method], "parameter": who.parameter, "factor": who.factor}

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        n, F, K, _ = self.shape
        text = (
            f"The synthetic data with N = {n}, F = {F}, {PLANTED} planted atoms. Canonical: K = {K}, and for OL "
            f"tau = {canonical(n).tau}, a = b = {0.2 * n:g}; onmf updates its dictionary every {OUR_TAU} samples "
            "and has no step size a. One parameter at a time is multiplied by the factors in the legends."
        )
        blocks = [heading("Set-up"), paragraph(text)]
        for (method, parameter), by_title in sorted(varied(results).items(), key=lambda each: FIGURES[each[0][1]]):
            charts = {
                title: {f"{parameter} x {factor:g}": course(facts, "held_out") for factor, facts in found.items()}
                for title, found in by_title.items()
            }
            figure = panels(charts, "seconds", "held-out loss")
            caption = f"{TITLES[method]}, {parameter} varied (the paper's Figure {FIGURES[parameter]})."
            blocks.append(folder.picture(f"{parameter}-{method}", figure, caption))
        return blocks

    def caption(self) -> str:
        return (
            "Final held-out loss divided by that of the canonical setting; worst on the way: the largest loss after "
            "the first tenth of the samples, divided by that of the first mark."
        )

    def summary(self, results: Results) -> list[dict[str, Any]]:
        """One row per divergence, method and parameter."""
        rows = []
        for (method, parameter), by_title in varied(results).items():
            for title, found in by_title.items():
                ends = {factor: measured(facts, "held_out") for factor, facts in found.items()}
                row: dict[str, Any] = {"divergence": title, "method": TITLES[method], "parameter": parameter}
                row["largest / smallest"] = spread(found)
                row["worst on the way"] = max(excursion(facts) for facts in found.values())
                row |= {f"x {factor:g}": ends[factor] / ends[1] if factor in ends else "" for factor in EVERY_FACTOR}
                rows.append(row)
        return sorted(rows, key=lambda row: list(results).index(row["divergence"]))

    def claims(self, results: Results) -> Iterator[Claim]:
        for (method, parameter), by_title in varied(results).items():
            spreads = {title: spread(found) for title, found in by_title.items()}
            where = f"factors {min(FACTORS[parameter]):g} to {max(FACTORS[parameter]):g}"
            listed = ", ".join(f"{title} {value:.3g}" for title, value in spreads.items())
            yield Claim(
                about(method, f"{TITLES[method]} is insensitive to {parameter}: small variations over wide ranges"),
                f"largest / smallest final held-out loss, {where}: {listed}",
                [value <= SMALL for value in spreads.values()],
            )


def varied(results: Results) -> dict[tuple[str, str], dict[str, dict[float, Facts]]]:
    """The runs by method and parameter, then by data set, then by factor."""
    groups: dict[tuple[str, str], dict[str, dict[float, Facts]]] = {}
    for title, by_variant in results.items():
        for variant, (facts, *_) in by_variant.items():
            group = groups.setdefault((variant.method, variant.parameter), {})
            group.setdefault(title, {})[variant.factor] = facts
    return groups


def spread(found: Mapping[float, Facts]) -> float:
    """The largest final held-out loss / the smallest."""
    ends = [measured(facts, "held_out") for facts in found.values()]
    return max(ends) / min(ends)


def excursion(facts: Facts) -> float:
    """The largest held-out loss after the first tenth of the samples / that of the first mark."""
    points = facts["points"]
    late = [point["held_out"] for point in points if point["samples"] >= 0.1 * facts["n"]]
    return float(max(late) / points[0]["held_out"])
