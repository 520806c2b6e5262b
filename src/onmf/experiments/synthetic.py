"""The synthetic experiment (Figure 2): the objective against time, for the six divergences of the paper's Table 4."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.datasets.synthetic import NOISE_OF, Planted
from onmf.experiments import contest
from onmf.experiments.contest import NEARLY, SERVE, TITLES, Task, compete, seconds_to, steps
from onmf.experiments.folder import Folder, Result
from onmf.experiments.judge import Scorer
from onmf.experiments.report import NOT, UNKNOWN, Block, Claim, Heading, Picture, Report, Table, Text, shown, verdict
from onmf.experiments.watch import Watch
from onmf.plots import panels
from onmf.streams import Numbered, OnBad, Source

DIVERGENCES = tuple(NOISE_OF)
NAMES = {
    "is": "Itakura-Saito",
    "kl": "Kullback-Leibler",
    "squared_l2": "squared l2",
    "huber": "Huber",
    "l1": "l1",
    "l2": "l2",
}
METHODS = ("ol", "batch", "ol-lef", "ol-guan", "ol-wang", "ours")
DICTIONARY, SAMPLES, START = 1, 2, 3  # keys of independent random numbers
PLANTED = 40  # K of the planted dictionary
HUBER_SHARE = 0.1  # Huber's delta, of the data's mean: the paper gives none
SIZES = {"small": (1200, 40, 12), "paper": (100_000, 200, 40)}  # N, F, K
JUDGED = {"small": 60, "paper": 1000}  # samples that a dictionary is judged on
FASTER = "significantly faster than"
AS_FAST = 1.5  # times within this factor of each other are called equal


class PlantedSource(Source):
    """N noisy samples of a planted dictionary, drawn anew in every pass and always the same; none is kept."""

    BLOCK = 200

    def __init__(self, planted: Planted, n: int, seed: int) -> None:
        self.planted, self.seed = planted, seed
        self.n_samples, self.n_features = n, planted.W.shape[1]

    def batches(
        self, size: int = BLOCK, rng: np.random.Generator | None = None, on_bad: OnBad | None = None
    ) -> Numbered:
        """Batches of whole blocks; every block has random numbers of its own."""
        if size % self.BLOCK:
            raise ValueError(f"synthetic samples come in batches of multiples of {self.BLOCK}, not of {size}.")
        n = self.n_samples or 0
        for first in range(0, n, size):
            last = min(first + size, n)
            blocks = [self._block(start, min(self.BLOCK, last - start)) for start in range(first, last, self.BLOCK)]
            yield np.arange(first, last), np.concatenate(blocks)

    def _block(self, start: int, n: int) -> Array:
        return self.planted.sample(n, np.random.default_rng([self.seed, SAMPLES, start // self.BLOCK])).V


@dataclass(frozen=True)
class Data:
    """The samples of one divergence: a stream to learn from, others to judge by, and their signal-to-noise ratio."""

    source: PlantedSource
    divergence: str
    train: Scorer
    held_out: Scorer
    snr: float

    @classmethod
    def draw(cls, divergence: str, n: int, F: int, seed: int, judged: int) -> Data:
        """The same for the same arguments."""
        rng = np.random.default_rng([seed, DICTIONARY, DIVERGENCES.index(divergence)])
        planted = Planted.draw(F, PLANTED, NOISE_OF[divergence], rng)
        source = PlantedSource(planted, n, seed)
        other = planted.sample(judged, rng)
        first = np.concatenate([batch for rows, batch in source.batches() if rows[0] < judged])[:judged]
        noise = np.linalg.norm(other.V - other.clean)
        mean = other.V.mean(axis=0)
        name = f"huber:{HUBER_SHARE * float(mean.mean()):.4g}" if divergence == "huber" else divergence
        snr = float(20 * np.log10(np.linalg.norm(other.clean) / noise))
        return cls(source, name, Scorer(name, mean, first), Scorer(name, mean, other.V), snr)

    def task(self, K: int, seed: int) -> Task:
        """The contest, from a uniformly random dictionary."""
        W0 = 1.0 - np.random.default_rng([seed, START]).random((K, self.source.n_features))
        return Task(self.source, self.divergence, W0, self.train, self.held_out, seed)


@dataclass(frozen=True)
class Settings:
    """N samples of F features."""

    size: str = "small"
    seed: int = 0
    methods: tuple[str, ...] = METHODS
    samples: int | None = None
    features: int | None = None

    @property
    def n(self) -> int:
        """N."""
        return self.samples or SIZES[self.size][0]

    @property
    def F(self) -> int:
        """The number of features."""
        return self.features or SIZES[self.size][1]

    @property
    def K(self) -> int:
        """The number of atoms."""
        return SIZES[self.size][2]

    def contestants(self, divergence: str) -> list[str]:
        """Those that serve."""
        return [name for name in self.methods if SERVE.get(name, divergence) == divergence]


def run(settings: Settings, folder: Folder, watch: Watch) -> Report:
    """All divergences and contestants, the figure, the tables and the verdicts."""
    pairs = [(divergence, name) for divergence in DIVERGENCES for name in settings.contestants(divergence)]
    watch.begin(len(pairs))
    results: dict[str, dict[str, dict[str, Any]]] = {}
    ratios: dict[str, float] = {}
    for divergence in DIVERGENCES:
        data = Data.draw(divergence, settings.n, settings.F, settings.seed, JUDGED[settings.size])
        ratios[divergence] = data.snr
        watch.say(f"{NAMES[divergence]}: signal-to-noise ratio {data.snr:.1f} dB")
        for name in settings.contestants(divergence):
            watch.part(f"{NAMES[divergence]}, {TITLES[name]}")
            find = partial(_one, name, data, settings, folder, watch)
            found = folder.part(f"{divergence}-{name}", find)
            results.setdefault(divergence, {})[name] = found.facts
    return _report(settings, folder, results, ratios)


def _one(name: str, data: Data, settings: Settings, folder: Folder, watch: Watch) -> Result:
    with folder.scratch() as scratch:
        return compete(name, data.task(settings.K, settings.seed), scratch, watch.step)


Results = dict[str, dict[str, dict[str, Any]]]  # by divergence and contestant


def _report(settings: Settings, folder: Folder, results: Results, snr: dict[str, float]) -> Report:
    folder.table(
        "curves",
        (
            {"divergence": divergence, "method": TITLES[name]} | point
            for divergence, by_name in results.items()
            for name, facts in by_name.items()
            for point in facts["points"]
        ),
    )
    rows = summary(results)
    folder.table("summary", rows)
    pictures = [
        folder.picture(measure, panels(curves(results, measure), "seconds", label))
        for measure, label in (("objective", "objective"), ("held_out", "held-out loss"))
    ]
    n, F, K = settings.n, settings.F, settings.K
    short = [TITLES["batch"] for by_name in results.values() if by_name.get("batch", {}).get("n", n) < n]
    fits_in = f"Batch got the first samples only, {contest.MOST_BYTES / 2**30:g} GiB of them." if short else ""
    blocks: list[Block] = [
        Heading("Set-up"),
        Text(
            f"N = {n} samples of F = {F} features, V = WH + noise with K = {PLANTED} planted atoms, entries of W and H "
            f"from the half-normal distribution with sigma 5 shifted by 1, noise as in the paper's Table 4, clipped to "
            f"[0, 4000]. Learnt with K = {K} atoms from a uniformly random dictionary; OL with {steps(n)}. Huber's "
            "delta is a tenth of the mean. "
            f"Batch stops when its objective falls by less than 1e-5 of itself over ten iterations. {fits_in}"
        ),
        Table(
            "Signal-to-noise ratios.",
            [{"divergence": NAMES[divergence], "dB": f"{value:.1f}"} for divergence, value in snr.items()],
        ),
        Heading("Objective against time"),
        Picture(
            pictures[0],
            "The objective as the paper defines it: online, the empirical loss of the samples so far with the "
            "coefficients of their time; Batch, its own loss. Coefficients found early belong to an early dictionary: "
            "this measure is hard on methods that move fast.",
        ),
        Picture(pictures[1], "The loss of samples that nobody has learnt from, at the best coefficients."),
        Table("Where everybody ended. Train and held-out: mean loss at the best coefficients.", rows),
    ]
    return Report("Synthetic data", blocks, claims(results))


def curves(results: Results, measure: str) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    """The lines of the panels."""
    return {
        NAMES[divergence]: {
            TITLES[name]: tuple([point[key] for point in facts["points"]] for key in ("seconds", measure))  # type: ignore[misc]
            for name, facts in by_name.items()
        }
        for divergence, by_name in results.items()
    }


def summary(results: Results) -> list[dict[str, Any]]:
    """One row a divergence and contestant."""
    rows = []
    for divergence, by_name in results.items():
        goal = by_name["batch"]["points"][-1]["train"] if "batch" in by_name else None
        for name, facts in by_name.items():
            last = facts["points"][-1]
            row = {"divergence": NAMES[divergence], "method": TITLES[name], "seconds": facts["seconds"]}
            row |= {key: last[key] for key in ("objective", "train", "held_out")}
            if goal is not None and name != "batch":
                reached = seconds_to(facts["points"], goal)
                row["seconds to Batch's final training loss"] = reached if np.isfinite(reached) else "never"
                row["times faster than Batch"] = times_faster(by_name["batch"]["seconds"], reached)
                near = seconds_to(facts["points"], (1 + NEARLY) * goal)
                row[f"to within {NEARLY:.1%} of it"] = times_faster(by_name["batch"]["seconds"], near)
            rows.append(row)
    return rows


def times_faster(theirs: float, ours: float) -> str:
    """Their time / ours, in words where it never came to that."""
    return f"{theirs / ours:.1f}" if np.isfinite(ours) else "not reached"


def claims(results: Results) -> list[Claim]:
    """What the paper says of its Figure 2."""
    found = [_faster_than_batch(results)]
    for rival, word in {"ol-wang": "as fast as", "ol-lef": FASTER, "ol-guan": FASTER}.items():
        found.append(_against(results.get(SERVE[rival], {}), rival, word))
    alike = Claim("Different initialisations lead to similar results", "one was run; see --seed", UNKNOWN)
    ours = _faster_than_batch(results, "ours")
    return [*found, alike, Claim("(not in the paper) onmf's default method against Batch", ours.measured, ours.verdict)]


def _faster_than_batch(results: Results, name: str = "ol") -> Claim:
    parts, successes = [], []
    for divergence, by_name in results.items():
        if "batch" in by_name and name in by_name:
            goal = by_name["batch"]["points"][-1]["train"]
            reached = seconds_to(by_name[name]["points"], goal)
            parts.append(f"{NAMES[divergence]} {times_faster(by_name['batch']['seconds'], reached)}")
            successes.append(reached * AS_FAST <= by_name["batch"]["seconds"])
    text = "OL converges significantly faster than Batch for all the divergences"
    measured = f"Batch's time / {TITLES[name]}'s to Batch's final training loss: " + ", ".join(parts)
    return Claim(text, measured if parts else "one of the two was not run", verdict(successes))


def _against(by_name: dict[str, dict[str, Any]], rival: str, word: str) -> Claim:
    text = f"OL converges {word} {TITLES[rival]} ({NAMES[SERVE[rival]]})"
    if "ol" not in by_name or rival not in by_name:
        return Claim(text, "one of the two was not run", UNKNOWN)
    ol, other = by_name["ol"]["points"], by_name[rival]["points"]
    worse = max(ol[-1]["train"], other[-1]["train"])
    mine, theirs = seconds_to(ol, worse), seconds_to(other, worse)
    measured = (
        f"final training loss {shown(ol[-1]['train'])} against {shown(other[-1]['train'])}; seconds to the higher of "
        f"the two: {shown(mine)} against {shown(theirs)}"
    )
    limit = 1 / AS_FAST if word.startswith("as") else AS_FAST
    return Claim(text, measured, verdict([theirs >= limit * mine]) if np.isfinite(mine) else NOT)
