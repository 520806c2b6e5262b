"""Pictures of models. Every function draws on the Axes ``ax``, or on those of a new figure, and returns them."""

from onmf.insight.plots.atoms import components
from onmf.insight.plots.course import activations
from onmf.insight.plots.figures import new_figure, require_writable_format
from onmf.insight.plots.fits import reconstructions
from onmf.insight.plots.noise import residuals
from onmf.insight.plots.ranks import rank
from onmf.insight.plots.runs import convergence
from onmf.insight.plots.sheets import gallery, panels, tiles
from onmf.insight.plots.words import topics

__all__ = [
    "activations",
    "components",
    "convergence",
    "gallery",
    "new_figure",
    "panels",
    "rank",
    "reconstructions",
    "require_writable_format",
    "residuals",
    "tiles",
    "topics",
]
