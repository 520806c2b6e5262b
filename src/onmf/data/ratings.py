"""Ratings, one per line (user, item, value): a sparse matrix of users x items, which stores what is known."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from onmf._support.arrays import Array, Counts
from onmf._support.wording import counted, is_or_are
from onmf.data.base import Numbered, OnBad, Source, SourceError, require_room
from onmf.data.columns import TableOptions
from onmf.data.in_memory import Rows

log = logging.getLogger("onmf")

DAMPING = 5.0  # ratings as expected that every user and item are given: few ratings say little
LARGEST = 1e100
SWEEPS = 5  # over users and items, each by what the others leave
BLOCK = 2**16  # ratings
ENTRY, NAME = 64, 128  # bytes that a rating takes while the matrix is made, and a name, besides its characters
MEANT = {  # how people call the columns of ratings
    "user": re.compile("user|customer|reviewer|member|profile", re.IGNORECASE),
    "value": re.compile("rating|score|stars|value|count|plays", re.IGNORECASE),
    "item": re.compile("item|movie|film|product|book|isbn|track|song|artist|asin|article|id$", re.IGNORECASE),
}
MOST_COLUMNS = 6  # of a table of ratings: text, time and the like besides
SHAPING = ("columns", *MEANT)  # options that shape the features


@dataclass(frozen=True)
class RatingOptions:
    """The columns of a table that hold one rating per line: all three are given, or none."""

    user: str | None = None
    item: str | None = None
    value: str | None = None


def rows_or_ratings(opened: Callable[[TableOptions], Source], table: TableOptions, rating: RatingOptions) -> Source:
    """Return a table, or the ratings in it if they are asked for; one that looks like ratings gets a warning."""
    if rating == RatingOptions():
        _warn_of_ratings(found := opened(table), table)
        return found
    if None in vars(rating).values() or replace(table, columns=None) != TableOptions():
        raise SourceError("ratings need user=, item= and value=, all three, and none of drop=, index= and weight=.")
    by_user = opened(TableOptions([str(rating.value)], index=rating.user))
    if not by_user.rewinds:
        raise SourceError(
            f"{by_user.where} can be read only once, and ratings are read twice; write it to a file first."
        )
    return Ratings(by_user, opened(TableOptions([str(rating.value)], index=rating.item)), table.columns)


class Ratings(Rows):
    """The known ratings of users, who are named rows; items are the features.

    ``by_user`` and ``by_item`` hold the same values, of which NaN is not known, in rows that users and items name.
    ``items`` are those of a model: ratings of others are left out. Of several ratings by one user the last one counts.
    """

    def __init__(self, by_user: Source, by_item: Source, items: Sequence[str] | None = None) -> None:
        users, places, known = dict[str, int](), {name: f for f, name in enumerate(items or ())}, items is not None
        parts, size, unknown = [], 0, 0
        for (names, X), (rated, _) in zip(by_user.batches(BLOCK), by_item.batches(BLOCK), strict=True):
            new = {*names, *(() if known else rated)}.difference(users, places)
            size += ENTRY * len(X) + sum(NAME + 4 * len(name) for name in new)
            require_room(f"the ratings in {by_user.where}", size, by_user.memory)
            rows = np.array([users.setdefault(name, len(users)) for name in names], dtype=np.int32)
            found = (places.get(name, -1) if known else places.setdefault(name, len(places)) for name in rated)
            columns = np.fromiter(found, dtype=np.int32, count=len(rated))
            there = (columns >= 0) & ~np.isnan(X[:, 0])
            unknown += int((columns < 0).sum())
            parts.append((rows[there], columns[there], X[there, 0]))
        rows, columns, values = map(np.concatenate, zip(*parts, strict=True))
        if not len(values) and not known:
            raise SourceError(f"{by_user.where} has no known rating.")
        if not (abs(values) < LARGEST).all():
            raise SourceError(f"{by_user.where} has a rating larger than {LARGEST:g}.")
        # The last of each pair: unique finds the first one, from behind.
        _, last = np.unique((rows.astype(np.int64) * len(places) + columns)[::-1], return_index=True)
        kept = len(values) - 1 - last
        if unknown:
            told = counted(unknown, "rating"), is_or_are(unknown)
            log.warning("%s: %s %s of items that the model does not know, and left out.", by_user.where, *told)
        if earlier := len(values) - len(kept):
            told = counted(earlier, "earlier rating"), is_or_are(earlier)
            log.warning("%s: %s of the same user and item %s replaced by the last one.", by_user.where, *told)
        shape = len(users), len(places)
        super().__init__(scipy.sparse.csr_matrix((values[kept], (rows[kept], columns[kept])), shape=shape))
        self.where, self.index_name, self.feature_names = by_user.where, by_user.index_name, list(places)
        self.users = np.array(list(users), dtype=object)
        if len(kept):  # or else those of the model stay
            means = item_means(rows[kept], columns[kept], values[kept], shape).round(4)
            self.chosen = {"means": means.tolist(), "low": float(values.min()), "high": float(values.max())}

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        for rows, X in super().batches(size, rng, on_bad, first):
            yield self.users[rows], X


def item_means(rows: Counts, columns: Counts, values: Array, shape: tuple[int, int]) -> Array:
    """Return the rating of each item (F,) that an average user is expected to give, in turn with the users' lines."""
    mean, means = values.mean(), np.full(shape[1], values.mean())
    for _ in range(SWEEPS):
        level, slope = (each[rows] for each in user_lines(rows, columns, values, means, shape[0]))
        above = np.bincount(columns, slope * (values - level - slope * mean), shape[1])
        means = mean + above / (np.bincount(columns, slope * slope, shape[1]) + DAMPING)
    return means


def user_lines(rows: Counts, columns: Counts, values: Array, means: Array, n: int) -> tuple[Array, Array]:
    """Return level and slope (n,) of each user, whose rating of an item is level + slope * the item's mean.

    The level is the user's bias; the slope says how far the user tells good items from bad ones. Both are damped.
    """
    count, apart = np.bincount(rows, minlength=n), values - means[columns]
    centre = np.bincount(rows, means[columns], n) / np.maximum(count, 1)
    x = means[columns] - centre[rows]
    slope = 1 + np.bincount(rows, x * apart, n) / (np.bincount(rows, x * x, n) + DAMPING)
    return np.bincount(rows, apart, n) / (count + DAMPING) + centre * (1 - slope), slope


def _warn_of_ratings(source: Source, options: TableOptions) -> None:
    """Warn if a table whose columns nobody has chosen looks like ratings, and name the options that read them."""
    names, found = source.feature_names or (), dict[str, str]()
    for option, meant in MEANT.items():
        fitting = [name for name in names if meant.search(name) and name not in found.values()]
        found |= {option: fitting[0]} if fitting else {}
    if options == TableOptions() and len(names) <= MOST_COLUMNS and len(found) == len(MEANT):
        what = "%s looks like ratings, one per line, and is read as a table of %s; ?%s reads users x items."
        cure = "&".join(f"{option}={found[option]}" for option in ("user", "item", "value"))
        log.warning(what, source.where, counted(len(names), "column"), cure)
