"""The picture of a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onmf.insight.plots import new_figure
from onmf.insight.plots.palette import COLOURS, STROKES, tidy

if TYPE_CHECKING:
    from onmf.selection.divergence.suggestion import Suggestion

GUIDES = {0: "0: squared_l2", 1: "1: kl", 2: "2: is"}


def variance_against_mean(suggestion: Suggestion) -> Any:
    """A figure on logarithmic axes; each dot stands for entries with similar fits, each line for a power."""
    means, variances = suggestion.means, suggestion.variances
    if not len(means):
        raise ValueError(f"there is no variance to draw. {suggestion.reason}")
    figure = new_figure(5.2, 4.0)
    axes = figure.add_subplot()
    middle = np.exp(np.log(means).mean()), np.exp(np.log(variances).mean())
    for power, label in GUIDES.items():
        law = middle[1] * (means / middle[0]) ** power
        axes.plot(means, law, label=label, color=COLOURS[power], linestyle=STROKES[power], linewidth=1.4)
    axes.plot(means, variances, "o", color="black", markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="mean (1: that of the data)", ylabel="variance of the noise")
    axes.set_title(f"{suggestion.divergence}: power {suggestion.power:.2f} ± {suggestion.power_error:.2f}", fontsize=11)
    tidy(axes)
    axes.legend(title="power", frameon=False, handlelength=3)
    return figure
