"""Schemes, the kinds of data that ``SCHEME:PATH?OPTION=VALUE`` can name: each registers itself in its own file."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from onmf.streams.base import Source

Opener = TypeVar("Opener", bound=Callable[..., Source])
KINDS: dict[Any, type] = {
    int: int,
    int | None: int,
    str: str,
    str | None: str,
    list[str]: list,
    list[str] | None: list,
}

_registry: dict[str, Scheme] = {}


@dataclass(frozen=True)
class Scheme:
    """What ``register`` was told of a scheme, and the options that its opener takes: numbers, texts, lists of names."""

    name: str
    opener: Callable[..., Source]
    suffixes: tuple[str, ...]
    options: dict[str, type]  # int, str or list
    takes: frozenset[str]
    needs: str | None
    extra: str | None

    def require_library(self) -> None:
        """Refuse to open anything without the optional library."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            cure = f"onmf[{self.extra}]" if self.extra else self.needs
            raise ModuleNotFoundError(f"{self.name} needs {self.needs}; install {cure}.")


def register(
    name: str,
    suffixes: Collection[str] = (),
    *,
    takes: Collection[str] = (),
    needs: str | None = None,
    extra: str | None = None,
) -> Callable[[Opener], Opener]:
    """Make the decorated function the opener of ``name:PATH``, and of files that end in one of ``suffixes``.

    Its first argument is the path. The others are options, annotated as ``int``, ``str`` or ``list[str]`` (names with
    commas between them); only ``vocabulary`` is not an option but the features of a model. Besides a file, the path may
    be what ``takes`` says: "folders", "patterns" (such as ``faces/*.png``), "standard input" (``-``, and FIFOs).
    ``needs`` is an optional library, ``extra`` the extra of onmf that installs it.
    """

    def record(opener: Opener) -> Opener:
        for known in _registry.values():
            taken = {name, *suffixes} & {known.name, *known.suffixes}
            # The same opener once more is a notebook cell run again or a module reloaded: the newer one counts.
            if taken and _identity(known.name, known.opener) != _identity(name, opener):
                raise ValueError(f"the scheme {known.name} already stands for {min(taken)}; choose another name.")
        _, *rest = inspect.signature(opener, eval_str=True).parameters.values()
        options = {each.name: KINDS.get(each.annotation, object) for each in rest if each.name != "vocabulary"}
        if object in options.values():
            raise TypeError(f"{name}: annotate every option as int or str or list[str].")
        _registry[name] = Scheme(name, opener, tuple(suffixes), options, frozenset(takes), needs, extra)
        return opener

    return record


def schemes() -> list[Scheme]:
    """All registered schemes, by name."""
    return [_registry[name] for name in sorted(_registry)]


def _identity(name: str, opener: Callable[..., Source]) -> tuple[str, str, str]:
    return name, opener.__module__, opener.__qualname__
