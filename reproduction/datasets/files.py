"""Files of public data sets: where they are, and reading them so that an error is a sentence that names the file.

The sets are not part of the library, since most of them are licensed for research only. The user names one folder, as
an argument or in an environment variable; each set is in a subfolder of it or in the folder itself.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.arrays import Array, Counts

VARIABLE = "ONMF_DATA"


class DataFolderError(FileNotFoundError):
    """Raised for a missing folder or file of a public data set; the message says where to get it."""


@dataclass(frozen=True)
class PublicSet:
    """A public data set: its name, where to get it, and its files, plain or gzipped, in a subfolder or beside it."""

    title: str
    subfolder: str
    origin: str

    def root(self, folder: str | Path | None) -> Path:
        """Return the folder, by default the one in the environment variable; a missing one raises an error."""
        named = folder if folder is not None else os.environ.get(VARIABLE, "")
        root = Path(named).expanduser()
        if named == "" or not root.is_dir():
            missing = f"there is no folder {root}" if named else "no folder is named"
            raise DataFolderError(
                f"{missing} for the data set {self.title}: get it from {self.origin}, then give the folder as an "
                f"argument or in the environment variable {VARIABLE}."
            )
        return root

    def find(self, folder: str | Path | None, name: str) -> Path | None:
        """Return the file of that name, preferably the plain one; None if it is missing."""
        root = self.root(folder)
        candidates = (place / each for place in (root / self.subfolder, root) for each in (name, f"{name}.gz"))
        return next((path for path in candidates if path.is_file()), None)

    def path(self, folder: str | Path | None, name: str) -> Path:
        """Return the file of that name; a missing one raises an error."""
        path, root = self.find(folder, name), self.root(folder)
        if path is None:
            raise DataFolderError(
                f"there is no {name} or {name}.gz in {root / self.subfolder} or {root}; "
                f"it belongs to the data set {self.title}, from {self.origin}."
            )
        return path


class DataFileError(ValueError):
    """Raised for a file of a public data set that cannot be read; the message names the file and the reason."""


def damaged(path: Path, reason: object) -> DataFileError:
    """Make the error to raise, with the first line of the reason."""
    first = str(reason).strip().split("\n")[0].rstrip(".") or type(reason).__name__
    return DataFileError(f"{path} is damaged or not in its public format: {first}.")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, getattr(error, "strerror", None) or error) from None


def read_text(path: Path) -> str:
    """Return the content as UTF-8, with the line endings of all systems made the same."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is not UTF-8 text ({error})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: Path) -> list[str]:
    """Return the stripped lines, without blank ones at the end."""
    text = read_text(path).rstrip()
    if not text:
        raise damaged(path, "it is empty")
    return [line.strip() for line in text.split("\n")]


def read_table(path: Path, columns: int, *, delimiter: str | None = None, header: int = 0) -> Array:
    """Return the numbers after ``header`` lines; lines that begin with % are comments."""
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
    """Return the values as integers, which must be from ``low`` to ``high``."""
    bad = ~((values >= low) & (values <= high) & (values == np.floor(values)))
    if bad.any():
        raise damaged(path, f"{values[bad][0]:.15g} is not a {what} from {low} to {high}")
    return values.astype(np.int64)
