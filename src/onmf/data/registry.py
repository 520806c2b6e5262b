"""Schemes, the kinds of data that ``SCHEME:PATH?OPTION=VALUE`` can name: each registers itself in its own file."""

from __future__ import annotations

import csv
import importlib.util
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from onmf.data.base import Source, SourceError

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
class Spec:
    """How a source makes features of its data, which a model remembers so that other data are read alike.

    It holds the scheme, those options that shape the features, and the names of the features;
    ``open_source(text, like=spec)`` applies it. Options are plain: texts, numbers, yes or no (``bool``), and lists of
    texts or of numbers.
    """

    scheme: str | None = None  # None: not opened by a name
    options: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not (self.scheme is None or isinstance(self.scheme, str)) or not isinstance(self.options, Mapping):
            raise ValueError(f"its source has the scheme {self.scheme!r} and the options {self.options!r}")
        for name, value in self.options.items():
            parts = value if isinstance(value, list) else [value]
            if not isinstance(name, str) or not all(map(_is_plain, parts)):
                raise ValueError(f"the option {name!r} of its source is neither texts nor numbers")

    def applied(self, where: str, scheme: str, shapes: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options ``given`` for data of a scheme, and this spec's for the rest of those in ``shapes``.

        An option that is given and differs raises an error. If the schemes differ, only the options that both have are
        compared and applied.
        """
        for name, value in given.items():
            if name not in self.options and not (scheme == self.scheme and name in shapes):
                continue
            if self.options.get(name) != value:
                kept = f"{name}={spelt(self.options[name])}" if name in self.options else f"no {name}="
                raise SourceError(
                    f"{where}: {name}={spelt(value)} contradicts the model, which was learnt with {kept}; leave it "
                    "out, since the model applies its own, or learn another model."
                )
        return {name: value for name, value in self.options.items() if name in shapes} | dict(given)

    @property
    def picture(self) -> tuple[int, ...] | None:
        """(height, width) or (height, width, 3), if a sample is a picture; ``row.reshape`` brings it back."""
        size = self.options.get("size")
        if self.scheme != "images" or not isinstance(size, str):
            return None
        width, _, height = size.partition("x")
        return int(height), int(width), *((3,) if self.options.get("colour") == "rgb" else ())

    def __str__(self) -> str:
        """Return ``audio, window=1024, hop=512``, without lists of numbers and long lists."""
        short = [name for name, value in self.options.items() if not isinstance(value, list) or _is_short(value)]
        return ", ".join([str(self.scheme), *(f"{name}={spelt(self.options[name])}" for name in sorted(short))])


@dataclass(frozen=True)
class Scheme:
    """A registered kind of data, and the options that its opener takes."""

    name: str
    opener: Callable[..., Source]
    suffixes: tuple[str, ...]
    options: dict[str, type]  # int, float, str, bool or list (of texts)
    defaults: dict[str, Any]  # of the options that need not be given
    groups: dict[Any, list[str]]  # dataclasses of options, and the names of these
    takes: frozenset[str]
    needs: str | None
    extra: str | None
    shapes: frozenset[str] = frozenset()

    def require_library(self) -> None:
        """Raise an error if the optional library is not installed."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            cure = f"onmf[{self.extra}]" if self.extra else self.needs
            raise ModuleNotFoundError(f"{self.name} needs {self.needs}; install {cure}.")

    def open(self, path: Path, values: Mapping[str, Any], like: Spec | None) -> Source:
        """Open the source with these options, and tell it how it shapes its features."""
        _, *parameters = inspect.signature(self.opener, eval_str=True).parameters.values()
        given = dict(values)
        for each in parameters:
            if (group := each.annotation) in self.groups:
                given[each.name] = group(**{name: given.pop(name) for name in self.groups[group] if name in given})
            elif each.name == "like":
                given["like"] = like
        source = self.opener(path, **given)
        shaping = {name: values.get(name, self.defaults.get(name)) for name in sorted(self.shapes)}
        shaping = {name: value for name, value in shaping.items() if value is not None} | dict(source.chosen)
        names = None if source.feature_names is None else tuple(source.feature_names)
        source.spec = Spec(self.name, shaping, names)
        return source


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
    no) or ``list[str]`` (between commas), or a dataclass whose fields are such options. Options that ``shapes`` names
    shape the features: a model remembers them, and data for it are opened with the same. What cannot be written as an
    option, such as a vocabulary, is found in the model's ``Spec``, which an opener with a keyword ``like`` is given, or
    None. Besides a file, the path may be what ``takes`` says: "folders", "patterns" (such as ``faces/*.png``),
    "standard input" (``-``, FIFOs). ``needs`` is an optional library, ``extra`` the extra of onmf that installs it.
    """

    def record(opener: Opener) -> Opener:
        for known in _registry.values():
            taken = {name, *suffixes} & {known.name, *known.suffixes}
            # The same opener once more is a notebook cell run again or a module reloaded: the newer one counts.
            if taken and _identity(known.name, known.opener) != _identity(name, opener):
                raise ValueError(f"the scheme {known.name} already stands for {min(taken)}; choose another name.")
        _, *rest = inspect.signature(opener, eval_str=True).parameters.values()
        groups: dict[Any, list[str]] = {}
        parameters: list[inspect.Parameter] = []
        for each in rest:
            group = each.annotation
            if isinstance(group, type) and is_dataclass(group):
                own = list(inspect.signature(group, eval_str=True).parameters.values())
                groups[group] = [option.name for option in own]
                parameters += own
            elif each.name != "like":
                parameters.append(each)
        options = {each.name: KINDS.get(each.annotation, object) for each in parameters}
        if object in options.values():
            raise TypeError(f"{name}: annotate every option as int, float, str, bool or list[str].")
        if unknown := set(shapes) - set(options):
            raise TypeError(f"{name}: {min(unknown)} cannot shape the features, since it is no option.")
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        about = name, opener, tuple(suffixes), options, defaults, groups
        _registry[name] = Scheme(*about, frozenset(takes), needs, extra, frozenset(shapes))
        return opener

    return record


def schemes() -> list[Scheme]:
    """Return all registered schemes, by name."""
    return [_registry[name] for name in sorted(_registry)]


def _identity(name: str, opener: Callable[..., Source]) -> tuple[str, str, str]:
    return name, opener.__module__, opener.__qualname__


def read_value(kind: type, text: str) -> Any:
    """Return an option of that kind from its text, or raise ``ValueError``."""
    if kind is str:
        return text
    if kind is list and (texts := _between_commas(text)):
        return texts
    if kind is bool and text in ("yes", "no"):
        return text == "yes"
    if kind in (int, float) and text.isdecimal():
        return int(text)
    if kind is float and math.isfinite(number := float(text)):
        return number
    raise ValueError(text)


def _between_commas(text: str) -> list[str]:
    """Return the texts between commas; one that holds a comma is quoted."""
    try:
        return next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:  # a line end that is not quoted
        return []


def is_value(kind: type, value: Any) -> bool:
    """Could ``read_value`` have returned this value?"""
    if kind is list:
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    if kind in (int, float):
        return (type(value) is int and value >= 0) or (kind is float and type(value) is float)
    return type(value) is kind


def spelt(value: Any) -> str:
    """Return an option's value as it is written after the question mark."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(f'"{part}"' if "," in str(part) else str(part) for part in value)
    return str(value)


def _is_short(values: list[Any]) -> bool:
    return len(values) < 10 and all(isinstance(value, str) for value in values)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
