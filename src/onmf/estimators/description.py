"""Descriptions of a fitted model: for AnnData objects, for files of coefficients, and for reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.checks import is_number
from onmf._support.version import __version__
from onmf.data import Rows, Source
from onmf.data.base import native
from onmf.data.columns import Features
from onmf.data.in_memory import as_stream
from onmf.data.inputs import is_anndata
from onmf.data.outputs import Origin
from onmf.estimators.streaming import require_features, shares_of
from onmf.insight.features import changed_settings
from onmf.insight.genes import scores, spectra
from onmf.learner.learned import proportions

if TYPE_CHECKING:
    from onmf.estimators.base import NMF


def origin_of(model: Any, layer: str | None = None, rows: str = "coefficients") -> Origin:
    """Return the facts about a model that files and AnnData objects hold beside its coefficients."""
    names = getattr(model, "feature_names_in_", None)
    facts: dict[str, Any] = {
        "version": __version__,
        "divergence": model.divergence_.name,
        "divergence_parameters": _plain(model.divergence_.parameters()),
        "n_components": int(model.n_components_),
        "component_names": model.get_feature_names_out().tolist(),
        "rows": rows,  # of obsm
        "n_samples_seen": int(model.n_samples_seen_),
        "settings": _plain(changed_settings(model)),
    }
    if hasattr(model, "method_"):
        facts["method"] = model.method_.text()
    if layer is not None:
        facts["layer"] = layer
    names = None if names is None else tuple(map(str, names))
    return Origin(model.components_, names, facts, partial(proportions, W=model.components_))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are texts, numbers or booleans."""
    return {name: value for name, value in values.items() if isinstance(value, (str, bool)) or is_number(value)}


def for_pyldavis(model: NMF, X: Any, features: Features) -> dict[str, Any]:
    """Return what pyLDAvis draws: the shares of words in topics and of topics in documents, and counts of both."""
    lengths, counts = (np.asarray(X.sum(axis=axis)).ravel() for axis in (1, 0))
    documents, words = np.flatnonzero(lengths), np.flatnonzero(counts)
    W, filled = model.components_[:, words].astype(np.float64), model._as_samples(X[documents], features, None, None)
    names = features.names or [f"feature {f}" for f in range(features.number)]
    return {
        "topic_term_dists": W / W.sum(axis=1, keepdims=True),
        "doc_topic_dists": shares_of(model, filled, model._inference().coefficients(filled)),
        "doc_lengths": lengths[documents],
        "vocab": [names[f] for f in words],
        "term_frequency": counts[words],
    }


def annotate(model: NMF, adata: Any, key: str, layer: str | None) -> Any:
    """Write a model's coefficients, components and settings into an AnnData object, in place, and return it."""
    check_is_fitted(model)
    if not is_anndata(adata):
        raise TypeError(f"annotate takes an AnnData object, got {type(adata).__name__}; transform takes arrays.")
    origin = origin_of(model, layer)
    H = np.asarray(model.transform(adata, layer=layer))
    adata.obsm[f"X_{key}"], adata.obsm[f"X_{key}_shares"] = H, origin.shares(H)
    loadings = origin.by_gene(adata.var_names.astype(str).tolist())
    adata.varm.pop(f"{key}_scores", None)  # those of an older model
    if loadings is not None and not adata.isbacked:
        X = native(adata.X if layer is None else adata.layers[layer])
        other = np.isnan(loadings).all(axis=1)
        if other.any():
            loadings[other] = spectra(X[:, other], H, model.divergence_).T
        adata.varm[f"{key}_scores"] = scores(X, adata.obsm[f"X_{key}_shares"]).T
    adata.varm[key] = loadings
    texts = {name: np.array(fact, dtype=object) for name, fact in origin.facts.items() if isinstance(fact, list)}
    adata.uns[key] = {**origin.facts, **texts}  # anndata writes arrays
    return adata


def write_report(
    model: NMF,
    X: Any,
    path: str | Path,
    title: str,
    name: str = "X",
    show: Callable[[int, int | None], None] | None = None,
) -> Any:
    """Write a page about the model and, if X is given, about how it fits X; return its contents."""
    from onmf.insight.report import page  # with a templating library, which nothing else needs

    data = None if X is None else (as_source(model, X, name), name)
    return page.write(model, path, title, data, show)


def as_source(model: NMF, X: Any, name: str) -> Source:
    """Return X as a source of samples that have the model's features."""
    source = as_stream(X)
    if source is None:
        return Rows(model._validated(X, reset=False)[0])
    require_features(model, source, name)
    return source
