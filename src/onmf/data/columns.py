"""The options of tables: the columns that are features, the one that names the rows and the one that weighs them."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import Array, Mask, taken
from onmf.data.base import SourceError
from onmf.samples import Samples

SHOWN = 12  # names in a message
WEIGHTS = "weights are finite numbers that are not negative, and zero leaves a sample out"


@dataclass(frozen=True)
class TableOptions:
    """The options that every table takes; ``choose`` says what they mean."""

    columns: list[str] | None = None
    drop: list[str] | None = None
    index: str | None = None
    weight: str | None = None

    @property
    def named(self) -> set[str | None]:
        """The columns that any option names."""
        return {self.index, self.weight, *(self.columns or ()), *(self.drop or ())}

    def places(self, where: str | Path, names: Sequence[str]) -> tuple[list[int], int | None, int | None]:
        """Return the places that ``choose`` finds with these options."""
        return choose(where, names, self.columns, self.drop, self.index, self.weight)


def choose(
    where: str | Path,
    names: Sequence[str],
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
    what: str = "column",
) -> tuple[list[int], int | None, int | None]:
    """Return the places of the features, of the row names and of the weights among columns of these names.

    Features are the ``columns`` in their order, or else all, but neither those to ``drop`` nor the ``index``, which
    names the rows, nor the ``weight``, which says how often each row counts. ``what`` is what a user calls a column.
    """
    numbers: dict[str, int] = {}
    times: Counter[str] = Counter()

    def place(name: str) -> int:
        if not numbers:  # only now: of millions of columns both take a while
            numbers.update(zip(names, range(len(names)), strict=True))
            times.update(names)
        if name not in numbers:
            raise SourceError(f"{where} has no {what} {name!r}; its {what}s are {shown(names)}.")
        if times[name] > 1:
            raise SourceError(f"{where} has {times[name]} {what}s named {name!r}; give each a name of its own.")
        return numbers[name]

    row_names, weights = (None if name is None else place(name) for name in (index, weight))
    left_out = {row_names, weights, *map(place, drop or ())}
    places = [each for each in range(len(names)) if each not in left_out]
    if columns is not None and list(columns) != [names[each] for each in places]:  # equal names are not looked up
        for name, asked in Counter(columns).most_common(1):
            if asked > 1:
                raise SourceError(f"{where}: the {what} {name!r} is asked for {asked} times.")
        places = [each for each in map(place, columns) if each not in left_out]
    if not places:
        raise SourceError(f"{where} has no {what}s left to learn from; its {what}s are {shown(names)}.")
    return places, row_names, weights


@dataclass(frozen=True)
class Genes:
    """The genes to take from cells, by name, and where they are; -1 stands for a gene that is not there: zeros."""

    names: Sequence[str]
    columns: list[int] | None  # None: all, as they are

    @classmethod
    def of(
        cls, where: str | Path, genes: Sequence[str], asked: Sequence[str] | None, *, lacking: bool = True
    ) -> "Genes":
        """Find the genes that are ``asked`` for, or all; warn of those that are ``lacking``, or raise an error."""
        there = set(genes)
        known = [name for name in asked or () if name in there] if lacking else []
        places, _, _ = choose(where, genes, known or asked, what="gene")
        if asked is None or not known or len(known) == len(asked):
            return cls([genes[place] for place in places], None if places == list(range(len(genes))) else places)
        missing = [name for name in asked if name not in there]
        said = f"{where} lacks {len(missing)} of the {len(asked)} genes of the model, which count as zeros"
        warnings.warn(f"{said}: {shown(missing)}.", UserWarning, stacklevel=4)
        found = dict(zip(known, places, strict=True))
        return cls(asked, [found.get(name, -1) for name in asked])

    def of_batch(self, X: Any) -> Any:
        """Return these columns of rows, dense or sparse."""
        return X if self.columns is None else taken(X, np.asarray(self.columns), axis=1)


def bad_weights(weights: Any) -> Mask:
    """Return which of these numbers cannot be weights."""
    with np.errstate(invalid="ignore"):
        return ~(np.isfinite(weights) & (weights >= 0))


def weighed_by_last(X: Array) -> Samples:
    """Return the samples of a matrix whose last column holds their weights."""
    return Samples(np.ascontiguousarray(X[:, :-1]), sample_weight=X[:, -1])


def parses_as_number(text: str) -> bool:
    """Return whether the text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(names: Sequence[str]) -> str:
    """Return the first names, for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name or "(without a name)" for name in names[:SHOWN]) + more


def spelt(value: Any) -> str:
    """Return the value of an option as it is written after the question mark."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(f'"{part}"' if "," in str(part) else str(part) for part in value)
    return str(value)


@dataclass(frozen=True)
class Features:
    """The number of features of the data, and their names where they have some."""

    number: int
    names: tuple[str, ...] | None = None
    of_frame: bool = field(default=False, compare=False)  # a data frame had them: arrays without them raise a warning

    @classmethod
    def of(cls, number: int, names: Iterable[Any] | None) -> "Features":
        """Return features with names of whatever type as texts."""
        return cls(number, None if names is None else tuple(map(str, names)))

    def __post_init__(self) -> None:
        if self.names is not None and len(self.names) != self.number:
            raise ValueError(
                f"there are {len(self.names)} names for {self.number} features; give one name per feature, or none."
            )
