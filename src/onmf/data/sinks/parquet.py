"""Parquet, in row groups of some megabytes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from onmf._support.arrays import Array
from onmf.data.sinks.base import Heading, Output

GROUP = 2**24  # bytes: every row group adds to the footer, which is held in memory until the end


class Parquet(Output, suffixes=[".parquet"]):
    """One column per component, and one for the names of the rows."""

    def __init__(self, place: Path, heading: Heading) -> None:
        import pyarrow
        from pyarrow import parquet

        self.heading = heading
        fields = [] if heading.index is None else [(heading.index, pyarrow.string())]
        fields += [(column, pyarrow.from_numpy_dtype(heading.dtype)) for column in heading.columns]
        self.schema = pyarrow.schema(fields)
        self.writer = parquet.ParquetWriter(place, self.schema)
        self.waiting: list[object] = []
        self.bytes = 0

    @classmethod
    def require(cls, data: Path) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise ModuleNotFoundError(".parquet needs pyarrow; install onmf[parquet].")

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        import pyarrow

        columns = [pyarrow.array(column.astype(self.heading.dtype, copy=False)) for column in H.T]
        if names is not None:
            columns.insert(0, pyarrow.array([str(name) for name in names], type=pyarrow.string()))
        block = pyarrow.record_batch(columns, schema=self.schema)
        self.waiting.append(block)
        self.bytes += block.nbytes
        if self.bytes >= GROUP:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self.writer.close()

    def _write_group(self) -> None:
        import pyarrow

        if self.waiting:
            self.writer.write_table(pyarrow.Table.from_batches(self.waiting))
        self.waiting, self.bytes = [], 0
