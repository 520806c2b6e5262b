"""Online learning from batches: nothing else learns online.

``begin`` makes a model of the first batch, ``step`` learns from one batch, ``run`` from all batches of a source; each
gives a new ``Learned`` and changes none.
"""

from onmf.learner.batching import Reading
from onmf.learner.config import Recipe
from onmf.learner.drift import Drift
from onmf.learner.initialise import begin, continued
from onmf.learner.learned import Coverage, Fitted, History, Learned, Skipped, SkippedLog, Usage, guarantee
from onmf.learner.resume import OpenPartition, Position, RoundPosition, require_position, settled
from onmf.learner.run import run
from onmf.learner.update import BatchUpdate, Progress, step, updated

__all__ = [
    "BatchUpdate",
    "Coverage",
    "Drift",
    "Fitted",
    "History",
    "Learned",
    "OpenPartition",
    "Position",
    "Progress",
    "Reading",
    "Recipe",
    "RoundPosition",
    "Skipped",
    "SkippedLog",
    "Usage",
    "begin",
    "continued",
    "guarantee",
    "require_position",
    "run",
    "settled",
    "step",
    "updated",
]
