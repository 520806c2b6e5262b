"""The charts of a report, as Plotly draws them: plain lists of numbers. Colours and fonts are the page's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.report.assessing import Assessment
from onmf.insight.report.residuals import residuals
from onmf.insight.report.subject import Subject

MOST_POINTS = 1000
MOST_ROWS = 40  # components of the chart of activations
HISTOGRAM = 40  # bars
SMOOTHED, FEW_POINTS = 20, 60  # batches from which on their running mean is shown, and no single points are
PART_OF_RUN = 12
LEGEND = {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}}
COLOURBAR = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "y": 1.01,
    "yanchor": "bottom",
    "len": 0.5,
    "thickness": 10,
    "tickvals": [0, 0.5, 1],
    "ticktext": ["0", "half", "its largest"],
}
DECADES = 1.3  # orders of magnitude from which on an axis has labels at powers of ten alone
WIDE = 50.0  # times: losses that span more are shown on a logarithmic axis


@dataclass(frozen=True)
class Chart:
    """A figure, what it is called, and what it shows in words."""

    name: str
    title: str
    text: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 300
    switch: bool = False  # can its vertical axis be made logarithmic?


def convergence(subject: Subject) -> Chart:
    """The loss by samples, as batches come and smoothed."""
    loss, samples, seconds = (subject.history[name] for name in ("loss", "samples", "seconds"))
    kept = np.unique(np.linspace(0, len(loss) - 1, min(len(loss), MOST_POINTS)).astype(int))
    smooth, several = running_mean(samples, loss), len(loss) >= SMOOTHED
    batches: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) < FEW_POINTS else "lines",
        "x": _numbers(samples[kept]),
        "y": _numbers(loss[kept]),
        "customdata": _numbers(seconds[kept]),
        "name": "batches",
        "line": {"width": 1 if several else 2},
        "opacity": 0.5 if several else 1.0,
        "hovertemplate": "%{x:,} samples, %{customdata:.3g} s<br>loss %{y:.5g}<extra></extra>",
    }
    mean = {
        "type": "scatter",
        "mode": "lines",
        "x": _numbers(samples[kept]),
        "y": _numbers(smooth[kept]),
        "name": "running mean",
        "line": {"width": 3},
        "hovertemplate": "running mean %{y:.5g}<extra></extra>",
    }
    positive = bool((loss[kept] > 0).all())
    text = (
        f"The mean loss of a sample, just before it was learnt from, went from {loss[0]:.4g} in the first batch to "
        f"{smooth[-1]:.4g} at the end, over {int(samples[-1]):,} samples."
    )
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "samples learnt from"}},
        "yaxis": {"title": {"text": "mean loss"}},
    }
    if several:
        layout |= LEGEND
    return Chart("convergence", "Convergence", text, [batches, mean] if several else [batches], layout, switch=positive)


def running_mean(samples: Array, loss: Array) -> Array:
    """Of the batches of the last twelfth of all samples at every batch, each by its samples."""
    size = np.maximum(np.diff(samples, prepend=0), 0).astype(np.float64)
    size[0] = size[0] or 1.0
    first = np.searchsorted(samples, samples - samples[-1] / PART_OF_RUN, side="right")
    sums, sizes = (np.concatenate([[0.0], np.cumsum(each)]) for each in (size * loss, size))
    last = np.arange(1, len(loss) + 1)
    return (sums[last] - sums[first]) / np.maximum(sizes[last] - sizes[first], 1e-300)


def activations(subject: Subject, found: Assessment, order: Sequence[int]) -> Chart:
    """What every component contributes along the data, each in units of its own largest."""
    means, shown = found.bins.means, list(order[:MOST_ROWS])
    total = means.sum(axis=1, keepdims=True)
    shares = means / np.where(total > 0, total, 1)
    size = means.max(axis=0)
    heat = means / np.where(size > 0, size, 1)
    unit, per_row = _time(subject)
    across = (np.arange(len(means)) + 0.5) * found.bins.length * per_row
    data = {
        "type": "heatmap",
        "x": _numbers(across),
        "y": [f"{k}" for k in shown][::-1],
        "z": [_numbers(heat[:, k]) for k in shown][::-1],
        "customdata": [_numbers(100 * shares[:, k]) for k in shown][::-1],
        "hovertemplate": f"component %{{y}}<br>{unit} %{{x:.4g}}<br>%{{customdata:.2g}} % of the fit<extra></extra>",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 1,
        "colorbar": COLOURBAR,
    }
    stretch = f" Each column is the mean of {found.bins.length} rows." if found.bins.length > 1 else ""
    most = f" The {MOST_ROWS} largest components are shown." if subject.K > MOST_ROWS else ""
    text = f"How strong each component is along the data, in units of its own largest value.{stretch}{most}"
    layout = {
        "xaxis": {"title": {"text": unit}},
        "yaxis": {"title": {"text": "component"}, "type": "category", "tickfont": {"size": 10}},
    }
    return Chart(
        "activations", "Activations", text, [data], layout, height=190 + (18 if len(shown) > 10 else 28) * len(shown)
    )


def losses(found: Assessment) -> Chart:
    """How the losses of samples are distributed."""
    values = found.losses[found.losses > 0]
    wide = len(values) > 0 and values.max() > WIDE * np.median(values)
    values = values if wide else found.losses
    edges = np.histogram_bin_edges(np.log10(values) if wide else values, bins=min(HISTOGRAM, max(5, len(values) // 5)))
    counts, _ = np.histogram(np.log10(values) if wide else values, bins=edges)
    low, high = (10.0**edges, 10.0 ** edges[1:]) if wide else (edges, edges[1:])
    bars = {
        "type": "bar",
        "x": _numbers((edges[1:] + edges[:-1]) / 2),
        "y": counts.tolist(),
        "width": _numbers(np.diff(edges)),
        "customdata": [[f"{a:.3g}", f"{b:.3g}"] for a, b in zip(low, high, strict=False)],
        "hovertemplate": "%{y} samples<br>loss %{customdata[0]} to %{customdata[1]}<extra></extra>",
    }
    axis: dict[str, Any] = {"title": {"text": "loss of a sample"}}
    if wide:
        powers = list(range(int(np.floor(edges[0])), int(np.ceil(edges[-1])) + 1))
        axis |= {"tickvals": powers, "ticktext": [f"{10.0**p:g}" for p in powers]}
    drawn = f"{len(found.losses):,} of {found.samples:,}" if len(found.losses) < found.samples else f"{found.samples:,}"
    text = f"The losses of {drawn} samples: half of them are below {np.median(found.losses):.4g}."
    layout = {"xaxis": axis, "yaxis": {"title": {"text": "samples"}}, "bargap": 0.04}
    return Chart("losses", "Loss per sample", text, [bars], layout)


def spread(subject: Subject, found: Assessment) -> Chart | None:
    """Residuals against fits, with the law that the divergence assumes."""
    of = residuals(subject, found)
    if of is None:
        return None
    there = of.sizes > 0
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "single entries",
            "x": _numbers(of.fits[there]),
            "y": _numbers(of.sizes[there]),
            "marker": {"size": 3, "opacity": 0.35},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "typical residual",
            "x": _numbers(of.means),
            "y": _numbers(of.spreads),
            "marker": {"size": 9, "symbol": "diamond"},
            "hovertemplate": "fit %{x:.3g}<br>residual %{y:.3g}<extra></extra>",
        },
    ]
    name = subject.divergence_text
    if of.assumed is not None:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"what ‘{name}’ assumes",
                "x": _numbers(of.means),
                "y": _numbers(of.law),
                "line": {"width": 2, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    text = f"How far entries lie from their fits. {_law(name, of.assumed, of.measured)}"
    layout = {
        "xaxis": _logarithmic("fit", of.fits[there], of.means),
        "yaxis": _logarithmic("size of the residual", of.sizes[there], of.spreads),
        **LEGEND,
    }
    return Chart("residuals", "Residuals against fits", text, data, layout, height=360)


def _law(name: str, assumed: float | None, measured: float) -> str:
    if assumed is None:
        return f"‘{name}’ assumes no particular law."
    says = f"‘{name}’ assumes noise whose variance grows as the fit to the power {assumed:.2g}"
    if assumed == 0:
        says = f"‘{name}’ assumes noise of the same size whatever the fit (power 0)"
    if not np.isfinite(measured):
        return f"{says}; the fits of these data span too little to tell."
    if abs(measured - assumed) < 0.5:
        return f"{says}; here the power is {measured:.2f}, which is close."
    return f"{says}; here the power is {measured:.2f}. onmf suggest looks for a divergence that suits."


def _logarithmic(title: str, *shown: Array) -> dict[str, Any]:
    """An axis; of residuals that are nearly zero by chance, those below a thousandth of the typical are cut off."""
    values = np.concatenate([np.maximum(shown[0], 1e-3 * shown[1].min()), shown[1]])
    low, high = np.log10([values.min(), values.max()])
    spacing = {"dtick": max(1, math.ceil((high - low) / 5))} if high - low > DECADES else {}
    ends = [float(low - 0.05 * (high - low + 0.1)), float(high + 0.05 * (high - low + 0.1))]
    return {"title": {"text": title}, "type": "log", "exponentformat": "power", "range": ends, **spacing}


def _time(subject: Subject) -> tuple[str, float]:
    """What rows are counted in: seconds of sound, or rows."""
    window, hop, names = subject.source.options.get("window"), subject.source.options.get("hop"), subject.names
    if subject.source.scheme != "audio" or not window or not hop or not names:
        return "row", 1.0
    rate = 2 * float(names[-1].removesuffix(" Hz")) * (window / 2) / (window // 2)
    return "seconds", float(hop) / rate


def _numbers(values: Array) -> list[float | None]:
    """As JSON takes them, with six digits; what is no number is a gap."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=np.float64)]
