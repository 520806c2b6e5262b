"""``suggest_divergence``: which divergence suits the data, why, and the figures behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.known import checked_missing
from onmf.selection.divergence.lowrank import is_exact
from onmf.selection.divergence.noise import NOT_MEASURED, Growth, Tails, power_within_features, settled
from onmf.selection.divergence.sample import Sample
from onmf.selection.divergence.verdict import Verdict, undecided, verdict

LEAST_ENTRIES, LEAST_SIDE = 300, 6  # of what is looked at
LEAST_FILLED = 5  # entries that are not zero, per row and column
MOSTLY_ZERO = 0.5  # the share of zeros beyond which the median residual tells nothing of the noise
UNLIKE = (
    0.6  # by so much less does the variance grow within features than between them, if these have units of their own
)
NARROW = 15  # columns or rows, which leave room for a fit of three or four atoms
RANGE = 10.0  # of the features' means, from which on they may have


@dataclass(frozen=True, eq=False, repr=False)
class Suggestion:
    """A divergence for ``divergence=``, the reason for it, and what was measured.

    ``decided`` is False if the data do not tell; the divergence is then a guess, or the safe default. ``ranking``
    names it and the others, the best first. The variance of the noise grows as mean^``power``, give or take
    ``power_error``: 0 means squared l2, 1 Kullback-Leibler, 2 Itakura-Saito. ``outliers`` is the share of entries
    more than five standard deviations away from a fit of rank ``rank`` to ``rows`` x ``columns`` entries, ``zeros``
    that of zeros; both are shares of what is known.
    What was not measured is NaN. ``means`` and ``variances``, in units of the data's mean, are what ``plot`` draws.
    """

    divergence: str
    reason: str
    decided: bool
    ranking: tuple[str, ...]
    power: float
    power_error: float
    outliers: float
    zeros: float
    whole_numbers: bool
    rank: int
    rows: int
    columns: int
    rows_read: int
    means: Array
    variances: Array

    def __repr__(self) -> str:
        return f"Suggestion(divergence={self.divergence!r}, decided={self.decided}, power={self.power:.3g})"

    def __str__(self) -> str:
        lines = [f"{self.divergence}: {self.reason}"]
        if not np.isnan(self.power):
            lines.append(f"variance ~ mean^{self.power:.2f} (± {self.power_error:.2f})")
        outliers = "" if np.isnan(self.outliers) else f"{100 * self.outliers:.2g} % outliers, "
        lines.append(f"{outliers}{100 * self.zeros:.2g} % zeros{', whole numbers' if self.whole_numbers else ''}")
        lines.append(f"looked at {self.rows} rows x {self.columns} columns; then: {', '.join(self.ranking[1:])}")
        return "\n    ".join(lines)

    def plot(self) -> Any:
        """A Matplotlib figure: the variance of the noise against the mean, with lines of the powers 0, 1 and 2."""
        from onmf.selection.divergence.picture import variance_against_mean

        return variance_against_mean(self)


def suggest_divergence(X: Any, *, missing: str | None = None, implicit: str = "zero") -> Suggestion:
    """The divergence that suits the noise of X: ``OnlineNMF(divergence=suggest_divergence(X).divergence)``.

    X is whatever ``OnlineNMF.fit`` takes: an array, a sparse matrix, a data frame, AnnData, a source or an iterator of
    batches. Of many samples, 500 are looked at, drawn at random or the first ones of a source that is read in order;
    of many features, 150. The same data always get the same answer, in any units. ``missing="nan"`` and
    ``implicit="missing"`` say which entries are unknown, as in ``OnlineNMF``; weights of samples change nothing.

    A low-rank fit is taken for the mean of every entry. What the entries deviate by tells how the variance of the noise
    grows with the mean, and how heavy its tails are (docs/decisions/0015-suggesting-a-divergence.md).
    """
    rng = np.random.default_rng(0)
    return _suggestion(Sample.of(X, rng, *checked_missing(missing, implicit)), rng)


@dataclass(frozen=True)
class _Measured:
    growth: Growth = NOT_MEASURED
    tails: Tails | None = None
    rank: int = 0


def _suggestion(sample: Sample, rng: np.random.Generator) -> Suggestion:
    measured, told = _judged(sample, rng)
    growth = measured.growth
    return Suggestion(
        **vars(told),
        power=growth.power,
        power_error=growth.error,
        outliers=np.nan if measured.tails is None else measured.tails.outliers,
        zeros=sample.zeros,
        whole_numbers=sample.whole,
        rank=measured.rank,
        rows=sample.X.shape[0],
        columns=sample.X.shape[1],
        rows_read=sample.rows_read,
        means=growth.means,
        variances=growth.variances,
    )


def _judged(sample: Sample, rng: np.random.Generator) -> tuple[_Measured, Verdict]:
    X, known, robust = sample.X, sample.known, sample.zeros < MOSTLY_ZERO
    if not known.any():
        return _Measured(), undecided("no entry is above zero.")
    if known.sum() < LEAST_ENTRIES or min(X.shape) < LEAST_SIDE:
        return _Measured(), undecided(
            f"there are only {X.shape[0]} rows x {X.shape[1]} columns that are not all zero; it takes at least "
            f"{LEAST_SIDE} of each, and {LEAST_ENTRIES} entries."
        )
    if np.count_nonzero(X) < LEAST_FILLED * sum(X.shape):
        return _Measured(), undecided("there are too few entries other than zero to find a mean in.")
    try:
        with np.errstate(all="ignore"):  # what is not finite shows in the power
            if is_exact(X, known):
                return _Measured(), undecided("a fit of low rank leaves no noise, so any divergence will do.")
            fit, growth, coarse = settled(X, known, robust, rng)
            if growth is NOT_MEASURED:
                return _Measured(), undecided("the entries are too unequal for a fit.")
            tails = Tails.of(fit, growth.power, rng) if robust else None
            apart = robust and growth.power - power_within_features(fit) > UNLIKE and _differ(X, known)
    except np.linalg.LinAlgError:
        return _Measured(), undecided("the entries are too unequal for a fit.")
    measured = _Measured(growth, tails, fit.rank)
    told = _of_unlike_features(sample, rng) if apart else verdict(growth, tails, sample.zeros)
    if coarse and told.decided:
        more = f" Even a fit of rank {fit.rank} may be too coarse, so that this is less certain than it looks."
        if narrow := min(X.shape) < NARROW:
            more = f" This is a guess: so few columns or rows allow only a fit of rank {fit.rank}, perhaps too coarse."
        told = replace(told, reason=told.reason + more, decided=not narrow)
    return measured, told


def _differ(X: Array, known: Any) -> bool:
    """Do the features' means span so much that they may have units of their own?"""
    low, high = np.quantile(_means(X, known), (0.05, 0.95))
    return bool(high > RANGE * low)


def _means(X: Array, known: Any) -> Array:
    return np.where(known, X, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)


def _of_unlike_features(sample: Sample, rng: np.random.Generator) -> Verdict:
    """The variance grows from feature to feature rather than within them: that tells of their units, not of noise."""
    alike = replace(sample, X=sample.X / _means(sample.X, sample.known))
    then = _suggestion(alike, rng)
    return undecided(
        "the variance grows from feature to feature, but not so within each, as if they were in different units; "
        f"divide each by its mean, and the answer is {then.divergence}. For the data as they are,"
    )
