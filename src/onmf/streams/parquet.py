"""Parquet, Feather and Arrow files, or a folder of them: columns are features, read in blocks of rows (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Source, SourceError, numbered, rebatch, require

FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "ipc"}


class Columns(Source):
    """A data set of columns of numbers, the rows in the order of the files."""

    def __init__(self, path: Path, format: str = "parquet") -> None:  # noqa: A002 - pyarrow's word
        dataset = require("pyarrow.dataset", "parquet")
        self.path = path
        try:
            self.data = dataset.dataset(path, format=format)
            self.n_samples = int(self.data.count_rows())
        except Exception as error:  # whatever pyarrow trips over, the file is at fault
            msg = f"{path} cannot be read as {format}: {error}"
            raise SourceError(msg) from None
        types = require("pyarrow.types", "parquet")
        index = [
            name for name in (self.data.schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)
        ]
        self.feature_names = [name for name in self.data.schema.names if name not in index]
        for fragment in self.data.get_fragments():
            if set(fragment.physical_schema.names) != set(self.data.schema.names):
                msg = f"{fragment.path} has other columns than the first file of {path}."
                raise SourceError(msg)
        for field in (self.data.schema.field(name) for name in self.feature_names):
            if not (types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)):
                msg = f"{path}: the column {field.name!r} is of type {field.type}; keep only columns of numbers."
                raise SourceError(msg)
        self.n_features = len(self.feature_names)
        if not (self.n_samples and self.n_features):
            msg = f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            raise SourceError(msg)

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Blocks of rows, gaps as NaN, which the learner refuses by row and column."""
        del rng
        return numbered(rebatch(self._blocks(size), size))

    def _blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        try:
            for block in self.data.to_batches(batch_size=size, columns=self.feature_names):
                if block.num_rows:
                    columns = [_numbers(column.to_numpy(zero_copy_only=False)) for column in block.columns]
                    yield np.stack(columns, axis=1).astype(np.result_type(*columns, np.float32), copy=False)
        except (OSError, ValueError) as error:
            msg = f"{self.path} could not be read on: {error}"
            raise SourceError(msg) from None


def _numbers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Truth values with gaps come as objects: gaps become NaN."""
    return column.astype(np.float64) if column.dtype == object else column
