"""A speckled mask of entries that are held out of all learning, to be predicted afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from onmf._support.arrays import Array, Mask, dense
from onmf._support.known import Known, Weighted, apart, as_known, filled
from onmf.data import Batches, Source, SourceError
from onmf.data.base import Numbered, OnBad, read_from
from onmf.data.iterable import is_stream
from onmf.data.tools import Derived
from onmf.learner.update import as_floats
from onmf.model.validation import refuse_bad_entries

Words = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Speckle:
    """Holds out every entry with probability ``share``, zeros like any other.

    A hash of the row's number or name, the column and the seed decides, so that the mask is the same in every pass, for
    every order of the samples and for every size of batches, and nothing of it is stored.
    """

    share: float
    seed: int
    missing: str | None = None  # what entries mean, as in OnlineNMF
    implicit: str = "zero"

    def known(self, source: Source) -> Source:
        """Return the source without what is held out: all that a model may learn from.

        Its batches are ``Known``. Those of sparse data whose absent entries are zeros become dense, each as it is read:
        what is held out is then told apart from a zero.
        """

        def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
            for rows, batch in read_from(source, size, rng, on_bad, first):
                yield rows, self.split(rows, batch, source.feature_names)[0]

        # Names of features and files would have each model look at what is the same for all.
        return Derived(source, batches, self.known, feature_names=None, files=None, spec=None)

    def split(self, rows: Any, batch: Any, names: Sequence[str] | None = None) -> tuple[Any, Known]:
        """Return what is known of these rows, with the weights of samples where they have some, and what is held out.

        ``names`` are those of the features, for messages.
        """
        batch, samples = apart(as_known(as_floats(batch), self.missing, self.implicit))
        refuse_bad_entries(batch, rows, names)
        if not isinstance(batch, Known):
            X = dense(batch)
            batch = Known(X, np.ones_like(X))
        if batch.sparse:
            entries = np.repeat(self._of_rows(rows), np.diff(batch.X.indptr)) ^ self._of_columns(batch.X.indices)
            chosen = self._chosen(entries)
            known, held = _stored(batch, ~chosen), _stored(batch, chosen)
        else:
            chosen = self._chosen(self._of_rows(rows)[:, None] ^ self._of_columns(np.arange(batch.shape[1])))
            known, held = (filled(Known(batch.X, batch.present * part)) for part in (~chosen, chosen))
        return known if samples is None else Weighted(known, samples), held

    def _chosen(self, keys: Words) -> Mask:
        return _mixed(keys) < np.uint64(min(int(self.share * 2.0**64), 2**64 - 1))

    def _of_rows(self, rows: Any) -> Words:
        rows = np.asarray(rows)
        if rows.dtype.kind not in "iu":  # names
            rows = np.array([xxhash.xxh64_intdigest(str(name).encode()) for name in rows], dtype=np.uint64)
        return _mixed(rows.astype(np.uint64) ^ _mixed(np.array([self.seed], dtype=np.uint64)))

    def _of_columns(self, columns: Any) -> Words:
        return _mixed(np.asarray(columns).astype(np.uint64) * GOLDEN)


def _mixed(keys: Words) -> Words:
    """Mix bits as the finalizer of SplitMix64 does: each depends on all bits of the key."""
    keys = keys + GOLDEN  # wraps around, as it should
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def _stored(known: Known, kept: Mask) -> Known:
    """Return sparse samples that are known only at some of the entries that they store."""
    indptr = np.r_[0, np.cumsum(kept)][known.X.indptr].astype(known.X.indptr.dtype)
    X = type(known.X)((known.X.data[kept], known.X.indices[kept], indptr), shape=known.shape)
    weights: Array | None = None if known.weights is None else known.weights[kept]
    return Known(X, weights)


def rewinding_source(X: Any) -> Source | None:
    """Return a source or a list of batches as a source that several fits can read; None for data in memory."""
    if not isinstance(X, Source) and not is_stream(X):
        return None
    source = X if isinstance(X, Source) else Batches(X)
    if not source.rewinds:
        raise SourceError(
            "this source can be read only once, but every fit learns from all of it; write it to a file first."
        )
    return source
