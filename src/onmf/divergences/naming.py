"""How a divergence is found by its name. Upper and lower case are the same; ``-``, ``_`` and spaces do not count."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from onmf.divergences import base
from onmf.divergences.base import Divergence, spelling


def names() -> list[str]:
    """The names of all divergences, in alphabetical order, without aliases."""
    return sorted({cls.name for cls in base._registry.values()})


def find(name: str) -> type[Divergence]:
    """The class registered under a name or an alias."""
    cls = base._registry.get(spelling(name))
    if cls is None:
        written = {spelling(key): key for known in base._registry.values() for key in (known.name, *known.aliases)}
        close = difflib.get_close_matches(spelling(name), written, n=1)
        hint = f" (did you mean {written[close[0]]!r}?)" if close else ""
        raise ValueError(f"unknown divergence {name!r}{hint}; choose one of {', '.join(names())}.")
    return cls


def get(divergence: Divergence | str) -> Divergence:
    """The divergence meant by an object, a name (``"kl"``) or a name with parameters (``"beta:1.5"``).

    A family's special case (``"beta:1"``, ``Beta(1.0)``) becomes the divergence of that name, which has a fast path.
    """
    if isinstance(divergence, Divergence):
        return divergence.special_case()
    if isinstance(divergence, type) and issubclass(divergence, Divergence):
        raise TypeError(
            f"divergence is the class {divergence.__name__}; write {divergence.__name__}(), with its parameters."
        )
    if not isinstance(divergence, str):
        raise TypeError(f"divergence must be a name or a Divergence, not {type(divergence).__name__}; see names().")
    name, colon, text = divergence.partition(":")
    cls = find(name)
    if colon:
        return cls.parse(text).special_case()
    try:
        return cls()
    except TypeError:
        raise ValueError(f"{name!r} needs a parameter; write {cls.usage()}.") from None


def restore(name: str, parameters: Mapping[str, Any]) -> Divergence:
    """The divergence that ``name`` and ``parameters()`` came from, as ``get`` gives it."""
    return find(name)(**parameters).special_case()
