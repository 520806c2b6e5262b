"""The faces experiment (Figure 3, Table 8): noise and shadows removed by dictionaries with Huber's loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from onmf._support.arrays import Array
from onmf.experiments import images
from onmf.experiments.comparison import OF_COPIES, Results, about, faster_than_batch, listed, mean, steps
from onmf.experiments.contestants import TITLES
from onmf.experiments.experiment import Experiment, file_name, part_name
from onmf.experiments.folder import Folder, Result
from onmf.experiments.images import WHITE, FreshNoise, Subject, contaminated, psnr, quality
from onmf.experiments.judge import Scorer
from onmf.experiments.report import Block, Claim, Heading, Picture, Text
from onmf.experiments.trial import Copies, Trial, huber
from onmf.plots import gallery

NOISE, OTHER_NOISE, SUBJECT = 7, 8, 9  # keys of independent random numbers
SUBJECTS = {"small": 2, "paper": 4}
COPIES = {"small": 8, "paper": 1500}
COMPONENTS = {"small": 10, "paper": 40}
SHOWN = (0.9, 0.5, 0.2)  # the pictured images, by the rank of their brightness
REMOVED = 0.5  # of the brightness in good light: with more, a shadow is called removed
ALIKE = 1.0  # dB
CLEANER = 6.0  # dB by which noise must fall to be called removed
THEN = "psnr of the coefficients of their time"


@dataclass(frozen=True, eq=False)
class Contaminated:
    """A subject's clean and noisy images, and their copies to learn from."""

    subject: Subject
    noisy: Array
    source: Copies | FreshNoise


@dataclass(frozen=True)
class Faces(Experiment):
    """How many subjects, whether they are a stand-in's, and whether every copy has noise of its own."""

    TITLE: ClassVar = "Faces"
    EACH: ClassVar = "subject"
    MEASURES: ClassVar = (
        "psnr", "psnr outside shadows", "brightness in shadow", THEN, "seconds", "best psnr on the way", "train"
    )  # fmt: skip
    STARTS: ClassVar = {"small": 2, "paper": 10}

    methods: tuple[str, ...] = ("ol", "ol-wang", "batch", "ours")
    stand_in: bool = False
    fresh_noise: bool = False
    subjects: int | None = None

    @cached_property
    def sets(self) -> Mapping[str, Contaminated]:
        rng = np.random.default_rng([self.seed, SUBJECT])
        count = self.subjects or SUBJECTS[self.size]
        found = images.stand_ins(count, rng) if self.stand_in else images.faces(self.data, count, rng)
        if self.size == "small":
            found = [images.halved(subject) for subject in found]
        return {subject.name: self._contaminate(subject, number) for number, subject in enumerate(found)}

    def _contaminate(self, subject: Subject, number: int) -> Contaminated:
        rng = np.random.default_rng([self.seed, NOISE, number])
        noisy = contaminated(subject.images, rng)
        order = rng.permutation(np.tile(np.arange(len(noisy)), COPIES[self.size]))
        fresh = FreshNoise(subject.images, order, self.seed)
        return Contaminated(subject, noisy, fresh if self.fresh_noise else Copies(noisy, order))

    def compete(self, data: Contaminated, who: Any, start: int, step: Callable[[float], None], scratch: Path) -> Result:
        """Besides its facts, the pictures that the contestant makes of the noisy images: *now*, with coefficients
        solved for its final dictionary, and *then*, with those found when the images were last seen.
        """
        noisy, clean, K = data.noisy, data.subject.images, COMPONENTS[self.size]
        other = contaminated(clean, np.random.default_rng([self.seed, OTHER_NOISE]))
        divergence, typical = huber(float(noisy.mean())), noisy.mean(axis=0)
        train, held_out = (Scorer(divergence, typical, seen, clean, WHITE) for seen in (noisy, other))
        result = Trial(data.source, divergence, K, start, train, held_out).compete(who, scratch, step)
        W, H = result.arrays["W"], result.arrays["H"]
        coefficients = np.full((len(noisy), len(W)), np.nan)
        for image, h in zip(data.source.order[slice(*result.facts["places"])], H, strict=True):
            coefficients[image] = h
        then = coefficients @ W
        H, atoms = train.solved(W)
        now = H @ atoms
        best = max(point["psnr"] for point in result.facts["points"])
        facts = quality(now, data.subject) | {THEN: psnr(then, clean), "best psnr on the way": best}
        return Result(result.facts | facts, {"now": now.astype(np.float32), "then": then.astype(np.float32)})

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        first = next(iter(self.sets.values()))
        side, (N, F) = first.subject.side, (len(first.source.order), first.source.n_features)
        noise = "noise drawn anew for every copy" if self.fresh_noise else "the same noise in all copies of an image"
        text = (
            f"{len(self.sets)} subjects, {len(first.noisy)} images of {side} x {side} pixels each. 30 % of the pixels "
            f"of every image get noise from [-255, 255] added and are clipped to [0, 255]; {COPIES[self.size]} copies "
            f"of each image in random order, {noise}: N = {N}, F = {F}. K = {COMPONENTS[self.size]}, Huber's delta a "
            f"tenth of the mean; OL with {steps(N)}. A pixel is in shadow where an image has less than a quarter of "
            "the brightness that the subject has there in good light, the median of its brightest quarter of images."
            + ("" if self.fresh_noise else f" {OF_COPIES}")
        )
        blocks: list[Block] = [Heading("Set-up"), Text(text)]
        for title, data in self.sets.items():
            arrays = {m: folder.arrays(part_name(title, m, self.seed)) for m in results[title]}
            for when, caption in (
                ("then", "the final dictionaries with the coefficients of their time, as in the paper"),
                ("now", "the final dictionaries with freshly solved coefficients"),
            ):
                columns = {"clean": data.subject.images, "noisy": data.noisy}
                columns |= {TITLES[method]: found[when] for method, found in arrays.items()}
                ranked = np.argsort(data.subject.images.mean(axis=1))
                shown = [ranked[int(rank * (len(ranked) - 1))] for rank in SHOWN]
                pictures = [
                    (name if place == shown[0] else "", column[place].reshape(side, side) / WHITE)
                    for place in shown
                    for name, column in columns.items()
                ]
                file = folder.picture(f"{file_name(title)}-{when}", gallery(pictures, len(columns), (1.7, 1.7)))
                blocks.append(Picture(file, f"{title}: {caption} (first initial dictionary)."))
        return blocks

    def caption(self) -> str:
        return (
            f"{super().caption()} Brightness in shadow is a share of that in good light; 1 means that shadows are "
            f"gone. Below, noise is called removed if the PSNR rises by {CLEANER:g} dB, shadows if they have "
            f"{REMOVED:.0%} of the brightness in good light."
        )

    def summary(self, results: Results) -> list[dict[str, Any]]:
        """Those of the contestants, after the noisy and the clean images of each subject."""
        rows = super().summary(results)
        for title, data in self.sets.items():
            place = next(place for place, row in enumerate(rows) if row["subject"] == title)
            shown = {"noisy": data.noisy, "clean": data.subject.images}
            rows[place:place] = [
                {"subject": title, "method": name} | quality(pictures, data.subject) for name, pictures in shown.items()
            ]
        return rows

    def claims(self, results: Results) -> Iterator[Claim]:
        methods = list(next(iter(results.values())))

        def means(method: str, measure: str) -> list[float]:
            return [mean(found[method], measure) for found in results.values()]

        noisy = [quality(data.noisy, data.subject)["psnr"] for data in self.sets.values()]
        for method in methods:
            gains = [after - before for after, before in zip(means(method, "psnr"), noisy, strict=True)]
            yield Claim(
                about(method, f"{TITLES[method]} removes the salt-and-pepper noise"),
                f"gain in PSNR over the noisy images, dB: {listed(gains, '.1f')}",
                [gain >= CLEANER for gain in gains],
            )
        before = [quality(data.subject.images, data.subject)["brightness in shadow"] for data in self.sets.values()]
        for method in methods:
            shares = means(method, "brightness in shadow")
            told = ", ".join(f"{share:.2f} (was {was:.2f})" for share, was in zip(shares, before, strict=True))
            word, good = "removes shadows", [share >= REMOVED for share in shares]
            if method == "ol-wang":
                word = "fails to remove shadows (three subjects of four)"
                good = [sum(share < REMOVED for share in shares) >= 0.75 * len(shares)]
            text = about(method, f"{TITLES[method]} {word}")
            yield Claim(text, f"brightness in shadow / in good light: {told}", good)
        if "batch" in methods:
            for method, paper in (("ol", " (the paper: 6.7 to 16.6)"), ("ours", "")):  # from its Table 8
                if method in methods:
                    yield from (faster_than_batch(title, found, method, paper) for title, found in results.items())
        if {"ol", "ol-wang"} <= set(methods):
            ratios = [wang / ol for wang, ol in zip(means("ol-wang", "seconds"), means("ol", "seconds"), strict=True)]
            told = f"OL-Wang's time / OL's: {listed(ratios, '.2f')} (the paper: 1.1 to 1.4)"
            yield Claim("OL-Wang runs slightly slower than OL", told, [ratio > 1 for ratio in ratios])
        if {"ol", "ol-wang", "batch"} <= set(methods):
            levels = {method: means(method, "psnr") for method in ("ol", "batch", "ol-wang")}
            told = "; ".join(f"{TITLES[method]} {listed(values, '.1f')}" for method, values in levels.items())
            yield Claim(
                "OL and Batch perform alike and greatly outperform OL-Wang",
                f"PSNR in dB (alike: within {ALIKE:g} dB): {told}",
                [
                    abs(ol - batch) <= ALIKE and ol >= wang + ALIKE
                    for ol, batch, wang in zip(*levels.values(), strict=True)
                ],
            )
