"""The faces experiment (Figure 3, Table 8): noise and shadows removed by dictionaries with Huber's loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.datasets import load_sample_image

from onmf.data.examples import with_outliers
from reproduction import charts, claims
from reproduction.arrays import Array, Counts, Mask
from reproduction.claims import Claim, Results
from reproduction.contest import TITLES
from reproduction.datasets import matlab
from reproduction.experiment import Experiment, file_name
from reproduction.judge import Scorer, peak_signal_to_noise
from reproduction.report import Block, Folder, Result, heading, paragraph
from reproduction.trial import Benchmark, Copies, InOrder, huber

ROWS = 6  # key of the random numbers of each row
WHITE = 255.0
LIGHTS = 64  # images of a subject
WELL_LIT = 0.25  # the brightest share of a subject's images, taken to show it without shadows
IN_SHADOW = 0.25  # a pixel is in shadow below this share of its brightness in good light
QUALITY = ("psnr", "psnr outside shadows", "brightness in shadow")
LEAST_BRIGHTNESS = 25.0  # a pixel that is dark even in good light tells nothing


@dataclass(frozen=True, eq=False)
class Subject:
    """A name, and square images as rows of pixels from 0 to 255."""

    name: str
    images: Array

    @property
    def side(self) -> int:
        return int(np.sqrt(self.images.shape[1]) + 0.5)

    def reference(self) -> Array:
        """Return the pixelwise median of the brightest images: the subject in good light."""
        brightness = self.images.mean(axis=1)
        bright = self.images[np.argsort(-brightness)[: max(1, round(WELL_LIT * len(brightness)))]]
        return np.median(bright, axis=0)

    def shadows(self) -> Mask:
        """Mark the pixels that lie in shadow."""
        reference = self.reference()
        return (self.images < IN_SHADOW * reference) & (reference >= LEAST_BRIGHTNESS)


def yale_faces(folder: Path | None, n: int, rng: np.random.Generator) -> list[Subject]:
    """Choose n subjects of Extended Yale B that have all 64 images, at random."""
    data = matlab.load_yaleb(folder)
    numbers, counts = np.unique(data.subjects, return_counts=True)
    chosen = np.sort(rng.permutation(numbers[counts == LIGHTS])[:n])
    if not len(chosen):
        raise ValueError(f"no subject of the data set has {LIGHTS} images; is it the 32 x 32 version of all of them?")
    squares = {number: matlab.upright(data.images[data.subjects == number]) for number in chosen}
    return [Subject(f"subject {number}", images.reshape(LIGHTS, -1)) for number, images in squares.items()]


def stand_ins(n: int, rng: np.random.Generator) -> list[Subject]:
    """Cut patches from scikit-learn's sample photograph under 64 simulated lights, to try things without the data."""
    colours, side = load_sample_image("china.jpg"), 32
    height, width = (length // 2 for length in colours.shape[:2])
    grey = colours.mean(axis=2) / 255
    grey = grey[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean(axis=(1, 3))
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    angles = np.linspace(0, 2 * np.pi, LIGHTS, endpoint=False)
    slant = 0.2 + 0.8 * (np.arange(LIGHTS) % 4) / 3
    directions = np.multiply.outer(np.cos(angles), x) + np.multiply.outer(np.sin(angles), y)
    light = np.clip(0.6 + slant[:, None, None] * directions, 0.05, 1)
    corners = ([int(rng.integers(length - side)) for length in grey.shape] for _ in range(n))
    patches = (40 + 215 * grey[top : top + side, left : left + side] for top, left in corners)
    return [Subject(f"patch {k}", (light * patch).reshape(LIGHTS, -1)) for k, patch in enumerate(patches, start=1)]


def halved(subject: Subject) -> Subject:
    """Halve the side of the images by means of 2 x 2 pixels."""
    side = subject.side // 2
    blocks = subject.images.reshape(-1, side, 2, side, 2).mean(axis=(2, 4))
    return Subject(subject.name, blocks.reshape(len(blocks), -1))


def contaminated(images: Array, rng: np.random.Generator) -> Array:
    """Add uniform noise from [-255, 255] to 30 % of the pixels of every image, and clip it to [0, 255]."""
    return np.clip(with_outliers(images, WHITE, rng), 0.0, WHITE)


class FreshNoise(InOrder):
    """Copies of clean images in a given order, each with noise of its own, the same in every pass."""

    def __init__(self, images: Array, order: Counts, seed: int) -> None:
        self.n_samples, self.n_features = len(order), images.shape[1]
        self.images, self.order, self.seed = images, order, seed

    def take(self, places: Counts) -> Array:
        keys = ([self.seed, ROWS, int(place)] for place in places)
        rows = self.images[self.order[places], None]
        return np.concatenate(
            [contaminated(row, np.random.default_rng(key)) for row, key in zip(rows, keys, strict=True)]
        )


def brightness_in_shadow(pictures: Array, subject: Subject) -> float:
    """Return the mean brightness in shadow as a share of that in good light; 1 means that the shadows are gone."""
    shadows = subject.shadows()
    if not shadows.any():
        return float("nan")
    reference = np.broadcast_to(subject.reference(), pictures.shape)
    return float(np.clip(pictures, 0.0, WHITE)[shadows].sum() / reference[shadows].sum())


def quality(pictures: Array, subject: Subject) -> dict[str, float]:
    """Measure how well pictures show a subject without noise and shadows."""
    clean, lit = subject.images, ~subject.shadows()
    levels = [peak_signal_to_noise(clean[where], pictures[where], WHITE) for where in (slice(None), lit)]
    return dict(zip(QUALITY, [*levels, brightness_in_shadow(pictures, subject)], strict=True))


NOISE, OTHER_NOISE, SUBJECT = 7, 8, 9  # keys of independent random numbers
SUBJECTS = {"small": 2, "paper": 4}
COPIES = {"small": 8, "paper": 1500}
COMPONENTS = {"small": 10, "paper": 40}
SHOWN = (0.9, 0.5, 0.2)  # the pictured images, by the rank of their brightness
REMOVED = 0.5  # of the brightness in good light: with more, a shadow is called removed
ALIKE = 1.0  # dB
CLEANER = 6.0  # dB by which noise must fall to be called removed
PICTURED = {"then": "the coefficients of their time, as in the paper", "now": "freshly solved coefficients"}
THEN = "psnr of the coefficients of their time"


@dataclass(frozen=True, eq=False)
class Contaminated(Benchmark):
    """A subject's clean and noisy images; the benchmark's source is copies of them."""

    subject: Subject
    noisy: Array
    order: Counts  # the image that each sample is a copy of


@dataclass(frozen=True)
class Faces(Experiment):
    """The experiment on faces, or on patches of a photograph as their stand-in; copies may have noise of their own."""

    TITLE, EACH = "Faces", "subject"
    MEASURES = (*QUALITY, THEN, "seconds", "best psnr on the way", "train")
    STARTS: ClassVar = {"small": 2, "paper": 10}

    methods: tuple[str, ...] = ("ol", "ol-adaptive", "ol-wang", "batch", "ours")
    stand_in: bool = False
    fresh_noise: bool = False
    subjects: int | None = None

    @cached_property
    def sets(self) -> Mapping[str, Contaminated]:
        rng = np.random.default_rng([self.seed, SUBJECT])
        count = self.subjects or SUBJECTS[self.size]
        found = stand_ins(count, rng) if self.stand_in else yale_faces(self.data, count, rng)
        if self.size == "small":
            found = [halved(subject) for subject in found]
        return {subject.name: self._contaminated(subject, number) for number, subject in enumerate(found)}

    def _contaminated(self, subject: Subject, number: int) -> Contaminated:
        rng = np.random.default_rng([self.seed, NOISE, number])
        noisy = contaminated(subject.images, rng)
        order = rng.permutation(np.tile(np.arange(len(noisy)), COPIES[self.size]))
        source = FreshNoise(subject.images, order, self.seed) if self.fresh_noise else Copies(noisy, order)
        other = contaminated(subject.images, np.random.default_rng([self.seed, OTHER_NOISE]))
        loss, mean = huber(float(noisy.mean())), noisy.mean(axis=0)
        train, held_out = (Scorer(loss, mean, seen, subject.images, WHITE) for seen in (noisy, other))
        return Contaminated(source, loss, COMPONENTS[self.size], train, held_out, subject, noisy, order)

    def judged(self, data: Contaminated, result: Result) -> Result:
        """Add the contestant's pictures of the noisy images.

        *now* are those with coefficients solved for its final dictionary, *then* those with the coefficients found when
        the images were last seen.
        """
        W, clean = result.arrays["W"], data.subject.images
        coefficients = np.full((len(clean), len(W)), np.nan)
        for image, h in zip(data.order[slice(*result.facts["places"])], result.arrays["H"], strict=True):
            coefficients[image] = h
        then = coefficients @ W
        H, components = data.train.solved(W)
        now = H @ components
        facts = result.facts | quality(now, data.subject) | {THEN: peak_signal_to_noise(clean, then, WHITE)}
        facts["best psnr on the way"] = max(point["psnr"] for point in facts["points"])
        return Result(facts, {"now": now.astype(np.float32), "then": then.astype(np.float32)})

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        first = next(iter(self.sets.values()))
        side, (N, F) = first.subject.side, (len(first.order), first.source.n_features)
        noise = "noise drawn anew for every copy" if self.fresh_noise else "the same noise in all copies of an image"
        text = (
            f"{len(self.sets)} subjects, {len(first.noisy)} images of {side} x {side} pixels each. 30 % of the pixels "
            f"of every image get noise from [-255, 255] added and are clipped to [0, 255]; {COPIES[self.size]} copies "
            f"of each image in random order, {noise}: N = {N}, F = {F}. K = {first.K}, Huber's delta a "
            f"tenth of the mean. {claims.steps(N, self.methods)} A pixel is in shadow where an image has less than a "
            "quarter of the brightness that the subject has there in good light, the median of its brightest quarter "
            "of images." + ("" if self.fresh_noise else f" {claims.OF_COPIES}")
        )
        blocks = [heading("Set-up"), paragraph(text)]
        for title, data in self.sets.items():
            ranked = np.argsort(data.subject.images.mean(axis=1))
            shown = ranked[[int(rank * (len(ranked) - 1)) for rank in SHOWN]]
            for when, caption in PICTURED.items():
                columns = {"clean": data.subject.images, "noisy": data.noisy}
                for method in results[title]:
                    columns[TITLES[method]] = folder.arrays(file_name(title, method, self.seed))[when]
                titles = [*columns, *[""] * len(columns) * (len(SHOWN) - 1)]
                squares = [column[place].reshape(side, side) / WHITE for place in shown for column in columns.values()]
                figure = charts.gallery(list(zip(titles, squares, strict=True)), len(columns), 1.7)
                text = f"{title}: the final dictionaries with {caption} (first initial dictionary)."
                blocks.append(folder.picture(file_name(title, when), figure, text))
        return blocks

    def caption(self) -> str:
        return (
            f"{super().caption()} Brightness in shadow is a share of that in good light; 1 means that shadows are "
            f"gone. Below, noise is called removed if the PSNR rises by {CLEANER:g} dB, shadows if they have "
            f"{REMOVED:.0%} of the brightness in good light."
        )

    def summary(self, results: Results) -> list[dict[str, Any]]:
        """Return the rows of the summary; the noisy and the clean images of each subject come first."""
        given = [
            {"subject": title, "method": name} | quality(pictures, data.subject)
            for title, data in self.sets.items()
            for name, pictures in (("noisy", data.noisy), ("clean", data.subject.images))
        ]
        return sorted([*given, *super().summary(results)], key=lambda row: list(self.sets).index(row["subject"]))

    def claims(self, results: Results) -> Iterator[Claim]:
        methods = list(next(iter(results.values())))

        def means(method: str, measure: str) -> list[float]:
            return [claims.mean(found[method], measure) for found in results.values()]

        def claim(method: str, text: str, measured: str, good: list[bool]) -> Claim:
            return Claim(
                text, measured, good, claims.failing_early(good, [found[method] for found in results.values()])
            )

        noisy = [quality(data.noisy, data.subject)["psnr"] for data in self.sets.values()]
        for method in methods:
            gains = [after - before for after, before in zip(means(method, "psnr"), noisy, strict=True)]
            text = claims.about(method, f"{claims.IN_WORDS[method]} removes the salt-and-pepper noise")
            measured = f"gain in PSNR over the noisy images, dB: {claims.listed(gains, '.1f')}"
            yield claim(method, text, measured, [gain >= CLEANER for gain in gains])
        before = [quality(data.subject.images, data.subject)["brightness in shadow"] for data in self.sets.values()]
        for method in methods:
            shares = means(method, "brightness in shadow")
            measured = ", ".join(f"{share:.2f} (was {was:.2f})" for share, was in zip(shares, before, strict=True))
            measured = f"brightness in shadow / in good light: {measured}"
            if method == "ol-wang":
                left = [share < REMOVED for share in shares]
                yield _fails(measured, left, [claims.still_falling(*found[method]) for found in results.values()])
            else:
                text = claims.about(method, f"{claims.IN_WORDS[method]} removes shadows")
                yield claim(method, text, measured, [share >= REMOVED for share in shares])
        for method in [name for name in ("ol", "ol-adaptive", "ours") if {name, "batch"} <= set(methods)]:
            paper = " (the paper: 6.7 to 16.6)" if method == "ol" else ""  # from its Table 8
            yield from (claims.faster_than_batch(title, found, method, paper) for title, found in results.items())
        if {"ol", "ol-wang"} <= set(methods):
            ratios = [wang / ol for wang, ol in zip(means("ol-wang", "seconds"), means("ol", "seconds"), strict=True)]
            measured = f"OL-Wang's time / OL's: {claims.listed(ratios, '.2f')} (the paper: 1.1 to 1.4)"
            yield Claim("OL-Wang runs slightly slower than OL", measured, [ratio > 1 for ratio in ratios])
        if {"ol", "ol-wang", "batch"} <= set(methods):
            levels = {method: means(method, "psnr") for method in ("ol", "batch", "ol-wang")}
            measured = "; ".join(
                f"{TITLES[method]} {claims.listed(values, '.1f')}" for method, values in levels.items()
            )
            yield claim(
                "ol",
                "OL and Batch perform alike and greatly outperform OL-Wang",
                f"PSNR in dB (alike: within {ALIKE:g} dB): {measured}",
                [abs(ol - b) <= ALIKE and ol >= wang + ALIKE for ol, b, wang in zip(*levels.values(), strict=True)],
            )


def _fails(measured: str, left: list[bool], falling: list[bool]) -> Claim:
    """Return the claim that OL-Wang leaves the shadows of most subjects, unsettled where they were still fading."""
    good, for_good = (
        sum(subjects) >= 0.75 * len(left)
        for subjects in (left, [dark and not still for dark, still in zip(left, falling, strict=True)])
    )
    return Claim("OL-Wang fails to remove shadows (three subjects of four)", measured, [good], [good and not for_good])
