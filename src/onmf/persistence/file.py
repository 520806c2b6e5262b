"""Files that hold arrays and facts, and never code: safetensors with one JSON text in its metadata.

Writing is atomic: a reader finds the old file or the new one, never half of either. A hash of all that a file holds
stands in its metadata, so that a file in which a single bit has changed raises an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from onmf._support.atomic import WriteError, replacing
from onmf._support.version import __version__

FORMAT = "onmf-model"
VERSION = 10  # to be raised whenever what a file holds changes: tests/model_format.json says what that is
HASH = "sha256"
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class ModelFileError(ValueError):
    """Raised for a file that is damaged or not a model; the message names the file and the reason."""


class UnreadableFileError(ModelFileError):
    """Raised for a file that the system does not open, which says nothing about what the file holds."""


def damaged(path: str | Path, error: Exception) -> ModelFileError:
    """Return what to raise when reading ``path`` has led to ``error``: one sentence."""
    if isinstance(error, SafetensorError):  # whose words are about bytes
        return ModelFileError(f"{path} is damaged, or not a model of onmf.")
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
    reason = " ".join(reason.split())[:300].rstrip(".")
    return ModelFileError(f"{path} is damaged, or not a model of onmf: {reason}.")


def write(
    path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any], previous: Path | None = None
) -> None:
    """Write arrays and JSON-able facts to a file, replacing it atomically; the old one goes to ``previous``."""
    try:
        content = as_bytes(arrays, facts)
        with replacing(Path(path), previous) as temporary:
            temporary.write_bytes(content)
    except (WriteError, ModelFileError) as error:
        raise ModelFileError(str(error)) from None
    except OSError as error:
        raise ModelFileError(f"cannot write {path}: {error.strerror or error}.") from None
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:  # odd arrays, odd paths
        raise ModelFileError(f"cannot write {path}: {error}.") from None


def as_bytes(arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> bytes:
    """Return the content of the file that ``write`` writes."""
    metadata = {"format": FORMAT, "version": str(VERSION), "onmf": __version__, "facts": as_text(facts)}
    return sealed(arrays, metadata)


def sealed(arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file that holds these arrays and this metadata, and the hash of both."""
    kept = {name: np.asarray(array, array.dtype.newbyteorder("="), order="C") for name, array in arrays.items()}
    return to_bytes(kept, metadata={**metadata, HASH: _hash(kept.items(), metadata)})


def _hash(arrays: Iterable[tuple[str, npt.NDArray[Any]]], metadata: Mapping[str, str]) -> str:
    """Return the hash of names, types, shapes and numbers, and of all metadata but the hash itself."""
    each = {name: _hash_of_array(array) for name, array in arrays}
    text = json.dumps([each, {key: value for key, value in metadata.items() if key != HASH}], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_of_array(array: npt.NDArray[Any]) -> str:
    found = hashlib.sha256(str((array.dtype.str, array.shape)).encode())
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def as_text(facts: Any) -> str:
    """Return facts as JSON; raise an error for what JSON cannot hold, such as functions and NaN."""
    try:
        return json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the model cannot be saved: a model file holds only numbers and text: {error}.") from None


def read(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the arrays, aligned, and the facts of a file; nothing in it is executed."""
    path = Path(path)
    with _opened(path) as (metadata, tensors):
        # NumPy sums arrays that are not aligned in another order: the last bits would depend on the file's header.
        arrays = {name: np.require(array, requirements=["C", "A"]) for name, array in tensors}
        _require_seal(arrays.items(), metadata)
        facts = json.loads(metadata["facts"])
        if not isinstance(facts, dict):
            raise ValueError("its facts are not a JSON object")
    return arrays, facts


def is_intact(path: Path) -> bool:
    """Tell whether the file holds what was once written to it, bit for bit."""
    try:
        with _opened(path) as (metadata, tensors):
            _require_seal(tensors, metadata)
    except UnreadableFileError:
        raise
    except ModelFileError:
        return False
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[dict[str, str], Iterator[tuple[str, npt.NDArray[Any]]]]]:
    """Yield the metadata of a model file, and its arrays one by one; any error becomes one sentence."""
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a directory, not a model file.")
        if not path.is_file():
            raise ModelFileError(f"no such file: {path}.")
        path.open("rb").close()  # safetensors says of every file that it cannot open that there is none
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            _require_our_format(path, metadata)
            yield metadata, ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
    except ModelFileError:
        raise
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror or error}.") from None
    except (SafetensorError, *BROKEN) as error:
        raise damaged(path, error) from None


def _require_seal(arrays: Iterable[tuple[str, npt.NDArray[Any]]], metadata: Mapping[str, str]) -> None:
    if metadata.get(HASH) != _hash(arrays, metadata):
        raise ValueError("what it holds has changed since it was written, as its checksum shows")


def _require_our_format(path: Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise ModelFileError(f"{path} is a safetensors file, but not a model of onmf.")
    version = metadata.get("version", "")
    if version == str(VERSION):
        return
    if not (version.isascii() and version.isdecimal() and len(version) < 9):
        raise ValueError(f"its format is {version[:20]!r}")
    if int(version) < VERSION:
        raise ModelFileError(f"{path} was written by an older version of onmf (format {version}); fit it again.")
    raise ModelFileError(
        f"{path} was written by a newer version of onmf (format {version}); onmf {__version__} reads format {VERSION}: "
        "install a newer one."
    )
