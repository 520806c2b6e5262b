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
from reproduction.claims import (
    IN_WORDS,
    NOT_RUN,
    PAPERS,
    Claim,
    Facts,
    Results,
    arrived,
    curve,
    failing_early,
    measured,
    span,
    steps,
)
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
PARAMETERS = {
    "ol": ("tau", "K", "a"),
    "ol-exact": ("tau", "K", "a"),
    "ol-adaptive": ("tau", "K", "b", "c"),
    "ours": ("tau", "K"),
}
FIGURES = {"tau": "S-1", "K": "S-2", "a": "S-3"}  # the paper's
OUR_TAU = 30  # where the surrogate's chunks begin
MIDDLE_C = 0.5  # the middle one of those that compete
ORDER = [*FACTORS]
SMALL = 1.1  # final losses within a tenth of each other are a small variation
CLOSE = 0.05  # a run has converged, as a chart shows it, when its loss is that close to its own final one
SIMILAR_SPEED = 2.5  # slowest / fastest: twice, and the marks at which losses are looked at are a quarter apart
LARGEST_TAU = 4.0  # the largest factor that the paper's rule of thumb allows (tau <= 4e-4 N): others are not judged

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
            tau = {"ol-adaptive": Paper().tau, "ours": OUR_TAU}.get(self.method, canonical(n).tau)
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

    methods: tuple[str, ...] = ("ol", "ol-exact", "ol-adaptive", "ours")

    def entered(self, divergence: str) -> Sequence[Any]:
        return [variant for method in self.methods for variant in variants(method)]

    def trial(self, data: Data, who: Any, start: int) -> Trial:
        K, changes = who.applied(self.shape[0], data.K)
        return Trial(replace(data, K=K), who.method, start, variant=changes)

    def columns(self, who: Any) -> dict[str, Any]:
        return {"method": TITLES[who.method], "parameter": who.parameter, "factor": who.factor}

    def blocks(self, folder: Folder, results: Results, about: Mapping[str, Facts]) -> list[Block]:
        n, F, K, _ = self.shape
        described = {
            "ol-adaptive": "Its b is varied from that default and not from 0.2 N: the default is what users have, "
            f"whatever N is. Its c is fixed at {MIDDLE_C:g} times the factors, without a trial period, to be "
            "compared with the one found.",
            "ours": f"onmf has no step size; its chunks grow from {OUR_TAU} samples, but not where tau is varied.",
            "ol-exact": "The mean gradient is that of a x 0.1: the mean over tau = 10 samples.",
        }
        text = (
            f"The synthetic data with N = {n}, F = {F}, {PLANTED} planted components; K = {K}. "
            f"{steps(n, self.methods)} {' '.join(text for name, text in described.items() if name in self.methods)} "
            "One parameter at a time is multiplied by the factors in the legends."
        )
        blocks = [heading("Set-up"), paragraph(text)]
        for (method, parameter), by_title in sorted(varied(results).items(), key=lambda each: ORDER.index(each[0][1])):
            drawn = {
                title: {
                    _legend(parameter, f): curve(facts, "train")
                    for f, facts in judged_factors(parameter, found).items()
                }
                for title, found in by_title.items()
            }
            figure = charts.panels(drawn, "seconds", "training loss", _legend(parameter, UNCHANGED[parameter]))
            papers = f"the paper's Figure {FIGURES[parameter]}" if method in PAPERS else "not in the paper"
            caption = f"{IN_WORDS[method]}, {parameter} varied ({papers})."
            blocks.append(folder.picture(f"{parameter}-{method}", figure, caption))
        return blocks

    def caption(self) -> str:
        of_c = " (for c: the one found)" if "ol-adaptive" in self.methods else ""
        return (
            f"Samples and seconds until the training loss stays within {CLOSE:.0%} of the run's own final one, of the "
            "slowest / of the fastest; the largest / smallest final loss; and the samples by factor, divided by those "
            f"of the unchanged setting{of_c}. Larger K takes longer by its products alone, and a larger tau saves "
            f"updates, so that samples judge. Factors of tau above {LARGEST_TAU:g} are beyond the paper's rule of "
            "thumb: they are neither drawn nor judged, nor in the ratios. Under Huber and l2 all losses are close "
            "together, and some runs are as near as that at the first look: a large ratio says little there."
        )

    def summary(self, results: Results, about: Mapping[str, Facts]) -> list[dict[str, Any]]:
        """Return one row per divergence, method and parameter."""
        rows, groups = [], varied(results)
        for (method, parameter), by_title in groups.items():
            for title, found in by_title.items():
                needed = convergence(found, "samples")
                row: dict[str, Any] = {"divergence": title, "method": TITLES[method], "parameter": parameter}
                for measure in ("samples", "seconds"):
                    row[measure] = spread(convergence(judged_factors(parameter, found), measure))
                row["loss"] = spread(final_losses(judged_factors(parameter, found)))
                own = needed[UNCHANGED[parameter]]
                row["samples by factor"] = ", ".join(
                    f"{_legend('', f).strip()}: {n / own:.3g}" for f, n in needed.items()
                )
                rows.append(row)
        return sorted(rows, key=lambda row: list(results).index(row["divergence"]))

    def claims(self, results: Results, about: Mapping[str, Facts]) -> Iterator[Claim]:
        for (method, parameter), by_title in varied(results).items():
            yield _trials_find_c(by_title) if parameter == "c" else _insensitive(method, parameter, by_title)
        yield Claim("Different initialisations of {} lead to similar curves", NOT_RUN, ())


def _insensitive(method: str, parameter: str, by_title: Mapping[str, ByFactor]) -> Claim:
    judged = {title: judged_factors(parameter, found) for title, found in by_title.items()}
    samples = {title: convergence(found, "samples") for title, found in judged.items()}
    spreads, seconds, ends = (
        {title: spread(values(found)) for title, found in judged.items()}
        for values in (lambda f: convergence(f, "samples"), lambda f: convergence(f, "seconds"), final_losses)
    )
    # Fewer components fit less well; but with another tau or a, a run that ends elsewhere has not converged as fast.
    as_low = {title: parameter == "K" or ratio <= SMALL for title, ratio in ends.items()}
    good = [value <= SIMILAR_SPEED and as_low[title] for title, value in spreads.items()]
    last = {title: samples[title] if as_low[title] else final_losses(found) for title, found in judged.items()}
    runs = [[found[max(last[title], key=last[title].__getitem__)]] for title, found in judged.items()]
    factors = [float(factor) for factor in next(iter(judged.values())) if factor != FOUND]
    return Claim(
        f"{{}} is insensitive to {parameter}: its convergence speed varies little over wide ranges",
        f"samples until it stays within {CLOSE:.0%} of its own final loss, slowest / fastest, factors "
        f"{min(factors):g} to {max(factors):g}: {_each(spreads)}; seconds: {_each(seconds)}; largest / smallest final "
        f"loss: {_each(ends)}",
        good,
        failing_early(good, runs) if parameter != "K" else (),
        method,
        f"under {sum(good)} of {len(good)}; slowest / fastest {span([*spreads.values()])}, final losses "
        f"{span([*ends.values()])}",
    )


def _trials_find_c(by_title: Mapping[str, ByFactor]) -> Claim:
    ratios = {}
    for title, found in by_title.items():
        ends = final_losses(found)
        ratios[title] = ends.pop(FOUND) / min(ends.values())
    good = [ratio <= SMALL for ratio in ratios.values()]
    return Claim(
        "{} needs no choice of c: the trial period does as well as the best one",
        "final training loss with the trial period / with the best fixed c of "
        f"{len(FACTORS['c']) - 1}: {_each(ratios)}",
        good,
        failing_early(good, [[found[FOUND]] for found in by_title.values()]),
        "ol-adaptive",
    )


def _each(values: Mapping[str, float]) -> str:
    return ", ".join(f"{title} {value:.3g}" for title, value in values.items())


def _legend(parameter: str, factor: float | str) -> str:
    return f"{parameter} {FOUND}" if factor == FOUND else f"{parameter} x {factor:g}"


def varied(results: Results) -> dict[tuple[str, str], dict[str, ByFactor]]:
    """Sort the runs by method and parameter, then by data set, then by factor; all factors of one must be there."""
    groups: dict[tuple[str, str], dict[str, ByFactor]] = {}
    for title, by_variant in results.items():
        for method, parameters in PARAMETERS.items():
            for parameter in parameters:
                wanted = {factor: Variant(method, parameter, factor) for factor in FACTORS[parameter]}
                if all(variant in by_variant for variant in wanted.values()):
                    found = {factor: by_variant[variant][0] for factor, variant in wanted.items()}
                    groups.setdefault((method, parameter), {})[title] = found
    return groups


def final_losses(found: ByFactor) -> dict[float | str, float]:
    """Return the final training losses by factor."""
    return {factor: measured(facts, "train") for factor, facts in found.items()}


def judged_factors(parameter: str, found: ByFactor) -> ByFactor:
    """Return the runs with factors in the range that is judged."""
    return {factor: facts for factor, facts in found.items() if parameter != "tau" or float(factor) <= LARGEST_TAU}


def convergence(found: ByFactor, measure: str) -> dict[float | str, float]:
    """Return by factor the samples or seconds until a run stays close to its own final training loss."""
    needed = {}
    for factor, facts in found.items():
        level = (1 + CLOSE) * measured(facts, "train")
        needed[factor] = float(arrived(facts, level)[0][measure])
    return needed


def spread(values: Mapping[Any, float]) -> float:
    """Return the largest / the smallest."""
    return max(values.values()) / min(values.values())
