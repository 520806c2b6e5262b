"""Parquet, Feather and Arrow files, or a folder of them: columns are features, read in blocks of rows (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Source, SourceError, numbered, recut, require

SUFFIXES = {"parquet": ".parquet", "feather": ".feather", "ipc": ".arrow"}


class Columns(Source):
    """A data set of columns of numbers, the rows in the order of the files."""

    def __init__(self, path: Path, format: str = "parquet") -> None:  # noqa: A002 - pyarrow's word
        dataset = require("pyarrow.dataset", "parquet")
        self.path = path
        self.format = format
        try:
            self.data = dataset.dataset(_files(path, SUFFIXES[format]), format=format)
            self.n_samples = int(self.data.count_rows())
        except SourceError:
            raise
        except Exception as error:  # whatever pyarrow trips over, the file is at fault
            raise SourceError(f"{path} cannot be read as {format}: {error}") from None
        types = require("pyarrow.types", "parquet")
        index = [
            name for name in (self.data.schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)
        ]
        self.feature_names = [name for name in self.data.schema.names if name not in index]
        for fragment in self.data.get_fragments():
            if set(fragment.physical_schema.names) != set(self.data.schema.names):
                raise SourceError(f"{fragment.path} has other columns than the first file of {path}.")
        for field in (self.data.schema.field(name) for name in self.feature_names):
            if not (types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)):
                raise SourceError(
                    f"{path}: the column {field.name!r} is of type {field.type}; keep only columns of numbers."
                )
        self.n_features = len(self.feature_names)
        if not (self.n_samples and self.n_features):
            raise SourceError(
                f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            )

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Blocks of rows, gaps as NaN, which the learner refuses by row and column."""
        return recut(numbered(self._blocks(size)), size)

    def _blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        try:
            for block in self._records(size):
                if block.num_rows:
                    columns = [_numbers(column.to_numpy(zero_copy_only=False)) for column in block.columns]
                    yield np.stack(columns, axis=1).astype(np.result_type(*columns, np.float32), copy=False)
        except (OSError, ValueError) as error:
            raise SourceError(f"{self.path} could not be read on: {error}") from None

    def _records(self, size: int) -> Iterator[Any]:
        """Block by block as they are asked for: scanners of pyarrow's data sets read ahead without end."""
        for fragment in self.data.get_fragments():
            if self.format == "parquet":
                with require("pyarrow.parquet", "parquet").ParquetFile(fragment.path, pre_buffer=False) as file:
                    for block in file.iter_batches(size, columns=self.feature_names, use_threads=False):
                        yield block.select(self.feature_names)
                continue
            with require("pyarrow", "parquet").OSFile(fragment.path) as file:
                reader = require("pyarrow.ipc", "parquet").open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number).select(self.feature_names)


def _files(path: Path, suffix: str) -> str | list[str]:
    """A file, or those of a folder and its folders with the ending, but for hidden ones and logs, as _delta_log."""
    if not path.is_dir():
        return str(path)
    found = [each for each in path.rglob(f"*{suffix}") if not _hidden(each.relative_to(path))]
    if not found:
        raise SourceError(f"{path} has no files that end in {suffix}.")
    return sorted(map(str, found))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _numbers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Truth values with gaps come as objects: gaps become NaN."""
    return column.astype(np.float64) if column.dtype == object else column
