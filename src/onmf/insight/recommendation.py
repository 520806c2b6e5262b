"""Items for users: ranked by how much of them a model expects, with the ratings that the users would give.

Under a divergence for counts, with ratings that are not known as zeros, the fit is what people like this user rate, and
how highly: that ranks. A rating itself is predicted as the item's mean and the user's bias, both damped, since what
people choose to rate tells little about the rating (docs/decisions/0023-recommendation.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy

from onmf._support.arrays import Array
from onmf._support.checks import require_whole
from onmf._support.wording import counted, is_or_are
from onmf.data import Rows
from onmf.data.ratings import DAMPING
from onmf.insight.features import names_of, source_of
from onmf.insight.topics import leading
from onmf.samples import canonical

BLOCK = 1024  # users at a time


class Recommendation(NamedTuple):
    """An item for a user: its score, by which items are ranked, and the rating to expect, NaN where nothing tells."""

    item: str
    score: float
    rating: float


def recommend(model: Any, user: Any, n: int = 10, *, exclude_seen: bool = True) -> list[list[Recommendation]]:
    """Return for each user the n items that suit best, the best first.

    ``user`` holds known ratings, one row per user: an array or data frame, in which NaN and, unless the model has
    ``missing="nan"``, zero is not known; a sparse matrix; or for one user a mapping of items to ratings. Items of data
    frames and mappings are found by name; those that the model does not know are left out, with a warning. Users need
    not be among those that were learnt from. ``exclude_seen`` leaves out what a user has rated.
    """
    require_whole(1, n=n)
    X, found = known_ratings(model, user), []
    names = names_of(model) or [f"feature {f}" for f in range(X.shape[1])]
    for first in range(0, X.shape[0], BLOCK):
        part = X[first : first + BLOCK]
        scores = fits(model, part)
        ratings = predicted_ratings(model, part, scores)
        if exclude_seen:
            scores = scores.copy()
            scores[_places(part)] = -np.inf
        for of_user, rated, items in zip(scores, ratings, leading(scores, n), strict=True):
            there = (f for f in items if of_user[f] > -np.inf)
            found.append([Recommendation(names[f], float(of_user[f]), float(rated[f])) for f in there])
    return found


def predicted_ratings(model: Any, X: Any, fitted: Array | None = None) -> Array:
    """Return the ratings (n, F) that users of known ratings X, a sparse matrix, are expected to give.

    A model of ratings of which others are missing has them as its fits. Otherwise they are the items' means, which the
    reader of ratings has left in the model, and the user's mean distance from these; NaN where there are none.
    """
    if _masked(model):
        return fits(model, X) if fitted is None else fitted
    options = source_of(model).options
    means = np.asarray(options.get("means", [np.nan] * X.shape[1]), dtype=np.float64)
    rows, items = _places(X)
    apart, rated = np.bincount(rows, X.data - means[items], X.shape[0]), np.diff(X.indptr)
    found = means + (apart / (rated + DAMPING))[:, None]
    return np.clip(found, options.get("low", -np.inf), options.get("high", np.inf))


def fits(model: Any, X: Any) -> Array:
    """Return the fits (n, F) of users of known ratings X, a sparse matrix, with coefficients that are found anew.

    A user without any rating is fitted as the average user where nothing is missing.
    """
    given = X
    if model.missing == "nan":
        given = np.full(X.shape, np.nan)
        given[_places(X)] = X.data
    H = np.concatenate([H for _, H in model.served(Rows(given), BLOCK)])
    found: Array = model.inverse_transform(H).astype(np.float64)
    if not _masked(model) and not (rated := np.diff(X.indptr) > 0).all():
        W = model.components_
        found[~rated] = (model.usage_ / W.sum(axis=1)) @ W * (model.scale_ * X.shape[1])
    return found


def known_ratings(model: Any, user: Any) -> Any:
    """Return what is known of users as a sparse matrix with the model's features."""
    names, columns = names_of(model), getattr(user, "columns", None)
    if isinstance(user, Mapping):
        columns, user = list(user), list(user.values())
        if names is None:
            raise ValueError("the items of this model have no names; give the ratings as an array, one per item.")
    if scipy.sparse.issparse(user):
        X = canonical(user)
    else:
        dense = np.atleast_2d(np.asarray(user, dtype=np.float64))
        rows, items = np.nonzero(~np.isnan(dense) & ((dense != 0) | (model.missing == "nan")))
        X = scipy.sparse.csr_matrix((dense[rows, items], (rows, items)), shape=dense.shape)
    if columns is not None and names is not None:
        place = {name: f for f, name in enumerate(names)}
        places = np.array([place.get(str(name), -1) for name in columns])
        if unknown := int((places < 0).sum()):
            what = f"{counted(unknown, 'item')} of {len(places)} {is_or_are(unknown)} not known to the model"
            warnings.warn(f"{what}, and left out.", UserWarning, stacklevel=3)
        X = X[:, places >= 0]
        X = scipy.sparse.csr_matrix(
            (X.data, places[places >= 0][X.indices], X.indptr), shape=(len(X.indptr) - 1, len(names))
        )
    if X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"a user has {counted(X.shape[1], 'rating')}, but the model has {counted(model.n_features_in_, 'item')}."
        )
    return X


def _masked(model: Any) -> bool:
    return model.implicit == "missing" or model.missing == "nan"


def _places(X: Any) -> tuple[Any, Any]:
    """Return the rows and columns of what a sparse matrix stores, zeros included."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices
