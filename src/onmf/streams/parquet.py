"""Parquet, Feather and Arrow files, or folders of them: columns are features, read in blocks of rows (pyarrow)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.streams.base import Numbered, OnBad, Seeking, Source, SourceError, matching, named, reading
from onmf.streams.columns import choose
from onmf.streams.registry import register


class Columns(Seeking):
    """Columns of numbers in one or more files of one format, the rows in the order of the files."""

    def __init__(
        self,
        path: Path,
        kind: str,
        *,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        index: str | None = None,
    ) -> None:
        import pyarrow.dataset

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
            if len(set(data.schema.names)) < len(data.schema.names):
                raise SourceError(f"{path} has two columns of one name; rename one of them.")
        self.feature_names, self.index_name = chosen(path, data.schema, columns, drop, index)
        self.n_features = len(self.feature_names)
        for fragment in fragments:
            schema = fragment.physical_schema  # in which a column of nothing but gaps may have no type
            typed = [name for name in self.feature_names if not pyarrow.types.is_null(schema.field(name).type)]
            _require_numbers(fragment.path, schema, typed)
        types = (number_type(each.physical_schema, self.feature_names) for each in fragments)
        self.types = dict(zip(paths, types, strict=True))
        if not (self.n_samples and self.n_features):
            raise SourceError(
                f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            )

    def of_files(self, names: Sequence[str]) -> Source:
        some = copy(self)
        some.files = {name: (self.files or {})[name] for name in names}
        some.counts = {path: self.counts[path] for path in some.files.values()}
        some.types = {path: self.types[path] for path in some.files.values()}
        some.n_samples = sum(some.counts.values())
        return some

    def _from(self, first: int, size: int, on_bad: OnBad | None) -> Numbered:
        blocks = self._blocks_from(first, size, on_bad)
        dtype = np.result_type(*self.types.values())
        return numbered(self.where, blocks, self.feature_names or [], self.index_name, dtype, first)

    def _blocks_from(self, first: int, size: int, on_bad: OnBad | None) -> Iterator[Any]:
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
        wanted = [*(self.feature_names or ()), *([] if self.index_name is None else [self.index_name])]
        return int(ends[group - 1]) if group else 0, _row_groups(path, groups, wanted, size)


def chosen(
    where: str | Path, schema: Any, columns: Sequence[str] | None, drop: Sequence[str] | None, index: str | None
) -> tuple[list[str], str | None]:
    """The features, all of numbers, and the column that names the rows; that of pandas names them only if asked to."""
    with reading(where, "as columns with names"):
        of_pandas = _index_columns(schema)
        asked_for = {index, *(columns or ()), *(drop or ())}
        names = [name for name in schema.names if name not in of_pandas or name in asked_for]
    places, _ = choose(where, names, columns, drop, index)
    features = [names[place] for place in places]
    twice = next((name for name in features if schema.get_field_index(name) < 0), None)
    if twice is not None:
        raise SourceError(f"{where} has several columns named {twice!r}; give each a name of its own.")
    _require_numbers(where, schema, features)
    return features, index


def _require_numbers(where: str | Path, schema: Any, features: Sequence[str]) -> None:
    from pyarrow.types import is_boolean, is_floating, is_integer

    for field in map(schema.field, features):
        if not (is_integer(field.type) or is_floating(field.type) or is_boolean(field.type)):
            raise SourceError(
                f"{where}: the column {field.name!r} is of type {field.type}; keep only columns of numbers, or choose "
                "them by columns= or drop=."
            )


def number_type(schema: Any, features: Sequence[str]) -> np.dtype[Any]:
    """Of the columns, not of what a block holds: the same rows are the same numbers wherever reading begins."""
    return np.result_type(np.float32, *(schema.field(name).type.to_pandas_dtype() for name in features))


def numbered(
    where: str | Path,
    blocks: Iterable[Any],
    features: list[str],
    index: str | None,
    dtype: npt.DTypeLike,
    first: int = 0,
) -> Numbered:
    """The rows of record batches, each of which is checked first: what a damaged one points at is foreign memory."""
    with reading(where, "to the end"):
        for block in blocks:
            block.select(features if index is None else [*features, index]).validate(full=True)
            yield _rows(block, index, first), _matrix(block, features, dtype)
            first += block.num_rows


def _matrix(block: Any, features: list[str], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Columns side by side. Gaps become NaN, which the learner refuses by row and column."""
    columns = [_numbers(column.to_numpy(zero_copy_only=False)) for column in block.select(features).columns]
    return np.stack(columns, axis=1).astype(dtype, copy=False)


def _rows(block: Any, index: str | None, first: int) -> npt.NDArray[Any]:
    """Row numbers, or the names of the rows where a column holds them."""
    if index is None:
        return np.arange(first, first + block.num_rows)
    names = np.empty(block.num_rows, dtype=object)
    names[:] = ["" if name is None else str(name) for name in block.column(index).to_pylist()]
    return names


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


def _index_columns(schema: Any) -> list[Any]:
    """The columns that pandas wrote its index to, by what it wrote beside them; what is odd there says nothing."""
    try:
        found = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError):  # not JSON, or not an object
        return []
    return found if isinstance(found, list) else []


@register("parquet", [".parquet"], takes=["folders", "patterns"], needs="pyarrow", extra="parquet", shapes=["columns"])
def parquet(
    path: Path, columns: list[str] | None = None, drop: list[str] | None = None, index: str | None = None
) -> Source:
    """A Parquet file, or those in a folder or matching a pattern."""
    return Columns(path, "parquet", columns=columns, drop=drop, index=index)


@register("feather", [".feather"], takes=["folders", "patterns"], needs="pyarrow", extra="parquet", shapes=["columns"])
def feather(
    path: Path, columns: list[str] | None = None, drop: list[str] | None = None, index: str | None = None
) -> Source:
    """A Feather file, or those in a folder or matching a pattern."""
    return Columns(path, "feather", columns=columns, drop=drop, index=index)
