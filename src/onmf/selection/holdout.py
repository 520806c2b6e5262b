"""A speckled mask of entries that are held out of all learning, to be predicted afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import xxhash

from onmf._support.arrays import Mask, some_of
from onmf.data import Rows, Source, SourceError
from onmf.data.base import Numbered, OnBad, read_from
from onmf.data.budget import no_room
from onmf.data.in_memory import as_stream
from onmf.data.tools import Derived
from onmf.learner.update import as_floats
from onmf.model.validation import require_valid_entries
from onmf.samples import KnownZeros, Samples, as_samples, filled

Words = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
CLASSES = 256  # of rows, and of features, where zeros are not stored


@dataclass(frozen=True)
class HoldoutMask:
    """A mask that holds out every entry with probability ``share``, zeros like any other.

    A hash of the row's number or name, the column and the seed decides, so that the mask is the same in every pass, for
    every order of the samples and for every size of batches, and nothing of it is stored. A ``sparse`` mask sorts rows
    and features into classes by their hashes, and the classes decide: then sums over them are all that it takes to
    know which zeros are left, and these need not be stored.
    """

    share: float
    seed: int
    missing: str | None = None  # what entries mean, as in OnlineNMF
    implicit: str = "zero"
    sparse: bool = False

    def without_held(self, source: Source) -> Source:
        """Return the source without the entries that are held out: all that a model may learn from.

        Unless the mask is ``sparse``, sparse batches whose absent entries are zeros become dense, each as it is read:
        a zero must differ from an entry that is held out. Those of data in memory are split once, not in every pass.
        """
        if self.sparse and isinstance(source, Rows) and no_room("", _bytes(source.X), source.memory // 4) is None:
            part = Rows(self.split(np.arange(len(source)), source.X, source.feature_names)[0])
            part.checked = True
            return part

        def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
            for rows, batch in read_from(source, size, rng, on_bad, first):
                yield rows, self.split(rows, batch, source.feature_names)[0]

        # Every model would check the names of features and files, which are the same for all.
        return Derived(source, batches, self.without_held, feature_names=None, files=None, spec=None)

    def split(self, rows: Any, batch: Any, names: Sequence[str] | None = None) -> tuple[Samples, Samples]:
        """Return these rows without the entries that are held out, and these entries; both with their sample weights.

        ``names`` are the features' names, for messages.
        """
        X = as_samples(as_floats(batch), self.missing, self.implicit)
        require_valid_entries(X, rows, names)
        if self.sparse and not X.masked:
            return self._split_by_classes(rows, X.sparsified())
        X = X.as_masked()
        if X.sparse:
            entries = np.repeat(self._of_rows(rows), np.diff(X.matrix.indptr)) ^ self._of_columns(X.matrix.indices)
            chosen = self._chosen(entries)
            return _stored(X, ~chosen, "missing"), _stored(X, chosen, "missing")
        chosen = self._chosen(self._of_rows(rows)[:, None] ^ self._of_columns(np.arange(X.shape[1])))
        seen, held = (
            filled(Samples(X.matrix, X.entry_weights * part, X.sample_weight, "missing")) for part in (~chosen, chosen)
        )
        return seen, held

    def _split_by_classes(self, rows: Any, X: Samples) -> tuple[Samples, Samples]:
        few = np.arange(CLASSES)
        chosen = self._chosen(self._of_rows(few)[:, None] ^ self._of_columns(few))
        of_rows, of_features = (
            (keys % np.uint64(CLASSES)).astype(np.int64)
            for keys in (self._of_rows(rows), self._of_columns(np.arange(X.shape[1])))
        )
        there = chosen[np.repeat(of_rows, np.diff(X.matrix.indptr)), of_features[X.matrix.indices]]
        seen = _stored(X, ~there, KnownZeros(of_rows, of_features, ~chosen))
        return seen, _stored(X, there, KnownZeros(of_rows, of_features, chosen))

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


def _bytes(X: Any) -> int:
    return int(X.nnz * (X.dtype.itemsize + 4)) if scipy.sparse.issparse(X) else int(X.nbytes)


def _stored(X: Samples, kept: Mask, absent: Any) -> Samples:
    """Return sparse samples with only these of the entries that they store."""
    stored = X.matrix
    indptr = np.r_[0, np.cumsum(kept)][stored.indptr].astype(stored.indptr.dtype)
    matrix = type(stored)((stored.data[kept], stored.indices[kept], indptr), shape=X.shape)
    return Samples(matrix, some_of(X.entry_weight, kept), X.sample_weight, absent)


def rewinding_source(X: Any) -> Source | None:
    """Return a source or a list of batches as a source that several fits can read; None for data in memory."""
    source = as_stream(X)
    if source is not None and not source.rewinds:
        raise SourceError(
            "this source can be read only once, but every fit learns from all of it; write it to a file first."
        )
    return source
