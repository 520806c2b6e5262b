"""AnnData's .h5ad and Zarr: cells are rows, read by slices, and a copy of an .h5ad takes coefficients and loadings.

Coefficients go to ``obsm["X_onmf"]``, their shares of each cell's fit to ``obsm["X_onmf_shares"]``, loadings to
``varm["onmf"]``, settings to ``uns["onmf"]``. The first three are plain arrays, as other programs expect them (scanpy
and scVelo pick columns by their numbers); the names of the components are in ``uns``.
"""

import importlib.util
import json
import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array
from onmf._support.atomic import reserve
from onmf.data.base import Source, SourceError, reading, require_filled, require_matrix, require_room
from onmf.data.budget import LITTLE, allowed
from onmf.data.chunked import HDF5Chunks, Sliced, ZarrChunks, open_hdf5, require_known_codecs
from onmf.data.columns import Genes
from onmf.data.in_memory import Rows
from onmf.data.outputs import Heading, Output
from onmf.data.registry import Spec, register
from onmf.model.validation import DataError, require_sound_structure

log = logging.getLogger("onmf")

# Names are kept where a damaged length sends the HDF5 library round in circles, and may all be the same long text.
PROBE_SCRIPT = """
import sys, h5py
try:
    import resource
    with open("/proc/self/statm") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
except (ImportError, OSError):
    pass  # not on this system
try:
    with h5py.File(sys.argv[1], "r") as file:
        var, X = file["var"], file[sys.argv[3]]
        var[var.attrs["_index"]].asstr()[:]
        dict(X.attrs)
        if sys.argv[4:]:
            obs = file["obs"]
            cells = obs[obs.attrs["_index"]]
            for first in range(0, len(cells), 100_000):
                cells.asstr()[first : first + 100_000]
except Exception as error:
    sys.exit(3 if isinstance(error, MemoryError) or "memory" in str(error) else 1)
"""
NO_MEMORY = 3
CELLS = "obs_names"  # what anndata calls the names of cells
PROBE_SECONDS = 60.0  # seconds for a first look, on a slow disk
KEY = "onmf"
PLACE = f"X_{KEY}"
SLACK = 2**20  # bytes for all else that is written: names, facts and HDF5's own
DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}


class StoredRows:
    """A CSR matrix that stays in its file and gives slices of its rows, whose structure is checked."""

    def __init__(self, where: str, group: Any, chunks: Any) -> None:
        self.where = where
        self.shape, self.indptr, self.indices, self.data = _parts(where, group, chunks)
        self.dtype, self.entry = self.data.dtype, 2 * (self.data.dtype.itemsize + self.indices.dtype.itemsize)
        rows, entries = max(1, self.shape[0]), max(1, self.data.shape[0])
        self.row_bytes = 16 + self.entry * entries // rows  # on average, as are the rows that a chunk holds
        chunk = (self.data.chunks or (1,))[0] * rows // entries
        self.chunks = (max(1, min(chunk, self.data.memory // (8 * self.row_bytes))),)

    def __getitem__(self, rows: slice) -> Any:
        first, stop, _ = rows.indices(self.shape[0])
        starts = self.indptr[first : stop + 1].astype(np.int64)
        low, high = int(starts[0]), int(starts[-1])
        begins, ends = first > 0 or low == 0, stop < self.shape[0] or high == self.data.shape[0]
        possible = 0 <= low <= high <= self.data.shape[0] and high - low <= (stop - first) * self.shape[1]
        if not (begins and ends and possible):
            raise SourceError(f"{self.where} is damaged: its indptr leads from entry {low} to {high}.")
        require_room(f"rows {first} to {stop} of {self.where}", (high - low) * self.entry, self.data.memory)
        parts = self.data[low:high], self.indices[low:high], starts - low
        return _sound(self.where, scipy.sparse.csr_matrix, parts, (stop - first, self.shape[1]))


def is_store(path: Path) -> bool:
    """Tell whether a folder of Zarr holds an AnnData object."""
    with suppress(OSError, ValueError, AttributeError):
        for name, within in ((".zattrs", None), ("zarr.json", "attributes")):
            if (path / name).is_file():
                facts = json.loads((path / name).read_bytes())
                return (facts if within is None else facts.get(within)).get("encoding-type") == "anndata"
    return False


def _opened_store(path: Path) -> tuple[Any, Any]:
    """Open a folder of Zarr; return it, and what reads the chunks of its arrays."""
    if importlib.util.find_spec("zarr") is None:
        raise ModuleNotFoundError(f"{path} needs zarr; install onmf[zarr].")
    import zarr

    for folder, _, files in os.walk(path):
        if not {"zarr.json", ".zarray"}.isdisjoint(files):
            require_known_codecs(path, Path(folder))
    return zarr.open_group(path, mode="r"), lambda _, X: ZarrChunks(path / X.path, X)


@register("h5ad", [".h5ad"], takes=["folders"], needs="h5py", extra="anndata", holds=is_store)
def h5ad(
    path: Path,
    layer: str | None = None,
    columns: list[str] | None = None,
    index: str | None = None,
    *,
    like: Spec | None = None,
) -> Source:
    """Open the cells x genes of an AnnData file, or one of its layers; the names of genes name the features.

    ``columns`` chooses genes by name: those of a model are found in files that have more, or another order; those that
    a file lacks are zeros.
    ``index=obs_names`` names the rows by their cells, which are then read in order.
    """
    place = "X" if layer is None else f"layers/{layer}"
    if index not in (None, CELLS):
        raise SourceError(f"{path}: index must be {CELLS}, the names of the cells; got {index!r}.")
    with reading(path, "as AnnData"):
        chunks: Any = HDF5Chunks
        if path.is_dir():
            if index is not None:
                raise SourceError(f"{path}: the names of the cells are read from .h5ad files only; leave out index=.")
            file, chunks = _opened_store(path)
        else:
            file = open_hdf5(path)  # first: what it leads to must not be read, by the script neither
        arguments = (
            str(LITTLE + allowed() // 4),
            place,
            *([] if index is None else [index]),
        )  # names are kept in several lists
        if path.is_file() and require_harmless(path, PROBE_SCRIPT, *arguments) == NO_MEMORY:
            require_room(f"the list of names in {path}", None, allowed())
        if "var" not in file or "_index" not in file["var"].attrs:
            raise SourceError(f"{path} has no names of genes (var/_index); write it with anndata's write_h5ad.")
        named = file["var"][file["var"].attrs["_index"]]
        genes = [str(name) for name in (named.asstr() if path.is_file() else named)[:]]
        if place not in file:
            layers, what = ", ".join(file.get("layers", ())), "X" if layer is None else f"layer {layer!r}"
            if layers:
                raise SourceError(f"{path} has no {what}; its layers are {layers}: h5ad:{path}?layer=NAME.")
            raise SourceError(
                f"{path} has no {'X and no ' * (layer is None)}layers"
                f"{'' if layer is None else '; leave out ?layer= to read X'}."
            )
        where, X = f"{path} ({place})", file[place]
        kind = "dense" if hasattr(X, "chunks") else X.attrs.get("encoding-type")
        if kind not in KINDS:
            raise SourceError(f"{where} is stored as {kind!r}; onmf reads dense, CSR and CSC matrices.")
        matrix: Any = KINDS[kind](where, X, chunks)
        require_matrix(where, matrix)
    if len(genes) != matrix.shape[1]:
        raise SourceError(f"{where} has {matrix.shape[1]} columns but names of {len(genes)} genes; it is damaged.")
    of_model = like is not None and like.names is not None and columns == list(like.names)
    chosen = Genes.of(path, genes, columns, lacking=of_model)
    names = None if index is None else _names_of_cells(path, file, matrix.shape[0])
    source: Source
    if kind == "csc_matrix" and names is None:
        source = Rows(chosen.of_batch(matrix))
    else:
        source = Sliced(where, matrix, path, chosen, names)
    source.feature_names, source.index_name = list(chosen.names), index
    return source


def _names_of_cells(path: Path, file: Any, number: int) -> Any:
    """Return the names of the cells, which stay in the file."""
    import h5py

    with reading(path, "as AnnData"):
        names = _index(file, "obs")
        if names is None or h5py.check_string_dtype(names.dtype) is None:
            raise SourceError(f"{path} has no names of cells (obs/_index); leave out index=.")
        if names.shape != (number,):
            raise SourceError(f"{path} has {number} cells but names of shape {names.shape}; it is damaged.")
    return names


def _by_columns(where: str, group: Any, chunks: Any) -> Any:
    """Read a matrix whole, since rows cannot be cut from columns."""
    shape, indptr, indices, data = _parts(where, group, chunks)
    require_filled(where, shape, data.shape[0])
    bytes_needed = 2 * data.shape[0] * (data.dtype.itemsize + indices.dtype.itemsize)
    require_room(f"{where}, stored by columns,", bytes_needed, data.memory)
    log.warning(
        "%s is stored by columns, so it is read into memory whole, %.3g MB for a moment; stored by rows it "
        "is read in pieces: adata.X = adata.X.tocsr().",
        *(where, bytes_needed / 1e6),
    )
    return _sound(where, scipy.sparse.csc_matrix, (data[:], indices[:], indptr[:]), shape).tocsr()


# The ways that a matrix is stored
KINDS: dict[Any, Callable[[str, Any, Any], Any]] = {
    "dense": lambda where, X, chunks: chunks(where, X),
    "csr_matrix": StoredRows,
    "csc_matrix": _by_columns,
}


def _parts(where: str, group: Any, chunks: Any) -> tuple[tuple[int, int], Any, Any, Any]:
    """Return the shape and the three arrays of a compressed matrix, as far as their headers can be trusted."""
    lengths = np.asarray(group.attrs.get("shape", ()))
    shape = tuple(int(length) for length in lengths.ravel()) if lengths.dtype.kind in "iu" else ()
    arrays = [group.get(name) for name in ("indptr", "indices", "data")]
    if len(shape) != 2 or min(shape) < 0 or any(len(getattr(array, "shape", None) or ()) != 1 for array in arrays):
        raise SourceError(
            f"{where} is damaged: a sparse matrix has a shape of two whole numbers, indptr, indices and data."
        )
    indptr, indices, data = arrays
    for name, kind in (("indptr", indptr.dtype), ("indices", indices.dtype)):
        if kind.kind not in "iu":
            raise SourceError(f"{where} is damaged: its {name} are of type {kind}, not whole numbers.")
    lines = shape[1] if group.attrs.get("encoding-type") == "csc_matrix" else shape[0]
    if indptr.shape[0] != lines + 1 or indices.shape != data.shape or data.shape[0] > shape[0] * shape[1]:
        raise SourceError(
            f"{where} is damaged: a matrix of shape {shape} cannot have {indptr.shape[0]} entries in indptr, "
            f"{indices.shape[0]} in indices and {data.shape[0]} in data."
        )
    return (shape[0], shape[1]), chunks(where, indptr), chunks(where, indices), chunks(where, data)


def _sound(where: str, kind: Any, parts: tuple[Any, Any, Any], shape: tuple[int, int]) -> Any:
    """Return the matrix of these parts, or raise an error: damaged indices must not reach compiled code."""
    try:
        matrix = kind(parts, shape=shape)  # scipy itself looks at the lengths alone
        require_sound_structure(matrix)
    except (DataError, ValueError, TypeError) as error:
        raise SourceError(f"{where} is damaged: {error}") from None
    return matrix


def require_harmless(path: Path, look: str, *arguments: str) -> int:
    """Return the exit status of ``look``, a short script; raise an error if it crashes on a file or never ends.

    On damaged metadata a library written in C may loop or crash, and nothing in Python can stop it, so that the script
    has a process of its own. Errors of Python in the script do not count: the reader of the file meets them too, and
    can say what they mean.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return 0  # there is no Python to start
    command = [sys.executable, "-P", "-c", look, str(path), *arguments]  # -P: no modules from the current folder
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise SourceError(f"{path} is damaged: reading it did not finish within {PROBE_SECONDS:g} seconds.") from None
    if done.returncode < 0:
        raise SourceError(f"{path} is damaged: the library that reads it crashes.")
    return done.returncode


class H5ad(Output, suffixes=[".h5ad"]):
    """Coefficients in a copy of the file of the cells, one row per cell, in their order."""

    adds_to_data = True

    def __init__(self, place: Path, heading: Heading) -> None:
        import h5py

        self.place, self.data, self.before, self.rows = place, heading.data, _state(heading.data), 0
        with _writing(self.data):
            shutil.copyfile(self.data, place)
        with reading(self.data, "as AnnData"), h5py.File(place, "r") as file:
            cells, genes = _index(file, "obs"), _index(file, "var")
            named = genes is not None and h5py.check_string_dtype(genes.dtype) is not None
            of_genes = (
                heading.origin.by_gene(genes.asstr(errors="replace")[:].tolist()) if heading.origin and named else None
            )
            loadings = None if of_genes is None or np.isnan(of_genes).all() else of_genes
            self.cells = 0 if cells is None else len(cells)
        if not self.cells:
            raise ValueError(f"{self.data} has no names of cells (obs); write it with anndata's write_h5ad.")
        shape = self.cells, len(heading.columns)
        with _writing(self.data):
            _reserve(
                place, 2 * math.prod(shape) * heading.dtype.itemsize + (0 if loadings is None else loadings.nbytes)
            )
        self.file = h5py.File(place, "r+")
        try:
            with _writing(self.data):
                self.H = self._put("obsm", PLACE, np.empty(0, heading.dtype), shape)
                self.shares = self._put("obsm", f"{PLACE}_shares", None)
                if heading.origin is not None:
                    self.origin = heading.origin
                    if heading.origin.facts["rows"] == "coefficients":
                        self.shares = self._put("obsm", f"{PLACE}_shares", np.empty(0, heading.dtype), shape)
                    self._put("varm", KEY, loadings)
                    self._put("varm", f"{KEY}_scores", None)  # which annotate writes; those of an older model are wrong
                    self._put("uns", KEY, heading.origin.facts)
        except BaseException:
            self._abandon()
            raise

    @classmethod
    def require(cls, data: Path) -> None:
        if importlib.util.find_spec("h5py") is None:
            raise ModuleNotFoundError(".h5ad needs h5py; install onmf[anndata].")
        import h5py

        if not (data.is_file() and h5py.is_hdf5(data)) or data.suffix.lower() != ".h5ad":
            raise ValueError(f"{data} is not an .h5ad file, so that there are no cells to write coefficients to.")

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        first, self.rows = self.rows, self.rows + len(H)
        if self.rows <= self.cells:
            with _writing(self.data):
                self.H[first : self.rows] = H
                if self.shares is not None:
                    self.shares[first : self.rows] = self.origin.shares(H)

    def require_whole(self) -> None:
        if self.cells != self.rows:
            raise ValueError(
                f"{self.data} has {self.cells} cells, but {self.rows} samples were read from it; its X and layers hold "
                "the cells."
            )
        if _state(self.data) != self.before:
            raise ValueError(
                f"another program has changed {self.data} since it was read; nothing is written: run this again."
            )

    def close(self) -> None:
        import h5py

        try:
            with _writing(self.data):
                self.file.flush()
                self.file.close()
                with h5py.File(self.place, "r") as file:
                    if f"obsm/{PLACE}" not in file:  # the list of names in obsm was damaged before
                        raise OSError("they are not found in it again, so that the file is damaged")
        except OSError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Close a file that nobody will read."""
        with suppress(OSError, RuntimeError):
            self.file.close()

    def _put(self, part: str, key: str, value: Any, shape: tuple[int, int] | None = None) -> Any:
        """Write into one of the file's mappings, in place of the value of an older model; None only removes that."""
        import h5py

        links = self.file.id.links
        if not links.exists(part.encode()):
            self.file.create_group(part).attrs.update(DICT)
        linked = links.get_info(part.encode()).type != h5py.h5l.TYPE_HARD  # perhaps to another file
        group = None if linked else self.file[part]
        if not isinstance(group, h5py.Group):
            what = f"keeps {part} elsewhere, behind a link" if linked else "is in a format of anndata before 0.7"
            raise ValueError(f"{self.data} {what}; write it anew: anndata.read_h5ad(name).write_h5ad(name).")
        if group.id.links.exists(key.encode()):
            del group[key]
        return None if value is None else _write(group, key, value, shape)


def _index(file: Any, axis: str) -> Any:
    """Return the names of the cells (obs) or genes (var), which stay in the file; None where it has none."""
    names = file.get(axis)
    if hasattr(names, "keys"):
        names = names.get(names.attrs.get("_index", "_index"))
    return names if getattr(names, "shape", None) else None


def _write(group: Any, name: str, value: Any, shape: tuple[int, int] | None = None) -> Any:
    """Write a value as anndata does; with a ``shape``, make an array of the value's type, to be filled later."""
    import h5py

    if isinstance(value, Mapping):
        inside = group.create_group(name)
        inside.attrs.update(DICT)
        for key, part in value.items():
            _write(inside, key, part)
        return inside
    numbers = np.asarray(value)
    if shape is not None:
        kind, stored = "array", group.create_dataset(name, shape, numbers.dtype)
    elif numbers.dtype.kind in "biuf":
        kind, stored = ("array" if numbers.ndim else "numeric-scalar"), group.create_dataset(name, data=numbers)
    else:
        kind = "string" if isinstance(value, str) else "string-array"
        stored = group.create_dataset(name, data=value, dtype=h5py.string_dtype())
    stored.attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})
    return stored


def _reserve(place: Path, more: int) -> None:
    """Make the file longer by ``more`` bytes and some for names; the HDF5 library gives back those that it spares.

    The library would crash if it found the disk full later.
    """
    with place.open("rb+") as file:
        reserve(file.fileno(), place.stat().st_size, more + SLACK)


def _state(path: Path) -> tuple[int, int, int]:
    """Return facts that change when somebody writes to a file or puts another in its place."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns


@contextmanager
def _writing(data: Path) -> Iterator[None]:
    """Turn the long errors of the HDF5 library into one sentence."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise OSError(f"cannot write a copy of {data} with its coefficients: {cause}.") from None
