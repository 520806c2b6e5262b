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
    "FitProgress",
    "OnlineNMF",
    "Progress",
    "RankSelection",
    "Recommendation",
    "Sets",
    "Suggestion",
    "__version__",
    "consensus",
    "data",
    "divergences",
    "load",
    "methods",
    "plots",
    "recommend",
    "save",
    "select_rank",
    "separate",
    "suggest_divergence",
    "topics",
]

if TYPE_CHECKING:
    from onmf import data, divergences, methods, plots, topics
    from onmf.estimators.batch import BatchNMF
    from onmf.estimators.files import load, save
    from onmf.estimators.online import OnlineNMF
    from onmf.insight.recommendation import Recommendation, recommend
    from onmf.insight.separation import separate
    from onmf.learner import Progress
    from onmf.model.sets import Sets
    from onmf.model.units import DomainWarning
    from onmf.model.validation import DataError
    from onmf.persistence.checkpoint import Checkpoint
    from onmf.selection.consensus import Consensus, consensus
    from onmf.selection.divergence import Suggestion, suggest_divergence
    from onmf.selection.rank import RankSelection, select_rank
    from onmf.selection.runs import FitProgress
else:
    # Imported when they are asked for: scikit-learn, which the estimators stand on, takes a second, and neither the
    # command line's help nor a divergence on its own needs it.
    _HOMES = {
        "BatchNMF": "onmf.estimators.batch",
        "Checkpoint": "onmf.persistence.checkpoint",
        "Consensus": "onmf.selection.consensus",
        "DataError": "onmf.model.validation",
        "DomainWarning": "onmf.model.units",
        "FitProgress": "onmf.selection.runs",
        "OnlineNMF": "onmf.estimators.online",
        "Progress": "onmf.learner",
        "RankSelection": "onmf.selection.rank",
        "Recommendation": "onmf.insight.recommendation",
        "Sets": "onmf.model.sets",
        "Suggestion": "onmf.selection.divergence",
        "consensus": "onmf.selection.consensus",
        "data": "onmf.data",
        "divergences": "onmf.divergences",
        "load": "onmf.estimators.files",
        "methods": "onmf.methods",
        "plots": "onmf.plots",
        "recommend": "onmf.insight.recommendation",
        "save": "onmf.estimators.files",
        "suggest_divergence": "onmf.selection.divergence",
        "select_rank": "onmf.selection.rank",
        "separate": "onmf.insight.separation",
        "topics": "onmf.topics",
    }

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = importlib.import_module(_HOMES[name])
        value = globals()[name] = getattr(home, name, home)  # a module stands for itself
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
