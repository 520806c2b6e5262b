"""Where the files of a public data set are.

The sets are not part of the library, since most of them are licensed for research only. The user names one folder, as
an argument or in an environment variable; each set is in a subfolder of it or in the folder itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "ONMF_DATA"


class DataFolderError(FileNotFoundError):
    """A folder or file of a public data set is missing; the message says where to get it."""


@dataclass(frozen=True)
class PublicSet:
    """A public data set: its name, its subfolder, and where to get it."""

    title: str
    subfolder: str
    origin: str

    def open(self, folder: str | Path | None) -> Files:
        """The set's files in a folder, by default that in the environment variable."""
        named = folder if folder is not None else os.environ.get(VARIABLE, "")
        root = Path(named).expanduser()
        if named == "" or not root.is_dir():
            missing = f"there is no folder {root}" if named else "no folder is named"
            raise DataFolderError(
                f"{missing} for the data set {self.title}: get it from {self.origin}, then give the folder as an "
                f"argument or in the environment variable {VARIABLE}."
            )
        return Files(self, root)


@dataclass(frozen=True)
class Files:
    """The files of a set, plain or gzipped, in its subfolder or in the folder itself."""

    owner: PublicSet
    root: Path

    def find(self, name: str) -> Path | None:
        """The file of that name, preferably the plain one; None if it is missing."""
        places = (self.root / self.owner.subfolder, self.root)
        candidates = (place / each for place in places for each in (name, f"{name}.gz"))
        return next((path for path in candidates if path.is_file()), None)

    def path(self, name: str) -> Path:
        """The file of that name; an error if it is missing."""
        path = self.find(name)
        if path is None:
            raise DataFolderError(
                f"there is no {name} or {name}.gz in {self.root / self.owner.subfolder} or {self.root}; "
                f"it belongs to the data set {self.owner.title}, from {self.owner.origin}."
            )
        return path
