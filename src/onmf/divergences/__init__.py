"""The divergences of the paper's Tables 1 to 3, one class each, found by name."""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from onmf._support.checks import is_number
from onmf.divergences.base import Divergence, Domain, Interval, Separable

# A divergence registers itself when its module is imported, so a new file in this folder is all it takes.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from onmf.divergences.alpha import Alpha, Hellinger, KullbackLeibler  # noqa: E402
from onmf.divergences.beta import Beta, ItakuraSaito, SquaredL2  # noqa: E402
from onmf.divergences.mahalanobis import Mahalanobis  # noqa: E402
from onmf.divergences.robust import L1, L2, Huber  # noqa: E402

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
    "get",
    "names",
]

find = Divergence.find


def names() -> list[str]:
    """Return the names that ``divergence=`` takes, in alphabetical order and without aliases.

    Returns
    -------
    list of str
        The names.

    Examples
    --------
    >>> "kl" in onmf.divergences.names()
    True
    """
    return Divergence.names()


def get(divergence: Divergence | str | float) -> Divergence:
    """Return the divergence meant by an object, a name (``"kl"``) or a name with parameters (``"beta:1.5"``).

    A number is beta, as in scikit-learn's ``beta_loss``. A family's special case (``"beta:1"``, ``Beta(1.0)``) becomes
    the divergence of that name, which has a fast path.

    Parameters
    ----------
    divergence : Divergence, str or float
        What ``divergence=`` takes.

    Returns
    -------
    Divergence
        The object.

    Examples
    --------
    >>> onmf.divergences.get("beta:1")
    KullbackLeibler()
    """
    meant: Any = divergence
    return Divergence.get(Beta(meant) if is_number(meant) and np.isfinite(meant) else meant).special_case()


def restore(name: str, parameters: Mapping[str, Any]) -> Divergence:
    """Return the divergence that ``name`` and ``parameters()`` came from, as ``get`` gives it."""
    return find(name)(**parameters).special_case()


def same(one: Divergence, other: Divergence) -> bool:
    """Return whether both are of one class and equal in their parameters, matrices included."""
    mine, theirs = one.parameters(), other.parameters()
    alike = type(one) is type(other) and mine.keys() == theirs.keys()
    return alike and all(np.array_equal(mine[name], theirs[name]) for name in mine)
