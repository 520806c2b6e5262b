"""How well a model predicts entries of samples from the samples' other entries."""

from __future__ import annotations

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.known import Known
from onmf.coefficients.problem import pose
from onmf.estimators.base import NMF


def held_out_losses(model: NMF, known: Known, held: Known) -> Array:
    """d(x || hW) over the entries ``held`` of each sample, in the data's units, with h from what is ``known`` alone."""
    fitted = model._fitted
    losses = np.empty(len(known))
    for rows, H, problem in model._solved(known):
        part = held[rows] if problem.X.sparse else held[rows].densified()
        V, _ = fitted.units.inside(part, fitted.divergence)
        there = pose(problem.divergence, V.astype(H.dtype, copy=False), problem.W)
        with threads.taken_from_blas():
            losses[rows] = there.loss(H, there.fit(H))
    return losses * model.divergence_.loss_unit(model.scale_)
