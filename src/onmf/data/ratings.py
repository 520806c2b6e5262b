"""Ratings in lines (user, item, value): a sparse matrix of users x items, which stores what is known."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from onmf._support.wording import counted, is_or_are
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, require_room
from onmf.data.columns import TableOptions
from onmf.data.in_memory import Rows

log = logging.getLogger("onmf")

DAMPING = 3.0  # ratings at the mean that every user and item are given: biases of few ratings stay small
SWEEPS = 5  # of the two biases, each by what the other leaves
BLOCK = 2**16  # lines
ENTRY, NAME = 64, 128  # bytes that a rating takes while the matrix is made, and a name, besides its characters
MEANT = {  # how people call the columns of ratings
    "user": re.compile("user|customer|reviewer|member|profile", re.IGNORECASE),
    "value": re.compile("rating|score|stars|value|count|plays", re.IGNORECASE),
    "item": re.compile("item|movie|film|product|book|isbn|track|song|artist|asin|article|id$", re.IGNORECASE),
}
MOST_COLUMNS = 6  # of a table of ratings: text, time and the like besides


@dataclass(frozen=True)
class RatingOptions:
    """The columns of a table that hold one rating per line: all three are given, or none."""

    user: str | None = None
    item: str | None = None
    value: str | None = None

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def of_table(self, where: str | Path, table: TableOptions) -> TableOptions:
        """Return the options that read the values, in rows that the users name; ``columns`` then chooses items."""
        if None in vars(self).values() or len(set(vars(self).values())) < len(vars(self)):
            raise SourceError(f"{where}: ratings have three columns; give user=, item= and value=, each another one.")
        if table.drop or table.index or table.weight:
            raise SourceError(f"{where}: ratings have no drop=, index= or weight=; leave them out.")
        return TableOptions(columns=[str(self.value)], index=self.user)


class Ratings(Rows):
    """The known ratings of users, who are named rows; items are the features.

    The rows of ``lines`` are named by pairs (user, item), and hold the value, of which NaN is not known. ``items`` are
    those of a model: ratings of others are left out. Of several ratings of one item by one user the last one counts.
    """

    def __init__(self, lines: Sequential, items: Sequence[str] | None = None) -> None:
        where = lines.where
        users, places = dict[str, int](), {name: place for place, name in enumerate(items or ())}
        parts, size, unknown, known = [], 0, 0, items is not None
        for pairs, X in lines.batches(BLOCK):
            names = {name for user, item in pairs for name in ((user,) if known else (user, item))}
            size += ENTRY * len(X) + sum(NAME + 4 * len(name) for name in names.difference(users, places))
            require_room(f"the ratings in {where}", size, lines.memory)
            rows = [users.setdefault(name, len(users)) for name, _ in pairs]
            columns = [places.get(name, -1) if known else places.setdefault(name, len(places)) for _, name in pairs]
            block = np.array([rows, columns], dtype=np.int32), X[:, 0].astype(np.float64)
            there = (block[0][1] >= 0) & ~np.isnan(block[1])
            unknown += columns.count(-1)
            parts.append((block[0][:, there], block[1][there]))
        (row, column), values = (np.concatenate([part[k] for part in parts], axis=-1) for k in (0, 1))
        if not len(values):
            raise SourceError(f"{where} has no rating{' of an item that the model knows' if unknown else ''}.")
        # The last of each pair: unique finds the first one, from behind.
        _, last = np.unique((row.astype(np.int64) * len(places) + column)[::-1], return_index=True)
        kept = len(values) - 1 - last
        for number, what in ((unknown, "of items that the model does not know"), (len(values) - len(kept), "repeated")):
            if number:
                log.warning("%s: %s %s %s, and left out.", where, counted(number, "rating"), is_or_are(number), what)
        shape = len(users), len(places)
        super().__init__(scipy.sparse.csr_matrix((values[kept], (row[kept], column[kept])), shape=shape))
        self.where, self.index_name, self.feature_names = where, lines.index_name, list(places)
        self.users = np.array(list(users), dtype=object)
        with np.errstate(over="ignore", invalid="ignore"):
            means, ends = expected_ratings(self.X).round(4), (float(values.min()), float(values.max()))
        if not np.isfinite([*means, *ends]).all():
            raise SourceError(f"{where} has ratings that are infinite, or too large to compute with.")
        self.chosen = {"means": means.tolist(), "low": ends[0], "high": ends[1]}

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        for rows, X in super().batches(size, rng, on_bad, first):
            yield self.users[rows], X


def expected_ratings(X: Any) -> Any:
    """Return the rating of each item (F,) that an average user is expected to give: the mean and the item's bias."""
    rows, mean = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.data.mean()
    item, (of_user, of_item) = np.zeros(X.shape[1]), (np.bincount(each) for each in (rows, X.indices))
    for _ in range(SWEEPS):
        user = np.bincount(rows, X.data - mean - item[X.indices]) / (of_user + DAMPING)
        item = np.bincount(X.indices, X.data - mean - user[rows], X.shape[1])
        item[: len(of_item)] /= of_item + DAMPING
    return mean + item


def warn_of_ratings(source: Source, options: TableOptions) -> None:
    """Warn if a table whose columns nobody has chosen looks like ratings, one per line, and name the options."""
    names, found = source.feature_names or (), dict[str, str]()
    for option, meant in MEANT.items():
        for name in names:
            if meant.search(name) and name not in found.values():
                found.setdefault(option, name)
    if options == TableOptions() and len(names) <= MOST_COLUMNS and len(found) == len(MEANT):
        cure = "&".join(f"{option}={found[option]}" for option in ("user", "item", "value"))
        what = "%s looks like ratings, one per line, and is read as a table of %s; ?%s reads users x items."
        log.warning(what, source.where, counted(len(names), "column"), cure)
