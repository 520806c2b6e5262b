"""Pictures of a dictionary: its components as images, spectra or bars, and its topics in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from onmf._support.arrays import Array
from onmf.insight.features import DECIBELS, Model, axis_of, components_of, decibels, labelled_axis, names_of, source_of
from onmf.plots import drawing
from onmf.plots.drawing import BLACK, FAINT, SKY, axes_of
from onmf.topics import leading_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("auto", "images", "spectra", "bars")
WORDS = ("text", "jsonl", "h5ad")  # sources whose features have no order
FEW = 24  # components that have room for bars
ACROSS = 4  # of them side by side: letters are legible on a page
TALL = 50  # rows of a table; then it continues beside itself
LINE = 0.17  # inches
LETTER = 0.72  # of the height of a line
SMALLEST, FEWEST = 5.5, 3  # points, words
INSIDE = {"in_layout": False, "va": "center_baseline"}  # words lie within the Axes; the layout need not measure them

Leading = Sequence[Sequence[tuple[str, float]]]  # the features of every component with their weights, largest first


def components(
    model: Model | ArrayLike,
    ax: Axes | None = None,
    kind: str = "auto",
    *,
    shape: tuple[int, ...] | None = None,
    names: Sequence[str] | None = None,
    n_words: int = 8,
    cmap: str = "gray",
) -> Axes:
    """Draw the components of a model, or of a matrix W (K, F), and return the Axes.

    Parameters
    ----------
    model : fitted model, or array (K, F)
        The components to draw.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure, which notebooks show.
    kind : {"auto", "images", "spectra", "bars"}
        "images": every component is a picture, scaled to its own maximum. Its number is that of its row plus that of
        its column. "spectra": a line for each component over the features, which have an order; shades of colour from
        13 components on. Powers of sound are in decibels. "bars": the leading features of every component, by name.
        "auto": pictures where the data were pictures or ``shape`` is given, bars where features have names, and spectra
        where these are numbers with a unit, such as 31.25 Hz or 550 nm, or without one where neighbours are alike, or
        where there are none.
    shape : (height, width) or (height, width, 3)
        The shape of a picture, where the model does not know it.
    names : list of str
        The names of the features, where the model does not know them.
    n_words : int
        How many features of every component the bars show.
    cmap : str
        Matplotlib's colour map for grey pictures.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> axes = onmf.plots.components(model, kind="bars", n_words=5)
    >>> axes.figure.savefig("components.png")
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    W = components_of(model)
    picture = picture_shape(model, shape, W.shape[1])
    names = names if names is not None else names_of(model)
    if kind == "auto":
        words = source_of(model).scheme in WORDS or (names is not None and axis_of(W, names) is None)
        kind = "images" if picture is not None else "bars" if words else "spectra"
    if kind == "bars":
        return bars(ax, leading_features(W, n_words, names), n_words)
    if kind == "spectra":
        return _spectra(model, W, names, ax)
    if picture is None:
        raise ValueError("pictures need the shape of one: components(model, shape=(height, width)).")
    return drawing.mosaic(ax, drawing.as_pictures(W, picture), cmap=cmap)


def topics(model: Model | ArrayLike, ax: Axes | None = None, n_words: int = 8, by: str | None = None) -> Axes:
    """Draw the leading words (genes, items: named features) of every topic, and return the Axes.

    Up to 24 topics have bars, in shares of each topic's largest weight, and fewer words where Axes are too small for
    them. More topics are rows of a table, shaded by weight.

    Parameters
    ----------
    model : fitted model, or array (K, F)
        The topics.
    ax : matplotlib.axes.Axes or None
        Where to draw; None: on a new figure.
    n_words : int, default 8
        Words of each topic.
    by : {None, "relevance", "weight", "lift", "specificity"}
        What ranks the words; None: what suits the data, as in ``model.top_features``. A matrix has weights only.

    Returns
    -------
    matplotlib.axes.Axes
        Where it was drawn; ``ax.figure.savefig("picture.png")`` writes it.

    Examples
    --------
    >>> onmf.plots.topics(model, n_words=5).figure.savefig("topics.png")
    """
    if hasattr(model, "top_features"):
        return bars(ax, model.top_features(n_words, by), n_words, title="topic")
    if by not in (None, "weight"):
        raise ValueError(f"by={by!r} needs a fitted model; words of a matrix are shown by weight.")
    return bars(ax, leading_features(components_of(model), n_words, names_of(model)), n_words, title="topic")


def picture_shape(model: Any, shape: tuple[int, ...] | None, features: int) -> tuple[int, ...] | None:
    """Return the shape of a sample that is a picture: as given, else as the model's source had it, or None."""
    shape = shape or source_of(model).picture
    if shape is None:
        return None
    if len(shape) not in (2, 3) or shape[2:] not in ((), (3,)) or np.prod(shape) != features:
        raise ValueError(
            f"shape {tuple(shape)} does not hold the {features} features of a sample; give (height, width) or "
            "(height, width, 3)."
        )
    return tuple(shape)


def _spectra(model: Any, W: Array, names: Sequence[str] | None, ax: Axes | None) -> Axes:
    at, label = labelled_axis(names, W.shape[1])
    sound = source_of(model).scheme == "audio" or label.startswith("frequency")
    W, at = drawing.binned(W, at, peaks=True)
    shown = decibels(W, W.max(axis=1, keepdims=True)) if sound else W
    ax, few = drawing.row_axes(ax, len(W)), len(W) <= drawing.FEW_LINES
    if few:
        drawing.ridges(ax, shown, at)
    else:
        drawing.heat(ax, shown, at, "dB below its largest" if sound else "weight")
    ax.set(xlabel=label, ylabel=f"component ({DECIBELS:.0f} dB each)" if sound and few else "component")
    return ax


def bars(ax: Axes | None, found: Leading, n: int, title: str = "component") -> Axes:
    """Draw the leading features of every component, without zeros, as large as the Axes allow, and return the Axes.

    Few components have a bar for each word, in shares of the largest; many are rows of a table, shaded by weight.
    """
    found = [[(word, weight) for word, weight in words if weight > 0] for words in found]
    few, number = len(found) <= FEW, len(found)
    if few:
        across = min(number, ACROSS)
        ax = axes_of(ax, 2.1 * across + 0.2, -(-number // across) * (n + 2) * LINE + 0.1)
    else:
        ax = axes_of(ax, (1.15 * n + 0.6) * -(-number // TALL), (min(number, TALL) + 1) * LINE + 0.1)
    ax.set_axis_off()
    (_small_multiples if few else _table)(ax, found, n, title)
    return ax


def _small_multiples(ax: Any, found: Leading, n: int, title: str) -> None:
    across = min(len(found), ACROSS)
    down = -(-len(found) // across)
    n = min(n, max(FEWEST, int(_inches(ax)[1] * 72 * LETTER / SMALLEST / down) - 2))  # rather fewer words than dots
    ax.set(xlim=(0, across), ylim=(down * (n + 2), 0))
    size, letters = _type(ax, down * (n + 2), across)
    for k, words in enumerate(each[:n] for each in found):
        left, top = k % across + 0.02, (k // across) * (n + 2) + 0.7
        ax.text(left, top, _cut(f"{title} {k}", letters), fontsize=size, fontweight="bold", **INSIDE)
        largest = words[0][1] if words else 1.0
        lengths = [0.92 * weight / largest for _, weight in words]
        places = [top + 1.1 + line for line in range(len(words))]
        ax.barh(places, lengths, height=0.82, left=left, color=SKY, alpha=0.55)
        for place, (word, _) in zip(places, words, strict=True):
            ax.text(left + 0.015, place, _cut(word, letters), fontsize=size, color=BLACK, **INSIDE)


def _table(ax: Any, found: Leading, n: int, title: str) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    blocks = -(-len(found) // TALL)
    down = -(-len(found) // blocks)
    wide = n + 0.6
    ax.set(xlim=(0, blocks * wide), ylim=(down, 0))
    size, letters = _type(ax, down, blocks * wide)
    cells, shades = [], []
    for k, words in enumerate(found):
        left, top = (k // down) * wide, k % down
        ax.text(left + 0.45, top + 0.5, str(k), fontsize=size, color=FAINT, ha="right", **INSIDE)
        for place, (word, weight) in enumerate(words):
            at = left + 0.52 + place
            cells.append(Rectangle((at, top + 0.04), 0.98, 0.92))
            shades.append(0.08 + 0.6 * weight / words[0][1])
            ax.text(at + 0.03, top + 0.5, _cut(word, letters), fontsize=size, **INSIDE)
    ax.add_collection(PatchCollection(cells, facecolor=SKY, alpha=shades, linewidth=0))


def _inches(ax: Any) -> tuple[float, float]:
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def _type(ax: Any, lines: float, columns: float) -> tuple[float, int]:
    """Return the size of the letters in points, and how many of them fit into a column."""
    width, height = _inches(ax)
    size = min(9.0, LETTER * 72 * height / lines)
    return size, max(3, int(0.93 * width / columns * 72 / (0.55 * size)))


def _cut(word: str, letters: int) -> str:
    return word if len(word) <= letters else word[: letters - 1] + "…"
