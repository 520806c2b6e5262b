"""``topics``: the leading words of topics."""

from __future__ import annotations

from typing import Any

from onmf.plots.atoms import bars
from onmf.plots.given import atoms_of, names_of


def topics(model: Any, ax: Any = None, n_words: int = 8) -> Any:
    """Draw the leading words (genes, items: named features) of every topic, and return the Axes.

    Up to 24 topics have bars, in shares of each topic's largest weight, and fewer words where Axes are too
    small for them. More topics are rows of a table, shaded by weight.
    """
    return bars(atoms_of(model), names_of(model), ax, n_words, title="topic")
