"""``rank``: which number of atoms the data support."""

from __future__ import annotations

from typing import Any

from onmf.insight.plots.figures import axes_of
from onmf.insight.plots.palette import BLUE, FAINT, VERMILION, tidy

BELOW = 0.34  # the share of the height that the similarities have, and a little less than what they are kept free


def rank(selection: Any, ax: Any = None) -> Any:
    """Draw what ``select_rank`` has found, and return the Axes.

    Above, the loss per held-out entry: faint for single seeds, circles for their mean. Below, how alike the atoms of
    different seeds are: 1 if all are the same.
    """
    ax = axes_of(ax, 6.4, 5.0)
    ranks, losses = selection.ranks, selection.losses
    ax.plot(ranks, losses, color=BLUE, alpha=0.3, linewidth=0.8)
    ax.plot(ranks, selection.loss, color=BLUE, marker="o", markersize=4)
    lower = ax.inset_axes([0, 0, 1, BELOW], sharex=ax)
    lower.plot(ranks, selection.stability, color=VERMILION, linestyle="--", marker="s", markersize=4)
    lower.set_ylim(min(0.5, *selection.stability), 1.03)
    for axes in (ax, lower):
        axes.axvline(selection.recommended, color=FAINT, linestyle=":", linewidth=1.2)
        tidy(axes)
    lower.tick_params(labelbottom=False, bottom=False)
    _keep_free(ax, float(losses.min()), float(losses.max()))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("rank K")
    ax.set_ylabel("loss per held-out entry", y=0.5 + BELOW / 2 + 0.03)
    lower.set_ylabel("similarity")
    ax.set_title(f"recommended rank: {selection.recommended}", fontsize=11)
    return ax


def _keep_free(ax: Any, low: float, high: float) -> None:
    """Losses from ``low`` to ``high`` above the similarities, and ticks beside them alone."""
    span = (high - low) or abs(high) or 1.0
    bottom, top = low - 0.08 * span, high + 0.08 * span
    ticks = [tick for tick in ax.yaxis.get_major_locator().tick_values(low, high) if bottom <= tick <= top]
    kept = BELOW + 0.06
    ax.set_ylim(top - (top - bottom) / (1 - kept), top)
    ax.set_yticks(ticks)
    ax.spines["left"].set_bounds(bottom, top)
