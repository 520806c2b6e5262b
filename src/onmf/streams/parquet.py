"""Parquet, Feather and Arrow files, or a folder of them: columns are features, read in blocks of rows (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import OnBad, Seeking, Source, SourceError, matching, named, reading
from onmf.streams.registry import register


class Columns(Seeking):
    """Columns of numbers in one or more files of one format, the rows in the order of the files."""

    def __init__(self, path: Path, kind: str) -> None:
        import pyarrow.dataset
        from pyarrow.types import is_boolean, is_floating, is_integer

        self.where, self.kind = path, kind
        paths = matching(path, [f".{kind}"], deep=True)
        if not path.is_file():
            self.files = named(path, paths)
        with reading(path, f"as {kind}"):
            data = pyarrow.dataset.dataset(list(map(str, paths)), format="ipc" if kind == "arrow" else kind)
            fragments = list(data.get_fragments())
            self.counts = {file: int(each.count_rows()) for file, each in zip(paths, fragments, strict=True)}
            self.n_samples = sum(self.counts.values())
            for fragment in fragments:
                if set(fragment.physical_schema.names) != set(data.schema.names):
                    raise SourceError(f"{fragment.path} has other columns than the first file of {path}.")
        index = (data.schema.pandas_metadata or {}).get("index_columns", [])
        self.feature_names = [name for name in data.schema.names if name not in index]
        self.n_features = len(self.feature_names)
        fields = [data.schema.field(name) for name in self.feature_names]
        for field in fields:
            if not (is_integer(field.type) or is_floating(field.type) or is_boolean(field.type)):
                raise SourceError(
                    f"{path}: the column {field.name!r} is of type {field.type}; keep only columns of numbers."
                )
        # Of the types, not of what a block holds: the same rows are the same numbers wherever reading begins.
        self.dtype = np.result_type(np.float32, *(field.type.to_pandas_dtype() for field in fields))
        if not (self.n_samples and self.n_features):
            raise SourceError(
                f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            )

    def of_files(self, names: Sequence[str]) -> Source:
        some = copy(self)
        some.files = {name: (self.files or {})[name] for name in names}
        some.counts = {path: self.counts[path] for path in some.files.values()}
        some.n_samples = sum(some.counts.values())
        return some

    def _blocks_from(self, first: int, size: int, on_bad: OnBad | None) -> Iterator[npt.NDArray[Any]]:
        """Gaps become NaN, which the learner refuses by row and column."""
        with reading(self.where, "to the end"):
            for block in self._records_from(first, size):
                found = block.select(self.feature_names).columns
                columns = [_numbers(column.to_numpy(zero_copy_only=False)) for column in found]
                yield np.stack(columns, axis=1).astype(self.dtype, copy=False)

    def _records_from(self, first: int, size: int) -> Iterator[Any]:
        """Files and row groups that end before the first row are not read."""
        for path, count in self.counts.items():
            if first >= count:
                first -= count
                continue
            before, blocks = self._records(path, size, first)
            for block in blocks:
                if (start := max(0, first - before)) < block.num_rows:
                    yield block.slice(start)
                before += block.num_rows
            first = 0

    def _records(self, path: Path, size: int, first: int) -> tuple[int, Iterator[Any]]:
        """The rows that are passed over to come near the first one, and the blocks that follow.

        Block by block as they are asked for: scanners of pyarrow's data sets read ahead without end.
        """
        if self.kind != "parquet":
            return 0, _record_batches(path)
        import pyarrow.parquet

        footer = pyarrow.parquet.read_metadata(path)
        ends = np.cumsum([footer.row_group(group).num_rows for group in range(footer.num_row_groups)])
        group = int(np.searchsorted(ends, first, side="right"))
        groups = list(range(group, len(ends)))
        return int(ends[group - 1]) if group else 0, _row_groups(path, groups, self.feature_names or [], size)


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


def _row_groups(path: Path, groups: list[int], columns: list[str], size: int) -> Iterator[Any]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(size, row_groups=groups, columns=columns, use_threads=False)


def _record_batches(path: Path) -> Iterator[Any]:
    import pyarrow.ipc

    with pyarrow.OSFile(str(path)) as file:
        reader = pyarrow.ipc.open_file(file)
        yield from map(reader.get_batch, range(reader.num_record_batches))


def _numbers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Booleans with gaps come as objects: gaps become NaN."""
    return column.astype(np.float64) if column.dtype == object else column
