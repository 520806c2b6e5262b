"""A piano plays 'Mary had a little lamb': 586 short-time spectra of three notes, 4.7 s at 16 kHz."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reproduction.arrays import Array
from reproduction.datasets.files import PublicSet, damaged
from reproduction.datasets.matlab import read_matrices

PUBLIC_SET = PublicSet(
    "piano (Mary had a little lamb)",
    "piano_mary",
    "https://gitlab.com/ngillis/nmfbook (folder 'data sets'; N. Gillis, Nonnegative Matrix Factorization, SIAM 2020)",
)
N_FREQUENCIES = 129  # of a window of 256 samples


def load(folder: str | Path | None = None) -> Array:
    """Read the power spectrogram (frames x 129), strictly positive: the data that Itakura-Saito is made for.

    It is in piano_Mary.mat in the folder, by default $ONMF_DATA. The file holds magnitudes (frequencies x frames); the
    noise model of Itakura-Saito is about their squares.
    """
    path = PUBLIC_SET.open(folder).path("piano_Mary.mat")
    (magnitude,) = read_matrices(path, "X")
    if len(magnitude) != N_FREQUENCIES:
        raise damaged(path, f"its X has {len(magnitude)} rows instead of {N_FREQUENCIES} frequencies")
    return np.ascontiguousarray(magnitude.T) ** 2
