"""The faces experiment (Figure 3, Table 8): noise and shadows removed by dictionaries with Huber's loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.experiments import comparison, images
from onmf.experiments.comparison import ADDED, OF_COPIES, ByMethod, RepeatedSettings, final, mean, steps
from onmf.experiments.contest import Task
from onmf.experiments.contestants import TITLES
from onmf.experiments.folder import Folder, Result
from onmf.experiments.images import WHITE, Subject, brightness_in_shadow, contaminated, psnr
from onmf.experiments.judge import Scorer
from onmf.experiments.report import Block, Claim, Heading, Picture, Report, Table, Text, verdict
from onmf.experiments.trial import Copies, Trial
from onmf.experiments.watch import Watch
from onmf.plots import grid
from onmf.streams import Source

METHODS = ("ol", "ol-wang", "batch", "ours")
NOISE, OTHER_NOISE, SUBJECT = 7, 8, 9  # keys of independent random numbers
SUBJECTS = {"small": 2, "paper": 4}
COPIES = {"small": 8, "paper": 1500}
COMPONENTS = {"small": 10, "paper": 40}
HUBER_SHARE = 0.1  # Huber's delta, of the data's mean: the paper gives none
SHOWN = (0.9, 0.5, 0.2)  # the pictured images, by the rank of their brightness
REMOVED = 0.5  # of the brightness in good light: with more, a shadow is called removed
ALIKE = 1.0  # dB
CLEANER = 6.0  # dB by which noise must fall to be called removed
PAPER = (6.7, 16.6)  # Batch's time / OL's, from the paper's Table 8


@dataclass(frozen=True)
class Settings(RepeatedSettings):
    """Which subjects, with which noise, and how many initial dictionaries."""

    INITIALISATIONS: ClassVar = {"small": 2, "paper": 10}

    methods: tuple[str, ...] = METHODS
    stand_in: bool = False
    fresh_noise: bool = False
    subjects: int | None = None


@dataclass(frozen=True, eq=False)
class Contaminated:
    """A subject's clean and noisy images, and the order in which their copies come."""

    subject: Subject
    noisy: Array
    order: Counts
    seed: int
    fresh: bool

    @classmethod
    def draw(cls, subject: Subject, settings: Settings, number: int) -> Contaminated:
        """The same for the same settings."""
        rng = np.random.default_rng([settings.seed, NOISE, number])
        noisy = contaminated(subject.images, rng)
        order = rng.permutation(np.tile(np.arange(len(noisy)), COPIES[settings.size]))
        return cls(subject, noisy, order, settings.seed, settings.fresh_noise)

    @property
    def source(self) -> Source:
        """The copies, N in all."""
        if self.fresh:
            return images.FreshNoise(self.subject.images, self.order, self.seed)
        return Copies(self.noisy, self.order)

    @property
    def divergence(self) -> str:
        """Huber's loss, delta in grey levels."""
        return f"huber:{HUBER_SHARE * float(self.noisy.mean()):.4g}"


Drawn = Mapping[str, Contaminated]  # by subject, as all below


def run(settings: Settings, folder: Folder, watch: Watch) -> Report:
    """Every subject, initialisation and contestant; pictures, tables and verdicts."""
    rng = np.random.default_rng([settings.seed, SUBJECT])
    count = settings.subjects or SUBJECTS[settings.size]
    subjects = images.stand_ins(count, rng) if settings.stand_in else images.faces(settings.data, count, rng)
    if settings.size == "small":
        subjects = [images.halved(subject) for subject in subjects]
    drawn = {
        subject.name.replace(" ", "-"): Contaminated.draw(subject, settings, number)
        for number, subject in enumerate(subjects)
    }
    titles = {name: data.subject.name for name, data in drawn.items()}
    results = comparison.repeated(settings, titles, partial(_one, settings, drawn, folder, watch), folder, watch)
    return _report(settings, folder, drawn, results)


def _one(settings: Settings, drawn: Drawn, folder: Folder, watch: Watch, name: str, method: str, start: int) -> Result:
    """One contestant from one initial dictionary, and the pictures that it makes of the noisy images."""
    data, K = drawn[name], COMPONENTS[settings.size]
    noisy, clean = data.noisy, data.subject.images
    other = contaminated(clean, np.random.default_rng([settings.seed, OTHER_NOISE]))
    typical = noisy.mean(axis=0)
    train, held_out = (Scorer(data.divergence, typical, seen, clean, WHITE) for seen in (noisy, other))
    task = Task(data.source, data.divergence, K, comparison.uniform_start(K, noisy.shape[1], start), start)
    result = Trial(task, train, held_out).compete(method, folder, watch)
    W, H = result.arrays["W"], result.arrays["H"]
    then = dict(zip(data.order[slice(*result.facts["places"])].tolist(), H, strict=True))  # of each image
    lost = np.full(len(W), np.nan)
    at_their_time = np.vstack([then.get(image, lost) for image in range(len(noisy))]) @ W
    H, atoms = train.solved(W)
    now = H @ atoms
    facts = result.facts | {
        "psnr": psnr(now, clean),
        "psnr of the coefficients of their time": psnr(at_their_time, clean),
        "psnr outside shadows": psnr(now, clean, ~data.subject.shadows()),
        "brightness in shadow": brightness_in_shadow(now, data.subject),
    }
    return Result(facts, {"now": now.astype(np.float32), "then": at_their_time.astype(np.float32)})


def _report(
    settings: Settings, folder: Folder, drawn: Drawn, found: Mapping[str, Mapping[str, list[Result]]]
) -> Report:
    first = next(iter(drawn.values()))
    N, F, K = len(first.order), first.noisy.shape[1], COMPONENTS[settings.size]
    noise = "noise drawn anew for every copy" if settings.fresh_noise else "the same noise in all copies of an image"
    blocks: list[Block] = [
        Heading("Set-up"),
        Text(
            f"{len(drawn)} subjects, {len(first.noisy)} images of {first.subject.side} x {first.subject.side} pixels "
            f"each. 30 % of the pixels of every image get noise from [-255, 255] added and are clipped to [0, 255]; "
            f"{COPIES[settings.size]} copies of each image in random order, {noise}: N = {N}, F = {F}. K = {K}, "
            f"Huber's delta a tenth of the mean; OL with {steps(N)}. A pixel is in shadow where an image has less than "
            "a quarter of the brightness that the subject has there in good light, the median of its brightest quarter "
            "of images." + ("" if settings.fresh_noise else f" {OF_COPIES}")
        ),
    ]
    results = comparison.facts_of(found)
    rows = [row for name, data in drawn.items() for row in summary(data, results[name])]
    folder.table("summary", rows)
    for name, data in drawn.items():
        for when, caption in (
            ("then", "the final dictionaries with the coefficients of their time, as in the paper"),
            ("now", "the final dictionaries with freshly solved coefficients"),
        ):
            pictures = {TITLES[method]: each[0].arrays[when] for method, each in found[name].items()}
            file = folder.picture(f"{name}-{when}", grid(*_pictured(data, pictures)))
            blocks.append(Picture(file, f"{data.subject.name}: {caption} (first initial dictionary)."))
    folder.table(
        "curves",
        (
            {"subject": drawn[name].subject.name} | row
            for name, by_method in results.items()
            for row in comparison.curve_rows(by_method, settings.starts)
        ),
    )
    blocks += [
        Heading("In numbers"),
        Table(
            f"Means (and standard deviations) over {len(settings.starts)} initial dictionaries. Brightness in shadow "
            "is a share of that in good light; 1 means that shadows are gone. Below, noise is called removed if the "
            f"PSNR rises by {CLEANER:g} dB, shadows if they have {REMOVED:.0%} of the brightness in good light.",
            rows,
        ),
    ]
    return Report("Faces", blocks, claims(drawn, results))


def _pictured(data: Contaminated, pictures: dict[str, Array]) -> tuple[list[str], list[list[Array]]]:
    """Titles of columns, and rows of pictures."""
    order = np.argsort(data.subject.images.mean(axis=1))
    places = [order[int(rank * (len(order) - 1))] for rank in SHOWN]
    columns = {"clean": data.subject.images, "noisy": data.noisy} | pictures
    side = data.subject.side
    rows = [[column[place].reshape(side, side) / 255.0 for column in columns.values()] for place in places]
    return list(columns), rows


MEASURES = ("psnr", "psnr outside shadows", "brightness in shadow", "psnr of the coefficients of their time", "seconds")


def summary(data: Contaminated, by_method: ByMethod) -> list[dict[str, Any]]:
    """One row per contestant, after those of the noisy and the clean images."""
    subject, outside = data.subject, ~data.subject.shadows()
    rows: list[dict[str, Any]] = [
        {
            "subject": subject.name,
            "method": what,
            "psnr": psnr(shown, subject.images),
            "psnr outside shadows": psnr(shown, subject.images, outside),
            "brightness in shadow": brightness_in_shadow(shown, subject),
        }
        for what, shown in (("noisy", data.noisy), ("clean", subject.images))
    ]
    for method, found in by_method.items():
        best = [max(point["psnr"] for point in facts["points"]) for facts in found]
        row: dict[str, Any] = {"subject": subject.name, "method": TITLES[method]} | comparison.means(found, MEASURES)
        row |= {"best psnr on the way": comparison.mean_and_deviation(best)} | comparison.speedup_cells(
            by_method, method
        )
        if "batch" in by_method and method != "batch":
            row["psnr there"] = psnr_there(by_method, method)
        rows.append(row | {"train": comparison.mean_final(found, "train")})
    return rows


def psnr_there(by_method: ByMethod, method: str) -> str:
    """The PSNR when the training loss passes Batch's final one."""
    found = []
    for batch, facts in zip(by_method["batch"], by_method[method], strict=True):
        goal = final(batch, "train")
        found += [point["psnr"] for point in facts["points"] if point["train"] <= goal][:1]
    return comparison.mean_and_deviation(found) if found else ""


def claims(drawn: Drawn, results: Mapping[str, ByMethod]) -> list[Claim]:
    """What the paper says of its Figure 3 and Table 8."""
    methods = list(next(iter(results.values())))
    found = [_noise_claim(method, drawn, results) for method in methods]
    found += [_shadow_claim(method, drawn, results) for method in methods]
    if "batch" in methods:
        paper = f" (the paper: {PAPER[0]:g} to {PAPER[1]:g})"
        for method in (each for each in ("ol", "ours") if each in methods):
            of_paper = paper if method == "ol" else ""
            found += [
                comparison.faster_than_batch(drawn[name].subject.name, facts, method, of_paper)
                for name, facts in results.items()
            ]
    if {"ol", "ol-wang"} <= set(methods):
        ratios = [mean(facts["ol-wang"], "seconds") / mean(facts["ol"], "seconds") for facts in results.values()]
        listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        measured = f"OL-Wang's time / OL's: {listed} (the paper: 1.1 to 1.4)"
        found.append(Claim("OL-Wang runs slightly slower than OL", measured, verdict([ratio > 1 for ratio in ratios])))
        if "batch" in methods:
            found.append(_overall_claim(results))
    return found


def _noise_claim(method: str, drawn: Drawn, results: Mapping[str, ByMethod]) -> Claim:
    gains = [
        mean(results[name][method], "psnr") - psnr(data.noisy, data.subject.images) for name, data in drawn.items()
    ]
    listed = ", ".join(f"{gain:.1f}" for gain in gains)
    note = ADDED if method == "ours" else ""
    text = f"{note}{TITLES[method]} removes the salt-and-pepper noise"
    return Claim(text, f"gain in PSNR over the noisy images, dB: {listed}", verdict([g >= CLEANER for g in gains]))


def _shadow_claim(method: str, drawn: Drawn, results: Mapping[str, ByMethod]) -> Claim:
    shares = [mean(results[name][method], "brightness in shadow") for name in drawn]
    before = [brightness_in_shadow(data.subject.images, data.subject) for data in drawn.values()]
    listed = ", ".join(f"{share:.2f} (was {was:.2f})" for share, was in zip(shares, before, strict=True))
    fails = method == "ol-wang"
    word = "fails to remove shadows (three subjects of four)" if fails else "removes shadows"
    note = ADDED if method == "ours" else ""
    good = [(share < REMOVED) if fails else (share >= REMOVED) for share in shares]
    enough = [sum(good) >= 0.75 * len(good)] if fails else good
    return Claim(f"{note}{TITLES[method]} {word}", f"brightness in shadow / in good light: {listed}", verdict(enough))


def _overall_claim(results: Mapping[str, ByMethod]) -> Claim:
    gains = {m: [mean(facts[m], "psnr") for facts in results.values()] for m in ("ol", "batch", "ol-wang")}
    listed = "; ".join(f"{TITLES[m]} {', '.join(f'{value:.1f}' for value in values)}" for m, values in gains.items())
    good = [abs(ol - batch) <= ALIKE and ol >= wang + ALIKE for ol, batch, wang in zip(*gains.values(), strict=True)]
    text = "OL and Batch perform alike and greatly outperform OL-Wang"
    return Claim(text, f"PSNR in dB (alike: within {ALIKE:g} dB): {listed}", verdict(good))
