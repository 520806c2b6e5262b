"""Files that hold arrays and facts, and never code: safetensors with one JSON text in its metadata.

Writing is atomic: a reader finds the old file or the new one, never half of either.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from onmf._support.version import __version__

FORMAT = "onmf-model"
VERSION = 4


BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class ModelFileError(ValueError):
    """A model file that cannot be read or written; the message names the file and the reason."""


def damaged(path: str | Path, error: Exception) -> ModelFileError:
    """What to raise when reading ``path`` has led to ``error``: one sentence."""
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
    reason = " ".join(reason.split())[:300].rstrip(".")
    return ModelFileError(f"{path} is damaged, or not a model of onmf: {reason}.")


@contextlib.contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends well, and vanishes when it does not.

    A link is followed, and a file that is replaced keeps its permissions; what it was goes to ``previous``, if given.
    """
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path))
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(path.stat().st_mode if path.exists() else _mode_of_new_files())
        if previous is not None and path.exists():
            path.replace(previous)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    return f".onmf-{path.name[:100]}-"  # names have a limit


def clear_away(path: Path) -> None:
    """Remove what writers of ``path`` left beside it when they were killed; none may be at work."""
    path = path.resolve()
    random = "?" * 8  # mkstemp's: any more characters belong to a longer name, whose writer may well be at work
    for left in path.parent.glob(glob.escape(_prefix(path)) + random):
        left.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make the new name survive a loss of power too, on systems that can synchronise folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _mode_of_new_files() -> int:
    """What the umask gives an ordinary new file, unlike mkstemp's private mode."""
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write(
    path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any], previous: Path | None = None
) -> None:
    """Write arrays and JSON-able facts to a file, replacing it atomically; the old one goes to ``previous``."""
    metadata = {"format": FORMAT, "version": str(VERSION), "onmf": __version__, "facts": as_text(facts)}
    try:
        content = to_bytes({name: np.asarray(a, order="C") for name, a in arrays.items()}, metadata=metadata)
        with replacing(Path(path), previous) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ModelFileError(f"cannot write {path}: {error.strerror or error}.") from None
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:  # odd arrays, odd paths
        raise ModelFileError(f"cannot write {path}: {error}.") from None


def as_text(facts: Any) -> str:
    """Facts as JSON; what it does not have, such as functions and NaN, is refused."""
    try:
        return json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"this model cannot be kept in a file, which takes numbers and text: {error}.") from None


def read(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The arrays, aligned, and the facts of a file; nothing in it is executed."""
    path = Path(path)
    if path.is_dir():
        raise ModelFileError(f"{path} is a directory, not a model file.")
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            _require_our_format(path, metadata)
            # NumPy sums arrays that are not aligned in another order: the last bits would depend on the file's header.
            arrays = {name: np.require(file.get_tensor(name), requirements=["C", "A"]) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(metadata["facts"])
        if not isinstance(facts, dict):
            raise ValueError("its facts are not a JSON object")
    except ModelFileError:
        raise
    except (SafetensorError, OSError, *BROKEN) as error:
        raise damaged(path, error) from None
    return arrays, facts


def _require_our_format(path: Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise ModelFileError(f"{path} is a safetensors file, but not a model of onmf.")
    version = metadata.get("version", "")
    if version != str(VERSION):
        newer = version.isdecimal() and len(version) < 9 and int(version) > VERSION
        cure = "install a newer onmf" if newer else "learn the model again"
        writer = f", written by onmf {metadata['onmf'][:20]}" if "onmf" in metadata else ""
        raise ModelFileError(
            f"{path} has model format {version[:20]!r}{writer}; onmf {__version__} reads format {VERSION}: {cure}."
        )
