"""The law of the noise, variance ~ mean^power: the power that residuals have, and the one a divergence assumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf.divergences import Divergence

BINS, PER_BIN = 24, 60  # at most, and the entries other than zero that each has at least, where there are enough
LEAST_BINS, LEAST_ENTRIES = 4, 100
CUT_OFF = 0.005  # of a bin: with this share of zeros, it may hold noise that was cut off at zero
CLIPPED = 3.5  # robust standard deviations, beyond which a residual does not count in a robust variance
UNCLEAR = 0.4  # a power with a larger standard error tells nothing
MAD = 1.4826  # times the median absolute residual: the standard deviation of a Gaussian
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Growth:
    """The growth of the variance with the mean, variance ~ mean^power, over bins of entries with similar fits."""

    power: float
    error: float  # the standard error of the power
    means: Array
    variances: Array

    @property
    def clear(self) -> bool:
        """Tell whether the means differ enough to show how the variance grows."""
        return bool(self.error <= UNCLEAR)

    def law(self, power: float) -> Array:
        """Return the variances that this power gives at the means, with the mean logarithm of the measured ones."""
        means, variances = np.log(self.means), np.log(self.variances)
        return np.exp(variances.mean() + power * (means - means.mean()))


NOT_MEASURED = Growth(np.nan, np.nan, np.empty(0), np.empty(0))


def growth(values: Array, fits: Array, squares: Array, robust: bool) -> Growth:
    """Measure the growth on entries: their values, their fits, which are positive, and their squared residuals.

    The power is the slope of a straight line through the logarithms of means and variances of bins. These hold equally
    many entries that are not zero: where there are hardly any, a residual is the fit itself and tells nothing of noise.
    If enough others remain, bins with zeros are no part of the line, since noise that was cut off at zero varies less.
    ``robust`` bounds the influence of outliers. Too few entries, or no residuals, give ``NOT_MEASURED``.
    """
    order = np.argsort(fits)
    filled = np.flatnonzero(values[order])
    if len(filled) < LEAST_ENTRIES:
        return NOT_MEASURED
    parts = np.array_split(filled, int(np.clip(len(filled) // PER_BIN, LEAST_BINS, BINS)))
    bins = np.split(order, [part[0] for part in parts[1:]])
    means = np.array([fits[each].mean() for each in bins])  # a wide bin has the mean variance at its mean fit
    variances = np.array([_variance(squares[each], robust) for each in bins])
    whole = np.array([(values[each] == 0).mean() < CUT_OFF for each in bins])
    if whole.sum() < max(LEAST_BINS, len(bins) / 2):
        whole[:] = True
    noisy = variances > TINY
    if not noisy[whole].any():
        return NOT_MEASURED
    whole &= noisy
    power, error = _slope(np.log(means[whole]), np.log(variances[whole]), 2 / len(parts[0]))
    return Growth(power, error, means[noisy], variances[noisy])


def assumed_power(divergence: Divergence) -> float | None:
    """Return p if the divergence is the right loss for noise of variance ~ mean^p; None if there is no such p.

    Near y = x a smooth d of degree q is (x - y)^2 y^(q - 2) up to a constant, as the log-likelihood of noise of the
    variance y^(2 - q); the others look at the size of a residual alone.
    """
    if divergence.robust or not divergence.smooth:
        return 0.0
    return None if divergence.degree is None else 2.0 - divergence.degree


def _variance(squares: Array, robust: bool) -> float:
    if robust:
        squares = np.minimum(squares, (CLIPPED * MAD) ** 2 * np.median(squares))
    return float(squares.mean()) + TINY


def _slope(x: Array, y: Array, least: float) -> tuple[float, float]:
    """Return the slope of y in x and its standard error; each y has at least the variance ``least``."""
    x = x - x.mean()
    spread = float(x @ x) + TINY
    slope = float(x @ y) / spread
    left = y - y.mean() - slope * x
    return slope, float(np.sqrt(max(left @ left / max(len(x) - 2, 1), least) / spread))
