"""How a model learns from batches. Nothing else in the library learns.

``begin`` makes a model of the first batch, ``step`` learns from one batch, ``run`` from all batches of a source; each
gives a new ``Learned`` and changes none.
"""

from onmf.learner.beginning import begin, continued
from onmf.learner.cuts import Reading
from onmf.learner.drift import Drift
from onmf.learner.guarantee import guarantee
from onmf.learner.learned import Coverage, Features, Fitted, History, Learned, Skipped
from onmf.learner.legs import require_features, require_position, require_standing
from onmf.learner.position import Position
from onmf.learner.recipe import Recipe
from onmf.learner.run import run
from onmf.learner.standing import Opened, Standing
from onmf.learner.step import Progress, step, taught, told
from onmf.learner.usage import Usage

__all__ = [
    "Coverage",
    "Drift",
    "Features",
    "Fitted",
    "History",
    "Learned",
    "Opened",
    "Position",
    "Progress",
    "Reading",
    "Recipe",
    "Skipped",
    "Standing",
    "Usage",
    "begin",
    "continued",
    "guarantee",
    "require_features",
    "require_position",
    "require_standing",
    "run",
    "step",
    "taught",
    "told",
]
