"""What a source of samples is."""

from __future__ import annotations

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


def rebatch(batches: Source | Iterable[Any], size: int) -> Iterator[Any]:
    """The same rows in batches of ``size``; only the last may be shorter."""
    if size < 1:
        msg = f"the size of a batch must be at least 1, got {size}."
        raise SourceError(msg)
    if isinstance(batches, Source):
        batches = (batch for _, batch in batches.batches(size))
    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        start = 0
        while rows + batch.shape[0] - start >= size:
            stop = start + size - rows
            yield stacked([*waiting, batch[start:stop]])
            waiting, rows, start = [], 0, stop
        if start < batch.shape[0]:
            waiting.append(batch[start:])
            rows += batch.shape[0] - start
    if waiting:
        yield stacked(waiting)


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


def require_unchanged(path: Path, size: int) -> None:
    """Refuse to read on in a file that has been cut or is gone: what is missing might be read as zeros."""
    now = path.stat().st_size if path.exists() else None
    if now is None or (path.is_file() and now < size):
        what = "is gone" if now is None else f"has shrunk from {size} to {now} bytes"
        msg = f"{path} {what} while it was read."
        raise SourceError(msg)


def require(module: str, extra: str) -> Any:
    """An optional library, or the sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        msg = f"{module} is needed for this kind of data; install onmf[{extra}]."
        raise ModuleNotFoundError(msg) from None
