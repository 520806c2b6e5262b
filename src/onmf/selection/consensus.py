"""``consensus``: the components that several fits agree on, as one dictionary, and how far the fits agree."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onmf._support.arrays import Array, Data, Mask
from onmf._support.checks import RandomState, is_number, require_seed, require_whole
from onmf.data.inputs import layer_of
from onmf.estimators.online import OnlineNMF
from onmf.insight.convergence import LossCurve
from onmf.insight.features import directions
from onmf.selection.agreement import Agreement, different, neighbour_distances
from onmf.selection.holdout import rewinding_source
from onmf.selection.runs import FitProgress, Ledger, Seeds, each_done

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PASSES = 50  # after twenty, runs of few cells still differ that have found the same
LITTLE = 4.0  # times the least weight of a feature: the weight of a feature that no component of the consensus has


@dataclass(frozen=True, eq=False, repr=False)
class Consensus:
    """The components that several runs agree on, the steadiest first, and a model that has them as its dictionary.

    ``print`` shows a table. ``model`` is an ``OnlineNMF`` for ``transform``, ``save``, ``annotate`` and the like.

    Attributes
    ----------
    model : OnlineNMF
        A model whose dictionary is the consensus.
    stability : float
        The mean silhouette of all runs' components: 1 if every run has found the same.
    stabilities : array
        (K,): the mean silhouette of each group.
    sizes : array
        (K,): how many components of single runs each is the median of.
    distances : array
        (seeds, K): from each run's components to the nearest ones.
    threshold : float
        Components at a larger distance were left out.
    runs : array
        (seeds * K, F): the components of all runs, each of length 1.
    labels : array of int
        (seeds * K,): the group that each belongs to or, if left out, is nearest to.

    Examples
    --------
    >>> found = onmf.consensus(X, 3, seeds=4, random_state=0, max_passes=5)
    >>> found.stabilities.shape, found.model.transform(X).shape
    ((3,), (60, 3))
    >>> found.plot().savefig("consensus.png")
    """

    model: OnlineNMF
    stability: float
    stabilities: Array
    sizes: Array
    distances: Array
    threshold: float
    runs: Array
    labels: npt.NDArray[np.intp]

    @property
    def components(self) -> Array:
        """Return the dictionary (K, F)."""
        return self.model.components_

    @property
    def kept(self) -> float:
        """Return the share of the runs' components that were not left out."""
        return float((self.distances <= self.threshold).mean())

    def plot(self) -> Figure:
        """Return a Matplotlib figure: cNMF's clustergram, the distances between the runs' components by groups.

        Returns
        -------
        matplotlib.figure.Figure
            The picture.
        """
        from onmf.plots.runs import clustergram

        return clustergram(self)

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
    X: Data,
    n_components: int,
    seeds: int = 10,
    *,
    threshold: float = 0.5,
    random_state: RandomState = None,
    layer: str | None = None,
    n_jobs: int = 1,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    callback: Callable[[FitProgress], Any] | None = None,
    verbose: int = 0,
    **settings: Any,
) -> Consensus:
    """Learn several times, from different starts, and keep the components that the runs agree on, as cNMF does.

    The components of all runs are brought to length 1. Those with few neighbours are left out, the others form
    ``n_components`` groups by k-means, and the median of a group is a component. The cost is ``seeds`` fits of
    ``max_passes`` passes, and one pass with the consensus. Memory holds all runs' components.

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
    layer : str or None, default None
        A layer of an AnnData object, instead of its X.
    n_jobs : int, default 1
        Runs that learn at the same time, in threads; the result is the same.
    checkpoint : str, Path or None
        The file that finished runs are written to.
    resume : bool
        Whether the runs in that file are kept; more ``seeds`` add runs. Without ``random_state``, the seeds are those
        of the file.
    callback : callable or None
        Called with a ``FitProgress`` after every fit; its loss is that of the last batch.
    verbose : int, default 0
        1 prints a line after every fit.
    **settings
        Other parameters of ``OnlineNMF``: divergence, method, missing, ... ``max_passes`` is 50 unless it is given.

    Returns
    -------
    Consensus
        ``components``, ``stability`` over all and ``stabilities`` of each, the share ``kept`` of the runs' components,
        and ``model``, whose dictionary is the consensus. Stability is the silhouette score of all runs' components,
        left out or not; compare it between numbers of components: a wrong number is less stable.

    Examples
    --------
    >>> found = onmf.consensus(X, 3, seeds=4, random_state=0, max_passes=5)
    >>> found.components.shape, 0 < found.kept <= 1
    ((3, 30), True)
    """
    require_whole(1, n_components=n_components)
    require_whole(2, seeds=seeds)
    if n_components == 1:
        raise ValueError("consensus compares components with each other; give n_components of at least 2.")
    if not is_number(threshold) or not threshold > 0:
        raise ValueError(f"threshold is a distance between components of length 1, above 0; got {threshold!r}.")
    require_seed(random_state)
    if "fixed" in settings:
        raise TypeError("consensus sets fixed itself; leave it out.")
    if "callbacks" in settings:
        raise TypeError("pass callback, not callbacks.")
    require_whole(1, n_jobs=n_jobs)
    settings = {"max_passes": PASSES} | settings
    X = layer_of(X, layer)
    source = rewinding_source(X)
    X = X if source is None else source
    facts = settings | {"n_components": n_components}
    ledger = Ledger.opened(checkpoint, resume, X, Seeds.draw(random_state, seeds + 1), facts)
    grouping, *drawn = ledger.seeds

    def run(number: int) -> tuple[Array, float, float]:
        model = OnlineNMF(n_components, random_state=drawn[number], **settings).fit(X)
        fitted = model._fitted
        least = LITTLE * fitted.state.C.eps * (fitted.units.scale if fitted.shares else 1.0)
        return model.components_, float(LossCurve.of(model.history_).loss[-1]), least

    there = {number for number in range(seeds) if f"components.{number}" in ledger.arrays}
    with warnings.catch_warnings():
        tasks = {number: partial(run, number) for number in range(seeds) if number not in there}
        for done, (number, (W, loss, least)) in enumerate(each_done(tasks, n_jobs), len(there) + 1):
            ledger.keep({f"components.{number}": W, "least": np.array([least])})
            if callback is not None:
                callback(FitProgress(n_components, loss, done, seeds))
            if verbose:
                print(f"[onmf] run {done} of {seeds}: loss {loss:.6g}", flush=True)
        warnings.simplefilter("ignore")  # the last fit would repeat those of the first
        found = [ledger.arrays[f"components.{number}"] for number in range(seeds)]
        pooled = np.concatenate(found)
        agreement = Agreement.of(found, threshold, grouping)
        if agreement is None:
            near = different(pooled[neighbour_distances(pooled, seeds) <= threshold])
            raise ValueError(
                f"the runs agree on fewer than {n_components} components: of their {len(pooled)}, {near} "
                f"different ones have neighbours within {threshold:g}; lower n_components, or raise threshold."
            )
        labels, widths = agreement.labels, agreement.widths
        groups = [agreement.kept & (labels == k) for k in range(n_components)]
        settings |= {"fixed": _medians(pooled, groups, float(ledger.arrays["least"][0])), "max_passes": 1}
        model = OnlineNMF(n_components, random_state=drawn[0], **settings).fit(X)
    return Consensus(
        model=model,
        stability=agreement.stability,
        stabilities=np.array([widths[labels == k].mean() for k in range(n_components)]),
        sizes=np.array([np.count_nonzero(group) for group in groups]),
        distances=agreement.distances.reshape(seeds, n_components),
        threshold=float(threshold),
        runs=directions(pooled).astype(pooled.dtype),
        labels=labels,
    )


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
