"""From ``SCHEME:PATH?OPTION=VALUE``, or a path whose suffix tells the scheme, to a source."""

from __future__ import annotations

import csv
import glob
import inspect
from pathlib import Path
from typing import Any

from onmf.streams.base import Source, SourceError
from onmf.streams.pipes import is_pipe, name_of
from onmf.streams.registry import Scheme, schemes
from onmf.streams.sniffing import refuse_all_but_texts


def path_of(text: str | Path) -> Path:
    """The file or folder that a text names."""
    return _parsed(str(text))[1]


def open_source(text: str | Path, vocabulary: list[str] | None = None) -> Source:
    """The source that a text names, as ``onmf fit`` takes it.

    ``vocabulary``, the features of a model, is passed on to schemes that would otherwise choose their own.
    """
    scheme, path, options = _parsed(str(text))
    values = _values(str(text), scheme, options)
    _require_place(scheme, path)
    if vocabulary is not None and "vocabulary" in inspect.signature(scheme.opener).parameters:
        values["vocabulary"] = vocabulary
    scheme.require_library()
    if str(text).partition("?")[0] == "-":
        refuse_all_but_texts()
    return scheme.opener(path, **values)


def _parsed(text: str) -> tuple[Scheme, Path, dict[str, str]]:
    """Scheme, path and options. A file of exactly that name needs no scheme and has no options."""
    path, _, tail = (text, "", "") if Path(text).exists() else text.rpartition("?")
    if not path or ("=" not in tail and "." in tail):
        path, tail = text, ""  # no options, though perhaps a pattern such as images:faces/a?.png
    name, colon, rest = path.partition(":")
    known = {scheme.name: scheme for scheme in schemes()}
    if colon and name in known and not Path(path).exists():
        scheme, path = known[name], rest
    else:
        scheme = _by_suffix(path)
    options = {}
    for part in filter(None, tail.split("&")):
        name, _, value = part.partition("=")
        if not value:
            raise SourceError(
                f"{text}: {part!r} is not an option; write NAME=VALUE after the question mark, with & between options."
            )
        options[name] = value
    return scheme, Path(path).expanduser(), options


def _by_suffix(path: str) -> Scheme:
    suffix = Path(path).suffix.lower()
    for scheme in schemes():
        if suffix in scheme.suffixes or (path == "-" and scheme.name == "text"):
            return scheme
    known = ", ".join(f"{scheme.name}:" for scheme in schemes())
    name, colon, _ = path.partition(":")
    if colon and not Path(path).exists():
        raise SourceError(f"{path}: there is no scheme {name!r}; choose one of {known} as in csv:table.txt.")
    what = "is a directory" if Path(path).is_dir() else "does not tell its format by its suffix"
    raise SourceError(f"{path} {what}; put a scheme before it, one of {known} as in csv:{path}.")


def _values(text: str, scheme: Scheme, options: dict[str, str]) -> dict[str, Any]:
    """The options as the opener wants them."""
    for name, value in options.items():
        if name not in scheme.options:
            has = ", ".join(scheme.options) or "none"
            raise SourceError(f"{text}: {scheme.name} has no option {name!r}; it has {has}.")
        if scheme.options[name] is int and not value.isdecimal():
            raise SourceError(f"{text}: {name} must be a whole number, got {value!r}.")
    try:
        inspect.signature(scheme.opener).bind(text, **options)
    except TypeError as error:
        needed = "&".join(f"{name}=..." for name in scheme.options)
        raise SourceError(f"{text}: {error}; write {scheme.name}:PATH?{needed}.") from None
    return {name: _value(scheme.options[name], value) for name, value in options.items()}


def _value(kind: type, text: str) -> Any:
    """A list is names with commas between them; one that holds a comma is quoted as in tables."""
    return next(csv.reader([text], skipinitialspace=True)) if kind is list else kind(text)


def _require_place(scheme: Scheme, path: Path) -> None:
    """Refuse a path that is not there, or is a folder where the scheme takes none."""
    if is_pipe(path):
        if "standard input" in scheme.takes:
            return
        those = ", ".join(f"{each.name}:" for each in schemes() if "standard input" in each.takes)
        raise SourceError(
            f"{name_of(path)} can be read only from front to back, which is not enough for {scheme.name}; write it to "
            f"a file first, or put one of {those} before it."
        )
    if path.is_dir() and "folders" not in scheme.takes:
        those = ", ".join(f"{each.name}:" for each in schemes() if "folders" in each.takes)
        raise SourceError(f"{path} is a directory, which {scheme.name} does not read; put one of {those} before it.")
    if not path.exists() and not ("patterns" in scheme.takes and glob.has_magic(str(path))):
        raise SourceError(f"{path} does not exist; give a file or folder of samples.")
