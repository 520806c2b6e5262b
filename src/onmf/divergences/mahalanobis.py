"""The Mahalanobis distance (Table 2): Gaussian noise that is correlated between the features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from onmf._support.arrays import Array
from onmf._support.threads import cached_property
from onmf.divergences.base import Divergence, RowMean, row_mean


@dataclass(frozen=True, eq=False)
class Mahalanobis(Divergence, name="mahalanobis"):
    """d(x || y) = (x - y)' A (x - y) / 2 with A (F, F) symmetric and positive definite, e.g. an inverse covariance.

    Parameters
    ----------
    A : array (F, F)
        The matrix.

    Examples
    --------
    >>> A = np.linalg.inv(np.cov(X.T) + np.eye(30))
    >>> divergence = onmf.divergences.Mahalanobis(A)
    >>> OnlineNMF(3, divergence=divergence).fit(X).n_components_
    3
    """

    A: Array = field(repr=False)

    def __post_init__(self) -> None:
        if np.iscomplexobj(self.A):
            raise ValueError("mahalanobis: A must be real.")
        A = np.array(self.A, dtype=np.float64)
        if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.size:
            raise ValueError(f"mahalanobis: A must be a square matrix with one row per feature; got shape {A.shape}.")
        if not np.isfinite(A).all():
            raise ValueError("mahalanobis: A has NaN or infinite entries.")
        if not np.allclose(A, A.T, rtol=1e-8, atol=1e-10 * np.abs(A).max()):
            raise ValueError("mahalanobis: A must be symmetric; use (A + A.T) / 2 if it is symmetric up to rounding.")
        A = (A + A.T) / 2 + 0.0  # no -0.0: equal matrices have equal hashes
        try:
            np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            raise ValueError(
                "mahalanobis: A must be positive definite; add a multiple of the identity to it."
            ) from None
        A.setflags(write=False)
        object.__setattr__(self, "A", A)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and np.array_equal(self.A, other.A)

    def __hash__(self) -> int:
        return hash((type(self), self.A.tobytes()))

    smooth_curvature = True
    convex = True
    degree = 2.0
    quadratic = True
    averaging_exponent = 0.75

    @property
    def metric(self) -> Array:
        return self.A

    @cached_property
    def lipschitz(self) -> float:
        """The largest eigenvalue of A."""
        return float(np.linalg.eigvalsh(self.A)[-1])

    def value(self, X: Array, Y: Array) -> Array:
        """r' A r / 2 per row."""
        R = X - Y
        return 0.5 * np.einsum("nf,nf->n", R, R @ self._matrix(R))

    def grad(self, X: Array, Y: Array) -> Array:
        """A (y - x)."""
        R = Y - X
        return R @ self._matrix(R)

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """x A+ + y A- and y A+ + x A-, with A = A+ - A- split into its positive and negative entries."""
        positive, negative = (part.astype(X.dtype, copy=False) for part in self._split)
        return X @ positive + Y @ negative, Y @ positive + X @ negative

    def multiplicative_factor(self, ratio: Array) -> Array:
        """Return the square root of the ratio, or the ratio itself if A has no negative entry."""
        return np.sqrt(ratio) if self._split[1].any() else ratio

    @cached_property
    def _split(self) -> tuple[Array, Array]:
        return np.maximum(self.A, 0.0), np.maximum(-self.A, 0.0)

    def _matrix(self, R: Array) -> Array:
        return self.A.astype(R.dtype, copy=False)

    def for_data(self, mean: float, n_features: int) -> Self:
        if len(self.A) != n_features:
            raise ValueError(
                f"mahalanobis: A is {len(self.A)} x {len(self.A)}, but the data have {n_features} features."
            )
        return self

    @classmethod
    def usage(cls) -> str:
        return "mahalanobis:A.npy"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read A from a .npy file."""
        try:
            A: Any = np.load(text, allow_pickle=False)
            if not isinstance(A, np.ndarray) or A.dtype.kind not in "uif":
                raise ValueError("it is not one array of numbers")
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"cannot read the matrix of mahalanobis from {text!r}: {error}") from None
        return cls(A)
