"""The interface of sources of samples, and the helpers that they share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from onmf.data.budget import allowed, given, no_room
from onmf.model.validation import DataError, require_sound_structure
from onmf.samples import Samples, stacked

if TYPE_CHECKING:
    from onmf.data.pipes import LineCount
    from onmf.data.registry import Spec


class SourceError(ValueError):
    """Raised for samples that cannot be read; the message names the file, the cause and, where there is one, the cure.

    Parameters
    ----------
    message : str
        The message.
    rows : int
        How many samples are lost if the rest is read without them.

    Examples
    --------
    >>> onmf.data.open_source("nowhere.csv")
    Traceback (most recent call last):
    onmf.data.base.SourceError: nowhere.csv: no such file or folder.
    """

    def __init__(self, message: str = "", rows: int = 1) -> None:
        super().__init__(message)
        self.rows = rows


LONG = 10**7  # rows or columns, of which most must not be empty
INDEX_TYPES = ({np.dtype(np.int32)}, {np.dtype(np.int64)})  # of compressed matrices, that scipy computes with
Numbered = Iterator[tuple[npt.NDArray[Any], Any]]  # row numbers, and the batch of these rows
OnBad = Callable[[SourceError], None]


class Source(ABC):
    """Samples that are read in batches; whether they are held in memory is up to the source.

    A source of your own sets ``n_features``, and writes ``batches``.

    Examples
    --------
    >>> class Doubled(onmf.data.Source):
    ...     n_features = 30
    ...     def batches(self, size, rng=None, on_bad=None, first=0):
    ...         yield np.arange(60), 2 * X
    >>> OnlineNMF(3, shuffle=False).fit(Doubled()).n_samples_seen_
    60
    """

    n_features: int
    n_samples: int | None = None  # None: not known before the end
    any_order: bool = False  # rows can be read in any order, i.e. shuffled
    rewinds: bool = True  # it can be read again
    pipe: "LineCount | None" = None  # of a pipe, which brings what an earlier run has not had: how much has come
    resident: bool = False  # its rows lie on a device, where they are learnt from
    feature_names: list[str] | None = None
    index_name: str | None = None  # the heading of the names of rows, where rows have names instead of numbers
    batch_size: int | None = None  # the size of its batches, whatever is asked for
    weighted: bool = False  # samples come with weights, as ``Samples``
    seeks: bool = False  # it can begin within a pass, without reading the rows before
    checked: bool = False  # it has checked the indices of its sparse batches already
    edges: Sequence[int] | None = None  # rows at which reading begins best; None: at any, where it ``seeks``
    files: Mapping[str, Path] | None = None  # the files of a folder or pattern, to which more may be added, by name
    bad: "dict[Path, SourceError]"  # those of them that could not be read, which stay bad as long as it is read
    rows_in: Mapping[Path, int]  # the number of rows in each file, of a source that has several
    chosen: Mapping[str, Any] = MappingProxyType({})  # options that shape the features and were left to the data
    opened: str | None = None  # the text that open_source opened it by, in which paths are absolute
    spec: "Spec | None" = None  # how its features are made; open_source knows, and sets it
    where: str | Path = "a source"  # its name in messages
    row_bytes: int = 0  # that reading a row takes, of a source that can tell; batches are cut to fit into ``memory``
    _memory: int | None

    def __new__(cls, *_: Any, **__: Any) -> Self:
        source = super().__new__(cls)
        source._memory, source.bad = given.get(), {}  # here, so that no source can forget them
        return source

    @property
    def memory(self) -> int:
        """The bytes that reading a batch may take."""
        return allowed() if self._memory is None else self._memory

    def fitting(self, size: int) -> int:
        """Return how many of ``size`` rows fit into memory; if not even one does, raise an error."""
        if not self.row_bytes:
            return size
        require_room(f"one row of {self.where}", self.row_bytes, self.memory)
        return min(size, self.memory // self.row_bytes)

    @abstractmethod
    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        """Yield one pass: pairs (row numbers, batch), dense or scipy sparse; the last may be shorter.

        Where rows have names, those that cannot be read come as NaN, and their names are ``Unread`` and hold the
        reason.

        Parameters
        ----------
        size : int
            Rows of a batch; where they do not fit into ``memory``, all batches have as many as do.
        rng : numpy.random.Generator or None
            Shuffles the rows of a source with ``any_order``.
        on_bad : callable or None
            Called with a ``SourceError`` for samples that cannot be read, which are then left out; None: it is raised.
        first : int
            Rows of the pass to leave out, whole batches of them; only a source that ``seeks`` is given any.

        Yields
        ------
        array (size,), array or sparse matrix (size, n_features)
            The numbers or names of the rows, and the rows.
        """

    def around(self, first: int, last: int) -> "tuple[Source, int] | None":
        """Return a smaller source with rows ``first`` to ``last``, and the number that row ``first`` has in it.

        It is sent to another process. None: the source is opened anew there.
        """
        return None

    def labels(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what stands for rows in a table of results, given their names or numbers."""
        return rows

    def of_files(self, names: Sequence[str]) -> "Source":
        """Return the samples of these files alone, in this order; only a source that has ``files`` is asked."""
        some = copy(self)
        some.files = {name: (self.files or {})[name] for name in names}
        some.rows_in = {path: self.rows_in[path] for path in some.files.values()}
        some.bad = {path: error for path, error in self.bad.items() if path in some.rows_in}
        some.n_samples, some.edges = sum(some.rows_in.values()), None
        return some


class Sequential(Source):
    """Rows that come in one order, in blocks of any length.

    Examples
    --------
    >>> class Halves(onmf.data.Sequential):
    ...     n_features = 30
    ...     def _numbered(self, size, on_bad, first):
    ...         yield np.arange(30), X[:30]
    ...         yield np.arange(30, 60), X[30:]
    >>> [len(batch) for _, batch in Halves().batches(40)]
    [40, 20]
    """

    checked = True
    _begun = False

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        if rng is not None:
            raise SourceError(
                f"{self.where} cannot be shuffled as a whole, since it is read in order; use onmf.data.shuffle, "
                "which draws from a buffer."
            )
        if self._begun and not self.rewinds:
            raise SourceError(f"{self.where} can be read only once; use max_passes=1, or write it to a file first.")
        if first and not self.seeks:
            raise SourceError(f"{self.where} can be read from its beginning only, not from row {first}.")
        self._begun = True
        size = self.fitting(size)
        return recut(self._numbered(size, on_bad, first), size, on_bad)

    @abstractmethod
    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        """Yield rows with their numbers, best ``size`` at a time; ``first`` is 0 unless the source ``seeks``."""


def read_from(source: Source, size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
    """Return the batches of a source from a row onward, none of them damaged; every reader of a source calls this.

    A source that does not seek, perhaps a user's, need not know of ``first``.
    """
    found = source.batches(size, rng, on_bad, first) if source.seeks else source.batches(size, rng, on_bad)
    return found if source.checked else _checked(found, on_bad)


def _checked(batches: Iterable[tuple[npt.NDArray[Any], Any]], on_bad: OnBad | None) -> Numbered:
    """Yield batches that compiled code can be trusted with; a sparse one with broken indices is bad as a whole."""
    for rows, batch in batches:
        try:
            checked = native(batch)
        except DataError as error:
            damaged = SourceError(f"a batch cannot be read: {error}", len(rows))
            if on_bad is None:
                raise damaged from None
            on_bad(damaged)
        else:
            yield rows, checked


class Cutter:
    """Blocks of rows that are joined and cut into batches.

    A block is made of parts of equal length, such as row numbers and samples, that are cut alike. ``size`` is a number,
    or a function that takes the last part of the block that a batch begins with.
    """

    def __init__(self, size: int | Callable[[Any], int]) -> None:
        self.size = size
        self._block: tuple[Any, ...] = ()
        self._waiting: list[tuple[Any, ...]] = []
        self._start = self._count = self._wanted = 0

    def add(self, *block: Any, skip: int = 0) -> None:
        """Take the next block, less its first ``skip`` rows."""
        self._block, self._start = block, skip

    def cut(self) -> tuple[Any, ...] | None:
        """Return the next batch; None if it needs another block."""
        length, start = len(self._block[0]), self._start
        if start >= length:
            return None
        if not self._waiting:
            self._wanted = self.size if isinstance(self.size, int) else self.size(self._block[-1])
        stop = self._start = min(length, start + self._wanted - self._count)
        self._count += stop - start
        whole = stop - start == length
        self._waiting.append(self._block if whole else tuple(part[start:stop] for part in self._block))
        return self.rest() if self._count == self._wanted else None

    def rest(self) -> tuple[Any, ...] | None:
        """Return the rows that wait, which may be too few for a batch; None if there are none."""
        parts = [stacked(list(part)) for part in zip(*self._waiting, strict=True)]
        self._waiting, self._count = [], 0
        return tuple(parts) or None


def recut(batches: Iterable[tuple[npt.NDArray[Any], Any]], size: int, on_bad: OnBad | None = None) -> Numbered:
    """Yield the same rows, checked and with their numbers, in batches of ``size``; only the last may be shorter."""
    cutter = Cutter(size)
    for rows, batch in _checked(batches, on_bad):
        cutter.add(rows, batch)
        while (cut := cutter.cut()) is not None:
            yield cut
    if (cut := cutter.rest()) is not None:
        yield cut


def numbered(blocks: Iterable[Any], first: int = 0) -> Numbered:
    """Yield consecutive blocks of rows with the numbers of the rows."""
    for block in blocks:
        yield np.arange(first, first + block.shape[0]), block
        first += block.shape[0]


def native(X: Any) -> Any:
    """Return a sparse matrix as CSR, its entries of a type that scipy computes with and its indices of one type.

    X itself is returned if it is that already or is not sparse. Entries in half precision or in the byte order of
    another machine become double precision. Masked entries of NumPy's masked arrays become NaN.
    """
    if isinstance(X, Samples):
        return Samples(native(X.matrix), X.entry_weight, X.sample_weight, X.absent)
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "buif":
        return np.ma.filled(X.astype(X.dtype if X.dtype.kind == "f" else np.float64), np.nan)
    if not scipy.sparse.issparse(X):
        return X
    require_sound_structure(X)
    try:
        if X.format in ("lil", "dok"):  # of Python's numbers
            X = X.tocsr() if X.format == "lil" else X.tocoo()
        if X.dtype.kind == "f" and (X.dtype.itemsize < 4 or not X.dtype.isnative):
            X = X.astype(np.float64)
        elif not X.dtype.isnative:
            X = X.astype(X.dtype.newbyteorder("="))
        if X.format in ("csr", "csc", "bsr") and {X.indptr.dtype, X.indices.dtype} not in INDEX_TYPES:
            X = type(X)((X.data, X.indices, X.indptr), shape=X.shape)  # scipy finds the type that both fit in
        return X.tocsr()
    except (ValueError, TypeError, OverflowError, LookupError) as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise DataError(f"The sparse matrix cannot be read as rows: {cause}; make it anew from its entries.") from None


def require_room(what: object, needed: int | None, memory: int) -> None:
    """Raise an error, before it is allocated, if something that cannot be cut takes more than there is room for."""
    if (why := no_room(what, needed, memory)) is not None:
        raise SourceError(why)


@contextmanager
def reading(where: str | Path, how: str, cure: str = "") -> Iterator[None]:
    """Turn any error of a library that reads a file into ``WHERE cannot be read HOW: CAUSE; CURE.``."""
    try:
        yield
    except SourceError:
        raise
    except MemoryError as error:  # kept as the cause: the machine may be at fault, not the file
        raise SourceError(
            f"{where} cannot be read {how}: it needs more memory than there is; perhaps it is damaged."
        ) from error
    except Exception as error:  # of whatever type, the file is at fault
        cause = (" ".join(str(error).split()) or type(error).__name__).rstrip(".")
        cure = f"; {cure}" if cure and not isinstance(error, OSError) else ""
        raise SourceError(f"{where} cannot be read {how}: {cause}{cure}.") from None


def require_matrix(what: str | Path, X: Any, empty: bool = False) -> None:
    """Raise an error unless X is a 2-D array or sparse matrix of real numbers; ``empty`` allows an empty one."""
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        raise SourceError(
            f"{what} must be an array or a sparse matrix, not {type(X).__name__}; convert it with numpy.asarray."
        )
    shape = () if X.shape is None else tuple(X.shape)  # None: an empty data set of HDF5
    if len(shape) != 2 or np.dtype(X.dtype).kind not in "buif":
        raise SourceError(
            f"{what} must be a 2-D array of real numbers, one row per sample; got shape {shape}, type {X.dtype}."
        )
    if 0 in shape and not empty:
        raise SourceError(f"{what} has no samples or no features: its shape is {shape}.")


def require_filled(what: str | Path, shape: tuple[int, int], entries: int) -> None:
    """Raise an error if nearly all rows of a sparse or chunked matrix are empty.

    Empty rows and columns take memory too, so that a file of a few bytes could claim all of it.
    """
    if max(shape) > max(LONG, 100 * entries):
        raise SourceError(
            f"{what} claims {shape[0]} x {shape[1]} with only {entries} entries; leave out empty rows and columns."
        )


def require_unchanged(path: Path, size: int) -> None:
    """Raise an error if a file was cut or deleted: the missing part might be read as zeros."""
    now = path.stat().st_size if path.exists() else None
    if now is None or (path.is_file() and now < size):
        what = "disappeared" if now is None else f"shrank from {size} to {now} bytes"
        raise SourceError(f"{path} {what} while it was being read.")
