"""What components say of genes that they were not learnt from: spectra by regression, and z-scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients import precise_solver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.samples import Samples

GENES = 512  # that are solved at a time


def spectra(X: Any, H: Array, divergence: Divergence) -> Array:
    """Return W >= 0 (K, G) of the least d(X || HW) for the given H: every gene by itself, as coefficients are found."""
    H = np.maximum(H.astype(np.float64), 0)
    unit = np.maximum(H.max(axis=0), np.finfo(np.float64).tiny)
    columns = X.T.tocsr() if scipy.sparse.issparse(X) else np.asarray(X).T
    scale = float(X.mean()) or 1.0
    inside = divergence.in_units(scale)
    solver = precise_solver(inside, bool(scipy.sparse.issparse(columns)))
    sparse = solver.takes_sparse(inside, False)
    found: Array = np.zeros((columns.shape[0], H.shape[1]))
    for first in range(0, len(found), GENES):
        part = Samples(columns[first : first + GENES].astype(np.float64) / scale)
        part = part if sparse or not part.sparse else part.densified()
        with threads.own_threads():
            found[first : first + GENES] = solver.solve(Problem(inside, part, np.ascontiguousarray((H / unit).T))).H
    return (found * scale / unit).T


def scores(X: Any, shares: Array) -> Array:
    """Return cNMF's z-scores (K, G): least squares of each gene's share of a cell, standardised, on the usages.

    A gene of score 2 in a component lies, in a cell of that component alone, two standard deviations above its mean.
    """
    total = np.asarray(X.sum(axis=1), dtype=np.float64).ravel()
    part = scipy.sparse.diags_array(1 / np.where(total > 0, total, 1)) @ X
    mean = np.asarray(part.mean(axis=0)).ravel()
    square = part.multiply(part) if scipy.sparse.issparse(part) else np.square(part)
    deviation = np.sqrt(np.maximum(np.asarray(square.mean(axis=0)).ravel() - np.square(mean), 0))
    usages = shares.astype(np.float64)
    above = np.asarray((part.T @ usages).T) - np.outer(usages.sum(axis=0), mean)
    found = np.linalg.lstsq(usages.T @ usages, above, rcond=None)[0]
    return np.divide(found, deviation, out=np.zeros_like(found), where=deviation > 0)
