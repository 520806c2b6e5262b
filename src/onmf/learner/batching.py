"""Reading a source in batches: their sizes, and the row at which each begins."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Counts
from onmf._support.checks import require_whole
from onmf.data import Source, SourceError
from onmf.data.base import Cutter, read_from
from onmf.learner.update import as_floats
from onmf.methods import Method
from onmf.model.validation import good_rows
from onmf.samples import Samples, as_samples, checked_missing

MOST_BYTES, MOST_BYTES_ON_DEVICE = 2**26, 2**27  # of a batch that has grown
ON_DEVICE = 1024  # samples of the first batch
NOWHERE = -1  # the place of rows after some that the source has left out


@dataclass(frozen=True)
class Reading:
    """The settings that say how a source is read."""

    batch_size: int
    grows: bool = False  # with the chunks of the method?
    max_passes: int = 1
    shuffle: bool = True
    skip_bad: bool = False  # leave out samples and batches that cannot be learnt from?
    keeps_digests: bool = False  # keep digests of what was read, so that a later run recognises it?
    missing: str | None = None  # "nan": such entries are missing
    implicit: str = "zero"  # what sparse data do not store is that, or "missing"
    verify: bool = False  # on resuming, compare all that was read of the pass, even where the last batch would do?
    on_device: bool = False  # does PyTorch compute?

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Reading:
        """Check the parameters of an estimator that say how data are read, and return them as a ``Reading``."""
        passes, shuffle, on_error = (settings[name] for name in ("max_passes", "shuffle", "on_error"))
        require_whole(1, max_passes=passes)
        if not isinstance(shuffle, (bool, np.bool_)):
            raise ValueError(f"shuffle must be True or False, got {shuffle!r}.")
        if not isinstance(on_error, str) or on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}.")
        missing, implicit = checked_missing(settings["missing"], settings["implicit"])
        grows, on_device = settings["batch_size"] is None, settings["device"] is not None
        least = ON_DEVICE if on_device else 200
        size = max(5 * settings["n_components"], least) if grows else settings["batch_size"]
        require_whole(1, batch_size=size)
        return cls(
            *(int(size), grows, passes, bool(shuffle), on_error == "skip"),
            missing=missing,
            implicit=implicit,
            on_device=on_device,
        )

    def size_of(self, source: Source) -> int:
        """Return how many rows a source is asked for at a time."""
        return source.batch_size or source.fitting(self.batch_size)

    def next_size(self, seen: int, row_bytes: int, method: Method | None = None) -> int:
        """Return the size of a batch after ``seen`` samples: at least that of a chunk, as far as it fits into memory.

        On a device a batch is many chunks, as the host would have to wait for each.
        """
        if self.on_device or method is None:
            return max(self.batch_size, min(3 * seen, MOST_BYTES_ON_DEVICE // row_bytes))
        return max(self.batch_size, min(method.usual_chunk(seen), MOST_BYTES // row_bytes))


Cut = tuple[Any, Any, Counts]  # row numbers or names, the batch, and the places of its rows in the part


def cuts(
    source: Source,
    reading: Reading,
    order: np.random.Generator | None,
    fault: Callable[[ValueError], None],
    size: Callable[[int], int],
    begins: int = 0,
) -> Generator[Cut, None, None]:
    """Yield the batches of a source from the row ``begins`` on, each with its row numbers and their places.

    ``fault`` is called with the error of every sample that is left out. ``size`` returns the length of the next batch,
    given the bytes of a row. Where batches grow, they are made of the same blocks wherever reading begins: only whole
    blocks are left out.
    """
    usual = reading.size_of(source)
    # A pipe may fall silent: no batch that is full should wait for the rest of a block.
    block = usual if source.pipe is None else -(-usual // 10)
    first = begins // block * block
    lost = False  # has the source left out rows, so that places are lost?

    def lose(error: SourceError) -> None:
        nonlocal lost, first
        lost, first = True, first + error.rows
        fault(error)

    def wanted(batch: Any) -> int:
        if reading.grows and source.batch_size is None:
            return source.fitting(size(_row_bytes(batch, reading.on_device)))
        if (reading.skip_bad or source.weighted or source.pipe is not None) and source.batch_size is None:
            return usual  # rows that are left out do not make batches shorter
        return int(batch.shape[0])

    cutter, begun = Cutter(wanted), False
    for rows, batch in read_from(source, block, order, lose if reading.skip_bad else None, first):
        places = np.arange(first, first + len(rows))
        first += len(rows)
        if source.pipe is not None:  # which numbers rows that it leaves out
            places = places if rows.dtype == object else rows
        elif lost:
            places = np.full(len(rows), NOWHERE)
        rows, places, batch = learnable(rows, places, batch, reading, source.feature_names, fault)
        if not len(rows):
            continue
        cutter.add(rows, places, batch, skip=int(np.count_nonzero(places < begins)) if begins and not begun else 0)
        begun = True
        while (cut := cutter.cut()) is not None:
            yield cut[0], cut[2], cut[1]
    if (cut := cutter.rest()) is not None:
        yield cut[0], cut[2], cut[1]


def learnable(
    rows: Any,
    places: Counts,
    batch: Any,
    reading: Reading,
    names: Sequence[str] | None,
    fault: Callable[[ValueError], None],
) -> tuple[Any, Counts, Any]:
    """Return a block as ``Samples``, without samples of weight zero and, if bad ones are skipped, without these.

    One bad row must not spoil the others of its block.
    """
    batch = as_samples(as_floats(batch), reading.missing, reading.implicit, learning=True)
    weights = batch.sample_weight
    if weights is not None and not weights.all():
        kept = np.flatnonzero(weights)
        rows, places, batch = rows[kept], places[kept], batch[kept]
    if reading.skip_bad and len(rows):
        good, errors = good_rows(batch, rows, names)
        for error in errors:
            fault(error)
        if errors:
            rows, places, batch = rows[good], places[good], batch[good] if good else None
    return rows, places, batch


def _row_bytes(batch: Samples, by_length: bool) -> int:
    """Return the bytes of a row; ``by_length`` only, where batches must not depend on whether data are on a device."""
    if not by_length:
        return max(1, batch.nbytes // len(batch))
    sparse = batch.sparse or getattr(batch.matrix, "sparse", False)
    return max(1, int(batch.shape[1]) * int(batch.dtype.itemsize) // (16 if sparse else 1))
