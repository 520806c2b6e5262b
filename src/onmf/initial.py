"""Initial dictionaries. They look at the first batch only, and hold no zero that a later step could not leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from onmf.arrays import Array

INITS = ("uniform", "kmeans++", "samples", "nndsvda")


def initial_dictionary(init: Any, X: Array, K: int, rng: np.random.Generator) -> Array:
    """W_0 (K, F) by the name of a rule, or the user's own array; X is the first batch in internal units."""
    if isinstance(init, str):
        if init == "uniform":
            return _uniform(K, X, rng)
        if init == "kmeans++":
            return _spread_samples(X, K, rng)
        if init == "samples":
            return _samples(X, K, rng)
        if init == "nndsvda":
            return _nndsvda(X, K, rng)
        msg = f"unknown init {init!r}; choose one of {', '.join(INITS)}, or give an array of shape (K, F)."
        raise ValueError(msg)
    return _users(init, (K, X.shape[1]), X.dtype)


def _uniform(K: int, X: Array, rng: np.random.Generator) -> Array:
    """Entries uniform on (0, 1], the range that C allows: the coefficients take up the scale of the data."""
    return (1.0 - rng.random((K, X.shape[1]))).astype(X.dtype)


def _samples(X: Array, K: int, rng: np.random.Generator) -> Array:
    """K different samples of the first batch, with a hundredth of the mean sample to leave zeros by."""
    candidates = np.flatnonzero(X.sum(axis=1) > 0)
    chosen = rng.permutation(candidates)[:K]
    return _pad(_to_unit_maximum(X[chosen] + 0.01 * _profile(X)), K, X, rng)


def _spread_samples(X: Array, K: int, rng: np.random.Generator) -> Array:
    """Samples far from each other, chosen as k-means++ chooses its seeds, with 3 % of the mean sample."""
    from sklearn.cluster import kmeans_plusplus  # here: scikit-learn's clustering is slow to import

    candidates = X[X.sum(axis=1) > 0]
    seeds, _ = kmeans_plusplus(candidates, min(K, len(candidates)), random_state=int(rng.integers(2**31)))
    return _pad(_to_unit_maximum(seeds + 0.03 * _profile(X)), K, X, rng)


def _nndsvda(X: Array, K: int, rng: np.random.Generator) -> Array:
    """NNDSVD (Boutsidis and Gallopoulos 2008): of each singular pair the stronger sign, zeros filled by averages."""
    rank = min(K, *X.shape)
    U, _, Vt = randomized_svd(X, rank, random_state=int(rng.integers(2**31)))
    atoms = np.empty((rank, X.shape[1]), dtype=X.dtype)
    for k in range(rank):
        plus = np.linalg.norm(np.maximum(U[:, k], 0)) * np.linalg.norm(np.maximum(Vt[k], 0))
        minus = np.linalg.norm(np.maximum(-U[:, k], 0)) * np.linalg.norm(np.maximum(-Vt[k], 0))
        atoms[k] = np.maximum(Vt[k] if plus >= minus else -Vt[k], 0)
    atoms = atoms[atoms.max(axis=1) > 0]
    average = atoms.mean(axis=1, keepdims=True)
    return _pad(_to_unit_maximum(np.where(atoms > 0, atoms, average)), K, X, rng)


def _users(init: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    try:
        W = np.array(init, dtype=dtype)
    except (TypeError, ValueError):
        msg = f"init must be one of {', '.join(INITS)} or an array of numbers, got {type(init).__name__}."
        raise ValueError(msg) from None
    if W.shape != shape:
        msg = f"the initial dictionary must have shape (n_components, n_features) = {shape}, got {W.shape}."
        raise ValueError(msg)
    if not np.isfinite(W).all() or (W < 0).any():
        msg = "the initial dictionary has negative, NaN or infinite entries."
        raise ValueError(msg)
    return W


def _pad(W: Array, K: int, X: Array, rng: np.random.Generator) -> Array:
    """K atoms: where the batch gave fewer, the mean sample with every entry multiplied by a random number."""
    missing = K - len(W)
    if missing <= 0:
        return W
    return np.vstack([W, _to_unit_maximum(_profile(X) * _uniform(missing, X, rng))])


def _profile(X: Array) -> Array:
    """The mean sample, with a little for features that the first batch has not shown yet."""
    profile: Array = X.mean(axis=0) + 0.01 * X.mean()
    return profile


def _to_unit_maximum(W: Array) -> Array:
    scaled: Array = W / W.max(axis=1, keepdims=True)
    return scaled
