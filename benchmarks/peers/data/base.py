"""What a data set is: samples to learn from and others to be judged by, drawn by a seed.

Real data lie in the folder that the environment variable ONMF_DATA names; without it their sets are skipped, visibly.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from onmf import divergences
from onmf.model.units import Units
from onmf.samples import Samples as OfLibrary

HELD_OUT = 500
STARTS = ("uniform", "nndsvda", "own")


@dataclass(frozen=True)
class Samples:
    """Training samples X and held-out ones (rows), dense or CSR; ``clean``: the latter without noise, if known."""

    X: Any
    held_out: Any
    K: int
    divergence: str  # with its parameters
    clean: np.ndarray | None = None
    ordered: bool = False  # a stream in its natural order, which no pass may shuffle

    def usable(self) -> Samples:
        """Without empty samples, and with zeros raised where the divergence admits none: the same for everybody."""
        X, held_out = (_rows(part) for part in (self.X, self.held_out))
        divergence = divergences.get(self.divergence)
        if not divergence.domain.x.includes_zero:
            units = Units(1.0, float(X.mean()), False)
            X, held_out = (units.inside(OfLibrary(part), divergence)[0].matrix for part in (X, held_out))
        return replace(self, X=X, held_out=held_out)


class Source(ABC):
    """A data set by name, with the divergences it is learnt under."""

    name: str
    divergences: tuple[str, ...]
    real: bool = False
    sparse: bool = False
    passes: int = 5  # at most
    starts: tuple[str, ...] = STARTS
    rivals: tuple[str, ...] = ()  # the only contestants, where the others would take hours; empty: all

    def missing(self) -> str | None:
        """Say why the set cannot be used; None if it can."""
        return "skipped: name the folder of the real data in ONMF_DATA" if self.real and not _folder() else None

    def samples(self, divergence: str, size: str, seed: int) -> Samples:
        """The training and held-out samples of a seed; size is "small" or "full"."""
        return self.draw(divergence, size == "small", np.random.default_rng(seed)).usable()

    @abstractmethod
    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        """The samples as they come."""


def split(X: Any, rng: np.random.Generator, n: int | None = None, held_out: int = HELD_OUT) -> tuple[Any, Any]:
    """(training, held-out) samples at random, the training ones in their order; n limits the former."""
    chosen = rng.permutation(X.shape[0])
    held_out = min(held_out, X.shape[0] // 5)
    rest = chosen[held_out:] if n is None else chosen[held_out : held_out + n]
    return X[np.sort(rest)], X[np.sort(chosen[:held_out])]


def _folder() -> str | None:
    return os.environ.get("ONMF_DATA") or None


def _rows(X: Any) -> Any:
    if not scipy.sparse.issparse(X):
        return np.ascontiguousarray(X[X.sum(axis=1) > 0], dtype=np.float64)
    X = scipy.sparse.csr_matrix(X, dtype=np.float64)
    X = X[np.asarray(X.sum(axis=1)).ravel() > 0]
    X.sort_indices()  # choosing columns unsorts them, and MiniBatchNMF.partial_fit is then silently wrong
    return X
