"""The synthetic experiment (Figure 2): the objective against time, for the six divergences of the paper's Table 4."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf.datasets.synthetic import NOISE_OF, Planted
from onmf.experiments.comparison import NEARLY, SIGNIFICANTLY, course, final, speedups, steps, uniform_start
from onmf.experiments.contest import Task, seconds_to
from onmf.experiments.contestants import CONTESTANTS, MOST_BYTES, TITLES
from onmf.experiments.folder import Folder
from onmf.experiments.judge import Scorer
from onmf.experiments.report import NOT, UNKNOWN, Block, Claim, Heading, Picture, Report, Table, Text, shown, verdict
from onmf.experiments.trial import Trial
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
DICTIONARY, SAMPLES = 1, 2  # keys of independent random numbers
PLANTED = 40  # K of the planted dictionary
HUBER_SHARE = 0.1  # Huber's delta, of the data's mean: the paper gives none
JUDGED = {"small": 60, "paper": 1000}  # samples that a dictionary is judged on
FASTER = "significantly faster than"


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

    def trial(self, K: int, seed: int) -> Trial:
        """From a uniformly random dictionary of K atoms."""
        W0 = uniform_start(K, self.source.n_features, seed)
        return Trial(Task(self.source, self.divergence, K, W0, seed), self.train, self.held_out)


@dataclass(frozen=True)
class Settings:
    """N samples of F features, K atoms."""

    SIZES: ClassVar = {"small": (1200, 40, 12), "paper": (100_000, 200, 40)}  # N, F, K

    size: str = "small"
    seed: int = 0
    methods: tuple[str, ...] = METHODS
    samples: int | None = None
    features: int | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, F and K."""
        n, F, K = self.SIZES[self.size]
        return self.samples or n, self.features or F, K


Results = dict[str, dict[str, dict[str, Any]]]  # facts by divergence and contestant


def run(settings: Settings, folder: Folder, watch: Watch) -> Report:
    """All divergences and contestants, the figure, the tables and the verdicts."""
    n, F, K = settings.shape
    entered = {d: [name for name in settings.methods if CONTESTANTS[name].serves(d)] for d in DIVERGENCES}
    watch.begin(sum(map(len, entered.values())))
    results: Results = {}
    ratios: dict[str, float] = {}
    for divergence, names in entered.items():
        data = Data.draw(divergence, n, F, settings.seed, JUDGED[settings.size])
        ratios[divergence] = data.snr
        watch.say(f"{NAMES[divergence]}: signal-to-noise ratio {data.snr:.1f} dB")
        for name in names:
            watch.part(f"{NAMES[divergence]}, {TITLES[name]}")
            find = partial(data.trial(K, settings.seed).compete, name, folder, watch)
            results.setdefault(divergence, {})[name] = folder.part(f"{divergence}-{name}", find).facts
    return _report(settings, folder, results, ratios)


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
    n, F, K = settings.shape
    short = any(by_name["batch"]["n"] < n for by_name in results.values() if "batch" in by_name)
    fits_in = f"Batch got only the first samples, {MOST_BYTES / 2**30:g} GiB of them." if short else ""
    blocks: list[Block] = [
        Heading("Set-up"),
        Text(
            f"N = {n} samples of F = {F} features, V = WH + noise with K = {PLANTED} planted atoms; entries of W and H "
            f"from the half-normal distribution with sigma 5, shifted by 1; noise as in the paper's Table 4, clipped "
            f"to [0, 4000]. Learnt with K = {K} atoms from a uniformly random dictionary; OL with {steps(n)}. Huber's "
            "delta is a tenth of the mean. Batch stops when its objective falls by less than 1e-5 of itself over ten "
            f"iterations. {fits_in}"
        ),
        Table(
            "Signal-to-noise ratios.",
            [{"divergence": NAMES[divergence], "dB": f"{value:.1f}"} for divergence, value in snr.items()],
        ),
        Heading("Objective against time"),
        Picture(
            pictures[0],
            "The objective as the paper defines it: for online methods the empirical loss of the samples so far, with "
            "the coefficients found when each was seen; for Batch its own loss. Coefficients found early belong to an "
            "early dictionary, so this measure is hard on methods that move fast.",
        ),
        Picture(pictures[1], "The loss of samples that nobody has learnt from, at the best coefficients."),
        Table("Final results. Train and held-out: mean loss at the best coefficients.", rows),
    ]
    return Report("Synthetic data", blocks, claims(results))


def curves(results: Results, measure: str) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    """The lines of the panels."""
    return {
        NAMES[divergence]: {TITLES[name]: course(facts, measure) for name, facts in by_name.items()}
        for divergence, by_name in results.items()
    }


def summary(results: Results) -> list[dict[str, Any]]:
    """One row per divergence and contestant."""
    rows = []
    for divergence, by_name in results.items():
        for name, facts in by_name.items():
            row = {"divergence": NAMES[divergence], "method": TITLES[name], "seconds": facts["seconds"]}
            row |= {measure: final(facts, measure) for measure in ("objective", "train", "held_out")}
            if "batch" in by_name and name != "batch":
                reached = seconds_to(facts["points"], "train", final(by_name["batch"], "train"))
                row["seconds to Batch's final training loss"] = reached if np.isfinite(reached) else "never"
                row["times faster than Batch"] = _times(_speedup(by_name, name))
                row[f"to within {NEARLY:.1%} of it"] = _times(_speedup(by_name, name, NEARLY))
            rows.append(row)
    return rows


def _speedup(by_name: dict[str, dict[str, Any]], name: str, slack: float = 0.0) -> float:
    (ratio,) = speedups({each: [facts] for each, facts in by_name.items()}, name, slack)
    return ratio


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio else "not reached"


def claims(results: Results) -> list[Claim]:
    """What the paper says of its Figure 2."""
    found = [_faster_than_batch(results)]
    for rival, word in {"ol-wang": "as fast as", "ol-lef": FASTER, "ol-guan": FASTER}.items():
        found.append(_against(results, rival, word))
    alike = Claim("Different initialisations lead to similar results", "one was run; see --seed", UNKNOWN)
    ours = _faster_than_batch(results, "ours")
    return [*found, alike, Claim("(not in the paper) onmf's default method against Batch", ours.measured, ours.verdict)]


def _faster_than_batch(results: Results, name: str = "ol") -> Claim:
    ratios = {
        NAMES[divergence]: _speedup(by_name, name)
        for divergence, by_name in results.items()
        if "batch" in by_name and name in by_name
    }
    text = "OL converges significantly faster than Batch for all the divergences"
    listed = ", ".join(f"{title} {_times(ratio)}" for title, ratio in ratios.items())
    measured = f"Batch's time / {TITLES[name]}'s to Batch's final training loss: {listed}"
    held = verdict([ratio >= SIGNIFICANTLY for ratio in ratios.values()])
    return Claim(text, measured if ratios else "one of the two was not run", held)


def _against(results: Results, rival: str, word: str) -> Claim:
    (divergence,) = CONTESTANTS[rival].divergences
    text = f"OL converges {word} {TITLES[rival]} ({NAMES[divergence]})"
    by_name = results.get(divergence, {})
    if "ol" not in by_name or rival not in by_name:
        return Claim(text, "one of the two was not run", UNKNOWN)
    ol, other = by_name["ol"], by_name[rival]
    ends = [final(facts, "train") for facts in (ol, other)]
    mine, theirs = (seconds_to(facts["points"], "train", max(ends)) for facts in (ol, other))
    measured = (
        f"final training loss {shown(ends[0])} against {shown(ends[1])}; seconds to the higher of the two: "
        f"{shown(mine)} against {shown(theirs)}"
    )
    limit = SIGNIFICANTLY if word == FASTER else 1 / SIGNIFICANTLY
    return Claim(text, measured, verdict([theirs >= limit * mine]) if np.isfinite(mine) else NOT)
