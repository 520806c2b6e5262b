"""A quick low-rank mean of noisy data, and how its residuals show the noise.

The mean is a fit by weighted, robust least squares, its rank found on held-out entries.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
import scipy

from onmf import divergences
from onmf._support.arrays import Array, Mask
from onmf.insight.noise import MAD, NOT_MEASURED, TINY, Growth, growth

LARGEST_RANK, LEAST_RANK = 48, 8
SPARE = 2  # beyond the best rank: too few leave structure in the residuals, too many are made up for by the leverage
SWEEPS = 4  # per rank
HELD_OUT = 0.1  # of the entries that are present
PATIENCE = 3  # steps without progress before the search ends
TAIL = 3.0  # robust standard deviations, beyond which an entry counts less
LEAST_MEAN = 0.02  # of the rank-one mean: where a variance is needed, smaller fits are taken for it
LEAST_USABLE = 200  # entries that tell how the variance grows
EXACT = 1e-6  # of an entry: what is less is no noise
NEARLY_EXACT, SWEEPS_TO_EXACT = 1e-4, 20  # where entries are missing
RIDGE = 1e-9
FAR = 5.0  # robust standard deviations: none of 10^6 Gaussian entries lies beyond
FLAT = 0.5  # the power below which the variance does not grow with the mean
SIMULATED = 30_000  # entries that tell what Gaussian and Laplacian noise would leave


class LowRank:
    """X ~ U (n, k) @ V (k, F), of any sign, under noise whose variance grows as mean^power.

    Missing entries have no weight. ``robust``: entries far from the fit, in units of the median residual,
    count less.
    """

    def __init__(self, X: Array, present: Mask, power: float, robust: bool, rank: int = 1) -> None:
        self.X, self.present, self.power, self.robust = X, present, power, robust
        self.U, self.V = self._rank_one(X)
        if robust:  # gross outliers must not begin the fit
            self.U, self.V = self._rank_one(np.minimum(X, 4 * self.U @ self.V))
        self.least = LEAST_MEAN * self.U @ self.V
        self.sweep(SWEEPS)
        while self.rank < rank:
            self.grow(rank)

    def _rank_one(self, X: Array) -> tuple[Array, Array]:
        """Return the means of rows, and the means of columns in units of the whole mean."""
        total = np.where(self.present, X, 0.0)
        rows, columns = (
            total.sum(axis=axis, keepdims=True) / np.maximum(self.present.sum(axis=axis, keepdims=True), 1)
            for axis in (1, 0)
        )
        return rows + 1e-12 * rows.max(), columns / rows.mean() + 1e-12

    @property
    def rank(self) -> int:
        """Return the number of columns of U."""
        return self.U.shape[1]

    @property
    def mean(self) -> Array:
        """Return UV where it may be the mean of nonnegative data, and else the least that counts as positive."""
        return np.maximum(self.U @ self.V, self.least)

    @property
    def usable(self) -> Mask:
        """Tell which entries are present and have a positive fit that they have not determined alone."""
        return self.present & (self.least < self.U @ self.V) & (self.leverage < 0.8)

    def residuals(self) -> Array:
        """Return X - UV, and zero where X is missing."""
        return np.where(self.present, self.X - self.U @ self.V, 0.0)

    def growth(self) -> Growth:
        """Measure how the variance of the residuals grows with the mean."""
        usable = self.usable
        if usable.sum() < LEAST_USABLE:
            return NOT_MEASURED
        squares = np.square(self.residuals()[usable]) / (1 - self.leverage[usable])
        return growth(self.X[usable], self.mean[usable], squares, self.robust)

    def sweep(self, times: int) -> None:
        """Solve least squares for U, then for V, in turn."""
        for _ in range(times):
            weights = self._weights()
            self.U = _least_squares(self.X, weights, self.V)
            self.V = _least_squares(self.X.T, weights.T, self.U.T).T

    def grow(self, most: int) -> None:
        """Add a third more ranks, up to ``most``: where the residuals, without their tails, are largest."""
        R, unit = self.residuals(), self.mean ** (0.5 * self.power)
        if self.robust:
            bound = TAIL * MAD * np.median(np.abs(R / unit)[self.present]) * unit
            R = np.clip(R, -bound, bound)
        more = min(max(1, self.rank // 3), most - self.rank)
        V = R[np.argsort(np.square(R / unit).sum(axis=1))[-more:]]
        for _ in range(10):  # of the power method; sweeps do the rest
            V = np.linalg.qr(((R @ V.T).T @ R).T)[0].T
        self.U, self.V = np.column_stack([self.U, R @ V.T]), np.vstack([self.V, V])
        self.sweep(SWEEPS)

    def score(self, entries: Mask) -> float:
        """Return minus twice the log-likelihood per entry under Gaussian noise of this variance, up to a constant."""
        mean = self.mean[entries]
        square = np.square((self.X - self.U @ self.V)[entries]) / mean**self.power
        if self.robust:
            square = np.minimum(square, (4 * MAD) ** 2 * np.median(square))
        return float(np.log(square.mean() + TINY) + self.power * np.log(mean).mean())

    @property
    def leverage(self) -> Array:
        """Return the share of an entry's own noise that has gone into its fit: its residual has lost it."""
        weights = self._weights()
        across = weights * _spread(weights, self.V)
        down = weights * _spread(weights.T, self.U.T).T
        return np.clip(across + down - across * down, 0.0, 0.9)

    def _weights(self) -> Array:
        unit = self.mean ** (0.5 * self.power)
        weights = self.present / np.square(unit)
        if self.robust:
            size = np.abs(self.residuals()) / unit
            bound = TAIL * MAD * np.median(size[self.present]) + TINY
            weights = weights / np.square(np.maximum(size / bound, 1.0))
        return weights


def settled(X: Array, present: Mask, robust: bool, rng: np.random.Generator) -> tuple[LowRank, Growth, bool]:
    """Return a fit that weighs entries by residual variances, their growth, and whether its rank is the largest.

    Its rank is a little above the one that best predicts entries that it has not seen.
    """
    largest = _largest_rank(present)
    begun = LEAST_RANK if robust else 1 + SPARE  # rare counts leave little to fit
    first, found = _settled(LowRank(X, present, 1.0, robust, min(begun, largest)))
    best = _best_rank(X, present, first.power, robust, rng)
    rank = min(largest, max(best + SPARE, LEAST_RANK if robust else 1))
    if rank == first.rank:
        return first, found, best == largest
    return *_settled(LowRank(X, present, first.power, robust, rank)), best == largest


def _settled(fit: LowRank) -> tuple[LowRank, Growth]:
    found = fit.growth()
    for _ in range(8):
        power = float(np.clip(found.power, 0.0, 2.0))
        if not abs(power - fit.power) >= 0.03:  # NaN, too
            break
        fit.power = power
        fit.sweep(SWEEPS)
        found = fit.growth()
    return fit, found


def _best_rank(X: Array, present: Mask, power: float, robust: bool, rng: np.random.Generator) -> int:
    """Return the rank whose fit best predicts entries that it has not seen."""
    largest = _largest_rank(present)
    seen = present & (rng.random(X.shape) >= HELD_OUT)
    fit = LowRank(X, seen, power, robust)
    best, rank, worse = fit.score(present & ~seen), 1, 0
    while fit.rank < largest and worse < PATIENCE:
        fit.grow(largest)
        score = fit.score(present & ~seen)
        worse += 1
        if score < best:
            best, rank, worse = score, fit.rank, 0
    return rank


def _largest_rank(present: Mask) -> int:
    """Return the largest rank whose fit leaves enough noise: a third of the entries of a typical row or column."""
    return max(1, min(LARGEST_RANK, *(int(np.median(present.sum(axis=axis))) // 3 for axis in (0, 1))))


def is_exact(X: Array, present: Mask) -> bool:
    """Tell whether X is of low rank, up to rounding."""
    k = _largest_rank(present)
    if present.all():
        U, scale, V = np.linalg.svd(X, full_matrices=False)
        left, least = np.abs(X - (U[:, :k] * scale[:k]) @ V[:k]), EXACT
    else:  # least squares come near an exact fit, but not to rounding
        fit = LowRank(X, present, 0.0, False, k)
        fit.sweep(SWEEPS_TO_EXACT)
        left, least = np.abs(fit.residuals()), NEARLY_EXACT
    relative = left / (X + LEAST_MEAN * np.outer(X.mean(axis=1), X.mean(axis=0)))
    return bool(np.quantile(relative[present], 0.99) < least)


def power_within_features(fit: LowRank) -> float:
    """Return the power by which the variance grows within features, when each has a scale of its own."""
    usable = fit.usable & (fit.residuals() != 0)
    count = np.maximum(usable.sum(axis=0), 1)
    mean = np.log(fit.mean)
    square = np.log(np.where(usable, np.square(fit.residuals()) / (1 - fit.leverage), 1.0))
    x, y = (np.where(usable, v - np.where(usable, v, 0.0).sum(axis=0) / count, 0.0) for v in (mean, square))
    return float((x * y).sum() / ((x * x).sum() + TINY))


@dataclass(frozen=True)
class Tails:
    """The share of entries far from the fit, and the shape of the noise of the others."""

    outliers: float
    width: float  # the upper quartile over the median of absolute residuals, in units of a Gaussian's beside outliers
    peak: float  # 0: as a Gaussian; 1: as a Laplacian; NaN: not measured, since the variance grows with the mean

    @classmethod
    def of(cls, fit: LowRank, power: float, rng: np.random.Generator) -> Tails:
        """Measure residuals of the deviance, which are nearly Gaussian under Poisson and gamma noise, too."""
        size = _deviance_residuals(fit, power)
        middle, quartile = np.quantile(size, (0.5, 0.75)) + TINY
        outliers = float((size > FAR * MAD * middle).mean())
        gaussian = [scipy.special.ndtri(0.5 + 0.5 * min(q / (1 - outliers), 1 - 1e-9)) for q in (0.5, 0.75)]
        width = float(quartile / middle * gaussian[0] / gaussian[1])
        return cls(outliers, width, _peak(fit, size, rng) if power < FLAT else np.nan)


def _deviance_residuals(fit: LowRank, power: float) -> Array:
    """Return sqrt(2 d(x || mean)) of usable entries, d the deviance of noise of that power, without the leverage."""
    divergence = divergences.get(divergences.Beta(2.0 - round(min(max(power, 0.0), 2.0), 1)))
    mean, leverage, usable = fit.mean, fit.leverage, fit.usable
    if power < FLAT:
        # Below three standard deviations, what would have been negative may have been cut off.
        sigma = MAD * np.median(np.abs(fit.residuals())[usable])
        above = usable & (mean > 3 * sigma)
        usable = above if above.sum() > 0.3 * usable.sum() else usable
    x, y = fit.X[usable], mean[usable]
    if not divergence.domain.x.includes_zero:
        x = np.maximum(x, 1e-9 * y)
    return np.sqrt(2 * divergence.value(x[:, None], y[:, None]) / (1 - leverage[usable]))


def _peak(fit: LowRank, size: Array, rng: np.random.Generator) -> float:
    """Return 0 for Gaussian noise, 1 for Laplacian noise, and numbers between for what lies between.

    A fit of high rank mixes the noise of many entries, which makes any noise look more Gaussian. So the yardsticks are
    simulated noises, fitted alike.
    """
    sigma = MAD * float(np.median(size)) + TINY
    shape = fit.X.shape

    def simulated(noise: Array) -> float:
        other = copy(fit)
        other.X = np.maximum(fit.mean + sigma * noise, 0.0)
        other.sweep(SWEEPS)
        return _geary(_deviance_residuals(other, 0.0))

    times = range(int(np.clip(SIMULATED // fit.X.size, 1, 8)))
    gaussian = np.mean([simulated(rng.normal(size=shape)) for _ in times])
    laplacian = np.mean([simulated(rng.laplace(size=shape) / (MAD * np.log(2))) for _ in times])
    return float((_geary(size) - gaussian) / (laplacian - gaussian))


def _geary(size: Array) -> float:
    """Return the mean over the root mean square of residuals near the fit: 0.8 for a Gaussian, 0.72 for a Laplacian."""
    near = size[size <= FAR * MAD * np.median(size)]
    return float(near.mean() / (np.sqrt(np.square(near).mean()) + TINY))


def _least_squares(X: Array, weights: Array, V: Array) -> Array:
    """Return argmin_u sum_f w_f (x_f - (uV)_f)^2, per row."""
    return np.linalg.solve(_normal(weights, V), ((weights * X) @ V.T)[..., None])[..., 0]


def _spread(weights: Array, V: Array) -> Array:
    """Return v_f' (V diag(w) V')^-1 v_f, per row."""
    inverse = np.linalg.inv(_normal(weights, V))
    return inverse.reshape(len(inverse), -1) @ _products(V)


def _normal(weights: Array, V: Array) -> Array:
    """Return V diag(w) V' per row, with a ridge that keeps it invertible."""
    k = len(V)
    G = (weights @ _products(V).T).reshape(-1, k, k)
    return G + (RIDGE * np.einsum("nkk->n", G) + TINY)[:, None, None] * np.eye(k)


def _products(V: Array) -> Array:
    return (V[:, None] * V[None]).reshape(len(V) ** 2, -1)
