"""Folders of pictures as samples: every picture is one row of pixels, 0 to 255 (Pillow)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Source, SourceError, matching, require

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp"}


MOST_PIXELS = 50_000_000


class Pictures(Source):
    """Files of one folder or pattern, resized to one size, grey or RGB; rows can be read in any order."""

    any_order = True

    def __init__(self, paths: list[Path], size: tuple[int, int] | None = None, colour: str = "grey") -> None:
        if not paths:
            raise SourceError(f"no pictures were found; known are {', '.join(sorted(SUFFIXES))}.")
        if colour not in ("grey", "rgb"):
            raise SourceError(f"colour must be grey or rgb, got {colour!r}.")
        self.library = require("PIL.Image", "images")
        self.paths, self.mode = paths, "L" if colour == "grey" else "RGB"
        self.size = size  # (width, height)
        if size is None:
            with self._opened(paths[0]) as picture:
                self.size = picture.size
        self.n_samples = len(paths)
        self.n_features = self._pixels(paths[0]).size

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Files in the order of their names, or shuffled."""
        order = np.arange(len(self.paths)) if rng is None else rng.permutation(len(self.paths))
        for first in range(0, len(order), size):
            found = {}
            for row in order[first : first + size]:
                try:
                    found[int(row)] = self._pixels(self.paths[row])
                except SourceError as error:
                    self.bad(error)
            if found:
                yield np.asarray(list(found)), np.stack(list(found.values()))

    def _opened(self, path: Path) -> Any:
        try:
            return self.library.open(path)
        except (OSError, ValueError, SyntaxError, self.library.DecompressionBombError) as error:
            raise SourceError(f"{path} cannot be read as a picture: {error}") from None

    def _eight_bits(self, picture: Any, path: Path) -> Any:
        """Pictures of 16 bits as such of 8, which Pillow would cut off at 255."""
        if picture.mode == "F":
            raise SourceError(
                f"{path} has pixels of floating point, whose range is not known; save it with 8 or 16 bits."
            )
        if not picture.mode.startswith("I"):
            return picture
        values = np.asarray(picture, dtype=np.float64)
        sixteen = picture.mode != "I" or values.max() > 255  # I has 32 bits, and older Pillows keep all kinds in it
        return self.library.fromarray(np.clip(values / 257.0 if sixteen else values, 0, 255).astype(np.uint8))

    def _pixels(self, path: Path) -> npt.NDArray[np.float32]:
        with self._opened(path) as picture:
            try:
                same = self._eight_bits(picture, path).convert(self.mode)
                resized = same if same.size == self.size else same.resize(self.size)
            except (OSError, ValueError, SyntaxError, EOFError, TypeError, struct.error) as error:
                raise SourceError(f"{path} cannot be read as a picture: {error}") from None
            return np.asarray(resized, dtype=np.float32).ravel()


def pictures(where: str | Path, size: str | None = None, colour: str = "grey") -> Source:
    """The pictures of a folder, or those that a pattern such as ``faces/*.png`` matches; ``size`` as in 32x32."""
    found = matching(where, SUFFIXES, "pictures")
    shape = None
    if size is not None:
        width, _, height = size.partition("x")
        if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
            raise SourceError(f"size must be WIDTHxHEIGHT as in 32x32, got {size!r}.")
        shape = int(width), int(height)
        if shape[0] * shape[1] > MOST_PIXELS:
            raise SourceError(f"size {size} has more than {MOST_PIXELS:,} pixels a picture; give a smaller one.")
    return Pictures(found, shape, colour)
