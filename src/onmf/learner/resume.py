"""The position of an interrupted fit in its data, and the check that it resumes with the same data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy
import xxhash

from onmf._support.checks import require_whole
from onmf._support.device_rows import on_host
from onmf._support.wording import counted
from onmf.data import Source, SourceError
from onmf.data.columns import Features
from onmf.data.inputs import require_same_features
from onmf.samples import Samples

if TYPE_CHECKING:
    from onmf.learner.learned import Learned

Files = tuple[tuple[str, str], ...]  # names, and by what the files are recognised
DIGEST = re.compile("[0-9a-f]{32}")
COUNTS = ("faults", "clock", "rows", "length", "began", "files_before")
ENDS = 2**16  # bytes of either end of a file
UNREAD = "!"  # before that of a file that could not be read, and is new again once it has changed
RESUME = "resume it with the same {}, or continue from it with resume_from (--from)."


def _require_digest(text: Any) -> None:
    if not isinstance(text, str) or not DIGEST.fullmatch(text):
        raise ValueError(f"one of its digests is {text!r}")


@dataclass(frozen=True)
class Position:
    """The position of a fit in its data: the part of the pass, its batches learnt from, and how it is shuffled.

    A pass has one part; where files were added while the run rested, it continues with a part of the new ones.
    """

    kind: ClassVar[str] = "batches"
    array_field: ClassVar[str] = "files"  # stored as an array: it may be longer than the facts of a model file can be

    passes: int
    batches: int  # of this part
    generator: Mapping[str, Any]  # the state of the shuffling generator when the part began
    n_samples: int | None = None  # of the part, if it says
    mark: str | None = None  # a digest of all batches of this part, by which they are recognised
    last: str | None = None  # that of the last batch alone
    faults: int = 0  # of the source, met and counted after that batch and before the next one
    clock: int = 0  # samples that were learnt from before this part
    rows: int = 0  # samples in the batches of this part
    length: int = 0  # of the last batch
    place: int | None = None  # rows of the part before the last batch; None: the source has left out some
    lines: int | None = None  # of a pipe, or rows of its arrays, that came in all runs up to the end of the last batch
    began: int = 0  # samples that were read and skipped before the first that were learnt from, in this part
    files: Files | None = None  # of the pass, in their order, up to and with those of this part
    files_before: int = 0  # this part
    ended: Mapping[str, Any] | None = None  # that state when all of its files had been read
    past: tuple[Position, ...] = ()  # where the earlier parts of this pass ended

    def __post_init__(self) -> None:
        require_whole(1, passes=self.passes, batches=self.batches)
        given = {
            name: getattr(self, name) for name in ("n_samples", "place", "lines") if getattr(self, name) is not None
        }
        require_whole(0, **{name: getattr(self, name) for name in COUNTS}, **given)
        for mark in (self.mark, self.last):
            if mark is not None:
                _require_digest(mark)
        if self.length > self.rows:
            raise ValueError(f"its last batch has {self.length} of {self.rows} samples")
        if self.files is not None and self.files_before > len(self.files):
            raise ValueError(f"{self.files_before} of {len(self.files)} files were read before")
        ends = [part.files_before for part in (*self.past, self)]
        if (self.files is None and self.past) or ends != sorted(ends):
            raise ValueError(f"its parts begin after {ends} files")

    def shuffling(self, after: bool = False) -> np.random.Generator:
        """Return the generator that shuffles this part, as it was when the part began or, ``after`` it, had ended."""
        generator = np.random.default_rng(0)
        generator.bit_generator.state = self.ended if after and self.ended else self.generator
        return generator

    def without(self, names: Collection[str]) -> Position:
        """Return the position among the other files."""
        files = self.files or ()

        def moved(part: Position) -> Position:
            before = sum(name not in names for name, _ in files[: part.files_before])
            return replace(part, files_before=before)

        kept = tuple(file for file in files if file[0] not in names)
        return replace(moved(self), files=kept, past=tuple(map(moved, self.past)))

    @property
    def repeats(self) -> bool:
        """Were the samples of this part learnt from before?"""
        return self.passes > 1 and self.files_before == 0

    @classmethod
    def restored(cls, facts: Mapping[str, Any], files: Any) -> Self:
        """Return the position that was stored as these facts and this list of files, checked."""
        files = None if files is None else tuple((name, content) for name, content in files)
        if not all(isinstance(text, str) and text for file in files or () for text in file):
            raise ValueError("its list of files does not hold texts")
        past = facts["past"]
        if not isinstance(past, list) or not all(map(_is_earlier_part, past)):
            raise ValueError(f"the earlier parts of its pass are {past!r}")
        past = tuple(cls(**{**part, "past": ()}) for part in past)
        position = cls(**{**facts, "past": past}, files=files)
        if files is None and position.files_before:
            raise ValueError(f"{position.files_before} of no files were read before")
        for each in (position, *past):
            each.shuffling(after=True)
            each.shuffling()  # raises an error for what is not the state of a generator
        return position

    def as_past(self) -> tuple[Position, ...]:
        """Return the parts of the pass up to this one, for the part that follows."""
        return *self.past, replace(self, files=None, past=(), ended=None)


def _is_earlier_part(facts: Any) -> bool:
    return isinstance(facts, dict) and not facts.get("past") and facts.get("files") is None


class OpenPartition(NamedTuple):
    """A partition that is learnt from."""

    number: int
    done: int  # of its rows, in the order in which they are learnt from
    digest: str  # of all that it holds


@dataclass(frozen=True)
class RoundPosition:
    """The position of a fit in partitions: the pass and the rows done, whatever the machines."""

    kind: ClassVar[str] = "rounds"
    array_field: ClassVar[str] = "opened"

    passes: int
    seed: int  # of all shuffling
    partitions: int  # in all
    begun: int  # of them, in this pass
    opened: tuple[OpenPartition, ...]  # those that have rows left or, where none has, the one that was opened last
    mark: str  # a digest of the digests of all that were begun in this pass

    def __post_init__(self) -> None:
        require_whole(1, passes=self.passes, partitions=self.partitions)
        require_whole(0, seed=self.seed, begun=self.begun)
        for each in self.opened:
            require_whole(0, number=each.number, done=each.done)
            _require_digest(each.digest)
        numbers = [each.number for each in self.opened]
        twice = len(set(numbers)) < len(numbers)
        if self.begun > self.partitions or twice or max(numbers, default=0) >= self.partitions:
            raise ValueError(f"{self.begun} of {self.partitions} partitions were begun, and {numbers} are open")
        if self.mark != "":
            _require_digest(self.mark)

    @property
    def repeats(self) -> bool:
        """Were its samples learnt from before?"""
        return self.passes > 1

    @classmethod
    def restored(cls, facts: Mapping[str, Any], opened: Any) -> Self:
        """Return the position that was stored as these facts and this list of partitions, checked."""
        return cls(**facts, opened=tuple(OpenPartition(*each) for each in opened))


def stored(position: Position | RoundPosition) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return a position as arrays and facts of a model file."""
    facts = asdict(position) | {"kind": position.kind}
    field = facts.pop(position.array_field)
    text = np.frombuffer(json.dumps(field).encode(), dtype=np.uint8)
    return {} if field is None else {f"position.{position.array_field}": text}, facts


def restored(arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> Position | RoundPosition:
    """Return the position that ``stored`` has made arrays and facts of, checked."""
    kinds: dict[str, type[Position | RoundPosition]] = {kind.kind: kind for kind in (Position, RoundPosition)}
    kind = kinds[facts["kind"]]
    field = arrays.get(f"position.{kind.array_field}")
    facts = {name: fact for name, fact in facts.items() if name != "kind"}
    return kind.restored(facts, None if field is None else json.loads(field.tobytes()))


class Digests:
    """Digests of the batches of a part, made while they are read: of the last one, and of all so far."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.all: str | None = None
        self.last: str | None = None

    def add(self, batch: Any) -> None:
        """Add one more batch."""
        if self.kept:
            self.last = digest(batch)
            self.all = chained(self.all or "", self.last)

    def require(self, done: Position, alone: bool) -> None:
        """Raise an error for data that are not those of the checkpoint, or come in another order.

        ``alone``: only the last of its batches was read again, so that the digests of the others are the checkpoint's.
        """
        kept, found = (done.last, self.last) if alone else (done.mark, self.all)
        if kept not in (None, found):
            which = f"batch {done.batches} of pass {done.passes} differs from the one"
            which = which if alone else f"the first {done.batches} batches of pass {done.passes} differ from those"
            raise SourceError(
                f"the data are not those of the checkpoint: {which} it has learnt from; "
                "give the same data, or begin a new run."
            )
        if alone:
            self.all = done.mark


def chained(mark: str, digest: str) -> str:
    """Return the digest of everything up to one more batch or partition."""
    return xxhash.xxh3_128_hexdigest((mark + digest).encode())


def digest(batch: Samples) -> str:
    """Return a hash of a batch's shape, type, every entry and every weight."""
    X = on_host(batch.matrix)
    sparse = batch.sparse or scipy.sparse.issparse(X)
    state = xxhash.xxh3_128(str((X.shape, X.dtype.str, sparse, batch.absent)).encode())
    parts = (X.indptr, X.indices, X.data) if sparse else (X,)
    for part in (*parts, batch.entry_weight, batch.sample_weight):
        if part is not None:
            state.update(np.ascontiguousarray(part).data)
    return state.hexdigest()


@dataclass(frozen=True)
class PassPart:
    """A part of a pass that is read as a source of its own."""

    source: Source
    files: Files | None = None  # of the pass up to and with this part
    before: int = 0  # files of earlier parts

    def known(self) -> Files | None:
        """Return the files, with a mark at those that could not be read."""
        if self.files is None or not self.source.bad:
            return self.files
        bad = {name for name, path in (self.source.files or {}).items() if path in self.source.bad}
        return tuple(
            (name, UNREAD + content.removeprefix(UNREAD) if name in bad else content) for name, content in self.files
        )


def parts_of_pass(
    source: Source, done: Position | None, keeps_digests: bool, verify: bool = False
) -> tuple[list[PassPart], PassPart]:
    """Return the parts left of the pass that an earlier run was in, and the one part that is every later pass.

    New files come after the old ones, whatever their names, so that resuming repeats nothing. A part that has ended is
    left only to ``verify`` it. A file that could not be read stays bad in its part, and is new if it has changed.
    """
    if source.files is None or not keeps_digests:
        return [PassPart(source)], PassPart(source)
    now = fingerprints(source)
    if done is None or done.files is None:
        part = PassPart(source, tuple(now.items()))
        return [part], part
    again = {name for name, content in done.files if content[0] == UNREAD and now.get(name) != content[1:]}
    kept = done.without(again).files or ()
    old, known = [name for name, _ in done.files], {name for name, _ in kept}
    new = [name for name in now if name not in known]
    everything = (*kept, *((name, now[name]) for name in new))
    left = []
    if done.ended is None or verify:
        rest = source.of_files(old[done.files_before :])
        rest.bad |= {
            path: SourceError(f"{path} could not be read before.")
            for name, path in (rest.files or {}).items()
            if name in again
        }
        left = [PassPart(rest, done.files, done.files_before)]
    if new:
        left.append(PassPart(source.of_files(new), everything, len(kept)))
    return left, PassPart(source.of_files([name for name, _ in everything]), everything)


def fingerprints(source: Source) -> dict[str, str]:
    """Return by what the files of a source are recognised: their lengths in bytes, their beginnings and ends."""
    return {name: _fingerprint(path) for name, path in (source.files or {}).items()}


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        beginning, length = file.read(ENDS), file.seek(0, os.SEEK_END)
        file.seek(max(0, length - ENDS))
        return f"{length}:{xxhash.xxh3_64_hexdigest(beginning + file.read(ENDS))}"


def settled(learned: Learned, data: Source | int, forget: bool) -> Learned:
    """Return the model at its position among the files that are known from now on.

    In parts that have ended, files that could not be read then are left out once they are gone or have changed and, to
    ``forget`` what was removed, all that are gone.
    """
    position = learned.position
    if not isinstance(position, Position) or position.files is None or isinstance(data, int):
        return learned
    now, ended = fingerprints(data), len(position.files) if position.ended else position.files_before
    left_out = {
        name
        for name, content in position.files[:ended]
        if (forget and name not in now) or (content[0] == UNREAD and now.get(name) != content[1:])
    }
    return replace(learned, position=position.without(left_out)) if left_out else learned


def require_position(learned: Learned, data: Source | int, features: Features) -> None:
    """Raise an error unless the data are those that this model was learning from; a number stands for partitions."""
    position = learned.position
    if position is None:
        raise ValueError(
            "only a fit that was interrupted can be resumed, and this model was not learnt by one; "
            "to continue learning it from these data, use resume_from (--from)."
        )
    require_same_features(features, learned.features, "the input", "the checkpoint")
    if isinstance(data, int):
        if isinstance(position, Position):
            raise ValueError(f"this run was learnt without Dask; {RESUME.format('data (without --dask)')}")
        if position.partitions != data:
            raise ValueError(
                f"the data have {counted(data, 'partition')}, those of the checkpoint {position.partitions}; give the "
                "same data in the same partitions."
            )
        return
    if isinstance(position, RoundPosition):
        raise ValueError(f"this run was learnt with Dask, in partitions; {RESUME.format('partitions (--dask)')}")
    if (position.lines is None) != (data.pipe is None):
        how = "other data than a pipe" if position.lines is None else "a pipe"
        raise ValueError(f"this run was learnt from {how}; {RESUME.format('kind of data')}")
    now = fingerprints(data)
    for name, fingerprint in position.files or ():  # new files are welcome
        if name not in now:
            raise ValueError(
                f"{name} was among the files of the checkpoint and is gone; put it back, forget it with "
                "Checkpoint(forget_removed=True) (--forget-removed) if all files were learnt from, or begin anew."
            )
        if fingerprint[0] != UNREAD and now[name] != fingerprint:
            raise ValueError(f"{name} has changed since the checkpoint; put it back as it was, or begin anew.")
    if position.ended or any(content[0] == UNREAD for _, content in position.files or ()):
        return
    n_samples = parts_of_pass(data, position, keeps_digests=True)[0][0].source.n_samples
    if n_samples is not None and position.n_samples not in (None, n_samples):
        raise ValueError(f"the data have {counted(n_samples, 'sample')}, those of the checkpoint {position.n_samples}.")
