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
from reproduction.claims import Claim, Facts, Results
from reproduction.contest import CONTESTANTS, MOST_BYTES, TITLES
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
AS_LOW = 1.01  # times another final loss: not more than a hundredth above it
SIMILAR = 1.05  # largest / smallest final loss of different starts: similar results


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

    methods: tuple[str, ...] = (*claims.PAPERS, "ol-adaptive", "batch", *RIVALS, "ours")
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

    def described(self, data: Data) -> Facts:
        return {"snr": data.snr}

    def blocks(self, folder: Folder, results: Results, about: Mapping[str, Facts]) -> list[Block]:
        objective, train = (
            charts.panels({title: claims.lines(found, measure) for title, found in results.items()}, "seconds", label)
            for measure, label in (("objective", "objective"), ("train", "training loss"))
        )
        ratios = [{"divergence": title, "dB": f"{facts['snr']:.1f}"} for title, facts in about.items()]
        n, F, K, judged = self.shape
        short = any(facts["n"] < n for found in results.values() for facts in found.get("batch", []))
        fits_in = f"Batch got only the first samples, {MOST_BYTES / 2**30:g} GiB of them." if short else ""
        return [
            heading("Set-up"),
            paragraph(
                f"N = {n} samples of F = {F} features, V = WH + noise with K = {PLANTED} planted components; entries "
                "of W and H from the half-normal distribution with sigma 5, shifted by 1; noise as in the paper's "
                f"Table 4, clipped to [0, 4000]. Learnt with K = {K} components from a uniformly random dictionary. "
                f"{claims.steps(n, self.methods)} Huber's delta is a tenth of the mean. "
                f"{claims.how_batch_stopped(results)} {fits_in}"
            ),
            table("Signal-to-noise ratios.", ratios),
            heading("Objective against time"),
            folder.picture("objective", objective, CAPTION.format(TRIALS if "ol-adaptive" in self.methods else "")),
            folder.picture(
                "train",
                train,
                f"The training loss, at the best coefficients, of the first {judged} samples of the stream. That "
                "flatters the first marks of a method that fits its first chunk well: below, a loss counts as reached "
                "where the curve falls to it for good.",
            ),
        ]

    def claims(self, results: Results, about: Mapping[str, Facts]) -> Iterator[Claim]:
        for method in (*claims.PAPERS, "ol-adaptive", "ours"):
            yield claims.faster_than_batch(
                "{} converges significantly faster than Batch for all the divergences", results, method
            )
        for method in claims.PAPERS:
            yield _ahead_at_its_end(results, method)
        for method in claims.PAPERS:
            yield _own_objective(results, method)
        yield from (_against(results, rival, word, name) for rival, word in RIVALS.items() for name in claims.PAPERS)
        yield from (_starts_alike(results, method) for method in (*claims.PAPERS, "batch"))
        yield _as_low_as_canonical(results)


def _ahead_at_its_end(results: Results, method: str) -> Claim:
    ratios: dict[str, list[float]] = {}
    for title, found in results.items():
        for facts, batch in claims.paired(found, method):
            first, *others = batch["points"]
            *_, now = [first, *(point for point in others if point["seconds"] <= facts["seconds"])]
            ratios.setdefault(title, []).append(now["train"] / claims.measured(facts, "train"))
    every = [ratio for each in ratios.values() for ratio in each]
    return Claim(
        "When {} has seen all samples, Batch, in the same time, has not come as far",
        "Batch's training loss at its last mark before that time / its own: "
        + ", ".join(f"{title} {claims.listed(each)}" for title, each in ratios.items()),
        [ratio > 1 for ratio in every],
        (),
        method,
        f"Batch's loss is {claims.span(every, '.3f')} times its own{claims.among(ratios, len(NAMES))}" if every else "",
    )


def _own_objective(results: Results, method: str) -> Claim:
    ratios = {
        title: claims.mean([one for one, _ in pairs], "objective") / claims.mean([b for _, b in pairs], "objective")
        for title, found in results.items()
        if (pairs := claims.paired(found, method))
    }
    return Claim(
        "{} ends no higher than Batch by the paper's own objective, for all the divergences (our inference)",
        f"its final objective, with the coefficients found when each sample was seen, / Batch's: {_each(ratios)}",
        [ratio <= 1 for ratio in ratios.values()],
        [claims.still_falling(*results[title][method]) for title in ratios],
        method,
        f"{claims.span([*ratios.values()])} of Batch's objective{claims.among(ratios, len(NAMES))}" if ratios else "",
    )


def _starts_alike(results: Results, method: str) -> Claim:
    losses = {
        title: [claims.measured(facts, "train") for facts in found[method]]
        for title, found in results.items()
        if len(found.get(method, ())) > 1
    }
    ratios = {title: max(each) / min(each) for title, each in losses.items()}
    counts = claims.span([len(each) for each in losses.values()]) if losses else ""
    spread = f"{claims.span([*ratios.values()], '.3f')}, {counts} starts" if losses else ""
    return Claim(
        "Different initialisations of {} lead to similar results",
        f"largest / smallest final training loss from {counts} starts: {_each(ratios)}" if losses else claims.NOT_RUN,
        [ratio <= SIMILAR for ratio in ratios.values()],
        (),
        method,
        f"largest / smallest loss {spread}{claims.among(ratios, len(NAMES))}" if losses else "",
    )


def _as_low_as_canonical(results: Results) -> Claim:
    compared = {title: found for title, found in results.items() if {"ol-exact", "ol-adaptive"} <= set(found)}
    ratios = {
        title: claims.mean(f["ol-adaptive"], "train") / claims.mean(f["ol-exact"], "train")
        for title, f in compared.items()
    }
    good = [ratio <= AS_LOW for ratio in ratios.values()]
    return Claim(
        "{} ends as low as OL with the paper's step and equally exact coefficients, or lower",
        f"its final training loss / OL's: {_each(ratios)}" if ratios else claims.NOT_RUN,
        good,
        claims.failing_early(good, [found["ol-adaptive"] for found in compared.values()]),
        "ol-adaptive",
    )


def _against(results: Results, rival: str, word: str, name: str) -> Claim:
    title = NAMES[CONTESTANTS[rival].divergences[0]]
    sentence = f"{{}} converges {word} {claims.IN_WORDS[rival]} ({title})"
    found = results.get(title, {})
    if name not in found or rival not in found:
        return Claim(sentence, claims.NOT_RUN, [], (), name)
    theirs = found[rival][0]
    times = []
    for facts in found[name]:
        level = (1 + claims.NEARLY) * max(claims.measured(each, "train") for each in (facts, theirs))
        times.append([claims.seconds_to(each, level) for each in (facts, theirs)])
    limit = 1 / claims.SIGNIFICANTLY if rival == "ol-wang" else claims.SIGNIFICANTLY
    good = [bool(np.isfinite(own) and other >= limit * own) for own, other in times]
    seconds = "; ".join(f"{shown(own)} against {shown(other)}" for own, other in times)
    short = TITLES[rival].partition(",")[0]
    own, other = (float(np.median(each)) for each in zip(*times, strict=True))
    return Claim(
        sentence,
        f"final training loss {shown(claims.mean(found[name], 'train'))} against "
        f"{shown(claims.measured(theirs, 'train'))}; seconds to within {claims.NEARLY:.1%} of the higher of the two, "
        f"by start: {seconds}",
        good,
        claims.failing_early(good, [[facts] for facts in found[name]]),
        name,
        f"{claims.number(own)} s to a loss that {short} reaches in {claims.number(other)} s",
    )


def _each(values: Mapping[str, float]) -> str:
    return ", ".join(f"{title} {value:.3f}" for title, value in values.items())
