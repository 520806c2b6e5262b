"""One precise judge for all contestants: the mean loss of samples at the best coefficients.

A contestant hands over a dictionary and nothing else. Its atoms are scaled to unit maximum (a change of units), zero
atoms are dropped, and every sample is solved by Newton's method to a first-order gap of 1e-6; for l1, by an
interior-point method to a duality gap of 1e-6.

**Floors.** Under KL, Itakura-Saito and the like a fit of zero where the sample is not costs an infinite loss, and
libraries differ in the tiny numbers they leave in a dictionary. So that nobody wins or loses by that, each dictionary
is scored with several floors, fractions of the mean sample (at unit maximum), and the lowest loss counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf import divergences
from onmf._support import threads
from onmf._support.arrays import Array, dense
from onmf.coefficients import precise
from onmf.coefficients.problem import pose
from onmf.divergences import Divergence
from onmf.model.sets import Box
from onmf.model.units import Units

FLOORS = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # from the least on, until the loss rises
TOL, MAX_ITER = 1e-6, 300
BOX = Box(1e-12, 1e12)
BLOCK = 256


@dataclass(frozen=True)
class Score:
    """The mean held-out loss in the data's units, the floor it was reached with, and the share of unsolved samples."""

    loss: float
    floor: float
    unsolved: float
    psnr: float | None = None  # of the fit against the clean samples, in dB


class Scorer:
    """Judges dictionaries on samples under one divergence; ``mean_sample`` is that of the training samples."""

    def __init__(
        self,
        divergence: str | Divergence,
        mean_sample: Array,
        held_out: Any,
        clean: Array | None = None,
        peak: float | None = None,
    ) -> None:
        given = divergences.get(divergence)
        mean = float(mean_sample.mean())
        if not given.domain.x.closed:
            held_out, _ = Units(1.0, mean).inside(dense(held_out), given)
        self.clean = clean
        self.peak = peak or (0.0 if clean is None else float(clean.max()))
        # A loss without a parameter in the data's units is homogeneous: each sample may have its own unit, its mean.
        # That is exact, and loud and quiet samples are then solved equally well.
        own = np.asarray(held_out.mean(axis=1)).ravel()
        self.units = np.full(len(own), mean) if given.parameters() else own
        self.divergence = given.in_units(mean) if given.parameters() else given
        self.loss_units = np.array([given.loss_unit(unit) for unit in self.units])
        self.solver = precise(given).stopping(TOL, MAX_ITER)
        if scipy.sparse.issparse(held_out) and self.solver.takes_sparse(self.divergence):
            self.V = scipy.sparse.csr_matrix(scipy.sparse.diags_array(1.0 / self.units) @ held_out)
        else:
            self.V = dense(held_out) / self.units[:, None]
        profile = mean_sample + 0.01 * mean  # a little for features that training never shows
        self.profile = profile / profile.max()

    @property
    def floors(self) -> tuple[float, ...]:
        """The floors worth trying: none where the divergence admits a fit of zero."""
        return (0.0,) if self.divergence.domain.y.closed else FLOORS

    def best(self, W: Array, floors: Sequence[float] | None = None) -> Score:
        """The lowest loss over the floors."""
        best, atoms = Score(float("inf"), 0.0, 1.0), _atoms(W)
        for floor in (floors or self.floors) if len(atoms) else ():
            score = self._score(atoms, floor)
            if score.loss > 1.001 * best.loss:
                break
            best = min(best, score, key=lambda each: each.loss)
        return best

    def solved(self, W: Array) -> tuple[Array, Array]:
        """The coefficients of the samples in the data's units, and the atoms that they belong to: W at unit maximum,
        with the floor that suits it best. Zero atoms are dropped.
        """
        atoms = np.maximum(_atoms(W), self.best(W).floor * self.profile)
        return self._solve(atoms)[0] * self.units[:, None], atoms

    def _solve(self, W: Array) -> tuple[Array, Array, Array]:
        """Coefficients, losses and whether they were found, in the samples' own units."""
        n = self.V.shape[0]
        H, losses, converged = np.empty((n, len(W))), np.empty(n), np.empty(n, dtype=bool)
        for first in range(0, n, BLOCK):
            rows = slice(first, first + BLOCK)
            with threads.taken_from_blas():
                problem = pose(self.divergence, self.V[rows], W, BOX)
                found = self.solver.solve(problem)
                losses[rows] = problem.loss(found.H, problem.fit(found.H))
            H[rows], converged[rows] = found.H, found.converged
        return H, losses, converged

    def _score(self, atoms: Array, floor: float) -> Score:
        W = np.maximum(atoms, floor * self.profile)
        H, losses, converged = self._solve(W)
        fit = self.units[:, None] * (H @ W)
        psnr = None if self.clean is None else peak_signal_to_noise(self.clean, fit, self.peak)
        return Score(float(np.mean(losses * self.loss_units)), floor, float(1 - converged.mean()), psnr)


def _atoms(W: Array) -> Array:
    """The atoms at unit maximum; zero atoms are dropped, and all if any entry is not finite."""
    W = np.asarray(W, dtype=np.float64)
    if not np.isfinite(W).all():
        return W[:0]
    W = W[W.max(axis=1) > 0]
    return np.maximum(W / W.max(axis=1, keepdims=True), 0.0)


def peak_signal_to_noise(clean: Array, fit: Array, peak: float) -> float:
    """In dB, relative to the peak, at which the fit is clipped."""
    error = float(np.square(np.clip(fit, 0, peak) - clean).mean())
    return float(10 * np.log10(peak**2 / error)) if error else float("inf")
