"""Draw the first page of the demo: a photograph with 30 % noise, denoised by dictionaries of its own patches."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from scipy.ndimage import median_filter
from sklearn.exceptions import ConvergenceWarning

from onmf import OnlineNMF
from onmf._support.arrays import Array, Counts
from onmf.cli.progress import Show, progress_line
from onmf.cli.terminal import console
from onmf.plots import new_figure
from onmf.plots.drawing import as_pictures, mosaic

SIDE, STRIDE = 14, 2  # of a patch, and from one to the next
FADING = np.exp(-0.5 * ((np.arange(SIDE) - (SIDE - 1) / 2) / (0.25 * SIDE)) ** 2)
COMPONENTS = 20
NOISE_SHARE = 0.3
DIVERGENCES = {"Huber's loss": "huber:0.03", "squared l2": "squared_l2"}  # pixels are in [0, 1]


@dataclass(frozen=True)
class Denoised:
    """The result of one way to denoise a picture."""

    name: str
    picture: Array
    seconds: float = 0.0
    components: Array | None = None  # (K, SIDE * SIDE)


def photograph() -> Array:
    """Return scikit-learn's ``china.jpg`` in grey at half its size, values in [0, 1]."""
    try:
        from sklearn.datasets import load_sample_image

        colours = load_sample_image("china.jpg")
    except ImportError:
        raise ModuleNotFoundError("the demo needs Pillow and Matplotlib; install onmf[plots].") from None
    grey = colours.mean(axis=2) / 255.0
    height, width = (length // 2 for length in grey.shape)
    return grey[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean(axis=(1, 3))


def add_noise(picture: Array, rng: np.random.Generator) -> Array:
    """Replace a share of the picture's pixels by uniform noise."""
    replaced = rng.random(picture.shape) < NOISE_SHARE
    return np.where(replaced, rng.random(picture.shape), picture)


def patches(picture: Array) -> Array:
    """Return overlapping patches as rows, ``STRIDE`` apart and one more along the far edges: all pixels are in some."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE))
    return windows[np.ix_(*_corners(picture.shape))].reshape(-1, SIDE * SIDE)


def from_patches(rows: Array, shape: tuple[int, ...]) -> Array:
    """Return the picture in which every pixel is the weighted mean over the patches that show it.

    A patch counts most in its middle and fades towards its sides: at equal weights, the sides would show as a grid.
    """
    tops, lefts = _corners(shape)
    squares = rows.reshape(len(tops), len(lefts), SIDE, SIDE)
    weights = np.outer(FADING, FADING)
    total, weight = np.zeros(shape), np.zeros(shape)
    for down, across in np.ndindex(SIDE, SIDE):  # no two patches have the same pixel at the same place
        pixels = np.ix_(tops + down, lefts + across)
        total[pixels] += weights[down, across] * squares[:, :, down, across]
        weight[pixels] += weights[down, across]
    return total / weight


def _corners(shape: tuple[int, ...]) -> tuple[Counts, Counts]:
    """Return the first rows and the first columns of the patches."""
    last = shape[0] - SIDE, shape[1] - SIDE
    tops, lefts = (np.unique(np.append(np.arange(0, end, STRIDE), end)) for end in last)
    return tops, lefts


def psnr(picture: Array, clean: Array) -> float:
    """Return the peak signal-to-noise ratio in dB for pictures in [0, 1], clipped at the peak."""
    error = float(np.square(np.clip(picture, 0, 1) - clean).mean())
    return -10 * math.log10(error) if error else math.inf


def denoise(noisy: Array, name: str, seed: int, report: Show | None = None) -> Denoised:
    """Learn in one pass over the noisy patches, and return the picture of their fits; ``name`` is in ``DIVERGENCES``.

    A penalty on large coefficients makes components strokes and edges, which many patches share, not blobs.
    """
    X = patches(noisy)
    started = time.perf_counter()
    model = OnlineNMF(
        COMPONENTS,
        divergence=DIVERGENCES[name],
        l2_coefficients=0.01,
        init="uniform",
        random_state=seed,
        transform_tol=1e-2,
        transform_max_iter=300,
        callbacks=[report] if report else None,
    ).fit(X)
    H = model.transform(X)
    picture = from_patches(model.inverse_transform(H), noisy.shape)
    return Denoised(name, picture, time.perf_counter() - started, model.components_)


def median(noisy: Array) -> Denoised:
    """Denoise by the classical method, a 3 x 3 median filter."""
    started = time.perf_counter()
    picture = median_filter(noisy, size=3)
    return Denoised("median filter", picture, time.perf_counter() - started)


def figure(clean: Array, results: Sequence[Denoised]) -> Any:
    """Draw the photograph, the results, and the parts that were learnt with the first divergence."""
    pictures = [("the photograph", clean)]
    pictures += [(f"{result.name}: {psnr(result.picture, clean):.1f} dB", result.picture) for result in results]
    rows, columns = 2, 3
    drawn = new_figure(12.6, 5.9)
    axes = drawn.subplots(rows, columns).ravel()
    for ax, (title, picture) in zip(axes, pictures, strict=False):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
        ax.set_title(title, fontsize=12)
        ax.set_axis_off()
    components = next(result.components for result in results if result.components is not None)
    mosaic(axes[-1], as_pictures(components, (SIDE, SIDE)), columns=5)
    axes[-1].tick_params(labelleft=False, labeltop=False)
    axes[-1].set_title(f"the {len(components)} parts that it is made of", fontsize=12)
    return drawn


def draw(seed: int) -> Any:
    """Denoise the photograph, print a table of the results, and return their picture."""
    clean = photograph()
    noisy = add_noise(clean, np.random.default_rng(seed))
    n = len(patches(noisy))
    console.print(
        f"A photograph of {clean.shape[1]} x {clean.shape[0]} pixels, 30 % of them replaced by noise: "
        f"{n} patches of {SIDE} x {SIDE} pixels, streamed once through {COMPONENTS} components."
    )
    results = [Denoised("noisy", noisy)]
    with warnings.catch_warnings():
        # The demo asks little of the solver, enough for the reconstruction; `transform` warns of it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in DIVERGENCES:
            with progress_line(name) as show:
                results.append(denoise(noisy, name, seed, show))
    results.append(median(noisy))
    table = Table("", "PSNR, dB", "seconds", "patches/s")
    for result in results:
        rate = f"{n / result.seconds:,.0f}" if result.components is not None else ""
        seconds = f"{result.seconds:.1f}" if result.seconds else ""
        table.add_row(result.name, f"{psnr(result.picture, clean):.1f}", seconds, rate)
    console.print(table)
    return figure(clean, results)
