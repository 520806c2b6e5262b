"""Do fits that begin differently find the same atoms?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

from onmf._support.arrays import Array


def stability(dictionaries: Sequence[Array]) -> float:
    """The mean similarity of matched atoms, over all pairs of dictionaries W (K, F): 1 if all have the same atoms."""
    return float(np.mean([matched_similarity(*pair) for pair in combinations(dictionaries, 2)]))


def matched_similarity(one: Array, other: Array) -> float:
    """The mean cosine of the angles between atoms, each matched with one of the other's so that it is largest."""
    cosines = directions(one) @ directions(other).T
    return float(cosines[linear_sum_assignment(cosines, maximize=True)].mean())


def directions(W: Array) -> Array:
    """The atoms, each of length 1; zeros stay zeros."""
    W = W.astype(np.float64)
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    return np.divide(W, norms, out=np.zeros_like(W), where=norms > 0)
