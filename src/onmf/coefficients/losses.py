"""A divergence between samples and their fits: losses, slopes and curvatures by the weights of the entries.

Fits Y lie like ``X.values``: everywhere, or at the stored entries of a sparse X. What such an X leaves out is not in
these sums; ``Problem`` adds it. A divergence that is no sum over entries (l2) sees samples and fits times the roots of
the weights.
"""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array, row_sums
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.samples import Samples


def losses(divergence: Divergence, X: Samples, Y: Array) -> Array:
    """Return d(x || y) per sample: (n,)."""
    if not (X.masked or X.sparse):
        return divergence.value(X.matrix, Y)
    if divergence.separable:
        with np.errstate(over="ignore"):  # a loss beyond the range of the dtype is infinite: no step will end there
            return X.per_sample(divergence.d(np, X.values, Y))  # type: ignore[attr-defined]
    roots = np.sqrt(X.entry_weights)
    return divergence.value(roots * X.matrix, roots * Y)


def slopes(divergence: Divergence, X: Samples, Y: Array) -> Array:
    """Return the derivatives of the loss in the fits, like ``X.values``."""
    if not (X.masked or X.sparse):
        return divergence.grad(X.matrix, Y)
    if divergence.separable:
        return X.weighed(divergence.grad(X.values, Y))
    roots = np.sqrt(X.entry_weights)
    return roots * divergence.grad(roots * X.matrix, roots * Y)


def model(divergence: Divergence, X: Samples, Y: Array, newton: bool = False) -> tuple[Array, Array]:
    """Return slopes and curvatures of the quadratic model in the fits: the dictionary's, or Newton's."""
    if not (X.masked or X.sparse):
        return (divergence.newton_model if newton else divergence.model)(X.matrix, Y)
    if divergence.separable:
        slope, curvature = divergence.modelled(np, X.values, Y, newton, X.row_mean)  # type: ignore[attr-defined]
        return X.weighed(slope), X.weighed(curvature)
    roots = np.sqrt(X.entry_weights)
    slope, curvature = (divergence.newton_model if newton else divergence.model)(roots * X.matrix, roots * Y)
    return roots * slope, X.weighed(curvature)


def multiplicative_parts(divergence: Divergence, X: Samples, Y: Array) -> tuple[Array, Array | None]:
    """Return P and N of the multiplicative updates by weight; N = None stands for ones, or for the weights."""
    if divergence.separable or not X.masked:
        P, N = divergence.multiplicative_parts(X.values, Y, X.row_mean)
        return X.weighed(P), None if N is None else X.weighed(N)
    slope, curvature = model(divergence, X, Y)
    return np.maximum(curvature * Y - slope, 0.0), curvature * Y


def scales(divergence: Divergence, X: Samples) -> Array:
    """Return d(x || 2x) per sample, the loss of a fit that is twice too large."""
    twice, degree = divergence.loss_of_twice, divergence.degree
    if twice is None:
        X = X if divergence.separable else X.densified()
        return losses(divergence, X, np.maximum(2 * X.values, TINY))
    if degree == 1:
        return X.sum(axis=1) * twice
    if degree == 0 and X.masked:
        return X.weight_sums(axis=1) * twice
    if degree == 2 and not (X.sparse or X.masked):
        return np.einsum("nf,nf->n", X.matrix, X.matrix) * twice
    powers = np.square(X.values) if degree == 2 else np.where(X.values > 0, X.values, 1.0) ** degree * (X.values > 0)
    return row_sums(X.like(X.weighed(powers))) * twice


def adapted(divergence: Divergence, X: Samples, Y: Array, share: float) -> Divergence:
    """Return the divergence with a parameter that follows the residuals moved by ``share`` towards those of X."""
    residuals = np.abs(X.values - Y)
    if not X.masked and X.sample_weight is None:
        return divergence.adapted(residuals, None, float(X.mean()), share)
    weights = X.spread(np.ones(len(X)) if X.sample_weight is None else X.sample_weight)
    weights = (weights * X.weighed(np.ones_like(X.values))).astype(X.dtype)
    counted = Samples(X.matrix, weights, None, "missing")
    return divergence.adapted(residuals, weights, float(counted.mean()), share)
