"""Online nonnegative matrix factorization with general divergences.

Samples are rows: X (n, F) ~ H (n, K) @ W (K, F), and ``components_`` is W.
"""

from onmf import divergences, methods
from onmf._support.version import __version__
from onmf.estimators.base import DomainWarning
from onmf.estimators.batch import BatchNMF
from onmf.estimators.files import load, save
from onmf.estimators.online import OnlineNMF
from onmf.learner import Progress
from onmf.persistence.checkpoint import Checkpoint
from onmf.sets import Sets
from onmf.units import DataError

__all__ = [
    "BatchNMF",
    "Checkpoint",
    "DataError",
    "DomainWarning",
    "OnlineNMF",
    "Progress",
    "Sets",
    "__version__",
    "divergences",
    "load",
    "methods",
    "save",
]
