"""Ways to learn the dictionary, one class per file, found by name."""

import importlib
import pkgutil

from onmf._support.checks import require_at_least, require_whole
from onmf.methods.base import Choice, Method
from onmf.model.penalty import Penalties, Penalty
from onmf.model.sets import DictionarySet
from onmf.model.state import State
from onmf.samples import Samples

# A method registers itself when its module is imported, so a new file in this folder is all it takes.
for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")

from onmf.methods.auto import Auto  # noqa: E402
from onmf.methods.em import EM  # noqa: E402
from onmf.methods.paper import Paper  # noqa: E402
from onmf.methods.sparse_surrogate import SparseSurrogate  # noqa: E402
from onmf.methods.steps import Adaptive, Canonical  # noqa: E402
from onmf.methods.surrogate import Surrogate  # noqa: E402

__all__ = [
    "EM",
    "Adaptive",
    "Auto",
    "Canonical",
    "Choice",
    "DictionarySet",
    "Method",
    "Paper",
    "Penalties",
    "Penalty",
    "Samples",
    "SparseSurrogate",
    "State",
    "Surrogate",
    "get",
    "names",
    "require_at_least",
    "require_whole",
]

find = Choice.find


def names() -> list[str]:
    """Return the names that ``method=`` takes, in alphabetical order.

    Returns
    -------
    list of str
        The names.

    Examples
    --------
    >>> "surrogate" in onmf.methods.names()
    True
    """
    return Choice.names()


def get(method: Choice | str) -> Choice:
    """Return the method meant by an object, a name (``"em"``) or a name with constants (``"paper:tau=5"``).

    Parameters
    ----------
    method : str or Choice
        What ``method=`` takes.

    Returns
    -------
    Choice
        The object.

    Examples
    --------
    >>> onmf.methods.get("paper:tau=5")
    Paper(tau=5)
    """
    return Choice.get(method)
