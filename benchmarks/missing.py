"""How well missing entries are filled in: against the planted dictionary, and on films that nobody has rated yet.

    python -m benchmarks.missing planted [--samples 5000] [--seeds 3]
    python -m benchmarks.missing movielens [--data FOLDER] [--folds 5]

``planted``: data of 100 features and ten components with many small weights, without half of their entries. The loss on
these, relative to what the true dictionary gives with coefficients found from the same known entries.

``movielens``: 100,000 ratings in five folds by entry; the root mean squared error on the fold that was left out, beside
scikit-surprise's NMF and SVD with their defaults (``pip install scikit-surprise``), which are left out where it is not
installed. Learning takes one thread, as theirs does. Times are those of learning, and of ours with finding the
coefficients of all films. What no rating of the training folds tells of is predicted as their mean.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.data_sets import load_movielens
from onmf import OnlineNMF

FEATURES, COMPONENTS, SHARE = 100, 10, 0.5
PASSES = 5


def held_out(model: OnlineNMF, X: np.ndarray, known: np.ndarray) -> float:
    """The mean loss of the entries that are not known."""
    fit = model.inverse_transform(model.transform(np.where(known, X, np.nan)))
    return float(model.divergence_.d(np, X[~known], fit[~known]).mean())  # type: ignore[attr-defined]


def drawn(divergence: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A dictionary and noisy samples of it: Poisson, gamma (four looks), Gaussian, or the last with 5 % outliers."""
    W = rng.gamma(0.5, 1.0, (COMPONENTS, FEATURES)) + 1e-2
    Y = rng.gamma(0.5, 1.0, (n, COMPONENTS)) @ W
    if divergence == "kl":
        return W, rng.poisson(10 * Y) / 10
    if divergence == "is":
        return W, Y * rng.gamma(4.0, 0.25, Y.shape)
    X = np.maximum(Y + 0.1 * rng.normal(size=Y.shape), 0.0)
    if divergence == "huber":
        X += (rng.random(X.shape) < 0.05) * rng.exponential(10 * Y.mean(), X.shape)
    return W, X


def planted(samples: int, seeds: int, names: list[str]) -> None:
    """A table of the paper's noises."""
    print("divergence    loss on missing entries / that of the true dictionary, per seed      seconds")
    for name in names:
        ratios, spent = [], 0.0
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            W, X = drawn(name, samples, rng)
            known = rng.random(X.shape) >= SHARE
            began = time.perf_counter()
            model = OnlineNMF(COMPONENTS, divergence=name, missing="nan", max_passes=PASSES, random_state=seed)
            model.fit(np.where(known, X, np.nan))
            spent += time.perf_counter() - began
            truth = OnlineNMF(**model.get_params(deep=False))
            W /= W.max(axis=1, keepdims=True)
            truth._learned = replace(model._learned, state=replace(model._learned.state, W=W))
            ratios.append(held_out(model, X, known) / held_out(truth, X, known))
        print(f"{name:<14}{'  '.join(f'{ratio:.3f}' for ratio in ratios):<62}{spent / seeds:9.1f}", flush=True)


def films(folder: str | None, folds: int) -> None:
    """A table of root mean squared errors and seconds, the means over the folds."""
    ratings = load_movielens(folder).T.tocoo()  # films are the samples: there are more of them
    fold = np.random.default_rng(0).permutation(ratings.nnz) % folds
    entrants = {"onmf": _onmf} | _surprise()
    print("              RMSE     seconds")
    for name, learn in entrants.items():
        errors, seconds = [], []
        for number in range(folds):
            kept = fold != number
            places = ratings.row[kept], ratings.col[kept]
            known = scipy.sparse.csr_matrix((ratings.data[kept], places), shape=ratings.shape)
            predicted, spent = learn(known, ratings.row[~kept], ratings.col[~kept])
            missing = (np.diff(known.indptr)[ratings.row[~kept]] == 0) | ~np.isfinite(predicted)
            predicted = np.clip(np.where(missing, known.data.mean(), predicted), 0.5, 5.0)
            errors.append(float(np.sqrt(np.square(predicted - ratings.data[~kept]).mean())))
            seconds.append(spent)
        print(f"{name:<12}{np.mean(errors):7.4f}{np.mean(seconds):12.2f}", flush=True)


def _onmf(known: Any, films: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, float]:
    """Every film lies between two kinds of films, and a user has a rating for either kind: W.

    The coefficients of a film sum to one; the penalty draws them to equal shares, the more, the fewer ratings it has.
    Both constants were chosen on a tenth of the training ratings of the first fold.
    """
    began = time.perf_counter()
    model = OnlineNMF(
        2,
        divergence="squared_l2",
        implicit="missing",
        coefficients="simplex",
        l2_coefficients=3.0,
        max_passes=2,
        random_state=0,
    ).fit(known)
    H = model.transform(known)
    spent = time.perf_counter() - began
    return (H[films] * model.components_[:, users].T).sum(axis=1), spent


def _surprise() -> dict[str, Any]:
    try:
        import pandas as pd
        from surprise import NMF, SVD, Dataset, Reader
    except ImportError:
        return {}

    def learnt(kind: Any) -> Any:
        def learn(known: Any, films: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, float]:
            entries = known.tocoo()
            frame = pd.DataFrame({"user": entries.col, "film": entries.row, "stars": entries.data})
            data = Dataset.load_from_df(frame, Reader(rating_scale=(0.5, 5))).build_full_trainset()
            began = time.perf_counter()
            model = kind(random_state=0).fit(data)
            spent = time.perf_counter() - began
            return np.array([model.predict(user, film).est for user, film in zip(users, films, strict=True)]), spent

        return learn

    return {"NMF": learnt(NMF), "SVD": learnt(SVD)}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("planted", "movielens"))
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="kl,squared_l2,is,huber")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--data", default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "planted":
        planted(given.samples, given.seeds, given.only.split(","))
    else:
        films(given.data, given.folds)


if __name__ == "__main__":
    main()
