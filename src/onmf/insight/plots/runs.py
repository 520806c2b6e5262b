"""``convergence``: how the loss fell, in one run or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.plots.figures import axes_of
from onmf.insight.plots.palette import look, tidy

SMOOTHED = 0.15  # the running mean reaches so far to both sides, as a share of the position
MARKED = 8  # marks on a line
DECADES = 1.0  # from which on an axis is logarithmic: of samples or seconds
FALL = 0.3  # the same, of the loss
BESIDE = 6  # more lines have their legend beside the Axes, where it hides none of them


def convergence(models: Any, ax: Any = None, x: str = "samples") -> Any:
    """Draw the loss of every batch, just before it was learnt from, and return the Axes.

    ``models`` is a fitted model, a list of them, or a dict of names and models. ``x`` is "samples" or "seconds". Losses
    are faint, their running mean is not. Axes are logarithmic where the numbers span much. Losses of different
    divergences have different units: compare runs of one.
    """
    if x not in ("samples", "seconds"):
        raise ValueError(f"x must be samples or seconds, got {x!r}.")
    runs = {name: model.history_ for name, model in _named(models).items()}
    smooth = {name: running_mean(run["loss"], np.diff(run["samples"], prepend=0)) for name, run in runs.items()}
    ax = axes_of(ax, 6.4 + 1.2 * (len(runs) > BESIDE), 4.0)
    for number, (name, run) in enumerate(runs.items()):
        style, at = look(number), run[x]
        ax.plot(at, run["loss"], color=style["color"], alpha=0.25, linewidth=0.7, zorder=1)
        ax.plot(at, smooth[name], **style, label=name, markersize=4, markevery=_marks(at), linewidth=1.5, zorder=2)
    if _spans([run[x] for run in runs.values()], DECADES):
        ax.set_xscale("log")
    if _spans(list(smooth.values()), FALL):
        ax.set_yscale("log")
    else:
        ax.ticklabel_format(axis="y", scilimits=(-3, 5))
    ax.set(xlabel=x, ylabel="loss per sample")
    tidy(ax)
    if len(runs) > 1:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(runs) > BESIDE else {}
        ax.legend(frameon=False, fontsize=8, handlelength=3.5, **beside)
    return ax


def running_mean(values: Array, weights: Array) -> Array:
    """Weighted means over windows that widen with the position, as a run settles."""
    at = np.arange(len(values))
    reach = (SMOOTHED * at).astype(np.int64)
    first, last = at - reach, np.minimum(at + reach + 1, len(values))
    weights = np.maximum(weights, np.finfo(float).tiny)
    above, below = (np.concatenate([[0.0], np.cumsum(each)]) for each in (weights * values, weights))
    return (above[last] - above[first]) / (below[last] - below[first])


def _named(models: Any) -> Mapping[str, Any]:
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    if isinstance(models, Sequence):
        return {f"run {number}": model for number, model in enumerate(models)}
    return {"": models}


def _marks(at: Array) -> list[int]:
    """The points that are marked: evenly apart in logarithms."""
    return sorted({int(place) for place in np.geomspace(1, len(at), min(MARKED, len(at))) - 1})


def _spans(values: Sequence[Array], decades: float) -> bool:
    """Are all of them positive, from the smallest to the largest more than so many powers of ten?"""
    every = np.concatenate(list(values))
    every = every[np.isfinite(every)]
    return bool(every.size and every.min() > 0 and np.log10(every.max() / every.min()) > decades)
