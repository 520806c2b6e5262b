"""Pictures of a model and data: activations, reconstructions and residuals of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from onmf._support.arrays import Array, Counts, Data
from onmf.data import Source
from onmf.data.columns import Features
from onmf.data.inputs import is_anndata, matrix_of
from onmf.insight import noise
from onmf.insight.features import (
    DECIBELS,
    Model,
    components_of,
    decibels,
    frame_seconds,
    labelled_axis,
    names_of,
    source_of,
)
from onmf.plots import drawing
from onmf.plots.dictionary import picture_shape
from onmf.plots.drawing import BLACK, BLUE, FAINT, VERMILION, axes_of, tidy
from onmf.samples import as_samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CANDIDATES = 2000  # rows among which the best and the worst are looked for
CHOICES = ("evenly", "best", "worst")
ROWS, ENTRIES, DOTS = 2000, 1_000_000, 3000  # rows and entries whose residuals are measured; dots that are drawn
LAWS = {0.0: "constant", 1.0: r"$\propto$ fit"}


def activations(model: Model | ArrayLike, X: Data | None = None, ax: Axes | None = None) -> Axes:
    """Draw the coefficients of the rows of X in their order, and return the Axes: ``activations(model, X)``.

    ``activations(H)`` draws coefficients that were found before. Up to 12 components are lines, each scaled to its own
    maximum; more are shades of colour, on one scale: h_k times the sum of component k, its contribution to a row;
    for sound in decibels. Frames of sound have seconds, other rows numbers. More than 1000 rows are averaged in bins.

    Parameters
    ----------
    model : fitted model, or array (n, K)
        The model, or coefficients if there is no X.
    X : Data or None
        The samples.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> onmf.plots.activations(model, X).figure.savefig("activations.png")
    """
    added: Any = 1.0  # to a row, by a coefficient of 1
    if X is None:
        H = np.asarray(model)
        if H.ndim != 2 or H.dtype.kind not in "buif":
            raise ValueError("activations takes coefficients H (n, K), or a model and data: activations(model, X).")
    else:
        fitted: Any = model
        H, added = fitted.transform(X), components_of(model).sum(axis=1)
        H = np.asarray(H if hasattr(H, "shape") else np.concatenate(list(H)))  # of a source, batch by batch
    source, names = source_of(model), names_of(model)
    step, sound = frame_seconds(source, names), source.scheme == "audio"
    rows, at = drawing.binned((H * added).T, np.arange(len(H)) * (step or 1.0), peaks=False)
    ax = drawing.row_axes(ax, len(rows))
    if len(rows) <= drawing.FEW_LINES:
        drawing.ridges(ax, np.sqrt(rows) if sound else rows, at)
    elif sound:
        drawing.heat(ax, decibels(rows, rows.max()), at, "dB below the largest")
    else:
        drawing.heat(ax, rows, at, "activation" if X is None else "contribution", even=False)
    size = drawing.bin_size(len(H))
    ax.set(xlabel="seconds" if step else "row" + (f" (means of {size})" if size > 1 else ""), ylabel="component")
    return ax


def maps(
    H: ArrayLike,
    shape: tuple[int, int] | None = None,
    ax: Axes | None = None,
    *,
    order: Literal["C", "F"] = "C",
    cmap: str = "gray",
) -> Axes:
    """Draw a picture of rows x columns for each component from the coefficients of all pixels, and return the Axes.

    Each map is scaled to its own maximum.

    Parameters
    ----------
    H : array (pixels, K) or (rows, columns, K)
        The coefficients of all pixels.
    shape : (rows, columns) or None
        The shape of the image, where H does not have it.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.
    order : {"C", "F"}
        "C": the pixels come row by row; "F": column by column, as MATLAB has them.
    cmap : str
        Matplotlib's colour map.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> onmf.plots.maps(model.transform(X), (6, 10)).figure.savefig("maps.png")
    """
    H = np.asarray(H)
    if shape is not None and H.ndim == 2 and np.prod(shape) == len(H):
        H = H.reshape(*shape, -1, order=order)
    if H.ndim != 3:
        raise ValueError(
            f"maps takes coefficients (pixels, K) and shape=(rows, columns); got {H.shape}, shape={shape}."
        )
    ax = drawing.mosaic(ax, drawing.as_pictures(H.reshape(-1, H.shape[2]).T, H.shape[:2]), cmap=cmap)
    ax.set_xlabel("shades: from 0 to the maximum of each map", fontsize=8, color=FAINT)
    return ax


def reconstructions(
    model: Model,
    X: Data,
    ax: Axes | None = None,
    n: int = 5,
    choose: str = "evenly",
    *,
    shape: tuple[int, ...] | None = None,
) -> Axes:
    """Draw n samples of X and their fits H W, and return the Axes.

    Pictures (where the data were pictures, or of a ``shape`` given) stand above their fits, in the same shades; other
    samples are lines, black, with their fits dashed; for sound in decibels. Above each sample is the number of its row.

    Parameters
    ----------
    model : fitted model
        The model.
    X : Data
        The samples.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.
    n : int, default 5
        How many samples to draw.
    choose : {"evenly", "best", "worst"}
        Which samples to draw: "best" and "worst" have the lowest and highest losses among up to 2000 rows.
    shape : (height, width), (height, width, 3) or None
        The shape of a picture, where the model does not know it.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> onmf.plots.reconstructions(model, X, n=2).figure.savefig("fits.png")
    """
    if choose not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}, got {choose!r}.")
    found = fits_of(model, X, n if choose == "evenly" else CANDIDATES)
    if choose != "evenly":
        order = _by_loss(model, np.where(np.isnan(found.values), found.fits, found.values), found.fits)
        chosen = order[:n] if choose == "best" else order[: -n - 1 : -1]
        found = Fits(np.asarray(found.rows)[chosen], found.values[chosen], found.fits[chosen])
    picture = picture_shape(model, shape, found.values.shape[1])
    return _lines(model, found, ax) if picture is None else _pictures(found, picture, ax)


def _by_loss(model: Any, values: Array, fits: Array) -> Counts:
    """Order rows by their loss, the lowest first; entries outside the divergence's domain are raised into it."""
    tiny = 1e-9 * max(float(values.mean()), np.finfo(float).tiny)
    domain = model.divergence_.domain
    x = values if domain.x.includes_zero else np.maximum(values, tiny)
    y = fits if domain.y.includes_zero else np.maximum(fits, tiny)
    return np.argsort(model.divergence_.value(x, y), kind="stable")


def _pictures(found: Fits, shape: tuple[int, ...], ax: Axes | None) -> Axes:
    brightest = np.nanmax(found.values, axis=1)
    both = np.concatenate([drawing.as_pictures(each, shape, brightest) for each in (found.values, found.fits)])
    ax = drawing.mosaic(ax, both, len(found.values))
    ax.set_xticks(ax.get_xticks(), map(str, found.rows))
    ax.set_yticks(ax.get_yticks(), ["data", "fit"], rotation=90, va="center")
    return ax


def _lines(model: Any, found: Fits, ax: Axes | None) -> Axes:
    values = found.values
    at, label = labelled_axis(names_of(model), values.shape[1])
    sound = source_of(model).scheme == "audio"
    ax = axes_of(ax, 7.5, 0.9 + 0.75 * len(values))
    for k, both in enumerate(zip(values, found.fits, strict=True)):
        value, fit = decibels(np.stack(both), np.max(both)) + DECIBELS if sound else both
        top = max(float(np.nanmax(value, initial=0)), float(fit.max()), np.finfo(float).tiny)
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


def residuals(model: Model, X: Data, ax: Axes | None = None) -> Axes:
    """Draw squared residuals (x - hW)^2 of entries against their fits, and return the Axes.

    Dots are single entries, circles means over entries with similar fits: the variance that the data have there. The
    line is the law that the divergence assumes, variance = phi fit^p: p = 0 for squared_l2, 1 for kl and the alpha
    family, 2 for is, 2 - b for beta:b. Where circles rise more steeply than the line, a divergence with a larger p
    suits the data better; ``suggest_divergence`` tells which. Robust divergences (l1, l2, huber) assume a constant
    spread and are judged without the tails, so that outliers do not move the circles.

    Parameters
    ----------
    model : fitted model
        The model.
    X : Data
        The samples.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> onmf.plots.residuals(model, X).figure.savefig("residuals.png")
    """
    found = fits_of(model, X, min(ROWS, max(1, ENTRIES // model.n_features_in_)))
    values, fits = found.values, found.fits.astype(np.float64)
    usable = np.isfinite(values) & (fits > 1e-9 * fits.max())
    fit, square = fits[usable], np.square(values - fits)[usable]
    if len(fit) < (least := noise.LEAST_ENTRIES):
        raise ValueError(f"{len(fit)} entries are too few to tell how their noise grows; give at least {least}.")
    divergence, robust = model.divergence_, bool(model.divergence_.robust)
    growth = noise.growth(values[usable], fit, square, robust)
    if growth is noise.NOT_MEASURED:
        raise ValueError("there is no residual to draw: the fit is exact.")
    ax = axes_of(ax, 6.0, 4.4)
    means, variances = growth.means, growth.variances
    seen = np.random.default_rng(0).choice(len(fit), min(DOTS, len(fit)), replace=False)
    floor = 1e-4 * variances.min()
    dots: dict[str, Any] = {"color": FAINT, "alpha": 0.5, "markersize": 1.5, "rasterized": True}
    ax.plot(fit[seen], np.maximum(square[seen], floor), ".", **dots, zorder=1)
    power = noise.assumed_power(divergence)
    if power is not None:
        law = LAWS.get(power, rf"$\propto$ fit$^{{{power:.3g}}}$")
        style: dict[str, Any] = {"color": VERMILION, "linewidth": 2, "linestyle": "--", "zorder": 2}
        ax.plot(means, growth.law(power), label=f"what {divergence.name} assumes: {law}", **style)
    label = rf"what is left: about fit$^{{{growth.power:.2f}}}$" + (", without the tails" if robust else "")
    ax.plot(means, variances, "o-", color=BLUE, markersize=5, linewidth=0.8, label=label, zorder=3)
    ax.set(xscale="log", yscale="log", xlabel="fit hW", ylabel="squared residual")
    ax.set_xlim(means[0] / 2, np.quantile(fit, 0.9999) * 1.5)
    ax.set_ylim(max(floor, variances.min() / 300), 100 * variances.max())
    tidy(ax)
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8, handlelength=3)
    return ax


@dataclass(frozen=True, eq=False)
class Fits:
    """Rows of the user's data: their numbers, their values, NaN where an entry is missing, and the model's fits."""

    rows: Any
    values: Array
    fits: Array


def fits_of(model: Any, X: Data, most: int) -> Fits:
    """Fit at most this many rows of X, evenly spaced; from a source, the first ones."""
    if not isinstance(X, Source):
        part, rows = _rows_of(X, most)
        return Fits(rows, _dense_of(model, part), model.inverse_transform(model.transform(part)))
    names = names_of(model)
    if names is not None and X.feature_names is not None and list(X.feature_names) != names:
        raise ValueError("the source has other features than the model; open it with like=model.source_.")
    rows, part = next(iter(X.batches(most)))
    return Fits(rows, _dense_of(model, part), model.inverse_transform(model.transform(part)))


def _rows_of(X: Any, most: int) -> tuple[Any, Any]:
    from sklearn.utils import _safe_indexing

    X = X if is_anndata(X) else matrix_of(X)[0]
    n = X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(np.int64))
    if is_anndata(X):
        return X[rows], rows
    return _safe_indexing(X, rows) if len(rows) < n else X, rows


def _dense_of(model: Any, X: Any) -> Array:
    """Return X as a dense array, with NaN for the entries that the model takes for missing."""
    X = matrix_of(X, Features.of(model.n_features_in_, names_of(model)))[0]
    X = X.astype(np.float64) if scipy.sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    samples = as_samples(X, model.missing, model.implicit).densified()
    return np.where(samples.entry_weights > 0, samples.matrix, np.nan) if samples.masked else np.asarray(samples.matrix)
