"""Arrays on disk that are read by slices of rows: Zarr, HDF5, and AnnData's .h5ad, dense or CSR, in backed mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from onmf.streams.arrays import require_numbers
from onmf.streams.base import Source, SourceError, require, require_unchanged


class Sliced(Source):
    """A matrix that gives slices of its rows, in their order: reading single rows of chunked files is slow."""

    def __init__(self, where: str, X: Any, witness: Path, feature_names: list[str] | None = None) -> None:
        require_numbers(where, tuple(X.shape), X.dtype)
        self.where, self.X, self.feature_names = where, X, feature_names
        self.witness, self.size = witness, witness.stat().st_size  # a file that is there as long as the array is
        self.n_samples, self.n_features = (int(length) for length in X.shape)

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Consecutive rows."""
        n = self.n_samples or 0
        for first in range(0, n, size):
            rows = np.arange(first, min(first + size, n))
            require_unchanged(self.witness, self.size)
            try:
                batch = self.X[first : first + size]
            except Exception as error:  # the file may have been cut or lost meanwhile
                raise SourceError(f"{self.where} could not be read on after row {first}: {error}") from None
            yield rows, scipy.sparse.csr_matrix(batch) if scipy.sparse.issparse(batch) else np.asarray(batch)


def zarr(path: Path, name: str | None = None) -> Source:
    """A Zarr array, or the one called ``name`` in a group."""
    library = require("zarr", "zarr")
    try:
        found = library.open(str(path), mode="r")
        X = found if name is None else found[name]
    except Exception as error:  # whatever Zarr trips over, the folder is at fault
        raise SourceError(f"{path} cannot be read as Zarr: {error}") from None
    inside = path / name if name is not None else path
    witness = next((inside / each for each in ("zarr.json", ".zarray") if (inside / each).exists()), path)
    return Sliced(str(path), _array(X, path, "zarr"), witness)


def hdf5(path: Path, name: str | None = None) -> Source:
    """The data set called ``name`` in an HDF5 file; it may be left out where there is only one."""
    library = require("h5py", "hdf5")
    try:
        file = library.File(path, "r")
    except OSError as error:
        raise SourceError(f"{path} cannot be read as HDF5: {error}") from None
    if name is None:
        names: list[str] = []
        file.visititems(lambda key, item: names.append(key) if isinstance(item, library.Dataset) else None)
        if len(names) != 1:
            listed = ", ".join(names[:10]) or "none"
            raise SourceError(f"{path} holds {len(names)} data sets ({listed}); name one: hdf5:{path}?name=NAME.")
        name = names[0]
    if name not in file:
        raise SourceError(f"{path} has no data set {name!r}.")
    return Sliced(f"{path} ({name})", _array(file[name], path, "hdf5"), path)


def h5ad(path: Path, layer: str | None = None) -> Source:
    """Cells x genes of an AnnData file, or one of its layers; names of genes are names of features."""
    library = require("h5py", "anndata")
    try:
        file = library.File(path, "r")
        index = file["var"].attrs["_index"]
        genes = [str(name) for name in file["var"][index].asstr()[:]]
    except (OSError, LookupError, TypeError, AttributeError) as error:
        raise SourceError(f"{path} cannot be read as AnnData: {error}") from None
    layers = list(file.get("layers", ()))
    place = "X" if layer is None else f"layers/{layer}"
    if place not in file:
        has = f"it has {', '.join(layers)}" if layers else "it has none"
        raise SourceError(
            f"{path} has no {'X' if layer is None else f'layer {layer!r}'}; of layers {has}: h5ad:{path}?layer=NAME."
        )
    X = file[place]
    if not hasattr(X, "dtype"):
        if X.attrs.get("encoding-type") != "csr_matrix":
            raise SourceError(
                f"{path} ({place}) is not stored by rows; write it as CSR first: adata.X = adata.X.tocsr()."
            )
        X = require("anndata.io", "anndata").sparse_dataset(X)
    return Sliced(f"{path} ({place})", X, path, genes)


def _array(X: Any, path: Path, scheme: str) -> Any:
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        names = ", ".join(list(X)[:10]) if hasattr(X, "__iter__") else ""
        raise SourceError(f"{path} is a group ({names}), not an array; name one: {scheme}:{path}?name=NAME.")
    return X
