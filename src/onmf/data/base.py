"""What a source of samples is, and what all sources share."""

from __future__ import annotations

import glob
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from onmf import samples
from onmf.data.native import native
from onmf.model.validation import DataError

if TYPE_CHECKING:
    from onmf.data.spec import Spec


class SourceError(ValueError):
    """Samples that cannot be read; the message names the file, the cause and, where there is one, the cure.

    ``rows`` says how many samples it costs if the rest is read without them.
    """

    def __init__(self, message: str = "", rows: int = 1) -> None:
        super().__init__(message)
        self.rows = rows


LONG = 10**7  # rows or columns, of which most must not be empty
Numbered = Iterator[tuple[npt.NDArray[Any], Any]]  # row numbers, and the batch of these rows
OnBad = Callable[[SourceError], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Source(ABC):
    """Samples that are read in batches, without being held in memory."""

    n_features: int
    n_samples: int | None = None  # None: unknown before the end
    any_order: bool = False  # can rows be read in any order, i.e. shuffled?
    rewinds: bool = True  # can it be read again?
    resident: bool = False  # do its rows lie on a device, where they are learnt from?
    feature_names: list[str] | None = None
    index_name: str | None = None  # of the names of rows, where they have some instead of numbers
    batch_size: int | None = None  # of a source that has its own, whatever is asked for
    weighted: bool = False  # do samples come with weights, as ``Samples``?
    seeks: bool = False  # can it begin within a pass, without reading what comes before?
    edges: Sequence[int] | None = None  # rows at which reading begins best; None: at any, where it ``seeks``
    files: Mapping[str, Path] | None = None  # those of a folder or pattern, which may become more: by name, in order
    chosen: Mapping[str, Any] = MappingProxyType({})  # options that shape the features and were left to the data
    opened: str | None = None  # the text that open_source opened it by, in which paths are absolute
    spec: Spec | None = None  # how its features are made; open_source knows, and sets it

    @abstractmethod
    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        """One pass: pairs (row numbers, batch) of ``size`` rows, dense or scipy sparse; the last may be shorter.

        ``rng`` shuffles the rows of a source with ``any_order``. Samples that cannot be read are left out once
        ``on_bad`` has been told why, one by one or with the number of ``rows``; where rows have names, they come as NaN
        instead, and their names are ``Unread``, which says why. Without ``on_bad`` the error is raised. A source that
        ``seeks`` leaves out the ``first`` rows of the pass, and is asked for whole batches of them; the others are
        never asked.
        """

    def around(self, first: int, last: int) -> tuple[Source, int] | None:
        """A part of the source, to be sent to another process, that has these rows, and the number of the first in it.

        None: it is opened anew there.
        """
        return None

    def of_files(self, names: Sequence[str]) -> Source:
        """The samples of these files alone, in this order; of a source that has ``files``."""
        raise NotImplementedError(f"{type(self).__name__} has files but cannot read some of them alone.")


class Ordered(Source):
    """Rows that come in one order, in blocks of any length; ``where`` names them in messages."""

    where: str | Path
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
        self._begun = True
        return recut(sound(self._from(first, size, on_bad), on_bad), size)

    @abstractmethod
    def _from(self, first: int, size: int, on_bad: OnBad | None) -> Numbered:
        """The rows from the ``first`` onward with their numbers, best ``size`` of them at a time."""


class Sequential(Ordered):
    """Rows that have to be read from the first one onward."""

    def _from(self, first: int, size: int, on_bad: OnBad | None) -> Numbered:
        if first:
            raise SourceError(f"{self.where} can be read from its beginning only, not from row {first}.")
        return self._numbered(size, on_bad)

    @abstractmethod
    def _numbered(self, size: int, on_bad: OnBad | None) -> Numbered:
        """One pass: rows with their numbers, best ``size`` of them at a time."""


class Seeking(Ordered):
    """Rows that can be read from any of them onward."""

    seeks = True

    def _from(self, first: int, size: int, on_bad: OnBad | None) -> Numbered:
        return numbered(self._blocks_from(first, size, on_bad), first)

    @abstractmethod
    def _blocks_from(self, first: int, size: int, on_bad: OnBad | None) -> Iterator[Any]:
        """The rows from the ``first`` onward, best ``size`` of them at a time."""


def read_from(source: Source, size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
    """``source.batches`` from that row onward, none of them damaged: whoever reads any source reads it through this.

    A source that does not seek, perhaps a user's, need not know of ``first``.
    """
    found = source.batches(size, rng, on_bad, first) if source.seeks else source.batches(size, rng, on_bad)
    return sound(found, on_bad)


def sound(batches: Iterable[tuple[npt.NDArray[Any], Any]], on_bad: OnBad | None) -> Numbered:
    """Batches that compiled code can be trusted with; a sparse one with broken indices is bad as a whole."""
    for rows, batch in batches:
        try:
            sound_batch = native(batch)
        except DataError as error:
            refused = SourceError(f"a batch cannot be read: {error}", len(rows))
            if on_bad is None:
                raise refused from None
            on_bad(refused)
        else:
            yield rows, sound_batch


def numbered(blocks: Iterable[Any], first: int = 0) -> Numbered:
    """Consecutive blocks of rows with the numbers of the rows."""
    for block in blocks:
        yield np.arange(first, first + block.shape[0]), block
        first += block.shape[0]


def recut(batches: Iterable[tuple[npt.NDArray[Any], Any]], size: int | Callable[[Any], int], skip: int = 0) -> Numbered:
    """The same rows, with their numbers, in batches of ``size``; only the last may be shorter.

    A ``size`` that varies is asked for when a batch is begun, and told the rows that it begins with. So many rows of
    the first batch as ``skip`` says are left out.
    """
    numbers: list[npt.NDArray[Any]] = []
    waiting: list[Any] = []
    count = wanted = 0
    for rows, batch in batches:
        start, skip = skip, 0
        while start < len(rows):
            if not waiting:
                wanted = size if isinstance(size, int) else size(batch)
            stop = min(len(rows), start + wanted - count)
            whole = start == 0 and stop == len(rows)
            numbers.append(rows if whole else rows[start:stop])
            waiting.append(batch if whole else batch[start:stop])
            count, start = count + stop - start, stop
            if count == wanted:
                yield np.concatenate(numbers), stacked(waiting)
                numbers, waiting, count = [], [], 0
    if waiting:
        yield np.concatenate(numbers), stacked(waiting)


def stacked(parts: list[Any]) -> Any:
    """Blocks of rows as one."""
    return parts[0] if len(parts) == 1 else samples.stacked(parts)


def each_readable(read: Callable[[Item], Result], items: Iterable[Item], on_bad: OnBad | None) -> Iterator[Result]:
    """``map(read, items)`` without the items that ``read`` refuses; ``on_bad`` is told of them, or the error raised."""
    for item in items:
        try:
            result = read(item)
        except SourceError as error:
            if on_bad is None or isinstance(error.__cause__, MemoryError):  # which may befall all that follow
                raise
            on_bad(error)
        else:
            yield result


@contextmanager
def reading(where: str | Path, how: str, cure: str = "") -> Iterator[None]:
    """Turn whatever a library raises while it reads a file into ``WHERE cannot be read HOW: CAUSE; CURE.``."""
    try:
        yield
    except SourceError:
        raise
    except MemoryError as error:  # kept as the cause: the machine may be at fault, not the file
        raise SourceError(
            f"{where} cannot be read {how}: it needs more memory than there is; perhaps it is damaged."
        ) from error
    except Exception as error:  # whatever the library trips over, the file is at fault
        cause = (" ".join(str(error).split()) or type(error).__name__).rstrip(".")
        cure = f"; {cure}" if cure and not isinstance(error, OSError) else ""
        raise SourceError(f"{where} cannot be read {how}: {cause}{cure}.") from None


def matching(path: Path, suffixes: Sequence[str], deep: bool = False) -> list[Path]:
    """The file itself, the files that match a pattern, or those in a folder that have one of the suffixes.

    ``deep`` also looks in the folder's own folders, except hidden ones and logs such as _delta_log.
    """
    if path.is_dir():
        missing = f"has no files that end in {', '.join(suffixes)}"
        found = [each for each in path.glob("**/*" if deep else "*") if each.suffix.lower() in suffixes]
        if deep:
            found = [each for each in found if not any(part[0] in "._" for part in each.relative_to(path).parts)]
    else:
        missing = "matches no files"
        found = [path] if path.exists() else [Path(name) for name in glob.glob(str(path), recursive=True)]
    files = sorted(each for each in found if not each.is_dir())
    if not files:
        raise SourceError(f"{path} {missing}; give a folder, or a pattern such as 'folder/*{suffixes[0]}'.")
    return files


def named(path: Path, files: Sequence[Path]) -> dict[str, Path]:
    """Files by names that stay the same when the folder moves: relative to it, or to where a pattern begins."""
    folder = path
    while glob.has_magic(str(folder)) or not folder.is_dir():
        folder = folder.parent
    return {file.relative_to(folder).as_posix(): file for file in files}


def require_matrix(what: str | Path, X: Any, empty: bool = False) -> None:
    """Refuse all but 2-D arrays and sparse matrices of real numbers, and empty ones unless they are allowed."""
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
    """Refuse a sparse matrix, or one in chunks of which few are there, of next to nothing but empty rows or columns.

    Each takes memory all the same, so that a few bytes can ask for all there is.
    """
    if max(shape) > max(LONG, 100 * entries):
        raise SourceError(
            f"{what} claims {shape[0]} x {shape[1]} with only {entries} entries; leave out empty rows and columns."
        )


def require_unchanged(path: Path, size: int) -> None:
    """Refuse to continue with a file that was cut or deleted: what is missing might be read as zeros."""
    now = path.stat().st_size if path.exists() else None
    if now is None or (path.is_file() and now < size):
        what = "disappeared" if now is None else f"shrank from {size} to {now} bytes"
        raise SourceError(f"{path} {what} while it was being read.")
