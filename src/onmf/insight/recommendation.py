"""Items for users: ranked by the fit of a model, beside the ratings that the users are expected to give.

Where ratings that are not known are learnt as zeros, the fit is what people like this user rate, and how highly. What
somebody chooses to rate tells little about the rating itself, which is predicted by the item's mean, and by how the
user departs from such means: docs/decisions/0023-recommendation.md.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy

from onmf._support.arrays import Array, Data
from onmf._support.checks import require_whole
from onmf._support.wording import counted, is_or_are
from onmf.data import Rows
from onmf.data.ratings import user_lines
from onmf.insight.features import Model, names_of, source_of
from onmf.topics import leading

BLOCK = 256  # users at a time


class Recommendation(NamedTuple):
    """An item for a user, with its score and the rating to expect.

    Attributes
    ----------
    item : str
        The name of the item, which is that of a feature.
    score : float
        What items are ranked by.
    rating : float
        The rating that the user is expected to give; NaN where nothing tells.

    Examples
    --------
    >>> best = onmf.recommend(model, X[:1], n=1)[0][0]
    >>> best.item, round(best.score, 1)
    ('feature 4', 0.6)
    """

    item: str
    score: float
    rating: float


def recommend(model: Model, user: Data, n: int = 10, *, exclude_seen: bool = True) -> list[list[Recommendation]]:
    """Return for each user the n items that suit best, the best first.

    Parameters
    ----------
    model : OnlineNMF or BatchNMF
        A fitted model of users x items.
    user : array, sparse matrix or data frame (users, items)
        Known ratings of users, who need not be among those learnt from. NaN and, unless the model has
        ``missing="nan"``, zero is not known. Items of a data frame are found by name; those that the model does not
        know are left out, with a warning.
    n : int, default 10
        Items for each user.
    exclude_seen : bool, default True
        Whether to leave out what the user has rated.

    Returns
    -------
    list of lists of Recommendation
        For each user, (item, score, rating), the highest score first.

    Examples
    --------
    >>> ratings = [[5, 4, 0, 1], [4, 5, 0, 1], [1, 0, 5, 4], [0, 1, 4, 5]]
    >>> ratings = np.array(ratings, float)
    >>> settings = {"divergence": "squared_l2", "max_passes": 20}
    >>> model = OnlineNMF(2, **settings, random_state=0).fit(ratings)
    >>> [each.item for each in onmf.recommend(model, ratings[:1], n=1)[0]]
    ['feature 2']
    """
    require_whole(1, n=n)
    names = names_of(model)
    if hasattr(user, "reindex") and names is not None:
        if unknown := len(set(map(str, user.columns)) - set(names)):
            what = f"{counted(unknown, 'item')} that the model does not know {is_or_are(unknown)} left out."
            warnings.warn(what, UserWarning, stacklevel=2)
        user = user.rename(columns=str).reindex(columns=names)
    X = user.tocsr() if scipy.sparse.issparse(user) else np.atleast_2d(np.asarray(user, dtype=np.float64))
    names, found = names or [f"feature {f}" for f in range(X.shape[1])], []
    for first in range(0, X.shape[0], BLOCK):
        known = _known(X[first : first + BLOCK], zeros=model.missing == "nan")
        scores, ratings = scores_and_ratings(model, known)
        if exclude_seen:
            scores = np.where(np.isnan(known), scores, -np.inf)
        for score, rating, items in zip(scores, ratings, leading(scores, n), strict=True):
            there = (f for f in items if score[f] > -np.inf)
            found.append([Recommendation(names[f], float(score[f]), float(rating[f])) for f in there])
    return found


def scores_and_ratings(model: Any, known: Array) -> tuple[Array, Array]:
    """Return the fits of users, and the ratings to expect of them (n, F); what is not ``known`` is NaN.

    The ratings of a model from which others were missing are its fits. Otherwise they follow from the items' means,
    which the reader of ratings has left in the model, and from how the user departs from these.
    """
    seen, F = ~np.isnan(known), model.n_features_in_
    if known.shape[1] != F:
        raise ValueError(f"a user has {counted(known.shape[1], 'rating')}, but the model has {counted(F, 'item')}.")
    stored = scipy.sparse.csr_matrix((known[seen], np.nonzero(seen)), shape=known.shape)
    served = model.served(Rows(known if model.missing == "nan" else stored), BLOCK)
    scores = np.asarray(model.inverse_transform(np.concatenate([H for _, H in served])), dtype=np.float64)
    if model.implicit == "missing" or model.missing == "nan":
        return scores, scores
    W, nothing = model.components_, ~seen.any(axis=1)  # who has rated nothing is fitted as the average user
    scores[nothing] = (model.usage_ / W.sum(axis=1)) @ W * (model.scale_ * F)
    options, (rows, items) = source_of(model).options, np.nonzero(seen)
    try:
        means = np.asarray(options.get("means", [np.nan] * F), dtype=np.float64).reshape(F)
        low, high = float(options.get("low", 0)), float(options.get("high", np.inf))
    except (ValueError, TypeError):
        raise ValueError("the means of ratings in this model are damaged; learn it again.") from None
    level, slope = user_lines(rows, items, known[seen], means, len(known))
    return scores, np.clip(level[:, None] + np.outer(slope, means), low, high)


def _known(X: Any, zeros: bool) -> Array:
    """Return rows in which NaN is not known: what a sparse X does not store and, unless they count, zeros of others."""
    if not scipy.sparse.issparse(X):
        return X if zeros else np.where(X == 0, np.nan, X)
    known, (rows, columns) = np.full(X.shape, np.nan), (np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices)
    known[rows, columns] = X.data
    return known
