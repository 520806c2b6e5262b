"""The divergences of the paper's Tables 1 to 3, one class each, found by name."""

import importlib
import pkgutil

from onmf.divergences.base import Divergence, Domain, Interval
from onmf.divergences.naming import find, get, names, restore

# A divergence registers itself when its module is imported, so a new file in this folder is all it takes.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from onmf.divergences.alpha import Alpha, Hellinger, KullbackLeibler  # noqa: E402
from onmf.divergences.beta import Beta, ItakuraSaito, SquaredL2  # noqa: E402
from onmf.divergences.mahalanobis import Mahalanobis  # noqa: E402
from onmf.divergences.robust import L1, L2, Huber  # noqa: E402
from onmf.divergences.separable import Separable  # noqa: E402

__all__ = [
    "L1",
    "L2",
    "Alpha",
    "Beta",
    "Divergence",
    "Domain",
    "Hellinger",
    "Huber",
    "Interval",
    "ItakuraSaito",
    "KullbackLeibler",
    "Mahalanobis",
    "Separable",
    "SquaredL2",
    "find",
    "get",
    "names",
    "restore",
]
