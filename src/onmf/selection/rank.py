"""``select_rank``: the number of atoms that predicts held-out entries best, and how stable they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from onmf import divergences, methods
from onmf._support.arrays import FEW_ENTRIES, density
from onmf._support.checks import require_whole
from onmf._support.known import Known, apart, as_known, checked_missing
from onmf._support.seeds import generators, require_seed
from onmf.coefficients.problem import NO_PENALTIES
from onmf.data import Batches, Rows, Source, SourceError
from onmf.data.base import read_from
from onmf.data.inputs import matrix_of
from onmf.data.iterable import is_stream
from onmf.estimators.online import OnlineNMF
from onmf.learner.update import as_floats
from onmf.methods import EM, Auto
from onmf.model.units import DataError
from onmf.selection.result import RankSelection
from onmf.selection.speckle import Speckle
from onmf.selection.stability import stability

FIRST = 200  # samples that tell whether data are sparse
MOST_ROWS, MOST_ENTRIES = 1024, 2**21  # of a batch that is judged


@dataclass(frozen=True)
class Trial:
    """One fit of many: what a callback is told."""

    rank: int
    loss: float  # per held-out entry
    done: int  # fits so far, and at most
    total: int


def select_rank(
    X: Any,
    ranks: Iterable[int],
    *,
    n_seeds: int = 3,
    held_out: float = 0.1,
    max_passes: int = 5,
    patience: int | None = 5,
    random_state: Any = None,
    callback: Callable[[Trial], Any] | None = None,
    verbose: int = 0,
    **settings: Any,
) -> RankSelection:
    """How many atoms the data support: the rank that predicts entries best which no fit has seen.

    The loss of a fit falls with every further atom, on new samples too, since their coefficients are free: it always
    takes the largest rank. Here a share of the *entries*, scattered over all samples, is held out of dictionaries and
    coefficients alike, and then predicted; atoms that fit noise make that worse.

    Parameters
    ----------
    X : array, sparse matrix, data frame, AnnData or Source
        The samples. A ``Source``, or a list of batches in ``onmf.data.Batches``, is read once per pass and fit, in
        memory that does not grow with it. Zeros that a sparse X does not store are held out like other entries, for
        which its batches are made dense: a fit costs what dense data cost, O(n F K) per pass.
    ranks : iterable of int
        The numbers of atoms to try, such as ``range(2, 31)``.
    n_seeds : int, default 3
        Fits per rank. Each has other held-out entries and another start; the entries are the same at every rank.
    held_out : float, default 0.1
        The share of entries that is held out, above 0 and at most 0.5.
    max_passes : int, default 5
        Passes of every fit over the data.
    patience : int or None, default 5
        Ranks are tried from the smallest up. Once the last so many are all worse than the best, for every seed, larger
        ones are not tried; None tries all.
    random_state : int, RandomState, Generator or None
        Seeds the held-out entries and the fits.
    callback : callable or None
        Called with a ``Trial`` after every fit.
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

    Cost: ranks x seeds fits of ``max_passes`` passes, and a ``transform`` each.
    """
    tried = _checked_ranks(ranks)
    require_whole(2, n_seeds=n_seeds)
    if patience is not None:
        require_whole(1, patience=patience)
    if not (isinstance(held_out, (float, np.floating)) and 0 < held_out <= 0.5):
        raise ValueError(f"held_out is a share of the entries, above 0 and at most 0.5; got {held_out!r}.")
    require_seed(random_state)
    missing, implicit = checked_missing(settings.pop("missing", None), settings.pop("implicit", "zero"))
    settings = _checked(settings) | {"max_passes": max_passes}
    source = _source(X)
    _warn_of_too_many(tried, source.n_features, settings)
    drawn = generators(random_state)[0].integers(2**31, size=n_seeds).tolist()
    speckles = {seed: Speckle(float(held_out), seed, missing, implicit) for seed in drawn}
    settings |= _suited(settings, tried, source, speckles[drawn[0]])
    losses: list[list[float]] = []
    steady: list[float] = []
    done, total = 0, len(tried) * n_seeds
    with warnings.catch_warnings():
        for rank in tried:
            found, dictionaries = [], []
            for seed, speckle in speckles.items():
                model = OnlineNMF(rank, random_state=seed, **settings).fit(speckle.known(source))
                found.append(_judged(model, source, speckle))
                dictionaries.append(model.components_)
                warnings.simplefilter("ignore")  # what the first fit has warned of, the others would repeat
                done += 1
                if callback is not None:
                    callback(Trial(rank, found[-1], done, total))
                if verbose:
                    print(f"[onmf] fit {done} of {total}: rank {rank}, held-out loss {found[-1]:.6g}", flush=True)
            losses.append(found)
            steady.append(stability(dictionaries))
            if patience is not None and _turned(np.array(losses), patience):
                break
    n = len(losses)
    return RankSelection(tuple(tried[:n]), np.array(losses), np.array(steady), tuple(tried[n:]))


def _turned(losses: Any, patience: int) -> bool:
    """Are the last so many ranks all worse than the best, for every seed?"""
    best = int(losses.mean(axis=1).argmin())
    later = losses[max(best + 1, len(losses) - patience) :]
    return len(later) == patience and bool((later > losses[best]).all())


def _judged(model: OnlineNMF, source: Source, speckle: Speckle) -> float:
    """The mean loss per held-out entry; samples of which nothing is known tell nothing."""
    total = entries = 0.0
    size = max(1, min(MOST_ROWS, MOST_ENTRIES // source.n_features))
    for rows, batch in read_from(source, size, None, None, 0):
        batch, held = speckle.split(rows, batch)
        known, samples = apart(batch)
        counts = (np.ones(len(known)) if samples is None else samples) * (known.weight(axis=1) > 0)
        total += float(counts @ model._inference().held_out_losses(known, held))
        entries += float(counts @ held.weight(axis=1))
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


def _warn_of_too_many(tried: list[int], n_features: int, settings: dict[str, Any]) -> None:
    """Atoms that nothing keeps small are never needed beyond one for each feature, which fits everything."""
    bound = settings.get("coefficients", "nonnegative") != "nonnegative"
    if tried[-1] > n_features and not bound and not any(settings.get(price) for price in vars(NO_PENALTIES)):
        warnings.warn(
            f"Rank {tried[-1]} is more than the data have features ({n_features}), and one atom for each of them fits "
            f"anything; try ranks up to {n_features}.",
            UserWarning,
            stacklevel=3,
        )


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of all models, without those that are not theirs to have."""
    for name in ("n_components", "callbacks"):
        if name in settings:
            raise TypeError(f"select_rank takes no {name}; it takes ranks and callback.")
    if settings.get("on_error", "raise") != "raise":
        raise ValueError("select_rank compares ranks on the same entries and skips none; leave on_error out.")
    given = divergences.get(settings.get("divergence", "kl"))
    if not given.weighs_entries:
        raise ValueError(
            f"{given.name} looks at all features of a sample together, so that none can be held out; use squared_l2."
        )
    return settings


def _source(X: Any) -> Source:
    """X as a source that can be read as often as it takes."""
    if isinstance(X, Source) or is_stream(X):
        source = X if isinstance(X, Source) else Batches(X)
        if not source.rewinds:
            raise SourceError(
                "this source can be read only once, but every rank is learnt from all of it; write it to a file first."
            )
        return source
    X, _ = matrix_of(X)
    return Rows(check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False))


def _suited(settings: dict[str, Any], tried: list[int], source: Source, speckle: Speckle) -> dict[str, Any]:
    """What the data decide about method and divergence, once for all ranks."""
    found: dict[str, Any] = {}
    given = divergences.get(settings.get("divergence", "kl"))
    method = methods.get(settings.get("method", "auto"))
    first = next((batch for _, batch in read_from(source, FIRST, None, None, 0)), None)
    if first is None:
        raise SourceError("there are no samples to choose a rank for.")
    first, _ = apart(as_known(as_floats(first), speckle.missing, speckle.implicit))
    few = not isinstance(first, Known) and density(first) < FEW_ENTRIES
    if isinstance(method, Auto) and few and given.alpha_order is not None:
        # Most of what is known are zeros, of which auto cannot tell once they stand beside unknown entries.
        found["method"] = EM(tau=method.tau, forgetting=method.forgetting, max_iter=method.max_iter)
    if given.adaptive:
        middle = OnlineNMF(tried[len(tried) // 2], random_state=speckle.seed, **settings).fit(speckle.known(source))
        found["divergence"] = middle.divergence_
    return found
