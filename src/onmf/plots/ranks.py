"""``rank``: which number of atoms the data support."""

from __future__ import annotations

from typing import Any

from onmf.plots.figures import axes_of
from onmf.plots.palette import BLUE, FAINT, VERMILION, tidy


def rank(selection: Any, ax: Any = None) -> Any:
    """Draw what ``select_rank`` has found, and return the Axes of the loss.

    Above, the loss per held-out entry: faint for single seeds, circles for their mean. Below, on Axes of its own within
    the same space, how alike the atoms of different seeds are.
    """
    ax = axes_of(ax, 6.4, 5.0)
    ranks = selection.ranks
    ax.plot(ranks, selection.losses, color=BLUE, alpha=0.3, linewidth=0.8)
    ax.plot(ranks, selection.loss, color=BLUE, marker="o", markersize=4)
    ax.set_ylabel("loss per held-out entry")
    ax.set_title(f"recommended rank: {selection.recommended}", fontsize=11)
    ax.tick_params(labelbottom=False)
    lower = ax.inset_axes([0, -0.68, 1, 0.6], sharex=ax)
    lower.plot(ranks, selection.stability, color=VERMILION, linestyle="--", marker="s", markersize=4)
    lower.set(ylabel="similarity of atoms\nbetween seeds", xlabel="rank K")
    lower.set_ylim(min(0.5, *selection.stability), 1.02)
    lower.xaxis.get_major_locator().set_params(integer=True)
    for axes in (ax, lower):
        axes.axvline(selection.recommended, color=FAINT, linestyle=":", linewidth=1.2)
        tidy(axes)
    ax.tick_params(labelbottom=False)
    return ax
