"""Pictures as samples: every picture is one row of pixels, 0 to 255 (Pillow)."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data.base import Numbered, OnBad, Source, SourceError, reading, require_room
from onmf.data.budget import allowed
from onmf.data.files import matching, named
from onmf.data.registry import register

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "PPM", "WEBP")  # any other might start a program, as PostScript does
CHANNELS = {"grey": 1, "rgb": 3}
BYTES = 24  # that a pixel takes while it is decoded, converted and made a number
TILE = (322, 323)  # tags of TIFF: width and height of a tile, which is decoded whole


class ImageFiles(Source):
    """Files brought to one size (width, height), that of the first readable one unless given, and to grey or RGB."""

    any_order = seeks = checked = True

    def __init__(self, files: dict[str, Path], size: tuple[int, int] | None, colour: str) -> None:
        if colour not in CHANNELS:
            raise SourceError(f"colour must be grey or rgb, got {colour!r}.")
        self.files, self.rows_in = files, dict.fromkeys(files.values(), 1)
        self.size, self.mode = size, "L" if colour == "grey" else "RGB"
        bad: list[SourceError] = []  # reported when they are reached, unless no picture can be read
        first = next(self._readable(range(len(files)), bad.append), None)
        if first is None:
            raise bad[0]
        self.n_samples, self.n_features = len(files), first[1].size
        self.row_bytes = 2 * first[1].nbytes
        self.chosen = {"size": "{}x{}".format(*self.size or ())}

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        size = self.fitting(size)
        order = np.arange(len(self.rows_in)) if rng is None else rng.permutation(len(self.rows_in))
        for start in range(first, len(order), size):
            if found := list(self._readable(order[start : start + size], on_bad)):
                rows, pixels = zip(*found, strict=True)
                yield np.asarray(rows), np.stack(pixels)

    def _readable(self, rows: Iterable[int], on_bad: OnBad | None) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Yield the pictures that can be read; others raise their errors, or ``on_bad`` is told of them."""
        paths = list(self.rows_in)
        for row in rows:
            try:
                if paths[row] in self.bad:
                    raise self.bad[paths[row]]
                yield row, self._pixels(paths[row])
            except SourceError as error:
                if on_bad is None or isinstance(error.__cause__, MemoryError):  # which may befall all that follow
                    raise
                self.bad[paths[row]] = error
                on_bad(error)

    def _pixels(self, path: Path) -> npt.NDArray[np.float32]:
        from PIL import Image

        with reading(path, "as a picture"), Image.open(path, formats=FORMATS) as picture:
            tags = getattr(picture, "tag_v2", {})
            width, height = (max(own, int(tags.get(tag, 0))) for own, tag in zip(picture.size, TILE, strict=True))
            require_room(path, width * height * BYTES, self.memory)
            same = _eight_bits(picture, path).convert(self.mode)
            self.size = self.size or same.size  # settled only now: a picture that breaks off has no size
            return np.asarray(same if same.size == self.size else same.resize(self.size), dtype=np.float32).ravel()


def _eight_bits(picture: Any, path: Path) -> Any:
    """Return pictures of 16 bits scaled to 8: Pillow itself would clip them at 255."""
    from PIL import Image

    if picture.mode == "F":
        raise SourceError(f"{path} has floating-point pixels of unknown range; save it with 8 or 16 bits.")
    if not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture)
    sixteen = picture.mode != "I" or values.max() > 255  # I has 32 bits, and older Pillows keep all kinds in it
    return Image.fromarray(np.clip(values // 257 if sixteen else values, 0, 255).astype(np.uint8))


def count_pixels(size: str, colour: str) -> int:
    """Return the number of features of pictures of this size."""
    return math.prod(width_and_height(size)) * CHANNELS[colour]


def width_and_height(size: str) -> tuple[int, int]:
    """Return the numbers in a size such as 32x32."""
    width, _, height = size.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise SourceError(f"size must be WIDTHxHEIGHT as in 32x32, got {size!r}.")
    require_room(f"a picture of {size}", int(width) * int(height) * BYTES, allowed())
    return int(width), int(height)


@register(
    "images",
    SUFFIXES,
    takes=["folders", "patterns"],
    needs="PIL",
    extra="images",
    feature_options=["size", "colour"],
    count_features=count_pixels,
)
def pictures(path: Path, size: str | None = None, colour: str = "grey") -> Source:
    """Open a picture, or all those in a folder or matching a pattern such as ``faces/*.png``; ``size`` as in 32x32."""
    shape = None if size is None else width_and_height(size)
    return ImageFiles(named(path, matching(path, SUFFIXES)), shape, colour)
