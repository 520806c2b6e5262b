"""A quick low-rank mean of noisy data: weighted, robust least squares, its rank found on held-out entries."""

from __future__ import annotations

from copy import copy

import numpy as np

from onmf._support.arrays import Array, Mask

LARGEST_RANK, LEAST_RANK = 48, 8
SPARE = 2  # beyond the best rank: too few leave structure in the residuals, too many are made up for by the leverage
SWEEPS = 4  # per rank
HELD_OUT = 0.1  # of the known entries
PATIENCE = 3  # steps without progress before the search ends
TAIL = 3.0  # robust standard deviations, beyond which an entry counts less
LEAST_MEAN = 0.02  # of the rank-one mean: where a variance is needed, smaller fits are taken for it
EXACT = 1e-6  # of an entry: what is less is no noise
NEARLY_EXACT, SWEEPS_TO_EXACT = 1e-4, 20  # the same with unknown entries
RIDGE = 1e-9
MAD = 1.4826  # times its median absolute value: the standard deviation of a Gaussian
TINY = float(np.finfo(np.float64).tiny)


def best_rank(X: Array, known: Mask, power: float, robust: bool, rng: np.random.Generator) -> tuple[int, bool]:
    """A rank a little above the one whose fit best predicts entries that it has not seen; and was that the largest?"""
    largest = largest_rank(known)
    seen = known & (rng.random(X.shape) >= HELD_OUT)
    fit = LowRank(X, seen, power, robust)
    best, rank, worse = fit.score(known & ~seen), 1, 0
    while fit.rank < largest and worse < PATIENCE:
        fit.grow(largest)
        score = fit.score(known & ~seen)
        worse = worse + 1
        if score < best:
            best, rank, worse = score, fit.rank, 0
    least = LEAST_RANK if robust else 1
    return min(largest, max(rank + SPARE, least)), rank == largest


def largest_rank(known: Mask) -> int:
    """The largest whose fit leaves enough of the noise: a third of what is known of a typical row or column."""
    return max(1, min(LARGEST_RANK, *(int(np.median(known.sum(axis=axis))) // 3 for axis in (0, 1))))


def is_exact(X: Array, known: Mask) -> bool:
    """Is X of low rank, up to rounding?"""
    k = largest_rank(known)
    if known.all():
        U, scale, V = np.linalg.svd(X, full_matrices=False)
        left, least = np.abs(X - (U[:, :k] * scale[:k]) @ V[:k]), EXACT
    else:  # least squares come near an exact fit, but not to rounding
        fit = LowRank(X, known, 0.0, False, k)
        fit.sweep(SWEEPS_TO_EXACT)
        left, least = np.abs(fit.residuals()), NEARLY_EXACT
    relative = left / (X + LEAST_MEAN * np.outer(X.mean(axis=1), X.mean(axis=0)))
    return bool(np.quantile(relative[known], 0.99) < least)


class LowRank:
    """X ~ U (n, k) @ V (k, F), not held to signs, under noise whose variance grows as mean^power.

    Entries that are not known have no weight. ``robust``: entries far from the fit, in units of the median residual,
    count less.
    """

    def __init__(self, X: Array, known: Mask, power: float, robust: bool, rank: int = 1) -> None:
        self.X, self.known, self.power, self.robust = X, known, power, robust
        self.U, self.V = self._rank_one(X)
        if robust:  # gross outliers must not begin the fit
            self.U, self.V = self._rank_one(np.minimum(X, 4 * self.U @ self.V))
        self.least = LEAST_MEAN * self.U @ self.V
        self.sweep(SWEEPS)
        while self.rank < rank:
            self.grow(rank)

    def _rank_one(self, X: Array) -> tuple[Array, Array]:
        """The means of rows, and those of columns in units of the whole mean."""
        total = np.where(self.known, X, 0.0)
        rows, columns = (
            total.sum(axis=axis, keepdims=True) / np.maximum(self.known.sum(axis=axis, keepdims=True), 1)
            for axis in (1, 0)
        )
        return rows + 1e-12 * rows.max(), columns / rows.mean() + 1e-12

    @property
    def rank(self) -> int:
        """The number of columns of U."""
        return self.U.shape[1]

    @property
    def mean(self) -> Array:
        """UV, where it may be that of nonnegative data, and else the least that counts as positive."""
        return np.maximum(self.U @ self.V, self.least)

    @property
    def usable(self) -> Mask:
        """Known entries with a positive fit that they have not determined alone."""
        return self.known & (self.least < self.U @ self.V) & (self.leverage < 0.8)

    def residuals(self) -> Array:
        """X - UV, and zero where X is not known."""
        return np.where(self.known, self.X - self.U @ self.V, 0.0)

    def refitted(self, X: Array) -> LowRank:
        """The fit of other data, from here on."""
        other = copy(self)
        other.X = X
        other.sweep(SWEEPS)
        return other

    def sweep(self, times: int) -> None:
        """Least squares for U, then for V, in turn."""
        for _ in range(times):
            weights = self._weights()
            self.U = _least_squares(self.X, weights, self.V)
            self.V = _least_squares(self.X.T, weights.T, self.U.T).T

    def grow(self, most: int) -> None:
        """A third more ranks, up to ``most``: where the residuals, without their tails, are largest."""
        R, unit = self.residuals(), self.mean ** (0.5 * self.power)
        if self.robust:
            bound = TAIL * MAD * np.median(np.abs(R / unit)[self.known]) * unit
            R = np.clip(R, -bound, bound)
        more = min(max(1, self.rank // 3), most - self.rank)
        V = R[np.argsort(np.square(R / unit).sum(axis=1))[-more:]]
        for _ in range(10):  # of the power method; sweeps do the rest
            V = np.linalg.qr(((R @ V.T).T @ R).T)[0].T
        self.U, self.V = np.column_stack([self.U, R @ V.T]), np.vstack([self.V, V])
        self.sweep(SWEEPS)

    def score(self, entries: Mask) -> float:
        """Minus twice the log-likelihood per entry under Gaussian noise of this variance, but for a constant."""
        mean = self.mean[entries]
        square = np.square((self.X - self.U @ self.V)[entries]) / mean**self.power
        if self.robust:
            square = np.minimum(square, (4 * MAD) ** 2 * np.median(square))
        return float(np.log(square.mean() + TINY) + self.power * np.log(mean).mean())

    @property
    def leverage(self) -> Array:
        """The share of an entry's own noise that has gone into its fit: its residual has lost it."""
        weights = self._weights()
        across = weights * _spread(weights, self.V)
        down = weights * _spread(weights.T, self.U.T).T
        return np.clip(across + down - across * down, 0.0, 0.9)

    def _weights(self) -> Array:
        unit = self.mean ** (0.5 * self.power)
        weights = self.known / np.square(unit)
        if self.robust:
            size = np.abs(self.residuals()) / unit
            bound = TAIL * MAD * np.median(size[self.known]) + TINY
            weights = weights / np.square(np.maximum(size / bound, 1.0))
        return weights


def _least_squares(X: Array, weights: Array, V: Array) -> Array:
    """argmin_u sum_f w_f (x_f - (uV)_f)^2, per row."""
    return np.linalg.solve(_normal(weights, V), ((weights * X) @ V.T)[..., None])[..., 0]


def _spread(weights: Array, V: Array) -> Array:
    """v_f' (V diag(w) V')^-1 v_f, per row."""
    inverse = np.linalg.inv(_normal(weights, V))
    return inverse.reshape(len(inverse), -1) @ _products(V)


def _normal(weights: Array, V: Array) -> Array:
    """V diag(w) V' per row, with a ridge that keeps it invertible."""
    k = len(V)
    G = (weights @ _products(V).T).reshape(-1, k, k)
    return G + (RIDGE * np.einsum("nkk->n", G) + TINY)[:, None, None] * np.eye(k)


def _products(V: Array) -> Array:
    return (V[:, None] * V[None]).reshape(len(V) ** 2, -1)
