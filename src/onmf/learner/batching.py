"""The batches that a leg is cut into, and where in it each begins."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from onmf._support.checks import require_whole
from onmf.data import Source
from onmf.data.base import Numbered, read_from, recut
from onmf.learner.update import as_floats
from onmf.methods import Method
from onmf.model.validation import good_rows
from onmf.samples import Samples, as_samples, checked_missing

MOST_BYTES, MOST_BYTES_ON_DEVICE = 2**26, 2**27  # of a batch that has grown
ON_DEVICE = 1024  # samples of the first batch
NOWHERE = -1  # the place of rows after some that the source has left out


@dataclass(frozen=True)
class Reading:
    """How a source is read."""

    batch_size: int
    grows: bool = False  # with the chunks of the method?
    max_passes: int = 1
    shuffle: bool = True
    skip_bad: bool = False  # leave out samples and batches that cannot be learnt from?
    marked: bool = False  # keep digests of what was read, so that a later run recognises it?
    missing: str | None = None  # "nan": such entries are unknown
    implicit: str = "zero"  # what sparse data do not store is that, or "missing"
    verify: bool = False  # on going on, compare all that was read of the pass, even where the last batch would do?
    device: bool = False  # does PyTorch compute?

    @classmethod
    def of(cls, settings: Mapping[str, Any], marked: bool = False, verify: bool = False) -> Reading:
        """What the parameters of an estimator mean, checked."""
        passes, shuffle, on_error = (settings[name] for name in ("max_passes", "shuffle", "on_error"))
        require_whole(1, max_passes=passes)
        if not isinstance(shuffle, (bool, np.bool_)):
            raise ValueError(f"shuffle must be True or False, got {shuffle!r}.")
        if not isinstance(on_error, str) or on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}.")
        missing, implicit = checked_missing(settings["missing"], settings["implicit"])
        grows, device = settings["batch_size"] is None, settings["device"] is not None
        least = ON_DEVICE if device else 200
        size = max(5 * settings["n_components"], least) if grows else settings["batch_size"]
        require_whole(1, batch_size=size)
        given = int(size), grows, passes, bool(shuffle), on_error == "skip", marked, missing, implicit, verify
        return cls(*given, device)

    def size_of(self, source: Source) -> int:
        """The rows that a source is asked for at a time."""
        return source.batch_size or self.batch_size

    def next_size(self, seen: int, row_bytes: int, method: Method | None = None) -> int:
        """Of a batch after ``seen`` samples: no smaller than a chunk, as far as that fits into memory.

        On a device a batch is many chunks, as the host would have to wait for each.
        """
        if self.device or method is None:
            return max(self.batch_size, min(3 * seen, MOST_BYTES_ON_DEVICE // row_bytes))
        return max(self.batch_size, min(method.usual_chunk(seen), MOST_BYTES // row_bytes))


# Row numbers or names, the batch, and the rows of the leg before it if they are known.
Cut = tuple[Any, Any, int | None]


def cuts(
    source: Source,
    reading: Reading,
    order: np.random.Generator | None,
    fault: Callable[[ValueError], None],
    size: Callable[[int], int],
    begins: int = 0,
) -> Generator[Cut, None, None]:
    """The batches from the row at which one ``begins``; ``fault`` is told of samples that are left out.

    ``size`` says how long the next one should be, told how many bytes a row takes. Where batches grow, they are made of
    the same blocks wherever reading begins: only whole blocks are left out.
    """
    block = reading.size_of(source)
    first = begins // block * block
    blocks = _placed(source, block, order, fault if reading.skip_bad else None, first)
    blocks = _meant(blocks, reading)
    if reading.skip_bad:
        blocks = _good(blocks, source.feature_names, fault)
    if reading.grows and source.batch_size is None:
        blocks = _recut(blocks, size, begins, _nominal_bytes if reading.device else _row_bytes)
    elif (reading.skip_bad or source.weighted) and source.batch_size is None:
        # Rows that are left out do not make batches shorter.
        blocks = _recut(blocks, lambda _: block, begins, _row_bytes)
    for places, batch in blocks:
        place = int(places["place"][0]) if len(places) else NOWHERE
        yield places["row"], batch, None if place == NOWHERE else place


def _placed(
    source: Source, size: int, order: np.random.Generator | None, fault: Callable[[ValueError], None] | None, first: int
) -> Numbered:
    """Rows with their numbers and their places in the leg, as long as the source has left out none."""
    lost = False

    def lose(error: ValueError) -> None:
        nonlocal lost
        lost = True
        if fault is not None:
            fault(error)

    for rows, batch in read_from(source, size, order, None if fault is None else lose, first):
        places = np.empty(len(rows), dtype=[("place", np.int64), ("row", rows.dtype)])
        places["place"] = NOWHERE if lost else np.arange(first, first + len(rows))
        places["row"] = rows
        first += len(rows)
        yield places, batch


def _meant(batches: Numbered, reading: Reading) -> Numbered:
    """Batches as the settings mean them, without samples that have no weight."""
    for places, batch in batches:
        samples = as_samples(as_floats(batch), reading.missing, reading.implicit, learning=True)
        if samples.sample_weight is not None and not samples.sample_weight.all():
            kept = np.flatnonzero(samples.sample_weight)
            places, samples = places[kept], samples[kept]
            places["place"] = NOWHERE
        if len(places):
            yield places, samples


def _good(batches: Numbered, names: Sequence[str] | None, fault: Callable[[ValueError], None]) -> Numbered:
    """Batches without the rows that have bad entries: one row must not spoil those that it came with."""
    for places, batch in batches:
        kept, errors = good_rows(as_floats(batch), places["row"], names)
        for error in errors:
            fault(error)
        if not errors:
            yield places, batch
        elif kept:
            yield places[kept], batch[kept]


def _recut(blocks: Numbered, size: Callable[[int], int], begins: int, row_bytes: Callable[[Any], int]) -> Numbered:
    """Batches of the sizes that are asked for, from the row at which one begins."""
    head = list(islice(blocks, 1))
    earlier = sum(int(np.count_nonzero(places["place"] < begins)) for places, _ in head) if begins else 0
    return recut(chain(head, blocks), lambda rows: size(row_bytes(rows)), earlier)


def _nominal_bytes(batch: Samples) -> int:
    """The bytes of a row on a device, by its length alone: batches must not depend on whether the data stay there."""
    sparse = batch.sparse or getattr(batch.matrix, "sparse", False)
    return max(1, int(batch.shape[1]) * int(batch.dtype.itemsize) // (16 if sparse else 1))


def _row_bytes(batch: Samples) -> int:
    return max(1, batch.nbytes // len(batch))
