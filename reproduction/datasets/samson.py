"""Samson: a hyperspectral image of 95 x 95 pixels in 156 bands, with the spectra of the three materials in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.arrays import Array
from reproduction.datasets.files import PublicSet, damaged, whole
from reproduction.datasets.matlab import read_matrices

PUBLIC_SET = PublicSet(
    "Samson",
    "samson",
    "https://gitlab.com/ngillis/nmfbook (folder 'data sets'; F. Zhu, arXiv 1708.05125, made the ground truth)",
)
NAMES = ("rock", "tree", "water")  # in the order of the ground truth, whose own list is a cell array
LONGEST_SIDE = 10_000


@dataclass(frozen=True, eq=False)
class Samson:
    """pixels (9025 x 156, in [0, 1]) ~ abundances (9025 x 3) @ endmembers (3 x 156), up to the scale of each spectrum.

    Each endmember is scaled to a maximum near 1, so compare spectra by their angle; abundances of a pixel sum to 1.
    """

    pixels: Array
    endmembers: Array
    abundances: Array
    shape: tuple[int, int]
    names: tuple[str, ...] = NAMES

    def image(self, values: Array) -> Array:
        """Return one value per pixel as a picture (rows x columns); MATLAB stores pixels column by column."""
        return values.reshape(self.shape, order="F")


def load(folder: str | Path | None = None) -> Samson:
    """Read samson_1.mat and end3.mat from the folder, by default $ONMF_DATA."""
    files = PUBLIC_SET.open(folder)
    path, truth = files.path("samson_1.mat"), files.path("end3.mat")
    V, *sides = read_matrices(path, "V", "nRow", "nCol")
    rows, columns = (int(whole(path, side.ravel(), 1, LONGEST_SIDE, "side of an image")[0]) for side in sides)
    if V.shape[1] != rows * columns:
        raise damaged(path, f"its V has {V.shape[1]} columns instead of {rows} x {columns} pixels")
    if V.max() > 1:
        raise damaged(path, "its V has entries above 1")
    M, A = read_matrices(truth, "M", "A")
    if M.shape != (len(V), len(NAMES)) or A.shape != (len(NAMES), V.shape[1]):
        raise damaged(truth, f"it does not hold {len(NAMES)} materials for the image in {path.name}")
    pixels, endmembers, abundances = (np.ascontiguousarray(matrix.T) for matrix in (V, M, A))
    return Samson(pixels, endmembers, abundances, (rows, columns))
