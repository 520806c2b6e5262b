"""What large coefficients cost on top of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, row_sums
from onmf._support.checks import require_at_least


@dataclass(frozen=True)
class Penalty:
    """(ridge / 2) ||h||^2 + lasso ||x|| ||h||_1."""

    ridge: float = 0.0  # the m of the paper's Assumption 2
    lasso: float = 0.0

    def __post_init__(self) -> None:
        require_at_least(0, ridge=self.ridge, lasso=self.lasso)

    def __bool__(self) -> bool:
        return bool(self.ridge > 0 or self.lasso > 0)  # NumPy's numbers would give NumPy's truth

    def prices(self, X: Any) -> Array:
        """lasso ||x|| per sample, of dense or sparse data: (n, 1)."""
        if not self.lasso:
            return np.zeros((X.shape[0], 1), dtype=X.dtype)
        squares = row_sums(X.multiply(X)) if scipy.sparse.issparse(X) else np.square(X).sum(axis=1)
        return self.lasso * np.sqrt(squares)[:, None]

    def value(self, H: Array, prices: Array) -> Array:
        """The penalty per sample."""
        return 0.5 * self.ridge * np.square(H).sum(axis=1) + prices[:, 0] * H.sum(axis=1)

    def gradient(self, H: Array, prices: Array) -> Array:
        """Its derivative in h >= 0."""
        return self.ridge * H + prices


NO_PENALTY = Penalty()
