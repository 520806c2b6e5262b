"""What a source of samples is."""

from __future__ import annotations

import glob
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse


class SourceError(ValueError):
    """Samples that cannot be read; the message says what is wrong with which file."""


class Source(ABC):
    """Samples that are passed over in batches, without being held in memory."""

    n_features: int
    n_samples: int | None = None  # None: unknown before the end
    any_order: bool = False  # can rows be read in any order, i.e. shuffled?
    rewinds: bool = True  # can it be passed over again?
    feature_names: list[str] | None = None
    on_bad: Callable[[SourceError], None] | None = None  # what is done about samples that cannot be read

    def bad(self, error: SourceError) -> None:
        """Told of samples that cannot be read by a source that could go on with the next ones."""
        if self.on_bad is None:
            raise error
        self.on_bad(error)

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """One pass: pairs (row numbers, batch), the batch dense or scipy sparse; shuffled by ``rng`` if given."""


def recut(batches: Iterable[tuple[npt.NDArray[Any], Any]], size: int) -> Iterator[tuple[npt.NDArray[Any], Any]]:
    """The same rows, with their numbers, in batches of ``size``; only the last may be shorter."""
    numbers: list[npt.NDArray[Any]] = []
    waiting: list[Any] = []
    count = 0
    for rows, batch in batches:
        start = 0
        while count + len(rows) - start >= size:
            stop = start + size - count
            yield np.concatenate([*numbers, rows[start:stop]]), stacked([*waiting, batch[start:stop]])
            numbers, waiting, count, start = [], [], 0, stop
        if start < len(rows):
            numbers.append(rows[start:])
            waiting.append(batch[start:])
            count += len(rows) - start
    if waiting:
        yield np.concatenate(numbers), stacked(waiting)


def numbered(batches: Iterable[Any]) -> Iterator[tuple[npt.NDArray[Any], Any]]:
    """Batches with the numbers of their rows."""
    first = 0
    for batch in batches:
        yield np.arange(first, first + batch.shape[0]), batch
        first += batch.shape[0]


def stacked(parts: list[Any]) -> Any:
    """Dense or sparse blocks of rows as one."""
    if len(parts) == 1:
        return parts[0]
    sparse = any(map(scipy.sparse.issparse, parts))
    return scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)


def matching(where: str | Path, suffixes: set[str], what: str) -> list[Path]:
    """The file, the files of a folder that have one of the endings, or those that a pattern matches."""
    path = Path(where).expanduser()
    if path.is_dir():
        found = [each for each in path.iterdir() if each.suffix.lower() in suffixes]
    else:
        found = [path] if path.exists() else [Path(name) for name in glob.glob(str(path), recursive=True)]
    if not found and not path.is_dir() and not glob.has_magic(str(path)):
        raise SourceError(f"{path} does not exist.")
    if not found:
        raise SourceError(f"{where}: no {what} there; give a folder or a pattern such as 'folder/*{min(suffixes)}'.")
    return sorted(found)


def require_unchanged(path: Path, size: int) -> None:
    """Refuse to read on in a file that has been cut or is gone: what is missing might be read as zeros."""
    now = path.stat().st_size if path.exists() else None
    if now is None or (path.is_file() and now < size):
        what = "is gone" if now is None else f"has shrunk from {size} to {now} bytes"
        raise SourceError(f"{path} {what} while it was read.")


def require(module: str, extra: str) -> Any:
    """An optional library, or the sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ModuleNotFoundError(f"{module} is needed for this kind of data; install onmf[{extra}].") from None
