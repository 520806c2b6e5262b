"""What a model says of cells and genes, written into an AnnData object, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.arrays import Array
from onmf._support.checks import is_number
from onmf._support.version import __version__
from onmf.data.columns import choose
from onmf.data.inputs import is_anndata
from onmf.data.sinks import Origin

TOLD_APART = ("n_components", "divergence", "method", "callbacks", "verbose")


class Annotating:
    """The part of a model that knows AnnData."""

    def annotate(self, adata: Any, key: str = "onmf", layer: str | None = None) -> Any:
        """Write into an AnnData object, in place, and return it.

        The coefficients of the cells go to ``obsm[f"X_{key}"]`` (cells, K), the dictionary to ``varm[key]`` (genes, K),
        with NaN for genes that the model does not have, and what was run to ``uns[key]``. The genes are found by their
        names. ``layer`` is read instead of ``X``; a model that was learnt from a layer of an .h5ad reads that one.
        """
        check_is_fitted(self)
        if not is_anndata(adata):
            raise TypeError(f"annotate takes an AnnData object, got {type(adata).__name__}; transform takes arrays.")
        if adata.isbacked:
            raise TypeError(
                f"this AnnData object is backed by {adata.filename}; annotate adata.to_memory(), or the file itself: "
                "onmf transform MODEL x.h5ad --out x.h5ad."
            )
        spec = getattr(self, "source_", None)
        if layer is None and spec is not None and spec.scheme == "h5ad":
            layer = spec.options.get("layer")
        if layer is not None and layer not in adata.layers:
            raise ValueError(f"there is no layer {layer!r}; the layers are {', '.join(adata.layers) or 'none'}.")
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else names.tolist()
        genes = adata.var_names.astype(str).tolist()
        places, _, _ = choose("the AnnData object", genes, columns, what="gene")
        chosen = adata if places == list(range(len(genes))) else adata[:, places]
        if layer is not None:
            chosen = type(adata)(chosen.layers[layer], obs=chosen.obs[[]], var=chosen.var[[]])
        origin = origin_of(self, layer)
        H = np.asarray(self.transform(chosen))  # type: ignore[attr-defined]
        loadings: Array = np.full((len(genes), len(origin.W)), np.nan, origin.W.dtype)
        loadings[places] = origin.W.T
        adata.obsm[f"X_{key}"], adata.varm[key] = H, loadings
        texts = {name: np.array(fact, dtype=object) for name, fact in origin.facts.items() if isinstance(fact, list)}
        adata.uns[key] = {**origin.facts, **texts}  # anndata writes arrays
        return adata


def origin_of(model: Any, layer: str | None = None, rows: str = "coefficients") -> Origin:
    """The model as files and AnnData objects that hold its coefficients tell of it."""
    names = getattr(model, "feature_names_in_", None)
    facts: dict[str, Any] = {
        "version": __version__,
        "divergence": model.divergence_.name,
        "divergence_parameters": _plain(model.divergence_.parameters()),
        "n_components": int(model.n_components_),
        "component_names": model.get_feature_names_out().tolist(),
        "rows": rows,  # of obsm
        "n_samples_seen": int(model.n_samples_seen_),
        "settings": _changed(model),
    }
    if hasattr(model, "method_"):
        facts["method"] = model.method_.text()
    if layer is not None:
        facts["layer"] = layer
    return Origin(model.components_, None if names is None else tuple(map(str, names)), facts)


def _changed(model: Any) -> dict[str, Any]:
    """The settings that are not those of a new model, as far as they are plain and not told apart."""
    usual, given = type(model)().get_params(deep=False), _plain(model.get_params(deep=False))
    return {name: value for name, value in given.items() if name not in TOLD_APART and value != usual[name]}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are texts, numbers, yes or no."""
    return {name: value for name, value in values.items() if isinstance(value, (str, bool)) or is_number(value)}
