"""What a model is compared with: a single component, learnt from the other samples of the same data."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.known import Known, as_dense
from onmf.divergences import Partial
from onmf.divergences.base import TINY
from onmf.insight.report.subject import Subject

LEAST_SAMPLES = 10  # fewer do not make a component
NEVER_SEEN = 1e-6  # of the mean: what is expected of a feature that no other sample has
FACTORS = (0.6, 0.8, 1.0, 1.25, 1.6)  # tried, times the size at which the fit has the sample's mass, or its ratios


class Columns:
    """Sums of the entries of every feature, and how many are known.

    ``alike``: samples are divided by their means first, so that loud and quiet ones count alike.
    """

    def __init__(self, F: int, alike: bool) -> None:
        self.sums, self.known = np.zeros(F), np.zeros(F)
        self.samples, self.total, self.alike = 0, 0.0, alike

    def add(self, X: Any) -> None:
        """Some more samples."""
        self.samples += X.shape[0]
        rows = X.sum(axis=1) if isinstance(X, Known) else np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
        self.total += float(rows.sum())
        self.known += X.weight(axis=0) if isinstance(X, Known) else X.shape[0]
        entries = X.products if isinstance(X, Known) else X
        if self.alike:
            self.sums += np.asarray(entries.T @ (1 / self.means(X)[:, 0]), dtype=np.float64).ravel()
        else:
            self.sums += np.asarray(entries.sum(axis=0, dtype=np.float64)).ravel()

    def means(self, X: Any) -> Array:
        """What samples are divided by: (n, 1)."""
        if not self.alike:
            return np.ones((X.shape[0], 1))
        means = np.asarray(X.mean(axis=1), dtype=np.float64).reshape(-1, 1)
        return np.where(means > 0, means, 1.0)

    @property
    def mean(self) -> float:
        """Of all that is known."""
        return float(self.total / max(float(self.known.sum()), 1.0))


def single_component_loss(subject: Subject, X: Any, columns: Columns) -> float:
    """The mean loss of samples X, in the data's units; NaN where there are too few to compare with.

    Each is fitted by a multiple of the mean of the others: a mean that it is part of would know its rare features.
    """
    if columns.samples < LEAST_SAMPLES or not columns.sums.any():
        return np.nan
    divergence, scale = subject.divergence, subject.units.scale
    V, _ = subject.units.inside(as_dense(X), divergence)
    x, weight = (V.X, V.present) if isinstance(V, Known) else (V, np.ones((1, 1)))
    x = np.asarray(x, dtype=np.float64)
    own = weight * x * scale / columns.means(X)
    others = np.maximum(columns.sums - own, 0) / np.maximum(columns.known - weight, 1) / scale
    others += NEVER_SEEN * others.mean(axis=1, keepdims=True) + TINY
    if columns.alike:
        size = (weight * x / others).mean(axis=1, keepdims=True) / weight.mean(axis=1, keepdims=True)
    else:
        size = (weight * x).sum(axis=1, keepdims=True) / np.maximum((weight * others).sum(axis=1, keepdims=True), TINY)
    inside = divergence.in_units(scale)
    inside = Partial(inside) if isinstance(V, Known) else inside
    compared = V.astype(np.float64) if isinstance(V, Known) else x
    losses = [_losses(inside, compared, np.maximum(factor * size * others, TINY)) for factor in FACTORS]
    return float(np.min(losses, axis=0).mean() * divergence.loss_unit(scale))


def _losses(divergence: Any, X: Any, Y: Array) -> Array:
    losses: Array = divergence.value(X, Y)
    return losses
