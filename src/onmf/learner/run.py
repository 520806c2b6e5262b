"""Learning from all batches of a source, pass after pass; an interrupted run continues bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from onmf.data import Source, SourceError
from onmf.data.columns import Features
from onmf.learner.batching import NOWHERE, Reading, cuts
from onmf.learner.config import Recipe
from onmf.learner.growth import grown
from onmf.learner.initialise import begin
from onmf.learner.learned import Learned, Skipped, SkippedLog
from onmf.learner.resume import Digests, PassPart, Position, parts_of_pass
from onmf.learner.update import Progress, step
from onmf.methods import Method
from onmf.model.units import SilenceError
from onmf.model.validation import DataError, require_valid_entries
from onmf.samples import Samples


def run(
    recipe: Recipe,
    source: Source,
    reading: Reading,
    features: Features,
    generators: tuple[np.random.Generator, np.random.Generator],
    learned: Learned | None = None,
) -> Iterator[tuple[Learned, Progress | None]]:
    """Learn from all batches of a source: yield what was learnt after each, and what to report of it.

    Without ``learned``, this is ``begin`` with the first batch, and ``step`` for every batch of every pass; the rest is
    about continuing. Given a ``learned`` with a position in the same data, continue from there: the end is that of a
    run that was never interrupted, bit for bit. What a pipe brings comes after that position. Without a position, the
    data are new. ``generators`` draw the initial dictionary and shuffle.
    """
    if reading.max_passes > 1 and not source.rewinds:
        raise SourceError("this source can be read only once; use max_passes=1 (--passes 1).")
    drawing, shuffling = generators
    resumed = done = _position(learned)
    if done is not None:
        over = done.ended is not None and not reading.verify  # nothing is left of its part
        shuffling, resumed = done.shuffling(over), None if over else done
    skipped, log_skipped = Skipped(), SkippedLog()  # before anything is learnt
    old_faults = resumed.faults if resumed else 0
    passing_over = False  # batches that an earlier run has learnt from
    silence: SilenceError | None = None  # why the batches before the first one that is learnt from were passed over
    faults = 0  # met in this run, counted or not
    unreported = False  # was anything skipped since the last time that something was yielded?
    rows_asked = 0  # samples that batches on a device have been asked for

    def leave_out(error: Exception, position: Position | None) -> None:
        nonlocal learned, skipped, unreported
        log_skipped(error)
        if learned is None:
            skipped = skipped.and_also(error)
        else:
            learned = replace(learned, skipped=learned.skipped.and_also(error), position=position)
            unreported = True

    def fault(error: ValueError) -> None:
        """Count samples between two batches that the source could not read, unless an earlier run has."""
        nonlocal old_faults, faults
        faults += 1
        if passing_over:
            return
        if old_faults:
            old_faults -= 1
            return
        position = _position(learned)
        leave_out(error, replace(position, faults=position.faults + 1) if position else None)

    def begun(batch: Samples, rows: Any) -> Learned:
        """Return a model that has learnt nothing yet, begun with the first batch."""
        first = batch.on_host()
        require_valid_entries(first, rows, features.names)
        return replace(begin(recipe, first, features, drawing, rows), skipped=skipped, source=source.spec)

    def size(row_bytes: int) -> int:
        """Return how many samples the next batch should have."""
        nonlocal rows_asked
        if reading.on_device:  # where it may be read before this one is learnt from: nothing but rows may decide
            wanted = reading.next_size(rows_asked, row_bytes)
            rows_asked += wanted
            return wanted
        if learned is None or clock + rows_read <= began:
            return reading.batch_size
        return reading.next_size(clock + rows_read, row_bytes, learned.method)

    parts_left, whole_pass = parts_of_pass(source, done, reading.keeps_digests, reading.verify)
    if reading.verify and learned is not None and resumed is not None:
        _require_same_past(learned.method, source, reading, resumed)
    total = _total(parts_left, whole_pass, reading, learned)
    any_batch = done is not None  # now or in an earlier run?
    began = resumed.began if resumed else 0
    for number in range(done.passes if done else 1, reading.max_passes + 1):
        for part in parts_left:
            before = shuffling.bit_generator.state
            order = shuffling if reading.shuffle and part.source.any_order else None
            # Samples that were read in earlier parts and passes, and in the batches of this part.
            clock = resumed.clock if resumed else learned.history.samples if learned else 0
            batches_done, first_row, count, rows_read = resumed.batches if resumed else 0, 0, 0, 0
            earlier = _position(learned) if part.before else None
            past = resumed.past if resumed else earlier.as_past() if earlier else ()
            # Where the source can seek, only the last of the batches that were learnt from is read again.
            seeking = resumed is not None and resumed.place is not None and part.source.seeks and not reading.verify
            if resumed is not None and resumed.place is not None and seeking:
                first_row, count, rows_read = resumed.place, batches_done - 1, resumed.rows - resumed.length
            pipe, lines_before, rows_before = part.source.pipe, 0, 0
            if resumed is not None and resumed.lines is not None:
                count, rows_read = batches_done, resumed.rows
                lines_before, rows_before = resumed.lines, rows_read
            passing_over = count < batches_done
            digests, rows_asked = Digests(reading.keeps_digests and pipe is None), clock + rows_read
            batches = cuts(part.source, reading, order, fault, size, first_row)
            if recipe.device is not None and part.source.rewinds and not (part.source.resident or reading.skip_bad):
                from onmf.device.transfer import sent_ahead  # an optional dependency

                batches = sent_ahead(batches, recipe.device)
            with closing(batches):
                for rows, batch, places in batches:
                    any_batch = True
                    if learned is None:
                        began = clock + rows_read
                    count += 1
                    rows_read += len(rows)
                    digests.add(batch)
                    if resumed is not None and count <= batches_done:
                        if count == batches_done:
                            digests.require(resumed, seeking)
                            passing_over = False
                        continue
                    end, ahead = int(places[-1]), 0
                    if pipe is not None:  # some of the rows after this batch may have been found bad already
                        ahead = old_faults + max(0, faults - (end + 1 - (rows_read - rows_before)))
                    position = Position(
                        *(number, count, before, part.source.n_samples),
                        mark=digests.all,
                        last=digests.last,
                        clock=clock,
                        rows=rows_read,
                        length=len(rows),
                        faults=ahead,
                        place=None if places[0] == NOWHERE else int(places[0]),
                        lines=None if pipe is None else lines_before + pipe.up_to(end),
                        began=began,
                        files=part.known(),
                        files_before=part.before,
                        past=past,
                    )
                    try:
                        model = grown(learned, features, batch, source.spec) if learned else begun(batch, rows)
                        learned, progress = step(recipe, model, batch, rows, position, total)
                    except SilenceError as error:
                        silence = error
                        continue
                    except DataError as error:
                        if not reading.skip_bad:
                            raise
                        leave_out(error, position)
                        continue
                    yield learned, progress
                    unreported = False
            if count < batches_done:
                raise SourceError(
                    f"the data end after {count} batches of a pass; the checkpoint has learnt from {batches_done}."
                )
            if not count and number > 1 and not part.before:
                raise SourceError(
                    f"pass {number} found no batches: this source can be read only once; use max_passes=1."
                )
            done = _position(learned)
            if learned and done and done.lines is not None and pipe and lines_before + pipe.all > done.lines:
                learned = replace(learned, position=replace(done, lines=lines_before + pipe.all, faults=0))
                unreported = True
            elif learned and done and part.files is not None:
                ended = shuffling.bit_generator.state
                learned = replace(learned, position=replace(done, files=part.known(), ended=ended))
                unreported = True
            resumed, began = None, 0
        if learned is None and silence is not None:
            raise silence
        parts_left = [whole_pass]
    if learned is None or not (any_batch or unreported):
        reason = skipped.reasons[-1] if skipped.count else "There are no batches."
        raise DataError(f"No batch could be learnt from. {reason}")
    if unreported:
        yield learned, None


def _position(learned: Learned | None) -> Position | None:
    """Return where a fit stands in its batches, if it does."""
    position = learned.position if learned else None
    return position if isinstance(position, Position) else None


def _total(left: list[PassPart], whole: PassPart, reading: Reading, learned: Learned | None) -> int | None:
    """Return how many samples will have been learnt from after all passes, earlier data included, if that is known."""
    done = _position(learned)
    before = done.clock if done and not done.ended else learned.history.samples if learned else 0
    remaining = reading.max_passes - (done.passes if done else 1)
    rows = [part.source.n_samples for part in (*left, whole)]
    counts = [n for n in rows if n is not None]
    return before + sum(counts[:-1]) + remaining * counts[-1] if len(counts) == len(rows) else None


def _require_same_past(method: Method, source: Source, reading: Reading, done: Position) -> None:
    """Raise an error if a file of an earlier part no longer gives the batches that it gave then, in any entry."""
    names = [name for name, _ in done.files or ()]
    ends = [part.files_before for part in (*done.past, done)]
    for part, first, last in zip(done.past, ends, ends[1:], strict=False):
        read, count, digests = 0, 0, Digests(reading.keeps_digests)

        def size(row_bytes: int, part: Position = part) -> int:
            seen = part.clock + read  # noqa: B023 - as it is when the next batch is cut
            first = seen <= part.began and not reading.on_device
            return reading.batch_size if first else reading.next_size(seen, row_bytes, method)

        files = source.of_files(names[first:last])
        order = part.shuffling() if reading.shuffle and files.any_order else None
        batches = cuts(files, reading, order, lambda _: None, size)  # what cannot be read was counted then
        for rows, batch, _ in islice(batches, part.batches):
            count, read = count + 1, read + len(rows)
            digests.add(batch)
        if count < part.batches:
            raise SourceError(
                f"the files that the checkpoint has learnt from end after {count} batches of {part.batches}; put back "
                "what was removed, or resume without verify (--verify)."
            )
        digests.require(part, alone=False)
