"""ENVI scenes: a text header beside a file of raw numbers, mapped into memory; every pixel is a row of its bands."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from onmf.data.base import Source, SourceError, reading, require_room, require_unchanged
from onmf.data.budget import PARSED, allowed
from onmf.data.files import require_own
from onmf.data.in_memory import Rows
from onmf.data.registry import register

TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
SUFFIXES = ("", ".img", ".dat", ".raw", ".bsq", ".bil", ".bip")
AXES = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}  # of lines, samples and bands, as the file has them


class Pixels(Rows):
    """The pixels of a mapped cube (lines, samples, bands), line by line; ``nodata`` stands for a missing entry."""

    def __init__(self, path: Path, cube: np.ndarray[Any, Any], nodata: float | None) -> None:
        self.where = self.path = path
        self.cube, self.nodata, self.size = cube, nodata, path.stat().st_size
        self.n_samples, self.n_features = cube.shape[0] * cube.shape[1], cube.shape[2]
        self.row_bytes = 2 * 8 * self.n_features

    def __len__(self) -> int:
        return int(self.n_samples or 0)

    def _read(self, rows: Any) -> Any:
        require_unchanged(self.path, self.size)
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows
        found = np.array(self.cube[np.unravel_index(np.asarray(numbers), self.cube.shape[:2])])
        return found if self.nodata is None else np.where(found == self.nodata, np.nan, found)


@register("envi", [".hdr"])
def envi(path: Path) -> Source:
    """Open a scene by its header. Entries of the header's ``data ignore value`` become NaN; wavelengths name bands."""
    require_room(path, PARSED * path.stat().st_size, allowed())
    with reading(path, "as a header of ENVI"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if not text.startswith("ENVI"):
            raise SourceError(f"{path} is not an ENVI header, whose first line is ENVI; give the .hdr file.")
        found = re.findall(r"^([^=\n]*)=([^={\n]*\{[^{}]*\}|[^\n]*)", text.lower(), re.MULTILINE)  # linear in time
        facts = {name.strip(): value.strip("{} \r") for name, value in found}
        sides = [int(facts[name]) for name in ("lines", "samples", "bands")]
        axes = AXES[facts["interleave"]]
        dtype = np.dtype("<>"[int(facts.get("byte order", 0))] + TYPES[int(facts["data type"])])
        offset, nodata = int(facts.get("header offset", 0)), facts.get("data ignore value")
        missing = None if nodata is None else float(dtype.type(float(nodata)))
    raw = next((each for end in SUFFIXES if (each := path.with_suffix(end)).exists()), None)
    if raw is None:
        raise SourceError(f"{path} has no data; put them beside it: {path.stem}, or that with .img, .dat or .raw.")
    require_own(path.parent, [raw])
    with reading(raw, "as a scene of ENVI"):
        cube = np.memmap(raw, dtype, "r", offset, tuple(sides[axis] for axis in axes)).transpose(np.argsort(axes))
    source = Pixels(raw, cube, missing)
    waves = [each.strip() for each in facts.get("wavelength", "").split(",")]
    source.feature_names = waves if len(set(waves)) == len(waves) == source.n_features else None
    return source
