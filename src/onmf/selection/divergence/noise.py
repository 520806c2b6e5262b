"""What the residuals of a fit tell of the noise: how its variance grows with the mean, and how heavy its tails are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from onmf import divergences
from onmf._support.arrays import Array, Mask
from onmf.selection.divergence.lowrank import LEAST_RANK, MAD, SPARE, SWEEPS, TINY, LowRank, best_rank, largest_rank

BINS, PER_BIN = 24, 60  # at most so many, of at least so many entries
LEAST_USABLE = 200  # entries
FAR = 5.0  # robust standard deviations: none of 10^6 Gaussian entries lies beyond
CLIPPED = 3.5  # the same, where variances are measured
FLAT = 0.5  # the power below which the variance does not grow with the mean
SIMULATED = 30_000  # entries that tell what Gaussian and Laplacian noise would leave
CUT_OFF = 0.005  # the share of zeros from which on a bin may hold noise that was cut off at zero


@dataclass(frozen=True, eq=False)
class Growth:
    """variance ~ mean^power over bins of entries with similar fits, and the standard error of the power."""

    power: float
    error: float
    means: Array
    variances: Array

    @classmethod
    def of(cls, fit: LowRank) -> Growth:
        """A straight line through the logarithms of means and variances.

        Bins with zeros are left out where enough others remain: noise that was cut off at zero varies less.
        """
        usable, leverage = fit.usable, fit.leverage
        if usable.sum() < LEAST_USABLE:
            return NOT_MEASURED
        mean, x = fit.mean[usable], fit.X[usable]
        square = np.square(fit.residuals()[usable]) / (1 - leverage[usable])
        bins = np.array_split(np.argsort(mean), int(np.clip(len(mean) // PER_BIN, 4, BINS)))
        means = np.array([np.exp(np.log(mean[each]).mean()) for each in bins])
        variances = np.array([_variance(square[each], fit.robust) for each in bins])
        whole = np.array([(x[each] == 0).mean() < CUT_OFF for each in bins])
        if whole.sum() < max(4, len(bins) / 2):
            whole[:] = True
        power, error = _slope(np.log(means[whole]), np.log(variances[whole]), 2 / len(bins[0]))
        return cls(power, error, means, variances)


NOT_MEASURED = Growth(np.nan, np.nan, np.empty(0), np.empty(0))


def settled(X: Array, known: Mask, robust: bool, rng: np.random.Generator) -> tuple[LowRank, Growth, bool]:
    """A fit that weights entries by the very variances that it leaves, how these grow, and is its rank the largest?"""
    begun = LEAST_RANK if robust else 1 + SPARE  # rare counts leave little to fit
    first, growth = _settled(LowRank(X, known, 1.0, robust, min(begun, largest_rank(known))))
    rank, largest = best_rank(X, known, first.power, robust, rng)
    if rank == first.rank:
        return first, growth, largest
    return *_settled(LowRank(X, known, first.power, robust, rank)), largest


def _settled(fit: LowRank) -> tuple[LowRank, Growth]:
    growth = Growth.of(fit)
    for _ in range(8):
        power = float(np.clip(growth.power, 0.0, 2.0))
        if not abs(power - fit.power) >= 0.03:  # NaN, too
            break
        fit.power = power
        fit.sweep(SWEEPS)
        growth = Growth.of(fit)
    return fit, growth


def _variance(square: Array, robust: bool) -> float:
    if robust:
        square = np.minimum(square, (CLIPPED * MAD) ** 2 * np.median(square))
    return float(square.mean()) + TINY


def _slope(x: Array, y: Array, least: float) -> tuple[float, float]:
    """The slope of y in x and its standard error; each y has at least the variance ``least``."""
    x = x - x.mean()
    spread = float(x @ x) + TINY
    slope = float(x @ y) / spread
    left = y - y.mean() - slope * x
    return slope, float(np.sqrt(max(left @ left / (len(x) - 2), least) / spread))


def power_within_features(fit: LowRank) -> float:
    """The power where every feature has a scale of its own: of single squared residuals, about the feature's mean."""
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
        """Measured on residuals of the deviance, which are nearly Gaussian under Poisson and gamma noise, too."""
        size = _deviance_residuals(fit, power)
        middle, quartile = np.quantile(size, (0.5, 0.75)) + TINY
        outliers = float((size > FAR * MAD * middle).mean())
        gaussian = [scipy.special.ndtri(0.5 + 0.5 * min(q / (1 - outliers), 1 - 1e-9)) for q in (0.5, 0.75)]
        width = float(quartile / middle * gaussian[0] / gaussian[1])
        return cls(outliers, width, _peak(fit, size, rng) if power < FLAT else np.nan)


def _deviance_residuals(fit: LowRank, power: float) -> Array:
    """sqrt(2 d(x || mean)) of usable entries, d being the deviance of noise of that power, without the leverage."""
    divergence = divergences.get(divergences.Beta(2.0 - round(min(max(power, 0.0), 2.0), 1)))
    mean, leverage, usable = fit.mean, fit.leverage, fit.usable
    if power < FLAT:
        # Below three standard deviations, what would have been negative may have been cut off.
        sigma = MAD * np.median(np.abs(fit.residuals())[usable])
        above = usable & (mean > 3 * sigma)
        usable = above if above.sum() > 0.3 * usable.sum() else usable
    x, y = fit.X[usable], mean[usable]
    if not divergence.domain.x.closed:
        x = np.maximum(x, 1e-9 * y)
    return np.sqrt(2 * divergence.value(x[:, None], y[:, None]) / (1 - leverage[usable]))


def _peak(fit: LowRank, size: Array, rng: np.random.Generator) -> float:
    """Where the noise lies between Gaussian and Laplacian.

    A fit of high rank mixes the noise of many entries, which makes any noise look more Gaussian. So the yardsticks are
    simulated noises, fitted alike.
    """
    sigma = MAD * float(np.median(size)) + TINY
    shape = fit.X.shape

    def simulated(noise: Array) -> float:
        return _geary(_deviance_residuals(fit.refitted(np.maximum(fit.mean + sigma * noise, 0.0)), 0.0))

    times = range(int(np.clip(SIMULATED // fit.X.size, 1, 8)))
    gaussian = np.mean([simulated(rng.normal(size=shape)) for _ in times])
    laplacian = np.mean([simulated(rng.laplace(size=shape) / (MAD * np.log(2))) for _ in times])
    return float((_geary(size) - gaussian) / (laplacian - gaussian))


def _geary(size: Array) -> float:
    """The mean over the root mean square of residuals that are not far: 0.8 for a Gaussian, 0.72 for a Laplacian."""
    near = size[size <= FAR * MAD * np.median(size)]
    return float(near.mean() / (np.sqrt(np.square(near).mean()) + TINY))
