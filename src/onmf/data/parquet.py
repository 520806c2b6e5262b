"""Parquet, Feather and Arrow files, or folders of them: columns are features, read in blocks of rows (pyarrow)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf.data.base import Numbered, OnBad, Seeking, Source, SourceError, matching, named, reading
from onmf.data.columns import WEIGHTS, bad_weights, choose
from onmf.data.registry import register
from onmf.samples import Samples


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
        weight: str | None = None,
    ) -> None:
        import pyarrow.dataset

        self.where, self.kind, self.weight, self.weighted = path, kind, weight, weight is not None
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
        self.feature_names, self.index_name = chosen(path, data.schema, columns, drop, index, weight)
        self.n_features = len(self.feature_names)
        for fragment in fragments:
            schema = fragment.physical_schema  # in which a column of nothing but gaps may have no type
            read = [*self.feature_names, *([] if weight is None else [weight])]
            typed = [name for name in read if not pyarrow.types.is_null(schema.field(name).type)]
            _require_numbers(fragment.path, schema, typed)
        groups = chain.from_iterable(_lengths(fragment, kind) for fragment in fragments)
        self.edges = [0, *accumulate(groups)][:-1]
        types = (number_type(each.physical_schema, self.feature_names) for each in fragments)
        self.types = dict(zip(paths, types, strict=True))
        if not (self.n_samples and self.n_features):
            raise SourceError(
                f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            )

    def around(self, first: int, last: int) -> tuple[Source, int] | None:
        ends = list(accumulate(self.counts.values()))
        begin, end = bisect_right(ends, first), bisect_left(ends, last) + 1
        if self.files is None:
            return copy(self), first
        return self.of_files(list(self.files)[begin:end]), first - (ends[begin - 1] if begin else 0)

    def of_files(self, names: Sequence[str]) -> Source:
        some = copy(self)
        some.edges = None
        some.files = {name: (self.files or {})[name] for name in names}
        some.counts = {path: self.counts[path] for path in some.files.values()}
        some.types = {path: self.types[path] for path in some.files.values()}
        some.n_samples = sum(some.counts.values())
        return some

    def _from(self, first: int, size: int, on_bad: OnBad | None) -> Numbered:
        blocks = self._blocks_from(first, size, on_bad)
        dtype = np.result_type(*self.types.values())
        names = self.feature_names or [], self.index_name, self.weight
        return numbered(self.where, blocks, *names, dtype, on_bad, first)

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
        others = [name for name in (self.index_name, self.weight) if name is not None]
        wanted = list(dict.fromkeys([*(self.feature_names or ()), *others]))
        return int(ends[group - 1]) if group else 0, _row_groups(path, groups, wanted, size)


def _lengths(fragment: Any, kind: str) -> list[int]:
    """Of the row groups of a file, or of the file."""
    return [group.num_rows for group in fragment.row_groups] if kind == "parquet" else [fragment.count_rows()]


def chosen(
    where: str | Path,
    schema: Any,
    columns: Sequence[str] | None,
    drop: Sequence[str] | None,
    index: str | None,
    weight: str | None,
) -> tuple[list[str], str | None]:
    """The features, all of numbers, and the column that names the rows; that of pandas names them only if asked to."""
    with reading(where, "as columns with names"):
        of_pandas = _index_columns(schema)
        asked_for = {index, weight, *(columns or ()), *(drop or ())}
        names = [name for name in schema.names if name not in of_pandas or name in asked_for]
    places, _, _ = choose(where, names, columns, drop, index, weight)
    features = [names[place] for place in places]
    twice = next((name for name in features if schema.get_field_index(name) < 0), None)
    if twice is not None:
        raise SourceError(f"{where} has several columns named {twice!r}; give each a name of its own.")
    _require_numbers(where, schema, features if weight is None else [*features, weight])
    return features, index


def _require_numbers(where: str | Path, schema: Any, features: Sequence[str]) -> None:
    from pyarrow.types import is_boolean, is_floating, is_integer

    for field in map(schema.field, features):
        if not (is_integer(field.type) or is_floating(field.type) or is_boolean(field.type)):
            raise SourceError(
                f"{where}: the column {field.name!r} is of type {field.type}; ?index={field.name} takes this "
                f"column for the names of the rows, ?drop={field.name} leaves it out."
            )


def number_type(schema: Any, features: Sequence[str]) -> np.dtype[Any]:
    """Of the columns, not of what a block holds: the same rows are the same numbers wherever reading begins."""
    return np.result_type(np.float32, *(schema.field(name).type.to_pandas_dtype() for name in features))


def numbered(
    where: str | Path,
    blocks: Iterable[Any],
    features: list[str],
    index: str | None,
    weight: str | None,
    dtype: npt.DTypeLike,
    on_bad: OnBad | None,
    first: int = 0,
) -> Numbered:
    """The rows of record batches, each of which is checked first: what a damaged one points at is foreign memory."""
    with reading(where, "to the end"):
        for block in blocks:
            others = {name for name in (index, weight) if name is not None}
            block.select([*features, *sorted(others)]).validate(full=True)
            rows, X = _rows(block, index, first), _matrix(block, features, dtype)
            yield (rows, X) if weight is None else _weighted(where, rows, X, block.column(weight), on_bad)
            first += block.num_rows


def _weighted(
    where: str | Path, rows: npt.NDArray[Any], X: npt.NDArray[Any], column: Any, on_bad: OnBad | None
) -> tuple[npt.NDArray[Any], Samples]:
    """The rows with their weights; those whose weight is none are left out once it has been said."""
    weights = _numbers(column.to_numpy(zero_copy_only=False)).astype(np.float64)
    bad = bad_weights(weights)
    for row in np.flatnonzero(bad):
        what = "a weight is missing" if np.isnan(weights[row]) else f"{weights[row]:.6g} is no weight"
        error = SourceError(f"{where}: {what} at row {rows[row]}; {WEIGHTS}.")
        if on_bad is None:
            raise error
        on_bad(error)
    return (
        (rows[~bad], Samples(X[~bad], sample_weight=weights[~bad]))
        if bad.any()
        else (rows, Samples(X, sample_weight=weights))
    )


def _matrix(block: Any, features: list[str], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Columns side by side. Gaps become NaN, which the learner takes for unknown or refuses."""
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
    path: Path,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
) -> Source:
    """A Parquet file, or those in a folder or matching a pattern."""
    return Columns(path, "parquet", columns=columns, drop=drop, index=index, weight=weight)


@register("feather", [".feather"], takes=["folders", "patterns"], needs="pyarrow", extra="parquet", shapes=["columns"])
def feather(
    path: Path,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    index: str | None = None,
    weight: str | None = None,
) -> Source:
    """A Feather file, or those in a folder or matching a pattern."""
    return Columns(path, "feather", columns=columns, drop=drop, index=index, weight=weight)
