"""What the adaptive step learns from samples: running means, and the metric and the floor that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from onmf._support.arrays import Array
from onmf.methods.steps import Slopes

WINDOW = 100  # mini-batches that the running means reach back
SHARE = 1e-3  # of a feature's typical size that every atom keeps
WIDEST = 1e12  # how far entries of the metric may be from their median


@dataclass(frozen=True)
class Averages:
    """Running means over the samples, in double precision: squared slopes leave the range of single precision."""

    residuals: Array  # S1 (K, F): of h^2 (x) g (y - x)
    squares: Array  # S2 (K, F): of h^4 (x) g^2
    overlaps: Array  # M (K, K): of hh' with h at unit length
    sizes: Array  # (F,): of x, or of its logarithm where zeros are outside the domain
    mass: Array  # (1,): of the sum of h
    seen: Array  # (1,): the samples in them

    @classmethod
    def of(cls, slopes: Slopes) -> Averages:
        """The means over some samples."""
        problem, ratios = slopes.problem, not slopes.problem.divergence.domain.x.closed
        X, n, weighed = problem.X.matrix, problem.X.weight, problem.X.counted  # missing entries have no derivative
        H, g, r = (array.astype(np.float64) for array in (slopes.H, slopes.g, slopes.Y - X))
        squared = np.square(H)
        unit = np.maximum(X.mean(axis=1, dtype=np.float64), np.finfo(np.float64).tiny) if ratios else np.ones(len(X))
        sizes = np.log(X / unit[:, None]) if ratios else X
        directions = H / np.maximum(np.sqrt(squared.sum(axis=1, keepdims=True)), np.finfo(np.float64).tiny)
        return cls(
            residuals=weighed(squared).T @ (g * r) / n,
            squares=weighed(np.square(squared)).T @ np.square(g) / n,
            overlaps=weighed(directions).T @ directions / n,
            sizes=weighed(sizes).mean(axis=0, dtype=np.float64) * (len(X) / n),
            mass=np.array([weighed(H.sum(axis=1) / unit).mean() * (len(X) / n)]),
            seen=np.array([float(n)]),
        )

    def after(self, slopes: Slopes, tau: int) -> Averages:
        """With the samples of one more mini-batch, whose weight is their share of the window."""
        news = Averages.of(slopes)
        seen = float(self.seen[0] + news.seen[0])
        weight = min(1.0, float(news.seen[0]) / min(seen, WINDOW * tau))
        means = {name: old + weight * (getattr(news, name) - old) for name, old in vars(self).items()}
        return Averages(**means | {"seen": np.array([seen])})

    def metric(self) -> Array:
        """D = S1 / (kappa S2); entries without a positive value have the median of the others."""
        good = (self.residuals > 0) & (self.squares > 0)
        if not good.any():
            return np.ones_like(self.squares)  # every fit is exact, and no gradient left to scale
        D = np.divide(self.residuals, self.squares, out=np.zeros_like(self.squares), where=good)
        median = float(np.median(D[good]))
        D = np.clip(np.where(good, D, median), median / WIDEST, median * WIDEST)
        return D / self.overlap

    @property
    def overlap(self) -> float:
        """kappa, from 1 for atoms that no two samples share to K for atoms that all samples have in like shares."""
        scale = np.sqrt(np.maximum(np.diag(self.overlaps), np.finfo(np.float64).tiny))
        correlations = self.overlaps / np.outer(scale, scale)
        return max(1.0, float(np.linalg.eigvalsh(correlations)[-1]))

    def low(self, ratios: bool) -> Array:
        """low_f: a share of the feature's typical size, and of the mean over all features, per unit of coefficients."""
        typical = np.exp(self.sizes) if ratios else self.sizes + 0.01 * self.sizes.mean()
        return np.minimum(SHARE * typical / max(float(self.mass[0]), np.finfo(np.float64).tiny), 0.5)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))
