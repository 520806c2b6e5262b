"""Where a fit in rounds stands in its partitions, and by what these are recognised when it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from onmf._support.checks import require_whole
from onmf.learner.position import DIGEST, Position


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
