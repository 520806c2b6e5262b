"""Rows as pictures, one file each, of 8 bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.data.sinks import Heading, Output

SAVED: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}  # better than Pillow's own


class Pictures(Output):
    """A folder of pictures of one shape, under the names given or, without them, their numbers.

    Rows of NaN, which are of samples that were skipped, get none.
    """

    def __init__(self, place: Path, heading: Heading, shape: tuple[int, ...], names: Iterable[str] | None) -> None:
        self.folder, self.shape = place, shape
        self.names = (f"sample-{row:06}.png" for row in itertools.count()) if names is None else iter(names)

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        for pixels, name in zip(H, self.names, strict=False):  # in this order, so that no name is lost
            if not np.isnan(pixels).any():
                save(pixels.reshape(self.shape), self.folder / name)

    def close(self) -> None:
        return


def save(pixels: Array, path: Path) -> None:
    """Write one, grey or RGB, from 0 to 255; in the format that the name tells."""
    from PIL import Image

    from onmf._support.atomic import replacing

    path.parent.mkdir(parents=True, exist_ok=True)
    form = Image.registered_extensions()[path.suffix.lower()]
    with replacing(path) as place:
        picture = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
        picture.save(place, format=form, **SAVED.get(form, {}))
