"""All batches of a source, pass after pass, with a position from which an interrupted run continues to the bit."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from onmf.learner.learned import Features, Learned, Position, Skipped
from onmf.learner.step import Progress, Recipe, as_floats, begin, step
from onmf.streams import Source, SourceError
from onmf.streams.base import Numbered, recut
from onmf.units import DataError, good_rows, refuse_bad_entries

log = logging.getLogger("onmf")

MOST_BYTES = 2**26  # of a batch that has grown


@dataclass(frozen=True)
class Reading:
    """How a source is read."""

    batch_size: int
    grows: bool = False  # with the chunks of the method?
    max_passes: int = 1
    shuffle: bool = True
    skip_bad: bool = False  # leave out samples and batches that cannot be learnt from?
    marked: bool = False  # keep a checksum of what was read, so that a later run recognises it?


def run(
    recipe: Recipe,
    source: Source,
    reading: Reading,
    features: Features,
    generators: tuple[np.random.Generator, np.random.Generator],
    learned: Learned | None = None,
) -> Iterator[tuple[Learned, Progress | None]]:
    """Learn from all batches of a source: what was learnt after each, and what to tell of it.

    ``generators`` draw the initial dictionary and shuffle. Given a ``learned`` with a position in the same data, go on
    from there: the end is that of a run that was never interrupted, to the bit.
    """
    if reading.max_passes > 1 and not source.rewinds:
        raise SourceError("this source can be read only once; use max_passes=1.")
    drawing, shuffling = generators
    total = None if source.n_samples is None else source.n_samples * reading.max_passes
    done = learned.position if learned else None
    if done is not None:
        shuffling = done.shuffling()
    skipped = Skipped()  # before anything is learnt
    known_faults = done.faults if done else 0
    passing_over = False  # batches that an earlier run has learnt from
    news = False  # since the last time that anything was handed out

    def leave_out(error: Exception, position: Position | None) -> None:
        nonlocal learned, skipped, news
        log.warning("Skipped: %s", error)
        if learned is None:
            skipped = skipped.and_also(error)
        else:
            learned = replace(learned, skipped=learned.skipped.and_also(error), position=position)
            news = True

    def fault(error: ValueError) -> None:
        """Samples between two batches that the source could not read: counted, unless an earlier run has."""
        nonlocal known_faults
        if passing_over:
            return
        if known_faults:
            known_faults -= 1
            return
        position = learned.position if learned else None
        leave_out(error, replace(position, faults=position.faults + 1) if position else None)

    def size(batch: Any) -> int:
        """Of the next batch: no smaller than a chunk, as far as that fits into memory."""
        if learned is None or read == 0:
            return reading.batch_size
        most = MOST_BYTES // max(1, _bytes(batch) // batch.shape[0])
        return max(reading.batch_size, min(learned.method.usual_chunk(read), most))

    for number in range(done.passes if done else 1, reading.max_passes + 1):
        # From samples learnt to samples read: what an interrupted run has learnt of this pass, it reads again.
        read = 0 if learned is None else learned.pass_began if learned.passes == number else learned.history.samples
        before = shuffling.bit_generator.state
        order = shuffling if reading.shuffle and source.any_order else None
        known = done.batches if done else 0
        count = mark = 0
        passing_over = known > 0
        batches = source.batches(reading.batch_size, order, fault if reading.skip_bad else None)
        if reading.skip_bad:
            batches = _good(batches, fault)
        if reading.grows and source.batch_size is None:
            batches = recut(batches, size)
        for count, (rows, batch) in enumerate(batches, start=1):
            read += len(rows)
            if reading.marked or known:
                mark = checksum(batch, mark)
            if count <= known:
                if count == known:
                    _require_mark(done, mark)
                    passing_over = False
                continue
            position = Position(number, count, before, source.n_samples, mark if reading.marked or known else None)
            try:
                if learned is None:
                    refuse_bad_entries(as_floats(batch), rows)
                    begun = begin(recipe, batch, features, drawing, source.n_samples)
                    begun = replace(begun, skipped=skipped, source=source.spec)
                else:
                    begun = learned
                learned, progress = step(recipe, begun, batch, rows, position, total)
            except DataError as error:
                if not reading.skip_bad:
                    raise
                leave_out(error, position)
                continue
            yield learned, progress
            news = False
        if count < known:
            raise SourceError(f"the data end after {count} batches of a pass; the checkpoint has learnt from {known}.")
        if not count and number > 1:
            raise SourceError(f"pass {number} found no batches: this source can be read only once; use max_passes=1.")
        done = None
    if learned is None:
        reason = skipped.reasons[-1] if skipped.count else "There are no batches."
        raise DataError(f"No batch could be learnt from. {reason}")
    if news:
        yield learned, None


def _good(batches: Numbered, fault: Callable[[ValueError], None]) -> Numbered:
    """Batches without the rows that have bad entries: one row must not spoil those that it came with."""
    for rows, batch in batches:
        numbers, good, errors = good_rows(as_floats(batch), rows)
        for error in errors:
            fault(error)
        if not errors:
            yield rows, batch
        elif len(numbers):
            yield numbers, good


def _bytes(batch: Any) -> int:
    return int(batch.data.nbytes + batch.indices.nbytes if scipy.sparse.issparse(batch) else batch.nbytes)


def require_position(learned: Learned, source: Source, features: Features) -> None:
    """Refuse to go on in data other than those that this model was learning from."""
    position, F = learned.position, learned.state.W.shape[1]
    if position is None:
        raise ValueError("only a fit that was interrupted can be resumed; this model was not learnt by one.")
    if features.number != F:
        raise ValueError(f"the data have {features.number} features, those of the checkpoint {F}.")
    if source.n_samples != position.n_samples:
        now, then = ("an unknown number of" if n is None else n for n in (source.n_samples, position.n_samples))
        raise ValueError(f"the data have {now} samples, those of the checkpoint {then}.")
    if None not in (learned.features.names, features.names) and features.names != learned.features.names:
        pairs = zip(features.names or (), learned.features.names or (), strict=True)
        theirs, ours = next((one, other) for one, other in pairs if one != other)
        raise ValueError(f"the data have a feature {theirs!r} where those of the checkpoint have {ours!r}.")


def _require_mark(position: Position | None, mark: int) -> None:
    """Refuse to go on in data that are not those of the checkpoint, or come in another order."""
    if position is not None and position.mark not in (None, mark):
        raise SourceError(
            f"the data are not those of the checkpoint: the first {position.batches} batches of pass {position.passes} "
            "differ from those it has learnt from; give the same data, or begin a new run."
        )


def checksum(batch: Any, before: int) -> int:
    """Of a batch's shape, of its first and last row, and of the batches before it."""
    mark = zlib.crc32(str((batch.shape, batch.dtype.str)).encode(), before)
    ends = [batch[:1], batch[-1:]]
    parts = [array for end in ends for array in ((end.indices, end.data) if scipy.sparse.issparse(end) else (end,))]
    for part in parts:
        mark = zlib.crc32(np.ascontiguousarray(part).tobytes(), mark)
    return mark
