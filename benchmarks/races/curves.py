"""Pictures: held-out loss against seconds, one panel per data set and divergence, one picture per start."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.races.data import STARTS
from benchmarks.races.results import Race, Record

COLOURS = {
    "onmf": "#c1121f",
    "onmf-surrogate": "#f77f00",
    "onmf-em": "#7b2cbf",
    "onmf-paper": "#e5989b",
    "onmf-lefevre": "#2a9d8f",
    "onmf-guan": "#d4a017",
    "onmf-wang": "#00b4d8",
    "onmf-batch": "#e07a5f",
    "sklearn-partial_fit": "#457b9d",
    "sklearn-fit": "#90b8d0",
    "sklearn-dictionary": "#6a994e",
    "spams": "#333333",
    "gensim": "#b08968",
    "batch": "#999999",
}
COLUMNS = 4


def draw(races: list[Race], folder: Path) -> list[Path]:
    """bench-START.png for every start that was raced, at one thread; returns the files. A race takes two."""
    files = []
    for start in STARTS:
        chosen = [race for race in races if race.start == start and race.threads == "1" and len(race.records) > 1]
        if chosen:
            files.append(folder / f"bench-{start}.png")
            _picture(chosen, files[-1])
    return files


def _picture(races: list[Race], file: Path) -> None:
    rows = math.ceil(len(races) / COLUMNS)
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.2 * COLUMNS, 2.6 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for panel, race in zip(panels, races, strict=False):
            _panel(panel, race)
        for panel in panels[len(races) :]:
            panel.remove()
        lines = {line.get_label(): line for panel in panels[: len(races)] for line in panel.get_lines()}
        names = [name for name in COLOURS if name in lines]
        figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=len(names) // 2 + 1)
        figure.savefig(file, dpi=80)


def _panel(panel: Axes, race: Race) -> None:
    for name, colour in COLOURS.items():
        for record in race.records.get(name, {}).values():
            points = [(point["seconds"], point["loss"]) for point in _best_variant(record)]
            if points:
                ours = name.startswith("onmf")
                style = {"lw": 1.8 if name == "onmf" else 1.1, "zorder": 3 if ours else 2}
                marker = "*" if name.endswith("batch") else "o" if len(points) <= 2 else None
                panel.plot(*zip(*points, strict=True), color=colour, label=name, marker=marker, ms=4, **style)
    panel.set(xscale="log", yscale="log", title=f"{race.data}, {race.divergence}", xlabel="seconds")
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
