"""How much of what was fitted each atom carries: the shares of one sample, and of all that were learnt from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from onmf._support.arrays import Array


def proportions(H: Array, W: Array) -> Array:
    """The share of every atom in the fit of each sample (n, K): rows that sum to one, all alike where h is zero.

    Atoms have maximum 1, not sum 1, so that H alone does not tell: h_k sum_f W_kf is what atom k contributes. A row
    of NaN stays one.
    """
    largest = H.max(axis=1, keepdims=True)  # sums of large numbers may be beyond the range of numbers
    parts = H / np.where(largest == 0, 1, largest) * W.sum(axis=1, dtype=H.dtype)
    total = parts.sum(axis=1, keepdims=True)
    return np.divide(parts, total, out=np.full_like(parts, 1 / parts.shape[1]), where=total != 0)


@dataclass(frozen=True)
class Usage:
    """Sums over samples of the shares of atoms; the share of an atom in all is its sum over that of all sums.

    The coefficients are those that learning has found anyway, each with the dictionary of its time. Early ones belong
    to a dictionary that is no more, so a sample counts by its number, the millionth a thousand times as much as the
    thousandth, and less still where the method forgets. Being sums, those of several machines at the same clock add up.
    """

    sums: Array = field(default_factory=lambda: np.zeros(0))  # (K,), double precision

    @classmethod
    def of(cls, H: Array, W: Array, weights: Array | None = None) -> Usage:
        """Of samples that all count by their weights alone; one of which nothing is fitted does not count."""
        H, counts = H.astype(np.float64, copy=False), H.any(axis=1).astype(np.float64)
        return cls((counts if weights is None else counts * weights) @ proportions(H, W))

    def and_then(self, batch: Usage, before: int, n: int, horizon: float = np.inf) -> Usage:
        """With a batch of n samples that comes after so many; after ``horizon`` samples the past weighs 1/e."""
        kept = before / (before + n) * math.exp(-n / horizon)
        return Usage(self.sums * kept + batch.sums)

    @property
    def shares(self) -> Array:
        """They sum to one; all are alike if nothing was ever fitted."""
        total = float(self.sums.sum())
        return self.sums / total if total > 0 else np.full(len(self.sums), 1 / len(self.sums))

    def require_sound(self, n_components: int) -> None:
        """Refuse what no run could have, as a damaged file may hold."""
        if self.sums.shape != (n_components,) or self.sums.dtype != np.float64:
            raise ValueError("it does not say how much each atom carries")
        if not np.isfinite(self.sums.sum()) or (self.sums < 0).any():
            raise ValueError("its atoms carry shares that are not numbers, or negative")
