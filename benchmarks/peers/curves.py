"""Pictures: held-out loss against seconds, one panel per data set and divergence, one picture per start."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.data import STARTS
from benchmarks.peers.results import Comparison, Record

COLOURS = {
    "onmf": "#c1121f",
    "onmf-float32": "#f77f00",
    "onmf-reservoir": "#7b2cbf",
    "onmf-batch": "#e07a5f",
    "onmf-multiplicative": "#e5989b",
    "sklearn-partial_fit": "#457b9d",
    "sklearn-fit": "#90b8d0",
    "sklearn-dictionary": "#6a994e",
    "spams": "#333333",
    "gensim": "#b08968",
    "sklearn-batch": "#999999",
    "nmf-rs": "#2a9d8f",
}
COLUMNS = 4


def draw(comparisons: list[Comparison], folder: Path) -> list[Path]:
    """bench-START.png for every start that was run, at one thread; returns the files. A comparison takes two."""
    files = []
    for start in STARTS:
        chosen = [case for case in comparisons if case.start == start and case.threads == "1" and len(case.records) > 1]
        if chosen:
            files.append(folder / f"bench-{start}.png")
            _picture(chosen, files[-1])
    return files


def _picture(comparisons: list[Comparison], file: Path) -> None:
    rows = math.ceil(len(comparisons) / COLUMNS)
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.2 * COLUMNS, 2.6 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for panel, case in zip(panels, comparisons, strict=False):
            _panel(panel, case)
        for panel in panels[len(comparisons) :]:
            panel.remove()
        lines = {line.get_label(): line for panel in panels[: len(comparisons)] for line in panel.get_lines()}
        names = [name for name in COLOURS if name in lines]
        figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=len(names) // 2 + 1)
        figure.savefig(file, dpi=80)


def _panel(panel: Axes, case: Comparison) -> None:
    for name, colour in COLOURS.items():
        for record in case.records.get(name, {}).values():
            points = [(point["seconds"], point["loss"]) for point in _best_variant(record)]
            if points:
                ours = name.startswith("onmf")
                style = {"lw": 1.8 if name == "onmf" else 1.1, "zorder": 3 if ours else 2}
                marker = "*" if CONTESTANTS[name].most_passes == 1 else "o" if len(points) <= 2 else None
                panel.plot(*zip(*points, strict=True), color=colour, label=name, marker=marker, ms=4, **style)
    panel.set(xscale="log", yscale="log", title=f"{case.data}, {case.divergence}", xlabel="seconds")
    # Losses often span less than a decade, where a logarithmic axis would have no label at all.
    losses = [loss for line in panel.get_lines() for loss in line.get_ydata()]
    if losses:
        ticks = np.geomspace(min(losses), max(losses), 4)
        panel.set_yticks(ticks, labels=[f"{tick:.3g}" for tick in ticks])
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_formatter(mpl.ticker.NullFormatter())


def _best_variant(record: Record) -> list[dict]:
    """The curve with the lowest last loss."""
    curves = [curve for curve in record.get("curves", {}).values() if curve and math.isfinite(curve[-1]["loss"])]
    return min(curves, key=lambda curve: curve[-1]["loss"], default=[])
