"""Extended Yale B: 2414 photographs of 38 faces under changing light, 32 x 32 pixels; cast shadows are the outliers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reproduction.arrays import Array, Counts
from reproduction.datasets.files import PublicSet, damaged, whole
from reproduction.datasets.matlab import read_matrices

PUBLIC_SET = PublicSet(
    "Extended Yale B",
    "yaleb_32x32",
    "http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html (D. Cai's 32 x 32 version; A. Georghiades, "
    "P. Belhumeur and D. Kriegman, IEEE PAMI 2001, took the photographs)",
)
SIDE = 32
WHITE = 255
MOST_SUBJECTS = 1000  # a larger number means damage


@dataclass(frozen=True, eq=False)
class YaleB:
    """Images as rows (n x 1024, 0 to 255), and the subject of each, numbered 1 to 38 as in the file."""

    images: Array
    subjects: Counts


def upright(images: Array) -> Array:
    """Turn one or more rows of 1024 pixels into pictures of 32 x 32; MATLAB stores pixels column by column."""
    return images.reshape(*images.shape[:-1], SIDE, SIDE).swapaxes(-1, -2)


def load(folder: str | Path | None = None) -> YaleB:
    """Read YaleB_32x32.mat from the folder, by default $ONMF_DATA."""
    path = PUBLIC_SET.open(folder).path("YaleB_32x32.mat")
    images, gnd = read_matrices(path, "fea", "gnd")
    if images.shape[1] != SIDE**2 or images.max() > WHITE:
        raise damaged(path, f"its fea is not rows of {SIDE**2} pixels from 0 to {WHITE}")
    if gnd.size != len(images):
        raise damaged(path, f"it has {len(images)} images, but {gnd.size} subjects' numbers")
    return YaleB(images, whole(path, gnd.ravel(), 1, MOST_SUBJECTS, "subject's number"))
