"""The features of a model in the user's terms: words, numbers on an axis, pixels, frequencies; and its settings.

A ``model`` here is anything with ``components_`` and, where it has them, ``feature_names_in_`` and ``source_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from onmf import methods
from onmf._support.arrays import Array, Data
from onmf.data import Spec
from onmf.data.audio import sample_rate
from onmf.divergences import Divergence

NUMBER = re.compile(r"\s*([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)\s*([^\d\s]{0,8})\s*", re.IGNORECASE)
QUANTITIES = {"Hz": "frequency", "kHz": "frequency", "nm": "wavelength", "um": "wavelength", "µm": "wavelength"}
SHOWN_APART = ("n_components", "divergence", "method", "callbacks", "verbose")
SMOOTH = 0.5  # correlation between neighbouring features, from which on they are taken for a curve
DECIBELS = 60.0  # below the largest power: lower powers are not shown


class Model(Protocol):
    """A fitted ``OnlineNMF`` or ``BatchNMF``, as far as this layer and the pictures use one."""

    missing: str | None
    implicit: str

    @property
    def components_(self) -> Array: ...
    @property
    def divergence_(self) -> Divergence: ...
    @property
    def history_(self) -> dict[str, Array]: ...
    @property
    def n_features_in_(self) -> int: ...
    @property
    def scale_(self) -> float: ...
    @property
    def usage_(self) -> Array: ...
    def transform(self, X: Data) -> Data: ...
    def inverse_transform(self, X: Data) -> Data: ...


def components_of(model: Any) -> Array:
    """Return the dictionary W (K, F) of a model, or W itself."""
    W = np.asarray(getattr(model, "components_", model))
    if W.ndim != 2 or not W.size or W.dtype.kind not in "buif":
        raise ValueError(f"components are a fitted model or a matrix (K, F) of numbers, got {type(model).__name__}.")
    return W.astype(np.float64, copy=False)


def names_of(model: Any) -> list[str] | None:
    """Return the names of a model's features, or None where they have none."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def column_names(model: Any) -> list[str]:
    """Return the names of a model's features, or x0, x1, ... where they have none, as scikit-learn calls them."""
    return names_of(model) or [f"x{f}" for f in range(model.n_features_in_)]


def source_of(model: Any) -> Spec:
    """Return how the source that a model was learnt from made its features; an empty Spec for a matrix."""
    found: Spec = getattr(model, "source_", None) or Spec()
    return found


def numeric_axis(names: Sequence[str] | None) -> tuple[Array, str] | None:
    """Return the numbers in names such as ``31.25 Hz`` or ``550 nm``, and their unit; None unless they ascend."""
    found = [NUMBER.fullmatch(name) for name in names or ()]
    units = {match[2] for match in found if match}
    if not all(found) or len(units) != 1:
        return None
    at = np.array([float(match[1]) for match in found if match])
    return (at, units.pop()) if (np.diff(at) > 0).all() else None


def axis_of(W: Array, names: Sequence[str] | None) -> tuple[Array, str] | None:
    """Return the axis on which the features lie by their names, and its unit; None where they lie on none.

    Numbers without a unit may be ids in order: they are an axis only where neighbours are alike.
    """
    found = numeric_axis(names)
    return found if found is None or found[1] or is_smooth(W) else None


def is_smooth(W: Array) -> bool:
    """Return whether neighbouring features are alike in most components."""
    centred = np.asarray(W, dtype=np.float64) - W.mean(axis=1, keepdims=True)
    power = np.square(centred).sum(axis=1)
    alike = (centred[:, 1:] * centred[:, :-1]).sum(axis=1) / np.where(power > 0, power, 1)
    return bool(np.median(alike) > SMOOTH)


def labelled_axis(names: Sequence[str] | None, features: int) -> tuple[Array, str]:
    """Return where the features lie on an axis, and its label: their names if these are numbers, else 0, 1, 2, ..."""
    at, unit = numeric_axis(names) or (np.arange(features, dtype=np.float64), "")
    if unit == "Hz" and at[-1] > 2000:
        at, unit = at / 1000, "kHz"
    return at, f"{QUANTITIES.get(unit, 'feature')} ({unit})" if unit else "feature"


def frame_seconds(source: Spec, names: Sequence[str] | None) -> float | None:
    """Return how many seconds lie between two frames of sound; None where rows are no frames or their rate is lost."""
    if source.scheme != "audio" or not names:
        return None
    with suppress(ValueError):
        return float(source.options["hop"] / sample_rate(names, source.options["window"]))
    return None


def decibels(powers: Array, top: Any) -> Array:
    """Return powers in decibels below ``top``, cut off at -60 dB."""
    share = powers / np.maximum(top, np.finfo(float).tiny)
    return 10 * np.log10(np.maximum(share, 10 ** (-DECIBELS / 10)))


def divergence_text(model: Any) -> str:
    """Write the divergence of a model as in ``beta:1.5``, without matrices."""
    divergence = model.divergence_
    numbers = [f"{value:.4g}" for value in divergence.parameters().values() if isinstance(value, float)]
    return ":".join([divergence.name, *([",".join(numbers)] if numbers else [])])


def method_text(given: Any, method: methods.Method) -> str:
    """Write the method of a model, as in ``em``, or ``auto (em)`` where a rule that was ``given`` has picked it."""
    choice, text = methods.get(given), method.text()
    return text if isinstance(choice, methods.Method) else f"{choice.name} ({text})"


def changed_settings(model: Any) -> dict[str, Any]:
    """Return the settings that differ from their defaults, without callbacks and those that are shown apart."""
    found = changed(model.get_params(deep=False), type(model)().get_params(deep=False))
    return {name: value for name, value in found.items() if name not in SHOWN_APART}


def changed(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults, as arrays always do."""
    return {
        name: settings[name] for name in defaults if np.ndim(settings[name]) > 0 or settings[name] != defaults[name]
    }


def directions(W: Array) -> Array:
    """Return the components, each of length 1; zeros stay zeros."""
    W = W.astype(np.float64)
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    return np.divide(W, norms, out=np.zeros_like(W), where=norms > 0)


def similarity(W: Array) -> Array:
    """Return the cosines between components (K, K), and zero for each with itself."""
    unit = directions(W)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, 0.0)
    return cosines
