"""All batches of a source, pass after pass, with a position from which an interrupted run continues bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from onmf._support.skipping import SkippedLog
from onmf.data import Source, SourceError
from onmf.data.columns import Features
from onmf.learner.batching import Reading, cuts
from onmf.learner.config import Recipe
from onmf.learner.initialise import begin
from onmf.learner.learned import Learned, Skipped
from onmf.learner.position import Marks, Position
from onmf.learner.resume import Leg, legs, require_same_past
from onmf.learner.update import Progress, step
from onmf.model.validation import DataError, require_valid_entries


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
    from there: the end is that of a run that was never interrupted, bit for bit. Without a position, the data are new.
    """
    if reading.max_passes > 1 and not source.rewinds:
        raise SourceError("this source can be read only once; use max_passes=1 (--passes 1).")
    drawing, shuffling = generators
    done = _position(learned)
    if done is not None:
        shuffling = done.shuffling()
    skipped, tell = Skipped(), SkippedLog()  # before anything is learnt
    known_faults = done.faults if done else 0
    passing_over = False  # batches that an earlier run has learnt from
    news = False  # since the last time that anything was handed out
    asked = 0  # samples that batches on a device have been asked for

    def leave_out(error: Exception, position: Position | None) -> None:
        nonlocal learned, skipped, news
        tell(error)
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
        position = _position(learned)
        leave_out(error, replace(position, faults=position.faults + 1) if position else None)

    def size(row_bytes: int) -> int:
        """Of the next batch."""
        nonlocal asked
        if reading.device:  # where it may be read before this one is learnt from: nothing but rows may decide
            wanted = reading.next_size(asked, row_bytes)
            asked += wanted
            return wanted
        if learned is None or clock + read <= began:
            return reading.batch_size
        return reading.next_size(clock + read, row_bytes, learned.method)

    left, whole = legs(source, done, reading.marked)
    if reading.verify and learned is not None and done is not None:
        require_same_past(learned.method, source, reading, done)
    total = _total(left, whole, reading, learned)
    met = done is not None  # any batch, now or in an earlier run?
    began = done.began if done else 0
    for number in range(done.passes if done else 1, reading.max_passes + 1):
        for leg in left:
            before = shuffling.bit_generator.state
            order = shuffling if reading.shuffle and leg.source.any_order else None
            # Samples that were read in earlier legs and passes, and in the batches of this leg.
            clock = done.clock if done else learned.history.samples if learned else 0
            known, begins, count, read = done.batches if done else 0, 0, 0, 0
            earlier = _position(learned) if leg.before else None
            past = done.past if done else earlier.as_past() if earlier else ()
            sought = False
            if done is not None and done.place is not None and leg.source.seeks and not reading.verify:
                sought = True  # only the last batch is read again
                begins, count, read = done.place, known - 1, done.rows - done.length
            passing_over = known > 0
            marks, asked = Marks(reading.marked), clock + read
            batches = cuts(leg.source, reading, order, fault, size, begins)
            if recipe.device is not None and leg.source.rewinds and not (leg.source.resident or reading.skip_bad):
                from onmf.device.transfer import sent_ahead  # PyTorch is there, but not for everybody

                batches = sent_ahead(batches, recipe.device)
            with closing(batches):
                for rows, batch, place in batches:
                    met = True
                    if learned is None:
                        began = clock + read
                    count += 1
                    read += len(rows)
                    marks.add(batch)
                    if done is not None and count <= known:
                        if count == known:
                            marks.require(done, sought)
                            passing_over = False
                        continue
                    position = Position(
                        number,
                        count,
                        before,
                        leg.source.n_samples,
                        mark=marks.all,
                        last=marks.last,
                        clock=clock,
                        rows=read,
                        length=len(rows),
                        place=place,
                        began=began,
                        files=leg.files,
                        files_before=leg.before,
                        past=past,
                    )
                    try:
                        if learned is None:
                            first = batch.on_host()
                            require_valid_entries(first, rows, features.names)
                            begun = begin(recipe, first, features, drawing, source.n_samples, rows)
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
                raise SourceError(
                    f"the data end after {count} batches of a pass; the checkpoint has learnt from {known}."
                )
            if not count and number > 1 and not leg.before:
                raise SourceError(
                    f"pass {number} found no batches: this source can be read only once; use max_passes=1."
                )
            done, began = None, 0
        left = [whole]
    if learned is None or not (met or news):
        reason = skipped.reasons[-1] if skipped.count else "There are no batches."
        raise DataError(f"No batch could be learnt from. {reason}")
    if news:
        yield learned, None


def _position(learned: Learned | None) -> Position | None:
    """Where it stands in batches, if it does."""
    position = learned.position if learned else None
    return position if isinstance(position, Position) else None


def _total(left: list[Leg], whole: Leg, reading: Reading, learned: Learned | None) -> int | None:
    """The samples learnt from when all passes are over, and of the data that the model knew before; None: not known."""
    done = _position(learned)
    before = done.clock if done else learned.history.samples if learned else 0
    remaining = reading.max_passes - (done.passes if done else 1)
    rows = [leg.source.n_samples for leg in (*left, whole)]
    known = [n for n in rows if n is not None]
    return before + sum(known[:-1]) + remaining * known[-1] if len(known) == len(rows) else None
