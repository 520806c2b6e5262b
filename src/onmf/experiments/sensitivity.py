"""The sensitivity experiment (Figures S-1 to S-3): tau, K and a, one at a time in log scale, for six divergences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from onmf.experiments import synthetic
from onmf.experiments.comparison import ADDED, course, final
from onmf.experiments.contestants import TITLES, canonical
from onmf.experiments.folder import Folder
from onmf.experiments.report import Block, Claim, Heading, Picture, Report, Table, Text, verdict
from onmf.experiments.synthetic import DIVERGENCES, NAMES, PLANTED, Data
from onmf.experiments.watch import Watch
from onmf.methods import Auto
from onmf.plots import panels

METHODS = ("ol", "ours")
FACTORS = {"tau": (0.1, 1, 4, 40), "K": (0.5, 1, 2), "a": (0.1, 1, 10)}
EVERY_FACTOR = sorted({factor for factors in FACTORS.values() for factor in factors})
JUDGED = {"small": 40, "paper": 200}  # samples that a dictionary is judged on: judging takes longer than learning
OUR_TAU = 30  # the surrogate's own
SMALL = 1.1  # final losses within a tenth of each other are a small variation


@dataclass(frozen=True)
class Settings(synthetic.Settings):
    """N samples of F features; K is the canonical one."""

    SIZES: ClassVar = {"small": (400, 20, 6), "paper": (100_000, 200, 40)}

    methods: tuple[str, ...] = METHODS


@dataclass(frozen=True)
class Variant:
    """A method with one parameter multiplied by a factor; 1 is the canonical setting, the same for all parameters."""

    method: str
    parameter: str
    factor: float

    @property
    def name(self) -> str:
        """The name of its file."""
        changed = "" if self.factor == 1 else f"-{self.parameter}-{self.factor:g}"
        return f"{self.method}{changed}"

    def settings(self, n: int) -> dict[str, Any]:
        """What differs from the method's own settings."""
        if self.factor == 1 or self.parameter == "K":
            return {}
        usual = canonical(n) if self.method == "ol" else Auto(tau=OUR_TAU)
        value = getattr(usual, self.parameter) * self.factor
        return {f"method__{self.parameter}": max(1, round(value)) if self.parameter == "tau" else value}

    def K(self, canonical_K: int) -> int:
        """The number of atoms."""
        return round(canonical_K * self.factor) if self.parameter == "K" else canonical_K


def variants(method: str) -> list[Variant]:
    """All variants of a method; ours has no step size a."""
    parameters = [name for name in FACTORS if method == "ol" or name != "a"]
    return [Variant(method, name, factor) for name in parameters for factor in FACTORS[name]]


Results = dict[str, dict[Variant, dict[str, Any]]]  # by divergence


def run(settings: Settings, folder: Folder, watch: Watch) -> Report:
    """Every variant on every divergence, the figures, the table and the verdicts."""
    n, F, K = settings.shape
    entered = [variant for method in settings.methods for variant in variants(method)]
    watch.begin(len(DIVERGENCES) * len(entered))
    results: Results = {}
    for divergence in DIVERGENCES:
        data = Data.draw(divergence, n, F, settings.seed, JUDGED[settings.size])
        for v in entered:
            watch.part(f"{NAMES[divergence]}, {TITLES[v.method]}, {v.parameter} x {v.factor:g}")
            compete = data.trial(v.K(K), settings.seed).compete
            find = partial(compete, v.method, folder, watch, v.settings(n))
            results.setdefault(divergence, {})[v] = folder.part(f"{divergence}-{v.name}", find).facts
    return _report(settings, folder, results)


def _report(settings: Settings, folder: Folder, results: Results) -> Report:
    n, F, K = settings.shape
    folder.table(
        "curves",
        (
            {"divergence": divergence, "method": TITLES[v.method], "parameter": v.parameter, "factor": v.factor} | point
            for divergence, by_variant in results.items()
            for v, facts in by_variant.items()
            for point in facts["points"]
        ),
    )
    rows = summary(results, settings.methods)
    folder.table("summary", rows)
    blocks: list[Block] = [
        Heading("Set-up"),
        Text(
            f"The synthetic data with N = {n}, F = {F}, {PLANTED} planted atoms. Canonical: K = {K}, and for OL "
            f"tau = {canonical(n).tau}, a = b = {0.2 * n:g}; onmf updates its dictionary every {OUR_TAU} samples "
            "and has no step size a. One parameter at a time is multiplied by the factors in the legends."
        ),
    ]
    for number, parameter in enumerate(FACTORS, start=1):
        for method in settings.methods:
            charts = {
                NAMES[divergence]: {
                    f"{parameter} x {v.factor:g}": course(facts, "held_out")
                    for v, facts in by_variant.items()
                    if (v.method, v.parameter) == (method, parameter)
                }
                for divergence, by_variant in results.items()
            }
            if any(charts.values()):
                file = folder.picture(f"{parameter}-{method}", panels(charts, "seconds", "held-out loss"))
                blocks.append(Picture(file, f"{TITLES[method]}, {parameter} varied (the paper's Figure S-{number})."))
    blocks += [
        Heading("In numbers"),
        Table(
            "Final held-out loss divided by that of the canonical setting; worst on the way: the largest loss after "
            "the first tenth of the samples, divided by that of the first mark.",
            rows,
        ),
    ]
    return Report("Sensitivity to tau, K and a", blocks, claims(results, settings.methods))


def summary(results: Results, methods: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row per divergence, method and parameter."""
    rows = []
    for divergence, by_variant in results.items():
        for method in methods:
            for parameter in FACTORS:
                chosen = {v.factor: f for v, f in by_variant.items() if (v.method, v.parameter) == (method, parameter)}
                if not chosen:
                    continue
                ends = {factor: final(facts, "held_out") for factor, facts in chosen.items()}
                row: dict[str, Any] = {
                    "divergence": NAMES[divergence],
                    "method": TITLES[method],
                    "parameter": parameter,
                    "largest / smallest": max(ends.values()) / min(ends.values()),
                    "worst on the way": max(excursion(facts) for facts in chosen.values()),
                }
                row |= {f"x {factor:g}": ends[factor] / ends[1] if factor in ends else "" for factor in EVERY_FACTOR}
                rows.append(row)
    return rows


def excursion(facts: dict[str, Any]) -> float:
    """The largest held-out loss after the first tenth of the samples / that of the first mark."""
    points = facts["points"]
    late = [point["held_out"] for point in points if point["samples"] >= 0.1 * facts["n"]]
    return float(max(late) / points[0]["held_out"])


def claims(results: Results, methods: tuple[str, ...]) -> list[Claim]:
    """What the paper says of each parameter, and the same of ours."""
    spreads: dict[tuple[str, str], dict[str, float]] = {}
    for row in summary(results, methods):
        spreads.setdefault((row["method"], row["parameter"]), {})[row["divergence"]] = row["largest / smallest"]
    found = []
    for (title, parameter), by_divergence in spreads.items():
        note = "" if title == TITLES["ol"] else ADDED
        text = f"{note}{title} is insensitive to {parameter}: small variations over wide ranges"
        listed = ", ".join(f"{name} {spread:.3g}" for name, spread in by_divergence.items())
        factors = f"factors {min(FACTORS[parameter]):g} to {max(FACTORS[parameter]):g}"
        measured = f"largest / smallest final held-out loss, {factors}: {listed}"
        found.append(Claim(text, measured, verdict([spread <= SMALL for spread in by_divergence.values()])))
    return found
