"""Pictures of fits before and while they are made: convergence, the choice of a rank, the choice of a divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.convergence import LossCurve
from onmf.insight.features import Model
from onmf.insight.noise import Growth
from onmf.plots.drawing import (
    BLUE,
    COLOURS,
    FAINT,
    HEAT,
    STROKES,
    VERMILION,
    axes_of,
    bare,
    look,
    new_figure,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKED = 8  # marks on a line
DECADES = 1.0  # of samples or seconds, from which on an axis is logarithmic
FALL = 0.3  # decades of the loss, from which on its axis is logarithmic
BESIDE = 6  # more lines have their legend beside the Axes, where it hides none of them
BELOW = 0.34  # the share of the height that the similarities of a rank have
GUIDES = {0: "0: squared_l2", 1: "1: kl", 2: "2: is"}


def convergence(
    models: Model | Sequence[Model] | Mapping[str, Model], ax: Axes | None = None, x: str = "samples"
) -> Axes:
    """Draw the loss of every batch, just before it was learnt from, and return the Axes.

    Losses are faint, their running mean is not; a small batch at the end of a pass is joined to the one before. Axes
    are logarithmic where the numbers span much. Losses of different divergences have different units: compare runs of
    one.

    Parameters
    ----------
    models : fitted model, list of models or dict of names and models
        The runs.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.
    x : {"samples", "seconds"}
        The horizontal axis.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> axes = onmf.plots.convergence({"three": model})
    >>> axes.figure.savefig("convergence.png")
    """
    if x not in ("samples", "seconds"):
        raise ValueError(f"x must be samples or seconds, got {x!r}.")
    runs = {name: LossCurve.of(model.history_) for name, model in _named(models).items()}
    smooth = {name: run.running_mean for name, run in runs.items()}
    ax = axes_of(ax, 6.4 + 1.2 * (len(runs) > BESIDE), 4.0)
    for number, (name, run) in enumerate(runs.items()):
        style, at = look(number), getattr(run, x)
        ax.plot(at, run.loss, color=style["color"], alpha=0.25, linewidth=0.7, zorder=1)
        marks = sorted({int(place) for place in np.geomspace(1, len(at), min(MARKED, len(at))) - 1})
        ax.plot(at, smooth[name], **style, label=name, markersize=4, markevery=marks, linewidth=1.5, zorder=2)
    if _spans([getattr(run, x) for run in runs.values()], DECADES):
        ax.set_xscale("log")
    if _spans(list(smooth.values()), FALL):
        ax.set_yscale("log")
    else:
        ax.ticklabel_format(axis="y", scilimits=(-3, 5))
    ax.set(xlabel=x, ylabel="loss per sample")
    tidy(ax)
    if len(runs) > 1:
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(runs) > BESIDE else {}
        ax.legend(frameon=False, fontsize=8, handlelength=3.5, **beside)
    return ax


def _named(models: Any) -> Mapping[str, Any]:
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    if isinstance(models, Sequence):
        return {f"run {number}": model for number, model in enumerate(models)}
    return {"": models}


def _spans(values: Sequence[Array], decades: float) -> bool:
    """Tell whether all values are positive and span more than this many powers of ten."""
    every = np.concatenate(list(values))
    every = every[np.isfinite(every)]
    return bool(every.size and every.min() > 0 and np.log10(every.max() / every.min()) > decades)


class Ranks(Protocol):
    """A ``RankSelection``, as far as its picture needs it."""

    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def losses(self) -> Array: ...
    @property
    def loss(self) -> Array: ...
    @property
    def stability(self) -> Array: ...
    @property
    def recommended(self) -> int: ...


def rank(selection: Ranks, ax: Axes | None = None) -> Axes:
    """Draw the result of ``select_rank``, and return the Axes.

    Above, the loss per held-out entry: faint for single seeds, circles for their mean. Below, how alike the components
    of different seeds are: 1 if all are the same.

    Parameters
    ----------
    selection : RankSelection
        The result of ``select_rank``.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> found = onmf.select_rank(X, range(2, 4), n_seeds=2, max_passes=1)
    >>> onmf.plots.rank(found).figure.savefig("ranks.png")
    """
    ax = axes_of(ax, 6.4, 5.0)
    ranks, losses = selection.ranks, selection.losses
    ax.plot(ranks, losses, color=BLUE, alpha=0.3, linewidth=0.8)
    ax.plot(ranks, selection.loss, color=BLUE, marker="o", markersize=4)
    lower = ax.inset_axes((0, 0, 1, BELOW), sharex=ax)
    lower.plot(ranks, selection.stability, color=VERMILION, linestyle="--", marker="s", markersize=4)
    lower.set_ylim(min(0.5, *selection.stability), 1.03)
    for axes in (ax, lower):
        axes.axvline(selection.recommended, color=FAINT, linestyle=":", linewidth=1.2)
        tidy(axes)
    lower.tick_params(labelbottom=False, bottom=False)
    _raise_above_stability(ax, float(losses.min()), float(losses.max()))
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    ax.set_xlabel("rank K")
    ax.set_ylabel("loss per held-out entry", y=0.5 + BELOW / 2 + 0.03)
    lower.set_ylabel("stability")
    ax.set_title(f"recommended rank: {selection.recommended}", fontsize=11)
    return ax


def _raise_above_stability(ax: Any, low: float, high: float) -> None:
    """Put losses from ``low`` to ``high`` above the stability, and ticks beside them alone."""
    span = (high - low) or abs(high) or 1.0
    bottom, top = low - 0.08 * span, high + 0.08 * span
    ticks = [tick for tick in ax.yaxis.get_major_locator().tick_values(low, high) if bottom <= tick <= top]
    ax.set_ylim(top - (top - bottom) / (1 - BELOW - 0.06), top)
    ax.set_yticks(ticks)
    ax.spines["left"].set_bounds(bottom, top)


def variance_against_mean(growth: Growth, title: str) -> Figure:
    """Return a figure on logarithmic axes: a dot for entries with similar fits, a line for each power 0, 1 and 2."""
    figure = new_figure(5.2, 4.0)
    axes = figure.add_subplot()
    for power, label in GUIDES.items():
        style = {"color": COLOURS[power], "linestyle": STROKES[power], "linewidth": 1.4}
        axes.plot(growth.means, growth.law(power), label=label, **style)
    axes.plot(growth.means, growth.variances, "o", color="black", markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="mean (1: that of the data)", ylabel="variance of the noise")
    axes.set_title(title, fontsize=11)
    tidy(axes)
    axes.legend(title="power", frameon=False, handlelength=3)
    return figure


def clustergram(found: Any) -> Figure:
    """Return a figure of a ``Consensus``: the distances between the runs' components, sorted by their groups.

    Dark squares on the diagonal are groups that the runs agree on. On the right, the distances to the nearest
    components, of which those beyond the line were left out; they are not in the picture on the left.
    """
    far = found.distances.ravel()
    kept = np.flatnonzero(far <= found.threshold)
    order = kept[np.lexsort((far[kept], found.labels[kept]))]
    points, labels = found.runs[order].astype(np.float64), found.labels[order]
    apart = np.sqrt(np.maximum(2 - 2 * points @ points.T, 0))
    figure = new_figure(8.6, 5.0)
    left, right = figure.subplots(1, 2, width_ratios=[3, 1.2])
    drawn = left.imshow(apart, cmap=f"{HEAT}_r", vmin=0, interpolation="nearest")
    edges = np.flatnonzero(np.diff(labels)) + 0.5
    for edge in edges:
        left.axhline(edge, color="white", linewidth=0.8)
        left.axvline(edge, color="white", linewidth=0.8)
    ends = np.r_[-0.5, edges, len(order) - 0.5]
    left.set_xticks([])
    left.set_yticks((ends[1:] + ends[:-1]) / 2, map(str, np.unique(labels)))
    left.set(ylabel="component", title=f"stability {found.stability:.2f}, {found.kept:.0%} kept")
    bare(left)
    figure.colorbar(drawn, ax=left, fraction=0.04, pad=0.02).set_label("distance", fontsize=9)
    right.hist(far, bins=30, color=BLUE)
    right.axvline(found.threshold, color=VERMILION, linestyle="--", linewidth=1.2)
    right.set(xlabel="distance to the nearest", ylabel="components of all runs")
    tidy(right)
    return figure
