"""Reading text and numbers from plain or gzipped files; whatever is wrong becomes one sentence that names the file."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from onmf._support.arrays import Array, Counts


class DataFileError(ValueError):
    """A file of a public data set that cannot be read; the message names the file and the reason."""


def damaged(path: Path, reason: object) -> DataFileError:
    """The error to raise, with the first line of the reason."""
    first = str(reason).strip().split("\n")[0].rstrip(".") or type(reason).__name__
    return DataFileError(f"{path} is damaged or not in its public format: {first}.")


def read_bytes(path: Path) -> bytes:
    """The content of a file, decompressed if its name ends in .gz."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, getattr(error, "strerror", None) or error) from None


def read_text(path: Path) -> str:
    """The content as UTF-8, with line endings of all systems made the same."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is not UTF-8 text ({error})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: Path) -> list[str]:
    """The stripped lines, without blank ones at the end."""
    text = read_text(path).rstrip()
    if not text:
        raise damaged(path, "it is empty")
    return [line.strip() for line in text.split("\n")]


def read_table(path: Path, columns: int, *, delimiter: str | None = None, header: int = 0) -> Array:
    """The numbers after ``header`` lines; lines that begin with % are comments."""
    lines = [line for line in read_lines(path)[header:] if line and not line.startswith("%")]
    if not lines:
        raise damaged(path, "it has no numbers")
    try:
        values: Array = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError as error:
        raise damaged(path, error) from None
    if values.shape[1] != columns:
        raise damaged(path, f"its lines have {values.shape[1]} numbers instead of {columns}")
    return values


def whole(path: Path, values: Array, low: int, high: int, what: str) -> Counts:
    """The values as integers, which must be from ``low`` to ``high``."""
    bad = ~((values >= low) & (values <= high) & (values == np.floor(values)))
    if bad.any():
        raise damaged(path, f"{values[bad][0]:.15g} is not a {what} from {low} to {high}")
    return values.astype(np.int64)
