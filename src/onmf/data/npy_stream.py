"""Arrays from a pipe, one after the other, as ``numpy.save`` writes them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data.base import Numbered, OnBad, Sequential, SourceError, numbered, reading, require_matrix
from onmf.data.pipes import bytes_of, name_of, until_interrupted
from onmf.data.sniffing import ARRAY, refuse_another_format

PIECE = 2**24  # bytes to ask for at a time: a header may promise more than there is memory


def header(start: bytes | bytearray, rest: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is stored by columns, and type of an array: of its first MAGIC_LEN bytes and the file after."""
    version = np.lib.format.read_magic(io.BytesIO(start))
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(rest)
    if version not in ((2, 0), (3, 0)):  # which differ in names of fields alone, and numbers have none
        raise ValueError(f"its format is of version {version}")
    return np.lib.format.read_array_header_2_0(rest)


class ArraysFromPipe(Sequential):
    """The rows of arrays that follow each other; a producer that never ends may send one array after another."""

    rewinds = False

    def __init__(self, path: Path) -> None:
        self.where, self._path = name_of(path), path
        self._stream = bytes_of(path, self)
        found = self._header()
        if found is None:
            raise SourceError(f"{self.where} is empty.")
        self._first = found
        self.n_features = found[0][1]

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        return numbered(until_interrupted(self._blocks(size)))

    def _blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        found: tuple[tuple[int, int], np.dtype[Any]] | None = self._first
        before = 0
        while found is not None:
            (n, n_features), dtype = found
            if n_features != self.n_features:
                raise SourceError(f"{self.where}: an array has {n_features} columns, the first had {self.n_features}.")
            for first in range(0, n, size):
                yield self._rows(before + first, min(size, n - first), dtype)
            before += n
            found = self._header()

    def _rows(self, first: int, wanted: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        length = wanted * self.n_features * dtype.itemsize
        content = self._bytes(length)
        if len(content) < length:
            raise SourceError(f"{self.where} ends within the {wanted} rows from row {first} onward.")
        return np.frombuffer(content, dtype=dtype).reshape(wanted, self.n_features)

    def _header(self) -> tuple[tuple[int, int], np.dtype[Any]] | None:
        """Shape and type of the next array; None at the end."""
        with reading(self.where, "as an array of numbers"):
            start = self._bytes(np.lib.format.MAGIC_LEN)
            if not start:
                return None
            refuse_another_format(self._path, bytes(start), ARRAY)
            shape, by_columns, dtype = header(start, self._stream)
        require_matrix(self.where, SimpleNamespace(shape=shape, dtype=dtype))
        if by_columns:
            raise SourceError(
                f"{self.where} holds an array stored by columns, which cannot be read row by row; save "
                "numpy.ascontiguousarray(X)."
            )
        return (shape[0], shape[1]), dtype

    def _bytes(self, wanted: int) -> bytearray:
        """So many, unless the stream ends before."""
        content = bytearray()
        with reading(self.where, "to the end"):
            while len(content) < wanted:
                piece = self._stream.read(min(PIECE, wanted - len(content)))
                if not piece:
                    break
                content += piece
        return content
