"""AnnData's .h5ad: cells are rows, dense or CSR, read by slices of rows; CSC is read whole."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from onmf.data.base import Numbered, OnBad, Source, SourceError, reading, require_filled, require_matrix
from onmf.data.columns import choose
from onmf.data.probing import require_harmless
from onmf.data.registry import register
from onmf.data.rows import Rows
from onmf.data.stored import Sliced, open_hdf5
from onmf.model.validation import DataError, refuse_broken_structure

log = logging.getLogger("onmf")

# Names are kept where a damaged length sends the HDF5 library round in circles.
LOOK = """
import sys, h5py
with h5py.File(sys.argv[1], "r") as file:
    var, X = file["var"], file[sys.argv[2]]
    var[var.attrs["_index"]].asstr()[:]
    dict(X.attrs)
    if sys.argv[3:]:
        obs = file["obs"]
        cells = obs[obs.attrs["_index"]]
        for first in range(0, len(cells), 100_000):
            cells.asstr()[first : first + 100_000]
"""
CELLS = "obs_names"  # what anndata calls the names of cells


class StoredRows:
    """A CSR matrix in a file that gives slices of its rows, their structure checked; nothing of it is held."""

    def __init__(self, where: str, group: Any) -> None:
        self.where = where
        self.shape, self.indptr, self.indices, self.data = _parts(where, group)
        self.dtype = self.data.dtype

    def __getitem__(self, rows: slice) -> Any:
        first, stop, _ = rows.indices(self.shape[0])
        starts = self.indptr[first : stop + 1].astype(np.int64)
        low, high = int(starts[0]), int(starts[-1])
        begins, ends = first > 0 or low == 0, stop < self.shape[0] or high == self.data.shape[0]
        possible = 0 <= low <= high <= self.data.shape[0] and high - low <= (stop - first) * self.shape[1]
        if not (begins and ends and possible):
            raise SourceError(f"{self.where} is damaged: its indptr leads from entry {low} to {high}.")
        parts = self.data[low:high], self.indices[low:high], starts - low
        return _sound(self.where, scipy.sparse.csr_matrix, parts, (stop - first, self.shape[1]))


class ChosenColumns:
    """Some columns of a matrix that gives slices of its rows, in another order perhaps."""

    def __init__(self, X: Any, places: list[int]) -> None:
        self.X, self.places = X, places
        self.shape, self.dtype = (X.shape[0], len(places)), X.dtype

    def __getitem__(self, rows: slice) -> Any:
        return self.X[rows][:, self.places]


class NamedCells(Sliced):
    """Cells with their names, which are read with them and not held."""

    index_name = CELLS

    def __init__(self, where: str, X: Any, witness: Path, names: Any) -> None:
        super().__init__(where, X, witness)
        self.names = names

    def _from(self, first: int, size: int, on_bad: OnBad | None) -> Numbered:
        for rows, batch in super()._from(first, size, on_bad):
            with reading(self.where, f"from row {rows[0]} onward"):
                names = self.names.asstr()[int(rows[0]) : int(rows[-1]) + 1]
            yield np.array(names, dtype=object), batch


@register("h5ad", [".h5ad"], needs="h5py", extra="anndata", shapes=["layer"])
def h5ad(path: Path, layer: str | None = None, columns: list[str] | None = None, index: str | None = None) -> Source:
    """Cells x genes of an AnnData file, or one of its layers; the genes' names are those of the features.

    ``columns`` chooses genes by name: those of a model are found in files that have more, or another order.
    ``index=obs_names`` names the rows by their cells, which are then read in order.
    """
    import h5py

    place = "X" if layer is None else f"layers/{layer}"
    if index not in (None, CELLS):
        raise SourceError(f"{path}: index must be {CELLS}, the names of the cells; got {index!r}.")
    require_harmless(path, LOOK, place, *([] if index is None else [index]))
    with reading(path, "as AnnData"):
        file = open_hdf5(path)
        if "var" not in file or "_index" not in file["var"].attrs:
            raise SourceError(f"{path} has no names of genes (var/_index); write it with anndata's write_h5ad.")
        genes = [str(name) for name in file["var"][file["var"].attrs["_index"]].asstr()[:]]
        if place not in file:
            layers = ", ".join(file.get("layers", ())) or "none"
            what = "X" if layer is None else f"layer {layer!r}"
            raise SourceError(f"{path} has no {what}; its layers are {layers}: h5ad:{path}?layer=NAME.")
        where, X = f"{path} ({place})", file[place]
        kind = "dense" if isinstance(X, h5py.Dataset) else X.attrs.get("encoding-type")
        if kind not in ("dense", "csr_matrix", "csc_matrix"):
            raise SourceError(f"{where} is stored as {kind!r}; onmf reads dense, CSR and CSC matrices.")
        matrix: Any = X if kind == "dense" else _by_columns(where, X) if kind == "csc_matrix" else StoredRows(where, X)
        require_matrix(where, matrix)
    if len(genes) != matrix.shape[1]:
        raise SourceError(f"{where} has {matrix.shape[1]} columns but names of {len(genes)} genes; it is damaged.")
    places, _, _ = choose(path, genes, columns, what="gene")
    if places != list(range(len(genes))):
        genes = [genes[place] for place in places]
        matrix = matrix[:, places] if kind == "csc_matrix" else ChosenColumns(matrix, places)
    source: Source
    if index is not None:
        source = NamedCells(where, matrix, path, _names_of_cells(path, file, matrix.shape[0]))
    else:
        source = Rows(matrix) if kind == "csc_matrix" else Sliced(where, matrix, path)
    source.feature_names = genes
    return source


def _names_of_cells(path: Path, file: Any, number: int) -> Any:
    """The names, still in the file."""
    import h5py

    with reading(path, "as AnnData"):
        obs = file.get("obs")
        names = obs.get(obs.attrs.get("_index", "_index")) if hasattr(obs, "keys") else None
        if not isinstance(names, h5py.Dataset) or h5py.check_string_dtype(names.dtype) is None:
            raise SourceError(f"{path} has no names of cells (obs/_index); leave out index=.")
        if names.shape != (number,):
            raise SourceError(f"{path} has {number} cells but names of shape {names.shape}; it is damaged.")
    return names


def _by_columns(where: str, group: Any) -> Any:
    """Rows cannot be cut from columns: the matrix is read whole."""
    shape, indptr, indices, data = _parts(where, group)
    require_filled(where, shape, data.shape[0])
    bytes_needed = 2 * data.shape[0] * (data.dtype.itemsize + indices.dtype.itemsize)
    log.warning(
        "%s is stored by columns, so that it is read into memory as a whole, %.3g MB for a moment; stored by rows it "
        "is read in pieces: adata.X = adata.X.tocsr().",
        *(where, bytes_needed / 1e6),
    )
    return _sound(where, scipy.sparse.csc_matrix, (data[:], indices[:], indptr[:]), shape).tocsr()


def _parts(where: str, group: Any) -> tuple[tuple[int, int], Any, Any, Any]:
    """The shape and the three arrays of a compressed matrix, as far as their headers can be trusted."""
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
    return (shape[0], shape[1]), indptr, indices, data


def _sound(where: str, kind: Any, parts: tuple[Any, Any, Any], shape: tuple[int, int]) -> Any:
    """The matrix of these parts, or a refusal: damaged indices must not reach compiled code."""
    try:
        matrix = kind(parts, shape=shape)  # scipy itself looks at the lengths alone
        refuse_broken_structure(matrix)
    except (DataError, ValueError, TypeError) as error:
        raise SourceError(f"{where} is damaged: {error}") from None
    return matrix
