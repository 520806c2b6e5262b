"""``residuals``: what the fit leaves, against the fit, beside the law that the divergence assumes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.plots.figures import axes_of
from onmf.insight.plots.given import fits_of
from onmf.insight.plots.palette import BLUE, FAINT, VERMILION, tidy

ROWS, ENTRIES, DOTS = 2000, 1_000_000, 3000  # looked at; looked at; drawn
BINS, PER_BIN = 24, 50  # at most so many, of at least so many entries
COUNTED = 10  # entries of a bin that are not zero
MAD = 1.4826  # times the median absolute deviation is the standard deviation of Gaussian noise
LAWS = {0.0: "constant", 1.0: r"$\propto$ fit"}


def residuals(model: Any, X: Any, ax: Any = None) -> Any:
    """Draw squared residuals (x - hW)^2 of entries against their fits, and return the Axes.

    Dots are single entries, circles means over entries with similar fits: the variance that the data have there. The
    line is the law that the divergence assumes, variance = phi fit^p: p = 0 for squared_l2, 1 for kl and the alpha
    family, 2 for is, 2 - b for beta:b. Where circles rise more steeply than the line, a divergence with a larger p
    suits the data better; ``suggest_divergence`` tells which. Robust divergences (l1, l2, huber) assume a constant
    spread and are judged by medians, which outliers do not move.
    """
    found = fits_of(model, X, min(ROWS, max(1, ENTRIES // model.n_features_in_)))
    values, fits = found.values, found.fits.astype(np.float64)
    usable = found.known & (fits > 1e-9 * fits.max())
    x, fit, square = values[usable], fits[usable], np.square(values - fits)[usable]
    if len(fit) < 2 * PER_BIN:
        raise ValueError(f"{len(fit)} entries are too few to tell how their noise grows; give at least {2 * PER_BIN}.")
    ax = axes_of(ax, 6.0, 4.4)
    robust = bool(model.divergence_.robust)
    means, variances = _bins(x, fit, square, robust)
    seen = np.random.default_rng(0).choice(len(fit), min(DOTS, len(fit)), replace=False)
    floor = 1e-4 * max(variances.min(), np.finfo(float).tiny)
    dots = {"color": FAINT, "alpha": 0.5, "markersize": 1.5, "rasterized": True}
    ax.plot(fit[seen], np.maximum(square[seen], floor), ".", **dots, zorder=1)
    name, power = model.divergence_.name, _power(model.divergence_)
    if power is not None:
        phi = np.exp(np.median(np.log(variances) - power * np.log(means)))
        law = LAWS.get(power, rf"$\propto$ fit$^{{{power:.3g}}}$")
        label = f"what {name} assumes: {law}"
        ax.plot(means, phi * means**power, color=VERMILION, linewidth=2, linestyle="--", label=label, zorder=2)
    label = rf"what is left: about fit$^{{{_slope(means, variances):.2f}}}$" + (", by medians" if robust else "")
    ax.plot(means, variances, "o-", color=BLUE, markersize=5, linewidth=0.8, label=label, zorder=3)
    ax.set(xscale="log", yscale="log", xlabel="fit hW", ylabel="squared residual")
    ax.set_xlim(means[0] / 2, np.quantile(fit, 0.9999) * 1.5)
    ax.set_ylim(max(floor, variances.min() / 300), 100 * variances.max())
    tidy(ax)
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8, handlelength=3)
    return ax


def _power(divergence: Any) -> float | None:
    """The p of variance = phi fit^p. Near x = y a divergence of degree q is (x - y)^2 y^(q - 2) / 2, hence 2 - q."""
    if divergence.robust or divergence.least_squares is not None:  # l2 among them, whose degree is 1
        return 0
    return None if divergence.degree is None else 2 - divergence.degree


def _slope(means: Array, variances: Array) -> float:
    """The slope of logarithms, by the median over pairs of bins (Theil and Sen): single bins do not decide it."""
    x, y = np.log(means), np.log(variances)
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] > x[first]
    return float(np.median(((y[second] - y[first])[apart]) / (x[second] - x[first])[apart])) if apart.any() else np.nan


def _bins(x: Array, fit: Array, square: Array, robust: bool) -> tuple[Array, Array]:
    """Mean fit and variance of entries with similar fits.

    Left out are bins without any residual and, if others remain, those of hardly anything but zeros: what is left there
    is the fit itself, and tells nothing of the noise.
    """
    parts = np.array_split(np.argsort(fit), int(np.clip(len(fit) // PER_BIN, 2, BINS)))
    means = np.array([np.exp(np.log(fit[part]).mean()) for part in parts])
    variances = np.array([MAD**2 * np.median(square[part]) if robust else square[part].mean() for part in parts])
    some = variances > 0
    counted = some & np.array([np.count_nonzero(x[part]) >= COUNTED for part in parts])
    some = counted if counted.sum() > 1 else some
    if not some.any():
        raise ValueError("there is no residual to draw: the fit is exact.")
    return means[some], variances[some]
