"""Any Python iterable of batches as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from onmf.streams.base import Source, SourceError, numbered, recut


class Batches(Source):
    """Batches of whatever sizes, cut anew. A list, or a function that gives an iterator, can be passed over again."""

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self.rewinds = callable(batches) or iter(batches) is not batches
        self._again: Callable[[], Iterable[Any]] = batches if callable(batches) else lambda: batches
        self._first: Iterator[Any] | None = iter(self._again())
        first = next(self._first, None)
        if first is None:
            raise SourceError("the iterable has no batches.")
        self.n_features = int(_checked(first).shape[1])
        self._first = chain([first], self._first)

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """In the order in which they come."""
        if self._first is not None:
            now: Iterable[Any] = self._first
            self._first = None
        elif self.rewinds:
            now = self._again()
        else:
            raise SourceError(
                "an iterator of batches can be read only once: take one pass, or give a list or a function."
            )
        return recut(numbered(self._like_the_first(now)), size)

    def _like_the_first(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            try:
                rows = _checked(batch)
                if rows.shape[1] != self.n_features:
                    raise SourceError(f"a batch has {rows.shape[1]} features, the first had {self.n_features}.")
            except SourceError as error:
                self.bad(error)
            else:
                yield rows


def _checked(batch: Any) -> Any:
    """A batch as rows of numbers."""
    try:
        rows = batch if scipy.sparse.issparse(batch) else np.asarray(batch)  # tensors too
    except (ValueError, TypeError, RuntimeError) as error:
        raise SourceError(f"a batch of type {type(batch).__name__} is no array: {error}") from None
    if len(rows.shape) != 2 or rows.dtype.kind not in "buif":
        raise SourceError(
            f"a batch must be 2-D, samples as rows of real numbers; got shape {rows.shape}, type {rows.dtype}."
        )
    return rows.tocsr() if hasattr(rows, "tocsr") else rows
