"""The charts of a report, as Plotly draws them: plain lists of numbers. The page sets colours and fonts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight import noise
from onmf.insight.convergence import LossCurve
from onmf.insight.features import divergence_text, frame_seconds, names_of, source_of
from onmf.insight.report.assessment import Assessment

MOST_POINTS = 1000
MOST_ROWS = 40  # components of the chart of activations
HISTOGRAM = 40  # bars
SMOOTHED, FEW_POINTS = 20, 60  # batches from which on their running mean is shown, and no single points are
COLUMNS, DOTS = 300, 600  # features whose residuals are measured, and single entries that are shown
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
    """A figure, its title, and its description in words."""

    name: str
    title: str
    text: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 300
    switch: bool = False  # can its vertical axis be made logarithmic?


def convergence(model: Any) -> Chart:
    """Draw the loss by samples, as batches come and smoothed."""
    curve = LossCurve.of(model.history_)
    loss, smooth, several = curve.loss, curve.running_mean, len(curve.loss) >= SMOOTHED
    kept = np.unique(np.linspace(0, len(loss) - 1, min(len(loss), MOST_POINTS)).astype(int))
    batches = {
        **_scatter("batches", curve.samples[kept], loss[kept], "lines+markers" if len(kept) < FEW_POINTS else "lines"),
        "customdata": _numbers(curve.seconds[kept]),
        "line": {"width": 1 if several else 2},
        "opacity": 0.5 if several else 1.0,
        "hovertemplate": "%{x:,} samples, %{customdata:.3g} s<br>loss %{y:.5g}<extra></extra>",
    }
    mean = {
        **_scatter("running mean", curve.samples[kept], smooth[kept], "lines"),
        "line": {"width": 3},
        "hovertemplate": "running mean %{y:.5g}<extra></extra>",
    }
    text = (
        f"The mean loss of a sample, just before it was learnt from, went from {loss[0]:.4g} in the first batch to "
        f"{smooth[-1]:.4g} at the end, over {int(curve.samples[-1]):,} samples."
    )
    if len(loss) == 1:
        text = (
            f"All {int(curve.samples[-1]):,} samples came in one batch. Their mean loss, just before they were learnt "
            f"from, was {loss[0]:.4g}; what it became, only more passes or data would show."
        )
    layout = {"xaxis": _titled("samples learnt from"), "yaxis": _titled("mean loss"), **(LEGEND if several else {})}
    positive = bool((loss[kept] > 0).all())
    return Chart("convergence", "Convergence", text, [batches, mean] if several else [batches], layout, switch=positive)


def activations(found: Assessment, order: Sequence[int]) -> Chart:
    """Draw the contribution of every component along the data, each in units of its own largest."""
    means, length, shown = found.stretches.means, found.stretches.length, list(order[:MOST_ROWS])
    total = means.sum(axis=1, keepdims=True)
    shares = means / np.where(total > 0, total, 1)
    size = means.max(axis=0)
    heat = means / np.where(size > 0, size, 1)
    seconds = frame_seconds(source_of(found.model), names_of(found.model))
    unit = "row" if seconds is None else "seconds"
    data = {
        "type": "heatmap",
        "x": _numbers((np.arange(len(means)) + 0.5) * length * (seconds or 1.0)),
        "y": [f"{k}" for k in shown][::-1],
        "z": [_numbers(heat[:, k]) for k in shown][::-1],
        "customdata": [_numbers(100 * shares[:, k]) for k in shown][::-1],
        "hovertemplate": f"component %{{y}}<br>{unit} %{{x:.4g}}<br>%{{customdata:.2g}} % of the fit<extra></extra>",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 1,
        "colorbar": COLOURBAR,
    }
    stretch = f" Each column is the mean of {length} rows." if length > 1 else ""
    most = f" The {MOST_ROWS} largest components are shown." if len(found.W) > MOST_ROWS else ""
    text = f"How strong each component is along the data, in units of its own largest value.{stretch}{most}"
    layout = {"xaxis": _titled(unit), "yaxis": _titled("component", type="category", tickfont={"size": 10})}
    height = 190 + (18 if len(shown) > 10 else 28) * len(shown)
    return Chart("activations", "Activations", text, [data], layout, height)


def losses(found: Assessment) -> Chart:
    """Draw how the losses of samples are distributed."""
    values = found.losses[found.losses > 0]
    wide = len(values) > 0 and values.max() > WIDE * np.median(values)
    values = np.log10(values) if wide else found.losses
    counts, edges = np.histogram(values, bins=min(HISTOGRAM, max(5, len(values) // 5)))
    ends = 10.0**edges if wide else edges
    bars = {
        "type": "bar",
        "x": _numbers((edges[1:] + edges[:-1]) / 2),
        "y": counts.tolist(),
        "width": _numbers(np.diff(edges)),
        "customdata": [[f"{low:.3g}", f"{high:.3g}"] for low, high in itertools.pairwise(ends)],
        "hovertemplate": "%{y} samples<br>loss %{customdata[0]} to %{customdata[1]}<extra></extra>",
    }
    axis = _titled("loss of a sample")
    if wide:
        powers = list(range(int(np.floor(edges[0])), int(np.ceil(edges[-1])) + 1))
        axis |= {"tickvals": powers, "ticktext": [f"{10.0**p:g}" for p in powers]}
    drawn = f"{len(found.losses):,} of {found.samples:,}" if len(found.losses) < found.samples else f"{found.samples:,}"
    text = f"The losses of {drawn} samples: half of them are below {np.median(found.losses):.4g}."
    return Chart(
        "losses", "Loss per sample", text, [bars], {"xaxis": axis, "yaxis": _titled("samples"), "bargap": 0.04}
    )


def residuals(found: Assessment) -> Chart | None:
    """Draw the sizes of residuals against fits, with the law that the divergence assumes; None if there are too few."""
    values, fits, growth = _growth(found)
    sizes = np.abs(values - fits)
    if growth is noise.NOT_MEASURED:
        return None
    drawn = np.random.default_rng(0).permutation(len(fits))[:DOTS]
    dots = drawn[sizes[drawn] > 0]
    typical = np.sqrt(growth.variances)
    data = [
        {
            **_scatter("single entries", fits[dots], sizes[dots], "markers"),
            "marker": {"size": 3, "opacity": 0.35},
            "hoverinfo": "skip",
        },
        {
            **_scatter("typical residual", growth.means, typical, "markers"),
            "marker": {"size": 9, "symbol": "diamond"},
            "hovertemplate": "fit %{x:.3g}<br>residual %{y:.3g}<extra></extra>",
        },
    ]
    name, assumed = divergence_text(found.model), noise.assumed_power(found.model.divergence_)
    if assumed is not None:
        law = _scatter(f"what ‘{name}’ assumes", growth.means, np.sqrt(growth.law(assumed)), "lines")
        data.append({**law, "line": {"width": 2, "dash": "dash"}, "hoverinfo": "skip"})
    layout = {
        "xaxis": _logarithmic("fit", fits[dots], growth.means),
        "yaxis": _logarithmic("size of the residual", sizes[dots], typical),
        **LEGEND,
    }
    text = f"How far entries lie from their fits. {' '.join(_law(name, assumed, growth))}"
    return Chart("residuals", "Residuals against fits", text, data, layout, height=360)


def law_missed(found: Assessment) -> tuple[str, str] | None:
    """Return that residuals do not grow as the divergence assumes, and what that may mean; None if they may do."""
    *_, growth = _growth(found)
    law = _law(divergence_text(found.model), noise.assumed_power(found.model.divergence_), growth)
    return (law[0], law[1]) if len(law) == 2 else None


def _growth(found: Assessment) -> tuple[Array, Array, noise.Growth]:
    """Return entries, their fits, and how the variance of their residuals grows."""
    values, fits = _entries(found)
    return values, fits, noise.growth(values, fits, np.square(values - fits), bool(found.model.divergence_.robust))


def _entries(found: Assessment) -> tuple[Array, Array]:
    """Return entries with positive fits, without missing ones, from features drawn at random that are not all zero."""
    columns = np.sort(np.random.default_rng(0).permutation(found.W.shape[1])[: 4 * COLUMNS])
    columns = columns[np.asarray(abs(found.X.of_features(columns).matrix).sum(axis=0)).ravel() > 0][:COLUMNS]
    whole = found.X.of_features(columns).densified()
    fits = np.asarray(found.H @ found.W[:, columns], dtype=np.float64)
    usable = (whole.entry_weights > 0) & (fits > 1e-6 * fits.mean() if fits.size else fits > 0)
    return np.asarray(whole.matrix, dtype=np.float64)[usable], fits[usable]


def _law(name: str, assumed: float | None, growth: noise.Growth) -> tuple[str, ...]:
    """Return the law that the divergence assumes beside the measured one and, where they differ, what that may mean."""
    if assumed is None:
        return (f"‘{name}’ assumes no particular law.",)
    says = f"‘{name}’ assumes noise whose variance grows as the fit to the power {assumed:.2g}"
    if assumed == 0:
        says = f"‘{name}’ assumes noise of the same size whatever the fit (power 0)"
    if not growth.clear:
        return (f"{says}; the fits of these data span too little to tell.",)
    if abs(growth.power - assumed) < 0.5:
        return (f"{says}; here the power is {growth.power:.2f}, which is close.",)
    return (
        f"{says}; here the power is {growth.power:.2f}.",
        "If that is noise, onmf suggest finds a divergence that suits; it may also be details that so few components "
        "leave out.",
    )


def _scatter(name: str, x: Array, y: Array, mode: str) -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "name": name, "x": _numbers(x), "y": _numbers(y)}


def _titled(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def _logarithmic(title: str, *shown: Array) -> dict[str, Any]:
    """Return an axis that cuts off residuals below a thousandth of the typical, which are that small by chance."""
    values = np.concatenate([np.maximum(shown[0], 1e-3 * shown[1].min()), shown[1]])
    low, high = np.log10([values.min(), values.max()])
    spacing = {"dtick": max(1, math.ceil((high - low) / 5))} if high - low > DECADES else {}
    ends = [float(low - 0.05 * (high - low + 0.1)), float(high + 0.05 * (high - low + 0.1))]
    return _titled(title, type="log", exponentformat="power", range=ends, **spacing)


def _numbers(values: Array) -> list[float | None]:
    """Return numbers as JSON takes them, with six digits, and None for a number that is not finite."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=np.float64)]
