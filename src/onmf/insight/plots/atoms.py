"""``components``: the atoms of a dictionary in the terms of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onmf._support.arrays import Array
from onmf.insight.plots import leading, mosaic, ridges
from onmf.insight.plots.figures import axes_of
from onmf.insight.plots.given import WORDS, atoms_of, axis_of, names_of, picture_of, scheme_of

KINDS = ("auto", "images", "spectra", "bars")


def components(
    model: Any,
    ax: Any = None,
    kind: str = "auto",
    *,
    shape: tuple[int, ...] | None = None,
    names: Sequence[str] | None = None,
    n_words: int = 8,
    cmap: str = "gray",
) -> Any:
    """Draw the components of a model, or of a matrix W (K, F), and return the Axes.

    Parameters
    ----------
    model : fitted model, or array (K, F)
        Whose components to draw.
    ax : matplotlib.axes.Axes or None
        Where; None: a new figure, which notebooks show.
    kind : {"auto", "images", "spectra", "bars"}
        "images": every atom is a picture, scaled to its own maximum. Rows and columns are numbered: add both.
        "spectra": a line for each atom over the features, which have an order; shades of colour from 13 atoms on. Of
        sound, powers in decibels. "bars": the leading features of every atom, by name. "auto": pictures where the data
        were pictures or ``shape`` is given, bars where features have names, and spectra where these are numbers with or
        without a unit, such as 31.25 Hz or 550 nm, or where there are none.
    shape : (height, width) or (height, width, 3)
        That of a picture, for data that do not tell.
    names : list of str
        Those of the features, for data that do not tell.
    n_words : int
        Features per atom in bars.
    cmap : str
        Matplotlib's colour map for grey pictures.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    W = atoms_of(model)
    picture = picture_of(model, shape, W.shape[1])
    names = names if names is not None else names_of(model)
    if kind == "auto":
        kind = _kind(model, W.shape[1], picture, names)
    if kind == "bars":
        return bars(W, leading.ranked(W, names, n_words), ax, n_words)
    if kind == "spectra":
        return _spectra(model, W, names, ax)
    if picture is None:
        raise ValueError("pictures need the shape of one: components(model, shape=(height, width)).")
    columns = mosaic.columns_for(len(W), picture)
    ax = axes_of(ax, *mosaic.inches_for(len(W), columns, picture))
    mosaic.mosaic(ax, mosaic.as_pictures(W, picture), columns, cmap)
    return ax


def bars(W: Array, found: leading.Leading, ax: Any, n_words: int, title: str = "component") -> Any:
    """The leading features of every atom, as they were found."""
    ax = axes_of(ax, *leading.inches_for(len(W), n_words))
    numbers = [str(k) for k in range(len(W))]
    titles = [f"{title} {k}" for k in numbers] if len(W) <= leading.FEW else numbers
    leading.leading_features(ax, found, n_words, titles)
    return ax


def _kind(model: Any, features: int, picture: tuple[int, ...] | None, names: Sequence[str] | None) -> str:
    if picture is not None:
        return "images"
    if scheme_of(model) in WORDS or (names is not None and not axis_of(names, features)[2]):
        return "bars"
    return "spectra"


def _spectra(model: Any, W: Array, names: Sequence[str] | None, ax: Any) -> Any:
    at, label, _ = axis_of(names, W.shape[1])
    sound = scheme_of(model) == "audio" or label.startswith("frequency")
    W, at = ridges.binned(W, at, peaks=True)
    shown = ridges.decibels(W, each=True) if sound else W
    ax = axes_of(ax, *ridges.inches_for(len(W)))
    if len(W) <= ridges.FEW:
        ridges.ridges(ax, shown, at)
        ax.set(xlabel=label, ylabel=f"component ({ridges.DECIBELS:.0f} dB each)" if sound else "component")
        return ax
    ridges.heat(ax, shown, at, "dB below its largest" if sound else "weight")
    ax.set(xlabel=label, ylabel="component")
    return ax
