"""Open the source that ``SCHEME:PATH?OPTION=VALUE`` names, or a path whose suffix tells the scheme."""

from __future__ import annotations

import glob
from dataclasses import replace
from pathlib import Path
from typing import Any

from onmf.data.base import Source, SourceError, matching
from onmf.data.pipes import is_pipe, name_of, require_texts
from onmf.data.registry import MEANT, Scheme, Spec, is_value, read_value, schemes, spelt


def path_of(text: str | Path) -> Path:
    """Return the file or folder that a text names."""
    return _parsed(str(text))[1]


def open_source(text: str | Path, like: Spec | None = None) -> Source:
    """Return the source that a text names, as ``onmf fit`` takes it.

    ``like``, the ``source_`` of a model, makes the features those of the model: with the same vocabulary, window,
    size, columns, ... An option that is given and contradicts it raises an error.
    """
    scheme, path, options = _parsed(str(text))
    values = _values(str(text), scheme, options)
    if like is not None:
        values = _likened(str(text), scheme, values, like)
    for name in scheme.options:
        if name not in values and name not in scheme.defaults:
            needed = "&".join(f"{each}=..." for each in scheme.options)
            raise SourceError(f"{text}: missing a required argument: {name!r}; write {scheme.name}:PATH?{needed}.")
    _require_place(scheme, path)
    scheme.require_library()
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
    files = matching(path, scheme.suffixes) if several else [path]
    return [_text(scheme, file, options) for file in files]


def _text(scheme: Scheme, path: Path, options: dict[str, str]) -> str:
    tail = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{scheme.name}:{path.absolute()}" + (f"?{tail}" if tail else "")


def _parsed(text: str) -> tuple[Scheme, Path, dict[str, str]]:
    """Return scheme, path and options. A file of exactly that name needs no scheme and has no options."""
    path, _, tail = (text, "", "") if Path(text).exists() else text.rpartition("?")
    if not path or ("=" not in tail and "." in tail):
        path, tail = text, ""  # no options, though perhaps a pattern such as images:faces/a?.png
    name, colon, rest = path.partition(":")
    known = {scheme.name: scheme for scheme in schemes()}
    if not (rest if colon and name in known else path):
        raise SourceError(f"{text!r} names no file; give a file or folder of samples.")
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
        if name in options:
            raise SourceError(f"{text}: the option {name} is given twice; write it once.")
        options[name] = value
    try:
        return scheme, Path(path).expanduser(), options
    except RuntimeError:
        raise SourceError(f"{path}: there is no such home directory; write the path in full.") from None


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
    """Return the options as the opener wants them."""
    values = {}
    for name, value in options.items():
        if name not in scheme.options:
            has = ", ".join(scheme.options) or "none"
            raise SourceError(f"{text}: {scheme.name} has no option {name!r}; it has {has}.")
        kind = scheme.options[name]
        try:
            values[name] = read_value(kind, value)
        except ValueError:
            raise SourceError(f"{text}: {name} must be {MEANT[kind]}, got {value!r}.") from None
    return values


def _likened(text: str, scheme: Scheme, given: dict[str, Any], like: Spec) -> dict[str, Any]:
    """Return the options, and those that shape the model's features; columns of a table are found by their names."""
    shapes, names = scheme.shapes, None if like.names is None else list(like.names)
    if names is not None and scheme.options.get("columns") is list:
        shapes, like = shapes | {"columns"}, replace(like, options={**like.options, "columns": names})
    for option in ("columns", "features"):
        if names is not None and sorted(given.get(option, ())) == sorted(names):
            given = given | {option: names}
    values = like.applied(text, scheme.name, shapes, given)
    for name, value in values.items():
        if not is_value(kind := scheme.options[name], value):
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
        raise SourceError(f"{path} does not exist; give a file or folder of samples.")


def _that_take(place: str) -> str:
    return ", ".join(f"{each.name}:" for each in schemes() if place in each.takes)
