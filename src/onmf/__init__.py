"""Online nonnegative matrix factorization with general divergences.

Samples are rows: X (n, F) ~ H (n, K) @ W (K, F), and ``components_`` is W.
"""

from onmf import divergences
from onmf.batch_estimator import BatchNMF
from onmf.checkpoints import Checkpoint
from onmf.estimator import OnlineNMF
from onmf.fitted import DomainWarning, Progress
from onmf.saving import load, save
from onmf.units import DataError
from onmf.version import __version__

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
