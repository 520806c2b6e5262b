"""``activations``: how much of every component is in the rows, one after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.insight.plots import ridges
from onmf.insight.plots.figures import axes_of
from onmf.insight.plots.given import atoms_of, frame_seconds, scheme_of


def activations(model: Any, X: Any = None, ax: Any = None) -> Any:
    """Draw the coefficients of the rows of X in their order, and return the Axes: ``activations(model, X)``.

    Of coefficients that are there already: ``activations(H)``. Up to 12 components are lines, each scaled to its own
    maximum; more are shades of colour, on one scale: h_k times the sum of atom k, which is what the component adds to a
    row; of sound in decibels. Frames of sound have seconds, other rows numbers. More than 1000 rows are averaged in
    bins.
    """
    H, total = _coefficients(model, X)
    sound = scheme_of(model) == "audio"
    step = frame_seconds(model)
    at = np.arange(len(H)) * (step or 1.0)
    rows, at = ridges.binned((H * total).T, at, peaks=False)
    K = len(rows)
    ax = axes_of(ax, *ridges.inches_for(K))
    if K <= ridges.FEW:
        ridges.ridges(ax, np.sqrt(rows) if sound else rows, at)
    else:
        label = "dB below the largest" if sound else ("contribution" if X is not None else "activation")
        ridges.heat(ax, ridges.decibels(rows, each=False) if sound else rows, at, label, even=sound)
    size = ridges.bin_size(len(H))
    ax.set(xlabel="seconds" if step else "row" + (f" (means of {size})" if size > 1 else ""), ylabel="component")
    return ax


def _coefficients(model: Any, X: Any) -> tuple[Array, Array | float]:
    """H (n, K), and what a coefficient of 1 adds to a row."""
    if X is None:
        H = np.asarray(model)
        if H.ndim != 2 or H.dtype.kind not in "buif":
            raise ValueError("activations takes coefficients H (n, K), or a model and data: activations(model, X).")
        return H, 1.0
    H = model.transform(X)
    if not hasattr(H, "shape"):  # of a source, batch by batch
        H = np.concatenate(list(H))
    return np.asarray(H), atoms_of(model).sum(axis=1)
