"""A learnt model with other features: new words or columns are added, and forgotten ones make room for them.

A new feature begins in every component with the share that it has of the batch which brings it; its statistics are
zeros, as if all samples before had none of it. What is learnt of a feature that stays does not change, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onmf._support.arrays import taken
from onmf.data import Spec
from onmf.data.columns import Features
from onmf.learner.config import Recipe
from onmf.learner.learned import Coverage, Learned
from onmf.samples import Samples

UNSEEN = 0.01  # of the mean feature, for those that the batch does not show
FORGOTTEN = 0.05  # of the mean feature's share of all data: what has less may make room, where the past is forgotten


def may_grow(recipe: Recipe, learned: Learned, how: str, distributed: bool = False) -> bool:
    """Tell whether new features are added to a model: where it is asked for ("grow"), and to texts ("auto").

    A model that cannot grow raises an error if it is asked for; words that it does not know are then left out.
    """
    source = learned.source
    if how == "fixed" or (how == "auto" and (source is None or "ngrams" not in source.options)):
        return False
    reason = None
    if distributed:
        reason = "partitions of Dask are learnt side by side"
    elif learned.features.names is None:
        reason = "its features have no names"
    elif recipe.device is not None or recipe.fixed is not None:
        reason = f"{'device' if recipe.fixed is None else 'fixed'} is set"
    elif learned.inside.metric is not None:
        reason = f"the matrix of {learned.divergence.name} is that of its features"
    elif learned.method.feature_axes is None or learned.method.certified is not None:
        constant = "" if learned.method.certified is None else " with certified"
        reason = f"method {learned.method.name!r}{constant} cannot take new ones"
    if reason is not None and how == "grow":
        raise ValueError(f"features='grow' cannot add features to this model: {reason}; use features='fixed'.")
    return reason is None


def next_features(learned: Learned, found: Features, most: int) -> Features:
    """Return the model's features and those that only the data have, ``most`` in all.

    Where the past is forgotten and there is no room, those that next to nothing is left of go.
    """
    W, names, new = learned.state.W, learned.features.names or (), []
    known = set(names)
    new = [name for name in found.names or () if name not in known]
    room = max(most - len(names), 0)
    if len(new) > room and np.isfinite(learned.method.horizon):
        shares = learned.usage.shares @ (W / W.sum(axis=1, keepdims=True))
        lightest = np.argsort(shares, kind="stable")[: len(new) - room]
        gone = set(lightest[shares[lightest] < FORGOTTEN / len(names)].tolist())
        names, room = tuple(name for f, name in enumerate(names) if f not in gone), room + len(gone)
    return Features.of(len(names) + len(new[:room]), (*names, *new[:room]))


def grown(learned: Learned, features: Features, batch: Samples, source: Spec | None = None) -> Learned:
    """Return the model with these features, which its names are found among; ``batch`` has them all.

    ``source`` says how they are made, where that is known.
    """
    names, wanted = learned.features.names, features.names
    if names is None or wanted is None or names is wanted or names == wanted:
        return learned
    before = dict(zip(names, range(len(names)), strict=True))
    places = np.array([before.get(name, -1) for name in wanted])
    state, new, sizes = learned.state, places < 0, np.nan_to_num(batch.mean(axis=0))
    W = taken(state.W, places, axis=1)
    shares = (sizes[new] + UNSEEN * sizes.mean()) / max(float(sizes[~new].sum()), float(sizes.mean()), 1e-300)
    W[:, new] = np.minimum(W.sum(axis=1, keepdims=True) * shares.astype(W.dtype), state.C.high)
    coverage = learned.coverage and Coverage(taken(learned.coverage.features, places, axis=0), learned.coverage.blank)
    return replace(
        learned,
        state=learned.method.of_features(state, state.C.project(W), places),
        features=features,
        coverage=coverage,
        source=source or (learned.source and replace(learned.source, names=wanted)),
    )
