"""Chunked arrays on disk, read by slices of rows: Zarr and HDF5."""

import logging
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from onmf.data.base import (
    Numbered,
    OnBad,
    Sequential,
    Source,
    SourceError,
    reading,
    require_filled,
    require_matrix,
    require_unchanged,
)
from onmf.data.registry import register

log = logging.getLogger("onmf")

MOST_BYTES = 2**30  # of a chunk of Zarr


class Sliced(Sequential):
    """Slices of the rows of a matrix, read in order, because reading single rows of chunked files is slow.

    ``witness`` is a file that is there, and does not shrink, as long as the matrix is whole. ``columns`` are the places
    of the features, if not all columns are. ``names``, the names of the rows, stay in the file and are read with them.
    """

    seeks = True

    def __init__(self, where: str, X: Any, witness: Path, columns: list[int] | None = None, names: Any = None) -> None:
        require_matrix(where, X)
        self.where, self.X, self.columns, self.names = where, X, columns, names
        self.witness, self.size = witness, witness.stat().st_size
        self.n_samples, self.n_features = int(X.shape[0]), int(X.shape[1]) if columns is None else len(columns)
        chunks = getattr(X, "chunks", None)  # each of which is read whole
        self.edges = range(0, self.n_samples, chunks[0]) if chunks else None

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        for start in range(first, self.n_samples or 0, size):
            require_unchanged(self.witness, self.size)
            with reading(self.where, f"from row {start} onward"):
                batch = self.X[start : start + size]
                batch = batch if self.columns is None else batch[:, self.columns]
                rows = np.arange(start, start + batch.shape[0])
                if self.names is not None:
                    rows = np.array(self.names.asstr()[start : start + size], dtype=object)
            yield rows, batch


@register("zarr", [".zarr"], takes=["folders"], needs="zarr", extra="zarr")
def zarr(path: Path, name: str | None = None) -> Source:
    """Open a Zarr array, or the one called ``name`` in a group."""
    import zarr as library

    with reading(path, "as Zarr"):
        found = library.open(str(path), mode="r")
        X = _array(found if name is None else found[name], path, "zarr")
        inside = path if name is None else path / name
        witness = next((inside / each for each in ("zarr.json", ".zarray") if (inside / each).exists()), path)
        if (bytes_needed := math.prod(X.chunks) * X.dtype.itemsize) > MOST_BYTES:
            raise SourceError(
                f"{inside} has chunks of {bytes_needed / 1e9:.3g} GB, each of which would be read whole; store it in "
                "smaller chunks, unless it is damaged."
            )
        source = Sliced(str(inside), X, witness)
        part = X.shards or X.chunks  # what a file holds
        parts = math.prod(-(-length // step) for length, step in zip(X.shape, part, strict=True))
        there = min(_parts_in(inside), parts) if inside.is_dir() else parts
        require_filled(inside, X.shape, there * math.prod(part))
    _say_missing(inside, parts - there, parts, X.fill_value, "files are missing: copy it again")
    return source


def _parts_in(folder: Path) -> int:
    """Count the files of a Zarr array that hold chunks; the time of Zarr's own count grows with their square."""
    return sum(not name.startswith(".") and name != "zarr.json" for _, _, names in os.walk(folder) for name in names)


def open_hdf5(path: Path) -> Any:
    """Open the file for reading; while another program may write to it, an error is raised."""
    import h5py

    try:
        return h5py.File(path, "r")
    except BlockingIOError:
        raise SourceError(f"{path} is open for writing in another program; close it there first.") from None


@register("hdf5", [".h5", ".hdf5"], needs="h5py", extra="hdf5")
def hdf5(path: Path, name: str | None = None) -> Source:
    """Open the data set called ``name`` in an HDF5 file; the name can be left out where there is only one."""
    import h5py

    with reading(path, "as HDF5"):
        file = open_hdf5(path)
        if name is None or name not in file:
            names: list[str] = []
            file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
            if name is not None or len(names) != 1:
                but = f" but no data set {name!r}" if name else ""
                what = f"{len(names)} data sets ({', '.join(names[:10])}){but}"
                raise SourceError(f"{path} holds {what}; name one: hdf5:{path}?name=NAME.")
            name = names[0]
        where, X = f"{path} ({name})", _array(file[name], path, "hdf5")
        source = Sliced(where, X, path)
        if X.is_virtual:
            _require_parts(where, path, X)
        else:
            chunks = math.prod(-(-length // step) for length, step in zip(X.shape, X.chunks or X.shape, strict=True))
            allocated = X.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED
            there = X.id.get_num_chunks() if X.chunks else int(allocated)
            require_filled(where, X.shape, there * math.prod(X.chunks or X.shape))
            _say_missing(where, chunks - there, chunks, X.fillvalue, "it was never finished: write it again")
    return source


def _say_missing(where: str | Path, missing: int, chunks: int, fill: Any, cure: str) -> None:
    """Warn of chunks that are not there, which is no fault if they hold nothing but the fill value."""
    if missing:
        log.warning(
            "%s: %d of %d chunks are not there and are read as %s; if they did not hold that when they were written, "
            "%s.",
            *(where, missing, chunks, fill, cure),
        )


def _require_parts(where: str, path: Path, X: Any) -> None:
    """Raise an error if parts of a virtual data set are not there: HDF5 would read them as zeros."""
    import h5py

    names = {(each.file_name, each.dset_name) for each in X.virtual_sources()}
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(path.parent))
    missing = []
    for name, inside in sorted(names):
        if "%" in name:  # a series of files that may become longer
            continue
        places = path.parent / name, Path(prefix) / name, path.parent / Path(name).name
        found = path if name == "." else next(filter(Path.is_file, places), None)
        if found is not None:
            with h5py.File(found, "r") as file:
                if inside in file:
                    continue
        missing.append(f"{name} ({inside})")
    if missing:
        raise SourceError(
            f"{where} is made of parts of which {len(missing)} of {len(names)} are not there, the first {missing[0]}; "
            "copy them to where it expects them."
        )


def _array(X: Any, path: Path, scheme: str) -> Any:
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        names = ", ".join(list(X)[:10]) if hasattr(X, "__iter__") else ""
        raise SourceError(f"{path} is a group ({names}), not an array; name one: {scheme}:{path}?name=NAME.")
    return X
