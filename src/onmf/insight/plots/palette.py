"""Colours, strokes and marks that colour-blind readers and grey prints tell apart."""

from __future__ import annotations

from typing import Any

# The palette of Okabe and Ito, in an order in which neighbours differ in lightness too.
BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, BLACK = (
    *("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#000000"),
)
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, BLACK)
STROKES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (9, 3)), (0, (3, 1)), (0, (1, 3)))
MARKS = "osD^vPX*<>"
HEAT = "Blues"  # white to dark blue, lightness falling all the way: also on paper, also in grey
FAINT = "0.45"


def look(number: int) -> dict[str, Any]:
    """The colour, stroke and mark of a line; all three repeat at different numbers, so that 280 lines differ."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STROKES[number % len(STROKES)],
        "marker": MARKS[number % len(MARKS)],
    }


def tidy(ax: Any, grid: str | None = "both") -> None:
    """Small ticks, no frame above and on the right, a faint grid."""
    ax.tick_params(which="both", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        ax.grid(axis=grid, alpha=0.3, linewidth=0.5)
    ax.set_axisbelow(True)


def bare(ax: Any) -> None:
    """Nothing but the labels of the ticks: for pictures, which need no frame."""
    ax.tick_params(length=0, labelsize=8, labelcolor=FAINT)
    ax.spines[:].set_visible(False)
