"""``consensus``: the components that several fits agree on, as one dictionary, and how far the fits agree."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples
from sklearn.neighbors import NearestNeighbors

from onmf._support.arrays import Array, Mask
from onmf._support.checks import generators, is_number, require_seed, require_whole
from onmf.estimators.online import OnlineNMF
from onmf.insight.convergence import LossCurve
from onmf.insight.features import directions
from onmf.selection.holdout import rewinding_source
from onmf.selection.rank import FitProgress

LITTLE = 4.0  # times the least weight of a feature: the weight of a feature that no component of the consensus has
NEIGHBOURS = 0.3  # of the runs must have found a component too, for it not to lie alone: cNMF's share
STARTS = 10  # of k-means


@dataclass(frozen=True, eq=False, repr=False)
class Consensus:
    """The components that several runs agree on, the steadiest first, and a model that has them as its dictionary.

    ``print`` shows a table. ``model`` is an ``OnlineNMF`` for ``transform``, ``save``, ``annotate`` and the like.
    """

    model: OnlineNMF
    stability: float  # the mean silhouette of all runs' components: 1 if every run has found the same
    stabilities: Array  # (K,): the mean silhouette of each group
    sizes: Array  # (K,): how many components of single runs each is the median of
    distances: Array  # (seeds, K): from each run's components to the nearest ones
    threshold: float  # components at a larger distance were left out

    @property
    def components(self) -> Array:
        """Return the dictionary (K, F)."""
        return self.model.components_

    @property
    def kept(self) -> float:
        """Return the share of the runs' components that were not left out."""
        return float((self.distances <= self.threshold).mean())

    def __repr__(self) -> str:
        seeds, K = self.distances.shape
        return f"Consensus({K} components of {seeds} runs: stability {self.stability:.3f}, {self.kept:.0%} kept)"

    def __str__(self) -> str:
        lines = ["component  stability   size"]
        for k, (stability, size) in enumerate(zip(self.stabilities, self.sizes, strict=True)):
            lines.append(f"{k:9d}  {stability:9.3f}  {size:5d}")
        seeds, K = self.distances.shape
        said = (
            f"The stability of {K} components over {seeds} runs is {self.stability:.3f}. Of the runs' {seeds * K}, "
            f"{self.kept:.0%} were kept: those at a mean distance of at most {self.threshold:g} to the nearest ones."
        )
        return "\n".join([*lines, "", said])


def consensus(
    X: Any,
    n_components: int,
    seeds: int = 10,
    *,
    threshold: float = 0.5,
    random_state: Any = None,
    callback: Callable[[FitProgress], Any] | None = None,
    verbose: int = 0,
    **settings: Any,
) -> Consensus:
    """Learn several times, from different starts, and keep the components that the runs agree on, as cNMF does.

    The components of all runs are brought to length 1. Those with few neighbours are left out, the others form
    ``n_components`` groups by k-means, and the median of a group is a component.

    Parameters
    ----------
    X : array, sparse matrix, data frame, AnnData or Source
        The samples. A ``Source``, or a list of batches in ``onmf.data.Batches``, is read once per pass and run.
    n_components : int
        K, at least 2.
    seeds : int, default 10
        Runs, each with a start and an order of the samples of its own.
    threshold : float, default 0.5
        A run's component is left out if the mean distance to its nearest neighbours among all, as many as three tenths
        of the runs, is larger. Distances between components of length 1 lie between 0 and 1.41; 2 keeps all.
    random_state : int, RandomState, Generator or None
        Seeds the runs and the grouping.
    callback : callable or None
        Called with a ``FitProgress`` after every fit; its loss is that of the last batch.
    verbose : int, default 0
        1 prints a line after every fit.
    **settings
        Other parameters of ``OnlineNMF``: divergence, method, missing, ... ``max_passes`` is 5 unless it is given.

    Returns
    -------
    Consensus
        ``components``, ``stability`` over all and ``stabilities`` of each, the share ``kept`` of the runs' components,
        and ``model``, whose dictionary is the consensus. Stability is the silhouette score of all runs' components,
        left out or not; compare it between numbers of components: a wrong number is less stable.

    Cost: ``seeds`` fits of ``max_passes`` passes, and one pass with the consensus. Memory holds all runs' components.
    """
    require_whole(1, n_components=n_components)
    require_whole(2, seeds=seeds)
    if n_components == 1:
        raise ValueError("one component alone has no others to be told from; give n_components of at least 2.")
    if not is_number(threshold) or not threshold > 0:
        raise ValueError(f"threshold is a distance between components of length 1, above 0; got {threshold!r}.")
    require_seed(random_state)
    if "fixed" in settings:
        raise TypeError("consensus sets fixed itself; leave it out.")
    if "callbacks" in settings:
        raise TypeError("pass callback, not callbacks.")
    settings = {"max_passes": 5} | settings
    source = rewinding_source(X)
    X = X if source is None else source
    grouping, *drawn = generators(random_state)[0].integers(2**31, size=seeds + 1).tolist()
    runs: list[OnlineNMF] = []
    with warnings.catch_warnings():
        for seed in drawn:
            runs.append(OnlineNMF(n_components, random_state=seed, **settings).fit(X))
            warnings.simplefilter("ignore")  # the other fits would repeat the warnings of the first
            loss = float(LossCurve.of(runs[-1].history_).loss[-1])
            if callback is not None:
                callback(FitProgress(n_components, loss, len(runs), seeds))
            if verbose:
                print(f"[onmf] run {len(runs)} of {seeds}: loss {loss:.6g}", flush=True)
        pooled = np.concatenate([run.components_ for run in runs])
        distances = neighbour_distances(pooled, seeds)
        kept = distances <= threshold
        there = len(np.unique(directions(pooled[kept]).round(9), axis=0))  # different ones, up to rounding
        if there < n_components:
            raise ValueError(
                f"the runs agree on fewer than {n_components} components: of their {len(pooled)}, {there} "
                f"different ones have neighbours within {threshold:g}; lower n_components, or raise threshold."
            )
        labels, widths = clustered(pooled, kept, n_components, grouping)
        groups = [kept & (labels == k) for k in range(n_components)]
        fitted = runs[0]._fitted
        least = LITTLE * fitted.state.C.eps * (fitted.units.scale if fitted.shares else 1.0)
        settings |= {"fixed": _medians(pooled, groups, least), "max_passes": 1}
        model = OnlineNMF(n_components, random_state=drawn[0], **settings).fit(X)
    return Consensus(
        model=model,
        stability=float(widths.mean()),
        stabilities=np.array([widths[labels == k].mean() for k in range(n_components)]),
        sizes=np.array([np.count_nonzero(group) for group in groups]),
        distances=distances.reshape(seeds, n_components),
        threshold=float(threshold),
    )


def neighbour_distances(W: Array, runs: int) -> Array:
    """Return the mean distance of each component to its nearest ones, as many as three tenths of the runs."""
    near = NearestNeighbors(n_neighbors=max(1, round(NEIGHBOURS * runs))).fit(directions(W))
    distances, _ = near.kneighbors()  # of every point, itself left out
    return np.asarray(distances.mean(axis=1))


def clustered(W: Array, kept: Mask, K: int, seed: int) -> tuple[npt.NDArray[np.intp], Array]:
    """Return the group of each component, the steadiest first, by k-means of the kept ones, and the silhouettes.

    The others join the nearest centre and have silhouettes too: 1 in a narrow group far from the others, below 0 in a
    wrong one. A wrong K leaves many components alone, and the rest without them would look steady.
    """
    points = directions(W)
    means = KMeans(K, n_init=STARTS, random_state=seed).fit(points[kept])
    labels = means.predict(points)
    labels[kept] = means.labels_
    widths = silhouette_samples(points, labels)
    steady = np.argsort([-widths[labels == k].mean() for k in range(K)], kind="stable")
    return np.argsort(steady)[labels], widths


def _medians(W: Array, groups: Sequence[Mask], least: float) -> Array:
    """Return the median direction of each group times its median length, which penalties and the simplex give it.

    The median of a feature that half of the runs leave at zero is zero. Where no component is left to fit it, as some
    divergences need, the mean takes its place, and a trace where that is zero too: components together weigh ``least``
    or more at every feature, in the units in which ``fixed`` is given.
    """
    points, lengths = directions(W), np.linalg.norm(W.astype(np.float64), axis=1)
    sizes = np.array([[np.median(lengths[group])] for group in groups])
    medians = sizes * np.array([np.median(points[group], axis=0) for group in groups])
    lacking = medians.sum(axis=0) < least
    if lacking.any():
        means = sizes * np.array([points[group][:, lacking].mean(axis=0) for group in groups])
        medians[:, lacking] = np.maximum(means, least / len(groups))
    return medians
