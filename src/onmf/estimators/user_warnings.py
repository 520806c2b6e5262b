"""What a user is warned of: data that were changed, and coefficients that were not found."""

from __future__ import annotations

import warnings
from typing import Any

import scipy
from sklearn.exceptions import ConvergenceWarning

from onmf.divergences import Divergence
from onmf.model.units import FLOOR, DomainWarning


class UnsolvedWarning(ConvergenceWarning):
    """Coefficients of ``unsolved`` samples are not precise."""

    def __init__(self, message: str, unsolved: int) -> None:
        super().__init__(message)
        self.unsolved = unsolved


NOTHING_IMPLICIT = (
    'implicit="missing" speaks of what a sparse matrix does not store, but X is dense, so that all of it is taken for '
    'known; set missing="nan" and write NaN where a value is missing, or pass a sparse matrix'
)


def warn_dense(X: Any, missing: str | None, implicit: str, weights: Any, stacklevel: int) -> None:
    """Say that a setting which should mark what is missing marks nothing in this X, if nothing else does."""
    if implicit == "missing" and missing is None and weights is None and not scipy.sparse.issparse(X):
        warnings.warn(f"{NOTHING_IMPLICIT}.", UserWarning, stacklevel=stacklevel)


def warn_raised(divergence: Divergence, count: int) -> None:
    """Say, once per fit, that entries were raised into the domain."""
    warnings.warn(
        f"{count} entries are zero, outside the domain of {divergence.name}, or next to it: they are raised to "
        f"{FLOOR:g} of the mean of their sample, or of the data if that is larger. This warning is shown once per fit.",
        DomainWarning,
        stacklevel=4,
    )


def warn_unsolved(unsolved: int, n: int, tol: float, max_iter: int) -> None:
    """Say how many samples have coefficients that are not precise."""
    said = (
        f"The coefficients of {unsolved} of {n} samples did not reach transform_tol={tol:g}; raise transform_max_iter "
        f"({max_iter}) or transform_tol."
    )
    warnings.warn(UnsolvedWarning(said, unsolved), stacklevel=4)
