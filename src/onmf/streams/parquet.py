"""Parquet, Feather and Arrow files, or a folder of them: columns are features, read in blocks of rows (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import OnBad, Sequential, Source, SourceError, matching, reading
from onmf.streams.registry import register


class Columns(Sequential):
    """Columns of numbers in one or more files of one format, the rows in the order of the files."""

    def __init__(self, path: Path, kind: str) -> None:
        import pyarrow.dataset
        from pyarrow.types import is_boolean, is_floating, is_integer

        self.where, self.kind = path, kind
        files = [str(file) for file in matching(path, [f".{kind}"], deep=True)]
        with reading(path, f"as {kind}"):
            data = pyarrow.dataset.dataset(files, format="ipc" if kind == "arrow" else kind)
            self.n_samples = int(data.count_rows())
            self.files = [fragment.path for fragment in data.get_fragments()]
            for fragment in data.get_fragments():
                if set(fragment.physical_schema.names) != set(data.schema.names):
                    raise SourceError(f"{fragment.path} has other columns than the first file of {path}.")
            if len(set(data.schema.names)) < len(data.schema.names):
                raise SourceError(f"{path} has two columns of one name; rename one of them.")
        index = _index_columns(data.schema)
        self.feature_names = [name for name in data.schema.names if name not in index]
        self.n_features = len(self.feature_names)
        for field in map(data.schema.field, self.feature_names):
            if not (is_integer(field.type) or is_floating(field.type) or is_boolean(field.type)):
                raise SourceError(
                    f"{path}: the column {field.name!r} is of type {field.type}; keep only columns of numbers."
                )
        if not (self.n_samples and self.n_features):
            raise SourceError(
                f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            )

    def _blocks(self, size: int, on_bad: OnBad | None) -> Iterator[npt.NDArray[Any]]:
        """Gaps become NaN, which the learner refuses by row and column."""
        with reading(self.where, "to the end"):
            for block in (block for path in self.files for block in self._records(path, size)):
                found = block.select(self.feature_names).columns
                columns = [_numbers(column.to_numpy(zero_copy_only=False)) for column in found]
                yield np.stack(columns, axis=1).astype(np.result_type(*columns, np.float32), copy=False)

    def _records(self, path: str, size: int) -> Iterator[Any]:
        """Block by block as they are asked for: scanners of pyarrow's data sets read ahead without end."""
        import pyarrow.ipc
        import pyarrow.parquet

        if self.kind == "parquet":
            with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
                yield from file.iter_batches(size, columns=self.feature_names, use_threads=False)
            return
        with pyarrow.OSFile(path) as file:
            reader = pyarrow.ipc.open_file(file)
            yield from map(reader.get_batch, range(reader.num_record_batches))


@register("parquet", [".parquet"], takes=["folders", "patterns"], needs="pyarrow", extra="parquet")
def parquet(path: Path) -> Source:
    """A Parquet file, or those in a folder or matching a pattern."""
    return Columns(path, "parquet")


@register("feather", [".feather"], takes=["folders", "patterns"], needs="pyarrow", extra="parquet")
def feather(path: Path) -> Source:
    """A Feather file, or those in a folder or matching a pattern."""
    return Columns(path, "feather")


@register("arrow", [".arrow"], takes=["folders", "patterns"], needs="pyarrow", extra="parquet")
def arrow(path: Path) -> Source:
    """A file in Arrow's IPC format, or those in a folder or matching a pattern."""
    return Columns(path, "arrow")


def _numbers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Booleans with gaps come as objects: gaps become NaN."""
    return column.astype(np.float64) if column.dtype == object else column


def _index_columns(schema: Any) -> list[Any]:
    """The columns that pandas wrote its index to, by what it wrote beside them; what is odd there says nothing."""
    try:
        found = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError):  # not JSON, or not an object
        return []
    return found if isinstance(found, list) else []
