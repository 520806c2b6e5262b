"""Figures and Axes to draw on. Matplotlib is imported when one is made, so that nothing else waits for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def new_figure(width: float, height: float) -> Any:
    """An empty figure that needs no screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ModuleNotFoundError("pictures need Matplotlib; install onmf[plots].") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def axes_of(ax: Any, width: float, height: float) -> Any:
    """The Axes ``ax`` or, where that is None, those of a new figure of so many inches.

    In an interactive session, and where pyplot is in use already, the figure is pyplot's: notebooks show it, and so
    does ``pyplot.show()``. Elsewhere it needs no screen and is nobody's to close; ``ax.figure.savefig`` writes it.
    """
    if ax is not None:
        return ax
    if not (hasattr(sys, "ps1") or "matplotlib.pyplot" in sys.modules):  # IPython and Jupyter set the prompt, too
        return new_figure(width, height).add_subplot()
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ModuleNotFoundError("pictures need Matplotlib; install onmf[plots].") from None
    return pyplot.figure(figsize=(width, height), layout="constrained").add_subplot()


def inches_of(ax: Any) -> tuple[float, float]:
    """The width and height of the Axes as they are now."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def require_writable_format(path: str | Path) -> None:
    """Refuse, before any work is done, a picture that could not be written."""
    known = new_figure(1, 1).canvas.get_supported_filetypes()
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in known:
        raise ValueError(
            f"{path}: no picture is written as {suffix or 'a nameless format'}; use {', '.join(sorted(known))}."
        )
