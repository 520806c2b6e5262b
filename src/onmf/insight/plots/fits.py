"""``reconstructions``: samples and what a model makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array, Counts
from onmf.insight.plots import mosaic
from onmf.insight.plots.figures import axes_of
from onmf.insight.plots.given import Fits, axis_of, fits_of, names_of, picture_of, scheme_of
from onmf.insight.plots.palette import BLACK, BLUE, tidy
from onmf.insight.plots.ridges import DECIBELS, decibels

CANDIDATES = 2000  # rows among which the best and the worst are looked for
CHOICES = ("evenly", "best", "worst")


def reconstructions(
    model: Any, X: Any, ax: Any = None, n: int = 5, choose: str = "evenly", *, shape: tuple[int, ...] | None = None
) -> Any:
    """Draw n samples of X and their fits H W, and return the Axes.

    Pictures (where the data were pictures, or of a ``shape`` given) stand above their fits, in the same shades; other
    samples are lines, black, with their fits dashed; of sound in decibels. ``choose`` is "evenly", or "best" or
    "worst", those of the lowest or highest loss among up to 2000 rows. Above each is the number of its row.
    """
    if choose not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}, got {choose!r}.")
    found = fits_of(model, X, n if choose == "evenly" else CANDIDATES)
    if choose != "evenly":
        order = _ordered(model, np.where(found.known, found.values, found.fits), found.fits)
        found = found[order[:n] if choose == "best" else order[: -n - 1 : -1]]
    picture = picture_of(model, shape, found.values.shape[1])
    if picture is not None:
        return _pictures(found, picture, ax)
    return _lines(model, found, ax)


def _ordered(model: Any, values: Array, fits: Array) -> Counts:
    """Rows by their loss, the lowest first; what lies outside the divergence's domain is raised a little into it."""
    tiny = 1e-9 * max(float(values.mean()), np.finfo(float).tiny)
    domain = model.divergence_.domain
    x = values if domain.x.closed else np.maximum(values, tiny)
    y = fits if domain.y.closed else np.maximum(fits, tiny)
    return np.argsort(model.divergence_.value(x, y), kind="stable")


def _pictures(found: Fits, shape: tuple[int, ...], ax: Any) -> Any:
    n = len(found.values)
    ax = axes_of(ax, *mosaic.inches_for(2 * n, n, shape))
    brightest = np.nanmax(found.values, axis=1)
    both = np.concatenate([mosaic.as_pictures(each, shape, brightest) for each in (found.values, found.fits)])
    mosaic.mosaic(ax, both, n)
    ax.set_xticks(ax.get_xticks(), map(str, found.rows))
    ax.set_yticks(ax.get_yticks(), ["data", "fit"], rotation=90, va="center")
    return ax


def _lines(model: Any, found: Fits, ax: Any) -> Any:
    values = found.values
    at, label, _ = axis_of(names_of(model), values.shape[1])
    sound = scheme_of(model) == "audio"
    ax = axes_of(ax, 7.5, 0.9 + 0.75 * len(values))
    for k, both in enumerate(zip(values, found.fits, strict=True)):
        value, fit = decibels(np.stack(both), each=False) + DECIBELS if sound else both
        top = max(float(np.nanmax(value)), float(fit.max()), np.finfo(float).tiny)
        names = ("data", "fit") if k == 0 else (None, None)
        ax.plot(at, k - 0.85 * value / top, color=BLACK, linewidth=0.8, label=names[0])
        ax.plot(at, k - 0.85 * fit / top, color=BLUE, linewidth=1.3, linestyle="--", label=names[1])
    ax.set_ylim(len(values) - 0.9, -1.25)
    ax.set_yticks(range(len(values)), map(str, found.rows))
    ax.set_xlim(at[0], at[-1] if len(at) > 1 else at[0] + 1)
    ax.set(xlabel=label, ylabel=f"row ({DECIBELS:.0f} dB each)" if sound else "row")
    tidy(ax, "x")
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper right", borderaxespad=0)
    return ax
