"""Figures, colours, and the ways to draw rows of numbers: as pictures, as lines and as shades.

Matplotlib is imported when a figure is made, so that nothing else waits for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onmf._support.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, in an order in which neighbours differ in lightness too.
BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, BLACK = (
    *("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#000000"),
)
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, BLACK)
STROKES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 3)), (0, (3, 1)), (0, (1, 3)))
MARKS = "osD^vPX*<>"
HEAT = "Blues"  # white to dark blue, lightness falling all the way: also on paper, also in grey
FAINT = "0.45"
WIDE = 10  # pictures in a row, where there are more: their numbers are then read off the axes
FEW_LINES = 12  # lines that can be followed by eye
MOST_POINTS = 1000  # along the axis: more than a picture has room for


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches that needs no screen.

    Parameters
    ----------
    width : float
        Inches.
    height : float
        Inches.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, for several pictures side by side.

    Examples
    --------
    >>> figure = onmf.plots.new_figure(8, 3)
    >>> left, right = figure.subplots(1, 2)
    >>> _ = onmf.plots.components(model, left)
    >>> _ = onmf.plots.activations(model, X, right)
    >>> figure.savefig("both.png")
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ModuleNotFoundError("pictures need Matplotlib; install onmf[plots].") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the Axes ``ax`` or, where that is None, the Axes of a new figure of this size in inches.

    In an interactive session, and where pyplot is in use already, the figure is pyplot's: notebooks show it, and so
    does ``pyplot.show()``. Elsewhere it needs no screen and need not be closed; ``ax.figure.savefig`` writes it.
    """
    if ax is not None:
        return ax
    figure = new_figure(width, height)
    if hasattr(sys, "ps1") or "matplotlib.pyplot" in sys.modules:  # IPython and Jupyter set the prompt, too
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot()


def require_writable_format(path: str | Path) -> None:
    """Raise an error, before any work is done, if no picture can be written under this name."""
    formats = new_figure(1, 1).canvas.get_supported_filetypes()
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in formats:
        raise ValueError(
            f"{path}: cannot write a picture as {suffix or 'a file of no suffix'}; use {', '.join(sorted(formats))}."
        )


def look(number: int) -> dict[str, Any]:
    """Return the colour, stroke and mark of a line; their cycles differ in length, so that 280 lines look different."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STROKES[number % len(STROKES)],
        "marker": MARKS[number % len(MARKS)],
    }


def tidy(ax: Any, grid: str | None = "both") -> None:
    """Make ticks small, remove the frame above and on the right, and add a faint grid."""
    ax.tick_params(which="both", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        ax.grid(axis=grid, alpha=0.3, linewidth=0.5)
    ax.set_axisbelow(True)


def bare(ax: Any) -> None:
    """Leave nothing but the labels of the ticks: pictures need no frame."""
    ax.tick_params(length=0, labelsize=8, labelcolor=FAINT)
    ax.spines[:].set_visible(False)


def as_pictures(rows: Array, shape: tuple[int, ...], largest: Array | None = None) -> Array:
    """Return rows as pictures, each divided by its own maximum, or by the one given for it."""
    top = rows.max(axis=1) if largest is None else largest
    return (rows / np.maximum(top, np.finfo(float).tiny)[:, None]).reshape(-1, *shape)


def mosaic(ax: Axes | None, pictures: Array, columns: int | None = None, cmap: str = "gray") -> Axes:
    """Draw pictures (n, height, width[, 3]) in [0, 1] row by row, with a margin between them, and return the Axes.

    The tick of a row is the number of its first picture, and the tick of a column is to be added to it.
    """
    n, height, width = pictures.shape[:3]
    columns = columns or min(n, WIDE if width <= 2 * height else WIDE // 2)
    rows, margin = -(-n // columns), max(1, round(0.06 * max(height, width)))
    inches = float(np.clip(9.0 / columns, 0.85, 1.6))  # across a picture
    ax = axes_of(ax, columns * inches + 0.4, rows * inches * height / width + 0.4)
    size = rows * (height + margin) - margin, columns * (width + margin) - margin
    sheet = np.full((*size, *pictures.shape[3:]), np.nan)
    for k, picture in enumerate(np.clip(pictures, 0, 1)):
        top, left = (k // columns) * (height + margin), (k % columns) * (width + margin)
        sheet[top : top + height, left : left + width] = picture
    if pictures.ndim == 4:
        sheet = np.nan_to_num(sheet, nan=1.0)
    ax.imshow(np.ma.masked_invalid(sheet), cmap=cmap, vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(np.arange(columns) * (width + margin) + (width - 1) / 2, map(str, range(columns)))
    ax.set_yticks(np.arange(rows) * (height + margin) + (height - 1) / 2, map(str, range(0, n, columns)))
    if rows == 1:
        ax.tick_params(labelleft=False)
    ax.xaxis.tick_top()
    bare(ax)
    return ax


def bin_size(n: int) -> int:
    """Return how many of n neighbours become one point."""
    return -(-n // MOST_POINTS)


def binned(rows: Array, at: Array, peaks: bool) -> tuple[Array, Array]:
    """Pool the columns of rows (k, n) to as many as a picture can show: means of neighbours, or their maxima."""
    n = rows.shape[1]
    starts = np.arange(0, n, bin_size(n))
    counts = np.diff(starts, append=n)
    pooled = np.maximum.reduceat(rows, starts, axis=1) if peaks else np.add.reduceat(rows, starts, axis=1) / counts
    return pooled, np.add.reduceat(at, starts) / counts


def row_axes(ax: Axes | None, rows: int) -> Axes:
    """Return the Axes ``ax``, or the Axes of a new figure with room for this number of lines or rows of shades."""
    return axes_of(ax, 7.5, float(np.clip(0.9 + 0.5 * rows, 2.0, 5.5)))


def ridges(ax: Any, rows: Array, at: Array) -> None:
    """Draw a filled line for each row, the first on top, each scaled to its own range from zero, or from below it."""
    low, top = np.minimum(rows.min(axis=1), 0.0), rows.max(axis=1)
    for k, row in enumerate(rows):
        height = 0.85 * (row - low[k]) / max(top[k] - low[k], np.finfo(float).tiny)
        ax.fill_between(at, k, k - height, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(at, k - height, color=BLUE, linewidth=1.1)
    ax.set_ylim(len(rows) - 0.9, -0.95)
    ax.set_yticks(range(len(rows)), map(str, range(len(rows))))
    if len(at) > 1:
        ax.set_xlim(at[0], at[-1])
    tidy(ax, "x")


def heat(ax: Any, rows: Array, at: Array, label: str, *, even: bool = True) -> None:
    """Draw a row of shades for each row, the first on top, and a bar that explains them.

    Unless ``even``, shades follow square roots, up to a number that one entry in 500 exceeds: a few large numbers do
    not hide all others.
    """
    from matplotlib.colors import PowerNorm

    top = float(rows.max()) if even else float(np.quantile(rows, 0.998)) or float(rows.max())
    scale = {} if even else {"norm": PowerNorm(0.5, vmin=0, vmax=top or 1.0)}
    width = (at[-1] - at[0]) / max(len(at) - 1, 1) or 1.0
    edges = np.concatenate([[at[0] - width / 2], (at[1:] + at[:-1]) / 2, [at[-1] + width / 2]])
    drawn = ax.pcolormesh(edges, np.arange(len(rows) + 1) - 0.5, rows, cmap=HEAT, rasterized=True, **scale)
    ax.invert_yaxis()
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.tick_params(labelsize=8)
    bar = ax.figure.colorbar(drawn, ax=ax, pad=0.01, fraction=0.05, extend="max" if rows.max() > top else "neither")
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
