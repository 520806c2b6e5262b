"""Figures of the experiments: galleries of pictures, and line charts side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onmf import plots
from reproduction.arrays import Array
from reproduction.contest import TITLES as CONTESTANTS

# The look of the library's own charts: the palette of Okabe and Ito, in an order in which neighbours differ in
# lightness too, and strokes and marks whose cycles differ in length.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#000000")
STROKES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 3)), (0, (3, 1)), (0, (1, 3)))
MARKS = "osD^vPX*<>"
FIRST = ("ol", "ol-exact", "ours", "batch", "ol-mean", "ol-adaptive")  # have colours of their own, the others are black

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # the points of each line


def gallery(pictures: Sequence[tuple[str, Array]], columns: int, inches: float) -> Any:
    """Return a figure of grey pictures in [0, 1] under their titles; ``inches`` are the width and height of each."""
    rows = -(-len(pictures) // columns)
    figure = plots.new_figure(inches * columns, inches * rows)
    for place, (title, picture) in enumerate(pictures, start=1):
        axes = figure.add_subplot(rows, columns, place)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    return figure


def panels(charts: Mapping[str, Lines], x: str, y: str, usual: str = "") -> Any:
    """Return a figure of line charts on logarithmic axes, by title.

    A line looks the same in all of them, and a contestant in all figures. The line named ``usual`` is black.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    rows, columns = -(-len(charts) // 2), min(2, len(charts))
    figure = plots.new_figure(4.4 * columns, 3.3 * rows + 0.4)
    names = list(dict.fromkeys(name for lines in charts.values() for name in lines))
    if set(names) <= set(CONTESTANTS.values()):
        names = [CONTESTANTS[name] for name in (*FIRST, *(each for each in CONTESTANTS if each not in FIRST))]
    for place, (title, lines) in enumerate(charts.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for name, (across, up) in lines.items():
            which = names.index(name)
            colour = COLOURS[-1 if name == usual else min(which, len(COLOURS) - 1)]
            style = {"color": colour, "linestyle": STROKES[which % len(STROKES)], "marker": MARKS[which % len(MARKS)]}
            axes.plot(across, up, label=name, **style, markevery=[-1], markersize=5, linewidth=1.6)
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        for axis in (axes.xaxis, axes.yaxis):  # few ticks: the layout measures each label, and there would be hundreds
            low, high = axis.get_view_interval()
            subs = (1, 1.5, 2, 3, 5, 7) if high < 20 * low else (1, 2, 5) if high < 1000 * low else (1,)
            axis.set_major_locator(MaxNLocator(5) if high < 3 * low else LogLocator(subs=subs))
            axis.set_major_formatter(FuncFormatter(lambda value, _: _label(value)))
            axis.set_minor_locator(NullLocator())
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3, linewidth=0.5)
    shown = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    ncols = min(len(shown), columns + 1)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=ncols, frameon=False, handlelength=3)
    return figure


def _label(value: float) -> str:
    """Write the number beside a tick: millions with an M."""
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value:g}"
