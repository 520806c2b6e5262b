"""The change between the user's units and the internal ones: only this file knows both.

Inside, data are divided by a scale (the mean of the first batch), fixed once and stored: the paper's step sizes and
constants fit data of unit mean only (docs/decisions/0002-reading-of-the-paper.md), and X * c then gives H * c with
the same W. Also here:

- ``clip``: the paper's compact set V, optional, in the user's units;
- under a divergence that is not defined at x = 0 (Itakura-Saito, alpha <= 0, beta <= 0) zeros, and entries that are
  negligible next to their sample, are raised: x <- max(x, ``FLOOR`` m), m being the mean of the sample, or that of the
  first batch if it is larger, as for silence. Other entries do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array, is_finite
from onmf._support.checks import is_number
from onmf.divergences import Divergence
from onmf.model.validation import DataError, require_finite_values
from onmf.samples import Samples

FLOOR = 1e-9  # of the mean: 90 dB below it, about where the noise of 16-bit sound lies


class SilenceError(DataError):
    """Nothing but zeros before anything was learnt: a fit begins after them, if there is an after."""


class DomainWarning(UserWarning):
    """A warning that zero or negligible entries of the data were raised, as the divergence is not defined there.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = OnlineNMF(3, divergence="is", random_state=0).fit(X)
    >>> any(each.category is onmf.DomainWarning for each in caught)
    True
    """


@dataclass(frozen=True)
class Units:
    """The stored change of units: internal X = clip(X) / scale, raised where the divergence is not defined at zero."""

    scale: float
    mean: float  # of the first batch
    whole: bool  # was the first batch made of whole numbers, as counts are?
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not all(is_number(value) and 0 < value < np.inf for value in (self.scale, self.mean)):
            raise ValueError(f"the scale is {self.scale!r}, the mean {self.mean!r}")
        if not isinstance(self.whole, bool):
            raise ValueError(f"its data are whole numbers: {self.whole!r}")

    @classmethod
    def of_first_batch(cls, X: Samples, clip: tuple[float, float] | None, rescale: bool) -> Units:
        """Fix the units from the first batch; with ``rescale`` off, data stay as they are.

        That is the literal reading of the paper, and what a divergence without a degree needs.
        """
        mean = _mean(X if clip is None else _clipped(X, clip))
        if X.masked and not X.weight_sums(axis=0).any():
            raise DataError("All of the first batch is missing; begin with one that has entries.")
        if mean == 0:
            raise SilenceError(
                "The samples are all zeros, so the data have no scale to learn at; begin with some that have positive "
                "entries."
            )
        if mean < np.finfo(X.dtype).tiny:  # what is divided by it, or a tenth of it, would lose its digits
            raise DataError(f"The mean of the first batch is {mean:.3g}, too small to compute with; rescale the data.")
        whole = share_of_whole(X) == 1
        return cls(scale=mean if rescale else 1.0, mean=mean, whole=whole, clip=clip)

    def inside(self, X: Samples, divergence: Divergence, rows: Any = None) -> tuple[Samples, int]:
        """Return the samples in internal units, and how many entries had to be raised for the divergence.

        Sparse samples stay sparse. Without missing entries they come here only under divergences that admit zeros.
        Samples that would be infinite raise an error; ``rows`` gives the row numbers.
        """
        if X.omits_zeros:
            X = _canonical(X)
        if self.clip is not None:
            X = _clipped(X, self.clip)
        values = np.divide(X.values, self.scale, dtype=X.dtype, order="C")
        internal = X.with_values(values)
        if not is_finite(values):
            require_finite_values(
                np.asarray(internal.matrix.max(axis=1).todense()) if X.sparse else values, X, self.mean, rows
            )
        if divergence.domain.x.includes_zero:
            return internal, 0
        means = internal.mean(axis=1) if X.masked else _means(values)
        least = X.spread(FLOOR * np.maximum(means, self.mean / self.scale))
        least = least if X.masked else least.astype(values.dtype)
        low = values < least
        raised = int(np.count_nonzero(low if X.sparse or not X.masked else low & (X.entry_weights > 0)))
        if not raised and not X.masked:
            return internal, 0
        return internal.with_values(np.maximum(values, least).astype(X.dtype, copy=False)), raised


def share_of_whole(X: Samples) -> float:
    """Return the share of whole numbers among the entries that are neither zero nor missing; 1 of none."""
    values = X.values[X.values > 0]
    return float((values == np.floor(values)).mean()) if values.size else 1.0


def _canonical(X: Samples) -> Samples:
    """Return a copy that stores every non-zero once, in order, and no zero: stored or not, a zero is a zero."""
    matrix = X.matrix.tocsr(copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return Samples(matrix, None, X.sample_weight, X.absent)


def _clipped(X: Samples, clip: tuple[float, float]) -> Samples:
    """Return samples between the bounds, which may lie beyond the range of their type."""
    largest = float(np.finfo(X.dtype).max)
    low, high = (min(bound, largest) for bound in clip)
    if X.omits_zeros:
        if low > 0:  # zeros are raised
            return Samples(np.clip(X.matrix.toarray(), low, high), None, X.sample_weight).sparsified()
        X = _canonical(X)  # entries are clipped, not their parts
    return X.with_values(np.clip(X.values, low, high))


def _mean(X: Samples) -> float:
    """Return the mean in double precision, without overflow for entries near the largest double.

    Divided by a power of two counts stay whole, and their sum is exact: that of sparse counts is that of dense ones.
    """
    largest = float(X.values.max(initial=0.0))
    if largest == 0:
        return 0.0
    if X.masked or X.sample_weight is not None:
        samples = np.ones(len(X)) if X.sample_weight is None else X.sample_weight
        sums, weights = X.with_values(X.values / largest).sum(axis=1), X.weight_sums(axis=1)
        return float(samples @ sums) / max(float(samples @ weights), float(np.finfo(np.float64).tiny)) * largest
    unit = 2.0 ** int(np.frexp(largest)[1] - 1)
    entries: int = X.shape[0] * X.shape[1]
    return float(np.sum(X.values / unit, dtype=np.float64)) / entries * unit


def _means(X: Array) -> Array:
    """Return the mean of each sample (n,) in double precision; sums that overflow are formed of smaller numbers."""
    with np.errstate(over="ignore"):
        means: Array = X.mean(axis=1, dtype=np.float64)
    return means if np.isfinite(means).all() else np.sum(X / X.shape[1], axis=1, dtype=np.float64)


def checked_clip(clip: Any) -> tuple[float, float] | None:
    """Return ``clip`` as a pair 0 <= low < high, or None."""
    if clip is None:
        return None
    try:
        low, high = (float(bound) for bound in clip)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not 0 <= low < high:
        raise ValueError(f"clip must be a pair (low, high) with 0 <= low < high, in the data's units; got {clip!r}.")
    return low, high
