"""The leading features of atoms, as words on bars; of many atoms as a table whose cells are shaded by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onmf._support.arrays import Array
from onmf.insight.plots.figures import inches_of
from onmf.insight.plots.palette import BLACK, FAINT, SKY

FEW = 24  # atoms that have room for bars
ACROSS = 5  # of them side by side
TALL = 50  # rows of a table; then it goes on beside itself
LINE = 0.17  # inches
LETTER = 0.72  # of the height of a line
SMALLEST, FEWEST = 5.5, 3  # points, words
INSIDE = {"in_layout": False, "va": "center_baseline"}  # words lie within the Axes; the layout need not measure them

Leading = Sequence[Sequence[tuple[str, float]]]  # of every atom its features with their weights, the largest first


def ranked(W: Array, names: Sequence[str] | None, n: int) -> Leading:
    """The n features of the largest weight of every atom."""
    if names is not None and len(names) != W.shape[1]:
        raise ValueError(f"names has {len(names)} entries, but an atom has {W.shape[1]} features.")
    texts = names if names is not None else [f"feature {f}" for f in range(W.shape[1])]
    return [[(texts[f], float(w[f])) for f in (-w).argsort(kind="stable")[:n] if w[f] > 0] for w in W]


def inches_for(atoms: int, n: int) -> tuple[float, float]:
    """The size of a figure in which all words can be read."""
    if atoms <= FEW:
        across = min(atoms, ACROSS)
        return 2.1 * across + 0.2, -(-atoms // across) * (n + 2) * LINE + 0.1
    return (1.15 * n + 0.6) * (-(-atoms // TALL)), (min(atoms, TALL) + 1) * LINE + 0.1


def leading_features(ax: Any, found: Leading, n: int, titles: Sequence[str]) -> None:
    """Draw them, as large as the Axes allow."""
    ax.set_axis_off()
    (_bars if len(found) <= FEW else _table)(ax, found, n, titles)


def _bars(ax: Any, found: Leading, n: int, titles: Sequence[str]) -> None:
    """Small multiples: a bar for each word, in shares of its atom's largest, and the word on it."""
    across = min(len(found), ACROSS)
    down = -(-len(found) // across)
    n = min(n, max(FEWEST, int(inches_of(ax)[1] * 72 * LETTER / SMALLEST / down) - 2))  # rather fewer words than dots
    ax.set(xlim=(0, across), ylim=(down * (n + 2), 0))
    size, letters = _type(ax, down * (n + 2), across)
    for k, words in enumerate(each[:n] for each in found):
        left, top = k % across + 0.02, (k // across) * (n + 2) + 0.7
        ax.text(left, top, _cut(titles[k], letters), fontsize=size, fontweight="bold", **INSIDE)
        largest = words[0][1] if words else 1.0
        lengths = [0.92 * weight / largest for _, weight in words]
        places = [top + 1.1 + line for line in range(len(words))]
        ax.barh(places, lengths, height=0.82, left=left, color=SKY, alpha=0.55)
        for place, (word, _) in zip(places, words, strict=True):
            ax.text(left + 0.015, place, _cut(word, letters), fontsize=size, color=BLACK, **INSIDE)


def _table(ax: Any, found: Leading, n: int, titles: Sequence[str]) -> None:
    """A row for each atom, the darker a cell the heavier its word."""
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
        ax.text(left + 0.45, top + 0.5, titles[k], fontsize=size, color=FAINT, ha="right", **INSIDE)
        for place, (word, weight) in enumerate(words):
            at = left + 0.52 + place
            cells.append(Rectangle((at, top + 0.04), 0.98, 0.92))
            shades.append(0.08 + 0.6 * weight / words[0][1])
            ax.text(at + 0.03, top + 0.5, _cut(word, letters), fontsize=size, **INSIDE)
    ax.add_collection(PatchCollection(cells, facecolor=SKY, alpha=shades, linewidth=0))


def _type(ax: Any, lines: float, columns: float) -> tuple[float, int]:
    """The size of the letters in points, and how many of them fit into a column."""
    width, height = inches_of(ax)
    size = min(9.0, LETTER * 72 * height / lines)
    return size, max(3, int(0.93 * width / columns * 72 / (0.55 * size)))


def _cut(word: str, letters: int) -> str:
    return word if len(word) <= letters else word[: letters - 1] + "…"
