"""``consensus``: what several fits agree on, as one dictionary, and how far they agree."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_whole
from onmf._support.seeds import generators, require_seed
from onmf.data import Batches, Source, SourceError
from onmf.data.in_memory import is_stream
from onmf.estimators.online import OnlineNMF
from onmf.selection.clusters import Clusters, clustered, different, lonelinesses
from onmf.selection.stability import directions

LITTLE = 4.0  # times the least weight of a feature: what one gets that no atom of the consensus has


@dataclass(frozen=True)
class Run:
    """One fit of several: what a callback is told."""

    loss: float  # of its last batch
    done: int  # fits so far, and in all
    total: int


@dataclass(frozen=True, eq=False, repr=False)
class Consensus:
    """The components that several runs agree on, the steadiest first, and a model that has them as its dictionary.

    ``print`` shows a table. ``model`` is an ``OnlineNMF`` for ``transform``, ``save``, ``annotate`` and the like.
    """

    model: OnlineNMF
    stability: float  # the mean silhouette of all atoms: 1 if every run has found the same
    stabilities: Array  # (K,): the same for the atoms of each component
    sizes: Array  # (K,): how many atoms each is the median of
    distances: Array  # (seeds, K): of each run's atoms, to the nearest ones
    threshold: float  # above which they were left out

    @property
    def components(self) -> Array:
        """The dictionary (K, F)."""
        return self.model.components_

    @property
    def kept(self) -> float:
        """The share of atoms that were not left out."""
        return float((self.distances <= self.threshold).mean())

    def __repr__(self) -> str:
        seeds, K = self.distances.shape
        agreed = f"stability {self.stability:.3f}, {self.kept:.0%} of atoms kept"
        return f"Consensus({K} components of {seeds} runs: {agreed})"

    def __str__(self) -> str:
        lines = ["component  stability  atoms"]
        for k, (stability, size) in enumerate(zip(self.stabilities, self.sizes, strict=True)):
            lines.append(f"{k:9d}  {stability:9.3f}  {size:5d}")
        seeds, K = self.distances.shape
        said = (
            f"The stability of {K} components over {seeds} runs is {self.stability:.3f}. Of their {seeds * K} atoms, "
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
    callback: Callable[[Run], Any] | None = None,
    verbose: int = 0,
    **settings: Any,
) -> Consensus:
    """Learn several times, from different starts, and keep what the runs agree on, as cNMF does.

    The atoms of all runs are brought to length 1. Those with few neighbours are left out, the others form
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
        An atom is left out if the mean distance to its nearest neighbours among all, as many as three tenths of the
        runs, is larger. Distances between atoms of length 1 lie between 0 and 1.41; 2 keeps all.
    random_state : int, RandomState, Generator or None
        Seeds the runs and the grouping.
    callback : callable or None
        Called with a ``Run`` after every fit.
    verbose : int, default 0
        1 prints a line after every fit.
    **settings
        Other parameters of ``OnlineNMF``: divergence, method, missing, ... ``max_passes`` is 5 unless it is given.

    Returns
    -------
    Consensus
        ``components``, ``stability`` over all and ``stabilities`` of each, the share of atoms ``kept``, and ``model``,
        whose dictionary is the consensus. Stability is the silhouette score of all atoms, also of those left out;
        compare it between numbers of components, of which a wrong one is less stable.

    Cost: ``seeds`` fits of ``max_passes`` passes, and one pass with the consensus. All runs' atoms are held in memory.
    """
    require_whole(1, n_components=n_components)
    require_whole(2, seeds=seeds)
    if n_components == 1:
        raise ValueError("one component alone has no others to be told from; give n_components of at least 2.")
    if not is_number(threshold) or not threshold > 0:
        raise ValueError(f"threshold is a distance between atoms of length 1, above 0; got {threshold!r}.")
    require_seed(random_state)
    for name in ("fixed", "callbacks"):
        if name in settings:
            raise TypeError(f"consensus takes no {name}{'; it takes callback' if name == 'callbacks' else ''}.")
    settings = {"max_passes": 5} | settings
    X = _lasting(X)
    grouping, *drawn = generators(random_state)[0].integers(2**31, size=seeds + 1).tolist()
    runs: list[OnlineNMF] = []
    with warnings.catch_warnings():
        for seed in drawn:
            runs.append(OnlineNMF(n_components, random_state=seed, **settings).fit(X))
            warnings.simplefilter("ignore")  # what the first fit has warned of, the others would repeat
            told = Run(float(runs[-1].history_["loss"][-1]), len(runs), seeds)
            if callback is not None:
                callback(told)
            if verbose:
                print(f"[onmf] run {told.done} of {told.total}: loss {told.loss:.6g}", flush=True)
        atoms = np.concatenate([run.components_ for run in runs])
        distances = lonelinesses(atoms, seeds)
        kept = distances <= threshold
        if (there := different(atoms[kept])) < n_components:
            raise ValueError(
                f"the runs agree on fewer than {n_components} components: of their {len(atoms)} atoms, {there} "
                f"different ones have neighbours within {threshold:g}; lower n_components, or raise threshold."
            )
        groups = clustered(atoms, kept, n_components, grouping)
        W = _medians(atoms, groups, n_components, _least_weight(runs[0]))
        settings |= {"fixed": W, "max_passes": 1}
        model = OnlineNMF(n_components, random_state=drawn[0], **settings).fit(X)
    everyone = [groups.widths[groups.labels == k] for k in range(n_components)]
    return Consensus(
        model=model,
        stability=float(groups.widths.mean()),
        stabilities=np.array([widths.mean() for widths in everyone]),
        sizes=np.array([np.count_nonzero(groups.of_group(k)) for k in range(n_components)]),
        distances=distances.reshape(seeds, n_components),
        threshold=float(threshold),
    )


def _lasting(X: Any) -> Any:
    """X as it can be read by every run."""
    if not isinstance(X, Source) and not is_stream(X):
        return X
    source = X if isinstance(X, Source) else Batches(X)
    if not source.rewinds:
        raise SourceError(
            "this source can be read only once, but every run learns from all of it; write it to a file first."
        )
    return source


def _medians(atoms: Array, groups: Clusters, K: int, least: float) -> Array:
    """The median direction of each group times its median length (K, F): under penalties and on the simplex, atoms
    have one.

    The median of a feature that half of the runs leave at zero is zero. Where no atom is left to fit it, as some
    divergences need, the mean takes its place, and a trace where that is zero too.
    """
    points, lengths = directions(atoms), np.linalg.norm(atoms.astype(np.float64), axis=1)
    members = [groups.of_group(k) for k in range(K)]
    sizes = np.array([[np.median(lengths[group])] for group in members])
    W = sizes * np.array([np.median(points[group], axis=0) for group in members])
    lacking = W.sum(axis=0) < least
    if lacking.any():
        means = sizes * np.array([points[group][:, lacking].mean(axis=0) for group in members])
        W[:, lacking] = np.maximum(means, least / K)
    return W


def _least_weight(run: OnlineNMF) -> float:
    """What the atoms of a dictionary must weigh together at a feature, in the units in which ``fixed`` is given."""
    fitted = run._fitted
    return LITTLE * fitted.state.C.eps * (fitted.units.scale if fitted.shares else 1.0)
