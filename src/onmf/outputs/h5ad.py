"""AnnData's .h5ad: a copy of the cells' own file, with their coefficients in ``obsm["X_onmf"]``."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

from onmf._support.arrays import Array
from onmf.outputs.base import Heading, Output

PLACE = "X_onmf"


class H5ad(Output, suffixes=[".h5ad"]):
    """Rows are the cells, in their order; their names are in the file."""

    only_coefficients = True

    def __init__(self, place: Path, heading: Heading) -> None:
        import h5py

        self.data = heading.data
        shutil.copyfile(heading.data, place)
        self.file = h5py.File(place, "r+")
        if "obsm" not in self.file:
            self.file.create_group("obsm").attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
        if PLACE in self.file["obsm"]:
            del self.file["obsm"][PLACE]
        shape = (0, len(heading.columns))
        self.H = self.file["obsm"].create_dataset(PLACE, shape, heading.dtype, maxshape=(None, shape[1]), chunks=True)
        self.H.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})

    @classmethod
    def require(cls, data: Path) -> None:
        if importlib.util.find_spec("h5py") is None:
            raise ModuleNotFoundError(".h5ad needs h5py; install onmf[anndata].")
        import h5py

        if not (data.is_file() and h5py.is_hdf5(data)) or data.suffix.lower() != ".h5ad":
            raise ValueError(f"{data} is not an .h5ad file, so that there are no cells to write coefficients to.")

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        first = len(self.H)
        self.H.resize(first + len(H), axis=0)
        self.H[first:] = H

    def require_whole(self) -> None:
        cells, rows = self._cells(), len(self.H)
        if cells not in (None, rows):
            raise ValueError(
                f"{self.data} has {cells} cells, but {rows} samples were read from it; its X and layers hold the cells."
            )

    def _cells(self) -> int | None:
        """As many as have names; None where the file does not tell."""
        obs = self.file.get("obs")
        if hasattr(obs, "keys"):
            obs = obs.get(obs.attrs.get("_index", "_index"))
        return len(obs) if getattr(obs, "shape", None) else None

    def close(self) -> None:
        self.file.close()
