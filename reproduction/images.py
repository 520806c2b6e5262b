"""The images of the faces experiment: subjects under changing light, noise, and what remains of shadows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_sample_image

from onmf.data.examples import with_outliers
from reproduction.arrays import Array, Counts, Mask
from reproduction.datasets import yaleb
from reproduction.judge import peak_signal_to_noise
from reproduction.trial import InOrder

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


def faces(folder: Path | None, n: int, rng: np.random.Generator) -> list[Subject]:
    """Choose n subjects of Extended Yale B at random, of those with all 64 images."""
    data = yaleb.load(folder)
    numbers, counts = np.unique(data.subjects, return_counts=True)
    chosen = np.sort(rng.permutation(numbers[counts == LIGHTS])[:n])
    if not len(chosen):
        raise ValueError(f"no subject of the data set has {LIGHTS} images; is it the 32 x 32 version of all of them?")
    squares = {number: yaleb.upright(data.images[data.subjects == number]) for number in chosen}
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
