"""From the user's data to the units in which the library computes, in one place.

Inside, data are divided by a scale (the mean of the first batch), fixed once and stored: the paper's step sizes and
constants fit data of unit mean only (docs/decisions/0002-reading-of-the-paper.md), and X * c then gives H * c with
the same W. Also here:

- ``clip``: the paper's compact set V, optional, in the user's units;
- under a divergence that is not defined at x = 0 (Itakura-Saito, alpha <= 0, beta <= 0) zeros, and entries that are
  negligible next to their sample, are raised: x <- max(x, ``FLOOR`` m), m being the mean of the sample, or that of the
  first batch if it is larger, as for silence. Other entries do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from onmf._support.arrays import Array, row_sums
from onmf._support.checks import is_number
from onmf._support.known import Known, Weighted
from onmf._support.skipping import Unread
from onmf._support.structure import fault_of_structure
from onmf.divergences import Divergence

FLOOR = 1e-9  # of the mean: 90 dB below it, about where the noise of 16-bit sound lies


class DataError(ValueError):
    """Data that cannot be used: NaN, infinite or negative entries, or numbers far from all that was learnt from."""


class DomainWarning(UserWarning):
    """Entries of the data are zero or negligible, under a divergence that cannot have it, and were raised."""


def refuse_broken_structure(X: Any) -> None:
    """Refuse a sparse matrix whose indices point outside of it: compiled code would follow them into foreign memory."""
    if reason := fault_of_structure(X):
        raise DataError(f"The sparse matrix is damaged: {reason}; make it anew from its entries.")


def refuse_bad_entries(X: Any, rows: Any = None, names: Sequence[str] | None = None) -> None:
    """Refuse NaN, infinite and negative entries; tell where the first is.

    ``rows`` are the numbers of the rows, ``names`` those of the features, where they have some.
    """
    if rows is not None and np.asarray(rows).dtype == object:  # what could not be read is not just unknown
        for name in rows:
            if isinstance(name, Unread):
                raise DataError(str(name.reason))
    X = plain(X)
    refuse_broken_structure(X)
    values = X.data if scipy.sparse.issparse(X) else X
    with np.errstate(invalid="ignore"):
        # Without temporaries: a NaN survives in both extremes, an infinity in one.
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        if low >= 0 and np.isfinite(high):
            return
        bad = ~np.isfinite(values) | (values < 0)
    if scipy.sparse.issparse(X):
        entries = X.tocoo()
        row, column, value = entries.row[bad], entries.col[bad], entries.data[bad]
    else:
        row, column = np.nonzero(bad)
        value = X[row, column]
    number = row if rows is None else np.asarray(rows)[row]
    first = np.lexsort((column, row if number.dtype == object else number))[0]  # names have no order
    number, column, value = number[first], column[first], value[first]
    if np.isnan(value):
        what, cure = "NaN in the data", "fill or drop it, or learn from the rest with missing='nan' (--missing nan)"
    elif np.isinf(value):
        what, cure = "Infinity (inf) in the data", "remove it first"
    else:
        what, cure = (
            f"Negative values in data, the first {value:.6g},",
            "NMF needs x >= 0: shift or clip them first",
        )
    named = "" if names is None else f" named {names[column]!r}"
    raise DataError(f"{what} at row {number}, column {column}{named} (counted from 0); {cure}.")


def refuse_infinite(result: Any, X: Any, mean: float, rows: Any = None) -> None:
    """Refuse samples X for which a ``result`` (n, ...) is not finite; name the first, ``rows`` giving the row numbers.

    ``mean`` is that of the data that the model was begun with.
    """
    if np.isfinite(result.sum(dtype=np.float64)) or np.isfinite(result).all():
        return
    row = int(np.flatnonzero(~np.isfinite(result).reshape(len(result), -1).all(axis=1))[0])
    raise DataError(
        f"The numbers of row {row if rows is None else rows[row]} (counted from 0), the largest {X[[row]].max():.3g}, "
        f"are too large or too unequal to compute with, next to a mean of {mean:.3g} in the data that this model was "
        "begun with; rescale or clip them."
    )


def refuse_bounded(H: Any, high: float, X: Any, unit: float, rows: Any = None) -> None:
    """Refuse samples so large that the upper bound has cut off their coefficients H (n, K), in internal units.

    That is no fit. Where samples are not large, the atoms are at fault, and what there is of a fit is given.
    """
    for row in np.flatnonzero(H.max(axis=1, initial=0) >= high * (1 - 1e-6)):
        if X[[row]].max() < 1e-3 * high * unit:
            continue
        raise DataError(
            f"Row {row if rows is None else rows[row]} (counted from 0), its largest number {X[[row]].max():.3g}, "
            f"needs coefficients beyond their upper bound, {high:.3g} times the unit of {unit:.3g} that this model was "
            "begun with; rescale the data, or raise the bound: sets=Sets(U=...)."
        )


def good_rows(X: Any, rows: npt.NDArray[Any], names: Sequence[str] | None = None) -> tuple[list[int], list[DataError]]:
    """The places of rows without NaN, infinite or negative entries, and why the others are refused, by their names."""
    try:
        refuse_broken_structure(plain(X))
    except DataError as error:
        return [], [error]  # no row can be cut out of it
    try:
        refuse_bad_entries(X, rows, names)
    except DataError:
        pass
    else:
        return list(range(X.shape[0])), []
    kept, errors = [], []
    for row in range(X.shape[0]):
        try:
            refuse_bad_entries(X[row : row + 1], rows[row : row + 1], names)
        except DataError as error:
            errors.append(error)
        else:
            kept.append(row)
    return kept, errors


@dataclass(frozen=True)
class Units:
    """The stored change of units: internal X = clip(X) / scale, raised where the divergence is not defined at zero."""

    scale: float
    mean: float  # of the first batch
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not all(is_number(value) and 0 < value < np.inf for value in (self.scale, self.mean)):
            raise ValueError(f"the scale is {self.scale!r}, the mean {self.mean!r}")

    @classmethod
    def of_first_batch(
        cls, X: Any, clip: tuple[float, float] | None, rescale: bool, samples: Array | None = None
    ) -> Units:
        """Fix the units from the first batch; with ``rescale`` off, data stay as they are (the literal reading).

        ``samples`` are the weights of the samples, if they differ.
        """
        mean = _mean(X if clip is None else _clipped(X, clip), samples)
        if isinstance(X, Known) and not X.present.sum():
            raise DataError("Nothing is known of the first batch; begin with one that has known entries.")
        if mean == 0:
            raise DataError(
                "The first batch is all zeros, so the data have no scale to learn at; "
                "begin with a batch that has positive entries, or take a larger batch_size."
            )
        if mean < np.finfo(X.dtype).tiny:  # what is divided by it, or a tenth of it, would lose its digits
            raise DataError(f"The mean of the first batch is {mean:.3g}, too small to compute with; rescale the data.")
        return cls(scale=mean if rescale else 1.0, mean=mean, clip=clip)

    def inside(self, X: Any, divergence: Divergence, rows: Any = None) -> tuple[Any, int]:
        """The data in internal units, and how many entries had to be raised for the divergence.

        Sparse data stay sparse; they come here only under divergences that admit zeros. Samples that would be infinite
        are refused, ``rows`` giving the row numbers.
        """
        if isinstance(X, Known):
            return self._known(X, divergence, rows)
        if scipy.sparse.issparse(X):
            X = X.tocsr(copy=True)
            X.sum_duplicates()  # and sort: arrays of other entries share the indices from here on, which must not move
            X.eliminate_zeros()  # stored or not, a zero is a zero
            if self.clip is not None:
                X = _clipped(X, self.clip)
            given, X.data = X.data, np.divide(X.data, self.scale, dtype=X.dtype)
            if not np.isfinite(X.data.max(initial=0.0)):
                largest = X.max(axis=1).toarray()
                X.data = given
                refuse_infinite(largest, X, self.mean, rows)
            return X, 0
        if self.clip is not None:
            X = _clipped(X, self.clip)
        internal: Array = np.divide(X, self.scale, dtype=X.dtype, order="C")
        if not np.isfinite(internal.max(initial=0.0)):
            refuse_infinite(internal, X, self.mean, rows)
        if divergence.domain.x.closed:
            return internal, 0
        mean = np.maximum(_means(internal), self.mean / self.scale)
        least = (FLOOR * mean).astype(internal.dtype)
        raised = int(np.count_nonzero(internal < least))
        return np.maximum(internal, least, out=internal) if raised else internal, raised

    def _known(self, X: Known, divergence: Divergence, rows: Any) -> tuple[Known, int]:
        """The same of what is known of samples; where they are sparse, their zeros are known and stay."""
        values = X.values if self.clip is None else _clipped(X.values, self.clip)
        values = np.divide(values, self.scale, dtype=X.dtype)
        internal = Known(X.like(values), X.weights)
        if not np.isfinite(values.max(initial=0.0)):
            refuse_infinite(np.asarray(internal.X.max(axis=1).todense() if X.sparse else values), X, self.mean, rows)
        if divergence.domain.x.closed:
            return internal, 0
        least = FLOOR * np.maximum(internal.mean(axis=1), self.mean / self.scale)
        least = X.spread(least)
        known = 1 if X.sparse else X.present > 0
        raised = int(np.count_nonzero((values < least) & known))
        return Known(X.like(np.maximum(values, least).astype(X.dtype)), X.weights), raised


def _clipped(X: Any, clip: tuple[float, float]) -> Any:
    """X between the bounds, which may lie beyond the range of its type; sparse X become dense if zeros are raised."""
    largest = float(np.finfo(X.dtype).max)
    low, high = (min(bound, largest) for bound in clip)
    if isinstance(X, Known):
        return Known(X.like(np.clip(X.values, low, high)), X.weights)
    if not scipy.sparse.issparse(X):
        return np.clip(X, low, high)
    if low > 0:
        return scipy.sparse.csr_matrix(np.clip(X.toarray(), low, high))
    X = X.tocsr(copy=True)
    X.sum_duplicates()  # entries are clipped, not their parts
    X.data = np.clip(X.data, low, high)
    return X


def plain(X: Any) -> Any:
    """The array or sparse matrix of samples that may have weights."""
    X = X.X if isinstance(X, Weighted) else X
    return X.X if isinstance(X, Known) else X


def _mean(X: Any, samples: Array | None = None) -> float:
    """The mean in double precision, without overflow for entries near the largest double.

    Divided by a power of two counts stay whole, and their sum is exact: that of sparse counts is that of dense ones.
    """
    if isinstance(X, Known) or samples is not None:
        return _weighted_mean(X, samples)
    values = X.data if scipy.sparse.issparse(X) else X
    largest = float(values.max(initial=0.0))
    if largest == 0:
        return 0.0
    unit = 2.0 ** int(np.frexp(largest)[1] - 1)
    entries: int = X.shape[0] * X.shape[1]
    return float(np.sum(values / unit, dtype=np.float64)) / entries * unit


def _means(X: Array) -> Array:
    """Of each sample, (n, 1), in double precision; sums that overflow are formed anew of smaller numbers."""
    with np.errstate(over="ignore"):
        means: Array = X.mean(axis=1, keepdims=True, dtype=np.float64)
    return means if np.isfinite(means).all() else np.sum(X / X.shape[1], axis=1, keepdims=True, dtype=np.float64)


def _weighted_mean(X: Any, samples: Array | None) -> float:
    values = X.values if isinstance(X, Known) else X.data if scipy.sparse.issparse(X) else X
    unit = float(np.max(values, initial=0.0)) or 1.0
    part = Known(X.like(values / unit), X.weights) if isinstance(X, Known) else X / unit
    samples = np.ones(X.shape[0]) if samples is None else samples
    sums = part.sum(axis=1) if isinstance(part, Known) else row_sums(part)
    known = part.weight(axis=1) if isinstance(part, Known) else np.full(X.shape[0], float(X.shape[1]))
    return float(samples @ sums) / max(float(samples @ known), float(np.finfo(np.float64).tiny)) * unit


def checked_clip(clip: Any) -> tuple[float, float] | None:
    """``clip`` as a pair 0 <= low < high, or None."""
    if clip is None:
        return None
    try:
        low, high = (float(bound) for bound in clip)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not 0 <= low < high:
        raise ValueError(f"clip must be a pair (low, high) with 0 <= low < high, in the data's units; got {clip!r}.")
    return low, high
