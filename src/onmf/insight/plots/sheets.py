"""Whole figures of pictures or of line charts, as the reproduction of the paper prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.plots.drawing import look, new_figure


def tiles(components: Array, side: int, columns: int = 4) -> Array:
    """Return components as one grey picture: squares of ``side`` pixels, a thin line apart, each with maximum 1."""
    rows = -(-len(components) // columns)
    sheet = np.full((rows * (side + 1) - 1, columns * (side + 1) - 1), 0.5)
    for k, row in enumerate(components):
        top, left = (k // columns) * (side + 1), (k % columns) * (side + 1)
        sheet[top : top + side, left : left + side] = row.reshape(side, side) / max(float(row.max()), 1e-12)
    return sheet


def gallery(pictures: Sequence[tuple[str, Array]], columns: int = 3, inches: tuple[float, float] = (4.2, 3.2)) -> Any:
    """Return a figure of grey pictures in [0, 1] under their titles; ``inches`` are the width and height of each."""
    rows = -(-len(pictures) // columns)
    figure = new_figure(inches[0] * columns, inches[1] * rows)
    for place, (title, picture) in enumerate(pictures, start=1):
        axes = figure.add_subplot(rows, columns, place)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    return figure


Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # the points of each line


def panels(charts: Mapping[str, Lines], x: str, y: str) -> Any:
    """Return a figure of line charts on logarithmic axes, by title; a line looks the same in all of them."""
    rows, columns = -(-len(charts) // 3), min(3, len(charts))
    figure = new_figure(4.4 * columns, 3.3 * rows + 0.4)
    names = list(dict.fromkeys(name for lines in charts.values() for name in lines))
    for place, (title, lines) in enumerate(charts.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for name, (across, up) in lines.items():
            style = look(names.index(name)) | ({} if len(across) == 1 else {"marker": None})
            axes.plot(across, up, label=name, **style, linewidth=1.4)
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axes.tick_params(which="both", labelsize=8)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3, which="both", linewidth=0.5)
    shown = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    ncols = min(len(shown), 2 * columns + 1)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=ncols, frameon=False, handlelength=3)
    return figure
