"""From a word on the command line to a source: SCHEME:PATH?OPTION=VALUE, or a path whose ending tells the scheme."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onmf.streams import audio, images, parquet
from onmf.streams.arrays import npy, npz
from onmf.streams.base import Source, SourceError
from onmf.streams.images import pictures
from onmf.streams.stored import h5ad, hdf5, zarr
from onmf.streams.tables import Table
from onmf.streams.text import texts


def _csv(path: Path, header: str | None = None) -> Source:
    return Table(path, ",", header)


def _tsv(path: Path, header: str | None = None) -> Source:
    return Table(path, "\t", header)


def _columns(kind: str) -> Callable[[Path], Source]:
    return lambda path: parquet.Columns(path, kind)


# What opens a scheme, and the options that it takes: whole numbers or texts.
SCHEMES: dict[str, tuple[Callable[..., Source], dict[str, type]]] = {
    "npy": (npy, {}),
    "npz": (npz, {}),
    "csv": (_csv, {"header": str}),
    "tsv": (_tsv, {"header": str}),
    "parquet": (_columns("parquet"), {}),
    "feather": (_columns("feather"), {}),
    "arrow": (_columns("ipc"), {}),
    "zarr": (zarr, {"name": str}),
    "hdf5": (hdf5, {"name": str}),
    "h5ad": (h5ad, {"layer": str}),
    "images": (pictures, {"size": str, "colour": str}),
    "audio": (audio.sounds, {"window": int, "hop": int}),
    "text": (texts, {"field": str, "words": int, "hashed": int}),
}
SUFFIXES = {
    f".{scheme}": scheme for scheme in ("npy", "npz", "csv", "tsv", "parquet", "feather", "arrow", "zarr", "h5ad")
}
SUFFIXES |= {".h5": "hdf5", ".hdf5": "hdf5", ".txt": "text", ".jsonl": "text", ".ndjson": "text"}
SUFFIXES |= dict.fromkeys(audio.SUFFIXES, "audio") | dict.fromkeys(images.SUFFIXES, "images")
ANYWHERE = {"images", "audio", "text"}  # folders, patterns and standard input


def path_of(text: str | Path) -> Path:
    """The file or folder that a text names."""
    return Path(_parsed(str(text))[1]).expanduser()


def open_source(text: str | Path, vocabulary: list[str] | None = None) -> Source:
    """The source that a text names, as ``onmf fit`` takes it.

    ``vocabulary``, where it names texts, are the words to count, in place of ``words=``.
    """
    scheme, path, options = _parsed(str(text))
    opener, known = SCHEMES[scheme]
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise SourceError(f"{text}: {scheme} has no option {name!r}; {has}.")
        if known[name] is int and not value.isdecimal():
            raise SourceError(f"{text}: {name} must be a whole number, got {value!r}.")
        values[name] = known[name](value)
    if scheme == "text" and "words" in values and vocabulary is not None:
        values |= {"words": None, "vocabulary": vocabulary}
    if scheme in ANYWHERE:
        return opener(path, **values)
    place = Path(path).expanduser()
    if not place.exists():
        raise SourceError(f"{path} does not exist; give a file or folder of samples.")
    if place.is_dir() and scheme not in {"parquet", "feather", "arrow", "zarr"}:
        raise SourceError(
            f"{path} is a directory; for a folder of pictures write images:{path}, for texts text:{path}."
        )
    return opener(place, **values)


def _parsed(text: str) -> tuple[str, str, dict[str, str]]:
    """Scheme, path and options. A file that is there by just that name needs no scheme and has no options."""
    path, _, tail = (text, "", "") if Path(text).exists() else text.rpartition("?")
    if not path or ("=" not in tail and "." in tail):
        path, tail = text, ""  # no options, though perhaps a pattern such as images:faces/a?.png
    scheme, colon, rest = path.partition(":")
    if path == "-":
        scheme = "text"
    elif colon and scheme in SCHEMES and not Path(path).exists():
        path = rest
    else:
        scheme = SUFFIXES.get(Path(path).suffix.lower(), "")
    if not scheme:
        what = "is a directory" if Path(path).is_dir() else "does not tell its format by its ending"
        known = ", ".join(f"{each}:" for each in SCHEMES)
        raise SourceError(f"{path} {what}; put a scheme before it: {known} as in images:{path}.")
    options = {}
    for part in filter(None, tail.split("&")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise SourceError(
                f"{text}: write options as NAME=VALUE after the question mark, with & between; got {part!r}."
            )
        options[name] = value
    return scheme, path, options
