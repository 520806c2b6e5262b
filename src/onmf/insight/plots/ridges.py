"""Many rows of numbers over one axis: a line for each of a few, shades of colour for many."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.plots.palette import BLUE, HEAT, tidy

FEW = 12  # lines that can be followed by eye
MOST_POINTS = 1000  # along the axis: more than a picture has room for
DECIBELS = 60.0  # what is drawn of powers, below the largest


def inches_for(rows: int) -> tuple[float, float]:
    """The size of a figure for so many rows."""
    return 7.5, float(np.clip(0.9 + 0.5 * rows, 2.0, 5.5))


def bin_size(n: int) -> int:
    """How many of n neighbours become one point."""
    return -(-n // MOST_POINTS)


def binned(rows: Array, at: Array, peaks: bool) -> tuple[Array, Array]:
    """Rows (k, n) with as many columns as a picture can show: means of neighbours, or the largest of them."""
    n = rows.shape[1]
    starts = np.arange(0, n, bin_size(n))
    counts = np.diff(starts, append=n)
    pooled = np.maximum.reduceat(rows, starts, axis=1) if peaks else np.add.reduceat(rows, starts, axis=1) / counts
    return pooled, np.add.reduceat(at, starts) / counts


def decibels(rows: Array, each: bool) -> Array:
    """Powers in decibels below the largest of all, or of each row, cut off at -60 dB."""
    top = rows.max(axis=1, keepdims=True) if each else rows.max()
    share = rows / np.maximum(top, np.finfo(float).tiny)
    return 10 * np.log10(np.maximum(share, 10 ** (-DECIBELS / 10)))


def ridges(ax: Any, rows: Array, at: Array) -> None:
    """A filled line for each row, the first on top, each scaled to its own range, which begins at zero or below."""
    low, top = np.minimum(rows.min(axis=1), 0.0), rows.max(axis=1)
    for k, row in enumerate(rows):
        height = 0.85 * (row - low[k]) / max(top[k] - low[k], np.finfo(float).tiny)
        ax.fill_between(at, k, k - height, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(at, k - height, color=BLUE, linewidth=1.1)
    ax.set_ylim(len(rows) - 0.9, -0.95)
    ax.set_yticks(range(len(rows)), map(str, range(len(rows))))
    _across(ax, at)
    tidy(ax, "x")


def heat(ax: Any, rows: Array, at: Array, label: str, *, even: bool = True) -> None:
    """A row of shades for each row, the first on top, and a bar that tells what they mean.

    Unless ``even``, shades follow square roots, up to what one entry in 500 exceeds: few large numbers do not hide all
    others.
    """
    from matplotlib.colors import PowerNorm

    top = float(rows.max()) if even else float(np.quantile(rows, 0.998)) or float(rows.max())
    scale = {} if even else {"norm": PowerNorm(0.5, vmin=0, vmax=top or 1.0)}
    sides = (at[1:] + at[:-1]) / 2 if len(at) > 1 else np.empty(0)
    width = (at[-1] - at[0]) / max(len(at) - 1, 1) or 1.0
    edges = np.concatenate([[at[0] - width / 2], sides, [at[-1] + width / 2]])
    drawn = ax.pcolormesh(edges, np.arange(len(rows) + 1) - 0.5, rows, cmap=HEAT, rasterized=True, **scale)
    ax.invert_yaxis()
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.tick_params(labelsize=8)
    bar = ax.figure.colorbar(drawn, ax=ax, pad=0.01, fraction=0.05, extend="max" if rows.max() > top else "neither")
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _across(ax: Any, at: Array) -> None:
    if len(at) > 1:
        ax.set_xlim(at[0], at[-1])
