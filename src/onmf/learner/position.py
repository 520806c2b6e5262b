"""Where an interrupted fit stands: in the batches of a source, or in the rounds of a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy
import xxhash

from onmf._support.checks import require_whole
from onmf._support.device_rows import on_host
from onmf.data import SourceError
from onmf.samples import Samples

Files = tuple[tuple[str, str], ...]  # names, and by what the files are recognised
DIGEST = re.compile("[0-9a-f]{32}")
COUNTS = ("faults", "clock", "rows", "length", "began", "files_before")


@dataclass(frozen=True)
class Position:
    """Where a fit stands in its data: in which leg of which pass, after how many of its batches, how it is shuffled.

    A pass has one leg; where files were added while the run rested, it goes on with a leg of the new ones.
    """

    kind: ClassVar[str] = "batches"

    passes: int
    batches: int  # of this leg
    generator: Mapping[str, Any]  # the state of the shuffling generator when the leg began
    n_samples: int | None = None  # of the leg, where that is known
    mark: str | None = None  # a digest of all batches of this leg, by which they are recognised
    last: str | None = None  # that of the last batch alone
    faults: int = 0  # of the source, met and counted after that batch and before the next one
    clock: int = 0  # samples that were learnt from before this leg
    rows: int = 0  # samples in the batches of this leg
    length: int = 0  # of the last batch
    place: int | None = None  # rows of the leg before the last batch; None: the source has left out some
    began: int = 0  # samples that were read and skipped before the first that were learnt from, in this leg
    files: Files | None = None  # of the pass, in their order, up to and with those of this leg
    files_before: int = 0  # this leg
    past: tuple[Position, ...] = ()  # where the earlier legs of this pass ended

    def __post_init__(self) -> None:
        require_whole(1, passes=self.passes, batches=self.batches)
        known = {name: getattr(self, name) for name in ("n_samples", "place") if getattr(self, name) is not None}
        require_whole(0, **{name: getattr(self, name) for name in COUNTS}, **known)
        for mark in (self.mark, self.last):
            if mark is not None and not DIGEST.fullmatch(mark):
                raise ValueError(f"one of its digests is {mark!r}")
        if self.length > self.rows:
            raise ValueError(f"its last batch has {self.length} of {self.rows} samples")
        if self.files is not None and self.files_before > len(self.files):
            raise ValueError(f"{self.files_before} of {len(self.files)} files were read before")
        ends = [leg.files_before for leg in (*self.past, self)]
        if (self.files is None and self.past) or ends != sorted(ends):
            raise ValueError(f"its legs begin after {ends} files")

    def shuffling(self) -> np.random.Generator:
        """The generator that shuffles this leg, as it was when the leg began."""
        generator = np.random.default_rng(0)
        generator.bit_generator.state = self.generator
        return generator

    @property
    def repeats(self) -> bool:
        """Are the samples of this leg such as were learnt from before?"""
        return self.passes > 1 and self.files_before == 0

    def stored(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """As arrays and facts of a model file; of files there may be more than its facts could hold."""
        facts = asdict(self) | {"kind": self.kind}
        del facts["files"]
        if self.files is None:
            return {}, facts
        return {"position.files": np.frombuffer(json.dumps(self.files).encode(), dtype=np.uint8)}, facts

    @classmethod
    def restored(cls, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> Self:
        """What ``stored`` came from, checked."""
        files: Files | None = None
        if "position.files" in arrays:
            found = json.loads(arrays["position.files"].tobytes())
            files = tuple((name, known) for name, known in found)
            if not all(isinstance(text, str) for file in files for text in file):
                raise ValueError("its list of files does not hold texts")
        past = facts["past"]
        if not isinstance(past, list) or not all(map(_is_leg, past)):
            raise ValueError(f"the earlier legs of its pass are {past!r}")
        past = tuple(cls(**{**leg, "past": ()}) for leg in past)
        position = cls(**{**facts, "past": past}, files=files)
        if files is None and position.files_before:
            raise ValueError(f"{position.files_before} of no files were read before")
        for each in (position, *past):
            each.shuffling()  # refuses what is not the state of a generator
        return position

    def as_past(self) -> tuple[Position, ...]:
        """The legs of the pass up to this one, for the leg that follows."""
        return *self.past, replace(self, files=None, past=())


def _is_leg(facts: Any) -> bool:
    return isinstance(facts, dict) and not facts.get("past") and facts.get("files") is None


class Marks:
    """Digests of the batches of a leg, made while they are read: of the last one, and of all so far."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.all: str | None = None
        self.last: str | None = None

    def add(self, batch: Any) -> None:
        """One more batch."""
        if self.kept:
            self.last = digest(batch)
            self.all = xxhash.xxh3_128_hexdigest(((self.all or "") + self.last).encode())

    def require(self, done: Position, alone: bool) -> None:
        """Refuse to go on in data that are not those of the checkpoint, or come in another order.

        ``alone``: only the last of its batches was read again, so that the others are known from the checkpoint.
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
class Opened:
    """A partition that is learnt from."""

    number: int
    done: int  # of its rows, in the order in which they are learnt from
    digest: str  # of all that it holds

    def __post_init__(self) -> None:
        require_whole(0, number=self.number, done=self.done)
        if not isinstance(self.digest, str) or not DIGEST.fullmatch(self.digest):
            raise ValueError(f"the digest of a partition is {self.digest!r}")


@dataclass(frozen=True)
class Standing:
    """In which pass, after how many rounds, and how far in which partitions; nothing of the machines they are on."""

    kind: ClassVar[str] = "rounds"

    passes: int
    seed: int  # of all shuffling
    partitions: int  # in all
    begun: int  # of them, in this pass
    opened: tuple[Opened, ...]  # those that have rows left or, where none has, the one that was opened last
    mark: str  # a digest of the digests of all that were begun in this pass

    def __post_init__(self) -> None:
        require_whole(1, passes=self.passes, partitions=self.partitions)
        require_whole(0, seed=self.seed, begun=self.begun)
        numbers = [each.number for each in self.opened]
        if (
            self.begun > self.partitions
            or len(set(numbers)) < len(numbers)
            or max(numbers, default=0) >= self.partitions
        ):
            raise ValueError(f"{self.begun} of {self.partitions} partitions were begun, and {numbers} are open")
        if not isinstance(self.mark, str) or not (self.mark == "" or DIGEST.fullmatch(self.mark)):
            raise ValueError(f"one of its digests is {self.mark!r}")

    @property
    def repeats(self) -> bool:
        """Are its samples such as were learnt from before?"""
        return self.passes > 1

    def stored(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """As arrays and facts of a model file; of open partitions there may be more than its facts could hold."""
        facts = asdict(self) | {"kind": self.kind}
        text = json.dumps([[each.number, each.done, each.digest] for each in self.opened])
        del facts["opened"]
        return {"position.opened": np.frombuffer(text.encode(), dtype=np.uint8)}, facts

    @classmethod
    def restored(cls, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> Self:
        """What ``stored`` came from, checked."""
        found = json.loads(arrays["position.opened"].tobytes())
        return cls(**facts, opened=tuple(Opened(*each) for each in found))


def restored(arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> Position | Standing:
    """A position that ``stored`` of either kind has made arrays and facts of."""
    kinds: dict[str, type[Position | Standing]] = {kind.kind: kind for kind in (Position, Standing)}
    return kinds[facts["kind"]].restored(arrays, {name: fact for name, fact in facts.items() if name != "kind"})
