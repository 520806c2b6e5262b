"""AnnData's .h5ad: a copy of the cells' own file, with what a model says of cells and genes.

Coefficients go to ``obsm["X_onmf"]``, loadings to ``varm["onmf"]``, what was run to ``uns["onmf"]``. The first two are
plain arrays, as other programs expect them (scanpy and scVelo pick columns by their numbers); the names of the
components are in ``uns``.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.data.sinks.base import Heading, Origin, Output

KEY = "onmf"
PLACE = f"X_{KEY}"
SLACK = 2**20  # bytes for all else that is written: names, facts and HDF5's own
DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}


class H5ad(Output, suffixes=[".h5ad"]):
    """Rows are the cells, in their order; their names are in the file."""

    adds_to_data = True

    def __init__(self, place: Path, heading: Heading) -> None:
        import h5py

        self.data, self.before, self.rows = heading.data, _state(heading.data), 0
        with _writing(self.data):
            shutil.copyfile(self.data, place)
        with h5py.File(place, "r") as file:
            cells, loadings = _index(file, "obs"), _by_gene(heading.origin, _index(file, "var"))
            self.cells = 0 if cells is None else len(cells)
        if not self.cells:
            raise ValueError(f"{self.data} has no names of cells (obs); write it with anndata's write_h5ad.")
        shape = self.cells, len(heading.columns)
        with _writing(self.data):
            _reserve(place, math.prod(shape) * heading.dtype.itemsize + (0 if loadings is None else loadings.nbytes))
        self.file = h5py.File(place, "r+")
        try:
            with _writing(self.data):
                self.H = self._put("obsm", PLACE, np.empty(0, heading.dtype), shape)
                if heading.origin is not None:
                    self._put("varm", KEY, loadings)
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
        try:
            with _writing(self.data):
                self.file.flush()
                self.file.close()
        except OSError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Close a file that nobody will read."""
        with suppress(OSError, RuntimeError):
            self.file.close()

    def _put(self, part: str, key: str, value: Any, shape: tuple[int, int] | None = None) -> Any:
        """Write into one of the file's mappings, instead of what an older model has left there; None leaves nothing."""
        if part not in self.file:
            self.file.create_group(part).attrs.update(DICT)
        group = self.file[part]
        if not hasattr(group, "create_dataset"):
            raise ValueError(
                f"{self.data} is in a format of anndata before 0.7; write it anew: "
                "anndata.read_h5ad(name).write_h5ad(name)."
            )
        if key in group:
            del group[key]
        return None if value is None else _write(group, key, value, shape)


def _index(file: Any, axis: str) -> Any:
    """The names of the cells (obs) or genes (var), still in the file; None where it has none."""
    names = file.get(axis)
    if hasattr(names, "keys"):
        names = names.get(names.attrs.get("_index", "_index"))
    return names if getattr(names, "shape", None) else None


def _by_gene(origin: Origin | None, names: Any) -> Array | None:
    """The loadings (genes, K), NaN for genes that the model does not have; None if its features are not genes."""
    import h5py

    if origin is None or names is None or h5py.check_string_dtype(names.dtype) is None:
        return None
    genes = names.asstr(errors="replace")[:].tolist()
    if origin.features is None and len(genes) != origin.W.shape[1]:
        return None
    if origin.features is None or list(origin.features) == genes:
        return origin.W.T
    places = {name: place for place, name in enumerate(origin.features)}
    known = [place for place, gene in enumerate(genes) if gene in places]
    found = np.full((len(genes), len(origin.W)), np.nan, origin.W.dtype)
    found[known] = origin.W.T[[places[genes[place]] for place in known]]
    return found if known else None


def _write(group: Any, name: str, value: Any, shape: tuple[int, int] | None = None) -> Any:
    """A value as anndata writes it; of an array to be filled later, its type is given and its shape."""
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
    """Make the file longer, by so many bytes and some for names; the HDF5 library gives back what it does not use.

    It crashes on a disk that is found to be full later.
    """
    if hasattr(os, "posix_fallocate"):  # not everywhere
        with place.open("rb+") as file:
            os.posix_fallocate(file.fileno(), place.stat().st_size, more + SLACK)


def _state(path: Path) -> tuple[int, int, int]:
    """What changes when somebody writes to a file or puts another in its place."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns


@contextmanager
def _writing(data: Path) -> Iterator[None]:
    """The HDF5 library tells of a full disk at length, in errors of several types."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise OSError(f"cannot write a copy of {data} with its coefficients: {cause}.") from None
