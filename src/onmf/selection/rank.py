"""``select_rank``: the number of components that predicts held-out entries best, and how stable they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.utils.validation import check_array

from onmf import divergences, methods
from onmf._support.arrays import Array, Data
from onmf._support.checks import RandomState, require_seed, require_whole
from onmf._support.threads import cached_property
from onmf.data import Rows, Source, SourceError
from onmf.data.base import read_from
from onmf.data.inputs import layer_of, matrix_of
from onmf.estimators.messages import warn_of_too_many
from onmf.estimators.online import OnlineNMF
from onmf.insight.features import directions
from onmf.learner.update import as_floats
from onmf.methods import EM, Auto
from onmf.methods.em import Accumulating
from onmf.model.sets import count
from onmf.model.validation import DataError
from onmf.samples import as_samples, checked_missing
from onmf.selection.agreement import stability
from onmf.selection.holdout import HoldoutMask, rewinding_source
from onmf.selection.runs import FitProgress, Ledger, Seeds, each_done

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST = 200  # samples that tell whether data are sparse
MOST_ROWS, MOST_ENTRIES = 1024, 2**21  # of a batch that is judged
FAR = 1.5  # times a rank is another one, not its neighbour
ALIKE = 0.8  # the stability from which on components hardly depend on the start


@dataclass(frozen=True)
class RankSelection:
    """Ranks, how well each predicts held-out entries, and how much its components depend on the start.

    ``print`` shows a table with the recommendation and its reason, ``plot`` a picture; ``table`` is for data frames:
    ``pandas.DataFrame(selection.table)``.

    Attributes
    ----------
    ranks : tuple[int, ...]
        Those that were tried, ascending.
    losses : array
        (ranks, seeds): the mean loss per held-out entry, in the data's units.
    stability : array
        (ranks,): that of the seeds' components, as ``consensus`` defines it: 1 if all are the same.
    not_tried : tuple[int, ...]
        Larger ones, once the loss had clearly turned.

    Examples
    --------
    >>> found = onmf.select_rank(X, [2, 3], n_seeds=2, max_passes=1)
    >>> found.recommended in found.ranks, list(found.table)[:2]
    (True, ['rank', 'loss'])
    >>> found.plot().savefig("ranks.png")
    """

    ranks: tuple[int, ...]
    losses: Array
    stability: Array
    not_tried: tuple[int, ...] = ()

    @cached_property
    def loss(self) -> Array:
        """Return the mean loss over the seeds, per rank."""
        return self.losses.mean(axis=1)

    @cached_property
    def spread(self) -> Array:
        """Return the standard deviation over the seeds, per rank; most of it is common to all ranks."""
        return self.losses.std(axis=1, ddof=1)

    @cached_property
    def excess(self) -> Array:
        """Return by how much the loss exceeds the loss of the best rank, per rank."""
        return self.loss - self.loss.min()

    @cached_property
    def error(self) -> Array:
        """Return the standard error of the excess, per rank: a seed holds out the same entries at every rank."""
        apart = self.losses - self.losses[self._best]
        return np.asarray(apart.std(axis=1, ddof=1) / np.sqrt(apart.shape[1]))

    @property
    def best(self) -> int:
        """Return the rank of the lowest loss."""
        return self.ranks[self._best]

    @property
    def recommended(self) -> int:
        """Return the smallest rank whose loss is within one standard error of the lowest."""
        return self.ranks[self._place]

    @property
    def table(self) -> dict[str, list[Any]]:
        """Return the columns, one entry per rank."""
        columns = {name: getattr(self, name).tolist() for name in ("loss", "spread", "excess", "error", "stability")}
        return {"rank": list(self.ranks), **columns}

    @property
    def reason(self) -> str:
        """Say in words why this rank is recommended, and why it may be wrong."""
        K, place = self.recommended, self._place
        if self.best == K:
            said = [f"Rank {K} predicts held-out entries best."]
        else:
            said = [f"Rank {K} is the smallest within one standard error of the lowest held-out loss, at {self.best}."]
        if self._best == len(self.ranks) - 1:
            said.append("It is still falling at the largest rank that was tried: try larger ones.")
        elif place == 0 and K > 1:
            said.append("No smaller rank was tried: the right one may be below.")
        close = [rank for rank, near in zip(self.ranks, self.excess <= 2 * self.error, strict=True) if near]
        if close[-1] > FAR * close[0]:
            said.append(f"Ranks {close[0]} to {close[-1]} can hardly be told apart: noise may hide the right one.")
        alike = f"The components of different seeds have a stability of {self.stability[place]:.2f}"
        if self.stability[place] >= ALIKE:
            said.append(f"{alike}: they hardly depend on the start.")
        else:
            said.append(f"{alike}: they depend on the start, so do not read much into single components.")
            similarities = zip(self.stability.round(2), self.ranks, strict=True)
            most, steadiest = max(each for each in similarities if each[1] > 1)  # one component is always found again
            if steadiest != K:
                said.append(f"They depend on it least at rank {steadiest} ({most:.2f}).")
        if self.not_tried:
            first, last = self.not_tried[0], self.not_tried[-1]
            which = f"Rank {first} was" if first == last else f"Ranks {first} to {last} were"
            said.append(f"{which} not tried: those just before were worse for every seed.")
        return " ".join(said)

    def __str__(self) -> str:
        lines = ["rank  held-out loss     spread  above the best         stability"]
        for place, rank in enumerate(self.ranks):
            above = f"{self.excess[place]:.4g} ± {self.error[place]:.2g}" if place != self._best else "-"
            mark = "  <- recommended" if place == self._place else ""
            lines.append(
                f"{rank:4d}  {self.loss[place]:13.6g}  {self.spread[place]:9.2g}  {above:21s}  "
                f"{self.stability[place]:9.3f}{mark}"
            )
        return "\n".join([*lines, "", self.reason])

    def plot(self) -> Figure:
        """Draw ``onmf.plots.rank`` on a figure of its own, and return it; ``plot().savefig("ranks.png")`` writes it.

        Returns
        -------
        matplotlib.figure.Figure
            The picture.
        """
        from onmf.plots import new_figure, rank

        figure = new_figure(6.4, 5.0)
        rank(self, figure.add_subplot())
        return figure

    @property
    def _best(self) -> int:
        return int(self.loss.argmin())

    @property
    def _place(self) -> int:
        return int(np.flatnonzero(self.excess <= self.error)[0])


def select_rank(
    X: Data,
    ranks: Iterable[int],
    *,
    n_seeds: int = 3,
    held_out: float = 0.1,
    max_passes: int = 5,
    patience: int | None = 5,
    random_state: RandomState = None,
    layer: str | None = None,
    n_jobs: int = 1,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    callback: Callable[[FitProgress], Any] | None = None,
    verbose: int = 0,
    **settings: Any,
) -> RankSelection:
    """Find how many components the data support: the rank that best predicts entries that were held out.

    The loss of a fit falls with every further component, on new samples too, since their coefficients are free: it
    always takes the largest rank. Here a share of the *entries*, scattered over all samples, is held out of
    dictionaries and coefficients alike, and then predicted; components that fit noise make that worse. The cost
    is one fit of the largest rank per seed, then two passes and two calls of ``transform`` for
    each rank.

    Parameters
    ----------
    X : array, sparse matrix, data frame, AnnData or Source
        The samples. A ``Source``, or a list of batches in ``onmf.data.Batches``, is read once per pass and fit, in
        memory that does not grow with it. Zeros that a sparse X does not store are held out like other entries. Counts
        of which few are not zero stay sparse, O(nnz K) per pass, under kl, hellinger and alpha > 0 with ``method``
        "auto", "em" or "sparse_surrogate". Other batches are made dense: O(n F K) per pass.
    ranks : iterable of int
        The numbers of components to try, such as ``range(2, 31)``.
    n_seeds : int, default 3
        Fits per rank. Each has other held-out entries, the same at every rank, and another start: a fit of the largest
        rank. A smaller one begins with its leading components, and with all of them merged, and keeps the better fit.
    held_out : float, default 0.1
        The share of entries that is held out, above 0 and at most 0.5.
    max_passes : int, default 5
        Passes of each seed's start over the data; two at each rank follow.
    patience : int or None, default 5
        Ranks are tried from the smallest up. Once this many in a row are worse than the best, for every seed, larger
        ones are not tried; None tries all.
    random_state : int, RandomState, Generator or None
        Seeds the held-out entries and the fits.
    layer : str or None, default None
        A layer of an AnnData object, instead of its X.
    n_jobs : int, default 1
        Seeds that are fitted at the same time, in threads; the result is the same.
    checkpoint : str, Path or None
        The file that what has been found is written to after every rank.
    resume : bool
        Whether to continue from that file.
    callback : callable or None
        Called with a ``FitProgress`` after every fit.
    verbose : int, default 0
        1 prints a line after every fit.
    **settings
        Other parameters of ``OnlineNMF``: divergence, method, missing, implicit, ... A ``method`` of "auto" is em for
        sparse counts. Huber's delta, if none is given, is the one that a first fit finds, and the same for all: losses
        under different ones do not compare.

    Returns
    -------
    RankSelection
        ``recommended``, the smallest rank whose loss is within one standard error of the lowest, its ``reason``, and
        a table of losses and stability that can be printed and plotted.

    Examples
    --------
    >>> found = onmf.select_rank(X, range(2, 5), n_seeds=2, max_passes=2)
    >>> found.recommended in (2, 3, 4)
    True
    """
    tried = _checked_ranks(ranks)
    require_whole(2, n_seeds=n_seeds)
    require_whole(1, n_jobs=n_jobs)
    if patience is not None:
        require_whole(1, patience=patience)
    if not (isinstance(held_out, (float, np.floating)) and 0 < held_out <= 0.5):
        raise ValueError(f"held_out is a share of the entries, above 0 and at most 0.5; got {held_out!r}.")
    require_seed(random_state)
    missing, implicit = checked_missing(settings.pop("missing", None), settings.pop("implicit", "zero"))
    settings = _checked(settings) | {"max_passes": max_passes}
    source = _source(layer_of(X, layer))
    warn_of_too_many(tried[-1], source.n_features, settings)
    facts = settings | {"ranks": tried, "held_out": held_out, "missing": missing, "implicit": implicit}
    seeds = Seeds.draw(random_state, n_seeds)
    ledger = Ledger.opened(checkpoint, resume, source, seeds, facts | {"n_seeds": n_seeds})
    drawn = ledger.seeds
    mask = HoldoutMask(float(held_out), drawn[0], missing, implicit)
    suited, sparse = _suited(settings, tried, source, mask)
    settings |= suited
    masks = {seed: replace(mask, seed=seed, sparse=sparse) for seed in drawn}
    parts = {seed: mask.without_held(source) for seed, mask in masks.items()}
    losses = ledger.arrays.get("losses", np.empty((0, n_seeds))).tolist()
    steady = ledger.arrays.get("stability", np.empty(0)).tolist()
    fixed = count(settings.get("fixed"))

    def start(number: int) -> tuple[Array, Array]:
        model = OnlineNMF(tried[-1], random_state=drawn[number], **settings).fit(parts[drawn[number]])
        return model.components_[fixed:], model.usage_[fixed:]

    def fit(rank: int, number: int) -> tuple[float, Array]:
        seed, found = drawn[number], list[tuple[float, Array]]()
        W, used = (ledger.arrays[f"{each}.{number}"] for each in ("start", "usage"))
        for init in starts(W, used, rank - fixed):
            begun = settings | {"max_passes": 1} | ({"init": init} if len(init) else {})
            model = OnlineNMF(rank, random_state=seed, **begun).fit(parts[seed])
            found.append((_judged(model, source, masks[seed]), model.components_))
        return min(found, key=itemgetter(0))

    with warnings.catch_warnings():
        missing_starts = {n: partial(start, n) for n in range(n_seeds) if f"start.{n}" not in ledger.arrays}
        for number, (W, used) in each_done(missing_starts, n_jobs):
            ledger.keep({f"start.{number}": W, f"usage.{number}": used})
        for rank in tried[len(losses) :]:
            found: dict[int, tuple[float, Array]] = {}
            for number, fitted in each_done({each: partial(fit, rank, each) for each in range(n_seeds)}, n_jobs):
                found[number] = fitted
                done = n_seeds * len(losses) + len(found)
                if callback is not None:
                    callback(FitProgress(rank, fitted[0], done, n_seeds * len(tried)))
                if verbose:
                    print(
                        f"[onmf] fit {done} of {n_seeds * len(tried)}: rank {rank}, held-out loss {fitted[0]:.6g}",
                        flush=True,
                    )
            dictionaries = [found[number][1] for number in range(n_seeds)]
            losses.append([found[number][0] for number in range(n_seeds)])
            steady.append(stability(dictionaries))
            ledger.keep({"losses": np.array(losses), "stability": np.array(steady)})
            if patience is not None and _turned(np.array(losses), patience):
                break
    n = len(losses)
    return RankSelection(tuple(tried[:n]), np.array(losses), np.array(steady), tuple(tried[n:]))


def starts(W: Array, usage: Array, K: int) -> list[Array]:
    """Return two dictionaries of K components of a larger one: those that lead it, and all, merged into K groups.

    Leading are, one after the other, those that are used most, times how far they are from those before. Groups are of
    components that are alike. Neither is always better: merged ones find few planted components, leading ones many
    topics.
    """
    if K <= 0 or len(W) == K:  # where all are fixed, or more than that, the fit says so
        return [W[: max(K, 0)]]
    roots = np.sqrt(W / np.maximum(W.sum(axis=1, keepdims=True), np.finfo(W.dtype).tiny))
    leading, apart = list[int](), np.ones(len(W))
    for _ in range(K):
        gain = usage * apart
        gain[leading] = -1
        leading.append(int(gain.argmax()))
        apart = np.minimum(apart, 1 - roots @ roots[leading[-1]])  # Hellinger's distance, squared
    groups = fcluster(linkage(directions(W), "ward"), K, "maxclust")
    most = usage / np.maximum(W.sum(axis=1, dtype=np.float64), np.finfo(np.float64).tiny)
    shares = (groups == np.arange(1, K + 1)[:, None]) * (most + most.max() * 1e-9 + np.finfo(np.float64).tiny)
    some = shares.sum(axis=1) > 0  # equal components cannot be told apart: fewer groups than asked for
    merged = shares[some] / shares[some].sum(axis=1, keepdims=True) @ W.astype(np.float64)
    return [np.resize(merged, (K, W.shape[1])).astype(W.dtype), W[np.sort(leading)]]


def _turned(losses: Any, patience: int) -> bool:
    """Tell whether as many of the last ranks as ``patience`` are worse than the best, for every seed."""
    best = int(losses.mean(axis=1).argmin())
    later = losses[max(best + 1, len(losses) - patience) :]
    return len(later) == patience and bool((later > losses[best]).all())


def _judged(model: OnlineNMF, source: Source, mask: HoldoutMask) -> float:
    """Return the mean loss per held-out entry; samples whose entries are all held out do not count."""
    total = entries = 0.0
    size = MOST_ROWS if mask.sparse else max(1, min(MOST_ROWS, MOST_ENTRIES // source.n_features))
    for rows, batch in read_from(source, size, None, None, 0):
        seen, held = mask.split(rows, batch)
        counts = seen.times_sample_weight(np.ones(len(seen))) * (seen.weight_sums(axis=1) > 0)
        total += float(counts @ model._inference().held_out_losses(seen, held))
        entries += float(counts @ held.weight_sums(axis=1))
    if not entries:
        raise ValueError("no entry was held out: the data are too few; hold out a larger share of them (held_out).")
    if not np.isfinite(total):
        raise DataError("The loss on held-out entries is beyond the range of numbers; rescale or clip the data.")
    return total / entries


def _checked_ranks(ranks: Iterable[int]) -> list[int]:
    tried = [ranks] if isinstance(ranks, (int, np.integer)) else list(ranks)
    for rank in tried:
        require_whole(1, ranks=rank)
    if len(set(tried)) < 2:
        raise ValueError("select_rank compares ranks; give at least two of them, as in range(2, 31).")
    return sorted({int(rank) for rank in tried})


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that all models share, or raise an error for one that select_rank does not take."""
    for name in ("n_components", "callbacks"):
        if name in settings:
            raise TypeError(f"select_rank takes no {name}; it takes ranks and callback.")
    if settings.get("on_error", "raise") != "raise":
        raise ValueError("select_rank compares ranks on the same entries and skips none; leave on_error out.")
    given = divergences.get(settings.get("divergence", "kl"))
    if not given.weighs_entries:
        raise ValueError(
            f"{given.name} looks at all features of a sample together, so none can be held out; use squared_l2."
        )
    return settings


def _source(X: Any) -> Source:
    """Return X as a source that can be read as often as it takes."""
    if (source := rewinding_source(X)) is not None:
        return source
    X, _ = matrix_of(X)
    return Rows(check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False))


def _suited(
    settings: dict[str, Any], tried: list[int], source: Source, mask: HoldoutMask
) -> tuple[dict[str, Any], bool]:
    """Choose the method and the divergence by the data, where these were left open, once for all ranks.

    Return also whether the method learns from sparse counts as they are.
    """
    found: dict[str, Any] = {}
    given = divergences.get(settings.get("divergence", "kl"))
    method = methods.get(settings.get("method", "auto"))
    first = next((batch for _, batch in read_from(source, FIRST, None, None, 0)), None)
    if first is None:
        raise SourceError("there are no samples to choose a rank for.")
    first = as_samples(as_floats(first), mask.missing, mask.implicit)
    few = first.mostly_zeros() and given.alpha_order is not None
    if isinstance(method, Auto) and few:
        # Most entries are zeros, and auto cannot see that once others are held out.
        found["method"] = method = EM(tau=method.tau, forgetting=method.forgetting, max_iter=method.max_iter)
    if given.adaptive:
        middle = OnlineNMF(tried[len(tried) // 2], random_state=mask.seed, **settings)
        found["divergence"] = middle.fit(mask.without_held(source)).divergence_
    return found, few and isinstance(method, Accumulating) and settings.get("device") is None
