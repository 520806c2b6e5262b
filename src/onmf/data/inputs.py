"""Turn the X of users into arrays, matrices and data frames; anything else raises an error with the cure."""

from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import is_array_like, is_dask
from onmf._support.wording import counted
from onmf.data import Source, Spec
from onmf.data.base import native
from onmf.data.chunked import Sliced
from onmf.data.columns import Features, Genes


def layer_of(X: Any, layer: str | None = None, learnt: Features | None = None) -> Any:
    """Return an AnnData object with a layer as its X; one whose X is in a file becomes a source of its rows.

    ``learnt`` are the features of a model, which such a source then has. Anything else is returned as it is.
    """
    if not is_anndata(X):
        if layer is not None:
            raise TypeError(
                f"layer={layer!r} belongs to an AnnData object, got {type(X).__name__}; the layer of a file is "
                f"part of its name: open_source('x.h5ad?layer={layer}')."
            )
        return X
    if layer is None and X.isbacked and not X.is_view:
        genes = X.var_names.astype(str).tolist()
        found = Genes.of(f"the AnnData object of {X.filename}", genes, None if learnt is None else learnt.names)
        source = Sliced(str(X.filename), X.X, Path(X.filename), found)
        source.feature_names = list(found.names)
        return source
    if layer is None:
        return X
    if layer not in X.layers:
        raise ValueError(f"there is no layer {layer!r}; the layers are {', '.join(X.layers) or 'none'}.")
    return type(X)(X.layers[layer], obs=X.obs[[]], var=X.var[[]])


def matrix_of(X: Any, learnt: Features | None = None, learning: bool = False) -> tuple[Any, Features | None]:
    """Return X as an array, sparse matrix or data frame, and its features if scikit-learn cannot find their names.

    An AnnData object stands for its ``X``. The features that a model has learnt from are found in it by their names;
    those that it lacks are zeros, unless the model is ``learning``. A cube (rows, columns, bands) stands for its
    pixels, row by row, whose features are the bands.
    """
    if isinstance(X, Source):
        raise TypeError("pass an array, or loop over a source: for rows, batch in source.batches(1000): ...")
    if isinstance(X, (str, Path)):
        raise TypeError(f"{str(X)!r} is a name, not data; open the file first, with onmf.data.open_source.")
    if is_dask(X) or hasattr(X, "label"):
        raise TypeError(
            "this takes arrays in memory, not Dask collections; OnlineNMF's fit, partial_fit, transform, proportions, "
            "inverse_transform and loss take these as they are; else pass X.compute()."
        )
    features = None
    if is_anndata(X):
        if X.X is None:
            raise TypeError(f"this AnnData object has no X; name one of its layers ({', '.join(X.layers)}): layer=...")
        if X.isbacked and not X.is_view:
            raise TypeError(
                f"this AnnData object is backed by {X.filename}; fit, transform, consensus, select_rank and annotate "
                "take it as it is; else pass adata.to_memory()."
            )
        genes = X.var_names.astype(str).tolist()
        names = None if learnt is None else learnt.names
        found = Genes.of("the AnnData object", genes, names, lacking=not learning)
        X, features = found.of_batch(native(X.X)), Features.of(len(found.names), found.names)
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
