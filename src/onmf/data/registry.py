"""Schemes, the kinds of data that a text ``SCHEME:PATH?OPTION=VALUE`` can name, and the opening of such data.

Each scheme registers itself in its own file.
"""

import csv
import glob
import importlib.util
import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from onmf.data.base import Source, SourceError
from onmf.data.budget import MEMORY, within
from onmf.data.columns import spelt
from onmf.data.files import LINKS, matching, opening
from onmf.data.pipes import is_pipe, name_of, require_texts

Opener = TypeVar("Opener", bound=Callable[..., Source])
# The annotations of options, and their types: an int | float that is written as a whole number stays one, a count.
REQUIRED: dict[Any, type] = {int: int, float: float, int | float: float, str: str, bool: bool, list[str]: list}
KINDS = REQUIRED | {annotation | None: kind for annotation, kind in REQUIRED.items()}
MEANT: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "yes or no",
    str: "text",
    list: "comma-separated names, on one line",
}

NO_SUCH = "no such file or folder: {path}."
COMMON = (LINKS, MEMORY)  # options of every scheme, of which openers are not told

_registry: "dict[str, Scheme]" = {}


@dataclass(frozen=True)
class Spec:
    """The way a source makes features of its data, which a model remembers so that other data are read alike.

    Parameters
    ----------
    scheme : str or None
        The scheme; None: the data were not opened by a name.
    options : Mapping[str, Any]
        The options that shape the features: texts, numbers, ``bool``, and lists of texts or of numbers.
    names : tuple[str, ...] or None
        The names of the features.
    grows : bool
        Whether ``open_source(text, like=spec)`` adds features that only those data have.

    Examples
    --------
    >>> spec = onmf.data.texts(["the cat", "a dog"], min_df=1).spec
    >>> spec.scheme, spec.names
    ('text', ('cat', 'dog', 'the'))
    >>> onmf.data.texts(["dog and dog"], like=spec).n_features
    3
    """

    scheme: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    grows: bool = False

    def __post_init__(self) -> None:
        if not (self.scheme is None or isinstance(self.scheme, str)) or not isinstance(self.options, Mapping):
            raise ValueError(f"its source has the scheme {self.scheme!r} and the options {self.options!r}")
        for name, value in self.options.items():
            parts = value if isinstance(value, list) else [value]
            plain = all(
                isinstance(part, (str, int)) or (isinstance(part, float) and math.isfinite(part)) for part in parts
            )
            if not isinstance(name, str) or not plain:
                raise ValueError(f"the option {name!r} of its source is neither texts nor numbers")

    def require_sound(self, n_features: int) -> None:
        """Raise an error for options that no source of this scheme and number of features has.

        Nothing is known of a scheme that is not registered here.
        """
        scheme = _registry.get(self.scheme or "")
        if scheme is None:
            return
        for name in self.options.keys() & scheme.options.keys():
            if not _is_value(kind := scheme.options[name], value := self.options[name]):
                raise ValueError(f"its source has {name}={value!r}, where {self.scheme} takes {MEANT[kind]}")
        if scheme.count_features is not None and (found := scheme.count_features(**self.options)) != n_features:
            raise ValueError(f"its source has {found} features, its dictionary {n_features}")

    @property
    def picture(self) -> tuple[int, ...] | None:
        """The shape (height, width) or (height, width, 3) of samples that are pictures; ``row.reshape`` restores it."""
        size = self.options.get("size")
        if self.scheme != "images" or not isinstance(size, str):
            return None
        width, _, height = size.partition("x")
        return int(height), int(width), *((3,) if self.options.get("colour") == "rgb" else ())

    def __str__(self) -> str:
        """Return ``audio, window=1024, hop=512``, without lists of numbers and long lists."""
        short = {
            name: value
            for name, value in self.options.items()
            if not isinstance(value, list) or (len(value) < 10 and all(isinstance(part, str) for part in value))
        }
        return ", ".join([str(self.scheme), *(f"{name}={spelt(short[name])}" for name in sorted(short))])


@dataclass(frozen=True)
class Scheme:
    """A registered kind of data, and the options that its opener takes."""

    name: str
    opener: Callable[..., Source]
    suffixes: tuple[str, ...]
    options: dict[str, type]  # int, float, str, bool or list (of texts)
    defaults: dict[str, Any]  # of the options that need not be given
    takes: frozenset[str]
    needs: str | None
    extra: str | None
    feature_options: frozenset[str] = frozenset()
    count_features: Callable[..., int] | None = None
    holds: Callable[[Path], bool] | None = None

    def require_library(self) -> None:
        """Raise an error if the optional library is not installed."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            cure = f"onmf[{self.extra}]" if self.extra else self.needs
            raise ModuleNotFoundError(f"{self.name} needs {self.needs}; install {cure}.")

    def open(self, path: Path, values: Mapping[str, Any], like: Spec | None) -> Source:
        """Open the source with these options, and tell it how it shapes its features."""
        given: dict[str, Any] = {}
        for each in _parameters(self.opener):
            if isinstance(each.annotation, type) and is_dataclass(each.annotation):
                own = {option.name for option in _options(each)}
                given[each.name] = each.annotation(**{name: values[name] for name in own & values.keys()})
            elif each.name == "like":
                given["like"] = like
            elif each.name in values:
                given[each.name] = values[each.name]
        source = self.opener(path, **given)
        shaping = {name: values.get(name, self.defaults.get(name)) for name in sorted(self.feature_options)}
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
    feature_options: Collection[str] = (),
    count_features: Callable[..., int] | None = None,
    holds: Callable[[Path], bool] | None = None,
) -> Callable[[Opener], Opener]:
    """Make the decorated function the opener of ``name:PATH``, and of files that end in one of ``suffixes``.

    Its first argument is the path. The others are options, annotated as ``int``, ``float``, ``str``, ``bool`` (yes or
    no) or ``list[str]`` (between commas), or a dataclass whose fields are such options. What cannot be written as an
    option, such as a vocabulary, is found in the model's ``Spec``, which an opener with a keyword ``like`` is given, or
    None.

    Parameters
    ----------
    name : str
        The scheme.
    suffixes : collection of str
        Ends of file names that need no scheme.
    takes : collection of {"folders", "patterns", "standard input"}
        What the path may be besides a file; patterns are as in ``faces/*.png``, standard input is ``-`` or a FIFO.
    needs : str or None
        An optional library.
    extra : str or None
        The extra of onmf that installs it.
    feature_options : collection of str
        Options that shape the features: a model remembers them, and data for it are opened with the same.
    count_features : callable or None
        Computes the number of features where those options alone decide it, or raises an error for values that no data
        have.
    holds : callable or None
        Recognises a file or folder that needs no scheme, whatever its suffix.

    Returns
    -------
    callable
        The decorator.

    Examples
    --------
    >>> @onmf.data.register("doubled", suffixes=(".doubled.npy",))
    ... def doubled(path):
    ...     return onmf.data.Rows(2 * np.load(path))
    >>> np.save("x.npy", X)
    >>> onmf.data.open_source("doubled:x.npy").n_samples
    60
    """

    def record(opener: Opener) -> Opener:
        for other in _registry.values():
            taken = {name, *suffixes} & {other.name, *other.suffixes}
            # The same opener once more is a notebook cell run again or a module reloaded: the newer one counts.
            if taken and _identity(other.name, other.opener) != _identity(name, opener):
                raise ValueError(f"the scheme {other.name} already stands for {min(taken)}; choose another name.")
        parameters = [option for each in _parameters(opener) for option in _options(each)]
        options = {each.name: KINDS.get(each.annotation, object) for each in parameters}
        if object in options.values():
            raise TypeError(f"{name}: annotate every option as int, float, str, bool or list[str].")
        if taken := set(COMMON) & set(options):
            raise TypeError(f"{name}: every scheme has an option {min(taken)}; choose another name.")
        if unknown := set(feature_options) - set(options):
            raise TypeError(f"{name}: {min(unknown)} cannot shape the features: it is not an option.")
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        about = name, opener, tuple(suffixes), options, defaults, frozenset(takes), needs, extra
        _registry[name] = Scheme(*about, frozenset(feature_options), count_features, holds)
        return opener

    return record


def _parameters(opener: Callable[..., Source]) -> list[inspect.Parameter]:
    """Return what an opener takes besides the path."""
    _, *rest = inspect.signature(opener, eval_str=True).parameters.values()
    return rest


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options that a parameter of an opener stands for."""
    if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
        return list(inspect.signature(parameter.annotation, eval_str=True).parameters.values())
    return [] if parameter.name == "like" else [parameter]


def schemes() -> list[Scheme]:
    """Return all registered schemes, by name."""
    return [_registry[name] for name in sorted(_registry)]


def _identity(name: str, opener: Callable[..., Source]) -> tuple[str, str, str]:
    return name, opener.__module__, opener.__qualname__


def path_of(text: str | Path) -> Path:
    """Return the file or folder that a text names."""
    return _parsed(str(text))[1]


def options_of(text: str) -> dict[str, str]:
    """Return the options in a text, as they are written."""
    return _parsed(text)[2]


def open_source(text: str | Path, like: Spec | None = None, grow: bool = False) -> Source:
    """Return the source that a text names, as ``onmf fit`` takes it.

    Every scheme takes ``memory=500MB``, which reading a batch may take, and ``links=follow``.

    Parameters
    ----------
    text : str or Path
        ``PATH``, ``SCHEME:PATH`` or ``SCHEME:PATH?OPTION=VALUE&OPTION=VALUE``.
    like : Spec or None
        The ``source_`` of a model, with whose vocabulary, window, size, columns, ... features are made. An option that
        is given and contradicts it raises an error.
    grow : bool
        Whether new words or columns come after the model's features, for ``fit(..., resume_from=model)`` to add.

    Returns
    -------
    Source
        The samples, which are read in batches.

    Examples
    --------
    >>> np.savetxt("x.csv", X, delimiter=",")
    >>> onmf.data.open_source("csv:x.csv?header=no").n_features
    30
    """
    like = replace(like, grows=True) if grow and like is not None else like
    scheme, path, options = _parsed(str(text))
    values = _values(str(text), scheme, options)
    if like is not None:
        values = _likened(str(text), scheme, values, like)
    for name in scheme.options:
        if name not in values and name not in scheme.defaults:
            needed = "&".join(f"{each}=..." for each in scheme.options if each not in scheme.defaults)
            raise SourceError(f"{text}: {scheme.name} needs the option {name}; write {scheme.name}:PATH?{needed}.")
    _require_place(scheme, path)
    scheme.require_library()
    with opening(options.get(LINKS)), within(options.get(MEMORY)):
        if str(text).partition("?")[0] == "-":
            require_texts()
        source = scheme.open(path, values, like)
    source.opened = None if is_pipe(path) else _text(scheme, path, options)
    return source


def each_file(text: str | Path) -> list[str]:
    """Return a text for each file of a folder or pattern if the scheme takes only single files; else the text itself.

    Paths in it are absolute.
    """
    scheme, path, options = _parsed(str(text))
    several = path.is_dir() and "folders" not in scheme.takes
    several |= glob.has_magic(str(path)) and not path.exists() and "patterns" not in scheme.takes
    with opening(options.get(LINKS)):
        files = matching(path, scheme.suffixes) if several else [path]
    return [_text(scheme, file, options) for file in files]


def _text(scheme: Scheme, path: Path, options: dict[str, str]) -> str:
    tail = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{scheme.name}:{path.absolute()}" + (f"?{tail}" if tail else "")


def _parsed(text: str) -> tuple[Scheme, Path, dict[str, str]]:
    """Return scheme, path and options. A file of exactly that name needs no scheme and has no options."""
    path, _, tail = (text, "", "") if os.path.exists(text) else text.rpartition("?")
    if not path or ("=" not in tail and "." in tail):
        path, tail = text, ""  # no options, though perhaps a pattern such as images:faces/a?.png
    name, colon, rest = path.partition(":")
    by_name = {scheme.name: scheme for scheme in schemes()}
    if not (rest if colon and name in by_name else path):
        raise SourceError(f"{text!r} names no file; give a file or folder of samples.")
    if colon and name in by_name and not os.path.exists(path):
        scheme, path = by_name[name], rest
    else:
        scheme = _by_suffix(path)
    options = {}
    for part in filter(None, tail.split("&")):
        name, _, value = part.partition("=")
        if not value:
            raise SourceError(
                f"{text}: {part!r} is not an option; write NAME=VALUE after the question mark, with & between options."
            )
        if name in options:
            raise SourceError(f"{text}: the option {name} is given twice; write it once.")
        options[name] = value
    try:
        return scheme, Path(path).expanduser(), options
    except RuntimeError:
        raise SourceError(f"{path}: there is no such home directory; write the path in full.") from None


def _by_suffix(path: str) -> Scheme:
    for scheme in schemes():
        if scheme.holds is not None and scheme.holds(Path(path)):
            return scheme
    for scheme in schemes():
        if path.lower().endswith(scheme.suffixes) or (path == "-" and scheme.name == "text"):
            return scheme
    names = ", ".join(f"{scheme.name}:" for scheme in schemes())
    name, colon, _ = path.partition(":")
    if colon and not os.path.exists(path):
        raise SourceError(f"{path}: there is no scheme {name!r}; choose one of {names} as in csv:table.txt.")
    if not os.path.exists(path) and not glob.has_magic(path) and path != "-":
        raise SourceError(NO_SUCH.format(path=path))
    what = "is a directory" if Path(path).is_dir() else "has a suffix that names no known format"
    raise SourceError(f"{path} {what}; put a scheme before it, one of {names} as in csv:{path}.")


def _values(text: str, scheme: Scheme, options: dict[str, str]) -> dict[str, Any]:
    """Return the options as the opener wants them, without those that every scheme has."""
    values = {}
    for name, value in options.items():
        if name in COMMON:
            continue
        if name not in scheme.options:
            has = ", ".join([*scheme.options, *COMMON])
            raise SourceError(f"{text}: {scheme.name} has no option {name!r}; it has {has}.")
        kind = scheme.options[name]
        try:
            values[name] = _value(kind, value)
        except ValueError:
            raise SourceError(f"{text}: {name} must be {MEANT[kind]}, got {value!r}.") from None
    return values


def _value(kind: type, text: str) -> Any:
    """Return an option of that kind from its text, or raise ``ValueError``."""
    if kind is str:
        return text
    if kind is list:
        try:
            if texts := next(csv.reader([text], skipinitialspace=True), []):  # one that holds a comma is quoted
                return texts
        except csv.Error:  # a line end that is not quoted
            raise ValueError(text) from None
    if kind is bool and text in ("yes", "no"):
        return text == "yes"
    if kind in (int, float) and text.isdecimal():
        return int(text)
    if kind is float and math.isfinite(number := float(text)):
        return number
    raise ValueError(text)


def _is_value(kind: type, value: Any) -> bool:
    """Return whether ``_value`` could have returned this value."""
    if kind is list:
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    if kind in (int, float):
        return (type(value) is int and value >= 0) or (kind is float and type(value) is float)
    return type(value) is kind


def _likened(text: str, scheme: Scheme, given: dict[str, Any], like: Spec) -> dict[str, Any]:
    """Return the options that are given, and the model's for the rest of those that shape the features.

    An option that is given and differs raises an error. If the schemes differ, only the options that both have are
    compared and applied. Columns of a table are found by the names of the model's features.
    """
    shaping, learnt = scheme.feature_options, dict(like.options)
    names = None if like.names is None else list(like.names)
    if names is not None and scheme.options.get("columns") is list and not like.grows:
        shaping, learnt = shaping | {"columns"}, learnt | {"columns": names}
    elif like.grows:
        learnt.pop("columns", None)
    for option in ("columns", "features"):
        if names is not None and sorted(given.get(option, ())) == sorted(names):
            given = given | {option: names}
    for name, value in given.items():
        compared = name in learnt or (scheme.name == like.scheme and name in shaping)
        if compared and learnt.get(name) != value:
            kept = f"{name}={spelt(learnt[name])}" if name in learnt else f"no {name}="
            raise SourceError(
                f"{text}: {name}={spelt(value)} contradicts the model, which was learnt with {kept}; leave it "
                "out, since the model applies its own, or learn another model."
            )
    values = {name: value for name, value in learnt.items() if name in shaping} | given
    for name, value in values.items():
        if not _is_value(kind := scheme.options[name], value):
            raise SourceError(f"{text}: the model has {name}={spelt(value)}, where {scheme.name} takes {MEANT[kind]}.")
    return values


def _require_place(scheme: Scheme, path: Path) -> None:
    """Raise an error if there is nothing at the path, or a folder or pipe that the scheme does not take."""
    if is_pipe(path):
        if "standard input" in scheme.takes:
            return
        raise SourceError(
            f"{name_of(path)} can be read only from front to back, which is not enough for {scheme.name}; write it to "
            f"a file first, or put one of {_that_take('standard input')} before it."
        )
    if path.is_dir() and "folders" not in scheme.takes:
        raise SourceError(
            f"{path} is a directory, which {scheme.name} does not read; put one of {_that_take('folders')} before it."
        )
    if not path.exists() and not ("patterns" in scheme.takes and glob.has_magic(str(path))):
        raise SourceError(NO_SUCH.format(path=path))


def _that_take(place: str) -> str:
    return ", ".join(f"{each.name}:" for each in schemes() if place in each.takes)
