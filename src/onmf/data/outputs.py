"""Outputs for coefficients or samples, written row by row; each registers itself in the file of its format."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TextIO

import numpy as np

from onmf._support.arrays import Array


@dataclass(frozen=True)
class Origin:
    """The model that coefficients belong to, for files that have a place for it."""

    W: Array  # (K, F)
    features: tuple[str, ...] | None  # their names, where they have some
    facts: Mapping[str, Any]  # the settings: texts, numbers, lists of texts, and mappings of these
    shares: Callable[[Array], Array]  # of each component in the fit of a sample, from the coefficients

    def by_gene(self, genes: Sequence[str]) -> Array | None:
        """Return the loadings (genes, K), NaN for genes that the model lacks; None if its features are not genes."""
        if self.features is None:
            return self.W.T if len(genes) == self.W.shape[1] else None
        places = {name: place for place, name in enumerate(self.features)}
        found: Array = np.full((len(genes), len(self.W)), np.nan, self.W.dtype)
        there = [place for place, gene in enumerate(genes) if gene in places]
        found[there] = self.W.T[[places[genes[place]] for place in there]]
        return found


@dataclass(frozen=True)
class Heading:
    """The facts that are known before the first row is written."""

    columns: tuple[str, ...]
    dtype: np.dtype[Any]
    index: str | None  # the heading of the names of the rows, where rows have names
    data: Path  # the file of the samples
    digits: int = 9  # of a number in text: by default all those of single precision
    origin: Origin | None = None
    safe: bool = False  # names that a spreadsheet would compute are quoted


class Output(ABC):
    """A format of results; ``class Jsonl(Output, suffixes=[".jsonl"])`` registers one for files that end in it.

    It is made with the place to write to and a ``Heading``, takes rows by ``write``, of which it keeps none, and is
    completed by ``close``.
    """

    # Whether it holds the samples too: then it may take the place of their file, and takes coefficients alone.
    adds_to_data: ClassVar[bool] = False
    _kinds: ClassVar[dict[str, "type[Output]"]] = {}

    def __init_subclass__(cls, suffixes: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._kinds.update(dict.fromkeys(suffixes, cls))

    @classmethod
    def require(cls, data: Path) -> None:
        """Raise an error, before any work, if the coefficients of these samples cannot be written in this format."""
        return

    @abstractmethod
    def __init__(self, place: Any, heading: Heading) -> None:
        """Begin the file: ``place`` is a path or, for text, a stream."""

    @abstractmethod
    def write(self, H: Array, names: Sequence[str] | None) -> None:
        """Append rows, and hand them on at once."""

    def require_whole(self) -> None:
        """Raise an error, once all rows are written, if they are too few or too many."""
        return

    @abstractmethod
    def close(self) -> None:
        """Complete the file."""


class Lines(Output):
    """One line of text per row, in a file or in a stream that stays open."""

    def __init__(self, place: Path | TextIO, heading: Heading) -> None:
        self.heading, self.lasting = heading, not isinstance(place, Path)
        self.number = f"%.{heading.digits}g"
        self.file = place.open("w", encoding="utf-8", newline="\n") if isinstance(place, Path) else place

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        self.file.writelines(self._lines(H, names))
        self.file.flush()

    def close(self) -> None:
        if not self.lasting:
            self.file.close()

    @abstractmethod
    def _lines(self, H: Array, names: Sequence[str] | None) -> Iterable[str]:
        """Return the rows as lines, names of rows first."""


def suffixes(of_samples: bool = False) -> list[str]:
    """Return the endings of files that coefficients, or also samples, can be written to."""
    return sorted(end for end, kind in Output._kinds.items() if not (of_samples and kind.adds_to_data))


def kind_of(path: Path) -> type[Output] | None:
    """Return the output for files that end as this one does."""
    return Output._kinds.get(path.suffix.lower())
