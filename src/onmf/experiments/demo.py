"""The demo: a photograph with 30 % of its pixels replaced by noise, denoised by dictionaries of its own patches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d

from onmf import OnlineNMF, Progress
from onmf._support.arrays import Array
from onmf.experiments.judge import peak_signal_to_noise
from onmf.methods import Paper

SIDE = 8  # of a patch
COMPONENTS = 16
NOISE_SHARE = 0.3
DIVERGENCES = ("huber", "squared_l2")


@dataclass(frozen=True)
class Denoised:
    """The result of one way to denoise."""

    name: str
    picture: Array
    seconds: float = 0.0
    atoms: Array | None = None  # (K, SIDE * SIDE)


def photograph() -> Array:
    """scikit-learn's ``china.jpg`` in grey at half its size, values in [0, 1]."""
    try:
        from sklearn.datasets import load_sample_image

        colours = load_sample_image("china.jpg")
    except ImportError:
        raise ModuleNotFoundError("the demo needs Pillow and Matplotlib; install onmf[plots].") from None
    grey = colours.mean(axis=2) / 255.0
    height, width = (length // 2 for length in grey.shape)
    return grey[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean(axis=(1, 3))


def add_noise(picture: Array, rng: np.random.Generator) -> Array:
    """The picture with a share of its pixels replaced by uniform noise."""
    replaced = rng.random(picture.shape) < NOISE_SHARE
    return np.where(replaced, rng.random(picture.shape), picture)


def patches(picture: Array) -> Array:
    """All overlapping patches as rows: ((height - 7) (width - 7), 64)."""
    return extract_patches_2d(picture, (SIDE, SIDE)).reshape(-1, SIDE * SIDE)


def from_patches(rows: Array, shape: tuple[int, ...]) -> Array:
    """The picture in which every pixel is the average over the patches that show it."""
    return reconstruct_from_patches_2d(rows.reshape(-1, SIDE, SIDE), shape)


def psnr(picture: Array, clean: Array) -> float:
    """Peak signal-to-noise ratio in dB for pictures in [0, 1]."""
    return peak_signal_to_noise(clean, picture, 1.0)


def denoise(noisy: Array, divergence: str, seed: int, report: Callable[[Progress], None] | None = None) -> Denoised:
    """One pass of the paper's method over the noisy patches, then the picture of their fits.

    The fast methods fit these samples more closely, noise included: some atoms become single pixels. For a picture, the
    paper's method is better.
    """
    X = patches(noisy)
    started = time.perf_counter()
    model = OnlineNMF(
        COMPONENTS,
        divergence=divergence,
        method=Paper(max_iter=10),
        init="uniform",
        random_state=seed,
        transform_tol=1e-2,
        transform_max_iter=300,
        callbacks=[report] if report else None,
    ).fit(X)
    H = model.transform(X)
    picture = from_patches(model.inverse_transform(H), noisy.shape)
    return Denoised(divergence, picture, time.perf_counter() - started, model.components_)


def median(noisy: Array) -> Denoised:
    """The classical answer: a 3 x 3 median filter."""
    started = time.perf_counter()
    picture = median_filter(noisy, size=3)
    return Denoised("median 3x3", picture, time.perf_counter() - started)
