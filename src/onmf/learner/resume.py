"""What a run resumes: the legs of a pass that it has not read, and checks that the data are the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import xxhash

from onmf._support.wording import counted
from onmf.data import Source, SourceError
from onmf.data.columns import Features
from onmf.learner.batching import Reading, cuts
from onmf.learner.learned import Learned
from onmf.learner.position import Files, Marks, Position, Standing
from onmf.methods import Method

ENDS = 2**16  # bytes of either end of a file


@dataclass(frozen=True)
class Leg:
    """A part of a pass that is read as a source of its own."""

    source: Source
    files: Files | None = None  # of the pass up to and with this leg
    before: int = 0  # files of earlier legs


def legs(source: Source, done: Position | None, marked: bool) -> tuple[list[Leg], Leg]:
    """What is left of the pass that an earlier run was in, and the one leg that is every pass after it.

    New files come after those that the run knows, whatever their names, so that going on repeats nothing.
    """
    if source.files is None or not marked:
        return [Leg(source)], Leg(source)
    now = fingerprints(source)
    if done is None or done.files is None:
        leg = Leg(source, tuple(now.items()))
        return [leg], leg
    known = tuple(name for name, _ in done.files)
    new = tuple(name for name in now if name not in set(known))
    everything = tuple((name, now[name]) for name in known + new)
    left = [Leg(source.of_files(known[done.files_before :]), done.files, done.files_before)]
    if new:
        left.append(Leg(source.of_files(new), everything, len(known)))
    return left, Leg(source.of_files(known + new), everything)


def fingerprints(source: Source) -> dict[str, str]:
    """The files of a source, and by what they are recognised: their lengths in bytes, their beginnings and ends."""
    return {name: _fingerprint(path) for name, path in (source.files or {}).items()}


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        beginning, length = file.read(ENDS), file.seek(0, os.SEEK_END)
        file.seek(max(0, length - ENDS))
        return f"{length}:{xxhash.xxh3_64_hexdigest(beginning + file.read(ENDS))}"


def require_position(learned: Learned, source: Source, features: Features) -> None:
    """Refuse to go on in data other than those that this model was learning from."""
    position = _interrupted(learned)
    if not isinstance(position, Position):
        raise ValueError(
            "this run was learnt with Dask, in partitions; resume it with the same partitions (--dask), or go on from "
            "it with resume_from (--from)."
        )
    require_features(learned, features, "the checkpoint")
    _require_files(position, source)
    n_samples = legs(source, position, marked=True)[0][0].source.n_samples
    if n_samples is not None and position.n_samples not in (None, n_samples):
        raise ValueError(f"the data have {counted(n_samples, 'sample')}, those of the checkpoint {position.n_samples}.")


def require_standing(learned: Learned, partitions: int, features: Features) -> None:
    """The same of data in so many partitions."""
    standing = _interrupted(learned)
    if not isinstance(standing, Standing):
        raise ValueError(
            "this run was learnt without Dask; resume it with the same data (without --dask), or go on from it with "
            "resume_from (--from)."
        )
    require_features(learned, features, "the checkpoint")
    if standing.partitions != partitions:
        raise ValueError(
            f"the data have {counted(partitions, 'partition')}, those of the checkpoint {standing.partitions}; give "
            "the same data in the same partitions."
        )


def _interrupted(learned: Learned) -> Position | Standing:
    if learned.position is None:
        raise ValueError(
            "only a fit that was interrupted can be resumed, and this model was not learnt by one; "
            "to go on learning it from these data, use resume_from (--from)."
        )
    return learned.position


def require_features(learned: Learned, features: Features, whose: str, cure: str = "") -> None:
    """Refuse data that have other features than those that this model has learnt from."""
    F = learned.state.W.shape[1]
    if features.number != F:
        raise ValueError(f"the data have {counted(features.number, 'feature')}, those of {whose} {F}{cure}.")
    if None not in (learned.features.names, features.names) and features.names != learned.features.names:
        pairs = zip(features.names or (), learned.features.names or (), strict=True)
        theirs, ours = next((one, other) for one, other in pairs if one != other)
        raise ValueError(f"the data have a feature {theirs!r} where those of {whose} have {ours!r}{cure}.")


def _require_files(position: Position, source: Source) -> None:
    """Refuse a folder in which a file has vanished or changed; new ones are welcome."""
    now = fingerprints(source)
    for name, known in position.files or ():
        if name not in now:
            raise ValueError(f"{name} was among the files of the checkpoint and is gone; put it back, or begin anew.")
        if now[name] != known:
            raise ValueError(f"{name} has changed since the checkpoint; put it back as it was, or begin anew.")


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
