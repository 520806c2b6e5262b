"""Arrow's IPC format: streams from a pipe or a file, read as their record batches come, and files of it (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from onmf.data.base import Numbered, OnBad, Sequential, Source, reading
from onmf.data.parquet import Columns, chosen, number_type, numbered
from onmf.data.pipes import bytes_of, first_bytes, is_pipe, name_of, until_interrupted
from onmf.data.registry import register
from onmf.data.sniffing import ARROW, refuse_another_format

FILE_MAGIC = b"ARROW1"
CURE = "a pipe takes what pyarrow.ipc.new_stream writes"


class RecordBatches(Sequential):
    """Columns of numbers in record batches that follow each other, without an index of where they are."""

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        index: str | None = None,
        weight: str | None = None,
    ) -> None:
        self.where, self.path, self.rewinds = name_of(path), path, not is_pipe(path)
        self.weight, self.weighted = weight, weight is not None
        if self.rewinds:
            with self._reading(), path.open("rb") as file:
                schema = self._reader(file).schema
        else:
            with self._reading():
                stream = bytes_of(path, self)
                refuse_another_format(path, first_bytes(stream), ARROW)
                self._unread = self._reader(stream)
            schema = self._unread.schema
        self.feature_names, self.index_name = chosen(self.where, schema, columns, drop, index, weight)
        self.n_features, self.dtype = len(self.feature_names), number_type(schema, self.feature_names)

    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        names = self.feature_names or [], self.index_name, self.weight
        return numbered(self.where, self._blocks(), *names, self.dtype, on_bad)

    def _blocks(self) -> Iterator[Any]:
        if not self.rewinds:
            yield from until_interrupted(iter(self._unread))
            return
        with self.path.open("rb") as file:
            yield from self._reader(file)

    def _reader(self, file: BinaryIO) -> Any:
        import pyarrow

        return pyarrow.ipc.open_stream(file)

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self.where, "as an Arrow stream", "" if self.rewinds else CURE)


@register(
    "arrow",
    [".arrow"],
    takes=["folders", "patterns", "standard input"],
    needs="pyarrow",
    extra="parquet",
    shapes=["columns"],
)
def arrow(
    path: Path,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
) -> Source:
    """A file in Arrow's IPC format, or those in a folder or matching a pattern; from a pipe or a file, a stream."""
    if is_pipe(path) or (path.is_file() and _is_stream(path)):
        return RecordBatches(path, columns=columns, drop=drop, index=index, weight=weight)
    return Columns(path, "arrow", columns=columns, drop=drop, index=index, weight=weight)


def _is_stream(path: Path) -> bool:
    with reading(path, "as arrow"), path.open("rb") as file:
        return file.read(len(FILE_MAGIC)) != FILE_MAGIC
