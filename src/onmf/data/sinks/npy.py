"""NumPy's .npy, for any number of rows: the header is written anew once their number is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onmf._support.arrays import Array
from onmf.data.sinks.base import Heading, Output


class Npy(Output, suffixes=[".npy"]):
    """An array; names of rows have no place in it."""

    def __init__(self, place: Path, heading: Heading) -> None:
        self.columns, self.dtype, self.rows = len(heading.columns), heading.dtype, 0
        self.file = place.open("wb")
        self._write_header()

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        self.file.write(np.ascontiguousarray(H, self.dtype).data)
        self.rows += len(H)

    def close(self) -> None:
        self.file.seek(0)
        self._write_header()
        self.file.close()

    def _write_header(self) -> None:
        """Of one length whatever the number of rows: NumPy leaves room for it to grow."""
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.rows, self.columns)}
        np.lib.format.write_array_header_1_0(self.file, header)
