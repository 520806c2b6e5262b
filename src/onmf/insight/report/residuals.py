"""Residuals against fits, and the law that a divergence assumes of them: variance ~ mean^power."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf._support.known import Known, as_dense
from onmf.divergences import Divergence
from onmf.insight.report.assessing import Assessment
from onmf.insight.report.subject import Subject

COLUMNS = 300  # features that are looked at
POINTS = 600  # single entries that are shown
LEAST_BINS, BINS, PER_BIN = 4, 18, 40  # entries above zero per bin
NARROW = 3.0  # times: fits that span less do not show how the variance grows


@dataclass(frozen=True)
class Residuals:
    """Fits and the sizes of residuals, one by one and over bins of similar fits, and the law as a line."""

    fits: Array
    sizes: Array
    means: Array
    spreads: Array  # root mean squares of residuals
    law: Array  # the spread that the divergence assumes at the means, in the units of these data
    assumed: float | None  # the power; None: of a divergence that assumes none
    measured: float  # NaN: not measured


def assumed_power(divergence: Divergence) -> float | None:
    """The p of the noise, variance ~ mean^p, that the divergence is the right loss for.

    Near y = x a smooth d of degree q is (x - y)^2 y^(q - 2) up to a constant, as the log-likelihood of noise of the
    variance y^(2 - q); the others look at the size of a residual alone.
    """
    if not divergence.smooth:
        return 0.0
    return None if divergence.degree is None else 2.0 - divergence.degree


def residuals(subject: Subject, found: Assessment) -> Residuals | None:
    """Of samples drawn at random, and of features drawn from those that are not all zero; None if too few."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.permutation(subject.F)[: 4 * COLUMNS])
    whole = as_dense(found.X)
    X, known = (whole.X, whole.present > 0) if isinstance(whole, Known) else (whole, None)
    columns = columns[X[:, columns].any(axis=0)][:COLUMNS]
    Y = np.asarray(found.H @ subject.W[:, columns], dtype=np.float64)
    X = np.asarray(X[:, columns], dtype=np.float64)
    usable = 1e-6 * (Y.mean() if Y.size else 0.0) < Y
    usable &= True if known is None else known[:, columns]
    x, y = X[usable], Y[usable]
    order = np.argsort(y)
    x, y = x[order], y[order]
    positive = np.cumsum(x > 0)  # where nothing was found, a residual is the fit itself and tells nothing of noise
    if not len(y) or positive[-1] < LEAST_BINS * PER_BIN:
        return None
    number = int(np.clip(positive[-1] // PER_BIN, LEAST_BINS, BINS))
    cuts = np.searchsorted(positive, np.arange(1, number) * positive[-1] / number)
    parts = [slice(*ends) for ends in itertools.pairwise([0, *(cuts + 1), len(y)])]
    means = np.array([y[part].mean() for part in parts])
    spreads = np.array([np.sqrt(np.square(x[part] - y[part]).mean()) for part in parts])
    there = spreads > 0
    if there.sum() < LEAST_BINS - 1:
        return None
    means, spreads = means[there], spreads[there]
    assumed = assumed_power(subject.divergence)
    middle = np.exp(np.log(means).mean()), np.exp(np.log(spreads).mean())
    law = middle[1] * (means / middle[0]) ** (0.5 * (assumed or 0.0))
    measured = np.nan
    if means[-1] > NARROW * means[0]:
        measured = 2 * float(np.polyfit(np.log(means), np.log(spreads), 1)[0])
    shown = rng.permutation(len(y))[:POINTS]
    return Residuals(y[shown], np.abs(x - y)[shown], means, spreads, law, assumed, measured)
