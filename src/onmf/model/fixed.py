"""Fixed components: the first J of a dictionary, which stay as they are while the others are learnt beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences import Divergence
from onmf.model.sets import DictionarySet


def require_fixed(fixed: Any, n_components: int) -> None:
    """Raise unless ``fixed`` is an array (J, F) of components, J at most K; the data are compared with it later."""
    if fixed is None:
        return
    try:
        given = np.asarray(fixed)
        W = given.astype(np.float64) if given.dtype.kind in "buifO" else None
    except (TypeError, ValueError, OverflowError):
        W = None
    if W is None or W.ndim != 2 or not W.size:
        what = type(fixed).__name__ if W is None else f"an array of shape {W.shape}"
        raise ValueError(
            "fixed must be an array (J, n_features) of fixed components, such as components_ of a model, or None; "
            f"got {what}."
        )
    if len(W) > n_components:
        raise ValueError(
            f"fixed has {len(W)} components, and n_components={n_components} includes them; raise it to {len(W)}."
        )
    if not np.isfinite(W).all() or (W < 0).any():
        raise ValueError("fixed has negative, NaN or infinite entries; components are nonnegative numbers.")
    if not (W.max(axis=1) > 0).all():
        empty = int(np.argmin(W.max(axis=1) > 0))
        raise ValueError(f"component {empty} of fixed is all zeros, so that it can fit nothing; leave it out.")


def count(fixed: Any) -> int:
    """J."""
    return 0 if fixed is None else len(fixed)


def fixed_weights(fixed: Any, n_features: int, dtype: Any, unit: float | None = None) -> Array | None:
    """Return the fixed components as the dictionary holds them: entries above 1 are divided by the component's largest.

    Other components stay bit for bit. Entries lie in [0, 1] there, and a component has no length of its own: its
    coefficients take up the scale. Where these sum to one, components come in the data's units, of which ``unit`` is
    the internal one.
    """
    if fixed is None:
        return None
    W = np.asarray(fixed).astype(np.float64)
    if W.shape[1] != n_features:
        raise ValueError(
            f"the fixed components have {W.shape[1]} features, the data {n_features}; learn them from data like these."
        )
    size = np.maximum(W.max(axis=1, keepdims=True), 1.0) if unit is None else unit
    return (W / size).astype(dtype)


def beside(known: Array | None, free: Array) -> Array:
    """The dictionary of the fixed components, which come first, and the others."""
    return free if known is None else np.concatenate([known, free])


def require_fittable(known: Array | None, K: int, C: DictionarySet, divergence: Divergence) -> None:
    """Raise if all components are fixed and a feature has no weight where the divergence needs a positive fit."""
    if known is None or len(known) < K or divergence.domain.y.closed:
        return
    weights = known.sum(axis=0, dtype=np.float64)
    if not (weights >= C.eps).all():
        raise ValueError(
            f"the fixed components have no weight at feature {int(np.argmin(weights >= C.eps))} (counted from 0), and "
            f"{divergence.name} is not defined for a fit of zero; give them a little there, or raise n_components, so "
            "that a component which is learnt can fit it."
        )


def aligned(W: Array, theirs: Sequence[str] | None, ours: Sequence[str] | None) -> Array:
    """The columns of W, whose features have names, in the order of the data's; as they are where one has no names."""
    if theirs is None or ours is None or list(theirs) == list(ours):
        return W
    places = {name: place for place, name in enumerate(theirs)}
    missing, extra = [name for name in ours if name not in places], sorted(set(theirs) - set(ours))
    if missing or extra:
        what = (
            f"the data have a feature {missing[0]!r} that the fixed components have not"
            if missing
            else (f"the fixed components have a feature {extra[0]!r} that the data have not")
        )
        raise ValueError(f"{what}; read both with the same columns, or learn the fixed components from such data.")
    return W[:, [places[name] for name in ours]]
