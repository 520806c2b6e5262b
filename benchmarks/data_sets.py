"""Public data sets that the benchmarks read and the paper's experiments do not; by default they lie in $ONMF_DATA.

- Piano: it plays 'Mary had a little lamb', 586 short-time spectra of three notes, 4.7 s at 16 kHz.
- Samson: a hyperspectral image of 95 x 95 pixels in 156 bands, with the spectra of the three materials in it.
- MovieLens, the small latest set of 2018: 100836 ratings of films by 610 users; most are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from reproduction.arrays import Array
from reproduction.datasets.files import PublicSet, damaged, read_table, whole
from reproduction.datasets.matlab import read_matrices

PIANO = PublicSet(
    "piano (Mary had a little lamb)",
    "piano_mary",
    "https://gitlab.com/ngillis/nmfbook (folder 'data sets'; N. Gillis, Nonnegative Matrix Factorization, SIAM 2020)",
)
N_FREQUENCIES = 129  # of a window of 256 samples


def load_piano(folder: str | Path | None = None) -> Array:
    """Read the power spectrogram (frames x 129), strictly positive: the data that Itakura-Saito is made for.

    It is in piano_Mary.mat in the folder, by default $ONMF_DATA. The file holds magnitudes (frequencies x frames); the
    noise model of Itakura-Saito is about their squares.
    """
    path = PIANO.path(folder, "piano_Mary.mat")
    (magnitude,) = read_matrices(path, "X")
    if len(magnitude) != N_FREQUENCIES:
        raise damaged(path, f"its X has {len(magnitude)} rows instead of {N_FREQUENCIES} frequencies")
    return np.ascontiguousarray(magnitude.T) ** 2


SAMSON = PublicSet(
    "Samson",
    "samson",
    "https://gitlab.com/ngillis/nmfbook (folder 'data sets'; F. Zhu, arXiv 1708.05125, made the ground truth)",
)
MATERIALS = ("rock", "tree", "water")  # in the order of the ground truth, whose own list is a cell array
LONGEST_SIDE = 10_000


@dataclass(frozen=True, eq=False)
class Samson:
    """A scene: pixels (9025 x 156, in [0, 1]) ~ abundances (9025 x 3) @ endmembers (3 x 156), up to spectra's scales.

    Each endmember is scaled to a maximum near 1, so compare spectra by their angle; abundances of a pixel sum to 1.
    """

    pixels: Array
    endmembers: Array
    abundances: Array
    shape: tuple[int, int]
    names: tuple[str, ...] = MATERIALS

    def image(self, values: Array) -> Array:
        """Return one value per pixel as a picture (rows x columns); MATLAB stores pixels column by column."""
        return values.reshape(self.shape, order="F")


def load_samson(folder: str | Path | None = None) -> Samson:
    """Read samson_1.mat and end3.mat from the folder, by default $ONMF_DATA."""
    path, truth = SAMSON.path(folder, "samson_1.mat"), SAMSON.path(folder, "end3.mat")
    V, *sides = read_matrices(path, "V", "nRow", "nCol")
    rows, columns = (int(whole(path, side.ravel(), 1, LONGEST_SIDE, "side of an image")[0]) for side in sides)
    if V.shape[1] != rows * columns:
        raise damaged(path, f"its V has {V.shape[1]} columns instead of {rows} x {columns} pixels")
    if V.max() > 1:
        raise damaged(path, "its V has entries above 1")
    M, A = read_matrices(truth, "M", "A")
    if M.shape != (len(V), len(MATERIALS)) or A.shape != (len(MATERIALS), V.shape[1]):
        raise damaged(truth, f"it does not hold {len(MATERIALS)} materials for the image in {path.name}")
    pixels, endmembers, abundances = (np.ascontiguousarray(matrix.T) for matrix in (V, M, A))
    return Samson(pixels, endmembers, abundances, (rows, columns))


MOVIELENS = PublicSet(
    "MovieLens (ml-latest-small)",
    "movielens_latest_small",
    "https://grouplens.org/datasets/movielens (F. M. Harper and J. A. Konstan, ACM TiiS 2015)",
)
STARS = 5
LARGEST_NUMBER = 10**9  # of a user or film


def load_movielens(folder: str | Path | None = None) -> Any:
    """Read ratings.csv: (users x films, csr), from half a star to five; an entry not stored is not rated.

    Users and films are in the order of their numbers; films without a rating are dropped.
    """
    path = MOVIELENS.path(folder, "ratings.csv")
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
    return ratings
