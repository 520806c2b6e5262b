"""Pictures side by side on one Axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.plots.palette import bare

WIDE = 10  # pictures in a row, where there are more: their numbers are then read off the axes


def columns_for(number: int, shape: tuple[int, ...]) -> int:
    """How many pictures of a shape stand in a row."""
    return min(number, WIDE if shape[1] <= 2 * shape[0] else WIDE // 2)


def inches_for(number: int, columns: int, shape: tuple[int, ...]) -> tuple[float, float]:
    """The size of a figure of so many pictures."""
    each = float(np.clip(9.0 / columns, 0.85, 1.6))
    rows = -(-number // columns)
    return columns * each + 0.4, rows * each * shape[0] / shape[1] + 0.4


def mosaic(ax: Any, pictures: Array, columns: int, cmap: str = "gray") -> None:
    """Draw pictures (n, height, width[, 3]) in [0, 1] row by row, with a gap between them.

    The tick of a row is the number of its first picture, that of a column what to add to it.
    """
    n, height, width = pictures.shape[:3]
    gap, rows = max(1, round(0.06 * max(height, width))), -(-n // columns)
    sheet = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, *pictures.shape[3:]), np.nan)
    for k, picture in enumerate(np.clip(pictures, 0, 1)):
        top, left = (k // columns) * (height + gap), (k % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = picture
    if pictures.ndim == 4:
        sheet = np.nan_to_num(sheet, nan=1.0)
    ax.imshow(np.ma.masked_invalid(sheet), cmap=cmap, vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(np.arange(columns) * (width + gap) + (width - 1) / 2, map(str, range(columns)))
    ax.set_yticks(np.arange(rows) * (height + gap) + (height - 1) / 2, map(str, range(0, n, columns)))
    if rows == 1:
        ax.tick_params(labelleft=False)
    ax.xaxis.tick_top()
    bare(ax)


def as_pictures(rows: Array, shape: tuple[int, ...], largest: Array | None = None) -> Array:
    """Rows as pictures, each divided by its own maximum, or by what is given for it."""
    top = rows.max(axis=1) if largest is None else largest
    return (rows / np.maximum(top, np.finfo(float).tiny)[:, None]).reshape(-1, *shape)
