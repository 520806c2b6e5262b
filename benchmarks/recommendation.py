"""Recommendations from ratings: what a list of ten is worth, and how far predicted ratings are from those given.

    python -m benchmarks.recommendation [--data FOLDER] [--folds 3] [--used 3] [--ranks]

MovieLens (ml-latest-small: 100,836 ratings of 9,724 films by 610 users), twice:

- by entry: a fold of all ratings is held out; every user was learnt from;
- new users: a fold of the users is held out; a fold of their ratings is to be predicted from the others, without
  learning again.

``precision@10``: the share of ten films, which the user has not rated as far as is known, that are among the held-out
ratings; ``liked``: among those of at least four stars. ``lists``: how many different lists there are per hundred users.
``RMSE``: of the held-out ratings, between half a star and five; a dash where a contestant predicts none. Seconds are
CPU time, on one thread, of learning and of scoring all users. Of a film that nobody has rated in what is learnt from,
all predict the user's damped mean. ``--ranks`` compares divergences and numbers of components instead.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import NMF, TruncatedSVD
from threadpoolctl import threadpool_limits

from benchmarks.data_sets import load_movielens
from onmf import OnlineNMF
from onmf.data import open_source
from onmf.insight.recommendation import scores_and_ratings

LIKED, TOP = 4.0, 10
Found = tuple[Any, Any]  # scores and ratings (users, films); None where there are none
Contestant = Callable[[Any, Any], Found]  # takes what is learnt from, and what is known of those to be served


def recipe(train: Any, known: Any, K: int = 20, divergence: str = "squared_l2", ones: bool = False) -> Found:
    """The guide's recipe, from the file of ratings on; ``ones``: what is seen or not, without the ratings."""
    model = OnlineNMF(K, divergence=divergence, max_passes=5, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path, entries = Path(folder) / "ratings.csv", train.tocoo()
        lines = zip(entries.row, entries.col, np.ones(train.nnz) if ones else entries.data, strict=True)
        path.write_text("user,item,value\n" + "".join(f"{user},{item},{value}\n" for user, item, value in lines))
        model.fit(open_source(f"{path}?user=user&item=item&value=value"))
    scores, ratings = np.zeros(known.shape), np.zeros(known.shape)
    items = model.feature_names_in_.astype(int)  # those that somebody has rated
    part = known[:, items]
    dense = np.full(part.shape, np.nan)
    dense[part.nonzero()] = 1.0 if ones else part.data
    scores[:, items], ratings[:, items] = scores_and_ratings(model, dense)
    return scores, None if ones else ratings


def popularity(train: Any, known: Any) -> Found:
    """The films that most people have rated."""
    return np.tile(np.asarray((train > 0).sum(axis=0), dtype=float).ravel(), (known.shape[0], 1)), None


def missing(how: str) -> Contestant:
    """Ratings of which others are missing, learnt under squared l2; items that are ranked by the predicted rating."""

    def learn(train: Any, known: Any) -> Found:
        settings: dict[str, Any] = {"divergence": "squared_l2", "implicit": "missing", "random_state": 0}
        if how == "films":  # as rows, between two kinds of films; users are then learnt, not folded in
            model = OnlineNMF(2, coefficients="simplex", l2_coefficients=3.0, max_passes=2, **settings).fit(train.T)
            H = model.transform(train.T.tocsr())
            users = OnlineNMF(2, fixed=H.T, **settings)
            fit = users.fit(train)
            ratings = fit.inverse_transform(fit.transform(known))
        elif how == "users":  # between two kinds of users
            model = OnlineNMF(2, coefficients="simplex", l2_coefficients=3.0, max_passes=2, **settings).fit(train)
            ratings = model.inverse_transform(model.transform(known))
        else:  # a constant component, whose coefficient is the user's bias, and the films' damped means
            counts = np.diff(train.tocsc().indptr)
            means = (np.asarray(train.sum(axis=0)).ravel() + 3 * train.data.mean()) / (counts + 3)
            fixed = np.stack([np.ones(len(means)), means])
            model = OnlineNMF(2, fixed=fixed, l2_coefficients=1.0, **settings).fit(train)
            ratings = model.inverse_transform(model.transform(known))
        return ratings, ratings

    return learn


def factors(model: Any) -> Contestant:
    """Factors of the ratings, unknown ones being zeros, by scikit-learn."""

    def learn(train: Any, known: Any) -> Found:
        model.fit(train)
        return model.transform(known) @ model.components_, None

    return learn


def neighbours(train: Any, known: Any) -> Found:
    """The films whose raters are those of the user's films, by the cosine."""
    seen = (train > 0).astype(float)
    counts = np.maximum(np.asarray(seen.sum(axis=0)).ravel(), 1)
    alike = (seen.T @ seen).toarray() / np.sqrt(np.outer(counts, counts))
    np.fill_diagonal(alike, 0)
    return (known > 0) @ alike, None


CONTESTANTS: dict[str, Contestant] = {
    "onmf, the recipe": recipe,
    "onmf, the recipe on 0/1": lambda train, known: recipe(train, known, ones=True),
    "onmf, kl, K = 10": lambda train, known: recipe(train, known, 10, "kl"),
    "popularity": popularity,
    "cosine neighbours": neighbours,
    "scikit-learn NMF, kl, K = 10": factors(NMF(10, beta_loss="kullback-leibler", solver="mu", random_state=0)),
    "scikit-learn TruncatedSVD, K = 20": factors(TruncatedSVD(20, random_state=0)),
    "onmf, missing, films as rows": missing("films"),
    "onmf, missing, users as rows": missing("users"),
    "onmf, missing, constant and means fixed": missing("fixed"),
}


def judged(found: Found, train: Any, known: Any, held: Any, seconds: float) -> list[float]:
    """Precision, precision among liked films, lists per hundred users, RMSE, and seconds."""
    scores, ratings = np.array(found[0], dtype=float), found[1]
    if ratings is not None:
        of_user = np.diff(known.indptr)
        damped = (np.asarray(known.sum(axis=1)).ravel() + 3 * train.data.mean()) / (of_user + 3)
        ratings = np.where(np.diff(train.tocsc().indptr) > 0, ratings, damped[:, None])
    scores[known.nonzero()] = -np.inf
    top = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    stars = np.take_along_axis(held.toarray(), top, axis=1)
    lists = 100 * len({tuple(sorted(each)) for each in top.tolist()}) / len(top)
    rows, films = held.nonzero()
    errors = np.nan if ratings is None else np.clip(ratings[rows, films], 0.5, 5.0) - held.data
    return [(stars > 0).mean(), (stars >= LIKED).mean(), lists, float(np.sqrt(np.square(errors).mean())), seconds]


def tasks(ratings: Any, folds: int, used: int) -> dict[str, list[tuple[Any, Any, Any]]]:
    """What is learnt from, what is known of those to be served, and what is held out of these, for every fold."""
    rng = np.random.default_rng(0)
    entries = rng.permutation(ratings.nnz) % folds
    users = rng.permutation(ratings.shape[0]) % folds

    def part(keep: Any) -> Any:
        found = ratings.copy()
        found.data = np.where(keep, ratings.data, 0)
        found.eliminate_zeros()
        return found

    return {
        "by entry": [(part(entries != k), part(entries != k), part(entries == k)) for k in range(used)],
        "new users": [
            (ratings[users != k], part(entries != k)[users == k], part(entries == k)[users == k]) for k in range(used)
        ],
    }


def table(title: str, contestants: dict[str, Contestant], folds: list[tuple[Any, Any, Any]]) -> None:
    """Print the means over the folds."""
    print(f"\n{title:<42}precision@10   liked   lists    RMSE   seconds", flush=True)
    for name, learn in contestants.items():
        found = []
        for train, known, held in folds:
            began = time.process_time()
            result = learn(train, known)
            found.append(judged(result, train, known, held, time.process_time() - began))
        precision, liked, lists, rmse, seconds = np.mean(found, axis=0)
        told = "       -" if np.isnan(rmse) else f"{rmse:8.4f}"
        print(f"{name:<42}{precision:12.3f}{liked:8.3f}{lists:8.1f}{told}{seconds:10.1f}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--used", type=int, default=3, help="folds that are held out in turn")
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--data", default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    contestants, compared = dict(CONTESTANTS), tasks(load_movielens(given.data).tocsr(), given.folds, given.used)
    if given.ranks:
        cases = [(divergence, K) for divergence in ("squared_l2", "beta:1.5", "kl", "hellinger") for K in (10, 20, 30)]
        contestants = {
            f"{divergence}, K = {K}": lambda train, known, K=K, divergence=divergence: recipe(
                train, known, K, divergence
            )
            for divergence, K in cases
        }
    with threadpool_limits(1):
        recipe(*compared["new users"][0][:2])  # compiles what is compiled once
        for title, folds in compared.items():
            table(title, contestants, folds)


if __name__ == "__main__":
    main()
