"""Pictures. Matplotlib is imported when one is drawn, so that nothing else waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onmf.arrays import Array


def _figure(width: float, height: float) -> Any:
    """An empty figure that needs no screen."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        msg = "pictures need Matplotlib; install onmf[plots]."
        raise ModuleNotFoundError(msg) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def require_writable_format(path: str | Path) -> None:
    """Refuse, before any work is done, a picture that could not be written."""
    known = _figure(1, 1).canvas.get_supported_filetypes()
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in known:
        msg = f"{path}: no picture is written as {suffix or 'a nameless format'}; use {', '.join(sorted(known))}."
        raise ValueError(msg)


def tiles(atoms: Array, side: int, columns: int = 4) -> Array:
    """The atoms as one grey picture: squares of ``side`` pixels with a thin gap, each scaled to its own maximum."""
    rows = -(-len(atoms) // columns)
    sheet = np.full((rows * (side + 1) - 1, columns * (side + 1) - 1), 0.5)
    for k, atom in enumerate(atoms):
        top, left = (k // columns) * (side + 1), (k % columns) * (side + 1)
        sheet[top : top + side, left : left + side] = atom.reshape(side, side) / max(float(atom.max()), 1e-12)
    return sheet


def gallery(pictures: list[tuple[str, Array]], path: str | Path, columns: int = 3) -> None:
    """Grey pictures in [0, 1] side by side under their titles, written to ``path``."""
    rows = -(-len(pictures) // columns)
    figure = _figure(4.2 * columns, 3.2 * rows)
    for k, (title, picture) in enumerate(pictures):
        axes = figure.add_subplot(rows, columns, k + 1)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    figure.savefig(path, dpi=70)
