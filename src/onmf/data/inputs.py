"""Turn the X of users into arrays, matrices and data frames; anything else raises an error with the cure."""

from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import is_array_like, is_dask
from onmf._support.wording import counted
from onmf.data import Source, SourceError, Spec
from onmf.data.base import native
from onmf.data.columns import Features, choose


def matrix_of(X: Any, learnt: Features | None = None) -> tuple[Any, Features | None]:
    """Return X as an array, sparse matrix or data frame, and its features if scikit-learn cannot find their names.

    An AnnData object stands for its ``X``; a layer is passed as ``adata.layers[...]``. The features that a model has
    learnt from are found in it by their names. A cube (rows, columns, bands) stands for its pixels, row by row, whose
    features are the bands.
    """
    if isinstance(X, Source):
        raise TypeError("pass an array, or loop over a source: for rows, batch in source.batches(1000): ...")
    if isinstance(X, (str, Path)):
        raise TypeError(f"{str(X)!r} is a name, not data; open the file first, with onmf.data.open_source.")
    if is_dask(X) or hasattr(X, "label"):
        raise TypeError(
            "this takes arrays in memory, not data of Dask; OnlineNMF's fit, partial_fit, transform, proportions, "
            "inverse_transform and loss take these as they are; else pass X.compute()."
        )
    features = None
    if is_anndata(X):
        if X.isbacked:
            raise TypeError(
                f"this AnnData object is backed by {X.filename}; pass onmf.data.open_source({str(X.filename)!r}), "
                "which reads it in pieces, or adata.to_memory()."
            )
        if X.X is None:
            raise TypeError("this AnnData object has no X; pass one of its layers: adata.layers[...].")
        X = with_genes_of(X, learnt)
        X, features = X.X, Features.of(X.n_vars, X.var_names)
    X = as_numpy(X)
    if not is_array_like(X):
        raise TypeError(
            f"X is of type {type(X).__module__}.{type(X).__name__}, which cannot be converted to an array; pass an "
            "array, a sparse matrix or a data frame, or a file through onmf.data.open_source."
        )
    X = native(X)
    return np.asarray(X).reshape(-1, X.shape[-1]) if getattr(X, "ndim", 2) == 3 and X.size else X, features


def as_numpy(X: Any) -> Any:
    """Return an array of another library of arrays as NumPy's, and anything else as it is."""
    if isinstance(X, np.ndarray) or not hasattr(X, "__array_namespace__"):
        return X
    try:
        return np.asarray(X)
    except Exception as error:  # of whatever type, the library is at fault
        raise TypeError(
            f"X is an array of {type(X).__module__.partition('.')[0]} that NumPy cannot take "
            f"({' '.join(str(error).split()).rstrip('.')}); pass it as a NumPy array, copied to the processor's memory."
        ) from None


def with_genes_of(adata: Any, learnt: Features | None) -> Any:
    """Return the AnnData object with the model's genes in the model's order, or unchanged if the model has no names."""
    if learnt is None or learnt.names is None:
        return adata
    genes = adata.var_names.astype(str).tolist()
    try:
        places, _, _ = choose("the AnnData object", genes, learnt.names, what="gene")
    except SourceError as error:
        raise ValueError(
            f"{str(error).rstrip('.')}; the model needs all of its {learnt.number} genes, feature_names_in_: pass "
            "cells that have them, each once."
        ) from None
    return adata if places == list(range(len(genes))) else adata[:, places]


def require_same_features(
    found: Features, learnt: Features, data: str = "X", model: str = "the model", cure: str = ""
) -> None:
    """Raise an error if the data have other features, by number or names, than the model was learnt from."""
    if found.number != learnt.number:
        raise ValueError(
            f"{data} has {counted(found.number, 'feature')}, but {model} was learnt from {learnt.number}{cure}."
        )
    if None not in (found.names, learnt.names) and found.names != learnt.names:
        pairs = zip(found.names or (), learnt.names or (), strict=True)
        theirs, ours = next((one, other) for one, other in pairs if one != other)
        raise ValueError(f"{data} has a feature {theirs!r} where {model} has {ours!r}{cure}.")


def cure_by_like(source: Any, learnt: Spec | None) -> str:
    """Return the end of an error message: to open the source with ``like``, if it was opened without."""
    if source.spec is None or learnt is None or (learnt.scheme is None and learnt.names is None):
        return ""
    return "; open it by open_source(..., like=model.source_), which makes its features those of the model"


def is_anndata(X: Any) -> bool:
    """Return whether it is an AnnData object, by its name: anndata is imported only by those who use it."""
    return any(kind.__name__ == "AnnData" and kind.__module__.startswith("anndata.") for kind in type(X).__mro__)
