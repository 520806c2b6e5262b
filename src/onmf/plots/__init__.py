"""Pictures of models. Every function draws on the Axes ``ax``, or on those of a new figure, and returns them."""

from onmf.plots.atoms import components
from onmf.plots.course import activations
from onmf.plots.figures import new_figure, require_writable_format
from onmf.plots.fits import reconstructions
from onmf.plots.noise import residuals
from onmf.plots.ranks import rank
from onmf.plots.runs import convergence
from onmf.plots.sheets import gallery, panels, tiles
from onmf.plots.words import topics

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
