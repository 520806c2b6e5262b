"""The faces experiment (Figure 3, Table 8): noise and shadows removed by dictionaries with Huber's loss."""

from __future__ import annotations

import base64
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
from reproduction.claims import Claim, Facts, Results
from reproduction.contest import TITLES
from reproduction.datasets import matlab
from reproduction.experiment import Experiment, file_name
from reproduction.judge import Scorer, peak_signal_to_noise
from reproduction.report import Block, Folder, heading, paragraph
from reproduction.trial import Benchmark, Copies, InOrder, Result, huber

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
THEN = "psnr with coefficients as last seen"
PAPER = {"batch": "6.7 to 16.6", "ol-wang": "1.1 to 1.4"}  # their times / OL's, from the paper's Table 8


@dataclass(frozen=True, eq=False)
class Contaminated(Benchmark):
    """A subject's clean and noisy images; the benchmark's source is copies of them."""

    subject: Subject
    noisy: Array
    order: Counts  # the image that each sample is a copy of

    def shown(self, images: Array) -> str:
        """Return those of the images that are pictured, as text: one byte a pixel in base64."""
        ranked = np.argsort(self.subject.images.mean(axis=1))
        some = images[ranked[[int(rank * (len(ranked) - 1)) for rank in SHOWN]]]
        pixels = np.clip(np.nan_to_num(some), 0, WHITE).round().astype(np.uint8)
        return base64.b64encode(pixels.tobytes()).decode("ascii")


def squares(text: str) -> Array:
    """Return pictured images, (n, side, side) with pixels in [0, 1]."""
    pixels = np.frombuffer(base64.b64decode(text), dtype=np.uint8) / WHITE
    side = round(np.sqrt(len(pixels) / len(SHOWN)))
    return pixels.reshape(-1, side, side)


@dataclass(frozen=True)
class Faces(Experiment):
    """The experiment on faces, or on patches of a photograph as their stand-in; copies may have noise of their own."""

    TITLE, EACH = "Faces", "subject"
    MEASURES = (*QUALITY, THEN, "seconds", "best psnr on the way", "train")
    STARTS: ClassVar = {"small": 2, "paper": 10}

    methods: tuple[str, ...] = ("ol", "ol-exact", "ol-mean", "ol-adaptive", "ol-wang", "batch", "ours")
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

    def described(self, data: Contaminated) -> Facts:
        subject = data.subject
        return {"N": len(data.order), "F": data.source.n_features, "K": data.K} | {
            name: quality(images, subject) | {"pictures": data.shown(images)}
            for name, images in (("noisy", data.noisy), ("clean", subject.images))
        }

    def judged(self, data: Contaminated, result: Result) -> dict[str, Any]:
        """Add the quality of the fits, and pictures with the coefficients as last seen, as the paper has them."""
        clean = data.subject.images
        coefficients = np.full((len(clean), len(result.W)), np.nan)
        for image, h in zip(data.order[slice(*result.facts["places"])], result.H, strict=True):
            coefficients[image] = h
        then = coefficients @ result.W
        H, components = data.train.solved(result.W)
        facts = result.facts | quality(H @ components, data.subject) | {"pictures": data.shown(then)}
        facts["best psnr on the way"] = max(point["psnr"] for point in facts["points"])
        return facts | {THEN: peak_signal_to_noise(clean, then, WHITE)}

    def blocks(self, folder: Folder, results: Results, about: Mapping[str, Facts]) -> list[Block]:
        first = next(iter(about.values()))
        N, F = first["N"], first["F"]
        noise = "noise drawn anew for every copy" if self.fresh_noise else "the same noise in all copies of an image"
        text = (
            f"{LIGHTS} images a subject, of {F} pixels each. 30 % of the pixels of every image get noise from [-255, "
            f"255] added and are clipped to [0, 255]; {COPIES[self.size]} copies of each image in random order, "
            f"{noise}: N = {N}. K = {first['K']}, Huber's delta a tenth of the mean. {claims.steps(N, self.methods)} "
            "A pixel is in shadow where an image has less than a quarter of the brightness that the subject has there "
            "in good light, the median of its brightest quarter of images."
            f" {claims.how_batch_stopped(results)}" + ("" if self.fresh_noise else f" {claims.OF_COPIES}")
        )
        blocks = [heading("Set-up"), paragraph(text)]
        for title, found in results.items():
            columns = {name: squares(about[title][name]["pictures"]) for name in ("clean", "noisy")}
            learnt = {TITLES[m]: squares(f["pictures"]) for m, (f, *_) in found.items() if "pictures" in f}
            if not learnt:
                continue
            columns |= learnt
            pictures = [
                (name.replace(", ", ",\n") if place == 0 else "", column[place])
                for place in range(len(SHOWN))
                for name, column in columns.items()
            ]
            text = (
                f"{title}: final dictionaries, with the coefficients found when each image was last seen (first start)."
            )
            figure = charts.gallery(pictures, len(columns), 1.7)
            blocks.append(folder.picture(file_name(title, "pictures"), figure, text))
        return blocks

    def caption(self) -> str:
        return (
            f"{super().caption()} Brightness in shadow is a share of that in good light; 1 means that shadows are "
            f"gone. Below, noise is called removed if the PSNR rises by {CLEANER:g} dB, shadows if they have "
            f"{REMOVED:.0%} of the brightness in good light. Verdicts are by the best "
            "coefficients; the paper's pictures have those found when each image was last seen, whose PSNR is in the "
            "table, too."
        )

    def summary(self, results: Results, about: Mapping[str, Facts]) -> list[dict[str, Any]]:
        """Return the rows of the summary; the noisy and the clean images of each subject come first."""
        given = [
            {"subject": title, "method": name, "starts": ""} | {each: about[title][name][each] for each in QUALITY}
            for title in results
            for name in ("noisy", "clean")
        ]
        rows = [*given, *super().summary(results, about)]
        return sorted(rows, key=lambda row: list(results).index(row["subject"]))

    def claims(self, results: Results, about: Mapping[str, Facts]) -> Iterator[Claim]:
        where = "fresh noise in every copy" if self.fresh_noise else "noise before copying"
        entered = [method for method in self.methods if any(method in found for found in results.values())]

        def of(method: str) -> dict[str, Any]:
            return {title: found for title, found in results.items() if method in found}

        def means(method: str, measure: str) -> list[float]:
            return [claims.mean(found[method], measure) for found in of(method).values()]

        def early(method: str, good: list[bool]) -> list[bool]:
            return claims.failing_early(good, [found[method] for found in of(method).values()])

        for method in entered:
            before = [about[title]["noisy"]["psnr"] for title in of(method)]
            gains = [after - noisy for after, noisy in zip(means(method, "psnr"), before, strict=True)]
            measured = f"gain in PSNR over the noisy images, dB: {claims.listed(gains, '.1f')}"
            good = [gain >= CLEANER for gain in gains]
            figure = f"{claims.span(gains, '.1f')} dB{claims.among(of(method), len(about))}"
            yield Claim(
                "{} removes the salt-and-pepper noise", measured, good, early(method, good), method, figure, where
            )
        for method in entered:
            before = [about[title]["clean"]["brightness in shadow"] for title in of(method)]
            shares = means(method, "brightness in shadow")
            measured = ", ".join(f"{share:.2f} (was {was:.2f})" for share, was in zip(shares, before, strict=True))
            measured, figure = f"brightness in shadow / in good light: {measured}", claims.span(shares, ".2f")
            figure = f"brightness {figure} of good light{claims.among(of(method), len(about))}"
            if method == "ol-wang":
                left = [share < REMOVED for share in shares]
                falling = [claims.still_falling(*found[method]) for found in of(method).values()]
                yield _fails(where, measured, left, falling, figure)
            else:
                good = [share >= REMOVED for share in shares]
                yield Claim("{} removes shadows", measured, good, early(method, good), method, figure, where)
        three, shadow = ("batch", "ol", "ol-wang"), "brightness in shadow"
        compared = {title: found for title, found in results.items() if set(three) <= set(found)}
        brightness = [[claims.mean(found[name], shadow) for name in three] for found in compared.values()]
        figure = f"brightness, Batch, OL and OL-Wang: {'; '.join(claims.listed(each, '.2f') for each in brightness)}"
        figure += claims.among(compared, len(about))
        good = [batch > max(REMOVED, *others) for batch, *others in brightness]
        measured = figure if brightness else claims.NOT_RUN
        yield Claim("{} removes shadows completely, and best", measured, good, (), "batch", figure, where)
        for method in entered:
            several = {title: found[method] for title, found in of(method).items() if len(found[method]) > 1}
            ranges = [np.ptp([claims.measured(facts, "psnr") for facts in found]) for found in several.values()]
            figure = f"PSNR within {claims.span(ranges, '.2f')} dB{claims.among(several, len(about))}" if ranges else ""
            sentence, good = (
                "different initialisations of {} lead to similar results",
                [each <= ALIKE for each in ranges],
            )
            yield Claim(sentence, figure or claims.NOT_RUN, good, (), method, figure, where)
        for method in [name for name in entered if name not in ("batch", "ol-wang")]:
            yield claims.shorter_run(results, method, PAPER["batch"], where)
            sentence = "{} reaches Batch's training loss significantly faster (our test)"
            yield claims.faster_than_batch(sentence, results, method, where)
        for method in [name for name in claims.PAPERS if name in entered]:
            both = {title: found for title, found in of(method).items() if "ol-wang" in found}
            seconds = [[claims.mean(f[name], "seconds") for f in both.values()] for name in ("ol-wang", method)]
            ratios = [wang / ol for wang, ol in zip(*seconds, strict=True)]
            measured = f"its time / OL's: {claims.listed(ratios, '.2f')} (the paper: {PAPER['ol-wang']})"
            sentence = f"{claims.IN_WORDS['ol-wang']} runs slightly slower than {{}}"
            figure = f"{claims.span(ratios, '.2f')} times as long (the paper: {PAPER['ol-wang']})" if ratios else ""
            good = [1 < ratio <= claims.SIGNIFICANTLY for ratio in ratios]
            yield Claim(sentence, measured if ratios else claims.NOT_RUN, good, (), method, figure, where)
            all_three = {title: found for title, found in both.items() if "batch" in found}
            levels = [
                [claims.mean(f[name], "psnr") for f in all_three.values()] for name in (method, "batch", "ol-wang")
            ]
            rows = zip(*levels, strict=True)
            good = [abs(ol - batch) <= ALIKE and min(ol, batch) >= wang + ALIKE for ol, batch, wang in rows]
            names = zip(("OL", "Batch", "OL-Wang"), levels, strict=True)
            text = "; ".join(f"{name} {claims.listed(values, '.1f')}" for name, values in names)
            sentence = f"{{}} and Batch perform alike and greatly outperform {claims.IN_WORDS['ol-wang']}"
            falling = claims.failing_early(good, [found[method] for found in all_three.values()])
            measured = f"PSNR in dB (alike: within {ALIKE:g} dB; greatly: by {ALIKE:g} dB): {text}"
            figure = f"for {sum(good)} of {len(good)}{claims.among(all_three, len(about))}" if good else ""
            yield Claim(sentence, measured if good else claims.NOT_RUN, good, falling, method, figure, where)


def _fails(where: str, measured: str, left: list[bool], falling: list[bool], figure: str) -> Claim:
    """Return the claim that OL-Wang leaves the shadows of most subjects, unsettled where they were still fading."""
    good, for_good = (
        sum(subjects) >= 0.75 * len(left)
        for subjects in (left, [dark and not still for dark, still in zip(left, falling, strict=True)])
    )
    sentence = "{} fails to remove shadows (three subjects of four)"
    return Claim(sentence, measured, [good], [good and not for_good], "ol-wang", figure, where)
