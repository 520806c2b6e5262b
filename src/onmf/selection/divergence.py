"""``suggest_divergence``: the divergence that suits the data, the reason, and the figures behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from onmf import divergences
from onmf._support.arrays import Array, Data, Mask, dense
from onmf.data import Rows, Source, SourceError
from onmf.data.base import read_from, require_matrix
from onmf.data.in_memory import Permutation, as_stream
from onmf.data.inputs import matrix_of
from onmf.insight.noise import NOT_MEASURED, Growth, assumed_power
from onmf.model.validation import require_valid_entries
from onmf.samples import as_samples, checked_missing, stacked
from onmf.selection.low_rank import FAR, FLAT, LowRank, Tails, is_exact, power_within_features, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, COLUMNS = 500, 150  # more do not change the answer, but take longer
MOST_READ = 20 * ROWS  # rows, if most of them are empty
MOST_ENTRIES = 2 * 10**7  # of a batch, before columns are chosen
LEAST_ENTRIES, LEAST_SIDE = 300, 6  # of what is looked at
LEAST_FILLED = 5  # entries that are not zero, per row and column
MOSTLY_ZERO = 0.5  # the share of zeros beyond which the median residual tells nothing of the noise
UNLIKE = 0.6  # how much less the power is within features than between them, if these have units of their own
UNITS = 10.0  # times between the features' means, from which on they may have units of their own
NARROW = 15  # columns or rows, which leave room for a fit of rank three or four
DEFAULT = "kl"  # convex, takes zeros, and lies between the others; it is what the estimators take, too
NEAR = 0.35  # of a power: the divergence with a name is taken, which is faster than the one between
FEW, FEW_PEAKED = 0.005, 0.015  # the share of far entries that makes outliers, as 0.4 % of Laplacian noise lie there
MANY = 0.2
WORDS = (
    "For topics with coherent words, read the texts with tfidf=yes and take squared_l2; for the shares of documents, "
    "take kl on the counts."
)
LARGEST_LOGARITHM = 50.0
LOGARITHMS = (
    "The entries are logarithms of counts, whose noise hardly grows with the mean. Zeros and small counts lie far from "
    "a fit, but are not outliers. Counts add up, logarithms do not: give kl the counts, if you have them."
)
WIDE = 1.15  # times a Gaussian's quartile: then all the noise is heavy-tailed, or the fit is poor; no few outliers


@dataclass(frozen=True, eq=False, repr=False)
class Suggestion:
    """A divergence for ``divergence=``, the reason for it, and the measurements.

    A figure that was not measured is NaN. Shares are among the entries that are not missing.

    Attributes
    ----------
    divergence : str
        The name of the divergence that suits the data best.
    reason : str
        Why, in words.
    decided : bool
        False if the data do not tell; the divergence is then a guess, or the safe default.
    ranking : tuple[str, ...]
        The divergence and the others, the best first.
    power : float
        The variance of the noise grows as mean^power: 0 means squared l2, 1 Kullback-Leibler, 2 Itakura-Saito.
    power_error : float
        The error of the power.
    outliers : float
        The share of entries more than five standard deviations away from a low-rank fit.
    zeros : float
        The share of zeros.
    whole_numbers : bool
        Whether all entries are whole numbers.
    rank : int
        The rank of the fit.
    rows : int
        Rows that were fitted.
    columns : int
        Columns that were fitted.
    rows_read : int
        Rows that were read.
    means : array
        Means of entries with similar fits, in units of the data's mean: the horizontal axis of ``plot``.
    variances : array
        Their variances, in the same units: its vertical axis.

    Examples
    --------
    >>> found = onmf.suggest_divergence(X)
    >>> found.divergence in found.ranking
    True
    >>> found.plot().savefig("noise.png")
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

    def plot(self) -> Figure:
        """Return a Matplotlib figure: the variance of the noise against the mean, with lines of powers 0, 1 and 2.

        Returns
        -------
        matplotlib.figure.Figure
            The picture; ``figure.savefig("noise.png")`` writes it.
        """
        from onmf.plots.runs import variance_against_mean

        if not len(self.means):
            raise ValueError(f"there is no variance to draw. {self.reason}")
        growth = Growth(self.power, self.power_error, self.means, self.variances)
        power = "not measured" if np.isnan(self.power) else f"{self.power:.2f} ± {self.power_error:.2f}"
        return variance_against_mean(growth, f"{self.divergence}: power {power}")


def suggest_divergence(X: Data, *, missing: str | None = None, implicit: str = "zero") -> Suggestion:
    """Suggest the divergence for the noise of X: ``OnlineNMF(divergence=suggest_divergence(X).divergence)``.

    At most 500 samples and 150 features are examined. Samples are drawn at random, from the first 10,000 of a file
    that is read in order; of a stream that is read once, they are the first ones. The same data always get the same
    answer, in any units. Weights of samples change nothing.

    A low-rank fit is taken for the mean of every entry. The deviations from it show how the variance of the noise grows
    with the mean, and how heavy its tails are ([measured](../decisions/0015-suggesting-a-divergence.md)).

    Parameters
    ----------
    X : Data
        Samples, one per row.
    missing : {None, "nan"}
        "nan": entries that are NaN are missing, as in ``OnlineNMF``.
    implicit : {"zero", "missing"}
        Entries that a sparse X does not store: zeros, or missing.

    Returns
    -------
    Suggestion
        The divergence, the reason and the measurements.

    Examples
    --------
    >>> means = 20 * model.inverse_transform(model.transform(X))
    >>> counts = np.random.default_rng(0).poisson(means)
    >>> found = onmf.suggest_divergence(counts)
    >>> found.divergence, found.decided
    ('kl', True)
    """
    rng, spec = np.random.default_rng(0), getattr(X, "spec", None)
    found = _suggestion(_Excerpt.of(X, rng, *checked_missing(missing, implicit)), rng)
    return replace(found, reason=f"{found.reason} {WORDS}") if spec and "ngrams" in spec.options else found


@dataclass(frozen=True, eq=False)
class _Excerpt:
    """Entries X (n, F) in units of their mean, and which of them are present: X is zero where they are missing."""

    X: Array
    present: Mask
    rows_read: int
    zeros: float  # their share of the entries that are present
    whole: bool  # are all numbers whole?
    logarithms: bool = False  # are they logarithms of counts, as log1p makes them?

    @classmethod
    def of(cls, data: Any, rng: np.random.Generator, missing: str | None, implicit: str) -> _Excerpt:
        """Read random rows, or the first ones of a stream, without rows of zeros.

        It takes those of many columns that are not zero in at least half of the rows, or most often not zero. Sample
        weights do not matter: the noise of a row is the same.
        """
        source = _source(data)
        size = int(np.clip(MOST_ENTRIES // source.n_features, 1, ROWS))
        parts, masks = [np.empty((0, 0))], [np.empty((0, 0), dtype=bool)]
        columns: Any = None
        read = found = 0
        for rows, batch in _shuffled(source, size, rng):
            samples = as_samples(batch, missing, implicit)
            weights, values = samples.entry_weights if samples.masked else None, samples.products
            require_valid_entries(values, rows, source.feature_names)
            read += len(rows)
            entries = np.diff(values.indptr) if scipy.sparse.issparse(values) else np.count_nonzero(values, axis=1)
            filled = np.flatnonzero(entries)[: ROWS - found]
            if len(filled):
                if columns is None:
                    columns, parts, masks = _chosen(values[entries > 0], rng), [], []
                parts.append(dense(values[filled][:, columns]).astype(np.float64))
                masks.append(
                    np.ones(parts[-1].shape, bool) if weights is None else dense(weights[filled][:, columns]) > 0
                )
                found += len(filled)
            if found >= ROWS or read >= MOST_READ:
                break
        if not read:
            raise SourceError("there are no samples to look at.")
        X, present = np.concatenate(parts), np.concatenate(masks)
        nonzero = np.ix_(X.any(axis=1), X.any(axis=0))
        X, present = X[nonzero], present[nonzero]
        if not X.size:
            return cls(X, present, read, 1.0, True)
        whole = bool((np.floor(X) == X).all())
        logarithms = not whole and _logarithms_of_counts(X)
        X = X / X.max()  # first: the mean of huge numbers may overflow
        return cls(X / X[present].mean(), present, read, float((X[present] == 0).mean()), whole, logarithms)

    @property
    def feature_means(self) -> Array:
        """Return the mean of every feature over the entries that are present."""
        return np.where(self.present, self.X, 0.0).sum(axis=0) / np.maximum(self.present.sum(axis=0), 1)


def _source(data: Any) -> Source:
    if (source := as_stream(data)) is not None:
        return source
    X, _ = matrix_of(data)
    X = X if scipy.sparse.issparse(X) else np.asarray(X)
    require_matrix("X", X)
    return Rows(X)


def _shuffled(source: Source, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Yield rows in random order: of files that are read in order, their first ones; a stream is not shuffled."""
    if source.any_order or not source.rewinds:
        yield from read_from(source, size, rng if source.any_order else None, None, 0)
        return
    rows, parts, entries = [], [], 0
    for numbers, batch in read_from(source, size, None, None, 0):
        rows.append(numbers)
        parts.append(batch)
        entries += batch.nnz if scipy.sparse.issparse(batch) else len(numbers) * source.n_features
        if sum(map(len, rows)) >= MOST_READ or entries >= MOST_ENTRIES:
            break
    if not rows:
        return
    found, held = np.concatenate(rows), stacked(parts)
    order = Permutation(len(found), rng)
    for start in range(0, len(found), size):
        part = order.part(start, min(start + size, len(found)))
        yield found[part], held[part]


def _chosen(batch: Any, rng: np.random.Generator) -> Any:
    """Return the numbers of the columns to look at, in order."""
    if batch.shape[1] <= COLUMNS:
        return np.arange(batch.shape[1])
    sparse = scipy.sparse.issparse(batch)
    filled = np.bincount(batch.indices, minlength=batch.shape[1]) if sparse else np.count_nonzero(batch, axis=0)
    often = np.minimum(filled, batch.shape[0] / 2)
    return np.sort(np.lexsort((rng.random(len(often)), -often))[:COLUMNS])


def _logarithms_of_counts(X: Array) -> bool:
    """Tell whether exp(x) - 1, or 2^x - 1, are multiples of the least in most rows: counts times a factor per cell."""
    if X.max() > LARGEST_LOGARITHM:
        return False
    for inverse in (np.expm1, lambda x: np.exp2(x) - 1):
        with np.errstate(all="ignore"):  # of the tiniest nothing is left
            values = np.where(X > 0, inverse(X), np.nan)
            times = values / np.nanmin(values, axis=1, keepdims=True)
        told = (times > 1.5) & (times < 100)  # of larger ones rounding leaves too little
        near = (np.abs(times - np.round(times)) < 0.01) & told
        if near.any() and np.median(near.sum(axis=1) / np.maximum(told.sum(axis=1), 1)) > 0.9:
            return True
    return False


class _UndecidedError(Exception):
    """Raised where the data are inconclusive; the message is the cause."""


def _suggestion(sample: _Excerpt, rng: np.random.Generator) -> Suggestion:
    growth, tails, rank = NOT_MEASURED, None, 0
    try:
        with np.errstate(all="ignore"):  # what is not finite shows in the power
            fit, growth, coarse = _fitted(sample, rng)
            rank, robust = fit.rank, sample.zeros < MOSTLY_ZERO
            tails = Tails.of(fit, growth.power, rng) if robust else None
            low, high = np.quantile(sample.feature_means, (0.05, 0.95))
            if robust and growth.power - power_within_features(fit) > UNLIKE and high > UNITS * low:
                # The variance grows from feature to feature: that tells of their units, not of noise.
                then = _suggestion(replace(sample, X=sample.X / sample.feature_means), rng)
                raise _UndecidedError(
                    "the variance grows from feature to feature, but not so within each, as if they were in different "
                    f"units; divide each by its mean, and the answer is {then.divergence}. For the data as they are,"
                )
        name, reason = (
            ("squared_l2", LOGARITHMS) if sample.logarithms else _chosen_divergence(growth, tails, sample.zeros)
        )
        decided = True
        if coarse and min(sample.X.shape) < NARROW:
            reason += f" This is a guess: so few columns or rows allow only a fit of rank {rank}, perhaps too coarse."
            decided = False
        elif coarse:
            reason += f" Even a fit of rank {rank} may be too coarse, so this is less certain than it looks."
        ranking = _ranking(name, growth.power, sample.zeros)
    except (_UndecidedError, np.linalg.LinAlgError) as error:
        cause = error if isinstance(error, _UndecidedError) else "the entries are too unequal for a fit."
        name, decided, ranking = DEFAULT, False, (DEFAULT, "squared_l2", "huber", "l1", "is")
        reason = f"Cannot tell: {cause} {DEFAULT} is the safe choice, being convex and defined at zeros."
    return Suggestion(
        divergence=name,
        reason=reason,
        decided=decided,
        ranking=ranking,
        power=growth.power if growth.clear else np.nan,
        power_error=growth.error if growth.clear else np.nan,
        outliers=np.nan if tails is None else tails.outliers,
        zeros=sample.zeros,
        whole_numbers=sample.whole,
        rank=rank,
        rows=sample.X.shape[0],
        columns=sample.X.shape[1],
        rows_read=sample.rows_read,
        means=growth.means,
        variances=growth.variances,
    )


def _fitted(sample: _Excerpt, rng: np.random.Generator) -> tuple[LowRank, Growth, bool]:
    """Return a fit of the sample, how its variance grows, and whether its rank is the largest possible."""
    X, present = sample.X, sample.present
    if not present.any():
        raise _UndecidedError("no entry is above zero.")
    if present.sum() < LEAST_ENTRIES or min(X.shape) < LEAST_SIDE:
        raise _UndecidedError(
            f"there are only {X.shape[0]} rows x {X.shape[1]} columns that are not all zero; it takes at least "
            f"{LEAST_SIDE} of each, and {LEAST_ENTRIES} entries."
        )
    if np.count_nonzero(X) < LEAST_FILLED * sum(X.shape):
        raise _UndecidedError("there are too few entries other than zero to find a mean in.")
    if is_exact(X, present):
        raise _UndecidedError("a fit of low rank leaves no noise, so any divergence will do.")
    fit, growth, coarse = settled(X, present, sample.zeros < MOSTLY_ZERO, rng)
    if growth is NOT_MEASURED:
        raise _UndecidedError("the entries are too unequal for a fit.")
    return fit, growth, coarse


def _chosen_divergence(growth: Growth, tails: Tails | None, zeros: float) -> tuple[str, str]:
    """Return a divergence and the reason; ``tails`` are None where most entries are zero, and hide outliers."""
    measured = f"power {growth.power:.2f} ± {growth.error:.2f}"
    if tails is not None and (found := _robust(tails, growth.power, measured)):
        return found
    if not growth.clear:
        raise _UndecidedError("the means of the entries differ too little to show how the variance grows.")
    name, reason = _by_power(growth.power, measured, zeros)
    if tails is not None and tails.outliers >= FEW:
        reason += (
            f" {100 * tails.outliers:.2g} % of the entries are far from the fit, but the others spread widely, too."
        )
    return name, reason


def _robust(tails: Tails, power: float, measured: str) -> tuple[str, str] | None:
    """Return a robust divergence and the reason, if there are outliers or noise with a Laplacian's tails."""
    peaked = tails.peak > 0.5
    far = f"{100 * tails.outliers:.2g} % of the entries lie more than {FAR:.0f} standard deviations from a low-rank fit"
    if tails.outliers >= MANY:
        return "l1", f"{far}: outliers are frequent, so only the size of a residual should count, not its square."
    few = tails.outliers >= (FEW_PEAKED if peaked else FEW)
    if few and (power < FLAT or tails.width < WIDE):
        return "huber", f"{far}, where noise alone has none: a few outliers, whose influence Huber's loss bounds."
    if power < FLAT and peaked:
        return "l1", (
            f"The variance of the noise does not grow with the mean ({measured}), and its tails are those of a "
            "Laplacian rather than a Gaussian distribution."
        )
    return None


def _by_power(power: float, measured: str, zeros: float) -> tuple[str, str]:
    if power <= NEAR:
        how = "does not grow with the mean" if power > -NEAR else "falls where the mean grows, if anything"
        return "squared_l2", f"The variance of the noise {how} ({measured}), as that of additive Gaussian noise."
    if abs(power - 1) <= NEAR:
        return "kl", f"The variance of the noise grows in proportion to the mean ({measured}), as that of counts does."
    if power < 2 - NEAR:
        low, high = ("squared_l2 (0)", "kl (1)") if power < 1 else ("kl (1)", "is (2)")
        beta = f"beta:{2 - power:.1f}"
        return beta, f"The variance of the noise grows as the mean to a power between {low} and {high} ({measured})."
    grows = f"The variance of the noise grows with the square of the mean ({measured}): the noise is multiplicative"
    if zeros:
        return "beta:0.5", (
            f"{grows}, the noise that Itakura-Saito (`is`) assumes; but {100 * zeros:.2g} % of the entries are zero, "
            "where it is not defined, so use beta:0.5, which is close to it and accepts zeros."
        )
    return "is", f"{grows}, as in power spectra, and loud and quiet count alike."


def _ranking(divergence: str, power: float, zeros: float) -> tuple[str, ...]:
    """Return the divergence and the other candidates, nearest power first; Itakura-Saito is last if there are zeros."""
    robust = divergence in ("huber", "l1")
    ties = ("huber", "l1", "squared_l2") if robust else ("squared_l2", "huber", "l1")

    def distance(name: str) -> tuple[bool, float]:
        return name == "is" and zeros > 0, abs((assumed_power(divergences.get(name)) or 0.0) - power)

    return divergence, *(name for name in sorted((*ties, "kl", "is"), key=distance) if name != divergence)
