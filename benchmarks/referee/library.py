"""All that the referee knows of the library's public interface, with older and newer names of the same thing."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np

MAHALANOBIS = "mahalanobis"  # the one divergence that has no text of its own: it carries a matrix


def online(**settings: Any) -> Any:
    """An ``OnlineNMF`` with these settings."""
    from onmf import OnlineNMF

    _earlier_methods()
    return OnlineNMF(**settings)


def batch(**settings: Any) -> Any:
    """A ``BatchNMF`` with these settings."""
    from onmf import BatchNMF

    return BatchNMF(**settings)


def divergence(name: str, n_features: int) -> Any:
    """The divergence of that name, as an estimator takes it."""
    if name != MAHALANOBIS:
        return name
    from onmf import divergences

    distance = np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
    return divergences.Mahalanobis(np.linalg.inv(0.7**distance))


def _earlier_methods() -> None:
    """Have lefevre, guan and wang registered; older trees have them in the library."""
    from onmf import methods

    if "guan" not in methods.names():
        importlib.import_module("reproduction.earlier_methods")


def names() -> tuple[set[str], set[str]]:
    """The names of all registered methods and divergences."""
    from onmf import divergences, methods

    _earlier_methods()
    return set(methods.names()), set(divergences.names())


def entry_weights(function: Any, weights: Any) -> dict[str, Any]:
    """The weights of entries as a keyword of that function; nothing if there are none."""
    if weights is None:
        return {}
    parameters = inspect.signature(function).parameters
    return {next((name for name in ("weights", "entry_weight") if name in parameters), "weights"): weights}


def open_source(text: str) -> Any:
    """A file as a source of samples."""
    for name in ("onmf.streams", "onmf.data"):
        try:
            return importlib.import_module(name).open_source(text)
        except (ModuleNotFoundError, AttributeError) as error:
            missing = error
    raise missing
