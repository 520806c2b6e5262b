"""Pictures of models. Every function draws on the Axes ``ax``, or on those of a new figure, and returns them."""

from onmf.plots.dictionary import components, topics
from onmf.plots.drawing import new_figure
from onmf.plots.drawing import require_writable_format as require_writable_format  # for the commands
from onmf.plots.runs import convergence, rank
from onmf.plots.samples import activations, maps, reconstructions, residuals

__all__ = [
    "activations",
    "components",
    "convergence",
    "maps",
    "new_figure",
    "rank",
    "reconstructions",
    "residuals",
    "topics",
]
