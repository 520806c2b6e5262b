"""What is drawn: atoms, names, pictures and frames of a model, or of a bare matrix, and rows of the user's data."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf._support.arrays import Array, Mask
from onmf.data import Source
from onmf.data.columns import Features
from onmf.data.inputs import is_anndata, matrix_of

NUMBER = re.compile(r"\s*([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)\s*([a-zµμ/%]*)\s*", re.IGNORECASE)
QUANTITIES = {"Hz": "frequency", "kHz": "frequency", "nm": "wavelength", "um": "wavelength", "µm": "wavelength"}
WORDS = ("text", "jsonl", "h5ad")  # sources whose features have no order


def atoms_of(model: Any) -> Array:
    """The dictionary W (K, F) of a model, or W itself."""
    W = np.asarray(getattr(model, "components_", model))
    if W.ndim != 2 or not W.size or W.dtype.kind not in "buif":
        raise ValueError(f"components are a fitted model or a matrix (K, F) of numbers, got {type(model).__name__}.")
    return W.astype(np.float64, copy=False)


def names_of(model: Any) -> list[str] | None:
    """The names of the features, where they have any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def scheme_of(model: Any) -> str | None:
    """What kind of source the model was learnt from."""
    return getattr(getattr(model, "source_", None), "scheme", None)


def picture_of(model: Any, shape: tuple[int, ...] | None, features: int) -> tuple[int, ...] | None:
    """(height, width) or (height, width, 3) of a sample that is a picture: as given, else as the source had it."""
    known = shape or getattr(getattr(model, "source_", None), "picture", None)
    if known is None:
        return None
    if len(known) not in (2, 3) or known[2:] not in ((), (3,)) or np.prod(known) != features:
        raise ValueError(
            f"shape {tuple(known)} does not hold the {features} features of a sample; give (height, width) or "
            "(height, width, 3)."
        )
    return tuple(known)


def axis_of(names: Sequence[str] | None, features: int) -> tuple[Array, str, bool]:
    """Where the features lie on an axis, its label, and do their names tell? As ``31.25 Hz`` does, or ``550 nm``."""
    found = [NUMBER.fullmatch(name) for name in names] if names else []
    if found and all(found):
        at = np.array([float(each[1]) for each in found if each])
        units = {each[2] for each in found if each}
        if len(units) == 1 and (np.diff(at) > 0).all():
            unit = units.pop()
            if unit == "Hz" and at[-1] > 2000:
                at, unit = at / 1000, "kHz"
            quantity = QUANTITIES.get(unit, "feature")
            return at, f"{quantity} ({unit})" if unit else "feature", True
    return np.arange(features, dtype=np.float64), "feature", False


def frame_seconds(model: Any) -> float | None:
    """How far apart the frames of a recording are, for a model learnt from sound."""
    if scheme_of(model) != "audio":
        return None
    at, label, told = axis_of(names_of(model), model.n_features_in_)
    if not told:
        return None
    window = int(model.source_.options.get("window", 2 * (len(at) - 1)))
    rate = float(at[-1]) * (1000 if "kHz" in label else 1) * window / (len(at) - 1)
    return int(model.source_.options.get("hop", window // 2)) / rate


@dataclass(frozen=True, eq=False)
class Fits:
    """Rows of the user's data: their numbers, values, which of these are known, and what the model makes of them."""

    rows: Any
    values: Array
    known: Mask
    fits: Array

    def __getitem__(self, chosen: Any) -> Fits:
        return Fits(np.asarray(self.rows)[chosen], self.values[chosen], self.known[chosen], self.fits[chosen])


def fits_of(model: Any, X: Any, most: int) -> Fits:
    """At most so many rows of X, evenly chosen; of a source the first ones."""
    if not isinstance(X, Source):
        part, rows = _rows_of(X, most)
        return Fits(rows, *_dense_of(model, part), model.inverse_transform(model.transform(part)))
    names = names_of(model)
    if names is not None and X.feature_names is not None and list(X.feature_names) != names:
        raise ValueError("the source has other features than the model; open it with like=model.source_.")
    rows, part = next(iter(X.batches(most)))
    with warnings.catch_warnings():  # the batch has no names, but the source has, and they are the model's
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        H = model.transform(part)
    return Fits(rows, *_dense_of(model, part), model.inverse_transform(H))


def _rows_of(X: Any, most: int) -> tuple[Any, Any]:
    n = X.n_obs if is_anndata(X) else matrix_of(X)[0].shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(np.int64))
    if is_anndata(X):
        return X[rows], rows
    from sklearn.utils import _safe_indexing

    X = matrix_of(X)[0]
    return _safe_indexing(X, rows) if len(rows) < n else X, rows


def _dense_of(model: Any, X: Any) -> tuple[Array, Mask]:
    """The numbers in X as an array, and which of them the model takes for known."""
    X = matrix_of(X, Features.of(model.n_features_in_, names_of(model)))[0]
    if not scipy.sparse.issparse(X):
        values = np.asarray(X, dtype=np.float64)
        return values, np.isfinite(values)
    values = X.toarray().astype(np.float64)
    if getattr(model, "implicit", "zero") == "zero":
        return values, np.isfinite(values)
    stored = X.astype(bool)
    stored.data[:] = True
    return values, np.asarray(stored.toarray(), dtype=bool) & np.isfinite(values)
