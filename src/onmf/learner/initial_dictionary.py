"""Initial dictionaries. They depend on the first batch only, and contain no zero that a later step could not leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from onmf._support.arrays import Array, dense
from onmf.coefficients import precise
from onmf.coefficients.problem import Problem
from onmf.divergences import SquaredL2
from onmf.samples import FEW_ENTRIES, Samples

INITS = ("uniform", "kmeans++", "samples", "nndsvda")


def initial_dictionary(
    init: Any,
    samples: Samples,
    K: int,
    rng: np.random.Generator,
    ratios: bool = False,
    known: Array | None = None,
    unit: float | None = None,
) -> Array:
    """W_0 (K, F) by the name of a rule, or the user's own array; the first batch is in internal units, none missing.

    A batch with fewer samples than components is padded by randomly modulated copies of its mean. ``ratios`` says that
    the divergence sees ratios, not differences: samples are then far from each other if their logarithms are.
    Components that are ``known`` already (J, F) are not among the K; k-means++ begins far from them, with what they
    leave. A sample of some weight counts as that many.

    Where coefficients sum to one, components have the size of samples, and the user's own come in the data's units, of
    which ``unit`` is that of X.
    """
    X, weights = samples.matrix, samples.sample_weight
    if not isinstance(init, str):
        W = _users(init, (K, X.shape[1]), X.dtype, known)
        return W if unit is None else W / W.dtype.type(unit)
    require_init(init)
    if K == 0:  # all are known
        return np.zeros((0, X.shape[1]), dtype=X.dtype)
    if unit is not None and init in ("kmeans++", "samples"):
        return _whole_samples(X, K, rng, ratios, init == "kmeans++", known, weights)
    if init == "kmeans++":
        return _spread_samples(X, K, rng, ratios, known, weights)
    if init == "nndsvda" and weights is not None:  # X'X is then that of so many copies
        X = (scipy.sparse.diags_array(np.sqrt(weights)) @ X).astype(X.dtype)
    W = {"uniform": _uniform, "samples": _samples, "nndsvda": _nndsvda}[init](X, K, rng)
    return W if unit is None else _to_size_of(X, W)


def require_init(init: Any) -> None:
    """Refuse what is neither the name of a rule nor an array of numbers, even where a model has long been begun."""
    if not isinstance(init, str):
        if _numbers(init, np.dtype(np.float64)).ndim != 2:
            raise ValueError(f"init must be one of {', '.join(INITS)} or an array of shape (K, F), got {init!r}.")
    elif init not in INITS:
        raise ValueError(f"unknown init {init!r}; choose one of {', '.join(INITS)}, or give an array of shape (K, F).")


def _uniform(X: Any, K: int, rng: np.random.Generator) -> Array:
    """Entries uniform on (0, 1], the range that C allows: the coefficients take up the scale of the data."""
    return (1.0 - rng.random((K, X.shape[1]))).astype(X.dtype)


def _samples(X: Any, K: int, rng: np.random.Generator) -> Array:
    """K different samples of the first batch, plus a hundredth of the mean sample, so that no entry is zero."""
    candidates = np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() > 0)
    chosen = rng.permutation(candidates)[:K]
    return _pad(_to_unit_maximum(dense(X[chosen]) + 0.01 * _profile(X)), K, X, rng)


def _spread_samples(
    X: Any, K: int, rng: np.random.Generator, ratios: bool, known: Array | None, weights: Array | None
) -> Array:
    """Samples in directions far from each other, chosen as k-means++ chooses its seeds, with 3 % of the mean sample.

    With as much of the mean as of themselves where few entries are not zero: a document has too few words for a
    component.

    A component has no length: it is the direction that counts, so samples are divided by their mean, and by their norm
    where k-means++ measures distances.
    """
    from sklearn.preprocessing import normalize  # here: scikit-learn's preprocessing is slow to import

    filled = np.asarray(X.sum(axis=1)).ravel() > 0
    candidates = normalize(X[filled], norm="l1") * X.shape[1]
    counts = None if weights is None else weights[filled].astype(np.float64)

    def places(samples: Any) -> Any:
        """Where they lie in the space whose distances count."""
        return (np.log(samples) if ratios else normalize(samples)).astype(np.float64)

    taken = None
    if known is not None:
        known = normalize(known, norm="l1") * X.shape[1]
        # A zero has no logarithm: it counts as the least that any sample has there.
        taken = places(np.maximum(known, candidates.min(axis=0)) if ratios else known)
    chosen = _far_from_each_other(places(candidates), K, rng, taken, counts)
    components = dense(candidates[chosen])
    if known is not None and chosen:
        components = _left_by(known, components)
    share = 1.0 if Samples(candidates).density < FEW_ENTRIES else 0.03
    return _pad(_to_unit_maximum(components + share * _profile(candidates, counts)), K, X, rng)


def _whole_samples(
    X: Any,
    K: int,
    rng: np.random.Generator,
    ratios: bool,
    spread: bool,
    known: Array | None,
    weights: Array | None,
) -> Array:
    """Samples as they are, far from each other in size, too, or any; with 3 % of the mean sample."""
    filled = np.asarray(X.sum(axis=1)).ravel() > 0
    candidates = X[filled]
    counts = None if weights is None else weights[filled].astype(np.float64)
    if spread:
        places = (np.log(candidates) if ratios else candidates).astype(np.float64)
        taken = known
        if known is not None and ratios:  # a zero has no logarithm: it counts as the least that any sample has there
            taken = np.log(np.maximum(known, candidates.min(axis=0)))
        chosen = _far_from_each_other(places, K, rng, taken, counts)
    else:
        chosen = rng.permutation(candidates.shape[0])[:K].tolist()
    W = 0.97 * dense(candidates[chosen]) + 0.03 * _profile(candidates, counts)
    missing = K - len(W)
    return np.vstack([W, _to_size_of(X, _profile(X) * _uniform(X, missing, rng))]) if missing else W


def _left_by(known: Array, samples: Array) -> Array:
    """What fixed components leave of samples, in least squares: of a mixture, the part that is still to be learnt."""
    least_squares = SquaredL2()
    H = precise(least_squares).solve(Problem(least_squares, samples, known)).H
    return np.maximum(samples - H @ known, 0)


def _far_from_each_other(
    places: Any, K: int, rng: np.random.Generator, taken: Array | None = None, counts: Array | None = None
) -> list[int]:
    """Greedy k-means++ (Arthur and Vassilvitskii 2007): K different rows, or as many as there are.

    Among equally good candidates, such as the two of an isolated pair, the first one drawn is taken: rounding, and
    with it the units of the data, must not decide. Places that are ``taken`` count like rows that were chosen before. A
    row may count as several; whole ``counts`` lead to the rows that so many copies of them would.
    """
    across = places.T.tocsr() if scipy.sparse.issparse(places) else places.T  # once, not in every product
    squares = np.asarray((places.multiply(places) if scipy.sparse.issparse(places) else places**2).sum(axis=1)).ravel()

    def distances(others: Any, lengths: Array) -> Array:
        products = others @ across
        apart: Array = lengths[:, None] + squares - 2 * dense(products)
        return np.where(apart > 1e-9 * squares, apart, 0.0)  # anything nearer is the same point, up to rounding

    if taken is None:
        chosen = [_drawn(places.shape[0], rng, counts)]
        nearest = distances(places[chosen], squares[chosen])[0]
    else:
        chosen = []
        nearest = distances(taken, np.square(taken).sum(axis=1)).min(axis=0)
    each: Any = 1.0 if counts is None else counts
    while len(chosen) < K and nearest.any():
        sums = np.cumsum(each * nearest)
        trials = np.searchsorted(sums, rng.random(2 + int(np.log(K))) * sums[-1], side="right")
        left = np.minimum(nearest, distances(places[trials], squares[trials]))
        potential = (each * left).sum(axis=1)
        best = int(np.argmax(potential <= (1 + 1e-6) * potential.min()))
        chosen.append(int(trials[best]))
        nearest = left[best]
    return chosen


def _drawn(n: int, rng: np.random.Generator, counts: Array | None) -> int:
    """One of n rows, as likely as it is often there."""
    if counts is None:
        return int(rng.integers(n))
    ends = np.cumsum(counts)
    whole = (counts == np.round(counts)).all()
    place = rng.integers(int(ends[-1])) if whole else rng.random() * ends[-1]
    return min(int(np.searchsorted(ends, place, side="right")), n - 1)


def _nndsvda(X: Any, K: int, rng: np.random.Generator) -> Array:
    """NNDSVD (Boutsidis and Gallopoulos 2008): of each singular pair the stronger sign, zeros filled by averages."""
    from sklearn.utils.extmath import randomized_svd  # scikit-learn takes a second to import, and few start here

    rank = min(K, *X.shape)
    U, _, Vt = randomized_svd(X, rank, random_state=int(rng.integers(2**31)))
    components = np.empty((rank, X.shape[1]), dtype=X.dtype)
    for k in range(rank):
        plus = np.linalg.norm(np.maximum(U[:, k], 0)) * np.linalg.norm(np.maximum(Vt[k], 0))
        minus = np.linalg.norm(np.maximum(-U[:, k], 0)) * np.linalg.norm(np.maximum(-Vt[k], 0))
        components[k] = np.maximum(Vt[k] if plus >= minus else -Vt[k], 0)
    components = components[components.max(axis=1) > 0]
    average = components.mean(axis=1, keepdims=True)
    return _pad(_to_unit_maximum(np.where(components > 0, components, average)), K, X, rng)


def _numbers(init: Any, dtype: np.dtype[Any]) -> Array:
    try:
        given = np.asarray(init)
        W = given.astype(dtype) if given.dtype.kind in "buifO" else None
    except (TypeError, ValueError, OverflowError):
        W = None
    if W is None:
        raise ValueError(f"init must be one of {', '.join(INITS)} or an array of numbers, got {type(init).__name__}.")
    return W


def _users(init: Any, shape: tuple[int, int], dtype: np.dtype[Any], known: Array | None) -> Array:
    W = _numbers(init, dtype)
    if W.shape != shape:
        rows = "n_components" if known is None else f"n_components - {len(known)} fixed"
        raise ValueError(f"the initial dictionary must have shape ({rows}, n_features) = {shape}, got {W.shape}.")
    if not np.isfinite(W).all() or (W < 0).any():
        raise ValueError("the initial dictionary has negative, NaN or infinite entries.")
    return W


def _pad(W: Array, K: int, X: Any, rng: np.random.Generator) -> Array:
    """K components: where the batch gave fewer, the mean sample with every entry multiplied by a random number."""
    missing = K - len(W)
    if missing <= 0:
        return W
    return np.vstack([W, _to_unit_maximum(_profile(X) * _uniform(X, missing, rng))])


def _profile(X: Any, counts: Array | None = None) -> Array:
    """The mean sample, with a little for features that the first batch has not shown yet."""
    if counts is not None:
        X = (scipy.sparse.diags_array(counts * (len(counts) / counts.sum())) @ X).astype(X.dtype)
    profile: Array = np.asarray(X.mean(axis=0)).ravel() + 0.01 * X.mean()
    return profile.astype(X.dtype)


def _to_unit_maximum(W: Array) -> Array:
    return W / W.max(axis=1, keepdims=True)


def _to_size_of(X: Any, W: Array) -> Array:
    """Components with the mean of the samples."""
    return W * (W.dtype.type(X.mean()) / W.mean(axis=1, keepdims=True))
