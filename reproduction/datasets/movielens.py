"""MovieLens, the small latest set of 2018: 100836 ratings of films by 610 users; most are missing."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from reproduction.datasets.files import PublicSet, damaged, read_table, read_text, whole

MOVIELENS = PublicSet(
    "MovieLens (ml-latest-small)",
    "movielens_latest_small",
    "https://grouplens.org/datasets/movielens (F. M. Harper and J. A. Konstan, ACM TiiS 2015)",
)
STARS = 5
LARGEST_NUMBER = 10**9  # of a user or film


@dataclass(frozen=True, eq=False)
class MovieLens:
    """Ratings (users x films, csr, from half a star to five; an entry not stored is not rated), and the films' titles.

    Users and films are in the order of their numbers; films without a rating are dropped.
    """

    ratings: Any
    titles: list[str]


def load_movielens(folder: str | Path | None = None) -> MovieLens:
    """Read ratings.csv and movies.csv from the folder, by default $ONMF_DATA."""
    ratings, films = _ratings(MOVIELENS.path(folder, "ratings.csv"))
    path = MOVIELENS.path(folder, "movies.csv")
    titles = _titles(path)
    if missing := [film for film in films if film not in titles]:
        raise damaged(path, f"film {missing[0]} is rated, but has no title")
    return MovieLens(ratings, [titles[film] for film in films])


def _ratings(path: Path) -> tuple[Any, list[int]]:
    """Read the matrix, and the film number of each column."""
    # By place, not by name: copies differ in how they name the columns.
    user, film, stars, _ = read_table(path, 4, delimiter=",", header=1).T
    if not ((stars > 0) & (stars <= STARS)).all():
        raise damaged(path, f"a rating is not above 0 and at most {STARS}")
    users, rows = np.unique(whole(path, user, 1, LARGEST_NUMBER, "user's number"), return_inverse=True)
    films, columns = np.unique(whole(path, film, 1, LARGEST_NUMBER, "film's number"), return_inverse=True)
    places = (rows.astype(np.int32), columns.astype(np.int32))
    ratings = scipy.sparse.csr_array((stars, places), shape=(len(users), len(films)))
    if ratings.nnz < len(stars):
        raise damaged(path, "someone rated a film twice")
    return ratings, films.tolist()


def _titles(path: Path) -> dict[int, str]:
    """Read titles by film number; a title with commas is in quotation marks."""
    text = read_text(path)
    try:
        rows = list(csv.reader(io.StringIO(text)))[1:]
        return {int(row[0]): row[1] for row in rows if row}
    except (csv.Error, ValueError, IndexError) as error:
        raise damaged(path, f"a line does not begin with a film's number and title: {error}") from None
