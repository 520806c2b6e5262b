"""Parquet, Feather and Arrow, in files, folders and streams: columns are features, read in blocks of rows (pyarrow)."""

import importlib.util
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.arrays import Array
from onmf.data.arrow_memory import BoundedStream, require_small_pages, row_groups
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, reading, require_room
from onmf.data.columns import WEIGHTS, TableOptions, bad_weights
from onmf.data.files import matching, named
from onmf.data.outputs import Heading, Output
from onmf.data.pipes import ARROW, LineCount, bytes_of, first_bytes, is_pipe, name_of, require_format, until_interrupted
from onmf.data.ratings import SHAPING, RatingOptions, rows_or_ratings
from onmf.data.registry import register
from onmf.samples import Samples

BUFFER = 2**16  # bytes of a column to read at a time, of which pyarrow would read all
STEP = 2**14  # rows to convert at a time
GROUP = 2**24  # bytes: every row group adds to the footer of Parquet, which is held in memory until the end
FILE_MAGIC = b"ARROW1"
STREAM_CURE = "a pipe takes what pyarrow.ipc.new_stream writes"


class ArrowRows(Sequential):
    """Columns of numbers that come in record batches."""

    dtype: np.dtype[Any]

    def _choose(self, schema: Any, options: TableOptions) -> None:
        """Settle the features, all of numbers; the index that pandas has written names the rows only if asked to."""
        with reading(self.where, "as columns with names"):
            of_pandas = _index_columns(schema)
            names = [name for name in schema.names if name not in of_pandas or name in options.named]
        places, _, _ = options.places(self.where, names)
        features = [names[place] for place in places]
        twice = next((name for name in features if schema.get_field_index(name) < 0), None)
        if twice is not None:
            raise SourceError(f"{self.where} has several columns named {twice!r}; give each a name of its own.")
        self.feature_names, self.n_features = features, len(features)
        self.index_name, self.weight, self.weighted = options.index, options.weight, options.weight is not None
        self.numbers = features + ([] if options.weight is None else [options.weight])
        self.wanted = list(dict.fromkeys(self.numbers + ([] if options.index is None else [options.index])))
        _require_numbers(self.where, schema, self.numbers)
        self.row_bytes = 32 * len(self.wanted)  # as columns, as rows, and of one type

    def _parts(self, block: Any, size: int) -> list[Any]:
        """Return the rows of a record batch, which is checked first: a damaged one points at foreign memory."""
        block = block.select(self.wanted)
        block.validate(full=True)
        step = max(size, self.fitting(STEP))
        return [block.slice(start, step) for start in range(0, block.num_rows, step)]

    def _rows_of(self, block: Any, first: int, on_bad: OnBad | None) -> tuple[Any, Any]:
        rows = np.arange(first, first + block.num_rows)
        if self.index_name is not None:
            rows = np.array(list(self._names(block.column(self.index_name))), dtype=object)
        # Missing values become NaN, which the learner takes for missing or raises an error about.
        X = np.stack([_numbers(column) for column in block.columns[: self.n_features]], axis=1)
        X = X.astype(self.dtype, copy=False)
        if self.weight is None:
            return rows, X
        weights = _numbers(block.column(self.weight)).astype(np.float64)
        bad = bad_weights(weights)
        for row in np.flatnonzero(bad):
            what = "a weight is missing" if np.isnan(weights[row]) else f"{weights[row]:.6g} is not a valid weight"
            error = SourceError(f"{self.where}: {what} at row {rows[row]}; {WEIGHTS}.")
            if on_bad is None:
                raise error
            on_bad(error)
        samples = Samples(X, sample_weight=weights)
        return (rows[~bad], samples[~bad]) if bad.any() else (rows, samples)

    def _names(self, column: Any) -> Iterator[str]:
        """Yield the names of rows, which may be one long text again and again that is stored once."""
        left = self.memory // 4
        for value in column:
            name = value.as_py()
            yield "" if name is None else str(name)
            left -= len(str(name))
            if left < 0:
                require_room(f"the list of names in {self.where}", None, self.memory)


class ArrowFiles(ArrowRows):
    """Columns of one or more files of one format, the rows in the order of the files."""

    seeks = True

    def __init__(self, path: Path, kind: str, options: TableOptions) -> None:
        import pyarrow.dataset

        self.where, self.kind = path, kind
        paths = matching(path, [f".{kind}"], deep=True)
        if not path.is_file():
            self.files = named(path, paths)
        fragments: dict[Path, Any] = {}
        self.rows_in = dict.fromkeys(paths, 0)
        for file in paths:
            try:
                with reading(file, f"as {kind}"):
                    found = pyarrow.dataset.dataset(str(file), format="ipc" if kind == "arrow" else kind)
                    (fragments[file],) = found.get_fragments()
                    self.rows_in[file] = int(fragments[file].count_rows())
            except SourceError as error:
                fragments.pop(file, None)
                self.bad[file] = error  # reported when it is reached
        if not fragments:
            raise self.bad[paths[0]]
        first = next(iter(fragments.values())).physical_schema
        for fragment in fragments.values():
            if set(fragment.physical_schema.names) != set(first.names):
                raise SourceError(f"{fragment.path} has other columns than the first file of {path}.")
        self.n_samples = sum(self.rows_in.values())
        self._choose(first, options)
        groups: list[int] = []
        types: list[Any] = []
        for file, fragment in fragments.items():
            schema = fragment.physical_schema  # in which a column of nothing but missing values may have no type
            typed = [name for name in self.numbers if not pyarrow.types.is_null(schema.field(name).type)]
            _require_numbers(fragment.path, schema, typed)
            types.append(_number_type(schema, self.feature_names or ()))
            groups += [each.num_rows for each in fragment.row_groups] if kind == "parquet" else [self.rows_in[file]]
        self.dtype, self.edges = np.result_type(*types), [0, *accumulate(groups)][:-1]
        if not (self.n_samples and self.n_features):
            raise SourceError(
                f"{path} has no samples or no features: {self.n_samples} rows, {self.n_features} columns."
            )

    def around(self, first: int, last: int) -> tuple[Source, int] | None:
        ends = list(accumulate(self.rows_in.values()))
        begin, end = bisect_right(ends, first), bisect_left(ends, last) + 1
        if self.files is None:
            return copy(self), first
        return self.of_files(list(self.files)[begin:end]), first - (ends[begin - 1] if begin else 0)

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        """Read block by block as they are asked for: scanners of pyarrow's data sets read ahead without end."""
        row, left_out = first, first
        with reading(self.where, "to the end"):
            for path, count in self.rows_in.items():
                if path in self.bad:
                    if on_bad is None:
                        raise self.bad[path]
                    on_bad(self.bad[path])
                    continue
                if left_out >= count:
                    left_out -= count
                    continue
                with ExitStack() as files:
                    before, blocks = self._blocks(path, size, left_out, files)
                    for block in blocks:
                        start = max(0, left_out - before)
                        before += block.num_rows
                        for part in self._parts(block.slice(start), size):
                            yield self._rows_of(part, row, on_bad)
                            row += part.num_rows
                    if before < count:
                        raise SourceError(f"{path} ends after {before} rows, but its footer announced {count}.")
                left_out = 0

    def _blocks(self, path: Path, size: int, first: int, files: ExitStack) -> tuple[int, Iterator[Any]]:
        """Return how many rows are passed over to come near the first one, and the record batches that follow."""
        if self.kind != "parquet":
            import pyarrow.ipc

            stream = files.enter_context(path.open("rb"))
            stream.seek(8)  # a file is a stream between its magic number and a footer
            return 0, iter(pyarrow.ipc.open_stream(BoundedStream(stream, path, self.memory)))
        import pyarrow.parquet

        named = [] if self.index_name is None else [self.index_name]  # stored once, however often it occurs
        pages = files.enter_context(path.open("rb"))
        how = {"pre_buffer": False, "buffer_size": BUFFER, "read_dictionary": named}
        file = files.enter_context(pyarrow.parquet.ParquetFile(path, **how))
        groups = row_groups(pages.fileno(), self.wanted)
        ends = np.cumsum([file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)])
        begin = int(np.searchsorted(ends, first, side="right"))

        def blocks(number: int) -> Iterator[Any]:
            require_small_pages(path, groups[number], pages.fileno(), self.memory)
            found: Iterator[Any] = file.iter_batches(size, [number], columns=self.wanted, use_threads=False)
            return found

        return int(ends[begin - 1]) if begin else 0, chain.from_iterable(map(blocks, range(begin, len(ends))))


class ArrowStream(ArrowRows):
    """Record batches that follow each other in a stream, without an index of where they are."""

    def __init__(self, path: Path, options: TableOptions) -> None:
        import pyarrow.ipc

        self.where, self.path, self.rewinds = name_of(path), path, not is_pipe(path)
        self.pipe = None if self.rewinds else LineCount()
        with reading(self.where, "as an Arrow stream", "" if self.rewinds else STREAM_CURE):
            if not self.rewinds:
                stream = bytes_of(path, self)
                require_format(path, first_bytes(stream), ARROW)
                self._unread = pyarrow.ipc.open_stream(BoundedStream(stream, self.where, self.memory))
            with self._reader() as reader:
                schema = reader.schema
        self._choose(schema, options)
        self.dtype = _number_type(schema, self.feature_names or ())

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        with reading(self.where, "to the end"), self._reader() as reader:
            for block in reader if self.rewinds else until_interrupted(iter(reader)):
                for part in self._parts(block, size):
                    yield self._rows_of(part, first, on_bad)
                    first += part.num_rows

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        """Give the record batches: those of a file from its beginning, those of a pipe that are still to come."""
        import pyarrow.ipc

        if self.rewinds:
            with self.path.open("rb") as file:
                yield pyarrow.ipc.open_stream(BoundedStream(file, self.where, self.memory))
        else:
            yield self._unread


def _require_numbers(where: str | Path, schema: Any, names: Sequence[str]) -> None:
    from pyarrow.types import is_boolean, is_floating, is_integer

    for field in map(schema.field, names):
        if not (is_integer(field.type) or is_floating(field.type) or is_boolean(field.type)):
            raise SourceError(
                f"{where}: the column {field.name!r} is of type {field.type}; ?index={field.name} takes this "
                f"column for the names of the rows, ?drop={field.name} leaves it out."
            )


def _number_type(schema: Any, features: Sequence[str]) -> np.dtype[Any]:
    """Return the type of the columns, not of a block, so that rows are the same numbers wherever reading begins."""
    return np.result_type(np.float32, *(schema.field(name).type.to_pandas_dtype() for name in features))


def _numbers(column: Any) -> npt.NDArray[Any]:
    """Return the numbers of a column; booleans of which some are missing come as objects and become 0, 1 and NaN."""
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found.astype(np.float64) if found.dtype == object else found


def _index_columns(schema: Any) -> list[Any]:
    """Return the columns that pandas wrote its index to, by what it wrote beside them; what is odd there is ignored."""
    try:
        found = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError):  # not JSON, or not an object
        return []
    return found if isinstance(found, list) else []


arrow_scheme = partial(register, needs="pyarrow", extra="parquet", feature_options=["columns"])
FILES = ("folders", "patterns")


@arrow_scheme("parquet", [".parquet"], takes=FILES, feature_options=SHAPING)
def parquet(path: Path, table: TableOptions, rating: RatingOptions) -> Source:
    """Open a Parquet file, or those in a folder or matching a pattern, or the ratings in them."""
    return rows_or_ratings(partial(ArrowFiles, path, "parquet"), table, rating)


@arrow_scheme("feather", [".feather"], takes=FILES)
def feather(path: Path, table: TableOptions) -> Source:
    """Open a Feather file, or those in a folder or matching a pattern."""
    return ArrowFiles(path, "feather", table)


@arrow_scheme("arrow", [".arrow"], takes=[*FILES, "standard input"])
def arrow(path: Path, table: TableOptions) -> Source:
    """Open a file in Arrow's IPC format, those in a folder or matching a pattern, or a stream of a pipe or file."""
    if is_pipe(path) or (path.is_file() and _is_stream(path)):
        return ArrowStream(path, table)
    return ArrowFiles(path, "arrow", table)


def _is_stream(path: Path) -> bool:
    with reading(path, "as arrow"), path.open("rb") as file:
        return file.read(len(FILE_MAGIC)) != FILE_MAGIC


class Parquet(Output, suffixes=[".parquet"]):
    """Coefficients in Parquet: one column per component, and one for the names of the rows."""

    def __init__(self, place: Path, heading: Heading) -> None:
        import pyarrow.parquet

        self.heading = heading
        fields = [] if heading.index is None else [(heading.index, pyarrow.string())]
        fields += [(column, pyarrow.from_numpy_dtype(heading.dtype)) for column in heading.columns]
        self.schema = pyarrow.schema(fields)
        self.writer = pyarrow.parquet.ParquetWriter(place, self.schema)
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
