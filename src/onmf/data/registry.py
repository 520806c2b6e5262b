"""Schemes, the kinds of data that ``SCHEME:PATH?OPTION=VALUE`` can name: each registers itself in its own file."""

from __future__ import annotations

import csv
import importlib.util
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from onmf.data.base import Source
from onmf.data.spec import Spec

Opener = TypeVar("Opener", bound=Callable[..., Source])
# How options are annotated, and what they are: an int | float stays whole if it is written so, and thus a count.
REQUIRED: dict[Any, type] = {int: int, float: float, int | float: float, str: str, bool: bool, list[str]: list}
KINDS = REQUIRED | {annotation | None: kind for annotation, kind in REQUIRED.items()}
MEANT: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "yes or no",
    str: "a text",
    list: "texts between commas, on one line",
}

_registry: dict[str, Scheme] = {}


@dataclass(frozen=True)
class Scheme:
    """What ``register`` was told of a scheme, and the options that its opener takes."""

    name: str
    opener: Callable[..., Source]
    suffixes: tuple[str, ...]
    options: dict[str, type]  # int, float, str, bool or list (of texts)
    takes: frozenset[str]
    needs: str | None
    extra: str | None
    shapes: frozenset[str] = frozenset()
    likens: bool = False  # does the opener take a Spec, as ``like``?

    def require_library(self) -> None:
        """Refuse to open anything without the optional library."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            cure = f"onmf[{self.extra}]" if self.extra else self.needs
            raise ModuleNotFoundError(f"{self.name} needs {self.needs}; install {cure}.")

    def spec(self, source: Source, values: Mapping[str, Any]) -> Spec:
        """How the source that the opener made of these options shapes its features."""
        parameters = inspect.signature(self.opener).parameters
        options = {name: values.get(name, parameters[name].default) for name in sorted(self.shapes)}
        options = {name: value for name, value in options.items() if value is not None} | dict(source.chosen)
        return Spec(self.name, options, None if source.feature_names is None else tuple(source.feature_names))


def register(
    name: str,
    suffixes: Collection[str] = (),
    *,
    takes: Collection[str] = (),
    needs: str | None = None,
    extra: str | None = None,
    shapes: Collection[str] = (),
) -> Callable[[Opener], Opener]:
    """Make the decorated function the opener of ``name:PATH``, and of files that end in one of ``suffixes``.

    Its first argument is the path. The others are options, annotated as ``int``, ``float``, ``str``, ``bool`` (yes or
    no) or ``list[str]`` (between commas). Those that ``shapes`` names shape the features: a model remembers them, and
    data for it are opened with the same. What cannot be written as an option, such as a vocabulary, is found in the
    model's ``Spec``, which an opener with a keyword ``like`` is given, or None. Besides a file, the path may be what
    ``takes`` says: "folders", "patterns" (such as ``faces/*.png``), "standard input" (``-``, FIFOs). ``needs`` is an
    optional library, ``extra`` the extra of onmf that installs it.
    """

    def record(opener: Opener) -> Opener:
        for known in _registry.values():
            taken = {name, *suffixes} & {known.name, *known.suffixes}
            # The same opener once more is a notebook cell run again or a module reloaded: the newer one counts.
            if taken and _identity(known.name, known.opener) != _identity(name, opener):
                raise ValueError(f"the scheme {known.name} already stands for {min(taken)}; choose another name.")
        _, *rest = inspect.signature(opener, eval_str=True).parameters.values()
        options = {each.name: KINDS.get(each.annotation, object) for each in rest if each.name != "like"}
        if object in options.values():
            raise TypeError(f"{name}: annotate every option as int, float, str, bool or list[str].")
        if unknown := set(shapes) - set(options):
            raise TypeError(f"{name}: {min(unknown)} cannot shape the features, since it is no option.")
        _registry[name] = Scheme(
            *(name, opener, tuple(suffixes), options, frozenset(takes), needs, extra),
            shapes=frozenset(shapes),
            likens=len(options) < len(rest),
        )
        return opener

    return record


def schemes() -> list[Scheme]:
    """All registered schemes, by name."""
    return [_registry[name] for name in sorted(_registry)]


def read_value(kind: type, text: str) -> Any:
    """An option of that kind from its text; ``ValueError`` if it is none."""
    if kind is str:
        return text
    if kind is list:
        return _texts(text)
    if kind is bool and text in ("yes", "no"):
        return text == "yes"
    if kind in (int, float) and text.isdecimal():
        return int(text)
    if kind is float and math.isfinite(number := float(text)):
        return number
    raise ValueError(text)


def _texts(text: str) -> list[str]:
    """Between commas; one that holds a comma is quoted."""
    try:
        found = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:  # a line end that is not quoted
        found = []
    if not found:
        raise ValueError(text)
    return found


def is_value(kind: type, value: Any) -> bool:
    """Is it what ``read_value`` could have given?"""
    if kind is list:
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    if kind in (int, float):
        return (type(value) is int and value >= 0) or (kind is float and type(value) is float)
    return type(value) is kind


def _identity(name: str, opener: Callable[..., Source]) -> tuple[str, str, str]:
    return name, opener.__module__, opener.__qualname__
