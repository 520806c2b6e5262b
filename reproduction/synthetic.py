"""The synthetic experiment (Figure 2): the objective against time, for the six divergences of the paper's Table 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from onmf.data.examples import NOISE_OF, Planted
from reproduction import charts, claims
from reproduction.arrays import Array, Counts
from reproduction.claims import Claim, Results
from reproduction.contest import CONTESTANTS, MOST_BYTES, TITLES, seconds_to
from reproduction.experiment import Experiment
from reproduction.judge import Scorer
from reproduction.report import Block, Folder, heading, paragraph, shown, table
from reproduction.trial import Benchmark, InOrder, huber

SPELT = {"is": "Itakura-Saito", "kl": "Kullback-Leibler", "squared_l2": "squared l2", "huber": "Huber"}
NAMES = {name: SPELT.get(name, name) for name in NOISE_OF}
RIVALS = {"ol-wang": "as fast as", "ol-lef": "significantly faster than", "ol-guan": "significantly faster than"}
DICTIONARY, SAMPLES = 1, 2  # keys of independent random numbers
PLANTED = 40  # K of the planted dictionary
CAPTION = (
    "The objective as the paper defines it: for online methods the empirical loss of the samples so far, with the "
    "coefficients found when each was seen; for Batch its own loss. Coefficients found early belong to an early "
    "dictionary, so this measure is hard on methods that move fast{}."
)
TRIALS = ", and on OL with its adaptive step whenever another dictionary takes the lead in its trial period"
NOT_RUN = "one of the two was not run"
AS_LOW = 1.01  # times another final loss: not more than a hundredth above it


class PlantedSource(InOrder):
    """N noisy samples of a planted dictionary, none of which is kept; every block has random numbers of its own."""

    BLOCK = 200

    def __init__(self, planted: Planted, n: int, seed: int) -> None:
        self.n_samples, self.n_features = n, planted.W.shape[1]
        self.planted, self.seed = planted, seed

    def take(self, places: Counts) -> Array:
        blocks = range(places[0] // self.BLOCK, places[-1] // self.BLOCK + 1)
        whole = [self.planted.sample(self.BLOCK, np.random.default_rng([self.seed, SAMPLES, b])).V for b in blocks]
        return np.concatenate(whole)[places - blocks[0] * self.BLOCK]


@dataclass(frozen=True, eq=False)
class Data(Benchmark):
    """The samples of one divergence, and their signal-to-noise ratio in dB."""

    snr: float

    @classmethod
    def draw(cls, divergence: str, n: int, F: int, K: int, judged: int, seed: int) -> Data:
        """Draw a planted dictionary and samples, equal for equal arguments; ``judged`` samples judge dictionaries."""
        rng = np.random.default_rng([seed, DICTIONARY, list(NOISE_OF).index(divergence)])
        planted = Planted.draw(F, PLANTED, NOISE_OF[divergence], rng)
        source = PlantedSource(planted, n, seed)
        other = planted.sample(judged, rng)
        mean = other.V.mean(axis=0)
        name = huber(float(mean.mean())) if divergence == "huber" else divergence
        snr = float(20 * np.log10(np.linalg.norm(other.clean) / np.linalg.norm(other.V - other.clean)))
        train, held_out = (Scorer(name, mean, V) for V in (source.take(np.arange(min(judged, n))), other.V))
        return cls(source, name, K, train, held_out, snr)


@dataclass(frozen=True)
class Synthetic(Experiment):
    """The experiment on planted dictionaries; ``samples`` and ``features`` replace the N and F of the size."""

    TITLE, EACH = "Synthetic data", "divergence"
    MEASURES = ("seconds", "objective", "train", "held_out")
    SIZES: ClassVar = {"small": (1200, 40, 12, 60), "paper": (100_000, 200, 40, 1000)}  # N, F, K, samples to judge by

    methods: tuple[str, ...] = ("ol", "ol-adaptive", "batch", "ol-lef", "ol-guan", "ol-wang", "ours")
    samples: int | None = None
    features: int | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return N, F, K and the number of samples that dictionaries are judged on."""
        n, F, K, judged = self.SIZES[self.size]
        return self.samples or n, self.features or F, K, judged

    @property
    def full_length(self) -> bool:
        return self.shape[0] >= self.SIZES["paper"][0]

    @cached_property
    def sets(self) -> Mapping[str, Data]:
        return {title: Data.draw(divergence, *self.shape, self.seed) for divergence, title in NAMES.items()}

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        objective, held_out = (
            charts.panels({title: claims.lines(found, measure) for title, found in results.items()}, "seconds", label)
            for measure, label in (("objective", "objective"), ("held_out", "held-out loss"))
        )
        ratios = [{"divergence": title, "dB": f"{data.snr:.1f}"} for title, data in self.sets.items()]
        n, F, K, _ = self.shape
        short = any(facts["n"] < n for found in results.values() for facts in found.get("batch", []))
        fits_in = f"Batch got only the first samples, {MOST_BYTES / 2**30:g} GiB of them." if short else ""
        return [
            heading("Set-up"),
            paragraph(
                f"N = {n} samples of F = {F} features, V = WH + noise with K = {PLANTED} planted components; entries "
                "of W and H from the half-normal distribution with sigma 5, shifted by 1; noise as in the paper's "
                f"Table 4, clipped to [0, 4000]. Learnt with K = {K} components from a uniformly random dictionary. "
                f"{claims.steps(n, self.methods)} Huber's delta is a tenth of the mean. Batch stops when its "
                f"objective falls by less than 1e-5 of itself over ten iterations. {fits_in}"
            ),
            table("Signal-to-noise ratios.", ratios),
            heading("Objective against time"),
            folder.picture("objective", objective, CAPTION.format(TRIALS if "ol-adaptive" in self.methods else "")),
            folder.picture("held_out", held_out, "The loss of samples not learnt from, at the best coefficients."),
        ]

    def claims(self, results: Results) -> Iterator[Claim]:
        yield _faster_than_batch(results, "ol")
        yield from (_against(results, rival, word) for rival, word in RIVALS.items())
        yield Claim("Different initialisations lead to similar results", "one was run; see --seed", [])
        yield _faster_than_batch(results, "ol-adaptive")
        yield _as_low_as_canonical(results)
        yield _faster_than_batch(results, "ours")


def _faster_than_batch(results: Results, name: str) -> Claim:
    compared = {title: found for title, found in results.items() if "batch" in found and name in found}
    ratios = {title: claims.speedups(found, name) for title, found in compared.items()}
    each = ", ".join(
        f"{title} {claims.times(ratios[title], claims.ends(found, name), '.1f')}" for title, found in compared.items()
    )
    return Claim(
        claims.about(
            name, f"{claims.IN_WORDS[name]} converges significantly faster than Batch for all the divergences"
        ),
        f"Batch's time / time to Batch's final training loss: {each}" if ratios else NOT_RUN,
        [ratio >= claims.SIGNIFICANTLY for found in ratios.values() for ratio in found],
        [might for found in compared.values() for might in claims.out_of_reach(found, name)],
    )


def _as_low_as_canonical(results: Results) -> Claim:
    compared = {title: found for title, found in results.items() if {"ol", "ol-adaptive"} <= set(found)}
    ratios = {
        title: claims.mean(f["ol-adaptive"], "train") / claims.mean(f["ol"], "train") for title, f in compared.items()
    }
    each = ", ".join(f"{title} {ratio:.3f}" for title, ratio in ratios.items())
    good = [ratio <= AS_LOW for ratio in ratios.values()]
    return Claim(
        claims.about("ol-adaptive", "OL with its adaptive step ends as low as OL with the paper's step, or lower"),
        f"its final training loss / OL's: {each}" if ratios else NOT_RUN,
        good,
        claims.failing_early(good, [found["ol-adaptive"] for found in compared.values()]),
    )


def _against(results: Results, rival: str, word: str) -> Claim:
    title = NAMES[CONTESTANTS[rival].divergences[0]]
    text = f"OL converges {word} {TITLES[rival]} ({title})"
    found = results.get(title, {})
    if "ol" not in found or rival not in found:
        return Claim(text, NOT_RUN, [])
    final = [claims.mean(found[name], "train") for name in ("ol", rival)]
    mine, theirs = (seconds_to(found[name][0]["points"], "train", max(final)) for name in ("ol", rival))
    limit = 1 / claims.SIGNIFICANTLY if rival == "ol-wang" else claims.SIGNIFICANTLY
    good = [bool(np.isfinite(mine) and theirs >= limit * mine)]
    return Claim(
        text,
        f"final training loss {shown(final[0])} against {shown(final[1])}; seconds to the higher of the two: "
        f"{shown(mine)} against {shown(theirs)}",
        good,
        claims.failing_early(good, [found["ol"]]),
    )
