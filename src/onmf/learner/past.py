"""What a run has learnt from in earlier legs of its pass, read once more and compared."""

from __future__ import annotations

from itertools import islice

from onmf.learner.cuts import Reading, cuts
from onmf.learner.position import Marks, Position
from onmf.methods import Method
from onmf.streams import Source, SourceError


def require_same_past(method: Method, source: Source, reading: Reading, done: Position) -> None:
    """Refuse to go on if a file of an earlier leg no longer gives the batches that it gave then, in any entry."""
    names = [name for name, _ in done.files or ()]
    ends = [leg.files_before for leg in (*done.past, done)]
    for leg, first, last in zip(done.past, ends, ends[1:], strict=False):
        read, marks = 0, Marks(reading.marked)

        def size(row_bytes: int, leg: Position = leg) -> int:
            seen = leg.clock + read  # noqa: B023 - as it is when the next batch is cut
            first = seen <= leg.began and not reading.device
            return reading.batch_size if first else reading.next_size(seen, row_bytes, method)

        files = source.of_files(names[first:last])
        order = leg.shuffling() if reading.shuffle and files.any_order else None
        count = 0
        for rows, batch, _ in islice(cuts(files, reading, order, _known, size), leg.batches):
            count, read = count + 1, read + len(rows)
            marks.add(batch)
        if count < leg.batches:
            raise SourceError(f"{names[first]} and the files after it end after {count} batches, not {leg.batches}.")
        marks.require(leg, alone=False)


def _known(_: ValueError) -> None:
    """Samples that cannot be read were counted then."""
