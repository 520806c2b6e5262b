"""How a model learns from batches. Nothing else in the library learns.

``begin`` makes a model of the first batch, ``step`` learns from one batch, ``run`` from all batches of a source; each
gives a new ``Learned`` and changes none.
"""

from onmf.learner.batching import Reading
from onmf.learner.config import Recipe
from onmf.learner.drift import Drift
from onmf.learner.guarantee import guarantee
from onmf.learner.initialise import begin, continued
from onmf.learner.learned import Coverage, Fitted, History, Learned, Skipped, Usage
from onmf.learner.position import Opened, Position, Standing
from onmf.learner.resume import require_features, require_position, require_standing
from onmf.learner.run import run
from onmf.learner.update import Progress, step, taught, told

__all__ = [
    "Coverage",
    "Drift",
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
