"""Atoms of several fits, as points on the sphere: which of them lie alone, and which belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples
from sklearn.neighbors import NearestNeighbors

from onmf._support.arrays import Array, Mask
from onmf.selection.stability import directions

NEIGHBOURS = 0.3  # of the runs must have found an atom too, for it not to lie alone: cNMF's share
STARTS = 10  # of k-means


@dataclass(frozen=True)
class Clusters:
    """K groups of atoms, the steadiest first."""

    labels: npt.NDArray[np.intp]  # (atoms,): the group of each; that of the nearest centre for those that lie alone
    kept: Mask  # (atoms,): those that do not
    widths: Array  # (atoms,): the silhouette of each, 1 in a narrow group far from the others, below 0 in a wrong one

    def of_group(self, k: int) -> Mask:
        """The atoms that group k is made of."""
        return self.kept & (self.labels == k)


def lonelinesses(atoms: Array, runs: int) -> Array:
    """The mean distance of each atom's direction to the nearest ones, as many as three tenths of the runs."""
    near = NearestNeighbors(n_neighbors=max(1, round(NEIGHBOURS * runs))).fit(directions(atoms))
    distances, _ = near.kneighbors()  # of every point, itself left out
    return np.asarray(distances.mean(axis=1))


def clustered(atoms: Array, kept: Mask, K: int, seed: int) -> Clusters:
    """The kept atoms in K groups, by k-means; all others join the nearest, so that silhouettes tell of them too.

    A wrong K leaves many atoms alone: without these, what is left would look steady.
    """
    points = directions(atoms)
    means = KMeans(K, n_init=STARTS, random_state=seed).fit(points[kept])
    labels = means.predict(points)
    labels[kept] = means.labels_
    widths = silhouette_samples(points, labels)
    steady = np.argsort([-widths[labels == k].mean() for k in range(K)], kind="stable")
    return Clusters(np.argsort(steady)[labels], kept, widths)


def different(atoms: Array) -> int:
    """How many directions there are, up to rounding."""
    return len(np.unique(directions(atoms).round(9), axis=0))
