"""``topics``: the leading words of topics."""

from __future__ import annotations

from typing import Any

from onmf.insight.plots.atoms import bars
from onmf.insight.plots.given import atoms_of, names_of
from onmf.insight.plots.leading import Leading, ranked


def topics(model: Any, ax: Any = None, n_words: int = 8, by: str = "weight") -> Any:
    """Draw the leading words (genes, items: named features) of every topic, and return the Axes.

    They lead by weight, lift or specificity, as in ``model.top_features``; of a matrix W, by weight.
    Up to 24 topics have bars, in shares of each topic's largest weight, and fewer words where Axes are too
    small for them. More topics are rows of a table, shaded by weight.
    """
    W = atoms_of(model)
    if hasattr(model, "top_features"):
        found: Leading = [
            [(word, value) for word, value in words if value > 0] for words in model.top_features(n_words, by)
        ]
    elif by == "weight":
        found = ranked(W, names_of(model), n_words)
    else:
        raise ValueError(f"by={by!r} needs a fitted model; of a matrix, words are shown by weight.")
    return bars(W, found, ax, n_words, title="topic")
