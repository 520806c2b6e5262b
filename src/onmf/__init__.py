"""Online nonnegative matrix factorization with general divergences.

Samples are rows: X (n, F) ~ H (n, K) @ W (K, F), and ``components_`` is W.
"""

import importlib
from typing import TYPE_CHECKING, Any

from onmf._support.version import __version__

__all__ = [
    "BatchNMF",
    "Checkpoint",
    "Consensus",
    "DataError",
    "DomainWarning",
    "OnlineNMF",
    "Progress",
    "RankSelection",
    "Sets",
    "__version__",
    "audio",
    "consensus",
    "divergences",
    "load",
    "methods",
    "plots",
    "save",
    "select_rank",
    "streams",
    "suggest_divergence",
]

if TYPE_CHECKING:
    from onmf import audio, divergences, methods, plots, streams
    from onmf.estimators.batch import BatchNMF
    from onmf.estimators.files import load, save
    from onmf.estimators.online import OnlineNMF
    from onmf.estimators.warned import DomainWarning
    from onmf.learner import Progress
    from onmf.persistence.checkpoint import Checkpoint
    from onmf.selection.consensus import Consensus, consensus
    from onmf.selection.rank import select_rank
    from onmf.selection.result import RankSelection
    from onmf.sets import Sets
    from onmf.suggesting.suggestion import suggest_divergence
    from onmf.units import DataError
else:
    # Imported when they are asked for: scikit-learn, which the estimators stand on, takes a second, and neither the
    # command line's help nor a divergence on its own needs it.
    _HOMES = {
        "BatchNMF": "onmf.estimators.batch",
        "Checkpoint": "onmf.persistence.checkpoint",
        "Consensus": "onmf.selection.consensus",
        "DataError": "onmf.units",
        "DomainWarning": "onmf.estimators.warned",
        "OnlineNMF": "onmf.estimators.online",
        "Progress": "onmf.learner",
        "RankSelection": "onmf.selection.result",
        "Sets": "onmf.sets",
        "consensus": "onmf.selection.consensus",
        "load": "onmf.estimators.files",
        "save": "onmf.estimators.files",
        "suggest_divergence": "onmf.suggesting.suggestion",
        "select_rank": "onmf.selection.rank",
    }

    def __getattr__(name: str) -> Any:
        if name in ("audio", "divergences", "methods", "plots", "streams"):
            return importlib.import_module(f"onmf.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
