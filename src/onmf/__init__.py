"""Online nonnegative matrix factorization with general divergences.

Samples are rows: X (n, F) ~ H (n, K) @ W (K, F), and ``components_`` is W.
"""

from onmf import divergences
from onmf._support.version import __version__
from onmf.estimators.base import DomainWarning, Progress
from onmf.estimators.batch import BatchNMF
from onmf.estimators.online import OnlineNMF
from onmf.persistence.checkpoint import Checkpoint
from onmf.persistence.model import load, save
from onmf.units import DataError

__all__ = [
    "BatchNMF",
    "Checkpoint",
    "DataError",
    "DomainWarning",
    "OnlineNMF",
    "Progress",
    "__version__",
    "divergences",
    "load",
    "save",
]
