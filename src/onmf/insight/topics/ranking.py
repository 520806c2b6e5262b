"""Which features say what an atom is: the heaviest, those that are unusual, or those that no other atom has.

With p_kf = W_kf / sum_f W_kf, the shares of the features in atom k, and u_k the atom's share of all that was fitted:

- *weight*: p_kf;
- *lift*: p_kf / (p_f + 1/F), p_f = sum_k u_k p_kf being the feature's share over all atoms. The mean share 1/F is added
  since what is rare everywhere is many times next to nothing by chance alone: a feature as frequent as the mean one has
  half its lift, a frequent one nearly all, a rare one nearly none;
- *specificity*: p log(p / q) + q - p, the Kullback-Leibler divergence of p = p_kf from q, the largest p_jf of another
  atom j; with a minus if p < q. Large for features that are both frequent in the atom and missing
  elsewhere, as marker genes are (Dey, Hsiao and Stephens, PLoS Genetics 13(3), 2017). q is a tenth of 1/F at least.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onmf._support.arrays import Array

LEAST = 0.1  # of the mean share of a feature: below, a next best atom does not have it at all


def _weight(P: Array, usage: Array) -> Array:
    return P


def _lift(P: Array, usage: Array) -> Array:
    return P / (usage @ P + 1 / P.shape[1])


def _specificity(P: Array, usage: Array) -> Array:
    q = np.maximum(_next_best(P), LEAST / P.shape[1])
    tiny = float(np.finfo(P.dtype).tiny)
    return np.sign(P - q) * (P * np.log(np.maximum(P, tiny) / q) + q - P)


def _next_best(P: Array) -> Array:
    """The largest entry of each column but for one's own; zero if there is no other."""
    if len(P) == 1:
        return np.zeros_like(P)
    second, first = np.partition(P, len(P) - 2, axis=0)[-2:]
    best = np.arange(len(P))[:, None] == P.argmax(axis=0)
    return np.where(best, second, first)


RANKINGS: dict[str, Callable[[Array, Array], Array]] = {
    "weight": _weight,
    "lift": _lift,
    "specificity": _specificity,
}


def ranked(W: Array, usage: Array, by: str = "weight") -> Array:
    """A number for every atom and feature (K, F), the larger the more the feature tells of the atom."""
    if not isinstance(by, str) or by not in RANKINGS:
        raise ValueError(f"by must be one of {', '.join(RANKINGS)}, got {by!r}.")
    P = W.astype(np.float64)
    for size in (np.max, np.sum):  # the sum of large numbers may be beyond the range of numbers
        whole = size(P, axis=1, keepdims=True)
        P = P / np.where(whole > 0, whole, 1)
    return RANKINGS[by](P, usage)


def leading(values: Array, n: int) -> list[list[int]]:
    """The indices of the n largest values of each row, largest first; of equal ones, the first."""
    return np.argsort(-values, axis=1, kind="stable")[:, :n].tolist()
