"""One precise judge for all contestants: the mean loss of samples at the best coefficients.

A contestant hands over a dictionary and nothing else. Its components are scaled to unit maximum (a change of units),
zero components are dropped, and ``transform`` of a model that keeps them all fixed solves every sample to a first-order
gap of 1e-6; for l1, to a duality gap of 1e-6.

**Floors.** Under KL, Itakura-Saito and the like a fit of zero where the sample is not costs an infinite loss, and
libraries differ in the tiny numbers they leave in a dictionary. So that nobody wins or loses by that, each dictionary
is scored with several floors, fractions of the mean sample (at unit maximum), and the lowest loss counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from onmf import OnlineNMF, Sets, divergences
from onmf.divergences import Divergence
from reproduction.arrays import Array, dense

FLOORS = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # from the least on, until the loss rises
TOL, MAX_ITER = 1e-6, 300
SETS = Sets(eps=1e-12, eps_prime=1e-12, U=1e12)
ALMOST_ZERO = 1e-9  # of the mean: what a zero counts as, where the divergence is not defined at zero
BLOCK = 1024  # samples whose losses are computed at a time


@dataclass(frozen=True)
class Score:
    """The mean loss in the data's units, the floor it was reached with, and whether all samples were solved."""

    loss: float
    floor: float
    solved: bool
    psnr: float | None = None  # of the fit against the clean samples, in dB


class Scorer:
    """A judge of dictionaries on samples under one divergence; ``mean_sample`` is the mean training sample."""

    def __init__(
        self,
        divergence: str | Divergence,
        mean_sample: Array,
        samples: Any,
        clean: Array | None = None,
        peak: float | None = None,
    ) -> None:
        given = divergences.get(divergence)
        mean = float(mean_sample.mean())
        if not given.domain.x.includes_zero:
            samples = dense(samples)
            samples = np.maximum(samples, ALMOST_ZERO * np.maximum(samples.mean(axis=1, keepdims=True), mean))
        self.clean = clean
        self.peak = peak or (0.0 if clean is None else float(clean.max()))
        # A loss without a parameter in the data's units is homogeneous: each sample may have its own unit, its mean.
        # That is exact, and loud and quiet samples are then solved equally well.
        own = np.asarray(samples.mean(axis=1)).ravel()
        self.units = np.full(len(own), mean) if given.parameters() else own
        self.divergence = given.in_units(mean) if given.parameters() else given
        self.loss_units = np.array([given.loss_unit(unit) for unit in self.units])
        if scipy.sparse.issparse(samples):
            self.V = scipy.sparse.csr_matrix(scipy.sparse.diags_array(1.0 / self.units) @ samples)
        else:
            self.V = dense(samples) / self.units[:, None]
        profile = mean_sample + 0.01 * mean  # a little for features that training never shows
        self.profile = profile / profile.max()

    @property
    def floors(self) -> tuple[float, ...]:
        """Return the floors worth trying: none where the divergence admits a fit of zero."""
        return (0.0,) if self.divergence.domain.y.includes_zero else FLOORS

    def best(self, W: Array, floors: Sequence[float] | None = None) -> Score:
        """Return the score with the floor of the lowest loss."""
        best, components = Score(float("inf"), 0.0, False), _at_unit_maximum(W)
        floors = (floors or self.floors) if len(components) else ()
        idle = [floor for floor in floors if (components >= floor * self.profile).all()]  # all the same dictionary
        for floor in floors[max(0, len(idle) - 1) :]:
            score = self._score(components, floor)
            if score.loss > 1.001 * best.loss:
                break
            best = min(best, score, key=lambda each: each.loss)
        return best

    def solved(self, W: Array) -> tuple[Array, Array]:
        """Return the samples' coefficients in the data's units, and the components that they belong to.

        These are W at unit maximum, with the floor that suits it best; zero components are dropped.
        """
        components = np.maximum(_at_unit_maximum(W), self.best(W).floor * self.profile)
        return self._solve(components)[0] * self.units[:, None], components

    def _solve(self, W: Array) -> tuple[Array, bool]:
        """Return the coefficients in the samples' own units, and whether all were found."""
        model = OnlineNMF(
            len(W),
            fixed=W,
            divergence=self.divergence,
            scale="none",
            sets=SETS,
            transform_tol=TOL,
            transform_max_iter=MAX_ITER,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(self.profile[None])  # nothing is learnt where all components are fixed
            H = model.transform(self.V)
        return H, not any(issubclass(each.category, ConvergenceWarning) for each in caught)

    def _score(self, components: Array, floor: float) -> Score:
        W = np.maximum(components, floor * self.profile)
        H, solved = self._solve(W)
        losses = [
            self.divergence.value(dense(self.V[rows]), H[rows] @ W)
            for rows in (slice(first, first + BLOCK) for first in range(0, len(H), BLOCK))
        ]
        fit = self.units[:, None] * (H @ W)
        psnr = None if self.clean is None else peak_signal_to_noise(self.clean, fit, self.peak)
        return Score(float(np.mean(np.concatenate(losses) * self.loss_units)), floor, solved, psnr)


def _at_unit_maximum(W: Array) -> Array:
    """Return the components at unit maximum, without zero ones; none of them if any entry is not finite."""
    W = np.asarray(W, dtype=np.float64)
    if not np.isfinite(W).all():
        return W[:0]
    W = W[W.max(axis=1) > 0]
    return np.maximum(W / W.max(axis=1, keepdims=True), 0.0)


def peak_signal_to_noise(clean: Array, fit: Array, peak: float) -> float:
    """Return the ratio in dB, relative to the peak, at which the fit is clipped."""
    error = float(np.square(np.clip(fit, 0, peak) - clean).mean())
    return float(10 * np.log10(peak**2 / error)) if error else float("inf")
