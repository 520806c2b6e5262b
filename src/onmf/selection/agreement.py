"""How far the components of several fits agree: the one definition of stability, for ranks and for the consensus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples
from sklearn.neighbors import NearestNeighbors

from onmf._support.arrays import Array, Mask
from onmf.insight.features import directions

NEIGHBOURS = 0.3  # of the runs must have found a component too, for it not to lie alone: cNMF's share
STARTS = 10  # of k-means
ALONE = 0.5  # the distance beyond which a component lies alone


@dataclass(frozen=True)
class Agreement:
    """The components of all runs in K groups, the steadiest first, and those that lie alone."""

    kept: Mask  # those that do not
    labels: npt.NDArray[np.intp]
    widths: Array  # silhouettes: 1 in a narrow group far from the others, below 0 in a wrong one
    distances: Array  # to the nearest components

    @classmethod
    def of(cls, dictionaries: Sequence[Array], threshold: float = ALONE, seed: int = 0) -> Agreement | None:
        """Compare dictionaries (K, F); None if fewer than K different components have near neighbours."""
        pooled, K = np.concatenate(dictionaries), len(dictionaries[0])
        distances = neighbour_distances(pooled, len(dictionaries))
        kept = distances <= threshold
        if different(pooled[kept]) < K:
            return None
        return cls(kept, *clustered(pooled, kept, K, seed), distances)

    @property
    def stability(self) -> float:
        """Return the mean silhouette of all components: 1 if every run has found the same."""
        return float(self.widths.mean())


def stability(dictionaries: Sequence[Array]) -> float:
    """Return the stability of several dictionaries; 1 of single components, and 0 where all are alike."""
    if len(dictionaries[0]) == 1:
        return 1.0
    found = Agreement.of(dictionaries) or Agreement.of(dictionaries, np.inf)  # where too many lie alone, with them
    return 0.0 if found is None else found.stability


def different(W: Array) -> int:
    """Return how many components have directions of their own, up to rounding."""
    return len(np.unique(directions(W).round(9), axis=0))


def neighbour_distances(W: Array, runs: int) -> Array:
    """Return the mean distance of each component to its nearest ones, as many as three tenths of the runs."""
    near = NearestNeighbors(n_neighbors=max(1, round(NEIGHBOURS * runs))).fit(directions(W))
    distances, _ = near.kneighbors()  # of every point, itself left out
    return np.asarray(distances.mean(axis=1))


def clustered(W: Array, kept: Mask, K: int, seed: int) -> tuple[npt.NDArray[np.intp], Array]:
    """Return the group of each component, the steadiest first, by k-means of the kept ones, and the silhouettes.

    The others join the nearest centre and have silhouettes too: a wrong K leaves many components alone, and the rest
    without them would look steady.
    """
    points = directions(W)
    means = KMeans(K, n_init=STARTS, random_state=seed).fit(points[kept])
    labels = means.predict(points)
    labels[kept] = means.labels_
    widths = silhouette_samples(points, labels)
    steady = np.argsort([-widths[labels == k].mean() for k in range(K)], kind="stable")
    return np.argsort(steady)[labels], widths
